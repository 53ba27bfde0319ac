"""Exact known tables as whole numbers of records: one count for every combination of all columns that they tie together.

Tables without a common column, and without a structural zero that reaches from one to the other, are held apart. One table is
its own solution. Of several the combinations of all their columns get whole numbers that keep every table, no structural zero,
and are as near as can be to what records have (L1): an integer program, whose only wide part is its equalities (HiGHS, by
scipy). Public facts decide whether there is a solution, so that `plan` finds out before anything is charged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute, combinations_of, forbidden_codes
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.record_search import ContradictionError, UndecidedError, find_record, tied_parts
from marginweave.configuration.totals import KnownTotals
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import released_attributes

MOST_OF_TWO, MOST_OF_MORE = 1 << 15, 1 << 13
"""Combinations of the columns of two, or of more, exact tables that have to hold together.

The program of two is one of transport, and took 3 s of one core. Of three tables that close a circle it is no such one: 4,096
combinations took 21 s, 8,000 took 43 s, and about half of that in `plan`.
"""
_OPTIONS: Any = {"mip_rel_gap": 0.05, "node_limit": 1000}  # no time limit: the same records on every machine


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactPart:
    """Exact tables that hold together.

    `attributes` are those of the tables, with `sizes` codes each; `tied` the others that structural zeros tie to them, with the
    codes that a record may have there. `rules` are the forbidden combinations of all of these.
    """

    tables: tuple[KnownTotals, ...]
    attributes: Clique
    sizes: tuple[int, ...]
    tied: Mapping[int, Sequence[int]]
    rules: Mapping[Clique, set[Clique]]

    @property
    def name(self) -> str:
        """What the tables are called in sentences."""
        return " and ".join(f"[{known.table.name}]" for known in self.tables)

    def witness(self, cell: int) -> dict[int, int] | None:
        """Codes of the tied attributes that may stand beside a combination; None if there are none, empty if none are found."""
        codes = np.unravel_index(cell, self.sizes)
        values: dict[int, Sequence[int]] = {a: [int(code)] for a, code in zip(self.attributes, codes, strict=True)}
        values |= self.tied
        rules = {
            places: {
                cells for cells in forbidden if all(code in values[a] for a, code in zip(places, cells, strict=True))
            }
            for places, forbidden in self.rules.items()
        }
        try:
            found = find_record(values, {places: cells for places, cells in rules.items() if cells})
        except ContradictionError:
            return None
        except UndecidedError:
            return {}
        return {a: found.get(a, codes[0]) for a, codes in self.tied.items()}

    def _possible(self) -> Flags:
        """Which combinations a record may have, as far as tables and rules say; shape (cells,)."""
        allowed = np.ones(self.sizes, np.bool_)
        for places, forbidden in self.rules.items():
            if {*places} <= {*self.attributes}:
                axes = [self.attributes.index(a) for a in places]
                mask = np.ones([self.sizes[axis] for axis in axes], np.bool_)
                mask[tuple(np.array(list(forbidden)).T)] = False
                allowed &= np.expand_dims(mask, [axis for axis in range(allowed.ndim) if axis not in axes])
        for known in self.tables:
            axes = [axis for axis, a in enumerate(self.attributes) if a not in known.attributes]
            allowed &= np.expand_dims(dense(known) > 0, axes)
        flat: Flags = allowed.ravel()
        crossing = {a for places in self.rules if not {*places} <= {*self.attributes} for a in places}
        if crossing:  # what the rules name decides, and is looked at once
            named = [axis for axis, a in enumerate(self.attributes) if a in crossing]
            cells = np.flatnonzero(flat)
            codes = np.stack(np.unravel_index(cells, self.sizes))[named]
            _, first, row = np.unique(codes, axis=1, return_index=True, return_inverse=True)
            flat[cells] = np.array([self.witness(int(cells[i])) is not None for i in first], np.bool_)[row.ravel()]
        return flat

    def counts(self, present: Floats | None = None) -> Integers:
        """Whole numbers of records of every combination that keep all tables, as near to `present` as can be; shape (cells,).

        DP: arithmetic on public tables, or post-processing.

        Args:
            present: what the combinations have, scaled to the tables' total; without it any numbers will do.

        Raises:
            InputError: there are none.
        """
        possible = self._possible()
        widest = max(self.tables, key=lambda known: len(known.attributes))
        if widest.attributes == self.attributes:  # the others are sums of it
            whole = np.rint(dense(widest).ravel()).astype(np.int64)
            if whole[~possible].any():
                raise InputError(self._impossible())
            return np.asarray(whole)
        cells = np.flatnonzero(possible)
        found = self._solve(cells, None if present is None else present[cells]) if len(cells) else None
        if found is None and present is not None and len(cells):
            found = self._solve(cells, None)  # what `plan` has found
        if found is None:
            raise InputError(self._impossible())
        counts = np.zeros(len(possible), np.int64)
        counts[cells] = found
        return counts

    def _solve(self, cells: Integers, present: Floats | None) -> Integers | None:
        """Counts of some cells that keep all tables, whatever is left out being 0."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, eye_array, hstack, vstack

        codes, number, rows = np.unravel_index(cells, self.sizes), len(cells), list[Any]()
        for known in self.tables:
            places = np.ravel_multi_index([codes[self.attributes.index(a)] for a in known.attributes], known.sizes)
            entries = (np.ones(number), (places, np.arange(number)))
            rows.append(csr_array(entries, shape=(math.prod(known.sizes), number)))
        keep, wanted = vstack(rows), np.concatenate([dense(known).ravel() for known in self.tables])
        objective, whole = np.zeros(number), np.ones(number, np.int64)
        limits = [LinearConstraint(keep, wanted, wanted)]
        if present is not None:  # x - more + less = present, and more + less is least
            nothing, one = csr_array((keep.shape[0], 2 * number)), eye_array(number, format="csr")
            apart = LinearConstraint(hstack([one, -one, one]), present, present)
            limits = [LinearConstraint(hstack([keep, nothing]), wanted, wanted), apart]
            objective = np.concatenate([objective, np.ones(2 * number)])
            whole = np.concatenate([whole, np.zeros(2 * number, np.int64)])
        found = milp(objective, integrality=whole, bounds=Bounds(0, np.inf), constraints=limits, options=_OPTIONS)
        if found.x is None:
            return None
        counts: Integers = np.rint(found.x[:number]).astype(np.int64)
        return counts if (keep @ counts == wanted).all() else None

    def _impossible(self) -> str:
        rules = " and the rules of structure" if self.rules else ""
        kept = f"the exact tables of {self.name}{rules}"
        return f"known: no whole numbers of records keep {kept}; correct a table, or give it an sd"


