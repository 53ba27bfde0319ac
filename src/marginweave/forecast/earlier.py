"""Find what earlier releases of the same rows are worth, before a draw."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.forecast.plan_sentence import plan_sentence, sd_span
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.released.earlier import drawn_again
from marginweave.released.statement import MarginalStatement
from marginweave.runs.request import Request
from marginweave.texts.sentences import Sentence


def earlier_forecast(request: Request) -> list[Sentence]:
    """Return which noisy counts of earlier releases are used in addition to those drawn, and what they are worth."""
    sentences = []
    for earlier in request.earlier:
        sets = ", ".join(map(str, _sets_of(earlier.marginals)))
        sentences.append(plan_sentence("earlier.known", run=earlier.entry.release.run, sets=sets))
        drawn_columns = sorted(drawn_again(request.configuration))
        if drawn_columns:
            sentences.append(plan_sentence("earlier.not-used", columns=listed(drawn_columns)))
        singles = {
            m.attributes[0]: m.deviation for m in earlier.marginals if len(m.attributes) == 1
        }
        if singles:
            drawn, combined = _mean_deviations(request.configuration, singles)
            sentences.append(plan_sentence("earlier.together", drawn=drawn, together=combined))
    return sentences


def _sets_of(marginals: Sequence[MarginalStatement]) -> Iterator[Sentence]:
    """Yield the number of sets of each length and their noise, the shortest first."""
    for length in sorted({len(marginal.attributes) for marginal in marginals}):
        deviations = [
            marginal.deviation for marginal in marginals if len(marginal.attributes) == length
        ]
        number = len(deviations)
        if length == 1:
            key = "earlier.column" if number == 1 else "earlier.columns"
        else:
            key = "earlier.set" if number == 1 else "earlier.sets"
        sd = sd_span(min(deviations), max(deviations))
        yield plan_sentence(key, number=number, length=length, sd=sd)


def _mean_deviations(
    configuration: Configuration, earlier: Mapping[str, float]
) -> tuple[float, float]:
    """Return the mean sigma of the single columns that were measured earlier, as drawn and together.

    Together it is (1/s^2 + 1/t^2)^(-1/2).
    """
    planned = plan_budget(configuration).draw(OneWayMarginals).sigmas(configuration)
    drawn = {
        a.name: float(sigma) for a, sigma in zip(configuration.attributes, planned, strict=True)
    }
    combined = [1 / math.hypot(1 / drawn[name], 1 / sigma) for name, sigma in earlier.items()]
    return sum(drawn[name] for name in earlier) / len(earlier), sum(combined) / len(earlier)
