"""Subjects: whose row it is, which rows are kept, and what becomes of rows that are joined."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from marginweave.configuration.privacy import SubjectUnit
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.rows import kept_rows, subject_digests
from tests.support.configurations import configuration
from tests.support.tables import prepare_rows

DROPPED = -1
DROP = SubjectUnit(column="id", max_records=2)
OWN = SubjectUnit(column="id", max_records=2, missing_subject="own")


def words(purpose: str = "subjects") -> KeyedBits:
    """A fixed key: the tests below give the same numbers every time."""
    return KeyedBits(key=bytes(range(32)), purpose=purpose)


def subjects_of(ids: pa.Array, unit: SubjectUnit, missing: tuple[str, ...]) -> np.ndarray:
    """The subject of every row as a number, in the order in which they occur; -1 for nobody."""
    digests, known = subject_digests(ids, unit, missing, bytes(32), np.arange(len(ids)))
    seen: dict[tuple[int, ...], int] = {}
    return np.array(
        [
            seen.setdefault(tuple(s), len(seen)) if k else DROPPED
            for s, k in zip(digests.tolist(), known, strict=True)
        ],
        np.int64,
    )


def test_ids_compare_as_trimmed_texts() -> None:
    """' a' is a, 1 and 1.0 and 01 are three subjects; what the configuration calls missing is no subject."""
    ids = pa.array(["a", " a ", "1", "1.0", "01", "", "NA", None, "b"])
    subjects = subjects_of(ids, DROP, ("", "NA"))
    assert subjects.tolist() == [0, 0, 1, 2, 3, DROPPED, DROPPED, DROPPED, 4]
    alone = subjects_of(ids, OWN, ("", "NA"))
    assert len(set(alone.tolist())) == len(set(subjects.tolist())) - 1 + 3
    others = np.unique(np.delete(alone, [5, 6, 7]), return_inverse=True)[1]
    assert np.array_equal(others, np.delete(subjects, [5, 6, 7]))


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([7, 7, None, 9]),
        pa.array([7.0, 7.0, float("nan"), 9.0]),
        pa.array(["7", "7", "", "9"]).dictionary_encode(),
    ],
    ids=["integers", "floats with gaps", "dictionary"],
)
def test_ids_of_any_type_are_told_apart(ids: pa.Array) -> None:
    """Parquet and frames write ids as numbers, with NaN for a gap."""
    assert subjects_of(ids, DROP, ("",)).tolist() == [0, 0, DROPPED, 1]


@pytest.mark.parametrize("nobody", [None, "", "  "], ids=["null", "empty", "blank"])
def test_a_row_without_an_id_is_nobodys_whatever_is_missing(nobody: str | None) -> None:
    """With `missing: []` an empty id still follows `missing_subject`: such rows are not one subject."""
    ids = pa.array(["a", nobody, nobody])
    assert subjects_of(ids, DROP, ()).tolist() == [0, DROPPED, DROPPED]
    assert len(set(subjects_of(ids, OWN, ()).tolist())) == 3


def test_no_rows_and_no_subjects() -> None:
    """An empty table, and one in which nobody has an id, give nothing and break nothing."""
    assert kept_rows(np.empty(0, np.int64), 2, words()).tolist() == []
    assert subjects_of(pa.array([], pa.string()), DROP, ("",)).tolist() == []
    assert subjects_of(pa.array(["", None]), DROP, ("",)).tolist() == [DROPPED, DROPPED]
    assert kept_rows(subjects_of(pa.array(["", None]), OWN, ("",)), 1, words()).tolist() == [
        True,
        True,
    ]


def test_a_digest_needs_the_key() -> None:
    """What is set aside on disk tells nothing of an id to whoever has not the key."""
    ids = pa.array(["a", "b"])
    one, other = (
        subject_digests(ids, DROP, ("",), key, np.arange(2))[0]
        for key in (bytes(32), bytes(31) + b"1")
    )
    assert len(np.unique(np.concatenate([one.ravel(), other.ravel()]))) == 8


@pytest.mark.parametrize("most", [1, 2, 3])
def test_every_choice_of_rows_is_as_likely(most: int) -> None:
    """20,000 subjects with 1 to 4 rows, shuffled: min(theta, rows) are kept, every subset of 4 rows as often; alarm 1e-6."""
    people = 20_000
    owners = np.repeat(np.arange(people), np.arange(people) % 4 + 1)
    order = np.argsort(words("shuffle").words_at(0, len(owners)))
    subjects, place = owners[order], np.empty(len(owners), np.int64)
    place[order] = np.arange(len(owners))
    kept = kept_rows(subjects, most, words())[place]
    held = np.bincount(owners, weights=kept)
    assert np.array_equal(held, np.minimum(np.arange(people) % 4 + 1, most))
    four = kept[owners % 4 == 3]
    patterns = Counter(map(tuple, four.reshape(-1, 4).tolist()))
    assert len(patterns) == {1: 4, 2: 6, 3: 4}[most]
    assert stats.chisquare(list(patterns.values())).pvalue > 1e-6


def test_the_words_of_other_rows_do_not_matter() -> None:
    """Coupling: the rows kept of one subject follow from its own words, wherever they stand among other subjects' rows."""
    alone = kept_rows(np.zeros(5, np.int64), 2, Fixed([5, 1, 4, 2, 3]))
    among = kept_rows(np.array([1, 0, 0, 2, 0, 0, 0]), 2, Fixed([0, 5, 1, 0, 4, 2, 3]))
    assert alone.tolist() == [False, True, False, True, False]
    assert among.tolist() == [True, False, True, True, False, True, False]


