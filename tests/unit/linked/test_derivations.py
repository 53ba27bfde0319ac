"""What follows from the cells of linked rows that are not plain: codes, values beyond bounds, gaps, ids in other spellings."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from marginweave.base.errors import InputError
from marginweave.ledger.keys import SourceDigest
from marginweave.linked.places import TablePlaces
from marginweave.linked.source import ReleaseSource, UnlinkedRows
from tests.support.linked_tables import (
    HOSPITAL,
    STAYS,
    Stay,
    derived_rows,
    hospital,
    linked_source,
)

CONFIG = hospital()
PATIENTS = [("7", "f"), ("8", "m")]


def derived(*stays: Stay, **changes: Any) -> dict[str, Any]:
    """The derived cells of a patient with these stays, beside one without any."""
    config = hospital(**changes) if changes else CONFIG
    first, second = derived_rows(linked_source(config, PATIENTS, [("7", stay) for stay in stays]))
    assert second["stays"] == 0
    return first


def table(**changes: Any) -> dict[str, Any]:
    """The section of a hospital whose linked table has other keys."""
    return {"stays": {**STAYS, **changes}}


def test_a_unit_without_rows_has_0_false_and_no_end() -> None:
    assert derived() == {
        "patient": "7", "sex": "f", "stays": 0, "emergency": False, "longest": None, "first": None,
        "readmitted": "no",
    }  # fmt: skip


def test_a_cell_that_is_not_as_declared_meets_no_condition_and_is_no_end() -> None:
    odd = Stay(kind="unheard of", days="40", admitted="soon", discharged="")
    row = derived(odd, Stay(days="many"), replace(odd, kind=None))
    assert row["stays"] == 3
    assert (row["emergency"], row["longest"], row["first"]) == (None, None, None)
    row = derived(odd, Stay("emergency"), Stay(days="60", admitted="2024-01-01"))
    assert (row["emergency"], row["longest"], row["first"]) == (True, 60, date(2024, 1, 1))


def test_with_outside_null_a_cell_that_is_no_value_is_missing() -> None:
    """That is declared on purpose: it meets no condition and is no end, as one that is missing."""
    columns = {name: {**column, "outside": "null"} for name, column in STAYS["columns"].items()}
    odd = Stay("unheard of", "40", "soon", "soon")
    row = derived(odd, Stay(days="many"), tables=table(columns=columns))
    assert (row["emergency"], row["longest"], row["readmitted"]) == (False, None, "no")
    assert row["first"] == date(2024, 2, 1)
    assert not hospital(tables=table(columns=columns)).undeclared_flags


def test_but_is_met_by_values_alone() -> None:
    any_other = table(
        derive={**STAYS["derive"], "emergency": {"any": {"kind": {"but": "planned"}}}}
    )
    for kind, is_met in (("birth", True), ("planned", False), (None, False), ("unheard of", None)):
        assert derived(Stay(kind=kind), tables=any_other)["emergency"] == is_met


def test_all_conditions_are_of_one_row() -> None:
    both = table(
        derive={**STAYS["derive"], "emergency": {"any": {"kind": "birth", "days": {"from": 15}}}}
    )
    apart = (Stay("birth", "3"), Stay("planned", "20"))
    assert not derived(*apart, tables=both)["emergency"]
    assert derived(*apart, Stay("birth", "15"), tables=both)["emergency"]


def test_a_code_of_a_number_is_no_end_and_a_number_beyond_the_bounds_is_the_bound() -> None:
    assert derived(Stay(days="99"), Stay(days="7"))["longest"] == 7
    assert derived(Stay(days="99"))["longest"] is None
    assert derived(Stay(days="1000"))["longest"] == 60
    assert derived(Stay("birth", "-4"))["longest"] == 0


def test_a_date_beyond_the_bounds_is_the_one_that_is_written() -> None:
    """Moved to the bounds, all would be on the last day of the year."""
    late = Stay(admitted="2031-01-01", discharged="2031-01-05")
    assert derived(late, replace(late, admitted="2031-01-09"))["readmitted"] == "yes"
    assert derived(late, replace(late, admitted="2031-03-09"))["readmitted"] == "no"
    assert derived(late, Stay(), Stay(admitted="2024-03-03"))["readmitted"] == "yes"


def test_a_row_is_not_readmitted_to_itself() -> None:
    day = Stay(admitted="2024-02-01", discharged="2024-02-01")
    assert derived(day)["readmitted"] == "no"
    assert derived(day, day)["readmitted"] == "yes"
    assert derived(Stay(), Stay(admitted="2024-03-03"))["readmitted"] == "yes"
    assert derived(Stay(), Stay(admitted="2024-03-04"))["readmitted"] == "no"


def test_moments_are_compared_to_the_second() -> None:
    dates = {
        name: {**STAYS["columns"][name], "type": "datetime"} for name in ("admitted", "discharged")
    }
    derive = {key: rule for key, rule in STAYS["derive"].items() if key != "first"}
    linked = table(columns={**STAYS["columns"], **dates}, derive=derive)
    columns = {name: column for name, column in HOSPITAL["columns"].items() if name != "first"}
    config = hospital(tables=linked, columns=columns)
    for second, is_near in ((0, True), (1, False)):
        stays = [
            Stay(admitted="2024-02-01 08:00:00", discharged="2024-02-01 10:00:00"),
            Stay(admitted=f"2024-03-02 10:00:0{second}", discharged="2024-04-01 00:00:00"),
        ]
        source = linked_source(config, PATIENTS, [("7", stay) for stay in stays])
        tables = list(source.tables(["patient", "readmitted"]))
        cells = [cell for table in tables for cell in table.column("readmitted").to_pylist()]
        assert cells == ["yes" if is_near else "no", "no"]


def test_ids_are_compared_as_the_unit_compares_them() -> None:
    """Blanks around an id do not count; any other spelling is another person."""
    patients = [(" 7", "f"), ("07", "m"), ("7.0", "m"), ("p", "f"), ("7", "f")]
    source = linked_source(CONFIG, patients, [("7 ", Stay()), (" 7", Stay()), ("P", Stay())])
    assert [row["stays"] for row in derived_rows(source)] == [2, 0, 0, 0, 2]
    assert source.unlinked["stays"] == UnlinkedRows(rows=3, without_id=0, orphans=1)


@pytest.mark.parametrize("missing_subject", ["drop", "own"])
def test_nobody_has_the_rows_without_an_id(missing_subject: str) -> None:
    """Missing texts of either table mean "no id"; rows without an id are no rows of each other."""
    unit = {"column": "patient", "max_records": 1, "missing_subject": missing_subject}
    config = hospital(
        missing=["", "none"],
        privacy={"epsilon": 1, "delta": 1e-6, "unit": unit},
        tables=table(missing=["", "?"]),
    )
    patients = [(None, "f"), ("", "m"), ("none", "m"), ("?", "f"), ("7", "f")]
    stays = [
        (None, Stay()),
        ("", Stay()),
        (" ", Stay()),
        ("none", Stay()),
        ("?", Stay()),
        ("7", Stay()),
        ("x", Stay()),
    ]
    source = linked_source(config, patients, stays)
    assert [row["stays"] for row in derived_rows(source)] == [0, 0, 0, 0, 1]
    assert source.unlinked["stays"] == UnlinkedRows(rows=7, without_id=5, orphans=1)


def test_ids_of_other_types_are_their_texts(tmp_path: Path) -> None:
    """Whole numbers of a Parquet file are the texts of a CSV file; floats are refused, in either table."""
    pd = pytest.importorskip("pandas")
    (tmp_path / "patients.csv").write_text("patient,sex\n7,f\n8,m\n")
    stays = pd.DataFrame([vars(Stay()), vars(Stay("birth"))]).assign(patient_id=[8, 8])
    stays.to_parquet(tmp_path / "stays.parquet")
    config = hospital(tables=table(source="stays.parquet"))
    places = TablePlaces.of(config, str(tmp_path / "patients.csv"), tmp_path, {})
    assert [row["stays"] for row in derived_rows(ReleaseSource.of(places, config))] == [0, 2]
    stays.assign(patient_id=[8.0, 8.0]).to_parquet(tmp_path / "stays.parquet")
    with pytest.raises(InputError, match=r"tables\.stays: source has the column 'patient_id' with"):
        ReleaseSource.of(places, config).check_header()


def test_numbers_are_spelled_as_the_linked_table_declares(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient,sex\n7,f\n")
    (tmp_path / "stays.csv").write_text(
        "patient_id;kind;days;admitted;discharged\n7;planned;12,0;2024-02-01;2024-02-13\n"
    )
    form = {"file": "stays.csv", "delimiter": "semicolon", "decimal": "comma"}
    config = hospital(tables=table(source=form))
    places = TablePlaces.of(config, str(tmp_path / "patients.csv"), tmp_path, {})
    assert derived_rows(ReleaseSource.of(places, config))[0]["longest"] == 12


def test_the_digest_is_of_all_tables(tmp_path: Path) -> None:
    """Bytes that move from one table to the next, or to another name, are other bytes; one table has its bytes alone."""
    for name, content in {"a.csv": "x\n1\n", "b.csv": "y\n2\n", "c.csv": "y\n2\nx\n1\n"}.items():
        (tmp_path / name).write_text(content)
    a, b, c = (str(tmp_path / name) for name in ("a.csv", "b.csv", "c.csv"))
    places = [
        TablePlaces(a), TablePlaces(a, {"b": b}), TablePlaces(a, {"c": b}), TablePlaces(b, {"b": a}),
        TablePlaces(a, {"b": a, "c": b}), TablePlaces(a, {"b": b, "c": a}), TablePlaces(c),
    ]  # fmt: skip
    digests = [SourceDigest.of(bytes(32), each.contents()) for each in places]
    assert len({digest.base for digest in digests}) == len(digests)
    content = (4).to_bytes(8, "big") + b"x\n1\n"
    assert SourceDigest.of(bytes(32), {"": [content]}) == digests[0]


def test_any_table_that_changes_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient,sex\n7,f\n")
    stays = tmp_path / "stays.csv"
    stays.write_text("patient_id,kind,days,admitted,discharged\n")
    places = TablePlaces.of(CONFIG, str(tmp_path / "patients.csv"), tmp_path, {})
    with (
        pytest.raises(InputError, match="changed"),
        ReleaseSource.of(places, CONFIG).unchanged("changed"),
    ):
        stays.write_text("patient_id,kind,days,admitted,discharged\n7,planned,1,,\n")
