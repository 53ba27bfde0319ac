"""Writes the draft of a configuration from a look at a table: YAML in which everything read from the data waits for a yes.

What a look at a column suggests to declare about it is private until somebody confirms it. DP: none. What is found goes into
the draft (0600) and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml

from marginweave.base.errors import InputError
from marginweave.base.places import EXAMPLE_PREFIX
from marginweave.configuration.code_lists import NoCodesError, column_words, with_code_lists
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.values import number
from marginweave.configuration.yaml_source import TEXT_KEYS
from marginweave.drafts.draft_columns import ColumnDraft, are_codes, look_at
from marginweave.drafts.draft_unit import privacy_lines, subject_of
from marginweave.sources.source import TableSource, source_columns

_LONGEST_NAME = 256
_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./+-]| (?=[A-Za-z0-9_]))*")
_WORDS = frozenset({"true", "false", "null"})
_NOT_COUNTED = frozenset({"identifier", "constant"})
_RANGES = frozenset({"number", "date", "datetime"})
_BESIDE = "the dictionary has codes for it: declare them as codes, or as missing"
_UNFIT = "most of the cells are none of the dictionary's codes: is it the right dictionary, and the right column?"

_HEAD = """\
# SENSITIVE: `marginweave init` wrote this draft by a look at the data. Keep it as you keep the data until it is confirmed.
#
# Everything in a configuration must be public knowledge. For each column that says `confirm: true`, compare what the line
# says with what is published (a questionnaire, a code list, a law), correct it, and then either
#   - write  public: "where this is published"  instead of  confirm: true;  privacy.json prints it as an assumption,
#   - or make it private:  {type: category, domain: private},  or for a number  bounds: private, within: [lowest, highest];
#     missing, codes, decimals and the like were read from the data, too: delete them there,
#   - or delete the line: a column that is not named is not released.
# Values that nobody has in this table but that exist belong in the list; bounds are what can be, not what there is.
# Until then `marginweave run` and `marginweave plan` refuse this file. Names and order of the columns come from the file's
# header: they are public, too.
# Only a column with `missing` can lack a value: its texts mean "no value". Elsewhere an empty cell, or one that is no value of
# the column, is counted as not as declared, and the release says how many there are.
"""
# For readers of the report, and for catalogues.
_PUBLISH = '# publish: {publisher: "who you are", contact: "whom to ask", license: CC-BY-4.0}\n'
_NOTHING_COUNTED = """\
#
# No column of this table is counted: each one is drafted as an identifier or a constant. Confirmed as it is, the file is still
# refused; give at least one column that is released another type, such as category or number.
"""


def draft_configuration(source: str, form: SourceFile, dictionary: str | None = None, below: Path = Path()) -> str:
    """The draft, as YAML, of a configuration for the table at `source`; `form.file` is what the draft calls it.

    A column that the data `dictionary`, a file below `below`, describes has its codes, which are public, and its label.

    DP: none; the text is as sensitive as the table until each column is confirmed.

    Raises:
        InputError: the source cannot be read, has no rows, or has column names that a configuration cannot have.
    """
    present = source_columns(source, form)
    table = TableSource(source, form).table(_usable_names(present))
    return draft_table(table, dataset_name(source), form, present, dictionary, below)


def draft_table(
    table: pa.Table,
    dataset: str,
    form: SourceFile,
    present: Sequence[str],
    dictionary: str | None = None,
    below: Path = Path(),
) -> str:
    """As `draft_configuration`, for a table in memory; the columns `present` of its source may have no name."""
    subject, named = subject_of(table), _usable_names(present)
    if not table.num_rows:
        raise InputError("source has no rows below its header, and a draft is made by a look at them")
    columns = {name: look_at(name, table.column(name), form.numbers) for name in named}
    if subject is not None:
        columns[subject.column] = ColumnDraft("identifier", remark="it tells the people apart that privacy protects")
    unnamed = [f"  # column {i + 1} has no name and is left out\n" for i, name in enumerate(present) if not name]
    known = {} if dictionary is None else _of_dictionary(columns, table, dictionary, below)
    lines = [column_line(name, *known.get(name, (draft, None))) for name, draft in columns.items()]
    counted = any(draft.type not in _NOT_COUNTED for draft in columns.values())
    head = _HEAD if counted else _HEAD + _NOTHING_COUNTED
    privacy = privacy_lines(subject, "" if subject is None else flow("", subject.column), table.num_rows)
    doubt = "".join(f"# {line}\n" for line in header_doubts(named))
    return "".join([head, doubt, heading(dataset, form), privacy, "columns:\n", *unnamed, *lines, _PUBLISH])


def header_doubts(names: Iterable[str]) -> list[str]:
    """What to say of a header that may be a row of data, a line each; no name is in it, as it may be a value."""
    if all(number(name) is None for name in names):
        return []
    return ["The header has numbers as names. If its line is data, add a line of names above it, and draft again"]


def _of_dictionary(
    columns: Mapping[str, ColumnDraft], table: pa.Table, dictionary: str, below: Path
) -> dict[str, tuple[ColumnDraft, str | None]]:
    """The columns that the dictionary describes, and where those are published whose codes it has.

    Codes that are less than half of what stands in a column are left to the steward.

    Raises:
        InputError: it describes none.
    """
    found: dict[str, tuple[ColumnDraft, str | None]] = {}
    refusal, values = InputError(f"{dictionary} has no codes for any column of the table"), {"file": dictionary}
    for name, draft in columns.items():
        words, raw = column_words(below / dictionary, name), {name: {"type": "category", "values": values}}
        try:
            known = with_code_lists({"columns": raw}, below)["columns"][name]
            codes, titles = known["values"], known.get("titles", {})
        except NoCodesError:
            codes, titles = None, {}
        except InputError as error:
            refusal = error
            codes, titles = None, {}
        if codes and are_codes(table.column(name), codes):
            coded = ColumnDraft("category", {"values": values, **words})
            texts = draft.facts.get("missing", ())
            if missing := [text for text in texts if text not in codes]:  # of the table and not of the dictionary
                coded.facts["missing"] = missing
                found[name] = replace(coded, remark='the codes are published; what means "no value" is not'), None
            else:
                found[name] = coded, f"data dictionary {Path(dictionary).name}"
        elif codes or words:
            special = {code: titles.get(str(code), label) for code, label in draft.facts.get("codes", {}).items()}
            facts = {**draft.facts, **({"codes": special} if special else {}), **words}
            unfit = _BESIDE if draft.type in _RANGES else _UNFIT
            found[name] = ColumnDraft(draft.type, facts, draft.remark if special or not codes else unfit), None
    if not found:
        raise refusal
    return found


def heading(dataset: str, form: SourceFile) -> str:
    """The lines `dataset` and `source`."""
    return f"dataset: {dataset}\nsource: {flow('source', form.model_dump(exclude_none=True))}\n"


def dataset_name(source: str) -> str:
    """A name for the ledger account, after the file."""
    stem = Path(source.removeprefix(EXAMPLE_PREFIX)).name.partition(".")[0].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", stem).strip("-._")[:64] or "dataset"


def column_line(name: str, draft: ColumnDraft, public: str | None = None) -> str:
    """One column as one line: what nobody has called public is marked, a private domain has nothing to confirm."""
    mark: dict[str, Any] = {"confirm": True} if public is None else {"public": public}
    mark = {} if draft.is_private else mark
    remark = f"  # {draft.remark}" if draft.remark else ""
    return f"  {flow('', name)}: {flow('', {'type': draft.type, **draft.facts, **mark})}{remark}\n"


def flow(key: str, value: Any) -> str:
    """A value as it stands on one line of YAML below `key`, such that it is read back as it is."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow('', k)}: {flow(k, v)}" for k, v in value.items()) + "}"
    if isinstance(value, str):
        return _text(value, plain=key in TEXT_KEYS or value[:1].isalpha())
    if value is None:
        return "null"
    if isinstance(value, Sequence):
        return "[" + ", ".join(flow(key, item) for item in value) + "]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _text(text: str, *, plain: bool) -> str:
    if plain and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return str(yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10**9)).strip()


def _usable_names(present: Iterable[str]) -> list[str]:
    """The names of the columns that have one; a fault is named by its place, since a file without a header has data there."""
    names: list[str] = []
    for place, name in enumerate(present, 1):
        if not name:
            continue
        if name in names:
            same = f"columns {names.index(name) + 1} and {place}"
            raise InputError(f"source has the same name for {same}; rename one, or add a header if there is none")
        if len(name) > _LONGEST_NAME or name != name.strip() or not name.isprintable():
            raise InputError(
                f"source has a name for column {place} that is too long, begins or ends with a space, or cannot be printed"
            )
        names.append(name)
    if not names:
        raise InputError("source has no column with a name")
    return names