def dense(known: KnownTotals) -> Floats:
    """The counts of all combinations, an axis for each attribute."""
    counts = np.zeros(known.sizes)
    counts[tuple(np.array(list(known.counts)).T)] = list(known.counts.values())
    return counts


def exact_parts(configuration: Configuration, labels: Sequence[Sequence[str]]) -> tuple[ExactPart, ...]:
    """The exact tables of a configuration, over a domain, together with what ties them; raises InputError for too many cells.

    DP: arithmetic on public tables and public or released labels.
    """
    exact = [known for known in configuration.totals if known.exact]
    rules = defaultdict[Clique, set[Clique]](set)
    for rule in combinations_of(forbidden_codes(configuration.forbidden, labels)) if exact else ():
        rules[tuple(a for a, _ in rule)].add(tuple(code for _, code in rule))
    of_sets = defaultdict[str, list[int]](list)  # of which a record has at most so many values
    for j, attribute in enumerate(configuration.attributes):
        if attribute.of_set:
            of_sets[attribute.column].append(j)
    parts = tied_parts([*(known.attributes for known in exact), *rules, *of_sets.values()])
    inside = [(part, [known for known in exact if known.attributes[0] in part]) for part in parts]
    attributes = released_attributes(configuration, labels)
    return tuple(_part(attributes, labels, tables, part, rules) for part, tables in inside if tables)


def _part(
    attributes: Sequence[Attribute],
    labels: Sequence[Sequence[str]],
    tables: Sequence[KnownTotals],
    part: Collection[int],
    rules: Mapping[Clique, set[Clique]],
) -> ExactPart:
    inside = [k for k in tables if not any({*k.attributes} < {*other.attributes} for other in tables)]
    sizes = dict(sorted(pair for known in inside for pair in zip(known.attributes, known.sizes, strict=True)))
    together = math.prod(sizes.values())
    most = MOST_OF_TWO if len(inside) == 2 else MOST_OF_MORE
    if len(inside) > 1 and together > most:
        names = ", ".join(attributes[a].name for a in sizes)
        raise InputError(
            f"known has exact tables that have to hold together over {names}, which have {together} combinations, more than "
            f"{most}; leave one out, or give it an sd"
        )

    def possible(a: int) -> Sequence[int]:  # of a record of which nothing is known: no value of a set
        attribute, size = attributes[a], len(labels[a])
        values = range(size + attribute.lacks_values)
        return [size] if attribute.is_set else values[::-1] if attribute.of_set else values

    return ExactPart(
        tables=tuple(inside),
        attributes=tuple(sizes),
        sizes=tuple(sizes.values()),
        tied={a: possible(a) for a in sorted({*part} - {*sizes})},
        rules={places: cells for places, cells in rules.items() if {*places} <= {*part}},
    )
