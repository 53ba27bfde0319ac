"""A draft of several files finds their keys, asks before it is used, and fits the tables: over families made at random."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.drafts.draft import DraftedSource, draft_linked
from marginweave.drafts.draft_text import write_draft
from marginweave.drafts.drafted_configuration import ConfigurationDraft
from marginweave.drafts.found_keys import Family as FoundFamily
from marginweave.drafts.found_keys import IdColumn
from marginweave.drafts.recognise import recognise
from marginweave.drafts.tally import Usability
from marginweave.linked.derivations import linked_values
from marginweave.linked.places import TablePlaces
from marginweave.linked.source import ReleaseSource
from tests.support.drafted_releases import answered_yes
from tests.support.families import Family, family
from tests.support.samples import every

SEEDS = range(120)


def drafted(folder: Path, made: Family, order: list[str]) -> tuple[ConfigurationDraft, FoundFamily]:
    """The draft of the files in this order, as `init` makes it."""
    sources = []
    for place in made.written(folder, order):
        form = recognise(str(place), SourceFile(file=place.name), encoding=True)
        sources.append(DraftedSource(place=str(place), form=form))
    return draft_linked(sources)


@pytest.mark.parametrize("seed", every(30, SEEDS))
def test_a_draft_of_several_files_fits_them(tmp_path: Path, seed: int) -> None:
    """Its keys are those of the family, in whichever order the files are named; each question is one line of the draft.

    Unanswered it is refused; answered yes it is a configuration that reads every cell of a derived column as a value, or as
    missing, and every cell of a column of a linked table as declared.
    """
    made = family(seed)
    order = random.Random(seed).sample([*made.files], len(made.files))
    draft, found = drafted(tmp_path, made, order)
    assert (found.root, found.key) == ("patients", made.key)
    assert {name: link.by for name, link in found.children.items()} == made.children
    assert [*found.below] == made.below
    for table in draft.tables:
        assert table.link.orphans == made.orphans[table.name]
        assert table.link.without_id == made.without_id[table.name]
    text = write_draft(draft)
    body = "".join(line for line in text.splitlines(keepends=True) if line[0] != "#")
    assert body.count("confirm: true") == draft.question_count
    with pytest.raises(InputError, match=f"{draft.question_count} questions are open") as refused:
        parse_configuration(parse_yaml(text), text)
    assert str(refused.value).count("(line ") == min(draft.question_count, 10)
    counted = parse_configuration(answered_yes(text.replace("# at_most:", "at_most:")))
    assert set(counted.counted_tables) == {each.name for each in draft.tables if each.columns}
    configuration = parse_configuration(answered_yes(text))
    places = TablePlaces.of(configuration, str(tmp_path / "patients.csv"), tmp_path, {})
    source = ReleaseSource.of(places, configuration)
    source.check_columns()
    usability = Usability(configuration)
    for block in source.tables(configuration.raw_names):
        usability.add(block)
    for name, tally in usability.tallies.items():
        assert not tally.unread, name
        assert name in configuration.derived or not tally.beyond, name
    for linked in source.linked:
        for block in linked.tables():
            for name in linked.table.read_names:
                judged = linked_values(configuration, linked.table, name).judge(
                    block.column(name).combine_chunks()
                )
                assert not judged.cells[judged.unread | judged.beyond].sum(), (linked.name, name)


@pytest.mark.parametrize("seed", every(60, SEEDS))
def test_no_count_of_rows_without_a_unit_is_in_the_draft(tmp_path: Path, seed: int) -> None:
    """With other numbers of orphans, and of rows without an id, it is the same text."""
    draft, _ = drafted(tmp_path, made := family(seed), [*made.files])
    tables = []
    for table in draft.tables:
        ids = table.link.ids
        more = IdColumn(
            pa.concat_arrays([ids.texts, pa.array(["n-8"])]), np.append(ids.counts, 41), 9999
        )
        link = replace(table.link, ids=more)
        assert link.orphans != table.link.orphans
        tables.append(replace(table, link=link))
    assert write_draft(replace(draft, tables=tables)) == write_draft(draft)


def _csv(**columns: list[str]) -> str:
    rows = [[*columns], *zip(*columns.values(), strict=True)]
    return "".join(",".join(row) + "\n" for row in rows)


IDS = [f"p{number}" for number in range(20)]
NO_KEYS: dict[str, tuple[dict[str, str], str]] = {
    "no column of the same name": (
        {"patients": _csv(patient=IDS), "stays": _csv(who=IDS * 2)},
        "no table of patients, stays has a column of ids that another one refers to",
    ),
    "a key that is in several rows": (
        {"patients": _csv(patient=IDS * 2), "stays": _csv(patient=IDS * 3)},
        "no table of patients, stays has a column of ids",
    ),
    "ids of other people": (
        {"patients": _csv(patient=IDS), "stays": _csv(patient=["q1", "q2", "q1", *IDS[:2]])},
        "no table of patients, stays has a column of ids",
    ),
    "two numbers of rows": (
        {"patients": _csv(id=IDS, sex=["f"] * 20), "stays": _csv(id=IDS, kind=["a"] * 20)},
        "no table of patients, stays has a column of ids",
    ),
    "one table that belongs to nobody": (
        {"patients": _csv(patient=IDS), "stays": _csv(patient=IDS * 2), "wards": _csv(ward=IDS)},
        "wards has no column with the ids of patients: give it the column 'patient'",
    ),
    "a table without rows": (
        {"patients": _csv(patient=IDS), "stays": "patient,kind\n"},
        "no table of patients, stays has a column of ids",
    ),
}


@pytest.mark.parametrize("case", NO_KEYS)
def test_tables_without_a_key_are_refused(tmp_path: Path, case: str) -> None:
    """In one sentence that says what a key is, whatever the order of the files."""
    files, words = NO_KEYS[case]
    made = Family(files=files, key="", children={}, below=(), orphans={}, without_id={})
    with pytest.raises(InputError, match=words):
        drafted(tmp_path, made, [*files])


def test_of_one_to_one_tables_the_first_is_the_root(tmp_path: Path) -> None:
    made = Family(
        files={"a": _csv(patient=IDS, sex=["f", "m"] * 10), "b": _csv(patient=IDS, ward=["1", "2"] * 10)},
        key="", children={}, below=(), orphans={}, without_id={},
    )  # fmt: skip
    for order in (["a", "b"], ["b", "a"]):
        draft, found = drafted(tmp_path, made, order)
        assert found.root == order[0]
        assert draft.tables[0].link.is_one_to_one
        assert not any("within" in each.rule for each in draft.tables[0].derived)
