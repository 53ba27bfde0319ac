"""Whatever records do to the rules between columns, one unit moves no count by more than is charged.

Raw rows that keep the rules, and that break each of them and all at once, go through preparation, encoding and repair as
shipped. The coupling is that of the code: a row's random word is that of its number, so the rows of a unit that comes stand
last, and one that is replaced keeps its place.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.budget import Stability
from marginweave.configuration.release import Configuration
from marginweave.counts.marginals import all_cliques, count_marginals
from marginweave.counts.noise import planned_cliques, planned_sigmas, public_sizes
from marginweave.domain.zeros import broken_records, domain_sizes, structural_masks
from marginweave.evaluate.internal import joined_tables
from marginweave.measurements.plan import DrawKind
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.gaussian import marginal_sigma
from marginweave.planning.split import plan_budget
from marginweave.prepare.clean import CleanBlocks, pack_clean
from marginweave.prepare.codes import EncodedTable
from marginweave.prepare.encode import encode_blocks
from marginweave.prepare.rows import prepare_blocks
from tests.support.configurations import configuration
from tests.support.ruled_table import ROWS, SETTINGS, SOURCE

KEY = bytes(range(32))
Row = tuple[str, ...]


def encoded(rows: Sequence[Row], config: Configuration, names: Sequence[str] = (*SOURCE, "person")) -> EncodedTable:
    """The records that are counted; each of them keeps every rule, so that nothing is in a cell that is not measured."""
    raw = pa.table({n: pa.array([row[j] for row in rows], pa.string()) for j, n in enumerate(names)})
    with tempfile.TemporaryDirectory() as folder:
        clean = CleanBlocks(list(pack_clean(prepare_blocks([raw], config, KEY, Path(folder)))))
    table = joined_tables(encode_blocks(clean, config, KEY))
    assert not broken_records(table.codes, structural_masks(config, table.labels)).any()
    return table


def counts_of(table: EncodedTable, config: Configuration) -> list[np.ndarray]:
    sizes = domain_sizes(config.with_undeclared(config.undeclared).attributes, table.labels)
    cliques = [clique for length in (1, 2, 3) for clique in all_cliques(sizes, length)]
    return count_marginals([table.codes], sizes, cliques)


def check_moves(one: Sequence[np.ndarray], other: Sequence[np.ndarray], unit: Stability) -> None:
    """Of each marginal of up to three columns Linf, L1 and L2."""
    for before, after in zip(one, other, strict=True):
        moved = np.abs(before - after)
        assert moved.max() <= unit.records
        assert moved.sum() <= l1_sensitivity(unit)
        assert math.sqrt((moved**2).sum()) <= marginal_sigma(1.0, unit)


def test_every_neighbor_of_every_small_table() -> None:
    """All tables of up to two such rows: each with its last row removed, and with each row replaced by each other."""
    rows = [(*row, "") for row in ROWS.values()]
    configs = {name: configuration(**SETTINGS, privacy__neighbors=name) for name in ("add-remove", "replace-one")}
    tables = [table for length in range(3) for table in itertools.product(range(len(rows)), repeat=length)]
    config = configs["add-remove"]
    counts = {table: counts_of(encoded([rows[i] for i in table], config), config) for table in tables}
    for relation, declared in configs.items():
        for one, other in _neighbors(tables[1:], len(rows), relation):
            check_moves(counts[one], counts[other], declared.stability)


FILLED: dict[str, Any] = {
    "columns": {
        "sex": {"type": "category", "values": ["f", "m"], "outside": "error"},
        "dx": {
            "type": "set",
            "values": [f"v{i}" for i in range(10)],
            "max_values": 2,
            "min_values": 1,
            "outside": "error",
        },
    },
    "missing": [],
    "aggregate": {"method": "marginals", "cliques": {"all": 2}},
    "structure": {"forbidden": [{"sex": "m", "dx": ["v7"]}]},
}
"""A set of so many values that no rule lists its cells. Men lose v7, and get another where it was their only one."""


def test_every_neighbor_of_small_tables_with_a_large_set_that_is_never_empty() -> None:
    """All tables of up to two of such rows, of which some have too many values and some break the rule."""
    configs = {name: configuration(**FILLED, privacy__neighbors=name) for name in ("add-remove", "replace-one")}
    rows, config = [("f", "v7"), ("m", "v7"), ("m", "v7;v2"), ("m", "v1;v2;v7;v9")], configs["add-remove"]
    tables = [table for length in range(3) for table in itertools.product(range(len(rows)), repeat=length)]
    counts = {table: counts_of(encoded([rows[i] for i in table], config, ("sex", "dx")), config) for table in tables}
    for relation, declared in configs.items():
        for one, other in _neighbors(tables[1:], len(rows), relation):
            check_moves(counts[one], counts[other], declared.stability)


CLIQUES: dict[str, Any] = {
    "all pairs": {"all": 2},
    "sets of several lengths": [["age", "job"], ["income", "job"], ["born", "stay"], ["income", "job", "age"]],
}


@cache
def _small_tables() -> dict[tuple[int, ...], EncodedTable]:
    config, rows = configuration(**SETTINGS), [(*row, "") for row in ROWS.values()]
    tables = (table for length in range(3) for table in itertools.product(range(len(rows)), repeat=length))
    return {table: encoded([rows[i] for i in table], config) for table in tables}


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("cliques", CLIQUES)
def test_every_neighbor_moves_all_tables_of_a_draw_by_no_more_than_is_charged(cliques: str, relation: Any) -> None:
    """Together, in units of their noise, between the same tables as above; a record that is removed moves all."""
    aggregate = {"method": "marginals", "cliques": CLIQUES[cliques]}
    config = configuration(**{**SETTINGS, "aggregate": aggregate}, privacy__neighbors=relation)
    plan, sizes = plan_budget(config), public_sizes(config.with_undeclared(config.undeclared))
    records = _small_tables()
    for kind in (DrawKind.ONE_WAY, DrawKind.MARGINALS):
        draw = plan.draw(kind)
        measured, sigmas = planned_cliques(config, kind), np.array(planned_sigmas(config, plan, draw), np.float64)
        assert len(measured) == len(set(measured)) == len(sigmas)
        counts = {table: count_marginals([found.codes], sizes, measured) for table, found in records.items()}
        charged, most = float(draw.cost.mu2), 0.0
        for one, other in _neighbors([*records][1:], len(ROWS), relation):
            squares = [((a - b) ** 2).sum() for a, b in zip(counts[one], counts[other], strict=True)]
            most = max(most, moved := float((squares / sigmas**2).sum()))
            assert moved <= charged
            assert relation == "replace-one" or moved == pytest.approx(charged, rel=1e-3)
        assert most > charged / 2


def _neighbors(tables: Sequence[tuple[int, ...]], rows: int, relation: str) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Each table with its last row removed, or with each row replaced by each other."""
    for table in tables:
        if relation == "add-remove":
            yield table, table[:-1]
            continue
        for place, row in itertools.product(range(len(table)), range(rows)):
            yield table, (*table[:place], row, *table[place + 1 :])


