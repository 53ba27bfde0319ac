"""Whole releases, replayed on a neighboring table: what meets noise moves by no more than was charged, and no file by a byte.

A release is made of a table. It is made again of a neighbor, with the same words for the rows that both have, and the draws of
the first in place of its own: each draw of the second meets the same released numbers as that of the first. The counts, scores
and histograms that meet noise are compared with what the draw was charged for; all that leaves has to be the same, as nothing
right of the draws may look at the rows. The unit stands last, so that every other row has its number in both tables. It has
values that others have: what one table alone has is the threshold's (`tests/laws/test_level_draw.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.typing import NDArray

from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.draws import protocol
from marginweave.ledger import Ledger
from marginweave.measurements import levels as level
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms import gaussian, laplace
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.runs.frames import as_parquet
from tests.golden.releases import comparable_files
from tests.golden.shapes import SHAPES, account_of, write_people
from tests.support.fixed_noise import fixed_noise
from tests.support.plain_runs import run_plainly

Rows = list[str]
Shipped = Callable[..., Any]
MINE = [
    f"me,f,north,{age},{grade},T{grade % 4}"
    for age, grade in ((21, 1), (55, 4), (89, 7), (34, 2), (60, 5))
]
THEIRS = [f"me,m,south,{age},{grade},T{grade % 4}" for age, grade in ((70, 3), (25, 6), (41, 1))]
QUICK = ("k-tuples", "rounds")


@dataclass
class Met:
    """What met noise in a release, by draw: each count with its sigma, the scores of choices, and tables of Laplace noise."""

    counts: dict[str, dict[tuple[int, int], tuple[int, Fraction]]] = field(default_factory=dict)
    scores: dict[str, list[tuple[NDArray[np.int64], int, float]]] = field(default_factory=dict)
    tables: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)
    payloads: dict[str, bytes] = field(default_factory=dict)
    draw: str = ""

    def add(
        self, cells: Iterable[int], counts: NDArray[np.int64], sigma: Fraction, table: int
    ) -> None:
        """Counts of cells of a table of the draw that is made."""
        found = self.counts.setdefault(self.draw, {})
        for cell, count in zip(cells, counts.ravel().tolist(), strict=True):
            assert (table, cell) not in found
            found[table, cell] = count, sigma


@dataclass(frozen=True, kw_only=True)
class Made:
    """A release: its plan, what met noise, and its files."""

    configuration: Configuration
    plan: Plan
    met: Met
    files: dict[str, bytes]


@contextmanager
def observed(met: Met, forced: dict[str, bytes] | None) -> Iterator[None]:
    """Write down what meets noise; `forced` are the payloads that draws have in place of their own."""
    seen = (
        (gaussian.add_noise, _counts_seen),
        (gaussian.select_candidate, _scores_seen),
        (laplace.add_drawn_noise, _tables_seen),
    )
    with ExitStack() as stack:
        draw = _forced(protocol._charge_and_draw, met, forced)
        stack.enter_context(mock.patch.object(protocol, "_charge_and_draw", draw))
        stack.enter_context(mock.patch.object(level, "_noised", _cells_seen(level._noised, met)))
        for shipped, wrapped in seen:
            for module in _holders(shipped):
                if module is not level:  # which notes the cell of each count
                    stack.enter_context(
                        mock.patch.object(module, shipped.__name__, wrapped(shipped, met))
                    )
        yield


def _forced(drawn: Shipped, met: Met, forced: dict[str, bytes] | None) -> Shipped:
    def draw(*given: Any, **named: Any) -> Any:
        *others, record, prepared = given

        def make(*known: Any) -> bytes:
            met.draw = record.name
            own = prepared.make(*known)
            met.payloads[record.name] = own if forced is None else forced[record.name]
            return met.payloads[record.name]

        return drawn(*others, record, replace(prepared, make=make), **named)

    return draw


def _counts_seen(add_noise: Shipped, met: Met) -> Shipped:
    def add(
        counts: NDArray[np.int64], sigma: Fraction, bits: Any, *, table: int = 0, start: int = 0
    ) -> Any:
        met.add(range(start, start + counts.size), counts, sigma, table)
        return add_noise(counts, sigma, bits, table=table, start=start)

    return add


def _cells_seen(noised: Shipped, met: Met) -> Shipped:
    def add(pieces: Iterable[Any], sigma: Fraction, bits: Any, table: int) -> Iterator[Any]:
        def seen() -> Iterator[Any]:
            for cells, counts in pieces:
                met.add(cells.tolist(), counts, sigma, table)
                yield cells, counts

        return noised(seen(), sigma, bits, table)

    return add


def _scores_seen(select: Shipped, met: Met) -> Shipped:
    def choose(scores: NDArray[np.int64], sensitivity: int, epsilon: float, bits: Any) -> Any:
        met.scores.setdefault(met.draw, []).append((scores.copy(), sensitivity, epsilon))
        return select(scores, sensitivity, epsilon, bits)

    return choose


def _tables_seen(add_drawn: Shipped, met: Met) -> Shipped:
    def add(counts: NDArray[np.int64], noise: Any) -> Any:
        met.tables.setdefault(met.draw, []).append(counts.copy())
        return add_drawn(counts, noise)

    return add


def _holders(function: Shipped) -> list[Any]:
    """Every module of the program that has this function under its name."""
    modules = [
        module
        for name, module in [*sys.modules.items()]
        if name.startswith("marginweave.") and module
    ]
    return [module for module in modules if vars(module).get(function.__name__) is function]


def made(
    home: Path,
    shape: str,
    unit: Rows,
    forced: dict[str, bytes] | None = None,
    *,
    frame: bool = False,
) -> Made:
    """A release of the table of `shape` with the rows of a unit at its end, from a file or, as `fit` has it, from a frame."""
    home.mkdir()
    path = write_people(home, shape)
    table = home / "people.csv"
    table.write_text(table.read_text() + "".join(f"{line}\n" for line in unit))
    configuration = parse_configuration(yaml.safe_load(path.read_text()))
    if frame:
        path, configuration = _as_frame(path, configuration)
    place, met = home / "ledger" / "ledger.sqlite", Met()
    with mock.patch.dict("os.environ", {"MARGINWEAVE_LEDGER": str(place)}):
        Ledger.create(place).accounts.open(account_of(configuration), actor="steward")
        with fixed_noise(), observed(met, forced):
            folder = run_plainly(home, path, "r") / "release"
    files = comparable_files(folder, home)
    return Made(configuration=configuration, plan=plan_budget(configuration), met=met, files=files)


def _as_frame(path: Path, configuration: Configuration) -> tuple[Path, Configuration]:
    """The table as `fit` gets it: categories with their values, and numbers of the types that it says."""
    frame = pd.read_csv(path.with_name("people.csv"), keep_default_na=False)
    frame = frame.astype(
        {"sex": "category", "region": "category", "age": "Int64", "grade": "int16"}
    )
    content, _ = as_parquet(frame, configuration)
    path.with_name("people.parquet").write_bytes(content)
    declared = {**yaml.safe_load(path.read_text()), "source": "people.parquet"}
    path.write_text(yaml.safe_dump(declared, sort_keys=False))
    return path, parse_configuration(declared)


def moved_too_far(one: Made, other: Made) -> list[str]:
    """The draws in which what meets noise moves by more than was charged, or that meet other noise."""
    found = []
    for draw in one.plan.draws:
        name, stability = str(draw.name), one.configuration.stability
        mine, theirs = one.met, other.met
        known = [
            any(name in table for table in (m.counts, m.scores, m.tables)) for m in (mine, theirs)
        ]
        if known != [True, True]:
            found.append(f"{name}: not drawn")
        counts, others = mine.counts.get(name, {}), theirs.counts.get(name, {})
        shared = counts.keys() & others.keys()
        square = sum(
            Fraction(counts[cell][0] - others[cell][0]) ** 2 / counts[cell][1] ** 2
            for cell in shared
        )
        if counts and square * Fraction(draw.parameter) ** 2 > 1:
            found.append(f"{name}: {float(square)} of 1/{draw.parameter}^2")
        if any(counts[cell][1] != others[cell][1] for cell in shared):
            found.append(f"{name}: other noise")
        if counts.keys() != others.keys() and not draw.cost.delta:
            found.append(f"{name}: other cells")
        for (scores, most, epsilon), (again, *same) in zip(
            mine.scores.get(name, ()), theirs.scores.get(name, ()), strict=True
        ):
            if [most, epsilon] != same or np.abs(scores - again).max() > most:
                found.append(f"{name}: scores")
        for table, again in zip(
            mine.tables.get(name, ()), theirs.tables.get(name, ()), strict=True
        ):
            if np.abs(table - again).sum() > l1_sensitivity(stability):
                found.append(f"{name}: Laplace")
    return found


def replayed(place: Path, shape: str, *, frame: bool = False) -> tuple[Made, Made]:
    """A release of a table with the unit, and the same draws of one without it, or with other rows of it in their place."""
    configuration = parse_configuration(yaml.safe_load(write_people(place, shape).read_text()))
    rows = 1 if configuration.privacy.subject is None else len(MINE)
    without = THEIRS[:rows] if configuration.privacy.neighbors == "replace-one" else []
    one = made(place / "one", shape, MINE[:rows], frame=frame)
    return one, made(place / "other", shape, without, one.met.payloads, frame=frame)


@pytest.mark.parametrize(
    "shape", [*QUICK, *(pytest.param(s, marks=pytest.mark.long) for s in SHAPES if s not in QUICK)]
)
def test_a_neighbor_moves_no_draw_beyond_its_charge_and_no_file(tmp_path: Path, shape: str) -> None:
    one, other = replayed(tmp_path, shape)
    assert moved_too_far(one, other) == []
    assert (
        any(one.met.counts[name] != other.met.counts[name] for name in one.met.counts)
        or one.met.tables
    )
    assert one.files == other.files


def test_so_it_is_of_a_frame(tmp_path: Path) -> None:
    """Whose types are public, and whose categories, missing values and order of rows are not."""
    one, other = replayed(tmp_path, "gum", frame=True)
    assert moved_too_far(one, other) == []
    assert one.files == other.files


def test_a_table_that_is_no_neighbor_is_seen(tmp_path: Path) -> None:
    """Two rows more, where one is the unit: most draws move farther than they were charged for."""
    one = made(tmp_path / "one", "k-tuples", MINE)
    other = made(tmp_path / "other", "k-tuples", [], one.met.payloads)
    assert len(moved_too_far(one, other)) >= 2
