"""`plan --target`: find the smallest epsilon with which an error is expected that is small enough, by planning repeatedly."""

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
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.mechanisms.catalogue import sigmas_reached
from marginweave.texts.sentences import Sentence

_NUMBER = r"(\d+\.?\d*|\.\d+)"
_DISTANCE = re.compile(
    rf"(pairs|triples)\s+(?:within\s+{_NUMBER}\s*%|tvd\s+{_NUMBER})", re.ASCII | re.IGNORECASE
)
_GROUP = re.compile(r"groups\s+of\s+(\d{1,9})\s+within\s+(\d{1,9})", re.ASCII | re.IGNORECASE)
_FORMS = "write 'pairs within 5 %', 'triples TVD .08' or 'groups of 100 within 20'"
TWO_DIGITS = (
    *(float(f"{digits}e{power}") for power in (-3, -2, -1) for digits in range(10, 100)),
    MOST_EPSILON,
)
"""The epsilons that are looked at, from .01 on."""
_GROUP_LEVEL = 0.95  # in 19 of 20 releases


@dataclass(frozen=True, kw_only=True)
class ErrorTarget:
    """An error of at most `most`: a distance of pairs or triples of columns, or records of a `group` with a value alike."""

    columns: int
    most: float
    group: int = 0

    def __str__(self) -> str:
        """Return the target as it is typed."""
        if self.group:
            return f"groups of {self.group} within {self.most:g}"
        return f"{'pairs' if self.columns == 2 else 'triples'} within {100 * self.most:g} %"


def parse_target(text: str) -> ErrorTarget:
    """Return the target that was typed. Raises InputError where it is none."""
    distance = _DISTANCE.fullmatch(text.strip())
    if distance:
        most = float(distance[2]) / 100 if distance[2] else float(distance[3])
        if not 0 < most < 1:
            raise InputError(
                f"--target ({text}) must be a distance above 0 and below 100 %: a TVD is never above 1"
            )
        return ErrorTarget(columns=2 if distance[1].lower() == "pairs" else 3, most=most)
    records = _GROUP.fullmatch(text.strip())
    if records:
        group = int(records[1])
        most = int(records[2])
        if not 0 < most < group:
            raise InputError(
                f"--target ({text}) must allow an error above 0 and below the size of the group"
            )
        return ErrorTarget(columns=1, most=most, group=group)
    raise InputError(f"--target ({text}) is not understood; {_FORMS}")


def with_epsilon(configuration: Configuration, epsilon: float) -> Configuration:
    """Return the configuration of the same file with another epsilon: what is left to `auto` is chosen again."""
    written = mapping_of(configuration.written)
    return parse_configuration({**written, "privacy": {**written["privacy"], "epsilon": epsilon}})


def looked_at(configuration: Configuration, target: ErrorTarget) -> tuple[float, ...]:
    """Return the epsilons that are looked at: of a distance, those at which tables with as much noise were measured."""
    rows = known_rows(configuration)
    if target.group or rows is None:
        return TWO_DIGITS
    epsilons = [epsilon for epsilon in TWO_DIGITS if EPSILONS[0] <= epsilon <= EPSILONS[1]]
    least, most = NOISE

    def distance(epsilon: float) -> float:
        return -columns_error(with_epsilon(configuration, epsilon), rows)

    return tuple(
        epsilons[
            bisect_left(epsilons, -most, key=distance) : bisect_right(
                epsilons, -least, key=distance
            )
        ]
    )


def smallest_epsilon(
    configuration: Configuration, target: ErrorTarget, *, is_sure: bool = False
) -> float | None:
    """Return the smallest epsilon of two digits that reaches the target; None where none that is looked at does.

    With `is_sure` it is that by which nine of ten tables reached it.
    """
    epsilons = looked_at(configuration, target)

    def enough(epsilon: float) -> bool:
        return reaches(with_epsilon(configuration, epsilon), target, is_sure=is_sure)

    place = bisect_left(epsilons, True, key=enough)
    return epsilons[place] if place < len(epsilons) else None


def reaches(configuration: Configuration, target: ErrorTarget, *, is_sure: bool = False) -> bool:
    """Return whether the error that is expected is at most the target's; with `is_sure` that of nine of ten tables."""
    if target.group:
        return group_error(configuration, target.group) <= target.most
    errors = expected_errors(configuration, known_rows(configuration))
    if errors is None:
        return False
    expected = errors[target.columns - 2]
    return (expected.high if is_sure else expected.error) <= target.most


def group_error(configuration: Configuration, group: int) -> float:
    """Return the error, in 19 of 20 releases, of the count of a group alike in the noisiest column.

    It is the whole group where that is merged with others.
    """
    settings = configuration.marginal_settings
    draw = plan_budget(configuration).draw(OneWayMarginals)
    sigma = max(map(float, draw.sigmas(configuration)))
    if settings.compress != "none" and settings.compress * sigma > group:
        return group
    return min(group, sigma * sigmas_reached(draw.mechanism.name, _GROUP_LEVEL))


