"""`plan --target`: the smallest epsilon with which an error is expected that is small enough, by planning again and again."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.privacy import MOST_EPSILON
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of
from marginweave.forecast.expected import (
    EPSILONS,
    LAWS,
    NOISE,
    ROWS,
    beyond,
    by_law,
    columns_error,
    count_noise_alone,
    expected_errors,
    is_measured,
    known_rows,
    noise_error,
    percent,
    unmeasured,
)
from marginweave.forecast.noise import observer_chance
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.catalogue import sigmas_reached

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_DISTANCE = re.compile(rf"(pairs|triples)\s+(?:within\s+{_NUMBER}\s*%|tvd\s+{_NUMBER})", re.ASCII | re.IGNORECASE)
_GROUP = re.compile(r"groups\s+of\s+(\d{1,9})\s+within\s+(\d{1,9})", re.ASCII | re.IGNORECASE)
_FORMS = "write 'pairs within 5 %', 'triples TVD .08' or 'groups of 100 within 20'"
TWO_DIGITS = (*(float(f"{digits}e{power}") for power in (-3, -2, -1) for digits in range(10, 100)), MOST_EPSILON)
"""The epsilons that are looked at, from .01 on."""
_GROUP_LEVEL = 0.95  # in 19 of 20 releases


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
    """The epsilons that are looked at: of a distance those at which tables with so much noise were measured."""
    rows = known_rows(configuration)
    if target.group or rows is None:
        return TWO_DIGITS
    epsilons = [epsilon for epsilon in TWO_DIGITS if EPSILONS[0] <= epsilon <= EPSILONS[1]]
    least, most = NOISE

    def distance(epsilon: float) -> float:
        return -columns_error(with_epsilon(configuration, epsilon), rows)

    return tuple(epsilons[bisect_left(epsilons, -most, key=distance) : bisect_right(epsilons, -least, key=distance)])


def smallest_epsilon(configuration: Configuration, target: ErrorTarget, *, is_sure: bool = False) -> float | None:
    """The smallest epsilon of two digits that reaches the target; None where none that is looked at does.

    With `is_sure` it is that by which nine of ten tables reached it.
    """
    epsilons = looked_at(configuration, target)

    def enough(epsilon: float) -> bool:
        return reaches(with_epsilon(configuration, epsilon), target, is_sure=is_sure)

    place = bisect_left(epsilons, True, key=enough)
    return epsilons[place] if place < len(epsilons) else None


def reaches(configuration: Configuration, target: ErrorTarget, *, is_sure: bool = False) -> bool:
    """Whether the error that is expected is at most the target's; with `is_sure` that of nine of ten tables."""
    if target.group:
        return group_error(configuration, target.group) <= target.most
    found = expected_errors(configuration, known_rows(configuration))
    if found is None:
        return False
    of = found[target.columns - 2]
    return (of.high if is_sure else of.error) <= target.most


def group_error(configuration: Configuration, group: int) -> float:
    """The error, in 19 of 20 releases, of the count of a group alike in the noisiest column: all of it where it is merged."""
    plan, settings = plan_budget(configuration), configuration.marginal_settings
    draw = plan.draw(OneWayMarginals)
    sigma = max(map(float, draw.sigmas(configuration)))
    if settings.compress != "none" and settings.compress * sigma > group:
        return group
    return min(group, sigma * sigmas_reached(draw.mechanism.name, _GROUP_LEVEL))


def target_forecast(configuration: Configuration, target: ErrorTarget) -> Iterator[str]:
    """The smallest epsilon, what is expected at it and at the configuration's own, and what it protects, in words.

    Raises:
        InputError: nothing is known of the configuration that could be compared with the target.
    """
    _refuse_unknown(configuration, target)
    epsilons, found = looked_at(configuration, target), smallest_epsilon(configuration, target)
    if found is None:
        most = with_epsilon(configuration, epsilons[-1])
        yield f"Target {target}: no epsilon up to {epsilons[-1]:g} reaches it; {_said(most, target)}"
        yield _remedies(most, target)
    else:
        least = not target.group and found == epsilons[0]
        beside = ", the smallest that was measured, reaches it" if least else " is the smallest that reaches it"
        yield f"Target {target}: epsilon {found:g}{beside}; {_said(with_epsilon(configuration, found), target)}"
        chance = observer_chance(configuration, found)
        yield f"At epsilon {found:g} the observer who knows everything else is right at most {chance} of the time"
        if not target.group:
            yield _surely(configuration, target)
    yield f"This configuration: {_said(configuration, target)}"
    if not target.group:
        yield "In brackets: eight of ten tables of our benchmarks that the forecast was not fitted to were between these"


def _surely(configuration: Configuration, target: ErrorTarget) -> str:
    """What would reach the target with most tables, as it is expected with half of them."""
    sure = smallest_epsilon(configuration, target, is_sure=True)
    if sure is None:
        return f"That is about an even chance; no epsilon up to {looked_at(configuration, target)[-1]:g} makes it nine of ten"
    return f"That is about an even chance; nine of ten tables of our benchmarks would reach it with epsilon {sure:g}"


def _said(configuration: Configuration, target: ErrorTarget) -> str:
    at = f"at epsilon {configuration.privacy.epsilon:g}"
    if target.group:
        return f"{at} its count is off by at most {group_error(configuration, target.group):.2g} in 19 of 20 releases"
    found = expected_errors(configuration, known_rows(configuration))
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
    epsilons = looked_at(configuration, target) if is_measured(configuration) else ()
    if why := unmeasured(with_epsilon(configuration, (*EPSILONS, *epsilons)[-1]), rows):
        raise InputError(
            f"--target of {target} has no forecast: {why}; ask for groups of N within E, which noise decides"
        )


def _remedies(most: Configuration, target: ErrorTarget) -> str:
    """What would reach a target that the largest epsilon does not, or come closer."""
    if target.group:
        return "Fewer columns leave more of the budget for each; or ask for larger groups or a larger error"
    rows, noise, sizes = known_rows(most) or 0, count_noise_alone(most), public_sizes(most)
    epsilon, step = most.privacy.epsilon, 500
    coarser = [max(2, (size + 1) // 2) for size in sizes]

    def error(sizes: Sequence[int], rows: int) -> float:
        return by_law(LAWS[target.columns], noise_error(sizes, noise, rows), sizes, rows).error

    known = [more for more in range(rows, ROWS[1] + 1, step) if not beyond(sizes, noise, more, epsilon)]
    needed = next((more for more in known if error(sizes, more) <= target.most), None)
    found = [f"{known[-1]:,} rows would not reach it" if needed is None else f"about {needed:,} rows would reach it"]
    for words, some in (("half as many columns", sizes[::2]), ("half as many values in each", coarser)):
        if not beyond(some, noise, rows, epsilon):
            found.append(f"{words}: {percent(error(some, rows))}")
    return f"At epsilon {epsilon:g} {'; '.join(found)}"
