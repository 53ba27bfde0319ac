"""`marginweave init`: the draft fits the table it was made from, marks what it read, and is refused until it is confirmed."""

from __future__ import annotations

import csv
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from marginweave.base.errors import InputError
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import ValueMatcher
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.draft import draft_configuration
from marginweave.drafts.drafted_columns import propose_column
from marginweave.drafts.drafted_numbers import rounded_outward
from marginweave.drafts.table_facts import column_cells
from marginweave.flows.cli.app import app
from tests.support.drafts import drafted_text

ROWS = 60


def look(values: list, name: str = "x") -> ColumnDraft:
    return propose_column(column_cells(name, pa.chunked_array([pa.array(values)])))


EMPTY = {"missing": [""]}


def table(path: Path, columns: dict[str, list[str]]) -> str:
    """A CSV file with the columns; every cell in quotes."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return str(path)


def draft(path: Path, columns: dict[str, list[str]]) -> dict:
    source = table(path, columns)
    return parse_yaml(drafted_text(source, SourceFile(file=path.name)))


def confirmed(raw: dict) -> Configuration:
    """What the draft becomes when the steward has found every line published."""
    for column in raw["columns"].values():
        if column.pop("confirm", None):
            column["public"] = "the questionnaire"
    return parse_configuration(answered(raw))


def answered(raw: dict) -> dict:
    """The draft with its unit confirmed, and without the number of rows."""
    privacy = {key: value for key, value in raw["privacy"].items() if key != "confirm"}
    return {key: value for key, value in raw.items() if key != "rows"} | {"privacy": privacy}


@pytest.mark.parametrize(
    ("values", "kind", "facts"),
    [
        (["a", "b", "a"], "category", {"values": ["a", "b"]}),
        (["2", "10", "1", ""], "category", {"values": ["1", "2", "10"], "missing": [""]}),
        (["01", "02", "1"], "category", {"values": ["01", "1", "02"]}),
        (["1", "1.0", "2"], "category", {"values": ["1", "2"]}),
        (["Y", ""], "category", {"values": ["Y"], "missing": [""]}),
        (["x", "x"], "constant", {"value": "x"}),
        (["", " "], "identifier", {}),
        (["yes", "NO", "n/a"], "boolean", {"true_values": ["yes"], "false_values": ["NO"], "missing": ["n/a"]}),
        (["Yes", "yes", "No"], "boolean", {}),
        (["T", "F"], "boolean", {"true_values": ["T"], "false_values": ["F"]}),
        ([True, False, None], "boolean", {"missing": [""]}),
        ([True, False], "boolean", {}),
        ([str(i) for i in range(17, 91)] * 2, "number", {"bounds": [10, 90], "bins": 10, "decimals": 0}),
        ([f"{i}.5" for i in range(20)], "number", {"bounds": [0, 20], "bins": 10, "decimals": 1}),
        ([*map(str, range(40)), "N"], "number", {"bounds": [0, 40], "bins": 10, "decimals": 0, "missing": ["N"]}),
        ([*map(float, range(40)), float("nan"), float("inf")], "number",
         {"bounds": [0, 40], "bins": 10, "decimals": 0, "missing": [""]}),
        ([-9000, 1341000, *range(20)], "number", {"bounds": [-100000, 1400000], "bins": {"log": 24}, "decimals": 0}),
        (["2019-05-01", "2023-07-31", ""], "date", {"bounds": ["2019-04-01", "2023-09-30"], "bins": "year", **EMPTY}),
        (["2001-03-04", "2020-06-07"], "date", {"bounds": ["2001-01-01", "2020-12-31"], "bins": "year"}),
        (["31.12.2019", "01.02.2020"], "date", {"bounds": ["2019-12-01", "2020-02-29"], "bins": "month", "format": "%d.%m.%Y"}),
        (["2019-05-01 10:30", "2019-06-01T11:00:30"], "datetime", {"bounds": ["2019-05-01", "2019-06-30"], "bins": "week"}),
        (["2019-05-01", "9999-12-31", "2023-07-31", "1900-01-01", ""], "date",
         {"bounds": ["2019-04-01", "2023-09-30"], "bins": "year", "missing": ["", "1900-01-01", "9999-12-31"]}),
        (["1990-01-01", "2019-12-31", "2003-07-30"], "date", {"bounds": ["1990-01-01", "2019-12-31"], "bins": "year"}),
        (["1960-12-31", "2020-12-31"], "date", {"bounds": ["1960-01-01", "2020-12-31"], "bins": "year"}),
        ([*(f"{i:02d}.02.2021" for i in range(1, 29)), "unknown"] * 9, "date",
         {"bounds": ["2021-02-01", "2021-02-28"], "bins": "week", "format": "%d.%m.%Y", "missing": ["unknown"]}),
        ([date(2001, 2, 3), None], "date", {"bounds": ["2001-02-01", "2001-02-28"], "bins": "week", **EMPTY}),
        ([datetime(2001, 2, 3, 4, 5), None], "datetime",  # noqa: DTZ001
         {"bounds": ["2001-02-01", "2001-02-28"], "bins": "week", **EMPTY}),
        ([*map(str, range(18, 90)), *["998", "999"] * 3], "number",
         {"bounds": [10, 90], "bins": 10, "decimals": 0, "codes": {998: "code 998", 999: "code 999"}}),
        ([*(f"{i}.5" for i in range(40)), *["-9"] * 3, "99.9", "99.9"], "number",
         {"bounds": [0, 40], "bins": 10, "decimals": 1, "codes": {-9: "code -9", 99.9: "code 99.9"}}),
        ([*map(str, range(40)), "999"], "number", {"bounds": [0, 1000], "bins": {"log": 12}, "decimals": 0}),
        ([*map(str, range(90)), "98", "99", "99"], "number", {"bounds": [0, 100], "bins": 10, "decimals": 0}),
        ([*map(str, range(-20, 40)), "-9", "-9"], "number", {"bounds": [-20, 40], "bins": 10, "decimals": 0}),
        (["a;b", "b;c", "c", "a", "b;a;c", "b"], "set", {"separator": ";", "values": ["a", "b", "c"], "max_values": 3}),
    ],
)  # fmt: skip
def test_what_a_column_is_taken_for(values: list, kind: str, facts: dict) -> None:
    draft = look(values)
    assert (draft.type, draft.facts) == (kind, facts)


@pytest.mark.parametrize(
    "values",
    [
        [str(2**53 + 3 * i) for i in range(60)] * 2,  # integers beyond 2^53
        [str(i) for i in range(60)] + ["old", "older"],  # mixed types
        # two formats
        [f"2019-01-{i:02d}" for i in range(1, 29)] + [f"{i:02d}/02/2019" for i in range(1, 29)] * 2,
        [f"{i:04d}" for i in range(60)],  # codes
        [f"name {i}" for i in range(3000)] * 2,  # thousands of categories
        [f"HISPANIC, {i}" for i in range(51)] * 2,  # a comma inside a name
        [
            *(f"name {i}" for i in range(60)),
            "NA",
        ],  # a text that may mean "no value" is one of the cells'
        [f"1e-{320 + i}" for i in range(60)],  # smaller than any double
        [f"0.{'0' * 40}{i}" for i in range(1, 60)] + ["1e-9999"],
        [repr(1e15 + i / 8) for i in range(60)],  # finer than the decimals that doubles have there
        [f"1000000000000000.{'0' * 30}{i}" for i in range(1, 60)],  # apart by less than 28 digits
    ],
)
def test_more_than_fifty_values_make_a_private_domain(values: list) -> None:
    draft = look(values * 2)
    assert (draft.type, draft.facts) == ("category", {"domain": "private"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [f"{i:02d}.{j:02d}.2021" for i in range(1, 29) for j in range(1, 4)]
            + ["31.2.2021", "unknown"],
            '"%d.%m.%Y"',
        ),
    ],
)
def test_what_most_cells_look_like_is_said(values: list[str], words: str) -> None:
    """No remark holds a value of the table."""
    for cells in (values, values * 2):
        draft = look(cells)
        assert (draft.type, draft.facts, words in draft.remark) == (
            "category",
            {"domain": "private"},
            True,
        )
        assert not any(value in draft.remark for value in values)


def test_a_comma_inside_few_names_is_no_separator() -> None:
    races = ["ASIAN", "BLACK", "HISPANIC, BLACK", "HISPANIC, WHITE", "NATIVE AMERICAN", "WHITE"]
    assert look(races).facts == {"values": races}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("case_id", [*range(60)]),
        ("card_no", [100_000 + 7 * i for i in range(60)]),
        ("x", [f"C{7 * i:05d}" for i in range(60)]),
        ("name", [f"p{i}" for i in range(60)]),
        ("who", [f"0b5e1a{i:02d}-12ab-4bcd-89ef-0123456789ab" for i in range(60)]),
        ("who", [f"p{i}@example.org" for i in range(60)]),
    ],
)
def test_different_cells_that_are_called_so_or_look_so_are_an_identifier(
    name: str, values: list
) -> None:
    assert look(values, name).type == look(values + values[:3], name).type == "identifier"
    assert look(values * 2, name).type != "identifier"


@given(st.decimals(-(10**6), 10**6, places=3), st.decimals(Decimal("0.001"), 10**6, places=3))
def test_bounds_are_rounded_outward(low: Decimal, width: Decimal) -> None:
    """They enclose the numbers, and not by more than the range on both sides together."""
    first, last = rounded_outward(low, low + width)
    assert first <= low
    assert low + width <= last
    assert last - first < 2 * width


gaps = st.sampled_from(["", "NA", "?"])
kinds = st.sampled_from(
    [
        st.integers(-(10**20), 10**20).map(str),
        st.integers(0, 99).map(str),
        st.decimals(-1000, 1000, places=2).map(str),
        st.integers(0, 9999).map("{:05d}".format),
        st.dates(date(1900, 1, 1), date(2100, 1, 1)).map(str),
        st.dates(date(1900, 1, 1), date(2100, 1, 1)).map(lambda d: d.strftime("%d/%m/%Y")),
        st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001
            lambda d: d.isoformat(" ", "seconds")
        ),
        st.sampled_from(
            [
                "no",
                "N",
                "01",
                "12:30",
                "1_000",
                "1e-6",
                "null",
                "true",
                "~",
                "- a",
                "a: b",
                "a #b",
                "'",
                '"',
                "{",
                "é",
            ]
        ),
        st.sets(st.sampled_from("abcdefg"), min_size=1).map(";".join),
        st.sampled_from(["true", "false"]),
        st.text(
            st.characters(codec="utf-8", exclude_characters="\r\n\x00", exclude_categories=["Cs"]),
            max_size=9,
        ),
    ]
)
columns = kinds.flatmap(
    lambda kind: st.lists(st.one_of(kind, kind, kind, gaps), min_size=ROWS, max_size=ROWS)
)
names = st.text(
    st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9
).filter(str.isprintable)


@given(st.dictionaries(names, columns, min_size=1, max_size=4))
@settings(max_examples=25)
def test_a_draft_fits_its_own_table(
    tmp_path_factory: pytest.TempPathFactory, cells: dict[str, list[str]]
) -> None:
    """Whatever the table: the draft is read back, refused as it is, and, confirmed, has every cell as a value or as missing.

    A draft that forgets a value, bends a code or writes YAML that reads otherwise fails here.
    """
    raw = draft(tmp_path_factory.mktemp("draft") / "t.csv", cells)
    assert list(raw["columns"]) == list(cells)
    assert all(
        c.get("confirm") is True for c in raw["columns"].values() if c.get("domain") != "private"
    )
    if any("confirm" in column for column in raw["columns"].values()):
        with pytest.raises(InputError, match="waits for confirmation"):
            parse_configuration(answered(raw))
    if all(column["type"] in {"identifier", "constant"} for column in raw["columns"].values()):
        return
    configuration = confirmed(raw)
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn):
            missing = ValueMatcher(configuration.missing_texts(name))
            declared = {
                text
                for text in cells[name]
                if missing.index(text) >= 0 or column.accepts(text.strip())
            }
            undeclared = (
                set(cells[name])
                - declared
                - ({text for text in cells[name] if not text.strip()} if column.private else set())
            )
            assert not undeclared, (name, column.type)


def test_names_of_cells_without_a_value_are_drafted_as_missing(tmp_path: Path) -> None:
    raw = draft(tmp_path / "t.csv", {"x": ["a", "b", "(missing)", "(not as declared)"] * 5})
    assert raw["columns"]["x"]["missing"] == ["(missing)", "(not as declared)"]
    assert confirmed(raw).columns["x"].labels == ("a", "b")


def test_codes_are_read_back_as_they_stand(tmp_path: Path) -> None:
    """YAML's traps, in values and in names of columns."""
    codes = ["no", "N", "01", "12:30", "1_000", "1e-6", "yes", "off", "~", "2019-01-01"]
    raw = draft(tmp_path / "t.csv", {"no": codes, "1e3": codes, "a: b": codes})
    assert list(raw["columns"]) == ["no", "1e3", "a: b"]
    for column in raw["columns"].values():
        assert column["same"] == {"N": "no"}
        assert {*column["values"], *column["same"]} == set(codes)


