"""Answers as frames: a column of the table keeps its values, whatever it is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from marginweave.answers.answer import COLUMNS, Answer
from marginweave.base.errors import InputError
from marginweave.configuration.question import Question
from marginweave.inference.opened import Release

NAMES = COLUMNS


class Asked:
    """Counts of all combinations of two values of each column that a question is by."""

    def ask(self, question: Question) -> Iterator[Answer]:
        for number, labels in enumerate(product(("a", "b"), repeat=len(question.by))):
            group: dict[str, str] = dict(zip(question.by, labels, strict=True))
            yield Answer(
                question="count",
                asked="count",
                group=group,
                estimate=float(number),
                low=0.0,
                high=9.0,
                level=0.95,
            )


def release() -> Release:
    opened = Release(Path())
    opened.__dict__["_answers"] = Asked()
    return opened


@pytest.mark.parametrize("name", NAMES)
def test_a_column_that_is_called_as_a_field_of_answers_keeps_its_values(name: str) -> None:
    frame = release().query(by=name)
    assert frame[f"{name} (column)"].tolist() == ["a", "b"]
    assert frame["level"].tolist() == [0.95, 0.95]
    assert frame["estimate"].tolist() == [0, 1]


@pytest.mark.parametrize(
    "columns",
    [(name,) for name in NAMES] + [(name, "sex") for name in NAMES] + [("sex", "level", "low")],
)
def test_a_table_of_such_columns_has_their_names(columns: Sequence[str]) -> None:
    frame = release().table(*columns)
    first = columns if len(columns) != 2 else columns[:1]
    assert list(frame.index.names) == (
        [columns[0], columns[2]] if len(columns) == 3 else list(first)
    )
    assert frame.to_numpy().size == 3 * 2 ** len(columns)


def test_a_text_is_opened_by_open_which_knows_names_of_runs() -> None:
    place: Any = "runs/visits/release"
    with pytest.raises(InputError, match=r'write Release\.open\("release"\)'):
        Release(place)
