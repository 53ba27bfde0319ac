"""Writes the draft of a configuration from a look at a table: YAML in which everything read from the data waits for a yes.

What a look at a column suggests to declare about it is private until somebody confirms it. DP: none. What is found goes into
the draft (0600) and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from pydantic import ValidationError

from marginweave.schemas.configuration.columns import NumberColumn
from marginweave.schemas.configuration.columns.periods import DAY, moment_of, parse_instant
from marginweave.schemas.configuration.execution import SourceFile
from marginweave.schemas.configuration.number_texts import USUAL, NumberForm
from marginweave.schemas.configuration.values import number
from marginweave.schemas.configuration.yaml_source import TEXT_KEYS
from marginweave.schemas.errors import InputError
from marginweave.schemas.places import EXAMPLE_PREFIX
from marginweave.tasks.arrow import compute as pc
from marginweave.tasks.validate.recognise import CODES, GAPS
from marginweave.tasks.validate.source import TableSource, source_columns

MOST_VALUES = 50  # a column with more distinct values is drafted with a private domain
_FEW_CODES = 12  # so few distinct numbers are taken for codes
_BINS = 10
_EXACT = 2**53
_MOST_DECIMALS = 9
_BOOLEANS = frozenset({frozenset(pair) for pair in (("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n"))})
# ISO 8601 goes first and needs no format.
FORMATS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d.%m.%Y %H:%M")
_FEW_YEARS = 2
_ALL_DIFFERENT = "every cell is different; if it tells people apart, make it {type: identifier}"
_SEPARATORS = (";", "|", ",")
_IDENTIFIER = re.compile(r"(?i)(^|[^a-z])(u?id|uuid|guid|key|ssn|number|nr|name|e?mail|phone)([^a-z]|$)|[a-z](ID|Id)$")
# A UUID or an address of e-mail.
_IDENTIFIER_FORM = re.compile(r"(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[^@\s]+@[^@\s]+\.[^@\s]+")


@dataclass(frozen=True)
class ColumnDraft:
    """The kind of a column, what to declare about it, and a remark for whoever confirms it."""

    type: str
    facts: dict[str, Any] = field(default_factory=dict)
    remark: str = ""

    @property
    def is_private(self) -> bool:
        """Whether nothing in it was read from the data but that it is no short list of values."""
        return self.facts.get("domain") == "private"


def look_at(name: str, values: pa.ChunkedArray, numbers: NumberForm = USUAL) -> ColumnDraft:
    """The draft for one column: its kind, and the facts that its cells show; `numbers` says how they are written.

    Integers beyond 2^53, dates in several formats and texts among numbers make a category: nothing is bent to fit.
    """
    texts, records = _distinct(values)
    gaps = [text for text in texts if text.casefold() in GAPS]
    present = [text for text in texts if text.casefold() not in GAPS]
    missing = {"missing": sorted(gaps)} if gaps else {}
    if not present:
        return ColumnDraft("category", {"domain": "private"}, "no value was seen")
    draft = (
        _boolean(present, missing)
        or _date(present, missing)
        or _identifier(name, present, records)
        or _number(name, [numbers.plain(text) or text for text in present], missing)
        or _set(present, missing)
        or _category(present, missing, records)
    )
    return draft if len(present) > 1 or gaps else ColumnDraft("constant", {"value": present[0]})


def _distinct(values: pa.ChunkedArray) -> tuple[list[str], int]:
    """Distinct trimmed texts, in order; and how many cells hold one that is not empty."""
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_finite(values), values, None)
    cells = pc.utf8_trim_whitespace(pc.fill_null(pc.cast(values, pa.string()), ""))
    filled = len(cells) - (pc.sum(pc.equal(cells, "")).as_py() or 0)
    return sorted(pc.unique(cells).to_pylist()), filled


def _boolean(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    return ColumnDraft("boolean", missing) if frozenset(map(str.casefold, present)) in _BOOLEANS else None


def _date(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """One format for all; bounds are whole years, bins are years, or months where there are few years."""
    for layout in (None, *FORMATS):
        found = [parse_instant(text, layout) for text in present]
        instants = [instant for instant in found if instant is not None]
        if len(instants) < len(found):
            continue
        low, high = moment_of(min(instants)).year, moment_of(max(instants)).year
        facts = {
            "bounds": [f"{low:04d}-01-01", f"{high:04d}-12-31"],
            "bins": "year" if high - low > _FEW_YEARS else "month",
            **({"format": layout} if layout else {}),
            **missing,
        }
        either = layout == FORMATS[0] and all(parse_instant(text, FORMATS[1]) is not None for text in present)
        kind = "date" if all(instant % DAY == 0 for instant in instants) else "datetime"
        return ColumnDraft(kind, facts, "day before month, or month before day?" if either else "")
    return None


def _identifier(name: str, present: Sequence[str], records: int) -> ColumnDraft | None:
    """Every cell another text, and many of them: dropped only where the name or the form of all says what it is."""
    if len(present) < records or records <= MOST_VALUES:
        return None
    if _IDENTIFIER.search(name) or all(_IDENTIFIER_FORM.fullmatch(text) for text in present):
        return ColumnDraft("identifier", remark="every cell is different; it is dropped")
    return None


def _number(name: str, present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """Bounds are rounded outward; a single text among many numbers, such as N, is taken for "no value"."""
    if CODES.search(name):
        return None
    numbers = [value for text in present if (value := number(text)) is not None]
    odd = [text for text in present if number(text) is None]
    if len(odd) > 1 or len(set(numbers)) <= _FEW_CODES or any(re.match(r"[+-]?0[0-9]", text) for text in present):
        return None
    decimals = max(max(0, -int(value.normalize().as_tuple().exponent)) for value in numbers)
    least, most = min(numbers), max(numbers)
    if max(abs(least), abs(most)) >= _EXACT or most - least == 0:  # apart by less than decimals are computed with
        return None
    low, high = rounded_outward(least, most)
    missing = {"missing": [*missing.get("missing", []), *odd]} if odd else missing
    shown = {"decimals": decimals} if decimals <= _MOST_DECIMALS else {}
    facts = {"bounds": [plain(low), plain(high)], "bins": _BINS, **shown, **missing}
    try:
        NumberColumn.model_validate({"type": "number", **facts})
    except ValidationError:  # numbers can lie closer than doubles tell apart
        return None
    return ColumnDraft("number", facts, "a text stands among the numbers; is it no value?" if odd else "")


def rounded_outward(low: Decimal, high: Decimal) -> tuple[Decimal, Decimal]:
    """The multiples of the largest power of ten within half of the range that enclose it."""
    step = Decimal(10) ** math.floor(((high - low) / 2).log10())
    return math.floor(low / step) * step, math.ceil(high / step) * step


def plain(value: Decimal | float) -> int | float:
    """A finite number as one would write it: 5 and not 5.0."""
    return int(value) if value == int(value) else float(value)


def _set(present: Sequence[str], missing: dict[str, Any]) -> ColumnDraft | None:
    """Cells of several values: few different ones, each of which stands in several different cells."""
    for separator in _SEPARATORS:
        cells = [{part.strip() for part in text.split(separator)} - {""} for text in present]
        most, parts = max(map(len, cells)), set().union(*cells)
        # A comma also stands within names: it must save a long list to be taken for a separator.
        enough = MOST_VALUES if separator == "," else 2
        if most > 1 and len(parts) < len(present) and len(present) > enough and len(parts) <= MOST_VALUES:
            facts = {"separator": separator, "values": _ordered(sorted(parts)), "max_values": most, **missing}
            return ColumnDraft("set", facts)
    return None


def _category(present: Sequence[str], missing: dict[str, Any], records: int) -> ColumnDraft:
    if len(present) > MOST_VALUES:
        numbers = sum(number(text) is not None for text in present)
        different = _ALL_DIFFERENT if len(present) == records else ""
        remark = "numbers and texts are mixed" if 0 < numbers < len(present) else different
        return ColumnDraft("category", {"domain": "private"}, remark)
    return ColumnDraft("category", {"values": _ordered(present), **missing})


def _ordered(texts: Sequence[str]) -> list[str]:
    """Numbers by size and before texts; of two spellings of one number the first."""
    seen: dict[Any, str] = {}
    for text in texts:
        value = number(text)
        seen.setdefault(text if value is None or re.match(r"[+-]?0[0-9]|\+", text) else value, text)
    return sorted(seen.values(), key=lambda text: (number(text) is None, number(text) or Decimal(0), text))


_LONGEST_NAME = 256
_PLAIN = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./+-]| (?=[A-Za-z0-9_]))*")
_WORDS = frozenset({"true", "false", "null"})
_NOT_COUNTED = frozenset({"identifier", "constant"})

_HEAD = """\
# SENSITIVE: `marginweave init` wrote this draft by a look at the data. Keep it as you keep the data until it is confirmed.
#
# Everything in a configuration must be public knowledge. For each column that says `confirm: true`, compare what the line
# says with what is published (a questionnaire, a code list, a law), correct it, and then either
#   - write  public: "where this is published"  instead of  confirm: true;  privacy.json prints it as an assumption,
#   - or make it private:  {type: category, domain: private},  or for a number  bounds: private, within: [lowest, highest];
#     missing, decimals and the like were read from the data, too: delete them there,
#   - or delete the line: a column that is not named is not released.
# Values that nobody has in this table but that exist belong into the list; bounds are what can be, not what there is.
# Until then `marginweave run` and `marginweave plan` refuse this file. Names and order of the columns come from the file's
# header: they are public, too.
# Only a column with `missing` can lack a value: its texts mean "no value". Elsewhere an empty cell, or one that is no value of
# the column, is replaced by a draw.
"""
_NOTHING_COUNTED = """\
#
# No column of this table is counted: each one is drafted as an identifier or a constant. Confirmed as it is, the file is still
# refused; give at least one column that is released another type, such as category or number.
"""
_PRIVACY = """\
privacy:
  epsilon: 1.0  # what this release may spend; the account's cap is set by `marginweave ledger open`
  delta: 1e-6   # well below 1 / (number of people)
  unit: row     # whose privacy: one row; where a person has several rows {column: ID, max_records: 4}