def test_a_private_line_needs_no_confirmation(tmp_path: Path) -> None:
    """Each way out: public, private domain, private bounds; and the two words that exclude each other."""
    raw = answered(
        draft(tmp_path / "t.csv", {"sex": ["f", "m"] * 20, "age": [*map(str, range(20, 60))]})
    )
    raw["columns"]["sex"] = {"type": "category", "domain": "private", "confirm": True}
    raw["columns"]["age"] |= {"bounds": "private", "within": [0, 150], "bins": 10}
    with pytest.raises(InputError, match=r"columns\.age is private, and still has decimals"):
        parse_configuration(raw)
    del raw["columns"]["age"]["decimals"]
    assert parse_configuration(raw).private_columns == ("sex",)
    raw["columns"]["age"] |= {"public": "the law"}
    with pytest.raises(InputError, match=r"columns\.age has confirm and public"):
        parse_configuration(raw)
    raw["columns"]["age"] |= {"confirm": False}
    with pytest.raises(
        InputError,
        match=r"columns\.age\.confirm \(false\) must not be false, which answers nothing",
    ):
        parse_configuration(raw)
    del raw["columns"]["age"]["confirm"]
    raw["columns"]["age"] |= {"public": " "}
    with pytest.raises(
        InputError,
        match=r"columns\.age\.public \( \) must say where the facts of the column are published",
    ):
        parse_configuration(raw)


