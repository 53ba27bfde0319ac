"""Code lists and data dictionaries give a configuration the values that would be typed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from marginweave.base.errors import InputError
from marginweave.configuration.code_lists import column_words
from marginweave.configuration.columns import Category
from marginweave.configuration.load import load_configuration, parse_configuration
from marginweave.configuration.release import Configuration
from tests.support.configurations import raw

SEX = {"1": "male", "2": "female", "9": "not known"}
INDUSTRIES = "code;section;title\n0111;A;Cereals\n0112;A;Rice\n3511;D;Electric power\n"


def loaded(folder: Path, values: Any, **changes: Any) -> Configuration:
    place = folder / "people.yaml"
    place.write_text(
        yaml.safe_dump(raw(columns__sex__values=values, **changes), sort_keys=False),
        encoding="utf-8",
    )
    return load_configuration(place)


@pytest.mark.parametrize(
    ("name", "content", "keys"),
    [
        ("c.csv", "code,title\n1,male\n2,female\n9,not known\n", {"value": "code", "label": "title"}),
        ("c.tsv", "code\ttitle\n1\tmale\n2\tfemale\n9\tnot known\n", {"value": "code", "label": "title"}),
        (
            "c.csv",
            "what;v;l\nage;1;one\nsex;1;male\nsex; 2 ;female\nsex;9;not known\n",
            {"column": "what", "value": "v", "label": "l"},
        ),
        ("c.csv", "name,value,label\nage,1,one\nsex,,Sex\nsex,1,male\nsex,2,female\nsex,9,not known\n", {}),
        ("c.csv", "description;label;value;name\n;male;1;sex\n;female;2;sex\n;not known;9;sex\n", {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_every_shape_is_the_list_that_one_would_type(
    tmp_path: Path, name: str, content: str, keys: dict, encoding: str
) -> None:
    (tmp_path / name).write_text(content, encoding=encoding)
    found = loaded(tmp_path, {"file": name, **keys})
    typed = parse_configuration(raw(columns__sex__values=[*SEX], columns__sex__titles=SEX))
    assert found.canonical() == typed.canonical()
    assert found.default_run == typed.default_run
    column = found.columns["sex"]
    assert isinstance(column, Category)
    assert column.titles == SEX


def test_values_without_titles(tmp_path: Path) -> None:
    typed = parse_configuration(raw(columns__sex__values=["f", "m"])).canonical()
    for name, content in {
        "a.csv": "name,value\nsex,f\nsex,m\n",
        "b.csv": "name,value,label\nsex,f,\nsex,m,\n",
    }.items():
        (tmp_path / name).write_text(content)
        assert loaded(tmp_path, {"file": name}).canonical() == typed, name


def test_the_digest_is_of_the_values_not_of_the_name_of_their_file(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text("code\nf\nm\n")
    before = [
        loaded(tmp_path, {"file": name, "value": "code"}).written_digest
        for name in ("a.csv", "b.csv")
    ]
    (tmp_path / "a.csv").write_text("code\nf\nm\nx\n")
    assert before[0] == before[1]
    assert loaded(tmp_path, {"file": "a.csv", "value": "code"}).written_digest != before[0]


def test_a_determined_column_takes_its_mapping_from_the_same_file(tmp_path: Path) -> None:
    """Codes keep their zeros; the values of the section are those of the list, once each."""
    (tmp_path / "industries.csv").write_text(INDUSTRIES)
    file = {"file": "industries.csv"}
    rule = {
        "column": "region",
        "by": "sex",
        "mapping": {**file, "value": "code", "label": "section"},
    }
    codes, sections = {**file, "value": "code", "label": "title"}, {**file, "value": "section"}
    found = loaded(tmp_path, codes, columns__region__values=sections, structure__determined=[rule])
    assert found.structure is not None
    assert found.structure.determined[0].mapping == {"0111": "A", "0112": "A", "3511": "D"}
    assert found.columns["sex"].labels == ("0111", "0112", "3511")
    assert found.columns["region"].labels == ("A", "D")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"file": "absent.csv", "value": "code"}, "columns.sex.values (absent.csv) does not exist"),
        ({"file": "https://example.org/a.csv", "value": "code"}, "must be a file on this machine"),
        ({"file": "industries.csv", "value": "nace"}, "(industries.csv) has no column 'nace'"),
        ({"file": "industries.csv"}, "is no data dictionary"),
        (
            {"file": "industries.csv", "value": "section", "label": "title"},
            "gives 'A' twice, with different labels",
        ),
        (
            {"file": "industries.csv", "values": "code"},
            "must be a list of values, or {file: codes.csv",
        ),
        ({"file": "list.xlsx", "value": "code"}, "must be a .csv, .tsv or .txt file"),
        ({"file": "other.csv"}, "(other.csv) has no codes for 'sex'"),
        ({"file": "codes.json"}, "must be a .csv, .tsv or .txt file"),
        ({"file": "binary.csv", "value": "code"}, "is no text in UTF-8, UTF-16 or windows-1252"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused_by_its_place(
    tmp_path: Path, values: dict, words: str
) -> None:
    (tmp_path / "industries.csv").write_text(INDUSTRIES)
    (tmp_path / "other.csv").write_text("name,value\nage,1\nsex,\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)))
    with pytest.raises(InputError) as refusal:
        loaded(tmp_path, values)
    assert words in str(refusal.value)


AGE = {"label": "Age in years", "description": "At the last birthday"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "d.csv",
            "name,value,label,description\nsex,,,\nage,,Age in years, At the last birthday \n",
            AGE,
        ),
        (
            "d.tsv",
            "name\tvalue\tlabel\nage\t1\tone\nage\t\tAge in years\n",
            {"label": "Age in years"},
        ),
        ("d.csv", "name,value,label\nage,1,one\n", {}),
        ("d.csv", "what,label\nage,Age\n", {}),
    ],
)
def test_what_a_column_is_called(
    tmp_path: Path, name: str, content: str, words: dict[str, str]
) -> None:
    """The label of a value is not the column's."""
    (tmp_path / name).write_text(content)
    assert column_words(tmp_path / name, "age") == words


def test_a_label_is_public() -> None:
    named = parse_configuration(
        raw(label="People", columns__sex__label=" Sex ", columns__sex__description="As told")
    )
    assert (named.columns["sex"].label, named.columns["sex"].description) == ("Sex", "As told")
    assert "label" not in parse_configuration(raw()).canonical()
    assert named.digest != parse_configuration(raw()).digest
    assert Configuration.from_canonical(named.canonical()).columns["sex"].label == "Sex"
    for wrong in ("", " ", 3, ["Sex"]):
        with pytest.raises(InputError, match=r"columns\.sex\.label .*must be a text"):
            parse_configuration(raw(columns__sex__label=wrong))


def test_titles_are_of_values() -> None:
    with pytest.raises(InputError, match="has a title for 'x', which is none of its values"):
        parse_configuration(raw(columns__sex__titles={"x": "other"}))
    with pytest.raises(InputError, match="must be a mapping of values to their titles"):
        parse_configuration(raw(columns__sex__titles=["female"]))
