"""Made tables of sixteen binary columns that depend on each other, also in ways that no pair and no triple shows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.tables import OTHERS, Table

COLUMNS, ROWS = 16, 32_000
Bits = NDArray[np.int64]


def parity(rng: np.random.Generator) -> Bits:
    """Four sets of four columns, the last of which is the parity of the others in nine of ten rows; a chain beside them."""
    bits = _chain(rng)
    order = rng.permutation(COLUMNS)
    for first in range(0, COLUMNS, 4):
        inside = order[first : first + 4]
        odd = bits[:, inside[:3]].sum(axis=1) % 2
        bits[:, inside[3]] = np.where(rng.random(ROWS) < 0.9, odd, 1 - odd)
    return bits


def classes(rng: np.random.Generator) -> Bits:
    """Twenty hidden classes, of each of which every column has another share."""
    shares = rng.beta(0.4, 0.4, (20, COLUMNS))
    own = rng.choice(20, ROWS, p=rng.dirichlet(np.ones(20)))
    return (rng.random((ROWS, COLUMNS)) < shares[own]).astype(np.int64)


def interactions(rng: np.random.Generator) -> Bits:
    """Each column follows from four earlier ones by a table of sixteen random shares."""
    bits = np.zeros((ROWS, COLUMNS), np.int64)
    for column in range(COLUMNS):
        parents = rng.permutation(column)[:4]
        shares = rng.beta(0.5, 0.5, 2 ** len(parents))
        number = (
            (bits[:, parents] * 2 ** np.arange(len(parents))).sum(axis=1)
            if len(parents)
            else np.zeros(ROWS, int)
        )
        bits[:, column] = rng.random(ROWS) < shares[number]
    return bits


def rare(rng: np.random.Generator) -> Bits:
    """Answers of one scale: a common factor, thresholds from a half to one in fifty, and some rows that say yes to all."""
    factor = rng.normal(size=(ROWS, 1))
    loads = rng.uniform(0.3, 0.9, COLUMNS)
    scores = factor * loads + rng.normal(size=(ROWS, COLUMNS)) * np.sqrt(1 - loads**2)
    bits = (scores > rng.uniform(0.0, 2.0, COLUMNS)).astype(np.int64)
    bits[rng.random(ROWS) < 0.01] = 1
    return bits


def _chain(rng: np.random.Generator) -> Bits:
    bits = np.zeros((ROWS, COLUMNS), np.int64)
    bits[:, 0] = rng.random(ROWS) < 0.5
    for column in range(1, COLUMNS):
        kept = rng.random(ROWS) < rng.uniform(0.1, 0.6)
        bits[:, column] = np.where(
            kept, bits[:, column - 1], rng.random(ROWS) < rng.uniform(0.2, 0.8)
        )
    return bits


KINDS = {"parity": parity, "classes": classes, "interactions": interactions, "rare": rare}


def made(name: str) -> Table:
    """The table of a name like binary-parity-7, whose seed is 7."""
    _, kind, seed = name.split("-")
    bits = KINDS[kind](np.random.default_rng(int(seed)))
    header = tuple(f"c{n:02}" for n in range(COLUMNS))
    return Table(
        header=header,
        rows=[[*map(str, row)] for row in bits.tolist()],
        domain={column: ["0", "1"] for column in header},
    )


TABLES = tuple(f"binary-{kind}-{seed}" for kind in KINDS for seed in range(1, 4))
OTHERS.update({name: lambda name=name: made(name) for name in TABLES})
