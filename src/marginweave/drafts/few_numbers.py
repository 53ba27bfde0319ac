"""Reads categories of a few numbers as numbers: children beside people, a sum of which one part is 0, 1 or 2. DP: none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from itertools import pairwise

from marginweave.configuration.number_texts import NumberForm
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.drafts.column_draft import ColumnDraft, plain
from marginweave.drafts.declared_cells import declared_column
from marginweave.drafts.distinct_numbers import DistinctNumbers
from marginweave.drafts.drafted_numbers import decimals_of
from marginweave.drafts.relations import Relation

_REMARK = "a number because a rule below compares or adds it; if that is no rule, write %s instead"


@dataclass(frozen=True)
class FewNumbers:
    """Categories whose values are numbers, but for one text, among drafted columns; rules make numbers of them."""

    drafts: Mapping[str, ColumnDraft]
    form: NumberForm
    """The spelling of numbers in the source."""

    @cached_property
    def numbers(self) -> dict[str, ColumnDraft]:
        """Drafts of them as numbers, with a bin for each value."""
        drafts = {name: _number(draft, self.form) for name, draft in self.drafts.items()}
        return {name: draft for name, draft in drafts.items() if draft is not None}

    def as_drafted(
        self, orders: Sequence[Relation], compared_drafts: Mapping[str, ColumnDraft]
    ) -> list[Relation]:
        """Return the orders with these categories as they are drafted, where these are in order among themselves.

        Those that are compared with numbers, directly or through others, become numbers. No row may break an order of such a
        category: its numbers may be codes, which are in nearly any order. They were compared by `compared_drafts`.
        """
        orders = [
            order
            for order in orders
            if not order.broken or self.numbers.keys().isdisjoint(order.columns)
        ]
        compared = {name for order in orders for name in order.columns if name not in self.numbers}
        for _ in orders:  # each pass reaches one order further
            for order in orders:
                if not compared.isdisjoint(order.columns):
                    compared |= set(order.columns)
        drafted = []
        for order in orders:
            are_numbers = not compared.isdisjoint(order.columns)
            drafted.append(
                self.with_numbers(order, compared_drafts)
                if are_numbers
                else replace(order, changes={})
            )
        return drafted

    def with_numbers(
        self, relation: Relation, compared_drafts: Mapping[str, ColumnDraft]
    ) -> Relation:
        """Return a rule that makes numbers of its categories; bins for single values are as fine as the rule's decimals."""
        changes = dict(relation.changes)
        for name in relation.columns:
            if name in self.numbers:
                number = self.numbers[name]
                changed = changes.setdefault(name, compared_drafts[name])
                has_same_bins = changed.facts["bins"] == number.facts["bins"]
                if has_same_bins and changed.facts["decimals"] > number.facts["decimals"]:
                    finer = _number(self.drafts[name], self.form, changed.facts["decimals"])
                    changes[name] = finer or changed
        return replace(relation, changes=changes)


def _number(draft: ColumnDraft, form: NumberForm, decimals: int = 0) -> ColumnDraft | None:
    """Return a category of few numbers as a number of so many `decimals` at least; None where it is none."""
    listed = draft.facts.get("values")
    if draft.type != "category" or draft.public is not None or "same" in draft.facts:
        return None
    if not isinstance(listed, Sequence):
        return None
    texts = {text: form.plain(text) for text in map(str, listed)}
    words = [text for text, number in texts.items() if number is None]
    plain_cells = {number: 1 for number in texts.values() if number is not None}
    values = set(map(Decimal, plain_cells))
    has_leading_zeros = any(text[:1] == "0" and text[1:2].isdigit() for text in texts)
    if len(values) < 2 or len(words) > 1 or has_leading_zeros:
        return None
    facts = {key: value for key, value in draft.facts.items() if key != "values"}
    if words:
        facts["missing"] = [*facts.get("missing", ()), *words]
    decimals = max(decimals, decimals_of(DistinctNumbers.of_texts(plain_cells)))
    edges = _edges(sorted(values), Decimal(1).scaleb(-decimals))
    facts = {"bounds": [edges[0], edges[-1]], "bins": edges, "decimals": decimals, **facts}
    number = ColumnDraft("number", facts, _REMARK % yaml_line({"type": draft.type, **draft.facts}))
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
