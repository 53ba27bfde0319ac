"""`plan --target`: the smallest epsilon with which an error is expected that is small enough, by planning again and again."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of
from marginweave.forecast.expected import (
    LAWS,
    ROWS,
    count_noise_alone,
    error_by_law,
    expected_errors,
    known_rows,
    measured_epsilons,
    percent,
    unmeasured,
)
from marginweave.forecast.noise import observer_chance
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_DISTANCE = re.compile(rf"(pairs|triples)\s+(?:within\s+{_NUMBER}\s*%|tvd\s+{_NUMBER})", re.ASCII | re.IGNORECASE)
_GROUP = re.compile(r"groups\s+of\s+(\d{1,9})\s+within\s+(\d{1,9})", re.ASCII | re.IGNORECASE)
_FORMS = "write 'pairs within 5 %', 'triples TVD .08' or 'groups of 100 within 20'"
TWO_DIGITS = (*(float(f"{digits}e{power}") for power in (-3, -2, -1) for digits in range(10, 100)), MOST_EPSILON)
"""The epsilons that are looked at, from .01 on."""
_WIDTH, _PURE_WIDTH = 1.96, 2.12  # standard deviations within which normal and Laplace noise are in 19 of 20 releases


@dataclass(frozen=True, kw_only=True)
class ErrorTarget:
    """An error of at most `most`: a distance of pairs or triples of columns, or records of a `group` with a value alike."""

    columns: int
    most: float
    group: int = 0

    def __str__(self) -> str:
        if self.group:
            return f"groups of {self.group} within {self.most:g}"
        return f"{'pairs' if self.columns == 2 else 'triples'} within {100 * self.most:g} %"


def parse_target(text: str) -> ErrorTarget:
    """The target that was typed. Raises InputError where it is none."""
    if found := _DISTANCE.fullmatch(text.strip()):
        most = float(found[2]) / 100 if found[2] else float(found[3])
        if not 0 < most < 1:
            raise InputError(f"--target ({text}) must be a distance above 0 and below 100 %: a TVD is never above 1")
        return ErrorTarget(columns=2 if found[1].lower() == "pairs" else 3, most=most)
    if found := _GROUP.fullmatch(text.strip()):
        group, most = int(found[1]), int(found[2])
        if not 0 < most < group:
            raise InputError(f"--target ({text}) must allow an error above 0 and below the size of the group")
        return ErrorTarget(columns=1, most=most, group=group)
    raise InputError(f"--target ({text}) is not understood; {_FORMS}")


def with_epsilon(configuration: Configuration, epsilon: float) -> Configuration:
    """The same file with another epsilon: what is left to `auto` is chosen again."""
    written = mapping_of(configuration.written)
    return parse_configuration({**written, "privacy": {**written["privacy"], "epsilon": epsilon}})


def looked_at(configuration: Configuration, target: ErrorTarget) -> tuple[float, ...]:
    """The epsilons that are looked at: of a distance those at which such tables were measured."""
    rows = known_rows(configuration)
    least, most = TWO_DIGITS[0], TWO_DIGITS[-1]
    if rows is not None and not target.group:
        least, most = measured_epsilons(rows)
    return tuple(epsilon for epsilon in TWO_DIGITS if least <= epsilon <= most)


def smallest_epsilon(configuration: Configuration, target: ErrorTarget) -> float | None:
    """The smallest epsilon of two digits that reaches the target; None where none that is looked at does."""
    epsilons = looked_at(configuration, target)
    place = bisect_left(epsilons, True, key=lambda epsilon: reaches(with_epsilon(configuration, epsilon), target))
    return epsilons[place] if place < len(epsilons) else None


def reaches(configuration: Configuration, target: ErrorTarget) -> bool:
    """Whether the error that is expected is at most the target's."""
    if target.group:
        return group_error(configuration, target.group) <= target.most
    found = expected_errors(configuration)
    return found is not None and found[target.columns - 2] <= target.most


