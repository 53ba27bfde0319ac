"""Two small tables of unequal domains with gaps, and their codes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from marginweave.domain.labels import Domain


def texts(seed: int, rows: int, sizes: tuple[int, ...], gap: float = 0.15) -> pd.DataFrame:
    """Skewed texts that depend on each other, an empty one for a gap; not every table has every value."""
    rng = np.random.default_rng(seed)
    base = rng.random(rows)
    columns = {}
    for j, size in enumerate(sizes):
        mixed = np.where(rng.random(rows) < 0.6, base, rng.random(rows))
        values = np.array([f"v{i}" for i in range(size)])[(mixed**1.5 * size).astype(int)]
        columns[f"c{j}"] = np.where(rng.random(rows) < gap, "", values)
    return pd.DataFrame(columns)


def coded(*frames: pd.DataFrame) -> tuple[list[list[np.ndarray]], Domain]:
    """Codes of each frame over the values of all, an empty text being missing."""
    names = list(frames[0].columns)
    labels = [sorted({*np.concatenate([frame[name] for frame in frames])} - {""}) for name in names]
    tables = [
        [frame[name].map({**{v: i for i, v in enumerate(values)}, "": len(values)}).to_numpy(np.int64)
         for name, values in zip(names, labels, strict=True)]
        for frame in frames
    ]  # fmt: skip
    return tables, Domain(names=tuple(names), labels=tuple(map(tuple, labels)))
