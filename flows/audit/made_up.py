"""A small made-up release at the parameters of a configuration: two tables that differ in one unit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.flows.audit.tables import one_block, table_of
from marginweave.schemas.arrays import Floats
from marginweave.schemas.budget import BudgetPlan
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.released.aggregates import Level
from marginweave.tasks.accounting.plan.k_tuples import plan_budget
from marginweave.tasks.accounting.plan.resolve import parse_configuration
from marginweave.tasks.encode.blocks import EncodedBlocks

Codes = NDArray[np.int64]

# Rows in every combination of values: so many that no threshold hides what the unit adds to them.
_COPIES = 20
_SIZES = (2, 3)


@dataclass(frozen=True, kw_only=True)
class MadeUpRelease:
    """`present` has a unit more than `absent`, or another one; its rows are alike, lack nothing and are like those of others.

    `unit` and `other` are the texts of their values, the last ones and the first. What only the unit has, and the delta that
    pays for it, is audited by itself: here every value is in so many rows that it is released, and all of the unit counts.
    """

    configuration: Configuration
    plan: BudgetPlan
    present: EncodedBlocks
    absent: EncodedBlocks
    unit: tuple[str, ...]
    other: tuple[str, ...] | None
    shared: Codes

    @classmethod
    def of(cls, configuration: Configuration) -> MadeUpRelease:
        """Of few public columns, and one of a private domain where the configuration has any."""
        sizes = [_SIZES[j % 2] for j in range(max(3, _length(configuration)))]
        made_up = _configuration(configuration, sizes, private=bool(configuration.private_columns))
        everything = np.array(list(itertools.product(*map(range, sizes))))
        # rows whose values go together, so that there are pairs that are worth their noise
        together = np.array([[i % size for size in sizes] for i in range(max(sizes))])
        base = np.concatenate([np.repeat(everything, _COPIES, axis=0), np.repeat(together, 5 * _COPIES, axis=0)])
        last, first = np.array(sizes) - 1, np.zeros(len(sizes), np.int64)
        replaces = made_up.stability.neighbors == "replace-one"

        def blocks(unit: Codes | None) -> EncodedBlocks:
            rows = [base] if unit is None else [base, np.tile(unit, (made_up.stability.records, 1))]
            return one_block(table_of(list(np.concatenate(rows).T), sizes))

        return cls(
            configuration=made_up,
            plan=plan_budget(made_up),
            present=blocks(last),
            absent=blocks(first if replaces else None),
            unit=tuple(map(str, last.tolist())),
            other=tuple(map(str, first.tolist())) if replaces else None,
            shared=base,
        )

    def matches(self, level: Level, labels: tuple[tuple[str, ...], ...], values: tuple[str, ...]) -> NDArray[np.bool_]:
        """Which combinations of a level a record with these `values` has."""
        codes = [found.index(text) if text in found else -1 for found, text in zip(labels, values, strict=True)]
        matching: NDArray[np.bool_] = (level.values == np.array(codes)[level.columns]).all(axis=1)
        return matching

    def expected(self, columns: Codes, values: tuple[str, ...], bound: int) -> Floats:
        """The mean counts of combinations of `values` in `columns`, of the rows that both tables share; (combinations,)."""
        share = min(1.0, bound / self.configuration.contribution_cap(columns.shape[1]))
        alike = self.shared == np.array([int(text) for text in values])
        return np.array([share * alike[:, row].all(axis=1).sum() for row in columns], np.float64)


def _length(configuration: Configuration) -> int:
    return configuration.reporting_length if configuration.marginals is None else 0


def _configuration(configuration: Configuration, sizes: list[int], *, private: bool) -> Configuration:
    """Privacy and shares as configured, over made-up columns."""
    columns: dict[str, Any] = {
        f"made-up-{j}": {"type": "category", "values": list(map(str, range(size))), "outside": "error"}
        for j, size in enumerate(sizes, 1)
    }
    if private:
        columns[f"made-up-{len(sizes)}"] = {"type": "category", "domain": "private"}
    aggregate = configuration.aggregate.model_dump(mode="json", exclude_unset=True)
    aggregate.pop("bounds_share", None)
    if configuration.marginals is None:
        aggregate["reporting_length"] = configuration.reporting_length
        aggregate["percentile"] = configuration.percentile or "none"
    elif configuration.marginals.cliques != "selected":
        aggregate["cliques"] = {"all": 2}
    paid = configuration.evaluate.model_dump(mode="json", exclude_none=True, include={"paid"})
    return parse_configuration(
        {
            "dataset": "made-up",
            "source": "made-up.csv",
            "privacy": configuration.privacy.model_dump(mode="json", exclude_unset=True),
            "missing": [],
            "columns": columns,
            "aggregate": aggregate,
            **({"evaluate": paid} if paid else {}),
        }
    )
