"""Rules between columns mean what is written: whatever the order of keys, private values, or conditions that say nothing."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import broken_records, domain_sizes, rule_masks
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.prepare.codes import EncodedTable
from marginweave.prepare.repair import Repair
from tests.support.configurations import configuration

SEX = {"type": "category", "values": ["f", "m"], "missing": []}
PREGNANT = {"type": "category", "values": ["yes", "no", "unsure"], "missing": ["NA"]}
AGE = {"type": "number", "bounds": [0, 100], "bins": [0, 15, 65, 100], "decimals": 0, "missing": []}
TOWN = {"type": "category", "domain": "private", "impute": {"weights": {"x": 1}}}
VISITS: dict[str, Any] = {
    "arrival": {
        "type": "date",
        "bounds": ["2024-01-01", "2024-12-31"],
        "bins": "month",
        "missing": [],
    },
    "leaving": {
        "type": "date",
        "bounds": ["2024-01-01", "2025-03-31"],
        "bins": "month",
        "missing": [""],
    },
    "stay": {"type": "number", "bounds": [0, 90], "bins": [0, 1, 7, 90], "decimals": 0},
}


def repaired(
    declared: Configuration, labels: Sequence[Sequence[str]], codes: Sequence[int]
) -> list[int]:
    table = EncodedTable(
        labels=tuple(map(tuple, labels)), codes=tuple(np.array([code], np.uint8) for code in codes)
    )
    words = RecordWords(
        words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.zeros(1, np.int64)
    )
    return [int(column[0]) for column in Repair(declared, labels)(table, words).codes]


@pytest.mark.parametrize("rule", [{"pregnant": "yes", "sex": "m"}, {"sex": "m", "pregnant": "yes"}])
def test_the_column_that_is_declared_first_stays(rule: dict[str, str]) -> None:
    """A man who is pregnant is a man, in the run as well, which reads the configuration back with its keys sorted."""
    declared = configuration(
        columns={"sex": SEX, "pregnant": PREGNANT}, structure={"forbidden": [rule]}
    )
    for read in (declared, Configuration.from_canonical(declared.canonical())):
        assert repaired(read, [a.labels for a in read.attributes], [1, 0]) == [1, 3]


def test_private_values_change_no_other_record() -> None:
    """Who lives in the towns x and y cannot be both; that nobody lives elsewhere is not public."""
    rules = [{"sex": "m", "town": "x"}, {"pregnant": "yes", "town": "y"}]
    columns = {"sex": SEX, "pregnant": PREGNANT, "town": TOWN}
    declared = configuration(columns=columns, structure={"forbidden": rules})
    public = [list(a.labels) for a in declared.attributes[:2]]
    for towns in (["x", "y"], ["x", "y", "z"], ["x"]):
        assert repaired(declared, [*public, towns], [1, 0, 0]) == [1, 0, 0]


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({"forbidden": [{"age": {"from": 200}, "sex": "m"}]}, "column 'age', which never meets it"),
        (
            {"forbidden": [{"sex": {"but": ["f", "m"]}, "age": {"from": 65}}]},
            "column 'sex', which never meets it",
        ),
        (
            {"applies": [{"columns": ["pregnant"], "where": {"age": {"from": 0}}}]},
            "column 'age', which always meets it",
        ),
        (
            {"forbidden": [{"town": {"but": ["x"]}, "sex": "m"}]},
            "column 'town', which has a private domain",
        ),
        (
            {"forbidden": [{"town": {"from": 3}, "sex": "m"}]},
            "column 'town', which has a private domain",
        ),
        (
            {
                "applies": [
                    {"columns": ["pregnant"], "where": {"age": {"from": low}}} for low in (15, 65)
                ]
            },
            "structure.applies names 'pregnant' twice",
        ),
        (
            {"forbidden": [{"age": {"from": "old"}, "sex": "m"}]},
            "range of column 'age', which must be a number",
        ),
        ({"forbidden": [{"age": "7", "sex": "m"}]}, "a range is written {from: , below: }"),
        ({"ordered": [{"columns": ["age"]}]}, "must have at least 2"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(structure: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("{", r"\{").replace("}", r"\}")):
        configuration(
            columns={"sex": SEX, "pregnant": PREGNANT, "age": AGE, "town": TOWN},
            structure=structure,
        )


def test_a_stay_without_an_end_is_missing() -> None:
    """Nothing is declared missing of the stay itself: it is missing as the leaving is."""
    declared = configuration(
        columns=VISITS,
        structure={"difference": [{"column": "stay", "of": "leaving", "since": "arrival"}]},
    )
    stay = next(a for a in declared.attributes if a.name == "stay")
    assert (stay.optional, stay.imputed) == (True, False)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_orders_of_any_length_and_bins_are_kept(data: st.DataObject) -> None:
    """Where boxes would be too many, columns in order are gone through one by one: every record is put in order, once."""
    names = ["a", "b", "c", "d"][: data.draw(st.integers(2, 4))]
    columns = {}
    for name in names:
        low = data.draw(st.integers(0, 6))
        edges = data.draw(
            st.lists(st.integers(low + 1, 14), min_size=1, max_size=4, unique=True).map(sorted)
        )
        missing = data.draw(st.sampled_from([[], [""]]))
        columns[name] = {
            "type": "number",
            "bounds": [low, edges[-1]],
            "bins": [low, *edges],
            "decimals": 0,
            "missing": missing,
        }
    order = {"columns": data.draw(st.permutations(names)), "ties": data.draw(st.booleans())}
    try:
        found = configuration(columns=columns, structure={"ordered": [order]})
    except InputError:  # nothing is left, or a condition is void
        assume(False)
    labels = [list(a.labels) for a in found.attributes]
    masks = rule_masks(found.forbidden, found.attributes, labels)
    sizes = [len(a.labels) + a.optional for a in found.attributes]
    codes = tuple(
        np.array(column, np.uint8)
        for column in zip(*itertools.product(*map(range, sizes)), strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marginweave.prepare.repair._MOST_BOXES", 0)
        repair = Repair(found, labels)
    words = RecordWords(
        words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(len(codes[0]))
    )
    once = repair(EncodedTable(labels=tuple(map(tuple, labels)), codes=codes), words)
    kept = ~broken_records(codes, masks)
    assert not broken_records(once.codes, masks).any()
    assert all(
        np.array_equal(new[kept], old[kept]) for new, old in zip(once.codes, codes, strict=True)
    )


KINDS = [
    {"missing": [], "outside": "error"},
    {"missing": []},
    {"missing": ["N"]},
    {"missing": ["N"], "outside": "null"},
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_columns_that_get_values_by_chance_are_known(data: st.DataObject) -> None:
    """By every record and many draws: no other column changes with them, and no part of the rules is named in vain."""
    columns: dict[str, Any] = {
        name: {"type": "category", "values": list("pqr"), **data.draw(st.sampled_from(KINDS))}
        for name in "abc"
    }
    columns["d"] = {
        "type": "number",
        "bounds": [0, 3],
        "bins": 3,
        "decimals": 1,
        **data.draw(st.sampled_from(KINDS)),
    }
    values = st.lists(st.sampled_from("pqr"), min_size=1, max_size=2, unique=True)
    rule = st.dictionaries(st.sampled_from("abc"), values, min_size=2, max_size=3)
    structure: dict[str, Any] = {"forbidden": data.draw(st.lists(rule, max_size=3))}
    if data.draw(st.booleans()):
        structure["forbidden"].append({"a": ["p"], "d": {"to": 1}})
    try:
        declared = configuration(columns=columns, structure=structure)
        counted = declared.with_undeclared(declared.undeclared)
        labels = [attribute.labels for attribute in counted.attributes]
        repair = Repair(counted, labels)
    except InputError:
        assume(False)
        return
    sizes = domain_sizes(counted.attributes, labels)
    every = np.indices(sizes).reshape(len(sizes), -1).astype(np.uint8)
    table = EncodedTable(labels=tuple(labels), codes=tuple(every))
    changed = set[int]()
    first: np.ndarray | None = None
    for number in range(12):
        key = number.to_bytes(32, "big")
        words = RecordWords(
            words=KeyedBits(key=key, purpose="rules"), records=np.arange(every.shape[1])
        )
        found = np.stack(repair(table, words).codes)
        first = found if first is None else first
        changed |= set(np.flatnonzero((found != first).any(axis=1)).tolist())
    drawn = repair.drawn([])
    assert changed <= drawn
    assert bool(changed) == bool(drawn)
    tied = repair.drawn([0])
    assert drawn <= tied
