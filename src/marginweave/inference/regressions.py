"""Reads of a release what a regression takes: measured tables, records of the fitted model, and what values count."""

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
from marginweave.inference.modelled import Modelled, open_modelled
from marginweave.inference.normal_regression import Calibrated, Fit, Kind, Term

MOST_NOISE = 1.0
"""Noise of the least certain contrast of columns, beside what it varies by: with more, steps lead away from the solution."""
MOST_MERGED = 0.05
"""Share of the variance of a column between values that were measured together: no interval knows what these add."""


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
    return of_opened(open_modelled(place, asked.of, "a regression needs"), asked)


def of_opened(opened: Modelled, asked: Regression) -> tuple[tuple[str, ...], Estimates, Floats]:
    """The same of a release that is open. Raises InputError as `answer_regression`."""
    opened.places([*asked.values])
    names, terms, columns = ["intercept"], list[Term](), (*asked.columns, asked.target)
    for column, place_of in zip(columns, opened.places(columns), strict=True):
        found, scores = _scores(opened, place_of, column, asked)
        names += found
        terms.append(_term(opened, place_of, column, scores))
    generator = np.random.default_rng(opened.seed)  # post-processing
    try:
        calibrated = Calibrated.of(opened.drawn, opened.records(generator), terms)
    except NotMeasuredError:
        raise opened.not_together(columns) from None
    fit = calibrated.fit(asked.kind, sampling=opened.rows_a_subject if asked.of == "population" else 0.0)
    _check_noise(fit, names)
    reach = Reach(level=asked.level, tails=opened.squares.measured.tails)
    half = np.array([reach.of(sd) for sd in np.sqrt(np.diagonal(fit.found.covariance)).tolist()])
    return tuple(names[: len(half)]), fit.found, half


def _check_noise(fit: Fit, names: Sequence[str]) -> None:
    """Refuse what the noise does not carry; raises InputError."""
    if fit.noise > MOST_NOISE:
        raise InputError(
            f"the noise is {fit.noise:.1f} times what tells {names[fit.column]!r} apart from the other columns, more than a "
            "regression carries; leave that column out, or have rare values count as others do in `values`"
        )


def _check(asked: Regression) -> None:
    """Refuse what is no regression; raises InputError."""
    check_level(asked.level)
    if asked.kind not in get_args(Kind):
        raise InputError(f"kind ({asked.kind}) must be {' or '.join(get_args(Kind))}")
    if wrong := [name for name, own in asked.values.items() if not np.isfinite([*own.values()]).all()]:
        raise InputError(f"values of {listed(wrong)} must be finite numbers")


def _scores(opened: Modelled, place: int, column: str, asked: Regression) -> tuple[list[str], Floats]:
    """What each code of a column counts, shape (columns of the design, codes), and the names of these columns."""
    labels, given, is_target = opened.labels(place), asked.values.get(column, {}), column == asked.target
    own = opened.numbers(column)
    if own is None and not given and not is_target:  # a category of texts
        return _indicators(opened, place, column, labels)
    middle = [] if own is None else own.tolist()
    numbers = {label: m for label, m in zip(labels, middle, strict=own is not None) if np.isfinite(m)} | {**given}
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


def _indicators(opened: Modelled, place: int, column: str, labels: Sequence[str]) -> tuple[list[str], Floats]:
    """An indicator of each value but the first; values that were measured together have one for all of them."""
    blocks = opened.merged[place]
    found = [np.flatnonzero(blocks == block) for block in dict.fromkeys(blocks.tolist())][1:]
    if not found:
        raise InputError(
            f"the release has too few records for its noise: the values of {column!r} were measured as one, so that no "
            "regression tells them apart; leave that column out"
        )
    names = [f"{column}={' or '.join(labels[code] for code in own.tolist())}" for own in found]
    return names, np.array([np.isin(np.arange(len(labels)), own) for own in found], np.float64).reshape(-1, len(labels))


def _term(opened: Modelled, place: int, column: str, scores: Floats) -> Term:
    """Scores of the codes of the model, of which one that is for several values has their mean by measured counts.

    Raises:
        InputError: these values make up too much of what the column varies by.
    """
    merged, counts, part = opened.merged[place], opened.counts(place), opened.part(place)
    of_model = np.stack([np.bincount(merged, counts * row) for row in scores]) / np.bincount(merged, counts)
    mean = (scores @ counts / counts.sum())[:, None]
    within, around = ((counts * (scores - center) ** 2).sum() for center in (of_model[:, merged], mean))
    if within > MOST_MERGED * around:
        several, labels = np.bincount(merged)[merged] > 1, opened.labels(place)
        together = [label for label, one in zip(labels, several.tolist(), strict=True) if one]
        raise InputError(
            f"{within / around:.0%} of the variance of {column!r} lies between values that were measured together "
            f"({listed(together)}), which are not known beside other columns; have them count the same in `values`, or "
            "leave the column out"
        )
    ignored = opened.ignored.get(place, 0.0)
    return Term(place=place, weights=of_model[:, part.blocks], of_model=of_model, ignored=ignored)
