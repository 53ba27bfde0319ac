"""What privacy.json says in words of the rows before they were counted."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.publish.preparation_words import preparation_sentences
from marginweave.publish.wording import unit_assumption
from tests.support.configurations import configuration

UNIFORM = {"distribution": "uniform"}
GAUSSIAN = {"distribution": "gaussian", "mean": 40, "deviation": 10}
AGE = {"type": "number", "bounds": "private", "within": [0, 200], "bins": 5, "impute": GAUSSIAN}
SEX = {"type": "category", "values": ["f", "m"], "impute": {"weights": {"f": 1, "m": 3}}}
NUMBER = {"type": "number", "bounds": [0, 60], "bins": 3, "decimals": 0, "missing": [""]}


AGE_BEYOND = "numbers below 0 count as 0, and above 100 as 100"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {},
            [
                "The unit of privacy is one row.",
                f"these are is not released: of 'age', {AGE_BEYOND}.",
                "before they are counted: 'age' to whole numbers.",
            ],
        ),
        (
            {"privacy__unit": {"column": "id", "max_records": 4}},
            [
                "same value of column 'id'",
                "At most 4 row(s) of a subject",
                "Rows without a subject were left out.",
                AGE_BEYOND,
                "'age' to whole numbers.",
            ],
        ),
        (
            {"privacy__unit": {"column": "id", "join": True, "missing_subject": "own"}},
            [
                "same value of column 'id'",
                "joined into one record",
                "counts as a separate subject",
                AGE_BEYOND,
                "'age' to whole numbers.",
            ],
        ),
        (
            {"columns": {"age": AGE, "sex": SEX}, "resize": {"records": 70, "proportion": 1.5}},
            [
                "one row",
                "'age' without a value, missing or not as declared, were replaced by draws of a normal distribution with mean",
                "'sex' without a value, missing or not as declared, were replaced by draws of declared values",
                "The bounds of column 'age', 18 and 93, were bought",
                "70 records: sampled from 2 copies of the table at rate 0.75",
                "calibrated for 2 replaced record(s)",
            ],
        ),
        (
            {
                "columns": {
                    "inside": NUMBER,
                    "outside": NUMBER,
                    "total": NUMBER | {"bounds": [0, 120]},
                },
                "structure": {
                    "ordered": [{"columns": ["inside", "outside"]}],
                    "sum": [{"column": "total", "of": ["inside", "outside"]}],
                },
            },
            [
                "one row",
                "columns of public values was counted as one that keeps them",
                "computed from other columns in",
                "; of 'outside', numbers below 0 count as 0",
                "'inside' to whole numbers, 'outside' to whole numbers.",
            ],
        ),
        (
            {
                "columns": {
                    "seen": {
                        "type": "datetime",
                        "bounds": ["2024-01-01", "2024-12-31"],
                        "bins": "month",
                    },
                    "born": {
                        "type": "date",
                        "bounds": ["1900-01-01", "2024-12-31"],
                        "bins": "year",
                    },
                },
            },
            [
                "one row",
                "'seen' that is written with a zone was counted in UTC",
                "; of 'born', dates before 1900-01-01 count as 1900-01-01, and after 2024-12-31 as 2024-12-31.",
            ],
        ),
        (
            {
                "columns": {"sex": SEX},
                "resize": {"records": 70, "proportion": 0.5, "amplify": True},
            },
            [
                "one row",
                "'sex'",
                "sampled from the table at rate 0.5",
                "functional (epsilon, delta)",
            ],
        ),
    ],
)
def test_every_step_has_its_sentence(changes: dict[str, Any], said: list[str]) -> None:
    """One sentence a step, in the order of the steps, and none for what was not done."""
    config = configuration(**changes)
    bounds = {"age": (18.0, 93.0)} if config.private_bounds else {}
    sentences = preparation_sentences(config, bounds)
    assert len(sentences) == len(said)
    for sentence, part in zip(sentences, said, strict=True):
        assert part in str(sentence)


def test_what_a_person_is_stands_among_the_assumptions() -> None:
    """Rows of one person are one subject, or one row; the guarantee is about nothing else."""
    assert "One row is one person" in str(unit_assumption(configuration()))
    own = configuration(privacy__unit={"column": "id", "join": True, "missing_subject": "own"})
    assert "column 'id'; a row without one is a separate person" in str(unit_assumption(own))
