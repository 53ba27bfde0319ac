"""A table of a known graphical model, its marginals with noise, and combinations that cannot be."""

from __future__ import annotations

import numpy as np

from marginweave.measurements.tables import Clique, Mask, Measurement

SIZES = (3, 4, 2, 5, 2)
PAIRS: tuple[Clique, ...] = ((0, 1), (1, 3), (2, 4))


def decomposable(total: float = 10_000.0) -> np.ndarray:
    """The table of a Markov model of `PAIRS`: p(0, 1) p(3 | 1) p(2, 4)."""
    rng = np.random.default_rng(4)
    first, second, third = (rng.dirichlet(np.full(size, 0.7)) for size in (12, 20, 4))
    second = second.reshape(4, 5) / second.reshape(4, 5).sum(axis=1, keepdims=True)
    table = total * np.einsum("ab,bd,ce->abcde", first.reshape(3, 4), second, third.reshape(2, 2))
    assert table.shape == SIZES
    return table


def marginal(table: np.ndarray, clique: Clique) -> np.ndarray:
    return table.sum(axis=tuple(a for a in range(len(SIZES)) if a not in clique))


def measurements_of(table: np.ndarray, cliques: tuple[Clique, ...] = PAIRS, noise: float = 0.0) -> list[Measurement]:
    rng = np.random.default_rng(9)
    exact = [(clique, marginal(table, clique)) for clique in (*((a,) for a in range(len(SIZES))), *cliques)]
    return [Measurement(attributes=c, counts=m + rng.normal(0, noise, m.shape), deviation=2.0) for c, m in exact]


def mask(clique: Clique, *forbidden: tuple[int, ...]) -> Mask:
    allowed = np.ones([SIZES[a] for a in clique], np.bool_)
    for cell in forbidden:
        allowed[cell] = False
    return Mask(attributes=clique, allowed=allowed)


MASKS = {
    "inside": [mask((0, 1), (0, 0), (2, 3))],
    "across": [mask((0, 3), (1, 2), (1, 3), (1, 4), (1, 0)), mask((2, 3), (0, 1))],
    "single": [mask((3,), (4,)), mask((1, 4), (0, 1), (1, 1), (2, 0))],
    "wide": [mask((0, 2, 3), (0, 0, 0), (1, 1, 1), (2, 1, 4))],
}
