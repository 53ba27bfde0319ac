"""`init` sees where the table is in its file, asks whether it is so, and drafts the table and nothing beside it."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import marginweave as mw
from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.recognise import recognise
from marginweave.flows.cli.app import app
from tests.support.drafts import answered, drafted_text

NAMES = ["sex", "born", "ward", "cost", "note"]
MARKER = "xq7marker"


def rows_of_table(number: int = 200) -> list[list[Any]]:
    """Rows as a clinic has them, some with an empty cell."""
    chance = random.Random(7)
    return [
        [
            chance.choice("fm"),
            f"19{chance.randint(50, 99)}-01-01",
            chance.choice(["A", "B", None]),
            chance.randint(0, 5000),
            chance.choice(["x", "y", None]),
        ]
        for _ in range(number)
    ]


def write(path: Path, rows: Sequence[Sequence[Any]], delimiter: str = ",", **sheets: Any) -> str:
    """The rows as a CSV file, or as the first sheet of a workbook with other sheets."""
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter).writerows(rows)
        path.write_text(text.getvalue())
        return str(path)
    book = openpyxl.Workbook()
    for name, cells in {"Sheet": rows, **sheets}.items():
        sheet = book.active if name == "Sheet" else book.create_sheet(name)
        assert sheet is not None
        for row in cells:
            sheet.append(list(row))
    book.save(path)
    return str(path)


TOTAL = ["Total", None, None, 777_777, None]
SURROUNDINGS: dict[str, tuple[list[Any], list[Any], list[Any], dict[str, Any]]] = {
    "nothing": ([], [NAMES], [], {}),
    "a title": ([["Patients 2024, confidential"], []], [NAMES], [], {"skip": 2}),
    "a date": ([["Report of", "2024-03-01"], ["by:"], []], [NAMES], [], {"skip": 3}),
    "a total and a source": ([], [NAMES], [TOTAL, ["Source: register"]], {"footer": 2}),
    "a total after a gap": ([], [NAMES], [[], ["Gesamt (n=200)", *TOTAL[1:]]], {"footer": 1}),
    "totals without a word": ([], [NAMES], [[None, None, None, 777_777, None], ["n = 200"]], {"footer": 2}),
    "a total and a mean": ([], [NAMES], [TOTAL, ["Mean", None, None, 38.5, None]], {"footer": 2}),
    "notes": ([], [NAMES], [["* without the night shift"], ["© the clinic"]], {"footer": 2}),
    "groups": ([], [["person", None, "stay", None, None], NAMES], [], {"header": 2}),
    "groups of the same name": ([], [["a", "a", "b", "b", "b"], NAMES], [], {"header": 2}),
    "labels of Qualtrics": (
        [],
        [NAMES, [f"What is {name}?" for name in NAMES], [f'{{"ImportId":"{name}"}}' for name in NAMES]],
        [],
        {"header": {"rows": 3, "names": 1}},
    ),
    "all": (
        [["Patients 2024"], []],
        [["person", None, "stay", None, None], NAMES],
        [TOTAL, [], ["# exported 2024-03-01 by HIS"]],
        {"skip": 2, "header": 2, "footer": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", ["t.csv", "semicolon.csv", "t.xlsx", "padded.csv"])
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_the_table_is_found_in_its_file(tmp_path: Path, name: str, form: str) -> None:
    """In texts, with and without a delimiter in each line, as spreadsheets export them, and in sheets."""
    above, header, below, declared = SURROUNDINGS[name]
    rows = [*above, *header, *rows_of_table(), *below]
    if form == "padded.csv":
        rows = [[*row, *[None] * (5 - len(row))] for row in rows]
        declared = {**declared, "footer": len(below)}
    path = write(tmp_path / form, rows, ";" if form == "semicolon.csv" else ",")
    usual = {"skip": 0, "header": 1, "footer": 0}
    delimiter = {"delimiter": "semicolon"} if form == "semicolon.csv" else {}
    expected = SourceFile.model_validate({"file": form, **delimiter, **usual, **declared})
    assert recognise(path, SourceFile(file=form), encoding=True) == expected


def test_the_last_column_may_have_no_name_below_groups(tmp_path: Path) -> None:
    """Neither a group nor a name, as of a column of remarks; another column without both is no header in two rows."""
    groups = ["person", None, "stay", None, None]
    for nameless, rows_of_header in ((4, 2), (1, 1)):
        names = [None if place == nameless else name for place, name in enumerate(NAMES)]
        header = [groups if nameless == 4 else [groups[0], None, "stay", "stay", "stay"], names]
        path = write(tmp_path / f"{nameless}.csv", [*header, *rows_of_table()])
        found = recognise(path, SourceFile(file=f"{nameless}.csv"), encoding=True)
        assert found.header.rows == rows_of_header


def test_a_line_with_too_few_delimiters_is_no_row(tmp_path: Path) -> None:
    """A title or a note with commas, in a text; in a header that lacks one delimiter, the line is refused as before."""
    path = tmp_path / "t.csv"
    write(path, [NAMES, *rows_of_table()])
    path.write_text(f"Stays, all wards\n\n{path.read_text()}From the register, on 1 March\n")
    form = recognise(str(path), SourceFile(file="t.csv"), encoding=True)
    assert (form.skip, form.header.rows, form.footer) == (2, 1, 1)
    path.write_text("A,B,C\n" + "x,1,p,\ny,2,q,\n" * 9)
    with pytest.raises(InputError, match="line 2 has 4 fields, the header has 3"):
        recognise(str(path), SourceFile(file="t.csv"), encoding=True)


LOOKALIKES: dict[str, list[list[Any]]] = {
    "an index of pandas": [[None, "a"], *([i, "x"] for i in range(9))],
    "names alike": [["a", "b", "a"], *(["x", "y", "z"] for _ in range(9))],
    "texts alone": [["word", "kind"], *([f"w{i}", "noun"] for i in range(9))],
    "a value called Total": [["region", "n"], *([r, i] for i in range(9) for r in ("A", "Total"))],
    "years as names": [["who", "2019", "2020"], *([f"p{i}", i, i] for i in range(9))],
    "sparse rows": [["id", "a", "b", "c"], *([f"p{i}", None, None, None] for i in range(9))],
    "no header": [[i % 60, "f", 1000 + i] for i in range(99)],
    "one column": [["note"], ["Total"], ["Source: x"]],
    "a last row without values": [["a", "b"], ["x", "y"], ["x", "y"], ["", ""]],
    "no rows": [["a", "b"]],
}


@pytest.mark.parametrize("name", LOOKALIKES)
def test_rows_that_only_look_alike_stay(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "t.csv", LOOKALIKES[name])
    form = recognise(path, SourceFile(file="t.csv"), encoding=True)
    assert form.layout_keys == ()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.text('ab1,"# \n', max_size=4), max_size=4), max_size=8),
    st.sampled_from(["t.csv", "t.xlsx"]),
)
def test_any_file_is_looked_at(
    tmp_path_factory: pytest.TempPathFactory, rows: list, name: str
) -> None:
    """Whatever it holds: it is drafted as it is recognised, or refused as one that cannot be read."""
    path = write(tmp_path_factory.mktemp("any") / name, rows)
    try:
        form = recognise(path, SourceFile(file=name), encoding=True)
        parse_yaml(drafted_text(path, form))
    except InputError:
        return
    assert form.skip + form.header.rows + form.footer <= sum(2 + len("".join(row)) for row in rows)


def test_a_guess_is_asked_about_and_nothing_of_a_total_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal says what is left out, the draft has its number, and runs only without the line that asks."""
    monkeypatch.chdir(tmp_path)
    above, header, below, _ = SURROUNDINGS["all"]
    note = [f"# {MARKER}"]
    write(tmp_path / "t.xlsx", [*above, *header, *rows_of_table(), *below, note])
    done = CliRunner().invoke(app, ["init", "t.xlsx"])
    output = " ".join(done.output.split())
    assert done.exit_code == 0
    for sentence in (
        "The header looks to be in line 3: lines above it are left out (`skip: 2`)",
        "The header looks to have 2 rows: their texts are joined (`header`)",
        "The last lines look like totals, notes or nothing: they are left out (`footer: 3`)",
        "answer the 8 questions",
    ):
        assert sentence in output
    text = (tmp_path / "t.yaml").read_text()
    for word in (MARKER, "Total", "777", "exported", "Patients"):
        assert word not in text + done.output
    assert list(parse_yaml(text)["columns"]) == [
        "person sex",
        "person born",
        "stay ward",
        "stay cost",
        "stay note",
    ]
    with pytest.raises(InputError, match=r"source .*was guessed from the file"):
        parse_configuration(parse_yaml(text), text)
    confirmed = answered(text, '"the registry"')
    assert "confirm" not in confirmed.partition("columns:")[2]
    source = parse_configuration(parse_yaml(confirmed)).source
    assert (source.skip, source.header.rows, source.footer) == (2, 2, 3)


