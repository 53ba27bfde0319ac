"""Bad cells of a file, from its bytes to the clean table: each is handled by a declared rule, or refused by name."""

from __future__ import annotations

import math
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.prepare.clean import clean_table
from marginweave.schemas.source import source_contract
from marginweave.sources.source import TableSource
from tests.support.configurations import configuration

NUMBER = {"type": "number", "bounds": [0, 100], "bins": 5}
BIG = 2**53


def cleaned(path: Path, column: dict[str, Any], **form: str) -> list:
    """The cells of column `x` after validate and preprocess."""
    declared = configuration(columns={"x": column}, source={"file": path.name, **form})
    raw = TableSource(str(path), declared.source).table(["x"])
    source_contract(declared).check(raw)
    return clean_table(raw, declared).column("x").to_pylist()


def csv_of(place: Path, *cells: str) -> Path:
    path = place / "t.csv"
    path.write_text("x,y\n" + "".join(f"{cell},1\n" for cell in cells))
    return path


def parquet_of(place: Path, values: Any) -> Path:
    path = place / "t.parquet"
    pq.write_table(pa.table({"x": values}), path)
    return path


def test_mixed_types_in_a_column(tmp_path: Path) -> None:
    """A text among numbers is missing, or stops the run without being told; a category takes both."""
    path = csv_of(tmp_path, "7", "xq7marker", "8.0", "")
    assert cleaned(path, NUMBER) == [7, None, 8, None]
    with pytest.raises(InputError) as refusal:
        cleaned(path, {**NUMBER, "outside": "error"})
    assert str(refusal.value) == "validate: column 'x' breaks the rule 'every value is a number'"
    assert cleaned(path, {"type": "category", "values": ["xq7marker", 7, 8]}) == [
        "7",
        "xq7marker",
        "8",
        None,
    ]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (NUMBER, [5.0, None]),
        ({"type": "category", "values": ["a"]}, ["a", None]),
        (
            {"type": "date", "bounds": ["2019-01-01", "2019-12-31"], "bins": "month"},
            [date(2019, 5, 1), None],
        ),
    ],
    ids=str,
)
def test_a_null_is_the_empty_text(
    tmp_path: Path, column: dict[str, Any], values: list[Any]
) -> None:
    """Where nothing says "no value", a null stops the run as an empty cell of a CSV does, and is missing where `""` is."""
    path = parquet_of(tmp_path, values)
    with pytest.raises(InputError, match="validate: column 'x' breaks the rule 'every value is"):
        cleaned(path, {**column, "missing": [], "outside": "error"})
    assert cleaned(path, {**column, "missing": [""], "outside": "error"})[1] is None


NATIVE = [
    pa.array([1.0]),
    pa.array([1e16]),
    pa.array([0.1], pa.float32()),
    pa.array([2**60]),
    pa.array([Decimal("1.50")]),
    pa.array([True]),
    pa.array([date(2019, 5, 1)]),
    pa.array([1_556_668_800], pa.timestamp("s")),
    pa.array([1_556_668_800_000_000], pa.timestamp("us")),
    pa.array([20190501.0]),
    pa.array([time(4, 5, 6)], pa.time32("s")),
]
WITHOUT_TEXT = [
    pa.array([math.nan]),
    pa.array([math.inf]),
    pa.array([None], pa.float64()),
    pa.array([None, math.nan]).dictionary_encode(),
    pa.array([12_000 * 365], pa.date32()),
]


@pytest.mark.parametrize(
    "column",
    [
        NUMBER,
        {"type": "boolean"},
        {
            "type": "category",
            "values": ["1", "0.1", "1.5", "true", "10000000000000000", "2019-05-01", "04:05:06"],
        },
        {"type": "category", "values": ["True", "2019-05-01 00:00:00"]},
        {"type": "date", "bounds": ["2019-01-01", "2019-12-31"], "bins": "month"},
        {
            "type": "date",
            "bounds": ["2019-01-01", "2019-12-31"],
            "bins": "month",
            "format": "%Y%m%d",
        },
    ],
)
def test_outside_error_stops_at_native_cells_that_cleaning_cannot_read_and_at_no_others(
    column: dict,
) -> None:
    """What has no text is the empty cell, as the reference says; any other cell has the text that cleaning reads."""
    read = []
    for missing in ([], [""]):
        declared = configuration(columns={"x": {**column, "missing": missing, "outside": "error"}})
        for cells in (*NATIVE, *WITHOUT_TEXT):
            raw = pa.table({"x": cells})
            is_lost = clean_table(raw, declared).column("x").null_count > 0
            is_missing = cells in WITHOUT_TEXT and "" in missing
            stops = source_contract(declared).broken(raw) != set()
            assert stops == (is_lost and not is_missing), (cells, missing)
            read.append(not stops)
    assert len(WITHOUT_TEXT) < sum(read) < len(read)


