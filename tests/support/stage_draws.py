"""Stages run without ledger and files: what each of them would have drawn, and whether that has the planned noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from marginweave.accounting.records import State
from marginweave.configuration.release import Configuration
from marginweave.counts import marginal_rows
from marginweave.draws import draw
from marginweave.draws.protocol import PreparedDraw
from marginweave.draws.references import StageResult
from marginweave.measurements.plan import PlannedDraw
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.planning.split import plan_budget
from marginweave.prepare.codes import EncodedTable
from marginweave.tasks.aggregate import combinations as task
from marginweave.tasks.aggregate import marginals as marginals_task
from marginweave.tasks.aggregate import rounds as rounds_task
from tests.support.configurations import configuration
from tests.support.counting import blocks_of
from tests.support.level_draws import category, table_of

ENCODED = StageResult(stage="encode", address="", file="", digest="")
# |z| above this has probability 2e-7; no test looks at more than four of them: false alarm below 1e-6
Z = 5.2


class Stages:
    """A run without ledger and files: what each stage would have drawn once, and can be asked to draw again."""

    def __init__(self, config: Configuration, table: EncodedTable, folder: Path, patch: pytest.MonkeyPatch) -> None:
        (folder / "key").write_bytes(bytes(range(32)))
        self.makes: dict[str, Callable[[], bytes]] = {}
        self.drawn: dict[str, bytes] = {}
        self.reference: Any = SimpleNamespace(
            configuration=config,
            resolved=config,
            counted=config.with_undeclared(config.undeclared),
            plan=plan_budget(config),
            key_file=folder / "key",
            folder=SimpleNamespace(private=folder),
        )
        for module in (draw, task, marginals_task, marginal_rows, rounds_task):
            patch.setattr(module, "draw_once", self.once)
            patch.setattr(module, "is_committed", lambda _, draw: str(draw) in self.drawn, raising=False)
            patch.setattr(
                module, "standing", lambda _, draw: SimpleNamespace(state=self._state(str(draw))), raising=False
            )
            patch.setattr(module, "open_encoded", lambda *_: blocks_of(table), raising=False)

    def _state(self, name: str) -> State:
        return State.COMMITTED if name in self.drawn else State.RESERVED

    def once(
        self, _: Any, draw: PlannedDraw, prepare: Callable[[], PreparedDraw] | None = None
    ) -> tuple[bytes, StageResult]:
        name = str(draw)
        if prepare is not None and name not in self.drawn:
            assert name in self.reference.plan.by_name
            prepared = prepare()
            unkeyed, make = prepared.unkeyed, prepared.make
            self.makes[name] = lambda: make(fresh_bits(), b"" if unkeyed is None else unkeyed())
            self.drawn[name] = self.makes[name]()
        return self.drawn[name], ENCODED

    def multiplier(self, name: str) -> float:
        """The planned noise multiplier of a draw."""
        return float(self.reference.plan.by_name[name].parameter)


def assert_noise(noise: NDArray[np.floating], deviation: float) -> None:
    """Mean 0 and variance sd^2 + 1/12, each within Z standard errors: false alarm 4e-7."""
    variance, count = deviation**2 + 1 / 12, noise.size
    assert abs(noise.mean()) < Z * math.sqrt(variance / count)
    assert abs((noise**2).mean() / variance - 1) < Z * math.sqrt(2 / count)


MARGINALS = {"aggregate__method": "marginals", "aggregate__compress": "none"}
SIZES = (90, 70, 110)


def marginal_stages(folder: Path, patch: pytest.MonkeyPatch, **changes: Any) -> tuple[Stages, list[NDArray[np.int64]]]:
    rng = np.random.default_rng(4)
    columns = [rng.integers(0, size, 5000) for size in SIZES]
    named = {
        name: {**category(size), "impute": {"distribution": "uniform"}} for name, size in zip("abc", SIZES, strict=True)
    }
    config = configuration(columns=named, **MARGINALS, **changes)
    return Stages(config, table_of([c.tolist() for c in columns], SIZES), folder, patch), columns
