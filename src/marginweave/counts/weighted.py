"""Exact sums of weights of rows, by the combinations of their values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Integers
from marginweave.base.errors import StageError
from marginweave.domain.masks import Clique


def add_weighted(
    codes: Sequence[NDArray[np.integer]],
    weights: Integers,
    cliques: Sequence[Clique],
    tables: Sequence[Integers],
) -> None:
    """Add the weight of each row to its cell in the table of each clique, in integers; private.

    `codes` has the codes of each column, shape (rows,) each. Raises StageError for a code outside its size.
    """
    for clique, table in zip(cliques, tables, strict=True):
        columns = [codes[column].astype(np.int64) for column in clique]
        for values, size in zip(columns, table.shape, strict=True):
            if values.max(initial=0) >= size:
                raise StageError("codes of a linked table must be below the sizes of its columns")
        cell = np.ravel_multi_index(columns, table.shape)
        np.add.at(table.reshape(-1), cell, weights)
