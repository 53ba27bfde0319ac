"""Fits what the rows of a linked table are like in each component of the mixture of their units.

The mixture of the units stays as it is. Component k gets shares r_k(b) of the cells of each block of columns of the table. A
row of a unit with record x then has the cells b with probability sum_k P(k | x) prod_j r_k(b_j). Each row has a component of
its own, drawn as the record says, and two rows of a unit are independent given its record. A histogram by units over columns A
of the source and B of the table is U sum_k w_k prod_a p_k(a) prod_b r_k(b), U the number of units with rows, w and p their
mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from marginweave.base.arrays import Floats, Integers, Records
from marginweave.base.parallel import LocalEngine
from marginweave.base.progress import listener
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.mixture.descent import Descent
from marginweave.estimate.mixture.draws import starts_at
from marginweave.estimate.mixture.fit import normal
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.mixture.objective import Objective
from marginweave.estimate.mixture.start import TreeStart
from marginweave.estimate.mixture.targets import F32, FeatureLayout
from marginweave.observations.tables import Observation


@dataclass(frozen=True, kw_only=True, eq=False)
class RowModel:
    """What the rows of a linked table are like in each component of the mixture of the units.

    `blocks` are of columns by their places in the table, mostly of a single one; columns that rules tie are in one block.
    `shares[b]` has shape (components, cells of block b), each row adding up to 1. The code of a missing value is the last.
    """

    blocks: tuple[Block, ...]
    shares: tuple[Floats, ...]

    def lacks_values(self, column: int, labels: int) -> bool:
        """Return whether rows can lack a value of a column with so many labels."""
        return any(
            (block.cells[:, block.attributes.index(column)] == labels).any()
            for block in self.blocks
            if column in block.attributes
        )

    def column_shares(self, column: int, weights: Floats) -> Floats:
        """Return the shares of the codes of a column in all rows, by the weights of the components."""
        for block, shares in zip(self.blocks, self.shares, strict=True):
            if column in block.attributes:
                codes = block.cells[:, block.attributes.index(column)]
                return np.bincount(codes, weights @ shares).astype(np.float64)
        raise KeyError(column)

    def codes(self, cells: Records) -> Records:
        """Return the codes of all columns for cells of all blocks, shape (rows, columns)."""
        columns = sum(len(block.attributes) for block in self.blocks)
        codes = np.empty((len(cells), columns), np.int32, order="F")
        for block, places in zip(self.blocks, cells.T, strict=True):
            codes[:, block.attributes] = block.cells[places]
        return codes


def fit_rows(
    units: Mixture,
    measurements: Sequence[Observation],
    sizes: Sequence[int],
    blocks: tuple[Block, ...],
    settings: MixtureSynthesis,
) -> RowModel:
    """Return the model that is nearest to histograms by units, each with the weight of its precision. DP: post-processing.

    The descent is that of `fit_mixture`, from the same kind of start, and ends as it does; only the shares of rows move.

    Args:
        units: the mixture of the units that have rows.
        measurements: histograms over attributes of `units`, which come first, and over columns of the table, whose numbers
            follow. There is one of each column alone.
        sizes: number of codes of each column.
        blocks: which columns are drawn together, and the cells that a row can have.
        settings: those of the mixture of the units.
    """
    first = len(units.sizes)
    total = _number_of_units(measurements)
    fitted = pooled(measurements, first)
    own = [m for m in fitted if m.attributes[0] >= first]
    start = TreeStart(
        [m.renumbered([a - first for a in m.attributes]) for m in own], blocks, sizes, total
    )
    known = _KnownBlocks.of(units, (a for m in fitted for a in m.attributes))
    layout = known.layout(sizes, blocks)
    objective = Objective(layout, [known.renumbered(m) for m in fitted], (), total)
    starts = starts_at(units)
    generators = np.random.default_rng(settings.seed).spawn(len(starts))  # post-processing
    report = listener()

    def fit(number: int) -> Floats:
        of_units, weights, _ = starts[number]
        shares = start.shares(len(weights), generators[number]).T.astype(F32)
        together = np.concatenate([of_units[known.cells], shares])
        descent = Descent(layout, objective, together, weights, fixed=len(known.blocks))
        descent.run(settings.iterations, 1.0, _reporting(report, number, len(starts)))
        return descent.shares[len(known.cells) :].T.astype(np.float64)

    with threadpool_limits(1):
        fits = list(LocalEngine().map(fit, range(len(starts))))
    ends = np.cumsum([len(block.cells) for block in blocks])
    parts = np.split(np.concatenate(fits), ends[:-1], axis=1)
    return RowModel(blocks=blocks, shares=tuple(map(normal, parts)))


def _reporting(report: Callable[[str], None], number: int, fits: int) -> Callable[[str], None]:
    """Return a function that reports a pass of one of several fits."""
    return lambda text: report(f"model {number + 1} of {fits}, {text}")


def _number_of_units(measurements: Sequence[Observation]) -> float:
    """Return the number of units with rows: the mean of the sums of all histograms by their precision, at least 1."""
    precisions = [1 / (m.deviation**2 * m.counts.size) for m in measurements]
    return max(float(np.average([m.total for m in measurements], weights=precisions)), 1.0)


def pooled(measurements: Sequence[Observation], first: int) -> list[Observation]:
    """Return one histogram of each column of the table, which are numbered from `first` on, and all of pairs.

    That of a column is the mean of the sums of all that have it, by their precision: it says more than the one of the column
    alone where many pairs have the column.
    """
    columns = sorted({a for m in measurements for a in m.attributes if a >= first})
    pairs = [m for m in measurements if len(m.attributes) > 1]
    return [*(_pooled(column, measurements) for column in columns), *pairs]


def _pooled(column: int, measurements: Sequence[Observation]) -> Observation:
    """Return the histogram of a column: the mean of the sums of all that have it, by their precision."""
    weighted: Floats | float = 0.0
    precision = 0.0
    for m in measurements:
        if column in m.attributes:
            axis = m.attributes.index(column)
            sums = m.counts.sum(axis=tuple(i for i in range(m.counts.ndim) if i != axis))
            of_sum = len(sums) / (m.counts.size * m.deviation**2)
            weighted = weighted + of_sum * sums
            precision += of_sum
    return Observation(
        attributes=(column,),
        counts=np.asarray(weighted / precision, np.float64),
        deviation=precision**-0.5,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _KnownBlocks:
    """The blocks of the mixture of units that histograms are over, their attributes, and their cells among those of all."""

    units: Mixture
    blocks: tuple[Block, ...]
    attributes: Clique
    cells: Integers

    @classmethod
    def of(cls, units: Mixture, attributes: Iterable[int]) -> _KnownBlocks:
        """Return the blocks that have some of these attributes."""
        used = set(attributes)
        ends = np.cumsum([0, *(len(block.cells) for block in units.blocks)])
        chosen = [b for b, block in enumerate(units.blocks) if used.intersection(block.attributes)]
        blocks = tuple(units.blocks[b] for b in chosen)
        cells = [np.arange(ends[b], ends[b + 1]) for b in chosen]
        return cls(
            units=units,
            blocks=blocks,
            attributes=tuple(sorted(a for block in blocks for a in block.attributes)),
            cells=np.concatenate([np.zeros(0, np.int64), *cells]),
        )

    def layout(self, sizes: Sequence[int], of_rows: Sequence[Block]) -> FeatureLayout:
        """Return the layout of these blocks and of those of rows, in the numbers of `renumbered`."""
        first = len(self.attributes)
        blocks = [
            replace(block, attributes=tuple(map(self.attributes.index, block.attributes)))
            for block in self.blocks
        ]
        blocks += [
            replace(block, attributes=tuple(first + column for column in block.attributes))
            for block in of_rows
        ]
        of_units = [self.units.sizes[a] for a in self.attributes]
        return FeatureLayout(tuple(blocks), (*of_units, *sizes))

    def renumbered(self, measurement: Observation) -> Observation:
        """Return a histogram with its attributes numbered among these; the columns of the table follow."""
        shift = len(self.units.sizes) - len(self.attributes)
        first = len(self.units.sizes)
        return measurement.renumbered(
            [a - shift if a >= first else self.attributes.index(a) for a in measurement.attributes]
        )


def row_gaps(
    configuration: Configuration, models: Mapping[str, RowModel]
) -> dict[str, tuple[str, ...]]:
    """Return by tables the columns in which their rows can lack a value. DP: post-processing."""
    gaps = {}
    for table, model in models.items():
        columns = (configuration.tables or {})[table].columns.items()
        gaps[table] = tuple(
            name
            for place, (name, column) in enumerate(columns)
            if model.lacks_values(place, len(column.labels))
        )
    return gaps


def pack_row_models(models: Mapping[str, RowModel]) -> bytes:
    """Return the models by the names of their tables as bytes from which `unpack_row_models` restores them bit for bit."""
    arrays: dict[str, NDArray[Any]] = {}
    for table, model in enumerate(models.values()):
        for place, (block, shares) in enumerate(zip(model.blocks, model.shares, strict=True)):
            arrays[f"{table:05d}-{place:05d}-cells"] = block.cells
            arrays[f"{table:05d}-{place:05d}-shares"] = shares
    attributes = [[block.attributes for block in model.blocks] for model in models.values()]
    return pack_arrays(arrays, {"tables": list(models), "blocks": attributes})


def unpack_row_models(payload: bytes) -> dict[str, RowModel]:
    """Return the models that `pack_row_models` packed."""
    arrays, meta = unpack_arrays(payload)
    models = {}
    for table, (name, blocks) in enumerate(zip(meta["tables"], meta["blocks"], strict=True)):
        keys = [f"{table:05d}-{place:05d}" for place in range(len(blocks))]
        models[name] = RowModel(
            blocks=tuple(
                Block(attributes=tuple(attributes), cells=arrays[f"{key}-cells"])
                for key, attributes in zip(keys, blocks, strict=True)
            ),
            shares=tuple(arrays[f"{key}-shares"] for key in keys),
        )
    return models