class Fixed:
    """Words that a test writes down."""

    def __init__(self, values: list[int]) -> None:
        self._values = values

    def words_of(self, records: np.ndarray, slots: np.ndarray | int = 0) -> np.ndarray:
        assert (len(records), slots) == (len(self._values), 0)
        return np.array(self._values, np.uint64)


JOINED = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "age": {"type": "number", "bounds": [0, 100], "bins": 5},
    "seen": {"type": "date", "bounds": ["2020-01-01", "2020-12-31"], "bins": "month"},
    "well": {"type": "boolean"},
    "signs": {"type": "set", "values": ["cough", "fever", "rash"], "max_values": 2},
}


def test_rows_of_a_subject_become_one_record() -> None:
    """Sets unite (the cap waits), agreed values stay, conflicts and gaps are missing; a gap is no conflict."""
    raw = pa.table(
        {
            "sex": ["f", "m", "f", "m", "x"],
            "age": ["30", "40", "", "41", "nonsense"],
            "seen": ["2020-02-01", "2020-03-01", "2020-02-01", "2020-03-01", ""],
            "well": ["yes", "no", "true", "yes", ""],
            "signs": ["fever", "rash", "cough;rash", "", ""],
            "id": ["b", "a", " b", "a", ""],
        }
    )
    joined = configuration(columns=JOINED, privacy__unit={"column": "id", "join": True})
    records = prepare_rows(raw, joined).to_pylist()
    assert [r["sex"] for r in records] == ["f", "m"]
    assert [r["age"] for r in records] == [30.0, None]
    assert [r["seen"].isoformat() for r in records] == ["2020-02-01", "2020-03-01"]
    assert [r["well"] for r in records] == ["true", None]
    assert [r["signs"] for r in records] == [["cough", "fever", "rash"], ["rash"]]
    kept = configuration(
        columns=JOINED, privacy__unit={"column": "id", "join": True, "missing_subject": "own"}
    )
    records = prepare_rows(raw, kept).to_pylist()
    assert len(records) == 3
    assert records[2] == dict.fromkeys(JOINED)


def test_a_joined_column_can_be_missing_even_where_the_table_has_no_gaps() -> None:
    """Rows that disagree leave no value, so the output may have none, and the percentile is bought."""
    sure = {"sex": {**JOINED["sex"], "missing": [], "outside": "error"}}
    assert configuration(columns=sure).optional == (False,)
    assert configuration(
        columns=sure, privacy__unit={"column": "id", "max_records": 3}
    ).optional == (False,)
    assert configuration(columns=sure, privacy__unit={"column": "id", "join": True}).optional == (
        True,
    )


@pytest.mark.parametrize("unit", [{"max_records": 1}, {"join": True}], ids=["sampled", "joined"])
def test_an_empty_table_stays_one(unit: dict) -> None:
    """No rows, and no rows with an id."""
    config = configuration(columns=JOINED, privacy__unit={"column": "id", **unit})
    for rows in (0, 2):
        raw = pa.table({name: pa.array([""] * rows, pa.string()) for name in (*JOINED, "id")})
        assert prepare_rows(raw, config).num_rows == 0
