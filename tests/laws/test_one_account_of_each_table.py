"""A table has one account, whatever other tables are released with it: the ways around, by brute force.

Of three contents, every source of one, two or three tables is compared with every other: it is refused under a second account
exactly where both have a content. So the root alone, a child alone, a child with another root, and another order of tables are
no way to a second budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from marginweave.ledger.keys import SourceDigest
from marginweave.linked.places import TablePlaces
from marginweave.runs.frame_tables import frame_tables
from tests.support.linked_tables import hospital
from tests.support.releases import ACCOUNT, reserve_release, small_plan

CONTENTS: tuple[bytes, ...] = (b"patients", b"stays", b"")
NAMES = (("",), ("", "a"), ("", "a", "b"), ("", "c"))
SOURCES: list[dict[str, bytes]] = [
    dict(zip(names, contents, strict=True))
    for names in NAMES
    for contents in product(CONTENTS, repeat=len(names))
]


def digest_of(source: Mapping[str, bytes]) -> SourceDigest:
    return SourceDigest.of(bytes(32), {name: [content] for name, content in source.items()})


DIGESTS = [digest_of(source) for source in SOURCES]


@pytest.mark.parametrize("first", range(len(SOURCES)))
def test_a_source_is_refused_for_each_table_that_was_released(first: int) -> None:
    """By its name; of a release whose marks of tables are missing, only one table, or all together, can be known again."""
    mark, table_marks = DIGESTS[first].mark("r"), DIGESTS[first].table_marks("r")
    released = set(SOURCES[first].values())
    for source, digest in zip(SOURCES, DIGESTS, strict=True):
        known = {name for name, content in source.items() if content in released}
        assert set(digest.tables_in("r", mark, table_marks)) == known
        assert not digest.tables_in("other release", mark, table_marks)
        if len(SOURCES[first]) == 1 or digest == DIGESTS[first]:
            assert set(digest.tables_in("r", mark, [])) == known


def test_marks_tell_nothing_of_equal_tables() -> None:
    """No mark is stored twice: neither in one release, nor in two of them, nor beside that of another source."""
    marks = []
    for number, digest in enumerate(DIGESTS):
        for release in (f"r{number}", f"s{number}"):
            marks += [digest.mark(release), *digest.table_marks(release)]
    assert len(set(marks)) == len(marks)


WAYS: list[tuple[dict[str, bytes], str]] = [
    ({"": b"patients"}, "this source was released"),
    ({"": b"stays"}, "this source was released"),
    ({"": b"others", "stays": b"stays"}, r"tables\.stays was released"),
    ({"": b"patients", "stays": b"others"}, "source was released"),
    ({"": b"stays", "patients": b"patients"}, "this source was released"),
    ({"": b"others", "a": b"stays", "b": b"patients"}, r"tables\.a, tables\.b were released"),
]


@pytest.mark.parametrize(("source", "words"), WAYS)
def test_no_way_leads_around_the_account(
    tmp_path: Path, source: dict[str, bytes], words: str
) -> None:
    """In whichever order the two releases are; under the same account both are admitted, and other tables under any."""
    linked = {"": b"patients", "stays": b"stays"}
    for number, (first, second) in enumerate([(linked, source), (source, linked)]):
        ledger = Ledger.create(tmp_path / str(number) / "ledger.sqlite", environment={})
        for dataset in (ACCOUNT.dataset, "twin"):
            account = replace(ACCOUNT, dataset=dataset, epsilon=Decimal(9))
            ledger.accounts.open(account, actor="steward")
        keyed = [
            ledger.keys.source_digest({name: [content] for name, content in each.items()})
            for each in (first, second)
        ]
        reserve_release(ledger, small_plan(), source=keyed[0])
        with pytest.raises(BudgetError, match=words if second is source else "released under"):
            reserve_release(ledger, small_plan(), "second", source=keyed[1], dataset="twin")
        reserve_release(ledger, small_plan(), "third", source="others of all", dataset="twin")
        reserve_release(ledger, small_plan(), "fourth", source=keyed[1])


def test_tables_alone_have_the_bytes_that_they_have_beside_others(tmp_path: Path) -> None:
    """Of files and of frames: a table alone and the same table beside others are known by the same bytes."""
    patients = pd.DataFrame({"patient": [7, 8], "sex": ["f", "m"]})
    stays = pd.DataFrame(
        {
            "patient_id": [7],
            "kind": ["birth"],
            "days": [1],
            "admitted": ["2024-02-01"],
            "discharged": ["2024-02-02"],
        }
    )
    for name, frame in {"patients": patients, "stays": stays}.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    root, child = str(tmp_path / "patients.csv"), str(tmp_path / "stays.csv")
    linked = SourceDigest.of(bytes(32), TablePlaces(root, {"stays": child}).contents())
    for name, place in {"": root, "stays": child}.items():
        assert SourceDigest.of(bytes(32), TablePlaces(place).contents()).base == linked.tables[name]
    frames = frame_tables({"people": patients, "stays": stays}, hospital()).frame
    both = SourceDigest.of(bytes(32), frames.contents())
    alone = hospital(tables=None, columns={"sex": {"type": "category", "values": ["f", "m"]}})
    digest = SourceDigest.of(bytes(32), frame_tables(patients, alone).frame.contents())
    assert digest.base == both.tables[""]
