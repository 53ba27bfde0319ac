"""Reads from a release the input of a regression: measured tables, records of the fitted model, and numbers for values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from marginweave.answers.intervals import Reach, check_level
from marginweave.answers.least_squares import Estimates, NotMeasuredError
from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.values import listed
from marginweave.inference.modelled import Modelled, check_sample, open_modelled
from marginweave.inference.normal_regression import Calibrated, Fit, Kind, Term

MOST_NOISE = 1.0
"""Noise of the least certain contrast of columns, relative to its spread: with more, steps lead away from the solution."""
MOST_MERGED = 0.05
"""Share of the variance of a column between values that were measured together: no interval includes what these add."""


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A question for a regression; see `marginweave.inference.regression`."""

    target: str
    columns: tuple[str, ...]
    kind: Kind
    of: str
    values: Mapping[str, Mapping[str, float]]
    level: float


def answer_regression(
    place: Path, question: Regression
) -> tuple[tuple[str, ...], Estimates, Floats]:
    """Return names, coefficients, and half the widths of their intervals. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.regression`.
    """
    _check(question)
    return of_opened(open_modelled(place, question.of, "a regression needs"), question)


def of_opened(opened: Modelled, question: Regression) -> tuple[tuple[str, ...], Estimates, Floats]:
    """Return names, coefficients, and half the widths of their intervals, for a release that is open.

    Raises:
        InputError: as `answer_regression`.
    """
    opened.places([*question.values])
    columns = (*question.columns, question.target)
    check_sample(opened.answers.codes.configuration, columns, question.of, "")
    names = ["intercept"]
    terms: list[Term] = []
    for column, place in zip(columns, opened.places(columns), strict=True):
        term_names, scores = _scores(opened, place, column, question)
        names += term_names
        terms.append(_term(opened, place, column, scores))
    generator = np.random.default_rng(opened.seed)  # post-processing
    try:
        calibrated = Calibrated.of(opened.drawn, opened.records(generator), terms)
    except NotMeasuredError:
        raise opened.not_together(columns) from None
    sampling = opened.rows_a_subject if question.of == "population" else 0.0
    fit = calibrated.fit(question.kind, sampling=sampling)
    _check_noise(fit, names)
    reach = Reach(level=question.level, tails=opened.squares.measured.tails)
    sigmas = np.sqrt(np.diagonal(fit.coefficients.covariance)).tolist()
    half_widths = np.array([reach.of(sigma) for sigma in sigmas])
    return tuple(names[: len(half_widths)]), fit.coefficients, half_widths


def _check_noise(fit: Fit, names: Sequence[str]) -> None:
    """Refuse a regression with too much noise; raises InputError."""
    if fit.noise > MOST_NOISE:
        raise InputError(
            f"the noise is {fit.noise:.1f} times what tells {names[fit.column]!r} apart from the other columns, more than a "
            "regression carries; leave that column out, or have rare values count as others do in `values`"
        )


def _check(question: Regression) -> None:
    """Refuse a question that is no regression; raises InputError."""
    check_level(question.level)
    if question.kind not in get_args(Kind):
        raise InputError(f"kind ({question.kind}) must be {' or '.join(get_args(Kind))}")
    wrong: list[str] = []
    for name, number_of_value in question.values.items():
        numbers = list(number_of_value.values())
        if not np.isfinite(numbers).all():
            wrong.append(name)
    if wrong:
        raise InputError(f"values of {listed(wrong)} must be finite numbers")


def _scores(
    opened: Modelled,
    place: int,
    column: str,
    question: Regression,
) -> tuple[list[str], Floats]:
    """Return the names of the design's columns that a column gives, and the number of each of its codes.

    Shape (columns of the design, codes).
    """
    labels = opened.labels(place)
    declared = question.values.get(column, {})
    is_target = column == question.target
    middles = opened.numbers(column)
    if middles is None and not declared and not is_target:  # a category of texts
        return _indicators(opened, place, column, labels)
    numbers: dict[str, float] = {}
    if middles is not None:
        pairs = zip(labels, middles.tolist(), strict=True)
        numbers = {label: middle for label, middle in pairs if np.isfinite(middle)}
    numbers |= declared
    unknown = [label for label in numbers if label not in labels]
    if unknown:
        raise InputError(
            f"values of {column!r} names {listed(unknown)}, which it has not; its values: {listed(labels)}"
        )
    lacking = [label for label in labels if label not in numbers]
    if lacking:
        raise InputError(
            f"{column!r} has values without a number; say in `values` what they count: {listed(lacking)}"
        )
    scores = np.array([[float(numbers[label]) for label in labels]])
    if is_target and question.kind == "logistic" and not np.isin(scores, (0, 1)).all():
        raise InputError(
            f"a logistic regression needs values of {column!r} that count 0 or 1; say so in `values`"
        )
    return [column], scores


def _indicators(
    opened: Modelled,
    place: int,
    column: str,
    labels: Sequence[str],
) -> tuple[list[str], Floats]:
    """Return an indicator of each value but the first, with names; values that were measured together have a common one."""
    blocks = opened.merged[place]
    distinct_blocks = list(dict.fromkeys(blocks.tolist()))
    groups = [np.flatnonzero(blocks == block) for block in distinct_blocks[1:]]
    if not groups:
        raise InputError(
            f"the release has too few records for its noise: the values of {column!r} were measured as one, so that no "
            "regression tells them apart; leave that column out"
        )
    names: list[str] = []
    indicators = np.zeros((len(groups), len(labels)))
    for row, codes in enumerate(groups):
        group_labels = " or ".join(labels[code] for code in codes.tolist())
        names.append(f"{column}={group_labels}")
        indicators[row, codes] = 1.0
    return names, indicators


def _term(opened: Modelled, place: int, column: str, scores: Floats) -> Term:
    """Return the term of a column: a code of the model for several values has their mean by measured counts.

    Raises:
        InputError: the differences of these values make up too much of the variance of the column.
    """
    merged = opened.merged[place]
    counts = opened.counts(place)
    merged_counts = np.bincount(merged, counts)
    merged_sums = [np.bincount(merged, counts * row) for row in scores]
    model_weights = np.stack(merged_sums) / merged_counts
    mean = (scores @ counts / counts.sum())[:, None]
    differences = scores - model_weights[:, merged]
    within = (counts * differences**2).sum()
    around = (counts * (scores - mean) ** 2).sum()
    if within > MOST_MERGED * around:
        is_merged = np.bincount(merged)[merged] > 1
        labels = opened.labels(place)
        merged_labels = [
            label for label, is_one in zip(labels, is_merged.tolist(), strict=True) if is_one
        ]
        raise InputError(
            f"{within / around:.0%} of the variance of {column!r} lies between values that were measured together "
            f"({listed(merged_labels)}), which are not known beside other columns; have them count the same in `values`, or "
            "leave the column out"
        )
    weights = model_weights[:, opened.part(place).blocks]
    return Term(
        place=place,
        weights=weights,
        model_weights=model_weights,
        ignored=opened.ignored.get(place, 0.0),
    )
