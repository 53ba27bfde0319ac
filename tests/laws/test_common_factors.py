"""Law: what many columns have in common is kept by records, though each of their pairs says next to nothing."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from marginweave.base.arrays import Integers
from marginweave.configuration.spread_pairs import spread_pairs
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Mask
from marginweave.estimate.mixture import fit
from marginweave.estimate.mixture.factors import CommonFactors, FactorStart, common_factors
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.tables import Observation

COLUMNS = 110
PAIRS = spread_pairs(COLUMNS, 2_000)
ROWS = 2_000
SIGMA = 800.0  # of a count of about 500
SETTINGS = MixtureSynthesis(components=60, fits=1)


def _rows(factors: int, values: int, seed: int) -> Integers:
    """Return rows that normal factors explain: with these in turn, each column has a correlation of .7."""
    rng = np.random.default_rng(seed)
    places = rng.standard_normal((ROWS, max(factors, 1)))
    own = rng.standard_normal((ROWS, COLUMNS))
    loading = 0.7 if factors else 0.0
    common = places[:, np.arange(COLUMNS) % places.shape[1]]
    latent = loading * common + math.sqrt(1 - loading**2) * own
    return np.digitize(latent, np.linspace(-0.8, 0.8, values + 1)[1:-1])


def _observed(rows: Integers, sigma: float, seed: int) -> list[Observation]:
    """Return all columns and some pairs with normal noise."""
    rng = np.random.default_rng(seed)
    values = int(rows.max()) + 1
    tables = []
    for attributes in (*combinations(range(COLUMNS), 1), *PAIRS):
        cells = np.ravel_multi_index(rows[:, attributes].T, (values,) * len(attributes))
        exact = np.bincount(cells, minlength=values ** len(attributes))
        counts = exact + np.rint(rng.normal(0, sigma, exact.shape)).astype(np.int64)
        shaped = counts.reshape((values,) * len(attributes))
        tables.append(Observation(attributes=attributes, counts=shaped, deviation=sigma))
    return tables


def _kept(rows: Integers, tables: list[Observation]) -> float:
    """Return the part of the correlations of rows that a fit keeps: the slope of its correlations by those of the rows."""
    values = int(rows.max()) + 1
    model = fit_mixture(tables, (values,) * COLUMNS, float(ROWS), (), SETTINGS)
    means = np.empty((COLUMNS, model.components))
    squares = np.empty(COLUMNS)
    for column in range(COLUMNS):
        number, block = model.block_of(column)
        codes = block.cells[:, block.attributes.index(column)]
        means[column] = model.shares[number] @ codes
        squares[column] = model.weights @ (model.shares[number] @ codes**2)
    centers = means @ model.weights
    spread = (means - centers[:, None]) * model.weights @ (means - centers[:, None]).T
    sigmas = np.sqrt(squares - centers**2)
    upper = np.triu_indices(COLUMNS, 1)
    modelled = (spread / np.outer(sigmas, sigmas))[upper]
    correlations = np.asarray(np.corrcoef(rows, rowvar=False))[upper]
    return float((modelled @ correlations) / (correlations @ correlations))


@pytest.mark.parametrize(("values", "sigma"), [(2, SIGMA), (3, SIGMA / 2)])
def test_a_common_factor_is_kept(values: int, sigma: float) -> None:
    """Each count holds less than a sigma. Of ten draws .80 to 1.03 of the correlations were kept."""
    rows = _rows(1, values, 1)
    assert 0.65 < _kept(rows, _observed(rows, sigma, 101)) < 1.25


def test_without_their_start_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that starts from a tree follows the noise of pairs: of five draws it kept .36 to .60."""
    monkeypatch.setattr(fit, "common_factors", lambda *_: None)
    rows = _rows(1, 2, 1)
    assert _kept(rows, _observed(rows, SIGMA, 101)) < 0.5