UNITS: dict[str, Any] = {
    "row": "row",
    "two rows": {"column": "person", "max_records": 2},
    "three rows": {"column": "person", "max_records": 3, "missing_subject": "own"},
    "joined": {"column": "person", "join": True},
}
rows_ = st.one_of(
    st.sampled_from(list(ROWS.values())),
    st.tuples(*(st.sampled_from(sorted(set(cells))) for cells in zip(*ROWS.values(), strict=True))),
)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("unit", UNITS)
@given(
    st.lists(st.tuples(rows_, st.sampled_from(["a", "b", ""])), max_size=8),
    st.lists(rows_, min_size=1, max_size=4),
    st.lists(rows_, min_size=1, max_size=4),
)
@settings(max_examples=8, deadline=None)
def test_a_unit_changes_as_many_records_as_without_rules(
    unit: str,
    relation: Any,
    others: list[tuple[Row, str]],
    mine: list[Row],
    theirs: list[Row],
) -> None:
    """Theta records come, or give way to theta others, and all others stay as they are: so counts of any kind are bounded."""
    config = configuration(**SETTINGS, privacy__unit=UNITS[unit], privacy__neighbors=relation)
    most = 1 if unit == "row" else 4
    kept = [(*row, person) for row, person in others]
    one = encoded([*kept, *((*row, "me") for row in mine[:most])], config)
    replaced = [(*row, "me") for row in theirs[:most]] if relation == "replace-one" else []
    other = encoded([*kept, *replaced], config)
    check_moves(counts_of(one, config), counts_of(other, config), config.stability)
    before, after = (Counter(zip(*(code.tolist() for code in t.codes), strict=True)) for t in (one, other))
    assert (before - after).total() <= config.stability.records
    assert (after - before).total() <= config.stability.records * (relation == "replace-one")


def test_a_unit_of_broken_records_reaches_the_sensitivity() -> None:
    """The tables above are no easy ones: theta records that break every rule, and are repaired, move a count by theta."""
    mine = [(*ROWS["breaks all"], "me")] * 4
    others = [(*ROWS["what is forbidden"], "")] * 3
    for unit, theta in (("row", 1), ("two rows", 2), ("three rows", 3), ("joined", 1)):
        config = configuration(**SETTINGS, privacy__unit=UNITS[unit])
        assert theta == config.stability.records
        tables = ([*others, *mine[: 1 if unit == "row" else 4]], others)
        one, other = (counts_of(encoded(table, config), config) for table in tables)
        assert max(int(np.abs(a - b).max()) for a, b in zip(one, other, strict=True)) == theta
