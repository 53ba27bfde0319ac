"""A measured table is kept by the model, however many columns have to be known for what it says."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Mask
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.interactions import tables_beyond_pairs
from marginweave.observations.tables import Observation
from marginweave.records.mixture import sample_mixture
from marginweave.records.shards import RecordSampler
from tests.support.synthesized import every_record

Counts = NDArray[np.float64]
SIGMAS = 6
"""Deviations of the noise that a cell with records has, as the mean of such cells."""


def parity(columns: int, of: int, rng: np.random.Generator, flipped: float = 0.0) -> Counts:
    """Of binary columns, the first `of` have an even sum but for a share of the records."""
    cells = np.array([*itertools.product((0, 1), repeat=columns)])
    odd = cells[:, :of].sum(axis=1) % 2
    shares = np.where(odd == 0, 1 - flipped, flipped)
    return _drawn(shares.reshape((2,) * columns), rng)


def function(sizes: tuple[int, ...], rng: np.random.Generator) -> Counts:
    """The last column is a random function of the others."""
    shares = np.zeros(sizes)
    values = rng.integers(0, sizes[-1], sizes[:-1])
    np.put_along_axis(shares, values[..., None], 1.0, axis=-1)
    return _drawn(shares, rng)


def sparse(sizes: tuple[int, ...], rng: np.random.Generator) -> Counts:
    """A few cells have most of the records."""
    return _drawn(rng.gamma(0.1, 1.0, sizes), rng)


def _drawn(shares: Counts, rng: np.random.Generator) -> Counts:
    records = 120 * np.count_nonzero(shares)
    counts = rng.multinomial(records, (shares / shares.sum()).ravel())
    return counts.reshape(shares.shape).astype(np.float64)


def measured(table: Counts, axes: tuple[int, ...], sigma: float, rng: Any) -> Observation:
    others = tuple(axis for axis in range(table.ndim) if axis not in axes)
    counts = table.sum(axis=others)
    noise = np.rint(rng.normal(0, sigma, counts.shape))
    return Observation(attributes=axes, counts=counts + noise, deviation=sigma)


TABLES: Mapping[str, Callable[[np.random.Generator], Counts]] = {
    "parity of three of seven": partial(parity, 7, 3),
    "parity of four of seven": partial(parity, 7, 4),
    "parity of seven": partial(parity, 7, 7),
    "parity of eight": partial(parity, 8, 8),
    "a noisy parity": partial(parity, 7, 7, flipped=0.1),
    "a function of six": partial(function, (2,) * 6 + (4,)),
    "a function of two": partial(function, (5, 6, 4)),
    "a sparse table of eight": partial(sparse, (2,) * 8),
    "a sparse table of five": partial(sparse, (3,) * 5),
}


@pytest.mark.parametrize("has_pairs", [False, True], ids=["columns", "pairs"])
@pytest.mark.parametrize("name", TABLES)
def test_a_measured_table_is_kept(name: str, has_pairs: bool) -> None:
    """The model is from the table no farther than twice the noise with which it was measured. All draws are fixed."""
    rng = np.random.default_rng(7)
    table = TABLES[name](rng)
    sigma = max(0.8, float(table[table > 0].mean()) / SIGMAS)
    axes = range(table.ndim)
    parts = [(axis,) for axis in axes] + [*itertools.combinations(axes, 2)] * has_pairs
    observations = [measured(table, part, sigma, rng) for part in parts]
    whole = measured(table, (*axes,), sigma, rng)
    model = fit_mixture(
        [*observations, whole], table.shape, table.sum(), (), MixtureSynthesis(seed=1)
    )
    distance = np.abs(model.marginal((*axes,)).reshape(table.shape) - table).sum()
    assert distance <= 2 * np.abs(whole.counts - table).sum()


def test_records_keep_two_tables_that_share_a_column_and_a_rule() -> None:
    """b is by a, c, and d by b, e: the second is drawn given the first. Rows with a and e are forbidden."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 2, (24_000, 5))
    rows[rows[:, 0] == 1, 4] = 0
    rows[:, 1] = rows[:, 0] ^ rows[:, 2]
    rows[:, 3] = rows[:, 1] ^ rows[:, 4]
    counts = np.bincount(rows @ (16, 8, 4, 2, 1), minlength=32)
    table = counts.reshape((2,) * 5).astype(np.float64)
    cliques = [(0, 1, 2), (1, 3, 4), *((axis,) for axis in range(5))]
    observations = [measured(table, clique, 30.0, rng) for clique in cliques]
    assert {found.attributes for found in tables_beyond_pairs(observations)} == {*cliques[:2]}
    rule = Mask(attributes=(0, 4), allowed=np.array([[True, True], [True, False]]))
    settings = MixtureSynthesis(seed=1)
    model = fit_mixture(observations, (2,) * 5, table.sum(), [rule], settings)
    sampler = RecordSampler(sample=partial(sample_mixture, model), number=len(rows), seed=1)
    records = every_record(sampler)
    assert not (records[:, 0] & records[:, 4]).any()
    for one, other, result in ((0, 2, 1), (1, 4, 3)):
        assert (records[:, one] ^ records[:, other] == records[:, result]).mean() > 0.98


def test_tables_that_pairs_explain_start_nothing() -> None:
    """Skewed columns that depend on each other in pairs, with noise beyond most cells. False alarms: less than 1e-6."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        pair = [rng.dirichlet(np.full(6, 0.3), 6) for _ in range(2)]
        shares = np.einsum("a,ab,bc->abc", rng.dirichlet(np.full(6, 0.5)), *pair)
        counts = rng.multinomial(20_000, shares.ravel())
        table = counts.reshape(shares.shape).astype(np.float64)
        for sigma in (2.0, 40.0, 400.0):
            assert tables_beyond_pairs([measured(table, (0, 1, 2), sigma, rng)]) == []
