"""Reads categories of a few numbers as numbers: children beside people, a sum of which one part is 0, 1 or 2. DP: none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise

from marginweave.configuration.number_texts import NumberForm
from marginweave.drafts.column_draft import ColumnDraft, plain
from marginweave.drafts.declared_cells import declared_column
from marginweave.drafts.drafted_numbers import decimals_of
from marginweave.drafts.relations import Relation

_REMARK = "a number because a rule below compares or adds it; if that is no rule, write {type: category, values: [%s]} instead"


def few_numbers(drafts: Mapping[str, ColumnDraft], form: NumberForm) -> dict[str, ColumnDraft]:
    """Return the categories whose values are numbers, but for one text, as drafts of numbers with a bin for each value."""
    numbers: dict[str, ColumnDraft] = {}
    for name, draft in drafts.items():
        number = _number(draft, form)
        if number is not None:
            numbers[name] = number
    return numbers


def _number(draft: ColumnDraft, form: NumberForm) -> ColumnDraft | None:
    listed = draft.facts.get("values")
    if draft.type != "category" or draft.public is not None or "same" in draft.facts:
        return None
    if not isinstance(listed, Sequence):
        return None
    texts = {text: form.plain(text) for text in map(str, listed)}
    words = [text for text, number in texts.items() if number is None]
    values = {Decimal(number) for number in texts.values() if number is not None}
    has_leading_zeros = any(text[:1] == "0" and text[1:2].isdigit() for text in texts)
    if len(values) < 2 or len(words) > 1 or has_leading_zeros:
        return None
    facts = {key: value for key, value in draft.facts.items() if key != "values"}
    if words:
        facts["missing"] = [*facts.get("missing", ()), *words]
    decimals = decimals_of(values)
    edges = _edges(sorted(values), Decimal(1).scaleb(-decimals))
    facts = {"bounds": [edges[0], edges[-1]], "bins": edges, "decimals": decimals, **facts}
    number = ColumnDraft("number", facts, _REMARK % ", ".join(texts))
    return None if declared_column(number) is None else number


def _edges(values: Sequence[Decimal], step: Decimal) -> list[int | float]:
    """Return edges of bins that hold one of the values each, or none of them; the last ends half a step above its value."""
    edges = []
    for value, following in pairwise(values):
        edges.append(value)
        if following > value + step:
            edges.append(value + step)
    last = values[-1]
    return [plain(edge) for edge in (*edges, last, last + step / 2)]


def as_drafted(orders: Sequence[Relation], numbers: Mapping[str, ColumnDraft]) -> list[Relation]:
    """Return the orders with categories of a few numbers as they are drafted, where these are in order among themselves.

    Those that are compared with numbers, directly or through others, become numbers. No row may break an order of such a
    category: its numbers may be codes, which are in nearly any order.
    """
    orders = [
        order for order in orders if not order.broken or numbers.keys().isdisjoint(order.columns)
    ]
    compared = {name for order in orders for name in order.columns if name not in numbers}
    for _ in orders:  # each pass reaches one order further
        for order in orders:
            if not compared.isdisjoint(order.columns):
                compared |= set(order.columns)
    drafted = []
    for order in orders:
        are_numbers = not compared.isdisjoint(order.columns)
        drafted.append(with_numbers(order, numbers) if are_numbers else replace(order, changes={}))
    return drafted


def with_numbers(relation: Relation, numbers: Mapping[str, ColumnDraft]) -> Relation:
    """Return a rule that makes numbers of its categories of a few numbers."""
    of_relation = {name: numbers[name] for name in relation.columns if name in numbers}
    return replace(relation, changes=of_relation | dict(relation.changes))
