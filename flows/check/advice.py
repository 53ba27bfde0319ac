"""What a steward should know of a column before a release, in words, and what to do about it.

It gives shares of cells, and the form of what cannot be read; of declared values only whether fewer than half of the cells
match any. It never shows which of them do not occur: a steward would delete these, and the domain would be the data's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from marginweave.configuration.columns import MeasuredColumn, SetColumn
from marginweave.configuration.columns.base import RULE_DECLARED
from marginweave.drafts.look import Look
from marginweave.drafts.tally import Unusable, value_words
from marginweave.released.evaluation import BrokenRule

_SHOWN = 3


class Severity(IntEnum):
    """How much a finding matters; the smallest first."""

    STOPS = 0
    LOOK = 1
    NOTE = 2


@dataclass(frozen=True, kw_only=True)
class Remark:
    """What was found, and what to do about it; `examples` are values of the table. Private."""

    severity: Severity
    share: float
    text: str
    advice: str
    examples: tuple[str, ...] = ()


def percent(share: float) -> str:
    """A share in percent, which is never rounded to nothing or to all."""
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    return "more than 99.9 %" if 0.9995 < share < 1 else f"{100 * share:.1f} %"


def column_findings(column: MeasuredColumn, look: Look, *, on_purpose: bool, undeclared: bool) -> Iterator[Remark]:
    """What is to be said of a counted column; `on_purpose` as in `unusable`.

    `undeclared`: the release counts what is not as declared (`Sections.may_be_undeclared`, `Sections.indicated_sets`).
    """
    cells, filled, fault = max(look.cells, 1), look.cells - look.missing, look.unusable(on_purpose=on_purpose)
    if look.unread:
        stops = fault is not None or column.outside == "error"
        yield Remark(
            severity=Severity.STOPS if stops else Severity.LOOK,
            share=look.unread / cells,
            text=_unread_words(column, look, fault, undeclared=undeclared),
            advice=_unread_advice(column, look),
            examples=tuple(look.unread_texts)[:_SHOWN],
        )
    if look.beyond:
        yield Remark(
            severity=Severity.LOOK if fault is None else Severity.STOPS,
            share=look.beyond / cells,
            text=f"{percent(look.beyond / cells)} of the cells lie outside the bounds; they count in the first or last bin.",
            advice=_SPECIAL if look.are_codes(column) else _WIDER,
            examples=tuple(look.beyond_texts)[:_SHOWN],
        )
    if not filled and look.cells:
        yield Remark(severity=Severity.LOOK, share=1.0, text="Every cell is missing.", advice=_EMPTY)
    elif look.is_constant:
        yield Remark(
            severity=Severity.NOTE, share=1.0, text="Every cell that is filled has the same value.", advice=_CONSTANT
        )
    elif look.missing > cells / 2:
        text = f"{percent(look.missing / cells)} of the cells are missing."
        advice = "Does every text in `missing` mean 'no value', or is it where the column does not apply (`structure.applies`)?"
        yield Remark(severity=Severity.NOTE, share=look.missing / cells, text=text, advice=advice)


_WIDER = "If the published limits are wider, widen `bounds`. What this table holds is no reason to."
_SPECIAL = (
    "Most look like special codes, such as 99 or -9. Do not widen `bounds`: write those that are documented below `codes`, "
    "each with its meaning, or below `missing` if they mean 'no value'."
)
_EMPTY = "Is it the right column, and does every text in `missing` mean 'no value'? It is charged like any other."
_CONSTANT = (
    "Is it the right column? If everybody knows that all have this value, {type: constant, value: …} costs nothing; if not, "
    "leave it as it is."
)
_NOT_DECLARED = "they are counted as not as declared, and the release says how many"
_BECOMES = {"null": "they become missing", "other": "they become `other`", "error": "a run stops"}
_FORM_ADVICE = {
    "currency": "Most begin or end with a currency sign. Remove it from the table first: a number is digits alone.",
    "decimal": "Most look like numbers with a decimal comma. Write source: {file: …, decimal: comma}.",
    "thousands": "Most look like numbers with marks between thousands. Write source: {file: …, thousands: …}.",
}


def _unread_words(column: MeasuredColumn, look: Look, fault: Unusable | None, *, undeclared: bool) -> str:
    value = value_words(column)
    share = percent(look.unread / max(look.cells, 1))
    becomes = _NOT_DECLARED if undeclared else _BECOMES[column.outside or "null"]
    if column.is_set and not undeclared and column.outside in (None, "null"):
        becomes = "what is not declared is left out of them"
    if column.impute is not None and column.outside in (None, "null"):
        becomes = "each becomes a value drawn at random"
    if look.blank == look.unread:
        return f"{share} of the cells are empty, which is no value here; {becomes}."
    if fault is Unusable.NOTHING:
        return f"No cell can be read as {value}; {becomes}."
    if column.input_rule != RULE_DECLARED:
        return f"{share} of the cells cannot be read as {value}; {becomes}."
    if 2 * look.unread > look.cells - look.missing:
        return (
            f"Fewer than half of the cells not declared missing have a declared value: {share} are outside; {becomes}."
        )
    return f"{share} of the cells are outside the declared values; {becomes}."


def _unread_advice(column: MeasuredColumn, look: Look) -> str:
    if isinstance(column, SetColumn) and column.min_values and look.blank:
        return "If a cell may have no value, leave `min_values` out."
    if look.blank == look.unread:
        return 'If an empty cell means "no value", say so: missing: [""].'
    form = look.form(column)
    if form is not None:
        return _FORM_ADVICE.get(form, f'Most look like dates of another format. Write format: "{form}".')
    if column.input_rule == RULE_DECLARED:
        cases = (text.swapcase() for text in look.unread_texts)
        if any(column.accepts(text) for text in cases):
            return "Upper and lower case differ. Write `values` as the published code list for this file has them."
        return "Compare `values` with the published code list: does the file have codes where you declared names?"
    return "If a code among them means 'no value', list it in `missing`; else compare the column with its description."


def rule_finding(rule: BrokenRule) -> tuple[str, Remark]:
    """What to say of a declared rule that rows break, and of what it is said."""
    words, advice = _RULES.get(rule.rule, ("break the rule", "Compare the rule with its source, or correct the rows."))
    text = f"{percent(rule.share)} of the rows {words}."
    severity = Severity.NOTE if rule.rule == "max_values" else Severity.LOOK
    return rule.subject or rule.rule, Remark(severity=severity, share=rule.share, text=text, advice=advice)


_RULES = {
    "structural zeros": (
        "have a combination that `structure.forbidden` rules out",
        "Each becomes a record that has none. Compare the rule with its source, or correct the rows.",
    ),
    "applies": (
        "have a value where the columns do not apply, or none where they do",
        "Each becomes a record that keeps the rule. Compare the rule with its source, or correct the rows.",
    ),
    "ordered": (
        "are out of order",
        "Where bins break it, the later becomes the nearest in order. Compare the rule with its source, or correct the rows.",
    ),
    "determined": (
        "have another value than `structure.determined` computes",
        "The release has the computed value. Compare `mapping` with its source, or correct the rows.",
    ),
    "difference": (
        "have a difference outside of its bounds in `structure.difference`, such as a negative one",
        "It counts as the nearest that is inside. If the published limits are wider, widen `bounds`; or correct the rows.",
    ),
    "sum": (
        "have another total than `structure.sum` computes from its parts",
        "The release has the sum of the parts. Compare the rule with its source, or correct the rows.",
    ),
    "max_values": (
        "have more values in the cell than `max_values`",
        "Of more, a random choice is kept. Raise `max_values` if more are usual: noise grows with it.",
    ),
}


NO_ROWS = Remark(
    severity=Severity.STOPS,
    share=1.0,
    text="The table has no rows.",
    advice="Is it the right file, and is its first line the header?",
)


SIZE = Remark(
    severity=Severity.LOOK,
    share=1.0,
    text="The table has less than a third, or more than three times, of the rows that `rows:` says.",
    advice="Is it the right file, or the right number? What `auto` and `plan` take for granted follows from it.",
)


def suite_finding(broken: str) -> Remark:
    """What to say of an expectation that does not hold: a run stops there."""
    text = f"The suite `expectations.input` is not met: {broken}."
    return Remark(severity=Severity.STOPS, share=1.0, text=text, advice="Correct the rows, or the suite.")


def id_finding(name: str, share: float) -> Remark:
    """What to say of ids that stand in several rows under `unit: row`."""
    return Remark(
        severity=Severity.LOOK,
        share=share,
        text=f"`unit: row` protects single rows, and {percent(share)} of them share their {name} with another row.",
        advice=f"If it tells people apart, protect people: privacy: {{unit: {{column: {name}, max_records: …}}}}.",
    )
