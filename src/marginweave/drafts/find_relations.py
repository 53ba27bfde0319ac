"""Finds relations between the columns of a table that hold in all rows, or in all but a few, as suggestions for a draft.

Private until they are confirmed, as the rest of a draft. DP: none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.number_texts import NumberForm
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.declared_cells import DeclaredTable
from marginweave.drafts.few_numbers import FewNumbers
from marginweave.drafts.found_brackets import find_brackets
from marginweave.drafts.found_determined import find_determined
from marginweave.drafts.found_gaps import find_gaps
from marginweave.drafts.found_orders import find_orders, find_possible_orders, in_questions
from marginweave.drafts.found_sums import find_differences, find_sums
from marginweave.drafts.found_zeros import find_zeros
from marginweave.drafts.moments_as_days import find_orders_of_days
from marginweave.drafts.relations import Relation, SampledTable

_CONFIRMED = {
    "dataset": "draft",
    "source": "draft.csv",
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
}


class FoundRelations(NamedTuple):
    """Relations that a draft asks about, and orders that it only names: all rows keep these, perhaps by chance."""

    asked: list[Relation]
    possible_orders: list[Relation]


def find_relations(
    table: pa.Table, drafts: Mapping[str, ColumnDraft], form: NumberForm
) -> FoundRelations:
    """Return the relations between drafted columns; confirmed in any choice, they are rules that a configuration accepts.

    A column that a rule computes is in no other rule.

    Args:
        table: The table, as it was read.
        drafts: The columns, with lists of values in place of files.
        form: The spelling of numbers in the source.
    """
    tables = SampledTable.of(DeclaredTable.of(table, drafts, form))
    few = FewNumbers(drafts, form)
    as_numbers = {**drafts, **few.numbers}
    amounts = SampledTable.of(DeclaredTable.of(table, as_numbers, form))
    differences = find_differences(tables, drafts)
    taken = {name for relation in differences for name in relation.columns}
    sums = [
        few.with_numbers(relation, as_numbers) for relation in find_sums(amounts, as_numbers, taken)
    ]
    computed = {name for relation in (*differences, *sums) for name in relation.computed}
    determined = find_determined(tables, computed)
    computed |= {name for relation in determined for name in relation.computed}
    relations = [*differences, *sums, *determined, *find_gaps(tables, computed)]
    relations += find_zeros(tables, with_changes(drafts, relations), computed)
    relations += find_brackets(tables, with_changes(drafts, relations), computed, relations)
    changed = with_changes(as_numbers, relations)
    orders = find_orders(amounts, changed, computed)
    relations += few.as_drafted(orders, changed)
    taken = {name for relation in relations for name in relation.columns}
    relations += find_orders_of_days(table, changed, form, taken)
    asked = in_questions(_accepted(relations, drafts))
    return FoundRelations(asked, find_possible_orders(tables, computed, asked))


def _accepted(relations: Sequence[Relation], drafts: Mapping[str, ColumnDraft]) -> list[Relation]:
    """Return the relations that a configuration of these columns accepts together."""
    if _is_accepted(relations, drafts):
        return list(relations)
    accepted: list[Relation] = []
    for relation in relations:
        if _is_accepted([*accepted, relation], drafts):
            accepted.append(relation)
    return accepted


def _is_accepted(relations: Sequence[Relation], drafts: Mapping[str, ColumnDraft]) -> bool:
    changed = with_changes(drafts, relations)
    columns: dict[str, Any] = {}
    for name, draft in changed.items():
        public = {} if draft.is_private else {"public": "drafted"}
        columns[name] = {"type": draft.type, **draft.facts, **public}
    with suppress(InputError):
        parse_configuration(
            {**_CONFIRMED, "columns": columns, "structure": structure_of(relations)}
        )
        return True
    return False


def with_changes(
    drafts: Mapping[str, ColumnDraft], relations: Sequence[Relation]
) -> dict[str, ColumnDraft]:
    """Return the drafts of the columns with what the relations change in them."""
    changed = dict(drafts)
    for relation in relations:
        changed |= relation.changes
    return changed


def structure_of(relations: Sequence[Relation]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the section `structure` with all relations confirmed."""
    structure: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for relation in relations:
        structure[relation.key] += relation.entries
    return dict(structure)
