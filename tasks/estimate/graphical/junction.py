"""The junction tree of a set of marginals: its size, and which marginals a tree of limited size holds."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Sequence

import numpy as np

from marginweave.schemas.arrays import Floats
from marginweave.schemas.configuration.attributes import tied_parts
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.estimate.rounding import nearest_column

_BYTES = 8  # a cell


def check_model_size(sizes: Sequence[int], cliques: Collection[Clique], most: int) -> None:
    """Refuse a model of more than `most` bytes. DP: arithmetic on sizes and sets that are public or released.

    Raises:
        InputError: what the setting would have to be.
    """
    _check(sizes, cliques, most, "these marginals: pgm is for few that hardly overlap", ", or fewer marginals")


def check_room(sizes: Sequence[int], zeros: Collection[Clique], most: int) -> None:
    """Refuse a model of more than `most` bytes of single attributes and structural zeros. DP: as `check_model_size`.

    Raises:
        InputError: what the setting would have to be.
    """
    _check(
        sizes, zeros, most, "single columns" + (" and of structural zeros, which tie columns together" if zeros else "")
    )


def _check(sizes: Sequence[int], cliques: Collection[Clique], most: int, what: str, fewer: str = "") -> None:
    wanted = _BYTES * model_cells(sizes, cliques)
    if wanted > most:
        raise InputError(
            f"synthesize.model_size ({_megabytes(most)}) must be at least {_megabytes(wanted)} for the graphical model of "
            f"{what}; use method: mixture or gum{fewer}"
        )


def model_fits(sizes: Sequence[int], cliques: Collection[Clique], most: int) -> bool:
    """Whether a model takes at most `most` bytes. DP: as `check_model_size`."""
    return _BYTES * model_cells(sizes, cliques) <= most


def model_cells(sizes: Sequence[int], cliques: Collection[Clique]) -> int:
    """Cells of all tables of the junction tree in which each of `cliques`, measured or masked, is part of one table.

    That of `mbi`, as `junction_tree.hypothetical_model_size` counts it, by arithmetic alone. DP: as `check_model_size`.
    """
    return sum(math.prod(sizes[a] for a in table) for table in tree_tables(sizes, cliques))


def tree_tables(sizes: Sequence[int], cliques: Collection[Clique]) -> list[frozenset[int]]:
    """Attributes of each table: those of every attribute and its neighbors when it is eliminated, the cheapest first.

    Greedy elimination, as in `mbi`; pairs that are a tree are its tables themselves. DP: as `check_model_size`.
    """
    edges = {frozenset(pair) for clique in cliques for pair in itertools.combinations(set(clique), 2)}
    near: list[set[int]] = [set() for _ in sizes]
    for one, other in edges:
        near[one].add(other)
        near[other].add(one)
    if len(edges) == len(sizes) - 1 and max(map(len, tied_parts(map(tuple, edges))), default=1) == len(sizes):
        return sorted(edges, key=sorted) if edges else [frozenset({0})]
    eliminated, left = [], dict.fromkeys(range(len(sizes)))
    while left:
        cheapest = min(left, key=lambda a: sizes[a] * math.prod(sizes[b] for b in near[a]))
        del left[cheapest]
        neighbors = near[cheapest]
        eliminated.append(frozenset({cheapest, *neighbors}))
        for a in neighbors:
            near[a] |= neighbors
            near[a] -= {a, cheapest}
    return [t for i, t in enumerate(eliminated) if not any(t <= s for s in eliminated[:i])]  # later ones never hold it


def _megabytes(number: int) -> str:
    return f"{math.ceil(number / 10**6)}MB" if number >= 10**6 else f"{number}B"


def choose_measurements(
    measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask], most: int
) -> list[Measurement]:
    """All that a model of at most `most` bytes holds: each by itself, those that say most first, as long as it still fits.

    Own method; evidence: docs/accuracy.md. A measurement y of c cells says sum (y - n prod_a p_a)^2 / deviation^2 - c: how far
    it is from independent attributes, beyond what its noise makes of that. Those of single attributes are in every model and
    take no room.

    Args:
        measurements: noisy marginals, no cell unknown.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records n.
        masks: structural zeros, which are part of every model.
        most: 8 bytes a cell of the junction tree.

    Returns:
        Some of `measurements`, in their order. DP: post-processing.

    Raises:
        InputError: the structural zeros alone make too large a model.
    """
    kept = [mask.attributes for mask in masks]
    if model_fits(sizes, [*kept, *(m.attributes for m in measurements)], most):
        return list(measurements)
    check_room(sizes, kept, most)
    even = [np.full(size, total / size) for size in sizes]
    singles = {m.attributes[0]: m for m in measurements if len(m.attributes) == 1}
    shares = [nearest_column(singles[a], e, total) / total if a in singles else e / total for a, e in enumerate(even)]
    says = [_says(m, shares, total) for m in measurements]
    chosen: set[int] = set()
    for place in sorted(range(len(says)), key=lambda p: (-says[p], p)):
        attributes = measurements[place].attributes
        if any({*attributes} <= {*known} for known in kept) or model_fits(sizes, [*kept, attributes], most):
            kept.append(attributes)
            chosen.add(place)
    return [measurements[place] for place in sorted(chosen)]


def _says(measurement: Measurement, shares: Sequence[Floats], total: float) -> float:
    alone = total * functools.reduce(np.multiply.outer, [shares[a] for a in measurement.attributes])
    scale = measurement.scale(total)
    away = (measurement.counts * scale - alone) / (measurement.deviation * scale)
    return float((away**2).sum()) - away.size
