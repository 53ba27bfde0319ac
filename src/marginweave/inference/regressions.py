"""Reads from a release the input of a regression: measured tables, records of the fitted model, and numbers for values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from marginweave.answers.intervals import Reach, check_level
from marginweave.answers.least_squares import Estimates, NotMeasuredError
from marginweave.base.arrays import Floats, Records
from marginweave.base.errors import InputError
from marginweave.configuration.values import listed
from marginweave.inference.bin_places import BinnedRecords
from marginweave.inference.modelled import (
    UNCLAIMED,
    Modelled,
    check_sample,
    chosen_pairs,
    no_coverage,
    open_modelled,
    subject_key,
)
from marginweave.inference.normal_regression import Calibrated, Fit, Kind, Term
from marginweave.texts.sentences import Sentence, regression_sentence

_INTERCEPT = "intercept"
MOST_WIDTHS = 10.0
"""Widths of an interval that bins may move a coefficient by; with more, it is flagged.

In seven tables numbers moved coefficients by 1 to 12 % of what they may at worst, half of them by less than 4 %
(`docs/inference.md`): of ten widths that is nearly half a width, as far as an interval reaches.
"""
_PLACED = 5
"""Of so many records of the model one is placed inside its bins, which makes `bins` a fifth of the work."""
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
    of: Literal["population", "table"]
    values: Mapping[str, Mapping[str, float]]
    level: float


@dataclass(frozen=True, kw_only=True, eq=False)
class AnsweredRegression:
    """Coefficients by name, and half the widths of their intervals, each of shape (coefficients,).

    `bins` is how far each may move by where numbers lie inside their bins (`BinnedRecords.largest_shifts`). `flags` say that a
    coefficient should not be used, or that no coverage is claimed; empty where neither is so. `level` is None where no coverage
    is claimed. `says` is in sentences what the regression is of, and what its intervals are.
    """

    names: tuple[str, ...]
    estimates: Estimates
    half_widths: Floats
    bins: Floats
    flags: tuple[str, ...]
    level: float | None
    says: str


def answer_regression(place: Path, question: Regression) -> AnsweredRegression:
    """Return a regression with its intervals. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.regression`.
    """
    _check(question)
    return of_opened(open_modelled(place, question.of, "a regression needs"), question)


def of_opened(opened: Modelled, question: Regression) -> AnsweredRegression:
    """Return a regression with its intervals, for a release that is open.

    Raises:
        InputError: as `answer_regression`.
    """
    opened.places([*question.values])
    columns = (*question.columns, question.target)
    check_sample(opened.answers.codes.configuration, columns, question.of, "")
    places = opened.places(columns)
    names = [_INTERCEPT]
    terms: list[Term] = []
    for column, place in zip(columns, places, strict=True):
        term_names, scores = _scores(opened, place, column, question)
        names += term_names
        terms.append(_term(opened, place, column, scores))
    generator = np.random.default_rng(opened.seed)  # post-processing
    records = opened.records(generator)
    try:
        calibrated = Calibrated.of(opened.drawn, records, terms)
    except NotMeasuredError:
        raise opened.not_together(columns) from None
    sampling = opened.rows_a_subject if question.of == "population" else 0.0
    fit = calibrated.fit(question.kind, sampling=sampling)
    _check_noise(fit, names)
    reach = Reach(level=question.level, tails=opened.squares.measured.tails)
    sigmas = np.sqrt(np.diagonal(fit.coefficients.covariance)).tolist()
    bin_halves = [
        _bin_halves(opened, place, column, question)
        for column, place in zip(columns, places, strict=True)
    ]
    binned = _binned_records(records[::_PLACED], calibrated.weights[::_PLACED], terms, bin_halves)
    half_widths = np.array([reach.of(sigma) for sigma in sigmas])
    bins = binned.largest_shifts(question.kind)
    is_moved = bins > MOST_WIDTHS * 2 * half_widths
    pairs = chosen_pairs(opened.answers, columns, places) if question.of == "population" else ""
    unmoved_flag = UNCLAIMED if pairs else ""
    return AnsweredRegression(
        names=tuple(names[: len(sigmas)]),
        estimates=fit.coefficients,
        half_widths=half_widths,
        bins=bins,
        flags=tuple("do not use" if moved else unmoved_flag for moved in is_moved.tolist()),
        level=None if pairs else question.level,
        says=_words(opened, places, question, pairs, binned),
    )


def _words(
    opened: Modelled,
    places: Sequence[int],
    question: Regression,
    pairs: str,
    binned: BinnedRecords,
) -> str:
    """Return in sentences what a regression is of, and what its intervals are.

    `pairs` are those that the rows have chosen, in words.
    """
    about = opened.answers.codes.about(question.of, places)
    rows = opened.rows_a_subject
    subject = regression_sentence(
        f"subject.{subject_key(about, rows)}", about=str(about), rows=rows
    )
    columns_have_bins = bool(binned.x_half.any())
    has_bins = columns_have_bins or bool(binned.y_half.any())
    replaced = list(_replaced_numbers(opened, question))
    of = f"of.{question.kind}-middles" if has_bins and not replaced else f"of.{question.kind}"
    sentences = [regression_sentence(of, subject=subject)]
    if pairs:
        sentences.append(no_coverage(pairs))
    else:
        sentences.append(regression_sentence("interval.covers", level=question.level))
    sentences += replaced
    sentences += _given_numbers(opened, question)
    if has_bins:
        key = "bins.columns" if columns_have_bins else "bins.target"
        sentences.append(regression_sentence(key, widths=MOST_WIDTHS))
    return " ".join(map(str, sentences))


def _given_numbers(opened: Modelled, question: Regression) -> Iterator[Sentence]:
    """Yield for each column of numbers what its values that are no numbers count, such as a missing one."""
    for column, declared, middles in _declared_numbers(opened, question):
        values = [
            f"{label} counts {declared[label]:g}"
            for label in declared
            if not math.isfinite(middles[label])
        ]
        if values:
            yield regression_sentence("counted.given", column=column, values=", ".join(values))


def _replaced_numbers(opened: Modelled, question: Regression) -> Iterator[Sentence]:
    """Yield for each column of numbers which of its numbers count others than the middles of their bins."""
    for column, declared, middles in _declared_numbers(opened, question):
        values = [
            f"{label} counts {declared[label]:g}"
            for label, middle in middles.items()
            if label in declared and math.isfinite(middle) and declared[label] != middle
        ]
        if values:
            yield regression_sentence("counted.replaced", column=column, values=", ".join(values))


def _declared_numbers(
    opened: Modelled, question: Regression
) -> Iterator[tuple[str, Mapping[str, float], dict[str, float]]]:
    """Yield each column of numbers that has `values` in the question, these, and the middle of each value or nan."""
    for column in (question.target, *question.columns):
        declared = question.values.get(column, {})
        ranges = opened.numbers(column)
        if declared and ranges is not None:
            (place,) = opened.places([column])
            labels = opened.labels(place)
            yield column, declared, dict(zip(labels, ranges.middle.tolist(), strict=True))


def _bin_halves(
    opened: Modelled,
    place: int,
    column: str,
    question: Regression,
) -> Floats:
    """Return half of the width of the bin of each code of the model, 0 where a value counts one number."""
    merged = opened.merged[place]
    ranges = opened.numbers(column)
    if ranges is None:
        return np.zeros(merged.max() + 1)
    declared = question.values.get(column, {})
    has_bin = np.isfinite(ranges.middle)
    for code, label in enumerate(opened.labels(place)):
        has_bin[code] &= label not in declared
    halves = np.zeros(len(has_bin))
    halves[has_bin] = (ranges.high[has_bin] - ranges.low[has_bin]) / 2
    counts = opened.counts(place)
    means: Floats = np.bincount(merged, counts * halves) / np.bincount(merged, counts)
    return means


def _binned_records(
    records: Records,
    weights: Floats,
    terms: Sequence[Term],
    bin_halves: Sequence[Floats],
) -> BinnedRecords:
    """Return distinct records of the model with their weights, as a design; the last term is the target.

    Weights below 0, which only noise makes, are 0.
    """
    places = [term.place for term in terms]
    codes, record_of = np.unique(records[:, places], axis=0, return_inverse=True)
    positive_weights = np.maximum(weights, 0.0)
    code_weights = np.bincount(record_of.ravel(), positive_weights, len(codes)).astype(np.float64)
    codes = codes[code_weights > 0]
    columns = [np.ones((1, len(codes)))]
    halves = [np.zeros((1, len(codes)))]
    for term, code_halves, term_codes in zip(terms, bin_halves, codes.T, strict=True):
        values = term.model_weights[:, term_codes]
        columns.append(values)
        halves.append(np.broadcast_to(code_halves[term_codes], values.shape))
    design = np.concatenate(columns).T
    design_halves = np.concatenate(halves).T
    return BinnedRecords(
        x=design[:, :-1],
        y=design[:, -1],
        weights=code_weights[code_weights > 0],
        x_half=design_halves[:, :-1],
        y_half=design_halves[:, -1],
    )


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
    ranges = opened.numbers(column)
    if ranges is None and not declared and not is_target:  # a category of texts
        return _indicators(opened, place, column, labels)
    numbers: dict[str, float] = {}
    if ranges is not None:
        pairs = zip(labels, ranges.middle.tolist(), strict=True)
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
            f"{column!r} has values without a number: {listed(lacking)}. All records are in a regression: say in `values` what "
            "they count, or leave the column out; of the records that have a number, ask query"
        )
    scores = np.array([[float(numbers[label]) for label in labels]])
    if is_target and question.kind == "logistic" and not np.isin(scores, (0, 1)).all():
        raise InputError(
            f"a logistic regression needs values of {column!r} that count 0 or 1; say so in `values`"
        )
    return [_column_label(column)], scores


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
        group_labels = " or ".join(_value_label(labels[code]) for code in codes.tolist())
        names.append(f"{_column_label(column)}={group_labels}")
        indicators[row, codes] = 1.0
    return names, indicators


def _column_label(column: str) -> str:
    """Return the name of a column in that of a coefficient: in quotes where it would read as something else."""
    is_clear = column != _INTERCEPT and "=" not in column and '"' not in column
    return column if is_clear else json.dumps(column, ensure_ascii=False)


def _value_label(label: str) -> str:
    """Return a value in the name of a coefficient: in quotes where it would read as something else."""
    is_clear = not any(sign in label for sign in ("=", '"', " or "))
    return label if is_clear else json.dumps(label, ensure_ascii=False)


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
    share = opened.merged_share(place, scores)
    if share > MOST_MERGED:
        is_merged = np.bincount(merged)[merged] > 1
        labels = opened.labels(place)
        merged_labels = [
            label for label, is_one in zip(labels, is_merged.tolist(), strict=True) if is_one
        ]
        raise InputError(
            f"{share:.0%} of the variance of {column!r} lies between values that were measured together "
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
