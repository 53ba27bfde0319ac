"""The laws of an engine that do not depend on where it computes: each engine inherits them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from marginweave.base.parallel import Engine, LocalEngine
from marginweave.checkpoints.store import open_blocks, write_blocks
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.layout import Blocks
from marginweave.mechanisms.randomness import KeyedBits
from marginweave.prepare.codes import EncodedBlocks, EncodedTable, pack_blocks
from tests.support.counting import AMPLE, count_blocks, histogram_of, same_counts
from tests.support.fatal_workers import Failing, Square
from tests.support.tables import level_from

SIZES = (3, 5, 7, 11, 2, 4)
RECORDS = 20_000


class EngineTests:
    """What every engine keeps; a subclass says how one is made, and what a failure of a function ends with."""

    failure: ClassVar[type[Exception]]

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError

    def test_results_come_once_and_in_order(self, engine: Engine, tmp_path: Path) -> None:
        """However many parts there are, and with what the function holds."""
        function = Square(tmp_path / "calls")
        for parts in (0, 1, 2, 2 * engine.cores + 1, 20):
            assert list(engine.map(function, range(parts))) == [n * n for n in range(parts)]

    def test_few_results_wait_to_be_taken(self, engine: Engine, tmp_path: Path) -> None:
        """At most two for each core are begun before they are asked for, so that a large table fits memory."""
        results = engine.map(Square(tmp_path / "calls"), range(100))
        for taken in range(3):
            assert next(results) == taken * taken
            time.sleep(0.02)  # more than the work on all parts takes
            assert len((tmp_path / "calls").read_text().split()) <= taken + 2 * engine.cores
        results.close()  # pyright: ignore[reportAttributeAccessIssue]

    def test_a_function_that_fails_ends_its_work_alone(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """The error is raised where the result would be taken, and the engine computes what comes next."""
        with pytest.raises(self.failure):
            list(engine.map(Failing("Ada Lovelace"), ["Konrad Zuse", "Alan Turing"]))
        assert list(engine.map(Square(tmp_path / "calls"), [2, 3])) == [4, 9]

    def test_counts_are_those_of_one_thread(self, engine: Engine, tmp_path: Path) -> None:
        """Identical contributions and counts under the same key, also where counts are set aside on a disk."""
        blocks = encoded_blocks(tmp_path)
        one, here = counted(blocks, LocalEngine(1))
        for memory in (AMPLE, RECORDS, 0):
            other, there = counted(blocks, engine, memory)
            assert (one == other, same_counts(here, there)) == (True, True)


def encoded_blocks(place: Path) -> EncodedBlocks:
    """A table in a checkpoint of twenty blocks."""
    rng = np.random.default_rng(3)
    codes = tuple(rng.binomial(size, 0.3, RECORDS).astype(np.uint8) for size in SIZES)
    labels = tuple(tuple(f"v{v}" for v in range(size)) for size in SIZES)
    edges = range(0, RECORDS, 1000)
    parts = (
        EncodedTable(codes=tuple(c[i : i + 1000] for c in codes), labels=labels) for i in edges
    )
    write_blocks(place / "encoded", bytes(range(32)), ("encode",), pack_blocks(parts))
    file = open_blocks(place / "encoded", bytes(range(32)), ("encode",))
    assert file is not None
    return EncodedBlocks(file)


def pairs() -> CandidateSet:
    """All pairs of values."""
    return CandidateSet.above(
        level_from({((j, v),): 1 for j, s in enumerate(SIZES) for v in range(s)}, 1), SIZES
    )


def counted(blocks: Blocks, engine: Engine, memory: int = AMPLE):
    """How many records hold how many pairs, and the bounded counts of the pairs."""
    words = KeyedBits(key=bytes(range(32)), purpose="level-2")
    histogram = histogram_of(blocks, pairs(), 15, engine).tolist()
    return histogram, count_blocks(blocks, pairs(), 6, words, engine, memory)
