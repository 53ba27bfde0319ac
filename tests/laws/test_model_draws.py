"""Models drawn around a fitted one: as far apart as noise says, and what they are drawn from."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.estimate.mixture.descent import Descent
from marginweave.estimate.mixture.draws import draw_models, expected_counts
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.observations.tables import CensoredObservation, Observation

SIZES, SIGMA, RECORDS = (3, 4, 2), 20.0, 3000
SETTINGS = MixtureSynthesis(components=20, fits=2)


def _model() -> tuple:
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.full(24, 0.7)).reshape(SIZES) * RECORDS
    cliques = [(0,), (1,), (2,), *combinations(range(3), 2)]
    tables = [truth.sum(axis=tuple(i for i in range(3) if i not in c)) for c in cliques]
    measured = [
        Observation(
            attributes=c,
            counts=np.rint(t + rng.normal(0, SIGMA, t.shape)).astype(np.int64),
            deviation=SIGMA,
        )
        for c, t in zip(cliques, tables, strict=True)
    ]
    return fit_mixture(measured, SIZES, float(RECORDS), [], SETTINGS), measured


def test_draws_spread_as_the_noise_does() -> None:
    """Of a count of a half of the records, whose noise has a known size in one table."""
    model, measured = _model()
    half = np.array([0, 1, 1, 0])
    drawn = list(draw_models(model, measured, 60, np.random.default_rng(3)))
    assert all(m.fits == model.fits == 2 and m.components == 40 for m in drawn)
    noise = float(np.var([m.marginal((1,)) @ half for m in drawn]))
    # 4 tables say something of the attribute, its own the most: variance between a third of, and all of, its own 2 sigma^2
    assert 0.2 * 2 * SIGMA**2 < noise < 2 * SIGMA**2


def test_draws_keep_to_curvatures_of_the_model_and_are_those_that_new_ones_would_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Computed once: they took most of a fit. Answers are within a tenth of their deviation of fits with curvatures anew."""
    model, measured = _model()
    renewed: list[slice] = []
    renew = Descent.renew_curvatures

    def counted(descent: Descent, blocks: slice = slice(None)) -> None:
        renewed.append(blocks)
        renew(descent, blocks)

    monkeypatch.setattr(Descent, "renew_curvatures", counted)
    drawn = list(draw_models(model, measured, 10, np.random.default_rng(3)))
    assert len(renewed) == model.fits  # all blocks at once, of both fits

    def anew(descent: Descent, passes: int) -> None:
        descent.curvatures = [curvatures.copy() for curvatures in descent.curvatures]
        descent.run(passes, 0.0, lambda _: None)

    monkeypatch.setattr(Descent, "follow", anew)
    others = list(draw_models(model, measured, 10, np.random.default_rng(3)))
    assert len(renewed) > 10 * model.fits
    for axes in [(0,), (1,), (0, 1), (1, 2)]:
        center = model.marginal(axes)
        ours, theirs = (
            np.stack([m.marginal(axes) - center for m in drawn]) for drawn in (drawn, others)
        )
        assert np.abs(ours - theirs).max() < 0.1 * theirs.std()


def test_what_a_measurement_would_be_of_the_model_alone() -> None:
    """Coarser levels are summed, an incomplete table falls short, and counts below the cut are hidden in a draw."""
    table = np.arange(12.0).reshape(3, 4)
    coarse = np.array([0, 0, 1])
    level = Observation(
        attributes=(0, 1), counts=np.ones((2, 4), np.int64), deviation=1.0, levels=(coarse, None)
    )
    assert np.array_equal(
        expected_counts(level, table, 66.0), np.stack([table[0] + table[1], table[2]])
    )
    short = Observation(attributes=(0, 1), counts=np.full((3, 4), 2), deviation=1.0, complete=False)
    assert expected_counts(short, table, 66.0).sum() == 24.0
    model, measured = _model()
    censored = CensoredObservation(
        attributes=(0, 1),
        counts=np.zeros((3, 4), np.int64),
        deviation=1.0,
        released=np.ones((3, 4), bool),
        hidden=np.zeros((3, 4), bool),
        cut=1e9,
    )
    (drawn,) = draw_models(model, [*measured, censored], 1, np.random.default_rng(1))
    assert np.isfinite(drawn.weights).all()
