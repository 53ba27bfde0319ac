"""Tables as people have them, made from a seed: gaps, spellings, codes, dates of many forms, ids, odd names and odd files."""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

Cells = list[str]
Make = Callable[[random.Random, int], Cells]
GAPS = ("", "NA", "n/a", "-", "?", ".", "NULL", "none", "unknown", "k.A.")
NAMES = (
    "sex", "age", "id", "Patient ID", "Größe (cm)", "no", "yes", "null", "1", "confirm", "public", "type", "rows", "columns",
    "a: b", "c, d", "# x", "'quoted'", '"q"', "{x}", "[y]", "a.b", "x__y", "Ж", "年齢", "🙂", "true", "~", "- z", "*", "&a",
    "%", "e\u0301", "count", "missing", "structure.sum", "total", "date", "ZIP", "icd_code", "hour", "month",
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")


def _some(rng: random.Random, rows: int, values: Sequence[str]) -> Cells:
    return [rng.choice(values) for _ in range(rows)]


def _numbers(rng: random.Random, rows: int, write: Callable[[float], str]) -> Cells:
    scale = 10 ** rng.randint(0, 5)
    return [write(rng.lognormvariate(0, 1) * scale * rng.choice((1, 1, -1))) for _ in range(rows)]


def _dates(rng: random.Random, rows: int, forms: Sequence[str]) -> Cells:
    first, width = date(rng.choice((1, 1900, 1969, 2019)), 1, 1), rng.choice((1, 20, 4000))
    days = [first + timedelta(days=rng.randrange(width)) for _ in range(rows)]
    return [day.strftime(rng.choice(forms)) for day in days]


def _stamps(rng: random.Random, rows: int) -> Cells:
    end = rng.choice(("", "Z", "+02:00", ".125", ".5+00:00"))
    return [f"{day}T{rng.randrange(24):02d}:15:07{end}" for day in _dates(rng, rows, ["%Y-%m-%d"])]


def _codes(rng: random.Random, rows: int) -> Cells:
    number = rng.choice((5, 60, 400))
    codes = [
        f"{rng.choice('ABCIJ')}{rng.randrange(100):02d}.{rng.randrange(10)}" for _ in range(number)
    ]
    return rng.choices(codes, [1 / (place + 1) for place in range(number)], k=rows)


def _ids(rng: random.Random, rows: int) -> Cells:
    return [f"{rng.getrandbits(64):016x}" for _ in range(rows)]


def _persons(rng: random.Random, rows: int) -> Cells:
    return [str(1000 + rng.randrange(max(1, rows // 3))) for _ in range(rows)]


def _sets(rng: random.Random, rows: int) -> Cells:
    mark = rng.choice((";", "|", ", "))
    return [mark.join(rng.sample("abcdef", rng.randint(0, 4))) for _ in range(rows)]


def _words(rng: random.Random, rows: int) -> Cells:
    return [
        " ".join(_some(rng, rng.randint(6, 30), ("pain", "left", "knee,", '"so"', "fell\nagain")))
        for _ in range(rows)
    ]


def _of_types(rng: random.Random, rows: int) -> Cells:
    return [
        rng.choice((str(rng.randrange(90)), f"x{rng.randrange(9)}", "12,5", "2019-01-02"))
        for _ in range(rows)
    ]


KINDS: Mapping[str, Make] = {
    "empty": lambda _, rows: [""] * rows,
    "one text of gaps": lambda rng, rows: [rng.choice(GAPS)] * rows,
    "only gaps": lambda rng, rows: _some(rng, rows, GAPS),
    "constant": lambda rng, rows: [rng.choice(("x", "0", "2019-01-01", "1,5", "yes"))] * rows,
    "few": lambda rng, rows: _some(rng, rows, ("north", "south", "south", "west")),
    "two": lambda rng, rows: _some(rng, rows, rng.choice((("yes", "no"), ("0", "1"), ("T", "F"), ("ja", "nein")))),
    "spellings": lambda rng, rows: _some(rng, rows, ("f", "F", "female", "Female", "m", "M ", "male", " MALE")),
    "unicode": lambda rng, rows: _some(rng, rows, ("é", "e\u0301", "ß", "Ω", "年", "🙂", "\u200b", "a\u00a0b", "\u202ex")),
    "quotes": lambda rng, rows: _some(rng, rows, ('a "b"', "c,d", "e;f", "g\th", "i\nj", "'k'", "#l", "{m: n}", "- o", "~")),
    "words of YAML": lambda rng, rows: _some(rng, rows, ("no", "N", "1_000", "1e3", "0x1F", "012", "12:30", "=1+1", "null")),
    "integers": lambda rng, rows: _numbers(rng, rows, lambda x: str(round(x))),
    "decimals": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:.2f}"),
    "floats": lambda rng, rows: _numbers(rng, rows, repr),
    "exponents": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:.3e}"),
    "thousands": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:,.2f}"),
    "decimal commas": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:.2f}".replace(".", ",")),
    "currency": lambda rng, rows: _numbers(rng, rows, lambda x: f"${x:,.2f}"),
    "percent": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:.1f} %"),
    "units": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:.1f} kg"),
    "brackets": lambda rng, rows: _numbers(rng, rows, lambda x: f"{x:.0f}" if x >= 0 else f"({-x:.0f})"),
    "huge": lambda rng, rows: [str(rng.choice((7, 10**rng.randint(1, 30)))) for _ in range(rows)],
    "tiny": lambda rng, rows: [repr(rng.random() * 10.0 ** -rng.randint(0, 300)) for _ in range(rows)],
    "not finite": lambda rng, rows: _some(rng, rows, ("1.5", "2", "inf", "-inf", "nan", "1e999", "-0", "-0.0", "3", "4", "5")),
    "special": lambda rng, rows: [rng.choice(("999", str(rng.randrange(18, 90)))) for _ in range(rows)],
    "ISO dates": lambda rng, rows: _dates(rng, rows, ["%Y-%m-%d"]),
    "mixed dates": lambda rng, rows: _dates(rng, rows, ["%Y-%m-%d", "%d.%m.%Y", "%b %d, %Y"]),
    "short dates": lambda rng, rows: _dates(rng, rows, [rng.choice(("%d/%m/%y", "%Y%m%d", "%m/%Y", "%b %Y"))]),
    "stamps": _stamps,
    "times": lambda rng, rows: [f"{rng.randrange(24):02d}:{rng.randrange(60):02d}" for _ in range(rows)],
    "codes": _codes,
    "digits": lambda rng, rows: [f"{rng.randrange(99999):05d}" for _ in range(rows)],
    "ids": _ids,
    "persons": _persons,
    "places": lambda rng, rows: [f"{1000 + 37 * rng.randrange(80)}" for _ in range(rows)],
    "names": lambda rng, rows: [f"{rng.choice('ABC')}{int(rng.expovariate(0.05))}ville" for _ in range(rows)],
    "numbered": lambda _, rows: [str(row + 1) for row in range(rows)],
    "sets": _sets,
    "free text": _words,
    "of many types": _of_types,
}  # fmt: skip
"""Kinds of columns, by name."""


