"""Rules that cut a table into boxes of very different sizes: how many records each has follows from the counts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Mask
from marginweave.estimate.mixture.blocks import tie
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.observations.tables import Observation

SIZES = (
    2,
    6,
    4,
    4,
    3,
    10,
    5,
    11,
    7,
    9,
    8,
)  # sex, age, ward, marital, employed, wage, pension, income, stay, two months
ROWS, SIGMA = 12_000, 15.0


def patients() -> tuple[np.ndarray, list[Mask]]:
    """Codes, and rules as of a hospital.

    No man is in ward 2 and nobody over age 3, nobody over age 0 in ward 3. At age 0, where 3 % are, marital status,
    employment, wage, pension and income are their last codes, and there alone. Income is at least wage and pension.
    """
    rng = np.random.default_rng(5)
    age = rng.choice(6, ROWS, p=[0.03, 0.04, 0.2, 0.33, 0.2, 0.2])
    sex, stay = rng.integers(2, size=ROWS), np.minimum(rng.poisson(1 + age / 3), 6)
    ward = np.where(
        age == 0,
        3,
        np.where((sex == 0) & (age < 4) & (rng.random(ROWS) < 0.08), 2, rng.random(ROWS) < 0.6),
    )
    later = [
        np.where(age == 0, size - 1, rng.binomial(size - 2, 0.2 + age / 12)) for size in SIZES[3:7]
    ]
    income = np.where(
        age == 0,
        SIZES[7] - 1,
        np.minimum(np.maximum(later[2], later[3]) + rng.poisson(0.7, ROWS), SIZES[7] - 2),
    )
    second = rng.integers(1, 8, ROWS)
    first = np.maximum(second - rng.poisson(0.5, ROWS), 0)
    masks = [Mask(attributes=(9, 10), allowed=np.subtract.outer(np.arange(9), np.arange(8)) <= 0)]
    for a, b, allowed in (
        (0, 2, lambda one, other: ~((one == 1) & (other == 2))),
        (1, 2, lambda one, other: ~(((one > 3) & (other == 2)) | ((one > 0) & (other == 3)))),
        *((1, c, lambda one, other: (one == 0) == (other == other.max())) for c in (3, 4, 5, 6, 7)),
    ):
        masks.append(Mask(attributes=(a, b), allowed=allowed(*np.indices((SIZES[a], SIZES[b])))))
    wage, pension, all_income = np.indices(SIZES[5:8])
    least = np.maximum(wage, pension) <= all_income
    masks.append(Mask(attributes=(5, 6, 7), allowed=least | (wage == 9) | (pension == 4)))
    return np.stack([sex, age, ward, *later, income, stay, first, second], axis=1), masks


def test_single_columns_are_met_whatever_the_boxes() -> None:
    """Within 2 % (noise of so many cells is below .5 % with a false alarm of 1e-9), where one box too large leaves 20 %."""
    rows, masks = patients()
    assert len(tie(SIZES, masks).boxes) >= 4
    rng, measured = np.random.default_rng(1), []
    for attributes in (c for k in (1, 3) for c in itertools.combinations(range(len(SIZES)), k)):
        shape = [SIZES[a] for a in attributes]
        counts = np.bincount(
            np.ravel_multi_index(tuple(rows[:, attributes].T), shape), minlength=np.prod(shape)
        ).reshape(shape)
        noise = np.rint(rng.normal(0, SIGMA, shape)).astype(np.int64)
        measured.append(Observation(attributes=attributes, counts=counts + noise, deviation=SIGMA))
    model = fit_mixture(measured, SIZES, ROWS, masks, MixtureSynthesis(components=60, fits=1))
    for a, size in enumerate(SIZES):
        exact = np.bincount(rows[:, a], minlength=size)
        assert np.abs(model.marginal((a,)) - exact).sum() / (2 * ROWS) < 0.02, a


def grouped(mask: Mask, unused: int = 0) -> Mask:
    """The same over kinds of codes, and so many kinds of each attribute that no code has."""
    table, kinds = mask.table(), []
    for axis, size in enumerate(mask.sizes):
        rows = np.moveaxis(table, axis, 0).reshape(size, -1)
        _, first, own = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        kinds.append(own.reshape(-1).astype(np.int64))
        table = np.take(table, first, axis=axis)
    allowed = np.pad(table, [(0, unused)] * table.ndim, constant_values=True)
    return Mask(attributes=mask.attributes, allowed=allowed, kinds=tuple(kinds))


@pytest.mark.parametrize("unused", [0, 1])
def test_boxes_keep_what_applies_together_however_rules_are_written(unused: int) -> None:
    """A column with one code where another has one is in boxes; one that follows from another is in a table of both."""
    _, masks = patients()
    ties, others = tie(SIZES, masks), tie(SIZES, [grouped(mask, unused) for mask in masks])
    assert [block.attributes for block in ties.blocks if len(block.attributes) > 1] == [
        (5, 6, 7),
        (9, 10),
    ]
    assert [block.attributes for block in others.blocks] == [
        block.attributes for block in ties.blocks
    ]
    assert np.array_equal(others.boxes, ties.boxes)
    follows = Mask(attributes=(2, 9), allowed=np.arange(9) // 3 == np.arange(4)[:, None])
    for written in (follows, grouped(follows, unused)):
        assert [
            b.attributes for b in tie(SIZES, [*masks, written]).blocks if 2 in b.attributes
        ] == [(2, 9)]