def test_dates_in_two_formats(tmp_path: Path) -> None:
    """One format is declared; a date in another is missing, or stops the run."""
    path = csv_of(tmp_path, "2019-05-01", "01/05/2019", "05/13/2019")
    iso = {"type": "date", "bounds": ["2019-01-01", "2019-12-31"], "bins": "month"}
    assert [str(day) for day in cleaned(path, iso)] == ["2019-05-01", "None", "None"]
    assert [str(day) for day in cleaned(path, {**iso, "format": "%d/%m/%Y"})] == [
        "None",
        "2019-05-01",
        "None",
    ]
    with pytest.raises(InputError, match="column 'x' breaks the rule"):
        cleaned(path, {**iso, "outside": "error"})


@pytest.mark.parametrize("native", [False, True])
def test_integers_beyond_2_to_the_53(tmp_path: Path, native: bool) -> None:
    """As numbers they are clamped; as codes no two of them are the same."""
    values = [BIG, BIG + 1, BIG + 2, 2**62]
    path = parquet_of(tmp_path, values) if native else csv_of(tmp_path, *map(str, values))
    assert cleaned(path, NUMBER) == [100] * 4
    assert cleaned(path, {"type": "category", "values": values}) == list(map(str, values))
    assert cleaned(path, {"type": "category", "domain": "private"}) == list(map(str, values))
    with pytest.raises(InputError, match=r"columns\.x has an edge beyond 2\^53"):
        configuration(columns={"x": {"type": "number", "bounds": [0, 2**60], "bins": 4}})


@pytest.mark.parametrize(
    "column", [NUMBER, {"type": "category", "domain": "private"}], ids=["number", "private"]
)
def test_nan_and_infinity_are_missing(tmp_path: Path, column: dict) -> None:
    """As a frame writes them; none of them becomes a value called nan or inf."""
    cells = cleaned(parquet_of(tmp_path, [math.nan, math.inf, -math.inf, None, 7.0]), column)
    assert cells[:4] == [None] * 4
    assert float(cells[4]) == 7


def test_texts_that_say_nan_or_infinity_are_no_numbers(tmp_path: Path) -> None:
    assert cleaned(
        csv_of(tmp_path, "nan", "inf", "-Infinity", "NaN", "1e999", "-1e999"), NUMBER
    ) == [None] * 4 + [
        100,
        0,
    ]


def test_thousands_of_categories(tmp_path: Path) -> None:
    codes = [f"{i:05d}" for i in range(20_000)]
    path = csv_of(tmp_path, *codes)
    assert cleaned(path, {"type": "category", "values": codes}) == codes
    assert cleaned(path, {"type": "category", "domain": "private"}) == codes


def test_encodings_and_line_ends(tmp_path: Path) -> None:
    """Latin-1 where it is declared, a byte-order mark, and the line ends of three systems: the same cells."""
    towns = {"type": "category", "values": ["Köln", "Aachen; Bonn"]}
    text = 'x;y\r\nKöln;1\r\n"Aachen; Bonn";2\r\n'
    expected = ["Köln", "Aachen; Bonn"]
    path = tmp_path / "t.csv"
    for encoding, named in (
        ("latin-1", "latin-1"),
        ("cp1252", "windows-1252"),
        ("utf-8-sig", "utf-8"),
        ("utf-8", "utf-8"),
    ):
        for end in ("\r\n", "\n", "\r"):
            path.write_bytes(text.replace("\r\n", end).encode(encoding))
            assert cleaned(path, towns, delimiter="semicolon", encoding=named) == expected, (
                encoding,
                end,
            )


