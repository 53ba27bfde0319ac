"""Resize: a table of a public number of records, sampled from copies of the sensitive one and filled up."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import Stability
from marginweave.schemas.configuration.preparation import ResizeSettings
from marginweave.tasks.mechanisms.randomness import UniformWords

_WORD = 1 << 64


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
