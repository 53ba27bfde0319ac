"""What it takes to fit a mixture to tables of counts, from their public sizes alone."""

from __future__ import annotations

MOST_SECONDS = 600.0
"""CPU seconds that all fits of a mixture may take at their most iterations; most end much earlier."""

# CPU seconds of all default fits at their most iterations, on one core of an AMD EPYC: what each cell takes, and each table
# beside. Measured: 1,160 tables of 142,600 cells together 84 s, 29 of 374,411 152 s, 3,486 of 341,130 145 s, 1,355 of 1,020,740
# 287 s; small sets of tables take 5 to 15 s.
_FITTED_CELL, _FITTED_TABLE = 6e-4, 0.01
# The same of looking once whether a table tells anything, with room: 19,900 tables of 9 cells took 4 s.
_SEEN_CELL, _SEEN_TABLE = 2e-7, 1e-3


def fitting_seconds(cells: int) -> float:
    """At most so long are mixtures fitted to a table of so many cells."""
    return _FITTED_TABLE + _FITTED_CELL * cells


def looking_seconds(cells: int) -> float:
    """About so long it takes to see whether a table of so many cells is worth fitting."""
    return _SEEN_TABLE + _SEEN_CELL * cells
