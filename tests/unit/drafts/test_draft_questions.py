"""What `init` asks: whose privacy, how many rows, in which order values stand, and where numbers are skewed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import load_configuration, parse_configuration
from marginweave.configuration.values import number
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.column_draft import ColumnDraft
from marginweave.drafts.drafted_columns import propose_column
from marginweave.drafts.orders import in_order
from marginweave.drafts.subjects import near_on_grid, subject_of
from marginweave.drafts.table_facts import column_cells
from tests.support.drafts import answered, drafted_text

FILE = SourceFile.model_validate({"file": "t.csv"})


def draft_of(place: Path, lines: list[str], **options: object) -> dict[str, object]:
    (place / "t.csv").write_text("\n".join(lines) + "\n")
    return parse_yaml(drafted_text(str(place / "t.csv"), FILE, **options))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "ordered",
    [
        ["low", "mid", "high"],
        ["Jan", "Feb", "Mar", "Dec"],
        ["monday", "tuesday", "sunday"],
        ["<18", "18-24", "25-64", "65+"],
        ["never", "sometimes", "always"],
        ["strongly disagree", "neutral", "strongly agree"],
        ["nie", "selten", "manchmal", "oft", "immer"],
        ["Niedrig", "mittel", "hoch"],
        ["mangelhaft", "befriedigend", "gut", "sehr gut", "weiß nicht"],
        ["Jan", "Mär", "Mai", "Dez"],
        ["unter 18", "18 bis 65", "über 65"],
        ["jamais", "parfois", "toujours"],
        ["muy malo", "regular", "bueno"],
        ["ja", "nein"],
        ["2", "9", "10"],
        ["a", "b", "z"],
        ["mayor", "march hare"][::-1],
    ],
)
def test_values_stand_as_people_write_them(ordered: list[str]) -> None:
    for seed in range(5):
        mixed = random.Random(seed).sample(ordered, len(ordered))
        assert in_order(mixed) == ordered


@given(
    st.lists(
        st.text(st.characters(categories=("L", "N")), min_size=1, max_size=6),
        min_size=1,
        max_size=8,
        unique=True,
    )
)
def test_no_text_is_lost_or_made_up(texts: list[str]) -> None:
    """Of two spellings of one number one stays; of texts that are no numbers all."""
    ordered = in_order(texts)
    assert set(ordered) <= set(texts)
    assert len(ordered) == len(set(ordered))
    assert {text for text in texts if number(text) is None} <= set(ordered)


@given(st.integers(1, 10**9))
def test_rows_are_an_order_of_size(rows: int) -> None:
    """A number of the grid, at most a factor sqrt(2.5) away, and the same for many numbers of rows."""
    about = near_on_grid(rows)
    assert str(about).rstrip("0") in {"1", "2", "5"}
    assert 0.63 <= about / rows <= 1.6


def test_a_subject_is_found_by_name_and_repetition() -> None:
    ids = [f"p{i // 3}" for i in range(300)]
    assert subject_of(pa.table({"patient_id": ids, "sex": ["f"] * 300})) is not None
    subject = subject_of(pa.table({"PatientID": ids}))
    assert subject is not None
    assert (subject.column, subject.most, round(subject.mean, 2)) == ("PatientID", 3, 3.0)
    assert all(
        subject_of(pa.table({name: ids}))
        for name in ("Fallnummer", "Pat.-Nr.", "Patientennummer", "versicherten_nr")
    )
    for name, values in (
        ("grade", ids),
        ("paid", ids),
        ("patient_id", [f"p{i}" for i in range(300)]),
        ("patient_id", ["a", "b"] * 150),
    ):
        assert subject_of(pa.table({name: values})) is None


def test_nothing_runs_before_the_unit_and_the_rows_are_confirmed(tmp_path: Path) -> None:
    lines = ["patient_id,sex", *(f"p{i // 2},{'fm'[i % 2]}" for i in range(200))]
    drafted = draft_of(tmp_path, lines)
    assert drafted["privacy"]["unit"] == {"column": "patient_id", "max_records": 2}  # pyright: ignore[reportIndexIssue]
    assert drafted["rows"] == {"about": 200, "confirm": True}
    drafted["columns"] = {"sex": {"type": "category", "values": ["f", "m"]}}
    with pytest.raises(InputError, match=r"privacy was drafted and waits for confirmation"):
        parse_configuration(drafted)
    del drafted["privacy"]["confirm"]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(
        InputError,
        match=r"rows was drafted from the data.*delete the line unless the size is published",
    ):
        parse_configuration(drafted)
    assert parse_configuration({**drafted, "rows": 200}).rows == 200


def test_skewed_numbers_have_log_bins_and_free_text_no_texts() -> None:
    rng = random.Random(3)
    cost = propose_column(
        column_cells(
            "cost", pa.chunked_array([[f"{rng.lognormvariate(7, 1.5):.2f}" for _ in range(500)]])
        )
    )
    assert cost.facts["bins"] == {"log": 12, "smallest": 10}
    even = propose_column(
        column_cells("score", pa.chunked_array([[str(rng.randint(0, 99)) for _ in range(500)]]))
    )
    assert even.facts["bins"] == 10
    texts = [f"the patient was seen by a doctor of ward {i % 9} and went home" for i in range(60)]
    note = propose_column(column_cells("note", pa.chunked_array([texts])))
    assert (note.type, note.facts, "free text" in note.remark) == ("identifier", {}, True)


def look(cells: list[str], name: str = "x") -> ColumnDraft:
    return propose_column(column_cells(name, pa.chunked_array([cells])))


def test_the_median_of_the_cells_says_what_is_skewed() -> None:
    """Counts with many zeros and a long tail, whose different values are even; as many log bins as have a whole number each."""
    visits = look(["0"] * 500 + ["1"] * 300 + [str(i) for i in range(78)])
    assert visits.facts["bins"] == {"log": 12}
    assert look(["0"] * 500 + [str(i) for i in range(31)]).facts["bins"] == {"log": 8}
    assert look([str(i) for i in range(78)] * 3).facts["bins"] == 10


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([str(i) for i in range(1, 21)], "identifier"),
        ([str(i) for i in range(20)][::-1], "identifier"),
        ([str(100_000 + i) for i in range(51)], "identifier"),
        ([str(1947 + i) for i in range(16)], "number"),
        ([str(i) for i in range(1, 40) if i != 7], "number"),
        ([str(i) for i in range(1, 21)] * 2, "number"),
    ],
)
def test_a_column_that_numbers_the_rows_is_dropped(cells: list[str], kind: str) -> None:
    """Whole numbers without a gap, each once: from 0 or 1 on, or many of them; sixteen years are no numbers of rows."""
    assert look(cells).type == kind


def test_a_data_dictionary_answers_for_its_columns(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("name,value,label\nsex,f,female\nsex,m,male\nsex,x,other\n")
    lines = ["sex,age", *(f"{'fm'[i % 2]},{i % 90}" for i in range(200))]
    columns: Any = draft_of(tmp_path, lines, dictionary="d.csv", below=tmp_path)["columns"]
    assert columns["sex"] == {
        "type": "category",
        "values": {"file": "d.csv"},
        "public": "data dictionary d.csv",
    }
    assert columns["age"]["confirm"] is True
    (tmp_path / "e.csv").write_text("name,value\nother,a\n")
    with pytest.raises(InputError, match=r"e\.csv has no codes for any column"):
        draft_of(tmp_path, lines, dictionary="e.csv", below=tmp_path)


def test_a_column_of_the_dictionary_is_counted(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("name,value\ncountry,NO\ncountry,SE\n")
    (tmp_path / "t.csv").write_text(
        "\n".join(["case_id,country", *(f"c{i},NO" for i in range(60))]) + "\n"
    )
    assert "No column of this table is counted" in drafted_text(str(tmp_path / "t.csv"), FILE)
    text = drafted_text(str(tmp_path / "t.csv"), FILE, "d.csv", tmp_path)
    assert parse_yaml(text)["columns"]["country"]["type"] == "category"
    assert "No column of this table is counted" not in text


@pytest.mark.parametrize("codes", [range(60), range(100, 103)], ids=["its own", "others"])
def test_the_column_of_the_subjects_stays_an_identifier(tmp_path: Path, codes: range) -> None:
    """Of another type it would be refused in `privacy.unit`; its remark says why it is there."""
    ids = [f"person_id,{i},person {i}" for i in codes]
    (tmp_path / "d.csv").write_text(
        "\n".join(["name,value,label", "person_id,,Person", *ids]) + "\n"
    )
    lines = ["person_id,sex", *(f"{i % 60},{'fm'[i % 2]}" for i in range(240))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    text = drafted_text(str(tmp_path / "t.csv"), FILE, "d.csv", tmp_path)
    drafted = parse_yaml(text)
    assert drafted["privacy"]["unit"]["column"] == "person_id"
    assert drafted["columns"]["person_id"] == {
        "type": "identifier",
        "label": "Person",
        "confirm": True,
    }
    assert "it tells the people apart" in text
    parse_configuration(parse_yaml(answered(text, "a code list")))


def test_a_dictionary_in_german_is_read_and_its_codes_must_fit(tmp_path: Path) -> None:
    """Codes that most cells are none of are not declared: the column keeps its draft, and the steward is asked."""
    (tmp_path / "d.csv").write_text(
        "name;value;label;description\nsex;;Geschlecht;Wie im Pass\nsex;f;weiblich;\nsex;m;männlich;\nsex;x;divers;\n"
        "ort;;Ort;\nort;1;Köln;\nort;2;Bonn;\nort;3;Trier;\nage;;Alter;\nage;998;verweigert;\nage;999;unbekannt;\n"
    )
    rows = [f"{'fm'[i % 2]},{'KB'[i % 2]},{999 if i % 20 == 0 else i % 90}" for i in range(200)]
    (tmp_path / "t.csv").write_text("\n".join(["sex,ort,age", *rows]) + "\n")
    text = drafted_text(str(tmp_path / "t.csv"), FILE, "d.csv", tmp_path)
    columns = parse_yaml(text)["columns"]
    assert columns["sex"]["public"] == "data dictionary d.csv"
    assert (columns["sex"]["label"], columns["sex"]["description"]) == ("Geschlecht", "Wie im Pass")
    assert columns["ort"] == {
        "type": "category",
        "values": ["B", "K"],
        "label": "Ort",
        "confirm": True,
    }
    assert "none of the dictionary's codes" in text
    assert columns["age"]["codes"] == {"999": "unbekannt"}
    assert columns["age"]["confirm"] is True


def test_a_data_dictionary_names_columns_and_does_not_bend_numbers(tmp_path: Path) -> None:
    """Codes of which a number shows few stand beside its values: it stays a number, and the steward is told."""
    (tmp_path / "d.csv").write_text(
        "name,value,label\nage,,Age in years\nage,998,refused\nage,999,unknown\nroute,,Route\n"
        + "".join(f"route,{i},line {i}\n" for i in range(40))
        + "sex,,Sex\n"
    )
    lines = ["sex,age,route", *(f"{'fm'[i % 2]},{i % 90},{i % 30}" for i in range(200))]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    text = drafted_text(str(tmp_path / "t.csv"), FILE, "d.csv", tmp_path)
    columns = parse_yaml(text)["columns"]
    assert columns["sex"] == {
        "type": "category",
        "values": ["f", "m"],
        "label": "Sex",
        "confirm": True,
    }
    assert {key: columns["age"][key] for key in ("type", "label", "confirm")} == {
        "type": "number",
        "label": "Age in years",
        "confirm": True,
    }
    assert "the dictionary has codes for it" in text
    assert (columns["route"]["type"], columns["route"]["public"]) == (
        "category",
        "data dictionary d.csv",
    )


def test_a_code_of_the_dictionary_is_no_missing_text(tmp_path: Path) -> None:
    """As N, not applicable, of a survey of the census: the draft, once answered, is accepted and has it as a value."""
    codes = {"N": "N/A (less than 16 years old)", **{str(i): f"industry {i}" for i in range(30)}}
    lines = [f"work,{code},{title}" for code, title in codes.items()]
    (tmp_path / "d.csv").write_text(
        "\n".join(["name,value,label", *lines, "sex,1,Male", "sex,2,Female"]) + "\n"
    )
    rows = [f"{'N' if i % 3 == 0 else i % 29},{1 + i % 2 if i % 5 else 'X'}" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["work,sex", *rows]) + "\n")
    text = answered(drafted_text(str(tmp_path / "t.csv"), FILE, "d.csv", tmp_path), "a code list")
    (tmp_path / "t.yaml").write_text(text)
    work = load_configuration(tmp_path / "t.yaml").columns["work"]
    assert isinstance(work, ValuedColumn)
    assert (work.values, work.missing) == (tuple(codes), None)
