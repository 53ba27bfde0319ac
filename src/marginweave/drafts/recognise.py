"""How a table is written, recognised for a draft: encoding, delimiter, and the marks in its numbers.

DP: none. What is found goes into the draft, and is told to whoever drafts: it is the form of the file, not its values.
"""

from __future__ import annotations

import re

import pyarrow as pa

from marginweave.base.arrow import compute as pc
from marginweave.base.arrow import is_text
from marginweave.base.errors import InputError
from marginweave.base.text_files import DELIMITERS, recognise_delimiter
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.number_texts import NumberForm
from marginweave.sources.kinds import check_kind, delimiter_of, kind_of
from marginweave.sources.parts import parts_of, reading
from marginweave.sources.source import TableSource, source_columns
from marginweave.sources.text_source import encoding_of, sample_of

GAPS = frozenset(("", "na", "n/a", "#n/a", "n.a.", "nan", "null", "?", ".", "-", "--", "k.a.", "k. a."))
# Whole numbers under such a name are codes: ten bins of them would mean nothing.
CODES = re.compile(
    r"(?i)(^|[^a-z])(codes?|nace|isic|naics|isco|icd|industry|occupation|zip|postcode|plz|fips)([^a-z]|$)"
)
_FORMS = (
    *(NumberForm("dot"), NumberForm("dot", "comma"), NumberForm("comma"), NumberForm("comma", "dot")),
    *(NumberForm(decimal, mark) for mark in ("space", "apostrophe") for decimal in ("dot", "comma")),
)


def recognise(source: str, form: SourceFile, *, encoding: bool) -> SourceFile:
    """The form in which the source is written: the delimiter if it is not given, marks of numbers, and the `encoding` if asked.

    Raises:
        InputError: a kind of file that is not supported, a text in no encoding that is known, or what `TableSource` refuses.
    """
    if kind_of(source, form) == "text":
        with reading(source):
            form = _recognise_text(source, form, encoding=encoding)
    check_kind(source, form)
    return form if kind_of(source, form) == "example" else _recognise_numbers(source, form)


def describe(source: str, form: SourceFile) -> str:
    """How the source is read, for a person."""
    between = next((name for name, mark in DELIMITERS.items() if mark == delimiter_of(source, form)), None)
    text = [] if between is None else [f"encoding {form.encoding}", f"{between} between fields"]
    thousands = [] if form.thousands is None else [f"{form.thousands} between thousands"]
    return ", ".join([*text, f"decimal {form.decimal}", *thousands])


def _recognise_text(source: str, form: SourceFile, *, encoding: bool) -> SourceFile:
    part = parts_of(source)[0]
    if encoding:
        found = encoding_of(source, part, form)
        if found is None:
            raise InputError(
                f"source ({source}) is no text in UTF-8, UTF-16 or windows-1252; another one needs --encoding"
            )
        form = form.model_copy(update={"encoding": found})
    try:
        text, whole = sample_of(source, part, form)
    except UnicodeError:
        raise InputError(f"source ({source}) is not written in {form.encoding}") from None
    likely = recognise_delimiter(text, whole=whole)
    if form.delimiter is None and likely is not None and DELIMITERS[likely] != delimiter_of(source, form):
        form = form.model_copy(update={"delimiter": likely})
    return form


def _recognise_numbers(source: str, form: SourceFile) -> SourceFile:
    """The marks with which the most columns are numbers, but for one text each, and the fewest texts are none."""
    present = source_columns(source, form)
    # the draft refuses a name that stands twice
    names = [name for name in present if name and present.count(name) == 1]
    if not names:
        return form
    forms = _FORMS if delimiter_of(source, form) == "," else (_FORMS[0], *_FORMS[2:], _FORMS[1])
    odd: dict[tuple[str, NumberForm], set[str]] = {(name, numbers): set() for name in names for numbers in forms}
    for table in TableSource(source, form).tables(names):
        for name in names:
            texts = _texts(table.column(name))
            for numbers in forms:
                if (name, numbers) in odd:
                    fits = pc.match_substring_regex(texts, f"^(?:{numbers.pattern})$")
                    odd[name, numbers] |= set(texts.filter(pc.invert(fits))[:2].to_pylist())
                    if len(odd[name, numbers]) > 1:
                        del odd[name, numbers]
    left = {numbers: [texts for (_, of), texts in odd.items() if of == numbers] for numbers in forms}
    found = max(forms, key=lambda numbers: (len(left[numbers]), -sum(map(len, left[numbers]))))
    return form.model_copy(update={"decimal": found.decimal, "thousands": found.thousands})


def _texts(cells: pa.ChunkedArray) -> pa.Array:
    """Distinct trimmed texts that are values; none of a column that has numbers of its own."""
    if not is_text(cells.type):
        return pa.array([], pa.string())
    values = pc.unique(cells.cast(pa.string()))
    texts = pc.unique(pc.utf8_trim_whitespace(pc.fill_null(values, "")))
    return texts.filter(pc.invert(pc.is_in(pc.utf8_lower(texts), value_set=pa.array(sorted(GAPS), pa.string()))))