def target_forecast(configuration: Configuration, target: ErrorTarget) -> Iterator[Sentence]:
    """Yield the smallest epsilon, what is expected at it and at the configuration's own, and what it protects.

    Raises:
        InputError: nothing is known of the configuration that could be compared with the target.
    """
    _refuse_unknown(configuration, target)
    epsilons = looked_at(configuration, target)
    smallest = smallest_epsilon(configuration, target)
    if smallest is None:
        largest = with_epsilon(configuration, epsilons[-1])
        expected = _expected(largest, target)
        yield plan_sentence(
            "target.not-reached", target=str(target), epsilon=epsilons[-1], said=expected
        )
        yield _remedies(largest, target)
    else:
        is_least = not target.group and smallest == epsilons[0]
        key = "target.reached-at-least" if is_least else "target.reached"
        expected = _expected(with_epsilon(configuration, smallest), target)
        yield plan_sentence(key, target=str(target), epsilon=smallest, said=expected)
        yield plan_sentence(
            "target.observer", epsilon=smallest, chance=observer_chance(configuration, smallest)
        )
        if not target.group:
            yield _surely(configuration, target)
    yield plan_sentence("target.configuration", said=_expected(configuration, target))
    if not target.group:
        yield plan_sentence("target.brackets")


def _surely(configuration: Configuration, target: ErrorTarget) -> Sentence:
    """Return what would reach the target with most tables, as it is expected with half of them."""
    sure = smallest_epsilon(configuration, target, is_sure=True)
    if sure is None:
        return plan_sentence("target.not-sure", epsilon=looked_at(configuration, target)[-1])
    return plan_sentence("target.sure", epsilon=sure)


def _expected(configuration: Configuration, target: ErrorTarget) -> Sentence:
    """Return what is expected of the target's error at the epsilon of a configuration."""
    epsilon = configuration.privacy.epsilon
    if target.group:
        return plan_sentence(
            "target.group", epsilon=epsilon, error=group_error(configuration, target.group)
        )
    errors = expected_errors(configuration, known_rows(configuration))
    if errors is None:
        return plan_sentence("target.not-measured", epsilon=epsilon)
    return plan_sentence("target.expected", epsilon=epsilon, errors=errors.sentence)


def _refuse_unknown(configuration: Configuration, target: ErrorTarget) -> None:
    """Refuse where nothing can be said, with what to do; the epsilon is what is looked for."""
    if target.group:
        if configuration.marginals is None or configuration.private_columns:
            raise InputError(
                "--target of groups is known only where marginals are counted and no domain is private"
            )
        return
    rows = known_rows(configuration)
    if rows is None:
        raise InputError(
            f"--target of {target} depends on the number of rows; if it is public, say rows: N, else ask for groups"
        )
    epsilons = looked_at(configuration, target) if is_measured(configuration) else ()
    why = unmeasured(with_epsilon(configuration, (*EPSILONS, *epsilons)[-1]), rows)
    if why:
        raise InputError(
            f"--target of {target} has no forecast: {why}; ask for groups of N within E, which noise decides"
        )


_ROWS_STEP = 500  # between the numbers of rows that are tried as a remedy


def _remedies(most: Configuration, target: ErrorTarget) -> Sentence:
    """Return what would reach a target that the largest epsilon does not, or come closer."""
    if target.group:
        return plan_sentence("remedy.group")
    rows = known_rows(most) or 0
    noise = count_noise_alone(most)
    sizes = public_sizes(most)
    epsilon = most.privacy.epsilon

    def error(sizes: Sequence[int], rows: int) -> float:
        return by_law(LAWS[target.columns], noise_error(sizes, noise, rows), sizes, rows).error

    tried = [
        number
        for number in range(rows, ROWS[1] + 1, _ROWS_STEP)
        if not beyond(sizes, noise, number, epsilon)
    ]
    enough = next((number for number in tried if error(sizes, number) <= target.most), None)
    if enough is None:
        remedies = [plan_sentence("remedy.no-rows", rows=tried[-1])]
    else:
        remedies = [plan_sentence("remedy.rows", rows=enough)]
    coarser = [max(2, (size + 1) // 2) for size in sizes]
    for key, smaller_sizes in (("remedy.columns", sizes[::2]), ("remedy.values", coarser)):
        if not beyond(smaller_sizes, noise, rows, epsilon):
            remedies.append(plan_sentence(key, error=percent(error(smaller_sizes, rows))))
    return plan_sentence("remedy.errors", epsilon=epsilon, remedies="; ".join(map(str, remedies)))
