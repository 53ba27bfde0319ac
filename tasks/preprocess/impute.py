"""Records that are made up to public rules: missing values become draws, and a table gets a public number of records."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from marginweave.schemas.budget import Stability
from marginweave.schemas.configuration.columns import MeasuredColumn, NumberColumn
from marginweave.schemas.configuration.preparation import GaussianImputation, ResizeSettings, WeightedImputation
from marginweave.schemas.errors import StageError
from marginweave.tasks.mechanisms.randomness import UniformWords

_WORD = 1 << 64


def imputation_weights(column: MeasuredColumn, labels: tuple[str, ...]) -> tuple[float, ...]:
    """Weight of every code of a column under its declared imputation (docs/sources/data-processing.md); shape (labels,).

    A value that is drawn and then binned is a draw of its bin, so nothing but the bins' probabilities is needed. `uniform`:
    the widths of the bins inside the bounds, the days of each weekday, or equal weights of declared values. `gaussian`: Phi
    over each bin, what lies beyond the bounds in the outermost bins, as a draw clamped to the bounds would be. `weights`: as
    declared, by value.
    DP: public constants; `labels` matter for a private domain alone, in which the declared values have to be found.

    Raises:
        StageError: a column without imputation.
    """
    impute = column.impute
    if isinstance(impute, WeightedImputation):
        return _declared(column, impute, labels)
    if isinstance(impute, GaussianImputation) and isinstance(column, NumberColumn):
        inner = [(edge - impute.mean) / impute.deviation for edge in column.edges[1:-1]]
        return tuple(float(high - low) for low, high in pairwise([0.0, *(float(ndtr(z)) for z in inner), 1.0]))
    if impute is None:
        raise StageError("impute: the column has no imputation")
    return column.uniform_weights(labels)


def imputed_codes(weights: tuple[float, ...], words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """One code a word, with probabilities proportional to `weights`, each exact to 2^-64; shape (words,).

    A word w selects the first code whose cumulative share of 2^64 is above it.
    DP: a draw of a public distribution.
    """
    total = sum(map(Fraction, weights))
    running, edges = Fraction(0), []
    for weight in weights:
        running += Fraction(weight)
        edges.append(math.floor(running / total * _WORD))
    # an edge of 2^64, the last one at least, is reached by no word
    reached = np.array([edge for edge in edges if edge < _WORD], np.uint64)
    return np.searchsorted(reached, words, side="right").astype(np.int64)


def _declared(column: MeasuredColumn, impute: WeightedImputation, labels: tuple[str, ...]) -> tuple[float, ...]:
    weights = dict.fromkeys(labels, 0.0)
    for text, weight in impute.weights.items():
        label = text if column.private else column.labels[column.code_of(text)]
        weights[label] += weight
    return tuple(weights[label] for label in labels)


def sampled_rows(rows: int, settings: ResizeSettings, unit: Stability, words: UniformWords) -> NDArray[np.int64]:
    """Row numbers of the records that stay, each up to c times, at most n of them, in increasing order; private.

    docs/sources/data-processing.md: of c n~ copied rows m are sampled, and n of them where m is larger. Under
    `replace-one` with one row a unit, m = floor(s c n~) without replacement; otherwise every copy stays with probability s by
    itself, so m is Binomial(c n~, s). (A subject of several rows may be replaced by one with another number of rows: a fixed
    share of them all would move with it.) Every copy has a uniform word of its own: the smallest m of them, or those below
    s 2^64, are a sample, and the smallest n of these are a uniform choice among them.

    Stability: take two tables that differ in one unit, theta rows at most, and give all other copies the same words. The
    samples differ in the unit's own K <= c theta copies, one for one where a fixed number is sampled. Cut to n or filled up
    with the same imputed records, each copy of the unit stands in the place of one other record: K replacements at most.
    DP: (c theta)-stable in replacements; what sampling hides is counted in `budget.resize` alone.

    Args:
        rows: n~, the number of rows.
        settings: n and p, with c = ceil(p) copies and the rate s = p/c.
        unit: theta, and the neighboring relation.
        words: secret randomness; c n~ words are taken.
    """
    word = words.uniform_words(settings.copies * rows)
    if unit.neighbors == "replace-one" and unit.records == 1:
        kept = np.arange(len(word))
        most = min(math.floor(settings.rate * len(word)), settings.records)
    else:
        limit = math.floor(settings.rate * _WORD)
        kept = np.arange(len(word)) if limit == _WORD else np.flatnonzero(word < np.uint64(limit))
        most = settings.records
    if len(kept) > most:
        kept = kept[np.argsort(word[kept], kind="stable")[:most]]
    return np.sort(kept % max(rows, 1)).astype(np.int64)
