"""Proposes a configuration by the facts of a table and, where there is one, its data dictionary.

The draft is an object: `draft_text` writes it as YAML. What is read from the data is private until somebody confirms it.
DP: none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marginweave.base.errors import InputError, printable
from marginweave.configuration.code_lists import NoCodesError, column_words, with_code_lists
from marginweave.configuration.execution import SourceFile
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.drafted_columns import propose_column
from marginweave.drafts.find_relations import find_relations, with_changes
from marginweave.drafts.found_totals import find_total_rows
from marginweave.drafts.linked_draft import LinkedDraft
from marginweave.drafts.private_costs import delta_exponent, with_costs
from marginweave.drafts.relations import Relation
from marginweave.drafts.subjects import Subject, near_on_grid
from marginweave.drafts.table_facts import TableFacts, header_doubts

_SHOWN = 5
_NOT_COUNTED = frozenset({"identifier", "constant"})
_RANGES = frozenset({"number", "date", "datetime"})
_UNDECLARED_CODES = "the dictionary has codes for it: declare them as codes, or as missing"
_TOTALS = "the rows with {} add up the other rows, and would count people twice: remove them from the table, and draft again"
_UNFIT = "most of its values are none of the dictionary's codes: is it the right dictionary, and the right column?"
_UNPUBLISHED_GAPS = 'the codes are published; what means "no value" is not'
_WITHOUT_TEXT = (
    "its type is neither text nor number nor date: it is dropped; convert it, and draft again"
)
_SUBJECT = "it tells the people apart that privacy protects"


@dataclass(frozen=True, kw_only=True)
class ConfigurationDraft:
    """A configuration that waits for its steward to confirm or correct each line."""

    dataset: str
    source: SourceFile
    subject: Subject | None
    """The column that tells people apart; None where a row is proposed as the unit of privacy."""
    rows: int
    """Number of rows: private, and for the terminal of the person who drafts alone."""
    about_rows: int
    """Number of rows, rounded to an order of size."""
    columns: Mapping[str, ColumnDraft]
    left_out: Mapping[int, str]
    """Places of the columns without a usable name, from 1 on, and what is wrong with it."""
    counts_nothing: bool
    """Every column looks like an identifier or a constant."""
    doubts: Sequence[str]
    """Lines of warning about the header."""
    relations: Sequence[Relation] = ()
    """Rules between columns that the rows keep, or all but a few."""
    possible_orders: Sequence[Relation] = ()
    """Orders that all rows keep, perhaps by chance: the draft names them, and asks nothing."""
    total_rows: Sequence[str] = ()
    """Columns of which one value is that of rows that add up all others."""
    guesses: Sequence[str] = ()
    """A sentence on each key of the source that says where the table is in the file, and was guessed."""
    tables: Sequence[LinkedDraft] = ()
    """Linked tables."""

    @property
    def question_count(self) -> int:
        """Number of facts that wait for a yes: the source, the unit of privacy, the number of rows, columns, and relations."""
        columns = sum(column.waits for column in self.columns.values())
        linked = sum(table.question_count for table in self.tables)
        return bool(self.guesses) + 2 + columns + len(self.relations) + linked

    @property
    def totals_advice(self) -> str:
        """What to say of rows that add up others, without the value that tells them apart; empty where there are none."""
        if not self.total_rows:
            return ""
        columns = ", ".join(f"`{printable(name)}`" for name in self.total_rows)
        return (
            f"Some rows look like totals of the others, by one value of {columns}: they would count people twice. Remove them "
            "from the table, and draft again (the draft names the value)"
        )

    @property
    def names_advice(self) -> str:
        """What to say of the columns that are left out by their names; empty where none is."""
        if not self.left_out:
            return ""
        columns = [f"column {place} {fault}" for place, fault in self.left_out.items()]
        shown = "; ".join(columns[:_SHOWN]) + ("; …" if len(columns) > _SHOWN else "")
        place = next(iter(self.left_out))
        return (
            f"Left out by their names: {shown}. To keep such a column, name it in the file and draft again, or name it in the "
            f"draft, source: {{file: …, rename: {{column {place}: NAME}}}}, and add it to `columns`"
        )


@dataclass(frozen=True)
class DataDictionary:
    """A data dictionary, by its file as a configuration in the folder `below` names it."""

    file: str
    below: Path = Path()

    @property
    def publication(self) -> str:
        """Place where the codes are published, as a configuration says it."""
        return f"data dictionary {Path(self.file).name}"

    def words(self, column: str) -> dict[str, Any]:
        """Return the label and the description of a column, as far as the dictionary has them."""
        return column_words(self.below / self.file, column)

    def codes(self, column: str) -> tuple[Sequence[str], Mapping[str, str]]:
        """Return the codes of a column and their titles; nothing where the dictionary has none.

        Raises:
            InputError: the file cannot be read, or its codes of this column are faulty.
        """
        declared = {"columns": {column: {"type": "category", "values": {"file": self.file}}}}
        try:
            listed = with_code_lists(declared, self.below)["columns"][column]
        except NoCodesError:
            return (), {}
        return listed["values"], listed.get("titles", {})


def propose_configuration(
    dataset: str, source: SourceFile, facts: TableFacts, dictionary: DataDictionary | None = None
) -> ConfigurationDraft:
    """Return the draft of a configuration for a table.

    Args:
        dataset: Name of the ledger account.
        source: The source as the draft names it, and how it is written.
        facts: The table and its header.
        dictionary: Gives the columns that it describes their codes, which are public, and their labels.

    Raises:
        InputError: the table has no rows, or column names that a configuration cannot have, or the dictionary describes no
            column.
    """
    names = facts.names
    subject = facts.subject
    if not facts.rows:
        raise InputError(
            "source has no rows below its header, and a draft is made by a look at them"
        )
    columns: dict[str, ColumnDraft] = {}
    for name in names:
        if subject is not None and name == subject.column:
            columns[name] = ColumnDraft("identifier", remark=_SUBJECT)
        elif name in facts.without_text:
            columns[name] = ColumnDraft("identifier", remark=_WITHOUT_TEXT)
        else:
            columns[name] = propose_column(facts.column(name), source.numbers)
    if dictionary is not None:
        columns |= _describe_columns(columns, facts, dictionary)
    about_rows = near_on_grid(facts.rows)
    records = 1 if subject is None else subject.most
    columns = with_costs(columns, records, 10.0 ** -delta_exponent(about_rows))
    listed = _with_codes(columns, dictionary)
    found = find_relations(facts.table, listed, source.numbers)
    total_rows = find_total_rows(facts.table, listed, source.numbers)
    return ConfigurationDraft(
        dataset=dataset,
        source=source,
        subject=subject,
        rows=facts.rows,
        about_rows=about_rows,
        columns=_with_totals(with_changes(columns, found.asked), total_rows),
        left_out=facts.left_out,
        counts_nothing=all(draft.type in _NOT_COUNTED for draft in columns.values()),
        doubts=header_doubts(names),
        relations=found.asked,
        possible_orders=found.possible_orders,
        total_rows=tuple(total_rows),
    )


def _with_totals(
    columns: Mapping[str, ColumnDraft], total_rows: Mapping[str, str]
) -> dict[str, ColumnDraft]:
    """Return the drafts of the columns, each with a remark on the value whose rows add up others."""
    drafts = dict(columns)
    for name, value in total_rows.items():
        remark = _TOTALS.format(printable(value))
        drafts[name] = replace(
            drafts[name], remark="; ".join(filter(None, (remark, drafts[name].remark)))
        )
    return drafts


def _with_codes(
    columns: Mapping[str, ColumnDraft], dictionary: DataDictionary | None
) -> dict[str, ColumnDraft]:
    """Return the drafts with the codes of the dictionary in place of the name of its file."""
    listed = dict(columns)
    for name, draft in columns.items():
        if dictionary is not None and isinstance(draft.facts.get("values"), Mapping):
            codes, _ = dictionary.codes(name)
            listed[name] = replace(draft, facts={**draft.facts, "values": list(codes)})
    return listed


def _describe_columns(
    columns: Mapping[str, ColumnDraft], facts: TableFacts, dictionary: DataDictionary
) -> dict[str, ColumnDraft]:
    """Return the drafts of the columns that the dictionary describes.

    The column that tells the subjects apart stays an identifier, as `privacy.unit` requires, and gets only words.

    Raises:
        InputError: it describes none: the last error of a column, if there was one. Otherwise errors of columns are dropped.
    """
    subject = None if facts.subject is None else facts.subject.column
    described: dict[str, ColumnDraft] = {}
    refusal = InputError(f"{dictionary.file} has no codes for any column of the table")
    for name, draft in columns.items():
        words = dictionary.words(name)
        codes: Sequence[str] = ()
        titles: Mapping[str, str] = {}
        try:
            codes, titles = dictionary.codes(name)
        except InputError as error:
            refusal = error
        if name == subject and (codes or words):
            described[name] = replace(draft, facts={**draft.facts, **words})
        elif codes and name not in facts.without_text and facts.column(name).are_codes(codes):
            described[name] = _coded_column(draft, codes, words, dictionary)
        elif codes or words:
            described[name] = _labeled_column(draft, codes, titles, words)
    if not described:
        raise refusal
    return described


def _coded_column(
    draft: ColumnDraft, codes: Sequence[str], words: Mapping[str, Any], dictionary: DataDictionary
) -> ColumnDraft:
    """Return the draft of a category with the dictionary's codes; texts for "no value" that it lacks are to be confirmed."""
    declared = {"values": {"file": dictionary.file}, **words}
    unpublished = [text for text in draft.facts.get("missing", ()) if text not in codes]
    if unpublished:
        return ColumnDraft("category", {**declared, "missing": unpublished}, _UNPUBLISHED_GAPS)
    return ColumnDraft("category", declared, public=dictionary.publication)


def _labeled_column(
    draft: ColumnDraft, codes: Sequence[str], titles: Mapping[str, str], words: Mapping[str, Any]
) -> ColumnDraft:
    """Return the draft of a column with the dictionary's words and titles.

    The dictionary has no codes for it, or fewer than half of its distinct values are among these. Then the
    steward declares the codes.
    """
    declared = dict(draft.facts)
    special_codes = draft.facts.get("codes", {})
    if special_codes:
        declared["codes"] = {
            code: titles.get(str(code), label) for code, label in special_codes.items()
        }
    declared |= words
    if special_codes or not codes:
        return replace(draft, facts=declared)
    return replace(
        draft, facts=declared, remark=_UNDECLARED_CODES if draft.type in _RANGES else _UNFIT
    )