def test_a_parquet_file_is_drafted_by_its_types(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {
        "born": pa.array([date(1970, 1, i) for i in range(1, 29)]),
        "big": pa.array([2**60 + i for i in range(14)] * 2),
        "kind": pa.array(["a", "b"] * 13 + ["b", "a"]).dictionary_encode(),
        "gain": pa.array([i / 4 for i in range(28)]),
    }
    pq.write_table(pa.table(columns), path)
    configuration = confirmed(parse_yaml(drafted_text(str(path), SourceFile(file="t.parquet"))))
    assert [column.type for column in configuration.columns.values()] == [
        "date",
        "category",
        "category",
        "number",
    ]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("xq7,xq7", "has no column with a name"),
        (",", "has no column with a name"),
        ("a,xq7", "no rows below its header"),
    ],
)
def test_headers_that_make_no_draft(tmp_path: Path, header: str, words: str) -> None:
    """The place is told, not the name: a file without a header has data there."""
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n")
    with pytest.raises(InputError, match=words) as refusal:
        drafted_text(str(path), SourceFile(file="t.csv"))
    assert "xq7" not in str(refusal.value)


@pytest.mark.parametrize(
    ("header", "is_doubted"), [("xq7,7717,2019", True), ("name,age,year", False)]
)
def test_a_header_with_numbers_may_be_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: str, is_doubted: bool
) -> None:
    """The draft and the terminal say so, and no name."""
    (tmp_path / "t.csv").write_text(f"{header}\n" + "a,1,2020\nb,2,2021\n" * 9)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["init", "t.csv"])
    doubt = "The header has numbers as names. If its line is data, add a line of names above it"
    assert (doubt in done.output, f"# {doubt}" in (tmp_path / "t.yaml").read_text()) == (
        is_doubted,
        is_doubted,
    )
    assert "xq7" not in done.output
    assert "7717" not in done.output


