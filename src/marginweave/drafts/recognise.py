"""Recognises how a table is written: encoding, delimiter, and the marks in its numbers.

DP: none. What is found goes into the draft, and is shown to the steward: it is the form of the file, not its values.
"""

from __future__ import annotations

import pyarrow as pa

from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import is_text
from marginweave.base.errors import InputError
from marginweave.base.text_files import DELIMITERS, recognise_delimiter
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.number_texts import NumberForm
from marginweave.drafts.number_spelling import FORMS
from marginweave.drafts.recognise_layout import MOST_LINES, recognise_layout
from marginweave.drafts.table_facts import GAPS
from marginweave.sources.kinds import check_kind, delimiter_of, kind_of
from marginweave.sources.parts import parts_of, reading
from marginweave.sources.source import TableSource, source_columns
from marginweave.sources.text_source import encoding_of, sample_of

_COMMA_THOUSANDS = NumberForm("dot", "comma")


def recognise(source: str, form: SourceFile, *, encoding: bool) -> SourceFile:
    """Return the form of the source: delimiter, layout and marks of numbers, and the `encoding` if wanted.

    The delimiter and the sheet are recognised where `form` has none.

    Raises:
        InputError: a kind of file that is not supported, a text in no encoding that is known, or what `TableSource` refuses.
    """
    if kind_of(source, form) == "text":
        with reading(source):
            form = _recognise_text(source, form, encoding=encoding)
    check_kind(source, form)
    if kind_of(source, form) == "example":
        return form
    return _recognise_numbers(source, recognise_layout(source, form))


def describe(source: str, form: SourceFile) -> str:
    """Return in words how the source is read."""
    words = []
    delimiter = delimiter_of(source, form)
    for name, mark in DELIMITERS.items():
        if mark == delimiter:
            words += [f"encoding {form.encoding}", f"{name} between fields"]
    words.append(f"decimal {form.decimal}")
    if form.thousands is not None:
        words.append(f"{form.thousands} between thousands")
    return ", ".join(words)


def _recognise_text(source: str, form: SourceFile, *, encoding: bool) -> SourceFile:
    part = parts_of(source)[0]
    if encoding:
        recognised = encoding_of(source, part, form)
        if recognised is None:
            raise InputError(
                f"source ({source}) is no text in UTF-8, UTF-16 or windows-1252; save it in one of these, or say which: "
                "marginweave init --encoding NAME"
            )
        form = form.model_copy(update={"encoding": recognised})
    try:
        text, is_complete = sample_of(source, part, form)
    except UnicodeError:
        raise InputError(f"source ({source}) is not written in {form.encoding}") from None
    likely = recognise_delimiter(text, is_complete=is_complete) or recognise_delimiter(
        text, is_complete=is_complete, most_beside=MOST_LINES
    )
    if (
        form.delimiter is not None
        or likely is None
        or DELIMITERS[likely] == delimiter_of(source, form)
    ):
        return form
    return form.model_copy(update={"delimiter": likely})


def _recognise_numbers(source: str, form: SourceFile) -> SourceFile:
    """Return the form of numbers by which the most columns are numbers, but for one text each.

    Of two such forms it is the one by which fewer texts are no numbers, then the more usual.
    """
    header = source_columns(source, form)
    # The draft refuses a name that the header has twice.
    names = [name for name in header if name and header.count(name) == 1]
    if not names:
        return form
    forms = FORMS
    if delimiter_of(source, form) != ",":
        forms = (*(numbers for numbers in FORMS if numbers != _COMMA_THOUSANDS), _COMMA_THOUSANDS)
    candidates = {(name, numbers): set[str]() for name in names for numbers in forms}
    table_source = TableSource(source, form)
    without_text = table_source.without_text(names)
    names = [name for name in names if name not in without_text]
    for table in table_source.tables(names):
        for name in names:
            _drop_misfits(candidates, name, _texts(table.column(name)))
    unread: dict[NumberForm, list[int]] = {numbers: [] for numbers in forms}
    for (_, numbers), texts in candidates.items():
        unread[numbers].append(len(texts))
    best = max(forms, key=lambda numbers: (len(unread[numbers]), -sum(unread[numbers])))
    return form.model_copy(update={"decimal": best.decimal, "thousands": best.thousands})


def _drop_misfits(
    candidates: dict[tuple[str, NumberForm], set[str]], name: str, texts: pa.Array
) -> None:
    """Note the texts of a column that are no numbers in each form; drop the forms in which they are two or more."""
    forms = [numbers for column, numbers in candidates if column == name]
    for numbers in forms:
        fits = pc.match_substring_regex(texts, f"^(?:{numbers.pattern})$")
        misfits = texts.filter(pc.invert(fits))
        unread = candidates[name, numbers]
        unread |= set(misfits[:2].to_pylist())
        if len(unread) > 1:
            del candidates[name, numbers]


def _texts(cells: pa.ChunkedArray) -> pa.Array:
    """Return the distinct trimmed texts that are values; none for a column whose type is numbers."""
    if not is_text(cells.type):
        return pa.array([], pa.string())
    values = pc.unique(cells.cast(pa.string()))
    texts = pc.unique(pc.utf8_trim_whitespace(pc.fill_null(values, "")))
    gaps = pa.array(sorted(GAPS), pa.string())
    are_gaps = pc.is_in(pc.utf8_lower(texts), value_set=gaps)
    return texts.filter(pc.invert(are_gaps))
