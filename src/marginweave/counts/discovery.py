"""The domain of what is counted: discovered values, rare values merged, structural zeros, and rows over it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Counts
from marginweave.base.errors import InputError
from marginweave.configuration.marginals import MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.measurements.combinations import Level
from marginweave.measurements.plan import BudgetPlan, DrawKind
from marginweave.measurements.tables import Measurement, StructuralZeros, alike
from marginweave.mechanisms.gaussian import add_noise, query_sigma
from marginweave.mechanisms.randomness import DrawBits
from marginweave.planning.thresholds import private_threshold
from marginweave.prepare.codes import Codes, EncodedBlocks, EncodedTable, code_type

Labels = Sequence[Sequence[str]]


def released_compression(
    one_way: Sequence[Measurement], settings: MarginalSettings, masks: Sequence[StructuralZeros]
) -> Compression:
    """Which rare values are measured together. DP: post-processing of the one-way marginals."""
    return plan_compression(one_way, -math.inf if settings.compress == "none" else settings.compress, masks)


def discovery(configuration: Configuration, plan: BudgetPlan) -> tuple[Fraction, int]:
    """Standard deviation of the noise of the draw `values`, and the least noisy count of a private value that is released.

    A record holds one value of each of p private attributes at most: L2 sensitivity theta sqrt(p), as of a level.
    DP: arithmetic on public numbers.
    """
    values_each, stability = len(configuration.private_columns), configuration.stability
    sigma = query_sigma(plan.draw(DrawKind.VALUES), stability, values_each)
    return sigma, private_threshold(sigma, values_each, stability.records, plan.delta_threshold)


def count_values(blocks: Iterable[EncodedTable], columns: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    """How many records have each value of the attributes `columns`, by attribute; private."""
    counts: dict[int, NDArray[np.int64]] = {}
    for table in blocks:
        for j in columns:
            here = np.bincount(table.codes[j], minlength=table.sizes[j] + 1)[: table.sizes[j]].astype(np.int64)
            counts[j] = counts[j] + here if j in counts else here
    return counts


def discover_labels(
    counts: Mapping[int, Counts], labels: Sequence[tuple[str, ...]], sigma: Fraction, threshold: int, bits: DrawBits
) -> dict[int, tuple[str, ...]]:
    """Values of private attributes whose noisy count reaches the threshold, sorted, by attribute.

    Only values that occur are noised; that they do is what delta_threshold pays for (`private_threshold`; differentially
    private set union: Korolova et al. 2009, Gopi et al. 2020).
    DP: mu-GDP with mu = 1 / multiplier, plus delta_threshold.

    Args:
        counts: by attribute, from `count_values`.
        labels: the values of every attribute.
        sigma: standard deviation of the noise.
        threshold: noisy counts below it are not released.
        bits: of the draw; an attribute's table has its number.
    """
    released = {}
    for j, exact in counts.items():
        there = np.flatnonzero(exact)
        kept = there[add_noise(exact[there], sigma, bits, table=j) >= threshold]
        released[j] = tuple(sorted(labels[j][v] for v in kept.tolist()))
    return released


@dataclass(frozen=True, kw_only=True, eq=False)
class Compression:
    """For each attribute the new code of every code, and the noisy counts by which the merged ones are told apart."""

    codes: tuple[NDArray[np.int64], ...]
    counts: tuple[NDArray[np.float64], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute after merging."""
        return tuple(int(new.max()) + 1 for new in self.codes)

    def with_last(self, more: Mapping[int, float]) -> Compression:
        """The same with one code more of some attributes, behind all others and merged with none; `more` has their counts."""
        codes, counts = list(self.codes), list(self.counts)
        for attribute, count in more.items():
            codes[attribute] = np.append(codes[attribute], self.sizes[attribute])
            counts[attribute] = np.append(counts[attribute], count)
        return Compression(codes=tuple(codes), counts=tuple(counts))


