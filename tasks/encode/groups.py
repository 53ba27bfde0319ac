"""The code of a group of columns: the number of its combination."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.configuration.structure import GroupedColumns
from marginweave.schemas.errors import InputError

_LIMIT = 2**62


def group_codes(
    group: GroupedColumns, members: Sequence[NDArray[np.integer]], combinations: Sequence[Sequence[int]]
) -> NDArray[np.int64]:
    """For each record the number of its combination among the declared ones, or their number where it is none of them.

    Args:
        group: The group.
        members: Codes of its columns, each of shape (records,).
        combinations: Codes of the declared combinations, shape (combinations, columns).

    Raises:
        InputError: an undeclared combination where `outside: error`.
    """
    declared = np.asarray(combinations, np.int64)
    keys, wanted = np.zeros(len(members[0]), np.int64), np.zeros(len(declared), np.int64)
    bound = 1
    for codes, known in zip(members, declared.T, strict=True):
        # Codes that no combination has become one more, so that a radix is at most the number of combinations plus one.
        values, ranks = np.unique(known, return_inverse=True)
        places = np.minimum(np.searchsorted(values, codes), len(values) - 1)
        radix = len(values) + 1
        if bound * radix >= _LIMIT:
            raise InputError(f"group {group.name!r} has too many values to be one attribute")
        keys = keys * radix + np.where(values[places] == codes, places, len(values))
        wanted = wanted * radix + ranks
        bound *= radix
    order = np.argsort(wanted)
    rows = np.minimum(np.searchsorted(wanted[order], keys), len(declared) - 1)
    found = np.where(wanted[order][rows] == keys, order[rows], len(declared))
    if group.outside == "error" and (found == len(declared)).any():
        raise InputError(f"encode: group {group.name!r} breaks the rule 'every combination is declared'")
    return found
