"""Exact known tables as whole numbers of records: one count for every combination of all columns that they tie together.

Tables without a common column, and without a structural zero that connects them, are solved separately. One table is its
own solution. For several, the combinations of all their columns get whole numbers that keep every table and every
structural zero. These are as near as can be to what records have (L1): an integer program, whose only wide part is its
equalities (HiGHS, by scipy). Public facts decide whether there is a solution, so that `plan` finds out before anything is
charged.
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
from marginweave.configuration.rules.record_search import (
    ContradictionError,
    UndecidedError,
    find_record,
    tied_parts,
)
from marginweave.configuration.totals import KnownTotals
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import released_attributes

Rules = Mapping[Clique, set[Clique]]
"""Forbidden combinations of codes, by their attributes."""

MOST_OF_TWO = 1 << 15
MOST_OF_MORE = 1 << 13
"""Combinations of the columns of two, or of more, exact tables that have to hold together.

The program for two is one of transport, and took 3 s of one core. For three tables that close a circle it is not: 4,096
combinations took 21 s, 8,000 took 43 s, and about half of that in `plan`.
"""
# no time limit: the same records on every machine
_OPTIONS: Any = {"mip_rel_gap": 0.05, "node_limit": 1000}


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactPart:
    """Exact tables that hold together.

    `attributes` are those of the tables, with `sizes` codes each. `tied` are the others that structural zeros tie to them, with
    the codes that a record may have there. `rules` are the forbidden combinations of all of these.
    """

    tables: tuple[KnownTotals, ...]
    attributes: Clique
    sizes: tuple[int, ...]
    tied: Mapping[int, Sequence[int]]
    rules: Rules

    @property
    def name(self) -> str:
        """Names of the tables, for messages."""
        return " and ".join(f"[{totals.table.name}]" for totals in self.tables)

    def witness(self, cell: int) -> dict[int, int] | None:
        """Return codes of the tied attributes that a record with this combination may have.

        None if there are none; empty if the search ends undecided.
        """
        codes = np.unravel_index(cell, self.sizes)
        values: dict[int, Sequence[int]] = {}
        for a, code in zip(self.attributes, codes, strict=True):
            values[a] = [int(code)]
        values |= self.tied
        try:
            record = find_record(values, self._rules_among(values))
        except ContradictionError:
            return None
        except UndecidedError:
            return {}
        tied_record = {}
        for a, tied_codes in self.tied.items():
            tied_record[a] = record.get(a, tied_codes[0])
        return tied_record

    def _rules_among(self, values: Mapping[int, Sequence[int]]) -> dict[Clique, set[Clique]]:
        """Return the forbidden combinations whose codes are all among `values`."""
        rules = {}
        for attributes, forbidden in self.rules.items():
            lists = [values[a] for a in attributes]
            cells = {codes for codes in forbidden if _are_listed(codes, lists)}
            if cells:
                rules[attributes] = cells
        return rules

    def _possible(self) -> Flags:
        """Return whether a record may have each combination, as far as tables and rules say; shape (cells,)."""
        flat: Flags = self._allowed_directly().ravel()
        crossing: set[int] = set()  # attributes of rules that also name tied attributes
        for places in self.rules:
            if not {*places} <= {*self.attributes}:
                crossing.update(places)
        # only the attributes that these rules name decide, so each of their combinations is checked once
        if crossing:
            named = [axis for axis, a in enumerate(self.attributes) if a in crossing]
            cells = np.flatnonzero(flat)
            codes = np.stack(np.unravel_index(cells, self.sizes))
            _, first, row = np.unique(codes[named], axis=1, return_index=True, return_inverse=True)
            witnesses = [self.witness(int(cell)) for cell in cells[first]]
            has_witness = np.array([witness is not None for witness in witnesses], np.bool_)
            flat[cells] = has_witness[row.ravel()]
        return flat

    def _allowed_directly(self) -> Flags:
        """Return which combinations neither a table nor a rule among the tables' attributes excludes; shape `sizes`."""
        allowed = np.ones(self.sizes, np.bool_)
        for places, forbidden in self.rules.items():
            if {*places} <= {*self.attributes}:
                axes = [self.attributes.index(a) for a in places]
                shape = [self.sizes[axis] for axis in axes]
                mask = np.ones(shape, np.bool_)
                codes = np.array(list(forbidden))
                mask[tuple(codes.T)] = False
                absent_axes = [axis for axis in range(allowed.ndim) if axis not in axes]
                allowed &= np.expand_dims(mask, absent_axes)
        for totals in self.tables:
            absent_axes = [
                axis for axis, a in enumerate(self.attributes) if a not in totals.attributes
            ]
            allowed &= np.expand_dims(dense(totals) > 0, absent_axes)
        return allowed

    def counts(self, present: Floats | None = None) -> Integers:
        """Return whole numbers of records of every combination, as near to `present` as can be; shape (cells,).

        They keep all tables. DP: arithmetic on public tables, or post-processing.

        Args:
            present: what the combinations have, scaled to the tables' total; without it any numbers will do.

        Raises:
            InputError: there are none.
        """
        possible = self._possible()
        widest = max(self.tables, key=lambda totals: len(totals.attributes))
        if widest.attributes == self.attributes:  # the other tables are sums of it
            table_counts = dense(widest).ravel()
            rounded = np.rint(table_counts).astype(np.int64)
            if rounded[~possible].any():
                raise InputError(self._impossible())
            return np.asarray(rounded)
        cells = np.flatnonzero(possible)
        solution = None
        if len(cells) and present is not None:
            solution = self._solve(cells, present[cells])
        if len(cells) and solution is None:
            solution = self._solve(cells, None)  # as `plan` solves it
        if solution is None:
            raise InputError(self._impossible())
        counts = np.zeros(len(possible), np.int64)
        counts[cells] = solution
        return counts

    def _solve(
        self,
        cells: Integers,
        present: Floats | None,
    ) -> Integers | None:
        """Return counts of some cells that keep all tables, all other cells being 0; None if no solution is found."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array, eye_array, hstack

        number = len(cells)
        sums = self._sums_of_tables(cells)
        table_counts = [dense(table).ravel() for table in self.tables]
        totals = np.concatenate(table_counts)
        objective = np.zeros(number)
        is_integer = np.ones(number, np.int64)
        limits = [LinearConstraint(sums, totals, totals)]
        if present is not None:  # x - more + less = present, and more + less is least
            nothing = csr_array((sums.shape[0], 2 * number))
            unit = eye_array(number, format="csr")
            limits = [
                LinearConstraint(hstack([sums, nothing]), totals, totals),
                LinearConstraint(hstack([unit, -unit, unit]), present, present),
            ]
            objective = np.concatenate([objective, np.ones(2 * number)])
            is_real = np.zeros(2 * number, np.int64)
            is_integer = np.concatenate([is_integer, is_real])
        result = milp(
            objective,
            integrality=is_integer,
            bounds=Bounds(0, np.inf),
            constraints=limits,
            options=_OPTIONS,
        )
        if result.x is None:
            return None
        counts: Integers = np.rint(result.x[:number]).astype(np.int64)
        return counts if (sums @ counts == totals).all() else None

    def _sums_of_tables(self, cells: Integers) -> Any:
        """Return the sparse matrix that sums `cells` to the cells of all tables, one table below the other."""
        from scipy.sparse import csr_array, vstack

        number = len(cells)
        codes = np.unravel_index(cells, self.sizes)
        matrices: list[Any] = []
        for table in self.tables:
            table_codes = [codes[self.attributes.index(a)] for a in table.attributes]
            places = np.ravel_multi_index(table_codes, table.sizes)
            entries = (np.ones(number), (places, np.arange(number)))
            shape = math.prod(table.sizes), number
            matrices.append(csr_array(entries, shape=shape))
        return vstack(matrices)

    def _impossible(self) -> str:
        """Return the message that no solution exists."""
        rules = " and the rules of structure" if self.rules else ""
        tables = f"the exact tables of {self.name}{rules}"
        return (
            f"known: no whole numbers of records keep {tables}; correct a table, or give it an sd"
        )


def _are_listed(codes: Clique, lists: Sequence[Sequence[int]]) -> bool:
    """Return whether each code is in the list of its attribute."""
    return all(code in listed for code, listed in zip(codes, lists, strict=True))


def dense(totals: KnownTotals) -> Floats:
    """Return the counts of all combinations, with one axis for each attribute."""
    counts = np.zeros(totals.sizes)
    cells = np.array(list(totals.counts)).T
    counts[tuple(cells)] = list(totals.counts.values())
    return counts


def exact_parts(
    configuration: Configuration, labels: Sequence[Sequence[str]]
) -> tuple[ExactPart, ...]:
    """Return the exact tables of a configuration over a domain, grouped by what ties them.

    DP: arithmetic on public tables and public or released labels.

    Raises:
        InputError: a group has too many cells.
    """
    exact = [totals for totals in configuration.totals if totals.exact]
    rules = defaultdict[Clique, set[Clique]](set)
    if exact:
        for rule in combinations_of(forbidden_codes(configuration.forbidden, labels)):
            places, codes = zip(*rule, strict=True)
            rules[places].add(codes)
    # attributes of a set: a record has a limited number of its values
    of_sets = defaultdict[str, list[int]](list)
    for j, attribute in enumerate(configuration.attributes):
        if attribute.of_set:
            of_sets[attribute.column].append(j)
    attributes = released_attributes(configuration, labels)
    cliques = [totals.attributes for totals in exact]
    parts = []
    for tied in tied_parts([*cliques, *rules, *of_sets.values()]):
        tables = [totals for totals in exact if totals.attributes[0] in tied]
        if tables:
            parts.append(_part(attributes, labels, tables, tied, rules))
    return tuple(parts)


def _part(
    attributes: Sequence[Attribute],
    labels: Sequence[Sequence[str]],
    tables: Sequence[KnownTotals],
    tied: Collection[int],
    rules: Rules,
) -> ExactPart:
    """Return the part of these exact tables, without those inside larger ones; raises InputError for too many cells."""
    largest = [table for table in tables if not _is_inside_another(table, tables)]
    pairs: list[tuple[int, int]] = []
    for table in largest:
        pairs += zip(table.attributes, table.sizes, strict=True)
    sizes = dict(sorted(pairs))
    cells = math.prod(sizes.values())
    most = MOST_OF_TWO if len(largest) == 2 else MOST_OF_MORE
    if len(largest) > 1 and cells > most:
        names = ", ".join(attributes[a].name for a in sizes)
        raise InputError(
            f"known has exact tables that have to hold together over {names}, which have {cells} combinations, more than "
            f"{most}; leave one out, or give it an sd"
        )
    possible_codes = {}
    for a in sorted({*tied} - {*sizes}):
        possible_codes[a] = _possible_codes(attributes[a], len(labels[a]))
    return ExactPart(
        tables=tuple(largest),
        attributes=tuple(sizes),
        sizes=tuple(sizes.values()),
        tied=possible_codes,
        rules={places: rules[places] for places in rules if {*places} <= {*tied}},
    )


def _is_inside_another(table: KnownTotals, tables: Sequence[KnownTotals]) -> bool:
    """Return whether another of the tables has all attributes of this one, and more."""
    return any({*table.attributes} < {*larger.attributes} for larger in tables)


def _possible_codes(attribute: Attribute, size: int) -> Sequence[int]:
    """Return the codes of a record about which nothing is known, the preferred one first: no value of a set."""
    if attribute.is_set:
        return [size]
    codes = range(size + attribute.lacks_values)
    return codes[::-1] if attribute.of_set else codes
