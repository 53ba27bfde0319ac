"""The axes of attributes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from marginweave.base.arrays import Integers
from marginweave.configuration.sections import Sections


def axes_of(configuration: Sections, sizes: Sequence[int]) -> dict[int, tuple[int, Integers]]:  # noqa: ARG001
    """For each attribute its axis, and its code for each code of the axis."""
    return {a: (a, np.arange(size)) for a, size in enumerate(sizes)}
