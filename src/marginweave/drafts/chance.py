"""Says when a relation between columns cannot be chance: bounds of how likely independent columns keep it as well.

All are computed on a sample of the rows; private, as the table is. DP: none.
"""

from __future__ import annotations

import math

import numpy as np

from marginweave.base.arrays import Flags, Integers
from marginweave.drafts.declared_cells import DeclaredCells

FALSE_ALARM = 1e-3
"""Bound of the probability that anything is suggested in a table of independent columns, for each kind of relation."""
MOST_BROKEN = 0.01
"""Largest share of the rows that may break a relation: typing errors, and no separate group of rows."""
MOST_BROKEN_ROWS = 1000
"""Largest number of rows that may break it: a release mends these rows, and a thousand alike are no errors."""
LEAST_EFFECT = 0.01
"""Share of the rows that independent columns must break: below, records keep the relation without a rule."""
_CLEARLY_FEWER = 10
_LEAST_VARIED = 20
_VARIED_KEPT = 0.9


def needed_evidence(tests: int) -> float:
    """Return the evidence, in nats, beyond which none of so many tests is likely to go wrong: ln(2 tests / `FALSE_ALARM`)."""
    return math.log(2 * max(tests, 1) / FALSE_ALARM)


def permutation_evidence(broken: int, expected: float) -> float:
    """Return -ln of a bound of the probability of so few broken rows when the cells of one column are shuffled.

    Of a sum over a random permutation with the mean E, P(X <= E - t) <= 2 exp(-t^2 / (4 E + 2 t)) (Chatterjee 2007); the 2 is
    in `needed_evidence`.
    """
    missed = expected - broken
    return missed**2 / (4 * expected + 2 * missed) if missed > 0 else 0.0


def unbroken_evidence(lower: Integers, upper: Integers) -> float:
    """Return -ln of the probability that no cell of `lower` is above its partner when the cells of `upper` are shuffled.

    Exact: where c_i is the number of upper cells that are at least the i-th largest of n lower ones, from i = 0 on, these have
    partners in prod (c_i - i) of n! ways. It is infinite where there is no way.
    """
    descending = np.sort(lower)[::-1]
    at_least = len(upper) - np.searchsorted(np.sort(upper), descending, side="left")
    ways = at_least - np.arange(len(descending))
    if len(ways) and ways.min() <= 0:
        return math.inf
    return float(np.log(np.arange(1, len(ways) + 1)).sum() - np.log(ways).sum())


def draws_evidence(broken: int, draws: int, chance: float) -> float:
    """Return -ln of a bound of P(X <= broken), X binomial, or hypergeometric as well: n KL(broken / n, p) (Hoeffding 1963)."""
    share = broken / max(draws, 1)
    if share >= chance:
        return 0.0
    if chance >= 1:
        return math.inf
    kept_part = (1 - share) * math.log((1 - share) / (1 - chance))
    return draws * (kept_part + (share * math.log(share / chance) if broken else 0.0))


def are_exceptions(broken: int, rows: int) -> bool:
    """Return whether so few of the rows break a relation that they can be errors."""
    return broken <= MOST_BROKEN * rows and broken <= MOST_BROKEN_ROWS


def has_effect(broken: int, expected: float, rows: int) -> bool:
    """Return whether independent columns would break a relation in many rows, and in ten times as many as do.

    `expected` is the mean number of rows that they would break.
    """
    return expected >= LEAST_EFFECT * rows and _CLEARLY_FEWER * broken <= expected


def holds_where_cells_vary(holding: Flags, rows: Flags, *columns: DeclaredCells) -> bool:
    """Return whether a relation is kept in nine of ten `rows` in which a column differs from its most frequent value.

    Of each column, in twenty rows at least. So a column that is nearly always 0 is no part of a sum by chance.
    """
    for cells in columns:
        varied = cells.varied & rows
        unusual = int(varied.sum())
        if unusual < _LEAST_VARIED or int(holding[varied].sum()) < _VARIED_KEPT * unusual:
            return False
    return True