@pytest.mark.parametrize(
    ("content", "form", "words"),
    [
        ("x,y\nKöln,1\n".encode("latin-1"), {}, r"must be UTF-8; for another encoding write source: \{file: …, encoding:"),
        ("xö,y\na,1\n".encode("latin-1"), {}, "must be UTF-8; for another encoding"),
        ("x,y\na,1\n".encode("utf-16"), {}, "must be UTF-8; for another encoding"),
        (b"x,y\n\x81,1\n", {"encoding": "windows-1252"}, r"t\.csv\) must be WINDOWS-1252$"),
        (b"x;y\na;1\n", {}, "lacks the declared column 'x'; its first line must hold the column names, separated by commas"),
    ],
)  # fmt: skip
def test_what_is_written_otherwise_is_refused_with_the_way_out(
    tmp_path: Path, content: bytes, form: dict, words: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        TableSource(str(path), SourceFile(file="t.csv", **form)).table(["x"])


def test_a_declared_delimiter_goes_before_the_ending(tmp_path: Path) -> None:
    """Also where the ending says nothing; Parquet has no delimiter."""
    for name in ("t.csv", "t.tsv", "t.txt"):
        (tmp_path / name).write_text("y|x\n1|a,b\n")
        form = SourceFile(file=name, delimiter="pipe")
        assert TableSource(str(tmp_path / name), form).table(["x"]).to_pydict() == {"x": ["a,b"]}
    path = parquet_of(tmp_path, ["a"])
    assert TableSource(str(path), SourceFile(file="t", delimiter="pipe")).table(
        ["x"]
    ).to_pydict() == {"x": ["a"]}


def test_two_hundred_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    names = [f"c{i}" for i in range(200)]
    path.write_text(",".join(names) + "\n" + ",".join(map(str, range(200))) + "\n")
    table = TableSource(str(path), SourceFile(file="t.csv")).table(names[::-1])
    assert [c.to_pylist() for c in table.columns] == [[str(i)] for i in range(199, -1, -1)]


def test_the_traps_of_yaml() -> None:
    """Codes come as written wherever values stand; numbers are numbers wherever numbers stand."""
    codes = ["no", "N", "01", "12:30", "1_000", "1e-6", "off", "~"]
    listed = ", ".join(codes)
    raw = parse_yaml(f"""
dataset: no
source: people.csv
privacy: {{epsilon: 1_0.5, delta: 1e-6, unit: row}}
missing: [NA, N/A, -]
columns:
  no: {{type: category, values: [{listed}], outside: null}}
  12:30: {{type: category, values: [{listed}], missing: [null, 0x1]}}
  set: {{type: set, separator: ;, values: [{listed}], max_values: 2}}
  answer: {{type: boolean, true_values: [yes, 1], false_values: [no, 0]}}
  day: {{type: date, bounds: [2019-01-01, 2019-12-31], bins: month}}
structure:
  forbidden:
    - {{no: 01, 12:30: [no, 1_000]}}
""")
    parsed = parse_configuration(raw)
    assert list(parsed.columns) == ["no", "12:30", "set", "answer", "day"]
    columns: dict[str, Any] = dict(parsed.columns)
    assert all(list(columns[name].values) == codes for name in ("no", "12:30", "set"))
    assert columns["no"].outside == "null"
    assert columns["12:30"].missing == ("null", "0x1")
    assert columns["answer"].false_values == ("no", "0")
    assert parsed.structure is not None
    assert parsed.structure.forbidden == ({"no": ("01",), "12:30": ("no", "1_000")},)
    assert (parsed.privacy.delta, parsed.privacy.epsilon, parsed.dataset) == (1e-6, 10.5, "no")
    for trap, words in (
        ("12:30", r"\(12:30\) must be a number"),
        ("no", r"\(no\) must be a number"),
        ("0x1", r"0x1\) must"),
    ):
        with pytest.raises(InputError, match=words):
            parse_configuration(
                {**raw, "privacy": parse_yaml(f"{{epsilon: {trap}, delta: 1e-6, unit: row}}")}
            )
