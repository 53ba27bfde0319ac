"""Reads moments as days: no order is shipped before the day on which it was made. Private. DP: none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from marginweave.configuration.number_texts import NumberForm
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.declared_cells import DeclaredTable, declared_column
from marginweave.drafts.found_orders import find_orders
from marginweave.drafts.relations import Relation, SampledTable

_REMARK = "a date, without time of day, because a rule below compares it with dates; if that is no rule, write %s instead"


def find_orders_of_days(
    table: pa.Table, drafts: Mapping[str, ColumnDraft], form: NumberForm, taken: Collection[str]
) -> list[Relation]:
    """Return the orders between moments that are not `taken` by other rules and dates; a rule compares columns of one type.

    Moments of a declared format stay moments: records would have a time of day in them that means nothing.
    """
    days: dict[str, ColumnDraft] = {}
    for name, draft in drafts.items():
        if draft.type == "datetime" and draft.waits and name not in taken:
            day = _as_day(draft)
            if "format" not in draft.facts and declared_column(day) is not None:
                days[name] = day
    dates = {name: draft for name, draft in drafts.items() if draft.type == "date"} | days
    if not days or len(dates) == len(days):
        return []
    tables = SampledTable.of(DeclaredTable.of(table, dates, form))
    orders = []
    for order in find_orders(tables, dates, ()):
        changes = {name: days[name] for name in order.columns if name in days}
        if len(changes) == 1:
            orders.append(replace(order, changes=changes))
    return orders


def _as_day(draft: ColumnDraft) -> ColumnDraft:
    instead = _REMARK % yaml_line({"type": draft.type, **draft.facts})
    remark = "; ".join(filter(None, (draft.remark, instead)))
    return replace(draft, type="date", remark=remark)
