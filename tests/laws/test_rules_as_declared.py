"""Rules between columns mean what is written: whatever the order of keys, private values, or conditions that say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.tasks.encode.codes import EncodedTable
from marginweave.tasks.encode.repair import Repair
from marginweave.tasks.mechanisms.randomness import KeyedBits, RecordWords
from tests.support.configurations import configuration

SEX = {"type": "category", "values": ["f", "m"], "missing": []}
PREGNANT = {"type": "category", "values": ["yes", "no", "unsure"], "missing": ["NA"]}
AGE = {"type": "number", "bounds": [0, 100], "bins": [0, 15, 65, 100], "decimals": 0, "missing": []}
TOWN = {"type": "category", "domain": "private", "impute": {"weights": {"x": 1}}}
VISITS: dict[str, Any] = {
    "arrival": {"type": "date", "bounds": ["2024-01-01", "2024-12-31"], "bins": "month", "missing": []},
    "leaving": {"type": "date", "bounds": ["2024-01-01", "2025-03-31"], "bins": "month", "missing": [""]},
    "stay": {"type": "number", "bounds": [0, 90], "bins": [0, 1, 7, 90], "decimals": 0},
}


def repaired(settings: Configuration, labels: Sequence[Sequence[str]], codes: Sequence[int]) -> list[int]:
    table = EncodedTable(labels=tuple(map(tuple, labels)), codes=tuple(np.array([code], np.int32) for code in codes))
    found = Repair(settings, labels)(
        table, RecordWords(words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.zeros(1, np.int64))
    )
    return [int(column[0]) for column in found.codes]


@pytest.mark.parametrize("rule", [{"pregnant": "yes", "sex": "m"}, {"sex": "m", "pregnant": "yes"}])
def test_the_column_that_is_declared_first_stays(rule: dict[str, str]) -> None:
    """A man who is pregnant is a man, in the run as well, which reads the configuration back with its keys sorted."""
    settings = configuration(columns={"sex": SEX, "pregnant": PREGNANT}, structure={"forbidden": [rule]})
    for read in (settings, Configuration.from_canonical(settings.canonical())):
        assert repaired(read, [a.labels for a in read.attributes], [1, 0]) == [1, 3]


def test_private_values_change_no_other_record() -> None:
    """Who lives in the towns x and y cannot be both; that nobody lives elsewhere is not public."""
    rules = [{"sex": "m", "town": "x"}, {"pregnant": "yes", "town": "y"}]
    columns = {"sex": SEX, "pregnant": PREGNANT, "town": TOWN}
    settings = configuration(columns=columns, structure={"forbidden": rules})
    public = [list(a.labels) for a in settings.attributes[:2]]
    for towns in (["x", "y"], ["x", "y", "z"], ["x"]):
        assert repaired(settings, [*public, towns], [1, 0, 0]) == [1, 0, 0]


@pytest.mark.parametrize(
    ("structure", "words"),
    [
        ({"forbidden": [{"age": {"from": 200}, "sex": "m"}]}, "column 'age', which never meets it"),
        ({"forbidden": [{"sex": {"but": ["f", "m"]}, "age": {"from": 65}}]}, "column 'sex', which never meets it"),
        (
            {"applies": [{"columns": ["pregnant"], "where": {"age": {"from": 0}}}]},
            "column 'age', which always meets it",
        ),
        ({"forbidden": [{"town": {"but": ["x"]}, "sex": "m"}]}, "column 'town', which has a private domain"),
        ({"forbidden": [{"town": {"from": 3}, "sex": "m"}]}, "column 'town', which has a private domain"),
        (
            {"applies": [{"columns": ["pregnant"], "where": {"age": {"from": low}}} for low in (15, 65)]},
            "structure.applies names 'pregnant' twice",
        ),
        ({"forbidden": [{"age": {"from": "old"}, "sex": "m"}]}, "range of column 'age', which must be a number"),
        ({"forbidden": [{"age": "7", "sex": "m"}]}, "a range is written {from: , below: }"),
        ({"ordered": [{"columns": ["age"]}]}, "must have at least 2"),
    ],
)
def test_a_rule_that_says_nothing_is_refused(structure: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("{", r"\{").replace("}", r"\}")):
        configuration(columns={"sex": SEX, "pregnant": PREGNANT, "age": AGE, "town": TOWN}, structure=structure)


def test_a_stay_without_an_end_is_missing() -> None:
    """Nothing is declared missing of the stay itself: it is missing as the leaving is."""
    settings = configuration(
        columns=VISITS, structure={"difference": [{"column": "stay", "of": "leaving", "since": "arrival"}]}
    )
    stay = next(a for a in settings.attributes if a.name == "stay")
    assert (stay.optional, stay.imputed) == (True, False)
