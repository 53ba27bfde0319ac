"""Reads of a release what a regression takes: measured tables, records of the fitted model, and what values count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from marginweave.answers.intervals import Reach, check_level
from marginweave.answers.least_squares import Estimates, NotMeasuredError
from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.values import listed
from marginweave.inference.modelled import Modelled, open_modelled
from marginweave.inference.normal_regression import Calibrated, Kind, Term


@dataclass(frozen=True, kw_only=True)
class Regression:
    """What is asked; see `marginweave.inference.regression`."""

    target: str
    columns: tuple[str, ...]
    kind: Kind
    of: str
    values: Mapping[str, Mapping[str, float]]
    level: float


def answer_regression(place: Path, asked: Regression) -> tuple[tuple[str, ...], Estimates, Floats]:
    """Names, coefficients, and half the width of their intervals. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.regression`.
    """
    _check(asked)
    opened = open_modelled(place, asked.of, "a regression needs")
    opened.places([*asked.values])
    names, terms, columns = ["intercept"], list[Term](), (*asked.columns, asked.target)
    for column, place_of in zip(columns, opened.places(columns), strict=True):
        found, scores = _scores(opened, place_of, column, asked)
        names += found
        terms.append(_term(opened, place_of, scores))
    generator = np.random.default_rng(opened.seed)  # post-processing
    try:
        calibrated = Calibrated.of(opened.squares, opened.records(generator), terms)
    except NotMeasuredError:
        raise opened.not_together from None
    solved = calibrated.fit(asked.kind, population=asked.of == "population")
    reach = Reach(level=asked.level, pure=opened.squares.measured.pure)
    half = np.array([reach.of(sd) for sd in np.sqrt(np.diagonal(solved.covariance)).tolist()])
    return tuple(names[: len(half)]), solved, half


def _check(asked: Regression) -> None:
    """Refuse what is no regression; raises InputError."""
    check_level(asked.level)
    if asked.kind not in get_args(Kind):
        raise InputError(f"kind ({asked.kind}) must be {' or '.join(get_args(Kind))}")
    if wrong := [name for name, own in asked.values.items() if not np.isfinite([*own.values()]).all()]:
        raise InputError(f"values of {listed(wrong)} must be finite numbers")


def _scores(opened: Modelled, place: int, column: str, asked: Regression) -> tuple[list[str], Floats]:
    """What each code of a column counts, shape (columns of the design, codes), and the names of these columns."""
    labels, numbers, is_target = opened.labels(place), asked.values.get(column), column == asked.target
    if numbers is None:
        own = opened.numbers(column)
        if own is None and not is_target:  # a category of texts
            return [f"{column}={label}" for label in labels[1:]], np.eye(len(labels))[1:]
        middle = [] if own is None else own.tolist()
        numbers = {label: m for label, m in zip(labels, middle, strict=own is not None) if np.isfinite(m)}
    if unknown := [label for label in numbers if label not in labels]:
        raise InputError(
            f"values of {column!r} names {listed(unknown)}, which it has not; its values: {listed(labels)}"
        )
    if lacking := [label for label in labels if label not in numbers]:
        raise InputError(f"{column!r} has values without a number; say in `values` what they count: {listed(lacking)}")
    scores = np.array([[float(numbers[label]) for label in labels]])
    if is_target and asked.kind == "logistic" and not np.isin(scores, (0, 1)).all():
        raise InputError(f"a logistic regression needs values of {column!r} that count 0 or 1; say so in `values`")
    return [column], scores


def _term(opened: Modelled, place: int, scores: Floats) -> Term:
    """Scores of the codes of the model, of which one that stands for several values has their mean by measured counts."""
    merged, counts, part = opened.merged[place], opened.counts(place), opened.part(place)
    of_model = np.stack([np.bincount(merged, counts * row) for row in scores]) / np.bincount(merged, counts)
    return Term(place=place, axis=part.axis, weights=of_model[:, part.blocks], of_model=of_model)
