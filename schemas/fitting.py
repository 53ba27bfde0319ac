"""What it takes to fit a mixture to tables of counts, from their public sizes alone."""

from __future__ import annotations

MOST_SECONDS = 1200.0
"""CPU seconds that all fits of a mixture may take at their most iterations; most end much earlier."""

# CPU seconds of all default fits at their most iterations, on one core of an AMD EPYC: what each cell takes, and each table
# beside. Measured, within a factor of 4: 55 tables of 4,600 cells together 12 s, 15 of 401,000 317 s, 210 of 171,600 153 s,
# 1350 of 1,159,200 715 s.
_FITTED_CELL, _FITTED_TABLE = 4e-4, 0.3
# The same of looking once whether a table tells anything, with room: 19,900 tables of 9 cells took 4 s.
_SEEN_CELL, _SEEN_TABLE = 2e-7, 1e-3


def fitting_seconds(cells: int) -> float:
    """At most so long are mixtures fitted to a table of so many cells."""
    return _FITTED_TABLE + _FITTED_CELL * cells


def looking_seconds(cells: int) -> float:
    """About so long it takes to see whether a table of so many cells is worth fitting."""
    return _SEEN_TABLE + _SEEN_CELL * cells
