"""Whatever noise gives, a release whose draws are charged comes to its end, and has no value that was not released."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from marginweave.base.errors import MarginweaveError
from marginweave.configuration.load import parse_configuration
from marginweave.inference.answers import read_answers
from marginweave.ledger import Ledger
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms import gaussian, randomness
from marginweave.mechanisms.laplace import DiscreteLaplace
from marginweave.mechanisms.randomness import DrawBits
from tests.golden.shapes import SHAPES, account_of, write_people
from tests.support.plain_runs import run_plainly
from tests.support.samples import every

# A table has 400 rows: no count of it, and no threshold, comes near.
LARGE = 5_000
Pattern = list[int]
Outcome = Callable[[str, int], Pattern]
"""The noise of the cells of a table, repeated, by the name of the draw and the table's number in it."""

_TUPLES = {"method": "k-tuples", "reporting_length": 2}
_MARGINALS = {"method": "marginals", "cliques": {"all": 2}}
_ROUNDS = {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 2}}
_GUM = {"method": "gum", "rounds": 3}
_MIXTURE = {"method": "mixture", "components": 4, "fits": 1, "iterations": 5}
_SEEDED = {"method": "aggregate-seeded"}
_TOWN = {"type": "category", "domain": "private", "impute": {"weights": {"T0": 1, "T9": 2}}}
_REGION = {"type": "category", "domain": "private", "impute": {"weights": {"north": 1, "south": 1}}}
_SET = {"type": "set", "domain": "private", "max_values": 2}
# Nothing of the towns that the table has goes with the region that comes first.
_RULE = {"forbidden": [{"region": "moon", "town": f"T{number}"} for number in range(10)]}
HIDDEN: dict[str, dict[str, Any]] = {
    f"{method['method']} of {name}": {
        "columns__town": _TOWN,
        "aggregate": aggregate,
        "synthesize": method,
    }
    for name, aggregate, methods in (
        ("marginals", _MARGINALS, (_MIXTURE, _GUM)),
        ("k-tuples", _TUPLES, (_MIXTURE, _GUM, _SEEDED)),
        ("rounds", _ROUNDS, (_MIXTURE,)),
    )
    for method in methods
} | {
    "a set": {"columns__town": _SET, "aggregate": _TUPLES, "synthesize": _SEEDED},
    "one column": {
        "columns": {"town": _TOWN},
        "aggregate": {**_MARGINALS, "cliques": {"all": 1}},
        "synthesize": _MIXTURE,
    },
}
RULED: dict[str, dict[str, Any]] = {
    f"{method['method']} by rules": {
        "columns__town": _TOWN,
        "columns__region": _REGION,
        "structure": _RULE,
        "aggregate": aggregate,
        "synthesize": method,
    }
    for aggregate, method in ((_MARGINALS, _GUM), (_MARGINALS, _MIXTURE), (_TUPLES, _SEEDED))
}
# A grade may be not as declared where the rules want one: a code of tables, which estimates have or have not.
COUNTED: dict[str, dict[str, Any]] = {
    f"{way} by rules": {
        "aggregate": aggregate,
        "synthesize": _SEEDED if aggregate is _TUPLES else _MIXTURE,
        "structure": {
            "forbidden": [{"sex": "f", "region": "west"}],
            "applies": [{"columns": ["grade"], "where": {"sex": "m"}}],
        },
    }
    for way, aggregate in {
        "all pairs": _MARGINALS,
        "unmerged pairs": {**_MARGINALS, "compress": "none"},
        "named sets": {
            "method": "marginals",
            "cliques": [["sex", "region"], ["region", "age", "grade"]],
        },
        "selected sets": {"method": "marginals"},
        "rounds": _ROUNDS,
        "k-tuples": _TUPLES,
    }.items()
}
ALL = {**SHAPES, **HIDDEN, **RULED, **COUNTED}


@contextmanager
def drawn(outcome: Outcome, names: list[str]) -> Iterator[None]:
    """Every draw of a run adds what `outcome` says; a choice is of the first, the middle or the last candidate."""

    def bits(*, seed: bytes, context: tuple[str | int, ...], tainted: bool) -> DrawBits:
        return DrawBits(seed=bytes(len(seed)), context=context[1:2], tainted=tainted)

    def cells(draw: str, table: int, start: int, count: int) -> NDArray[np.int64]:
        pattern = np.array(outcome(draw, table), np.int64)
        return pattern[np.arange(start, start + count) % len(pattern)]

    def signed(_: Any, own: DrawBits, table: int, start: int, count: int) -> NDArray[np.int64]:
        return cells(names[int(own.context[0])], table, start, count)

    def choose(scores: NDArray[np.int64], _: Any, own: DrawBits) -> int:
        place = int(np.sign(outcome(names[int(own.context[0])], 0)[0]))
        return (len(scores) // 2, len(scores) - 1, 0)[place]

    def presample(_: DiscreteLaplace, sizes: list[int], __: Any) -> list[NDArray[np.int64]]:
        return [cells("one-way", table, 0, size) for table, size in enumerate(sizes)]

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(randomness, "DrawBits", bits))
        stack.enter_context(mock.patch.object(gaussian, "draw_signed", signed))
        stack.enter_context(mock.patch.object(gaussian, "choose", choose))
        stack.enter_context(mock.patch.object(DiscreteLaplace, "presample", presample))
        stack.enter_context(mock.patch("secrets.token_bytes", bytes))
        yield