def test_independent_columns_have_no_factor() -> None:
    """The largest eigenvalue of noise varies by 3 %, and has to be exceeded by 10 %; with a factor it is by 50 %."""
    rows = _rows(0, 2, 1)
    found = common_factors(_observed(rows, SIGMA, 2), (2,) * COLUMNS, float(ROWS))
    assert found is not None
    assert found.effects.shape[1] == 0
    start = found.components(50, np.random.default_rng(0))
    assert np.ptp(start, axis=0).max() == pytest.approx(0)


def test_two_factors_are_told_apart() -> None:
    """Columns of each have a correlation of .32 with each other, and none with the others."""
    rows = _rows(2, 2, 1)
    found = common_factors(_observed(rows, SIGMA / 3, 2), (2,) * COLUMNS, float(ROWS))
    assert found is not None
    assert found.effects.shape[1] == 2
    products = (found.effects @ found.effects.T)[1::2, 1::2]
    expected = np.cov(rows, rowvar=False)
    same = np.add.outer(np.arange(COLUMNS), np.arange(COLUMNS)) % 2 == 0
    np.fill_diagonal(same, val=False)
    assert products[same].mean() == pytest.approx(expected[same].mean(), rel=0.2)
    other = np.add.outer(np.arange(COLUMNS), np.arange(COLUMNS)) % 2 == 1
    assert abs(products[other].mean()) < 0.1 * products[same].mean()


@pytest.mark.parametrize("number", [8, 300])
def test_components_have_the_shares_and_effects(number: int) -> None:
    """All components together have the shares p, and G G' of two attributes, as far as shares are not below 0."""
    shares = np.array([0.5, 0.5, 0.2, 0.3, 0.5])
    effects = np.array([[0.1, -0.1, 0.05, -0.02, -0.03]]).T
    factors = CommonFactors(begins=np.array([0, 2]), shares=shares, effects=effects)
    components = factors.components(number, np.random.default_rng(0))
    assert components.min() > 0
    assert np.add.reduceat(components, factors.begins, axis=1) == pytest.approx(1)
    assert components.mean(axis=0) == pytest.approx(shares, abs=1e-6)
    beyond = np.cov(components, rowvar=False, bias=True)[:2, 2:]
    assert beyond == pytest.approx((effects @ effects.T)[:2, 2:], abs=1e-4)


def test_structural_zeros_hold_in_every_component() -> None:
    """Columns that a rule ties have no combination that it forbids; others have the shares of the factors."""
    rule = Mask(attributes=(0, 1), allowed=np.array([[True, True], [False, True]]))
    blocks = Mixture.of(np.ones(0), (), (2, 2, 2), 100.0, [rule]).blocks
    effects = np.array([[0.2, -0.2] * 3]).T
    factors = CommonFactors(begins=np.array([0, 2, 4]), shares=np.full(6, 0.5), effects=effects)
    start = FactorStart(factors, blocks, 100.0)
    shares = start.shares(20, np.random.default_rng(0))
    assert [len(block.cells) for block in blocks] == [3, 2]
    assert shares[:, :3].sum(axis=1) == pytest.approx(1)
    codes = factors.components(20, np.random.default_rng(0))
    both = codes[:, 0] * codes[:, 2], codes[:, 0] * codes[:, 3], codes[:, 1] * codes[:, 3]
    assert shares[:, :3] == pytest.approx(np.stack(both, axis=1) / np.sum(both, axis=0)[:, None])
    assert shares[:, 3:] == pytest.approx(codes[:, 4:])


def test_few_attributes_and_readable_pairs_are_not_looked_at() -> None:
    """Up to 107 attributes, or with pairs of little noise, a fit starts from a tree as ever."""
    rows = _rows(1, 2, 1)
    sizes = (2,) * COLUMNS
    assert common_factors(_observed(rows, SIGMA / 12, 2), sizes, float(ROWS)) is None
    few = [m for m in _observed(rows, SIGMA, 2) if max(m.attributes) < 107]
    assert common_factors(few, (2,) * 107, float(ROWS)) is None
