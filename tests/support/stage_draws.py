"""Measurements drawn without ledger and files: what each would have drawn, and whether that has the planned noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from marginweave.base.parallel import Engine, LocalEngine
from marginweave.configuration.release import Configuration
from marginweave.counts.count_runs import MemoryBudget
from marginweave.measurements.base import Drawn, Exact, Measurement, PrivateRows
from marginweave.measurements.split import plan_budget
from marginweave.mechanisms.randomness import fresh_bits
from marginweave.prepare.codes import EncodedTable
from tests.support.configurations import configuration
from tests.support.counting import blocks_of
from tests.support.level_draws import category, table_of

# |z| above this has probability 2e-7; no test looks at more than four of them: false alarm below 1e-6
Z = 5.2
T = TypeVar("T")


class TableRows(PrivateRows):
    """The rows of one table in memory."""

    def __init__(self, table: EncodedTable, folder: Path, clean: Sequence[Any] = ()) -> None:
        self.memory = MemoryBudget(1 << 28, folder)
        self._table, self._clean = table, clean

    @property
    def key(self) -> bytes:
        return bytes(range(32))

    def clean(self) -> Any:
        return self._clean

    def encoded(self) -> Any:
        return blocks_of(self._table)

    def engine(self) -> AbstractContextManager[Engine]:
        return nullcontext(LocalEngine())

    def remember(self, name: str, compute: Callable[[], T]) -> T:  # noqa: ARG002 - each time anew
        return compute()

    def cached_blocks(
        self,
        name: str,  # noqa: ARG002
        follows: Any,  # noqa: ARG002
        compute: Callable[[], Iterable[bytes]],
    ) -> Iterable[bytes]:
        return list(compute())


class MeasuredTable(Drawn):
    """What has been drawn of one table, by the plan of its configuration, each draw from bits of its own."""

    def __init__(
        self, config: Configuration, table: EncodedTable, folder: Path, clean: Sequence[Any] = ()
    ) -> None:
        super().__init__(config, plan_budget(config))
        self.rows = TableRows(table, folder, clean)
        self.exact: dict[str, Exact[Any]] = {}
        self.payloads: dict[str, bytes] = {}

    @property
    def resolved(self) -> Configuration:
        return self.configuration

    def payload(self, measurement: Measurement[Any]) -> bytes:
        return self.payloads[measurement.name]

    def is_committed(self, measurement: Measurement[Any]) -> bool:
        return measurement.name in self.payloads

    def derived(self, name: str, follows: Any, compute: Callable[[], bytes]) -> bytes:  # noqa: ARG002
        return compute()

    def draw(self, name: str) -> bytes:
        """Count and draw a measurement of the plan, which is due."""
        measurement = self.plan.by_name[name]
        assert measurement.is_due(self)
        assert measurement.is_needed(self)
        self.exact[name] = measurement.count(self.rows, self)
        self.payloads[name] = self.again(name)
        return self.payloads[name]

    def again(self, name: str) -> bytes:
        """The same exact result with other noise."""
        measurement, exact = self.plan.by_name[name], self.exact[name]
        seal = measurement.seal(exact)
        return measurement.draw(exact, fresh_bits(), b"" if seal is None else seal())

    def parameter(self, name: str) -> float:
        """The planned noise multiplier or epsilon of a draw."""
        return self.plan.by_name[name].parameter


def assert_noise(noise: NDArray[np.floating], deviation: float) -> None:
    """Mean 0 and variance sd^2 + 1/12, each within Z standard errors: false alarm 4e-7."""
    variance, count = deviation**2 + 1 / 12, noise.size
    assert abs(noise.mean()) < Z * math.sqrt(variance / count)
    assert abs((noise**2).mean() / variance - 1) < Z * math.sqrt(2 / count)


MARGINALS = {"aggregate__method": "marginals", "aggregate__compress": "none"}
SIZES = (90, 70, 110)


def measured_marginals(
    folder: Path, **changes: Any
) -> tuple[MeasuredTable, list[NDArray[np.int64]]]:
    """A table of three columns of which marginals are counted, and its codes."""
    rng = np.random.default_rng(4)
    columns = [rng.integers(0, size, 5000) for size in SIZES]
    named = {
        name: {**category(size), "impute": {"distribution": "uniform"}}
        for name, size in zip("abc", SIZES, strict=True)
    }
    config = configuration(columns=named, **MARGINALS, **changes)
    return MeasuredTable(config, table_of([c.tolist() for c in columns], SIZES), folder), columns