def test_a_table_without_anything_to_count_is_told_so(tmp_path: Path) -> None:
    """Confirmed, the draft is refused; its head says it before."""
    cells = {"case_id": [f"c{i}" for i in range(60)], "country": ["NO"] * 60}
    warning = "No column of this table is counted"
    source = table(tmp_path / "t.csv", cells)
    text = drafted_text(source, SourceFile(file="t.csv"))
    assert warning in text
    with pytest.raises(InputError, match="no column that is counted"):
        confirmed(parse_yaml(text))
    source = table(tmp_path / "u.csv", {**cells, "sex": ["f", "m"] * 30})
    assert warning not in drafted_text(source, SourceFile(file="u.csv"))


def test_a_column_without_a_name_is_left_out(tmp_path: Path) -> None:
    """As pandas writes an index."""
    (tmp_path / "t.csv").write_text(",a\n0,x\n1,y\n")
    text = drafted_text(str(tmp_path / "t.csv"), SourceFile(file="t.csv"))
    assert "# column 1 has no name and is left out" in text
    assert list(parse_yaml(text)["columns"]) == ["a"]


@pytest.mark.parametrize(
    ("names", "advice"),
    [
        (
            ("xq7", "xq7", "a"),
            "Left out by their names: column 1 has the name of another column; column 2",
        ),
        (("a", "xq7" * 100, "b"), "column 2 has a name of more than 256 characters"),
        (("a", "b", ""), "column 3 has no name (a delimiter at the end of each line"),
    ],
)
def test_init_goes_on_without_a_column_of_no_usable_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], advice: str
) -> None:
    """As `check` and `run` do; it says so with the place alone, and `rename` makes the column usable."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(f"{','.join(names)}\n" + "f,x,u\nm,y,v\n" * 9)
    done = CliRunner().invoke(app, ["init", "t.csv"])
    output = " ".join(done.output.split())
    assert done.exit_code == 0
    assert advice in output
    assert "xq7" not in output + (tmp_path / "t.yaml").read_text()
    place = re.findall(r"rename: \{(column \d): NAME\}", output)
    form = SourceFile(file="t.csv", rename={place[0]: "c"})
    assert "c" in parse_yaml(drafted_text("t.csv", form))["columns"]


@example("true", "x")
@example("null", "x")
@example("no", "values")
@example("1e3", "x")
@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(["values", "x"]),
)
def test_every_text_is_read_back_from_one_line(text: str, key: str) -> None:
    line = f"{key}: {yaml_line([text], below=key)}"
    assert (parse_yaml(line)[key] == [text]) is True
    assert "\n" not in line


def test_a_negative_zero_is_drafted_as_0() -> None:
    """Beside 0 it would be the same value twice, which no configuration takes."""
    assert (
        look(["-0", "0", "1", "-1"] * 20).facts["values"]
        == look(["0", "0", "1", "-1"] * 20).facts["values"]
    )
    assert look(["-0.00", "a", "b"] * 20).facts["values"] == ["0.00", "a", "b"]
    assert look(["-01", "a", "b"] * 20).facts["values"] == ["-01", "a", "b"]


@pytest.mark.parametrize(
    ("in_utf8", "stray", "line"), [(40, 1, 42), (2, 1, 4), (1, 2, None), (0, 3, None)]
)
def test_a_line_in_another_encoding_is_named(
    tmp_path: Path, in_utf8: int, stray: int, line: int | None
) -> None:
    """One such line, and all is read as windows-1252: the values of a draft would be wrong without a word."""
    place = tmp_path / "towns.csv"
    content = b"town,n\n" + "n\u00f6rd,1\n".encode() * in_utf8
    place.write_bytes(content + "n\u00f6rd,1\n".encode("latin-1") * stray)
    form = SourceFile.model_validate({"file": place.name, "encoding": "windows-1252"})
    said = " ".join(draft_configuration(str(place), form).doubts)
    assert ("windows-1252" in said) is (line is not None)
    if line is not None:
        assert f"line {line} is not" in said