def plan_compression(
    one_way: Sequence[Measurement], multiple: float = 3.0, masks: Sequence[StructuralZeros] = ()
) -> Compression:
    """Merge the values of an attribute whose noisy count is below `multiple` standard deviations (PrivSyn: theta = 3 sigma).

    Values that a mask treats differently stay apart, so that a forbidden combination is forbidden after merging, too.
    The merged value comes last; a single rare value stays as it is.

    Args:
        one_way: one marginal an attribute, in order of attributes.
        multiple: threshold in standard deviations; 0 merges nothing but what is measured below 0.
        masks: structural zeros, over the codes before merging.

    Returns:
        The new codes. DP: post-processing.

    Raises:
        InputError: the marginals are not those of attributes 0, 1, 2, ….
    """
    if [m.attributes for m in one_way] != [(a,) for a in range(len(one_way))]:
        raise InputError("one_way must have one marginal for each attribute, in order")
    counts = tuple(m.counts.astype(np.float64) for m in one_way)
    codes = tuple(
        _merge(counts[a] < multiple * m.deviation, alike(a, len(counts[a]), masks)) for a, m in enumerate(one_way)
    )
    return Compression(codes=codes, counts=counts)


def compress_codes(codes: Sequence[Codes], compression: Compression) -> tuple[Codes, ...]:
    """The rows in the new codes, one array of shape (rows,) an attribute. Private: 1-stable, row by row."""
    return tuple(new.astype(code_type(len(new)))[old] for new, old in zip(compression.codes, codes, strict=True))


def compress_measurement(one_way: Measurement, compression: Compression) -> Measurement:
    """The marginal of one attribute over its new codes; a merged cell has a little more noise than `deviation` says.

    DP: post-processing.
    """
    (attribute,) = one_way.attributes
    return replace(one_way, counts=np.bincount(compression.codes[attribute], weights=one_way.counts))


def compress_mask(mask: StructuralZeros, compression: Compression) -> StructuralZeros:
    """The mask over the new codes: exact, because merged values have the same zeros. DP: arithmetic on released codes."""
    first = [np.unique(compression.codes[attribute], return_index=True)[1] for attribute in mask.attributes]
    return mask.over(first)


def _merge(rare: NDArray[np.bool_], kinds: NDArray[np.int64]) -> NDArray[np.int64]:
    """New codes: values that are not merged in their order, then one code for each kind of two and more rare values."""
    together = rare & (np.bincount(kinds, weights=rare)[kinds] > 1)
    new = np.empty(len(rare), np.int64)
    new[~together] = np.arange(int((~together).sum()))
    merged = np.unique(kinds[together], return_inverse=True)[1]
    new[together] = int((~together).sum()) + merged
    return new


def released_level(
    first: Level, labels: Labels, private_columns: Sequence[int]
) -> tuple[Level, dict[int, tuple[str, ...]]]:
    """Length 1 with the values of private columns numbered as in the released domain, and that domain by column, sorted.

    A longer level has no private columns and stays as it is.

    DP: post-processing of the released 1-tuples: a value that did not reach its threshold does not appear.
    """
    if not private_columns:
        return first, {}
    values, released = first.values.copy(), {}
    for j in private_columns:
        rows = first.columns[:, 0] == j
        names = [labels[j][int(v)] for v in first.values[rows, 0]]
        released[j] = tuple(sorted(names))
        position = {label: i for i, label in enumerate(released[j])}
        values[rows, 0] = [position[name] for name in names]
    return replace(first, values=values).select(np.lexsort((values[:, 0], first.columns[:, 0]))), released


def recode(table: EncodedTable, released: Mapping[int, tuple[str, ...]]) -> EncodedTable:
    """The table over the released domain: values of private columns that were not released become missing. Private."""
    codes: list[Codes] = list(table.codes)
    labels = list(table.labels)
    for j, values in released.items():
        position = {label: i for i, label in enumerate(values)}
        lookup = np.array([*(position.get(label, len(values)) for label in table.labels[j]), len(values)])
        codes[j] = lookup.astype(code_type(len(values)))[table.codes[j]]
        labels[j] = values
    return EncodedTable(codes=tuple(codes), labels=tuple(labels))


@dataclass(frozen=True)
class ReleasedBlocks:
    """Blocks in which values of private columns that were not released are missing. Private."""

    blocks: EncodedBlocks
    released: Mapping[int, tuple[str, ...]]

    @property
    def offsets(self) -> tuple[int, ...]:
        """The number of the first record of each block, and the number of all records at the end."""
        return self.blocks.offsets

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The values of each attribute: public or released."""
        return tuple(self.released.get(j, labels) for j, labels in enumerate(self.blocks.labels))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each attribute."""
        return tuple(len(labels) for labels in self.labels)

    def table(self, block: int) -> EncodedTable:
        """The records of one block."""
        return recode(self.blocks.table(block), self.released)
