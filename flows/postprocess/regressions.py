"""Reads of a release what a regression takes: measured tables, records of the fitted model, and what values count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from marginweave.flows.postprocess.answers import read_answers
from marginweave.schemas.arrays import Floats, Integers
from marginweave.schemas.configuration.values import listed
from marginweave.schemas.errors import InputError
from marginweave.tasks.answers.codes import MISSING
from marginweave.tasks.answers.intervals import Reach
from marginweave.tasks.answers.least_squares import Estimates, LeastSquares, NotMeasuredError
from marginweave.tasks.answers.marginals import MarginalAnswers
from marginweave.tasks.answers.merged import FEWEST
from marginweave.tasks.answers.regression import Calibrated, Kind, Term
from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.synthesize.mixture import sample_mixture
from marginweave.tasks.synthesize.release import estimation_input

RECORDS = 20_000
"""Records of the model that are weighted; with 4,000 the intervals of the benchmark were the same within 2 %."""


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
    answers, published = read_answers(place), PublishedRelease.read(place)
    model = published.mixture
    if model is None or not isinstance(answers, MarginalAnswers):
        raise InputError(
            f"{place} has no model.parquet, which a regression needs: release marginals with method mixture"
        )
    if asked.of == "population" and answers.sampled:
        raise InputError(f'of="population" is not possible: {answers.sampled}; ask of="table"')
    assert isinstance(answers.squares, LeastSquares)  # as `read_answers` makes them
    _, compression = estimation_input(published.counts, published.configuration)
    assert compression is not None  # marginals have one
    for column in asked.values:
        _place(answers, column)
    names, terms = ["intercept"], list[Term]()
    for column in (*asked.columns, asked.target):
        code = _place(answers, column)
        found, scores = _scores(answers, code, column, asked)
        names += found
        terms.append(_term(answers, code, scores, compression.codes[code]))
    if len({term.axis for term in terms}) < len(terms):
        raise InputError("a column is named twice, or beside a level of it; name each once")
    generator = np.random.default_rng(published.configuration.synthesize.seed)  # post-processing
    records = sample_mixture(model.conditioned(), RECORDS, generator)
    try:
        calibrated = Calibrated.of(answers.squares, records, terms)
    except NotMeasuredError:
        sets = "; ".join(", ".join(own) for own in answers.sets)
        raise InputError(
            f"two of the columns are in no measured set together; leave one out. Measured are: {sets}"
        ) from None
    solved = calibrated.fit(asked.kind, population=asked.of == "population")
    reach = Reach(level=asked.level, pure=answers.squares.measured.pure)
    half = np.array([reach.of(sd) for sd in np.sqrt(np.diagonal(solved.covariance)).tolist()])
    return tuple(names[: len(half)]), solved, half


def _check(asked: Regression) -> None:
    """Refuse what is no regression; raises InputError."""
    for name, value, known in (("kind", asked.kind, get_args(Kind)), ("of", asked.of, ("population", "table"))):
        if value not in known:
            raise InputError(f"{name} ({value}) must be {' or '.join(known)}")
    if not 0 < asked.level < 1:
        raise InputError(f"level ({asked.level:g}) must be between 0 and 1, such as .95")
    if wrong := [name for name, own in asked.values.items() if not np.isfinite([*own.values()]).all()]:
        raise InputError(f"values of {listed(wrong)} must be finite numbers")


def _place(answers: MarginalAnswers, column: str) -> int:
    attributes = answers.codes.configuration.attributes
    names = {a.columns[0]: j for j, a in enumerate(attributes) if len(a.columns) == 1 and not (a.is_set or a.of_set)}
    if column not in names:
        raise InputError(f"{column!r} is no column that was counted by itself; there are {listed([*names])}")
    return names[column]


def _scores(answers: MarginalAnswers, place: int, column: str, asked: Regression) -> tuple[list[str], Floats]:
    """What each code of a column counts, shape (columns of the design, codes), and the names of these columns."""
    labels = [*answers.codes.domain.labels[place], MISSING][: answers.codes.sizes[place]]
    numbers, is_target = asked.values.get(column), column == asked.target
    if numbers is None:
        try:
            own = answers.codes.numbers(column)
        except InputError:  # a category of texts
            if not is_target:
                return [f"{column}={label}" for label in labels[1:]], np.eye(len(labels))[1:]
            numbers = {}
        else:
            middle = ((own.low + own.high) / 2).tolist()
            numbers = {label: m for label, m in zip(labels, middle, strict=True) if np.isfinite(m)}
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


def _term(answers: MarginalAnswers, place: int, scores: Floats, merged: Integers) -> Term:
    """Scores of the codes of the model, of which one that stands for several values has their mean by measured counts."""
    axis, codes = answers.axes[place]
    counts = np.maximum(answers.squares.solve({axis: np.eye(len(merged))[:, codes]}).values, FEWEST)
    of_model = np.stack([np.bincount(merged, counts * row) for row in scores]) / np.bincount(merged, counts)
    return Term(place=place, axis=axis, weights=of_model[:, merged][:, codes], of_model=of_model)