@dataclass(frozen=True)
class MessyTable:
    """A table of texts, and how its file is written."""

    header: list[str]
    columns: list[Cells]
    delimiter: str = ","
    encoding: str = "utf-8"

    def write(self, place: Path) -> None:
        """Write the file."""
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter)
        writer.writerow(self.header)
        writer.writerows(zip(*self.columns, strict=True))
        place.write_bytes(text.getvalue().encode(self.encoding))


def messy_table(seed: int) -> MessyTable:
    """A table of one row to some hundred, and of one column to thirty, with relations and gaps in some of them."""
    rng = random.Random(seed)
    rows = rng.choice((1, 2, 7, 40, 150, 400, 900))
    number = rng.choice((1, 2, 4, 6, 8, 30))
    kinds = [rng.choice(sorted(KINDS)) for _ in range(number)]
    columns = [KINDS[kind](rng, rows) for kind in kinds]
    columns = [_with_gaps(rng, cells) for cells in columns]
    columns += _related(rng, rows)
    header = [_name(rng, place) for place in range(len(columns))]
    return MessyTable(header, columns, rng.choice(",;\t|"), rng.choice(ENCODINGS))


def _name(rng: random.Random, place: int) -> str:
    """A name; behind the first column some are endless, empty, none that can be printed, or that of another column."""
    name = rng.choice(NAMES) + " and so on" * rng.choice((0, 0, 0, 24))
    odd = rng.choice(("", "a\u00a0b", name, 9 * name))
    return odd if place > 0 and rng.random() < 0.1 else name[:250].strip() + f"_{place}"


def _with_gaps(rng: random.Random, cells: Cells) -> Cells:
    """The cells, of which some or most are gaps, in one spelling or in several."""
    share, gaps = rng.choice((0, 0, 0.02, 0.3, 0.9)), rng.sample(GAPS, rng.choice((1, 1, 3)))
    return [rng.choice(gaps) if rng.random() < share else cell for cell in cells]


def _related(rng: random.Random, rows: int) -> list[Cells]:
    """Columns with relations: a sum, a period, a column that is filled only where another has a value; or none."""
    kind = rng.choice(("none", "sum", "period", "nested", "determined"))
    if kind == "sum":
        parts = [[rng.randrange(10 ** rng.randint(1, 4)) for _ in range(rows)] for _ in range(3)]
        totals = [str(sum(row)) for row in zip(*parts, strict=True)]
        return [*([str(number) for number in part] for part in parts), _with_gaps(rng, totals)]
    if kind == "period":
        begins = [date(2020, 1, 1) + timedelta(days=rng.randrange(900)) for _ in range(rows)]
        lengths = [int(rng.expovariate(0.2)) for _ in range(rows)]
        ends = [
            str(day + timedelta(days=length)) for day, length in zip(begins, lengths, strict=True)
        ]
        return [
            [str(day) for day in begins],
            _with_gaps(rng, ends),
            [str(length) for length in lengths],
        ]
    if kind == "nested":
        answers = _some(rng, rows, ("yes", "no", "no"))
        return [answers, [str(rng.randrange(40)) if answer == "yes" else "" for answer in answers]]
    if kind == "determined":
        zones = [f"Z{rng.randrange(40):02d}" for _ in range(rows)]
        return [zones, [f"borough {math.ceil(int(zone[1:]) / 9)}" for zone in zones]]
    return []
