"""Find what a steward should know of a column before a release, and what to do about it; the words are in `check.toml`.

It gives shares of cells, and the form of what cannot be read. Of declared values it gives only whether fewer than half of
the cells match any. It never shows which of them do not occur: a steward would delete these, and the declared values would
then depend on the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial

from marginweave.configuration.columns import MeasuredColumn, SetColumn
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.drafts.look import ColumnLook
from marginweave.drafts.tally import Unusable, value_words
from marginweave.linked.source import UnlinkedRows
from marginweave.linked.tallies import NestedTally
from marginweave.linked.usability import Unlinked
from marginweave.released.evaluation import BrokenRule
from marginweave.sources.long_cells import LongCells
from marginweave.texts.sentences import Sentence, Share, sentence

_SHOWN = 3
_NUMBER_NOTATIONS = ("currency", "decimal", "thousands")

check_sentence = partial(sentence, "check")


class Severity(IntEnum):
    """How much a finding matters; the gravest first."""

    STOPS = 0
    LOOK = 1
    NOTE = 2


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A finding and an advice, as sentences; `share` is of cells or rows, `examples` are values of the table. Private."""

    severity: Severity
    share: float
    text: Sentence
    advice: Sentence
    examples: tuple[str, ...] = ()


def column_findings(
    column: MeasuredColumn,
    look: ColumnLook,
    *,
    on_purpose: bool,
    undeclared: bool,
    conditional: bool = False,
    table: str = "",
    then: str = "",
) -> Iterator[Remark]:
    """Yield the findings on a counted column; `on_purpose` as in `unusable`.

    `undeclared`: the release counts what is not as declared (`Sections.may_be_undeclared`, `Sections.indicated_sets`).
    `conditional`: a rule says where the column applies, so that most cells may be missing.
    `table`: the linked table from which the column is derived. `then`: what becomes of cells that cannot be read, a key of
    the texts, where it does not follow from the declaration.
    """
    cells = max(look.cells, 1)
    fault = look.unusable(on_purpose=on_purpose)
    if look.unread:
        stops = fault is not None or column.outside == "error"
        yield Remark(
            severity=Severity.STOPS if stops else Severity.LOOK,
            share=look.unread / cells,
            text=_unread_text(
                column, look, fault, then or _then(column, undeclared=undeclared), table
            ),
            advice=check_sentence("unread-advice.rows", table=table)
            if table
            else _unread_advice(column, look),
            examples=tuple(look.unread_texts)[:_SHOWN],
        )
    if look.beyond:
        share = look.beyond / cells
        yield Remark(
            severity=Severity.LOOK if fault is None else Severity.STOPS,
            share=share,
            text=check_sentence("beyond.text", share=Share(share)),
            advice=check_sentence(
                "beyond.codes" if look.are_codes(column) else "beyond.wider",
                limits=_limits_key(column),
            ),
            examples=tuple(look.beyond_texts)[:_SHOWN],
        )
    if look.cells and look.missing == look.cells:
        yield _remark(Severity.LOOK, 1.0, "column.empty")
    elif look.is_constant:
        yield _remark(Severity.NOTE, 1.0, "column.constant")
    elif look.missing > cells / 2 and not conditional:
        yield _remark(Severity.NOTE, look.missing / cells, "column.missing")


def _remark(severity: Severity, share: float, key: str, **facts: str | int) -> Remark:
    """Return a finding whose text and advice are `key` and `key`-advice; {share} is among their facts."""
    return Remark(
        severity=severity,
        share=share,
        text=check_sentence(key, share=Share(share), **facts),
        advice=check_sentence(f"{key}-advice", **facts),
    )


def _limits_key(column: MeasuredColumn) -> str:
    """Return the key with the limits that cells lie beyond: of bounds that are bought, `within`."""
    return "within" if column.buys_bounds else "bounds"


def linked_findings(
    column: MeasuredColumn, look: ColumnLook, *, counted: bool, on_purpose: bool
) -> Iterator[Remark]:
    """Yield the findings on a column of a linked table; they stop a run where the table is `counted`.

    `on_purpose` as in `unusable`.
    """
    then = "rows" if column.outside is None else ""
    fault = look.unusable(on_purpose=on_purpose) if counted else None
    for found in column_findings(column, look, on_purpose=True, undeclared=False, then=then):
        if fault is not None and (found.severity is not Severity.NOTE):
            yield replace(found, severity=Severity.STOPS)
            continue
        if not (look.is_constant and found.severity is Severity.NOTE):
            yield replace(found, severity=max(found.severity, Severity.LOOK))


def _then(column: MeasuredColumn, *, undeclared: bool) -> str:
    """Return the key of what a release makes of cells that cannot be read as a value of the column."""
    leaves_null = column.outside in (None, "null")
    if column.impute is not None and leaves_null:
        return "imputed"
    if column.is_set and not undeclared and leaves_null:
        return "left-out"
    return "undeclared" if undeclared else column.outside or "null"