def test_the_sheet_that_looks_most_like_a_table_is_drafted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another is named by an option, and then nothing is asked about it."""
    monkeypatch.chdir(tmp_path)
    notes = [["This workbook has the stays of 2024"], ["Questions: the registry"]]
    beds = [["ward", "beds"], *(["A" if i % 2 else "B", i] for i in range(20))]
    write(tmp_path / "t.xlsx", notes, stays=[NAMES, *rows_of_table()], beds=beds)
    done = CliRunner().invoke(app, ["init", "t.xlsx"])
    assert "The workbook has several sheets: the draft is of 'stays'" in done.output
    drafted = parse_yaml((tmp_path / "t.yaml").read_text())
    assert drafted["source"] == {"confirm": "true", "file": "t.xlsx", "sheet": "stays"}
    done = CliRunner().invoke(app, ["init", "t.xlsx", "--sheet", "beds", "--output", "beds.yaml"])
    assert "several sheets" not in done.output
    drafted = parse_yaml((tmp_path / "beds.yaml").read_text())
    assert (drafted["source"]["sheet"], list(drafted["columns"])) == ("beds", ["ward", "beds"])
    assert "confirm" not in drafted["source"]
    done = CliRunner().invoke(app, ["init", "t.xlsx", "--sheet", "bed", "--output", "x.yaml"])
    assert "has no visible sheet 'bed'" in " ".join(done.output.split())


def test_a_draft_in_python_asks_as_well(tmp_path: Path) -> None:
    """By the name `source`; a frame has nothing beside its rows."""
    path = write(tmp_path / "t.csv", [NAMES, *rows_of_table(), TOTAL])
    draft = mw.Configuration.draft(path, home=tmp_path)
    assert "`footer: 1`" in draft.unconfirmed["source"]
    assert "source" not in draft.confirm("source").unconfirmed
    assert draft["source"] == {"file": path, "footer": "1"}