def group_error(configuration: Configuration, group: int) -> float:
    """The error, in 19 of 20 releases, of the count of a group alike in the noisiest column: all of it where it is merged."""
    plan, settings = plan_budget(configuration), configuration.marginal_settings
    draw = plan.draw(OneWayMarginals)
    sigma = max(map(float, draw.sigmas(configuration)))
    if settings.compress != "none" and settings.compress * sigma > group:
        return group
    return min(group, sigma * (_PURE_WIDTH if draw.mechanism.is_pure else _WIDTH))


def target_forecast(configuration: Configuration, target: ErrorTarget) -> Iterator[str]:
    """The smallest epsilon, what is expected at it and at the configuration's own, and what it protects, in words.

    Raises:
        InputError: nothing is known of the configuration that could be compared with the target.
    """
    _refuse_unknown(configuration, target)
    epsilons, found = looked_at(configuration, target), smallest_epsilon(configuration, target)
    if found is None:
        most = with_epsilon(configuration, epsilons[-1])
        few = ", the largest measured of so few rows," if epsilons[-1] < MOST_EPSILON else ""
        yield f"Target {target}: no epsilon up to {epsilons[-1]:g}{few} reaches it; {_said(most, target)}"
        yield _remedies(most, target)
    else:
        least = not target.group and found == epsilons[0]
        beside = ", the smallest that was measured, reaches it" if least else " is the smallest that reaches it"
        yield f"Target {target}: epsilon {found:g}{beside}; {_said(with_epsilon(configuration, found), target)}"
        chance = observer_chance(configuration, found)
        yield f"At epsilon {found:g} the observer who knows everything else is right at most {chance} of the time"
    yield f"This configuration: {_said(configuration, target)}"
    if not target.group:
        yield "Expected is what our benchmarks had; of a table that is not among them, one in five was off by more than 25 %"


def _said(configuration: Configuration, target: ErrorTarget) -> str:
    at = f"at epsilon {configuration.privacy.epsilon:g}"
    if target.group:
        return f"{at} its count is off by at most {group_error(configuration, target.group):.2g} in 19 of 20 releases"
    found = expected_errors(configuration)
    return (
        f"{at} nothing is forecast: it was not measured" if found is None else f"{at} the expected mean TVD is {found}"
    )


def _refuse_unknown(configuration: Configuration, target: ErrorTarget) -> None:
    """Refuse where nothing can be said, with what to do; at which epsilon is what is looked for."""
    if target.group:
        if configuration.marginals is None or configuration.private_columns:
            raise InputError("--target of groups is known only where marginals are counted and no domain is private")
        return
    rows = known_rows(configuration)
    if rows is None:
        raise InputError(
            f"--target of {target} depends on the number of rows; if it is public, say rows: N, else ask for groups"
        )
    if why := unmeasured(with_epsilon(configuration, looked_at(configuration, target)[-1]), rows):
        raise InputError(
            f"--target of {target} has no forecast: {why}; ask for groups of N within E, which noise decides"
        )


def _remedies(most: Configuration, target: ErrorTarget) -> str:
    """What would reach a target that the largest epsilon does not, or come closer."""
    if target.group:
        return "Fewer columns leave more of the budget for each; or ask for larger groups or a larger error"
    rows, noise, sizes = known_rows(most) or 0, count_noise_alone(most), public_sizes(most)

    def error(sizes: Sequence[int], rows: int) -> float:
        return error_by_law(LAWS[target.columns], sizes, noise, rows)

    needed = next((more for more in range(rows, ROWS[1], 500) if error(sizes, more) <= target.most), None)
    more = f"{ROWS[1]:,} rows would not reach it either" if needed is None else f"about {needed:,} rows would reach it"
    fewer, coarser = error(sizes[::2], rows), error([(size + 1) // 2 for size in sizes], rows)
    return (
        f"At epsilon {most.privacy.epsilon:g} {more}; half as many columns: {percent(fewer)}; half as many values in each: "
        f"{percent(coarser)}"
    )
