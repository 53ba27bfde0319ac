"""What earlier releases of the same rows are worth, before a draw."""

from __future__ import annotations

import math
from collections.abc import Mapping

from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.released.earlier import drawn_again
from marginweave.runs.request import Request


def earlier_forecast(request: Request) -> list[str]:
    """Which noisy counts of earlier releases are used beside those that are drawn, and what they are worth, in words."""
    lines = []
    for earlier in request.earlier:
        sets = []
        for k in sorted({len(m.attributes) for m in earlier.marginals}):
            noise = [m.deviation for m in earlier.marginals if len(m.attributes) == k]
            span = " to ".join(dict.fromkeys(f"{sd:.1f}" for sd in (min(noise), max(noise))))
            several = "s" if len(noise) > 1 else ""
            sets.append(
                f"{len(noise)} {f'single column{several}' if k == 1 else f'set{several} of {k} columns'} (sd {span})"
            )
        lines.append(
            f"Known from an earlier release of the same rows, run {earlier.entry.release.run}: {', '.join(sets)}; free, as "
            "it was charged then, and no draw depends on it"
        )
        if drawn := sorted(drawn_again(request.configuration)):
            lines.append(
                f"Not used of that release: {listed(drawn)}, as chance decides what their cells hold, again in each release"
            )
        single = {m.attributes[0]: m.deviation for m in earlier.marginals if len(m.attributes) == 1}
        if single:
            own, both = _with_earlier(request.configuration, single)
            lines.append(f"Single columns on average: sd {own:.1f} as drawn, {both:.1f} together with that release")
    return lines


def _with_earlier(configuration: Configuration, earlier: Mapping[str, float]) -> tuple[float, float]:
    """The mean sigma of the single columns that were measured earlier, as drawn and together: (1/s^2 + 1/t^2)^(-1/2)."""
    plan = plan_budget(configuration)
    planned = plan.draw(OneWayMarginals).sigmas(configuration)
    drawn = {a.name: float(sigma) for a, sigma in zip(configuration.attributes, planned, strict=True)}
    together = [1 / math.hypot(1 / drawn[name], 1 / sigma) for name, sigma in earlier.items()]
    return sum(drawn[name] for name in earlier) / len(earlier), sum(together) / len(earlier)
