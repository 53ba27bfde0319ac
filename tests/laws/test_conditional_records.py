"""Records under conditions: the distribution of the model given them; every record meets them, and none is made of none."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.answers.codes import Codes
from marginweave.base.arrays import Flags, Floats
from marginweave.base.errors import InputError
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Mask
from marginweave.estimate.marginals import normalize_marginals
from marginweave.estimate.mixture.model import Mixture
from marginweave.records.release import estimation_input, fit_inputs, synthesize_blocks
from tests.support.noisy_marginals import config, marginals

SIZES = (2, 3, 5, 4)
ALL = tuple(range(len(SIZES)))
ALPHA = 1e-6


def _mixture(seed: int) -> Mixture:
    """Two of four attributes are tied by a rule, one has a code that is forbidden."""
    rng = np.random.default_rng(seed)
    tied = np.ones((3, 5), bool)
    tied[0, 1:3] = tied[2, 0] = False
    masks = [
        Mask(attributes=(1, 2), allowed=tied),
        Mask(attributes=(3,), allowed=np.array([True, True, False, True])),
    ]
    blocks = Mixture.of(np.ones(0), (), SIZES, 900.0, masks).blocks
    shares = [rng.dirichlet(np.full(len(block.cells), 0.4), 6) for block in blocks]
    return Mixture.of(rng.dirichlet(np.ones(6)), shares, SIZES, 900.0, masks)


def _product(vectors: list[Floats]) -> Floats:
    return reduce(np.multiply.outer, vectors)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**16), asked=st.sets(st.sampled_from(ALL), min_size=1))
def test_a_conditioned_model_is_the_model_given_the_conditions(seed: int, asked: set[int]) -> None:
    """Against the whole table: each cell times the shares that are kept, normalized; attributes in blocks and alone."""
    rng = np.random.default_rng(seed)
    kept = {a: rng.choice([0.0, 0.3, 1.0], SIZES[a]) for a in asked}
    model = _mixture(seed)
    whole = model.conditioned().marginal(ALL) * _product(
        [kept.get(a, np.ones(SIZES[a])) for a in ALL]
    )
    if not whole.any():
        with pytest.raises(InputError, match="no record of the model meets these conditions"):
            model.conditioned(kept)
        return
    assert np.allclose(
        model.conditioned(kept).marginal(ALL), whole * (model.total / whole.sum()), atol=1e-9
    )


@pytest.mark.parametrize(
    "where",
    [
        {"sex": "f", "grade": ["3", "4", "6"]},
        {"age": {"from": 30, "below": 65}},
        {"region": ["", "west"]},
    ],
    ids=["merged values", "bins", "missing"],
)
def test_records_have_the_distribution_of_the_model_given_the_conditions(
    where: dict[str, Any],
) -> None:
    """Grades from 4 on were measured together, and so were some ages: conditions ask for a part of these.

    Frequencies of n records are within sqrt(log(2 cells / 1e-6) / 2 n) of the probabilities of all cells but once in a million
    (Hoeffding); records are nearer, as they are no independent draws.
    """
    declared = config()
    noisy = marginals(declared, sd=25.0)
    counts = normalize_marginals(noisy, declared)
    known, compression = estimation_input(counts, declared)
    assert compression is not None
    assert [np.bincount(codes).max() for codes in compression.codes] == [1, 1, 3, 5]
    little = MixtureSynthesis(components=8, fits=1, iterations=40, records=20_000)
    model = fit_inputs(known, little)
    codes = Codes.of(declared, counts.domain)
    kept = codes.meeting(where)
    blocks = list(synthesize_blocks(counts, declared, little, model, kept))
    records = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    assert len(records[0]) == 20_000
    for a, flags in kept.items():
        assert flags[records[a]].all()
    whole = _expanded(model, compression.codes, compression.counts)
    whole *= _product(
        [kept.get(a, np.ones(size, bool)).astype(float) for a, size in enumerate(codes.sizes)]
    )
    expected = whole / whole.sum()
    found = np.zeros(expected.shape)
    np.add.at(found, tuple(records), 1 / len(records[0]))
    assert np.abs(found - expected).max() < math.sqrt(
        math.log(2 * expected.size / ALPHA) / (2 * len(records[0]))
    )
    for a in range(len(codes.sizes)):  # nearer where cells are large: one column
        others = tuple(b for b in range(len(codes.sizes)) if b != a)
        assert np.abs(found.sum(others) - expected.sum(others)).max() < 0.02


def _expanded(model: Mixture, codes: tuple[Any, ...], counts: tuple[Any, ...]) -> Floats:
    """The probabilities of a conditioned model over the codes before merging: in proportion to the noisy counts above 0."""
    table = model.conditioned().marginal(tuple(range(len(codes))))
    for a, (new, own) in enumerate(zip(codes, counts, strict=True)):
        weights = np.maximum(own, 0)
        for code in range(new.max() + 1):
            mine = new == code
            weights[mine] = (
                weights[mine] / weights[mine].sum() if weights[mine].any() else 1 / mine.sum()
            )
        table = np.take(table, new, axis=a) * weights.reshape(
            [-1 if b == a else 1 for b in range(len(codes))]
        )
    return table


def test_no_record_meets_conditions_that_leave_none() -> None:
    model = _mixture(3)
    nothing: Flags = np.zeros(SIZES[0], bool)
    with pytest.raises(InputError, match="ask for fewer at once"):
        model.conditioned({0: nothing.astype(float)})