"""


def draft_configuration(source: str, form: SourceFile) -> str:
    """The draft, as YAML, of a configuration for the table at `source`; `form.file` is what the draft calls it.

    DP: none; the text is as sensitive as the table until each column is confirmed.

    Raises:
        InputError: the source cannot be read, or has column names that a configuration cannot have.
    """
    present = source_columns(source, form)
    named = _usable_names(present)
    table = TableSource(source, form).table(named)
    columns = {name: look_at(name, table.column(name), form.numbers) for name in named}
    unnamed = [f"  # column {i + 1} has no name and is left out\n" for i, name in enumerate(present) if not name]
    lines = [column_line(name, draft) for name, draft in columns.items()]
    counted = any(draft.type not in _NOT_COUNTED for draft in columns.values())
    head = _HEAD if counted else _HEAD + _NOTHING_COUNTED
    return "".join([head, heading(dataset_name(source), form), _PRIVACY, "columns:\n", *unnamed, *lines])


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
            raise InputError(f"source has the same name for columns {names.index(name) + 1} and {place}; rename one")
        if len(name) > _LONGEST_NAME or name != name.strip() or not name.isprintable():
            raise InputError(
                f"source has a name for column {place} that is too long, begins or ends with a space, or cannot be printed"
            )
        names.append(name)
    if not names:
        raise InputError("source has no column with a name")
    return names