def released(
    home: Path, shape: str, outcome: Outcome
) -> tuple[dict[str, list[str]], list[dict[str, str]]]:
    """The released domain and the records of a release of `shape`, whose draws have this outcome."""
    with mock.patch.dict(SHAPES, ALL):
        path = write_people(home, shape)
    configuration = parse_configuration(yaml.safe_load(path.read_text()))
    place = home / "ledger" / "ledger.sqlite"
    names = [draw.name for draw in plan_budget(configuration).draws]
    with mock.patch.dict("os.environ", {"MARGINWEAVE_LEDGER": str(place)}):
        Ledger.create(place).accounts.open(account_of(configuration), actor="steward")
        with drawn(outcome, names):
            try:
                folder = run_plainly(home, path, "r") / "release"
            except MarginweaveError as stopped:
                raise AssertionError("a release whose draws are charged has stopped") from stopped
    for page in ("report.html", "explore.html", "croissant.json"):
        assert (folder / page).stat().st_size > 0
    read_answers(folder)
    with (folder / "synthetic.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    return json.loads((folder / "privacy.json").read_text())["domain"], records


def no_noise(_draw: str, _table: int) -> Pattern:
    """Every draw is exact."""
    return [0]


def nothing_hidden(draw: str, table: int) -> Pattern:
    """No value of a private domain reaches its threshold: towns are the last table of the k-tuples of one column."""
    return [-LARGE] if draw == "values" or (draw == "level-1" and table in {0, 4}) else [0]


def one_hidden(draw: str, table: int) -> Pattern:
    """The first value alone of each private domain reaches its threshold."""
    hidden = draw == "values" or (draw == "level-1" and table in {1, 4})
    return [LARGE, *[-LARGE] * 20] if hidden else [0]


@pytest.mark.parametrize("shape", every(2, HIDDEN))
def test_a_column_of_which_no_value_is_released_is_empty(tmp_path: Path, shape: str) -> None:
    """Its cells have no value, as none that could stand there was released: not even one with a declared weight."""
    domain, records = released(tmp_path, shape, nothing_hidden)
    assert domain["town"] == []
    assert {record["town"] for record in records} == {""}


@pytest.mark.parametrize("shape", every(2, RULED))
def test_rules_that_leave_no_record_of_released_values_leave_gaps(
    tmp_path: Path, shape: str
) -> None:
    domain, records = released(tmp_path, shape, one_hidden)
    assert (domain["region"], domain["town"]) == (["moon"], ["T0"])
    assert records
    assert not any(record["region"] and record["town"] for record in records)


def many_undeclared(draw: str, table: int) -> Pattern:
    """Many grades seem to be not as declared: the last of nine codes, behind seven grades and none."""
    return [*[0] * 8, LARGE] if draw == "one-way" and table == 3 else [0]


@pytest.mark.parametrize("outcome", [no_noise, many_undeclared])
@pytest.mark.parametrize("shape", COUNTED)
def test_every_way_of_counting_meets_rules(tmp_path: Path, shape: str, outcome: Outcome) -> None:
    """Where a code that the rules know nothing of is counted, and is not kept, or is; no record breaks a rule."""
    _, records = released(tmp_path, shape, outcome)
    assert records
    assert not any(
        record["sex"] == "f" and (record["region"] == "west" or record["grade"])
        for record in records
    )


AMOUNTS = st.lists(st.sampled_from([-LARGE, -60, -1, 0, 1, 60, LARGE]), min_size=1, max_size=3)


# the only value of a column has a count of 0
@example("mixture by rules", [[-LARGE], [-LARGE, -LARGE, 60]])
@settings(max_examples=4)
@given(st.sampled_from(sorted(ALL)), st.lists(AMOUNTS, min_size=1, max_size=4))
def test_every_outcome_of_noise_ends_in_a_release(shape: str, patterns: list[Pattern]) -> None:
    """Each draw, and each table of one, has one of the patterns; no record has a value that was not released."""

    def outcome(draw: str, table: int) -> Pattern:
        return patterns[(sum(map(ord, draw)) + table) % len(patterns)]

    with TemporaryDirectory() as home:
        domain, records = released(Path(home), shape, outcome)
    towns = {value for record in records for value in record.get("town", "").split(";") if value}
    assert "town" not in domain or towns <= set(domain["town"])