def _unread_text(
    column: MeasuredColumn, look: ColumnLook, fault: Unusable | None, then: str, table: str = ""
) -> Sentence:
    """Return how many cells cannot be read as a value of the column, and what a release makes of them."""
    if table:
        key = "rows"
    elif look.blank == look.unread:
        key = "empty"
    elif fault is Unusable.NOTHING:
        key = "nothing"
    elif column.value_form is not None:
        key = "other"
    else:
        key = "half" if 2 * look.unread > look.cells - look.missing else "outside"
    return check_sentence(
        f"unread.{key}",
        share=Share(look.unread / max(look.cells, 1)),
        value=value_words(column),
        table=table,
        then=check_sentence(f"then.{then}"),
    )


def _unread_advice(column: MeasuredColumn, look: ColumnLook) -> Sentence:
    """Return what to do about cells that cannot be read, by the first explanation that fits."""
    if isinstance(column, SetColumn) and column.min_values and look.blank:
        return check_sentence("unread-advice.min-values")
    if look.blank == look.unread:
        return check_sentence("unread-advice.empty")
    spelling = look.spelling(column)
    if spelling:
        return check_sentence("unread-advice.spelling", text=yaml_line(spelling))
    notation = look.notation(column)
    if notation is not None:
        key = notation if notation in _NUMBER_NOTATIONS else "format"
        return check_sentence(f"unread-advice.{key}", format=notation)
    if column.value_form is None:
        differs = any(_differs_in_case(column, text) for text in look.unread_texts)
        return check_sentence("unread-advice.case" if differs else "unread-advice.values")
    return check_sentence("unread-advice.missing")


def _differs_in_case(column: MeasuredColumn, text: str) -> bool:
    """Return whether an unread text would be declared if upper and lower case were the same; of a set, all its values."""
    folded_labels = {label.casefold() for label in column.labels}
    values = column.parts(text) if isinstance(column, SetColumn) else [text]
    for value in values:
        if column.code_of(value) < 0 and value.casefold() not in folded_labels:
            return False
    return bool(values)


def rule_finding(rule: BrokenRule) -> tuple[str, Remark]:
    """Return the subject of a rule that rows break, and the finding."""
    key = rule.rule.replace(" ", "-")
    if key not in RULES:
        key = "any"
    remark = Remark(
        severity=Severity.NOTE if rule.rule == "max_values" else Severity.LOOK,
        share=rule.share,
        text=check_sentence(f"rule.{key}", rows=Share(rule.share)),
        advice=check_sentence(f"rule-advice.{key}"),
    )
    return rule.subject or rule.rule, remark


RULES = ("structural-zeros", "applies", "ordered", "determined", "difference", "sum", "max_values")
"""The rules that have texts."""
NO_ROWS = _remark(Severity.STOPS, 1.0, "table.no-rows")
SIZE = _remark(Severity.LOOK, 1.0, "table.size")


def suite_finding(broken: str) -> Remark:
    """Return the finding on an expectation that is not met: a run stops there."""
    return _remark(Severity.STOPS, 1.0, "table.suite", broken=broken)


def ownerless_finding(name: str, share: float, *, is_linked: bool) -> Remark:
    """Return the finding on rows without an id of a person, which are left out; `is_linked` where tables are linked by it."""
    key = "table.ownerless-linked" if is_linked else "table.ownerless"
    return _remark(Severity.LOOK, share, key, name=name)


def unlinked_finding(by: str, unlinked: UnlinkedRows) -> Remark | None:
    """Return the finding on a linked table without rows, or with some that belong to nobody by the column `by`."""
    if not unlinked.rows:
        return NO_ROWS
    lost = unlinked.without_id + unlinked.orphans
    if not lost:
        return None
    return _remark(
        Severity.LOOK if Unlinked.of(unlinked) is None else Severity.STOPS,
        lost / unlinked.rows,
        "table.unlinked",
        by=by,
        without_id=unlinked.without_id,
        orphans=unlinked.orphans,
        rows=unlinked.rows,
    )


def beyond_finding(tally: NestedTally) -> Remark:
    """Return the finding on rows of a counted table that are in no count of rows, as their units have too many."""
    return _remark(
        Severity.LOOK,
        tally.rows_beyond / tally.rows,
        "table.beyond",
        units=tally.units_beyond,
        all_units=tally.units,
        most=tally.table.at_most or 1,
        rows=tally.rows_beyond,
        all_rows=tally.rows,
    )


def long_cells_finding(cells: LongCells) -> Remark:
    """Return the finding on cells with many line breaks, which may be rows that a quote has taken."""
    return Remark(severity=Severity.LOOK, share=1.0, text=cells.words, advice=cells.advice)


def id_finding(name: str, share: float) -> Remark:
    """Return the finding on ids that are in several rows under `unit: row`."""
    return _remark(Severity.LOOK, share, "table.ids", name=name)
