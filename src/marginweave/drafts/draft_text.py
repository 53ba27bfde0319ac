"""Writes a drafted configuration as YAML, in which everything read from the data waits for a yes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marginweave.configuration.execution import SourceFile
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.drafted_configuration import ConfigurationDraft
from marginweave.drafts.linked_draft import DerivedDraft, LinkedDraft
from marginweave.drafts.private_costs import LEAST_DELTA_EXPONENT, delta_exponent
from marginweave.drafts.relations import Relation
from marginweave.drafts.subjects import Subject

_HEAD = """\
# SENSITIVE: `marginweave init` wrote this draft by a look at the data. Keep it as you keep the data until it is confirmed.
#
# Everything in a configuration must be public knowledge. For each column that says `confirm: true`, compare what the line
# says with what is published (a questionnaire, a code list, a law), correct it, and then either
#   - write  public: "where this is published"  instead of  confirm: true;  privacy.json prints it as an assumption,
#   - or make it private:  {type: category, domain: private},  or for a number  bounds: private, within: [lowest, highest],
#     bins: 10;
#     missing, codes, decimals and the like were read from the data, too: delete them there,
#   - or delete the line: a column that is not named is not released.
# Values that nobody has in this table but that exist belong in the list; bounds are what can be, not what there is.
# A range that you will ask for, such as 65 and older, must end where bins do: write such ends into  bins: [0, 18, 65, 100].
# Until then `marginweave run` and `marginweave plan` refuse this file. Names and order of the columns come from the file's
# header: they are public, too.
# Only a column with `missing` can lack a value: its texts mean "no value". Elsewhere an empty cell, or one that is no value of
# the column, is counted as not as declared, and the release says how many there are.
"""
_CONFIRM = "confirm: true{}"
_ANSWERS = "  # answers for the entries up to the next comment"
_RULES = """\
# Rules that all rows keep, or all but a few. Is a rule so by definition, and not in this table alone? Yes: delete its line that
# says confirm. No: delete its entry, from the dash on. A release says which rules it has, and its records keep them.
"""
_COUNTED = (
    "a choice: counts the rows by the columns below, for a share of the budget. Of units with rows:"
)
_TABLES = """\
# Linked tables. Each entry of `derive` is a suggestion: it makes a column of the source from the rows with one id. Keep it:
# delete its `confirm: true`. Decline it: delete the entry, the column of its name above, and columns here that no other entry
# reads. A table without entries needs `at_most`, or is left out.
"""
_POSSIBLE = """\
# All rows also keep these orders, perhaps by chance, and records need not. One that is so by definition belongs in `structure`,
# below `ordered`:
"""
# For readers of the report, and for catalogues.
_PUBLISH = '# publish: {publisher: "who you are", contact: "whom to ask", license: CC-BY-4.0}\n'
_NOTHING_COUNTED = """\
#
# No column of this table is counted: each one is drafted as an identifier or a constant. Confirmed as it is, the file is still
# refused; give at least one column that is released another type, such as category or number.
"""


def write_draft(draft: ConfigurationDraft) -> str:
    """Return the draft as YAML, one line a column; it is as sensitive as the table until each column is confirmed."""
    lines = [_HEAD]
    if draft.counts_nothing:
        lines.append(_NOTHING_COUNTED)
    lines += [f"# {doubt}\n" for doubt in draft.doubts]
    lines.append(heading(draft.dataset, draft.source, draft.guesses))
    lines.append(_privacy_lines(draft.subject, draft.about_rows))
    lines.append("columns:\n")
    for place, fault in draft.left_out.items():
        lines.append(f"  # column {place} {fault} and is left out\n")
    lines += [column_line(name, column) for name, column in draft.columns.items()]
    for table in draft.tables:
        lines.append(f"  # follow from tables.{table.name}\n")
        lines += [_derived_column_line(each) for each in table.derived]
    lines += _table_lines(draft.tables)
    lines += _rule_lines(draft.relations)
    lines += _possible_lines(draft.possible_orders)
    lines.append(_PUBLISH)
    return "".join(lines)


def heading(dataset: str, source: SourceFile, guesses: Sequence[str] = ()) -> str:
    """Return the lines `dataset` and `source`, which wait for a yes where there are `guesses` on where the table is."""
    return f"dataset: {dataset}\n{''.join(_source_lines(source, guesses))}"


def _source_lines(source: SourceFile, guesses: Sequence[str]) -> list[str]:
    """Return the line `source`, or the lines of its section, which waits for a yes where there are `guesses`."""
    declared = source.model_dump(exclude_none=True)
    if not guesses:
        return [f"source: {yaml_line(declared, below='source')}\n"]
    lines = [*(f"# {guess}\n" for guess in guesses), "source:\n"]
    lines.append(
        "  confirm: true  # does the table begin and end there? Look at the file, and delete this line when it is right\n"
    )
    for key, value in declared.items():
        if (key, value) != ("encoding", "utf-8"):
            lines.append(f"  {key}: {yaml_line(value, below='source')}\n")
    return lines


def _privacy_lines(subject: Subject | None, about_rows: int) -> str:
    """Return the section `privacy` and the line `rows`, which both wait for a yes."""
    looked_at = "unit"
    if subject is None:
        unit = "  unit: row     # one row is one person; where a person has several rows: {column: ID, max_records: 4}\n"
    else:
        column = yaml_line(subject.column)
        if subject.shares:
            looked_at += (
                ", and at max_records: the table proposes it, and something public should say it"
            )
        unit = f"  unit: {{column: {column}, max_records: {subject.most}}}  # {subject.words}\n"
    exponent = delta_exponent(about_rows)
    remark = "well below 1 / (number of people)"
    if exponent > LEAST_DELTA_EXPONENT:
        remark = (
            "at most n^-1.5 for these n rows; where their number is not public, write a smaller one"
        )
    delta = f"1e-{exponent}".ljust(6)
    return (
        "privacy:\n"
        f"  confirm: true  # whose privacy is it? Look at {looked_at}. Then delete this line\n"
        f"{unit}"
        "  epsilon: 1.0  # what this release may spend; the account's cap is set by `marginweave ledger open`\n"
        f"  delta: {delta} # {remark}\n"
        f"rows: {{about: {about_rows}, confirm: true}}  # of the table (of people with join: true), rounded. Is the "
        "size published? Then write rows: that number; otherwise delete the line\n"
    )


def column_line(name: str, draft: ColumnDraft) -> str:
    """Return one column as one line, with `confirm: true` where it waits."""
    declared: dict[str, Any] = {"type": draft.type, **draft.facts}
    if draft.waits:
        declared["confirm"] = True
    elif not draft.is_private:
        declared["public"] = draft.public
    remark = f"  # {draft.remark}" if draft.remark else ""
    return f"  {yaml_line(name)}: {yaml_line(declared)}{remark}\n"


def _derived_column_line(derived: DerivedDraft) -> str:
    """Return the line of a column that follows from a linked table; the question about it is under `derive`."""
    declared = {"type": derived.column.type, **derived.column.facts}
    return f"  {yaml_line(derived.name)}: {yaml_line(declared)}\n"


def _table_lines(tables: Sequence[LinkedDraft]) -> list[str]:
    """Return the section `tables`, in which columns and derived columns wait for a yes; nothing where there are none."""
    lines = [_TABLES, "tables:\n"] if tables else []
    for table in tables:
        lines.append(f"  {yaml_line(table.name)}:\n")
        below = [*(f"# {doubt}\n" for doubt in table.doubts)]
        below += _source_lines(table.source, table.guesses)
        below.append("confirm: true  # does `by` name the id of the unit? Then delete this line\n")
        below.append(f"by: {yaml_line(table.link.by)}\n")
        if table.columns:
            most = table.at_most
            below.append(f"# at_most: {most.most}  # {_COUNTED} {most.words}\n")
            below.append("columns:\n")
            below += [column_line(name, column) for name, column in table.columns.items()]
        below.append("derive:\n")
        for derived in table.derived:
            rule = yaml_line({**derived.rule, "confirm": True})
            below.append(f"  {yaml_line(derived.name)}: {rule}  # {derived.remark}\n")
        lines += [f"    {line}" for line in below]
    return lines


def _rule_lines(relations: Sequence[Relation]) -> list[str]:
    """Return the section `structure` with the relations as rules that wait for a yes; nothing where there are none."""
    lines = [_RULES, "structure:\n"] if relations else []
    key = ""
    for relation in sorted(relations, key=lambda relation: relation.key):
        if relation.key != key:
            key = relation.key
            lines.append(f"  {key}:\n")
        lines.append(f"    # {relation.words}\n")
        for number, entry in enumerate(relation.entries):
            pairs = [f"{yaml_line(name)}: {yaml_line(value)}" for name, value in entry.items()]
            if number == 0:
                pairs.append(_CONFIRM.format(_ANSWERS if len(relation.entries) > 1 else ""))
            lines += [f"    {'  ' if place else '- '}{pair}\n" for place, pair in enumerate(pairs)]
    return lines


def _possible_lines(orders: Sequence[Relation]) -> list[str]:
    """Return comments on the orders that may be chance, each as it is written where it is none."""
    lines = [_POSSIBLE] if orders else []
    for order in orders:
        (entry,) = order.entries
        lines.append(f"#     - columns: {yaml_line(entry['columns'])}  # {order.words}\n")
    return lines
