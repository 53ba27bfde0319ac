"""Settings of marginals: those that are measured, and the shares of the budget that they get."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from marginweave.base.budget import NoiseSetting
from marginweave.base.errors import MustError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.columns import Texts
from marginweave.configuration.spread_pairs import spread_pairs
from marginweave.configuration.values import (
    MAX_CELLS,
    FrozenModel,
    Number,
    OpenFraction,
    PaperPreset,
    PositiveWhole,
    Whole,
    or_none,
    to_number,
    to_whole,
)

COMPRESS = 3.0
"""Values whose noisy count is below this many standard deviations are measured together by default."""

MOST_PICKS = 400
"""Most choices of one release, each of which is a draw in the ledger."""
MOST_ROUNDS = 100
"""Most rounds in which marginals are chosen."""


class TargetTable(FrozenModel):
    """What is measured of the target `columns`, for models that predict these from all others.

    Larger marginals with the target have `weight` times the budget that they would have. One more marginal has all attributes,
    numbers and dates in two bins but for the target, if it has at most `cells` cells (`BinLevels.beside_targets`): `share` of
    the budget of larger marginals is for it.
    """

    columns: Annotated[Texts, Field(min_length=1)]
    cells: PositiveWhole = 1024
    share: OpenFraction = 0.3
    weight: Annotated[Number, Field(ge=1, le=100)] = 1.0


class AllCliques(FrozenModel):
    """All marginals of `all` attributes that have at most `max_cells` cells, and parts of those that have more.

    The parts are subsets with at most `max_cells` cells that no other marginal contains. Pairs are measured whatever their
    cells, so that no dependence of two attributes is lost, unless `all` is 2. In marginals of more than `coarsen` cells,
    columns are in coarser bins, until there are at most that many cells (`BinLevels.within`); combinations of columns that
    such a marginal does not have in its finest bins are measured in shorter marginals as well. Pairs are never in coarser bins.
    With a `target` there may be one more marginal, which is the only one of more than `all` attributes. `spread_pairs`: of
    all pairs so many, spread over all columns.
    """

    all: PositiveWhole
    max_cells: PositiveWhole | None = None
    coarsen: PositiveWhole | None = None
    target: TargetTable | None = None
    spread_pairs: PositiveWhole | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.spread_pairs is not None and (self.all != 2 or self.coarsen or self.target):
            raise ValueError("has spread_pairs, which needs all: 2, without coarsen and target")
        return self

    def places(self, levels: BinLevels) -> Iterator[tuple[int, ...]]:
        """Yield the attributes or levels of each marginal, the longest first, that of the target last.

        DP: arithmetic on public sizes.
        """
        yield from self._sets(levels)
        if self.target is not None:
            beside_target = levels.beside_targets(self.target.cells)
            if len(beside_target) > self.all:
                yield beside_target

    def _sets(self, levels: BinLevels) -> Iterator[tuple[int, ...]]:
        """Yield the marginals of at most `all` attributes."""
        if self.spread_pairs is not None:
            pairs = spread_pairs(levels.attributes, self.spread_pairs)
            yield from (pair for pair in pairs if self._is_measured(pair, levels))
            return
        # sets of attributes that a longer marginal has in their finest bins
        contained: set[tuple[int, ...]] = set()
        longest = min(self.all, levels.attributes)
        for length in range(longest, min(longest, 2) - 1, -1):
            shorter = max(length - 1, 0)
            parts = set[tuple[int, ...]]()
            for attributes in contained:
                parts.update(itertools.combinations(attributes, shorter))
            for attributes in itertools.combinations(range(levels.attributes), length):
                if attributes in contained:
                    continue
                marginal = attributes
                if self.coarsen is not None and length > 2:
                    marginal = levels.within(attributes, self.coarsen)
                if self._is_measured(marginal, levels):
                    yield marginal
                    finest = [place for place in marginal if place < levels.attributes]
                    parts.update(itertools.combinations(finest, shorter))
            if self.max_cells is None and self.coarsen is None:  # every shorter set is contained
                return
            contained = parts

    def _is_measured(self, marginal: tuple[int, ...], levels: BinLevels) -> bool:
        """Return whether a marginal has few enough cells, or is a pair among longer marginals."""
        if self.max_cells is None or len(marginal) == 2 < self.all:
            return True
        return _cells_of(marginal, levels) <= self.max_cells

    def count_sets(self, columns: int) -> int:
        """Return the number of sets of attributes that `places` considers, for this number of columns."""
        longest = min(self.all, columns)
        if self.spread_pairs is not None:
            return min(self.spread_pairs, math.comb(columns, 2))
        shortest = longest if self.max_cells is None and self.coarsen is None else min(longest, 2)
        return sum(math.comb(columns, length) for length in range(shortest, longest + 1))

    def cells(self, levels: BinLevels) -> Iterator[int]:
        """Yield the number of cells of each marginal, in the order of `places`."""
        for marginal in self.places(levels):
            yield _cells_of(marginal, levels)


def _cells_of(marginal: tuple[int, ...], levels: BinLevels) -> int:
    return math.prod(levels.sizes[place] for place in marginal)


class AdaptiveCliques(FrozenModel):
    """Marginals of 2 to `adaptive` attributes, chosen in rounds by the error of a model of the earlier marginals (AIM).

    A round chooses `batch` marginals of at most `max_cells` cells, rare values merged, and measures them with one of `rounds`
    equal shares of the budget of the larger marginals. With `annealing`, after a round that taught no more than noise, later
    rounds take four times as many shares each: fewer rounds, with half the noise. `weights` multiply the error of the model:
    `workload` by the number of attributes, which is the weight of AIM for all sets of 2 to k attributes; `equal` by 1. With
    `coarsen` half of the noise counts against a set, and a set whose finest table would have more noise than there are records
    is a candidate in coarser bins as well (`BinLevels.coarser`).
    """

    adaptive: Annotated[Whole, Field(ge=2, le=4)] = 3
    # the cells of two attributes of two values each
    max_cells: Annotated[Whole, Field(ge=4)] = 10_000
    rounds: Annotated[Whole, Field(ge=1, le=MOST_ROUNDS)] = 16
    batch: Annotated[Whole, Field(ge=1, le=20)] = 4
    annealing: bool = True
    coarsen: bool = False
    weights: Literal["workload", "equal"] = "workload"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rounds * self.batch > MOST_PICKS:
            raise ValueError(
                f"has rounds ({self.rounds}) times batch ({self.batch}) above {MOST_PICKS}; each is a separate charge"
            )
        return self

    def sets(self, columns: int) -> int:
        """Return the number of sets of 2 to `adaptive` attributes of this many columns, whatever their cells."""
        return sum(math.comb(columns, length) for length in range(2, self.adaptive + 1))

    def candidates(self, levels: BinLevels) -> int:
        """Return the number of sets, each also in all of its coarser bins: a level is a step of all sets with its attribute."""
        columns = levels.attributes
        others = sum(math.comb(columns - 1, length - 1) for length in range(2, self.adaptive + 1))
        return self.sets(columns) + len(levels.of) * others

    def most_chosen(self, columns: int) -> int:
        """Return the most different sets that can be chosen.

        Fewer are chosen where a set is chosen in several rounds, or annealing makes fewer rounds.
        """
        return min(self.rounds * self.batch, self.sets(columns))


_LIST = TypeAdapter[tuple[tuple[str, ...], ...]](Annotated[tuple[Texts, ...], Field(min_length=1)])


def _cliques(value: Any) -> Any:
    """Return the setting `cliques` that a configuration writes; raises ValueError."""
    if isinstance(value, list | tuple):
        return _LIST.validate_python(value)
    if isinstance(value, dict):
        adaptive_keys = AdaptiveCliques.model_fields.keys() - AllCliques.model_fields.keys()
        model = AllCliques if adaptive_keys.isdisjoint(value) else AdaptiveCliques
        return model.model_validate(value)
    if value == "adaptive":
        return AdaptiveCliques()
    if value != "selected" and not isinstance(value, AllCliques | AdaptiveCliques):
        raise MustError(
            "be selected, adaptive, {adaptive: k, …}, {all: k, max_cells: …, coarsen: …} or a list of lists of two and "
            "more attributes"
        )
    return value


Cliques = Annotated[
    Literal["selected"] | AdaptiveCliques | AllCliques | tuple[Texts, ...],
    BeforeValidator(_cliques),
]

_COMPRESS = or_none(to_number, lambda multiple: multiple > 0, "be positive, or none")
_MERGE = or_none(
    to_whole,
    lambda limit: 1 <= limit <= MAX_CELLS,
    f"be at least 1 and at most {MAX_CELLS}, or none",
)


class MarginalSettings(PaperPreset):
    """Dense noisy marginals (DPSyn). Shares are of the budget, mu².

    Every attribute is measured by itself with `one_way_share`. `cliques` are the larger marginals: chosen by noisy InDif
    scores (`selected`) or in rounds (`adaptive`), which cost `selection_share`, all of k attributes, or a list. They have the
    rest of the budget, shared equally or by the power of their cells that has the least error (`allocation`; in rounds, among
    the marginals of a round). Values whose one-way count is below `compress` standard deviations are measured together.
    `noise` is the noise of the counts of all of these marginals: Gaussian, charged in mu^2; Laplace, charged in plain epsilon
    to the account's allowance; or `auto`, which has the smaller variance by public numbers. `merge_cells`: connected selected
    pairs become one marginal of at most this many cells. `values_share` pays for the discovery of private domains, with
    `delta_threshold_share` of delta. With fewer than `least_records`, by the noisy counts of single attributes, the draw of
    larger marginals measures single attributes again and a few pairs instead (`measurements.few_records`). `preset: paper`
    sets the constants of PrivSyn for all keys that are not written.
    """

    # PrivSyn's constants that differ from ours: single attributes, and scores, have an eighth of the share of pairs, and
    # selected pairs are merged up to this many cells.
    paper: ClassVar[dict[str, Any]] = {
        "one_way_share": 0.1,
        "selection_share": 0.1,
        "merge_cells": 5000,
    }
    method: Literal["marginals"] = "marginals"
    cliques: Cliques = "selected"
    noise: NoiseSetting = "gaussian"
    allocation: Literal["cells", "equal"] = "cells"
    one_way_share: OpenFraction = 0.3
    selection_share: OpenFraction = 0.05
    values_share: OpenFraction = 0.05
    bounds_share: OpenFraction | None = None
    delta_threshold_share: OpenFraction = 0.1
    merge_cells: Annotated[int | Literal["none"], _MERGE] = "none"
    least_records: Annotated[Whole, Field(ge=1)] | None = None
    compress: Annotated[float | Literal["none"], _COMPRESS] = COMPRESS

    @property
    def adaptive(self) -> AdaptiveCliques | None:
        """Settings of the choice of marginals in rounds, or None."""
        return self.cliques if isinstance(self.cliques, AdaptiveCliques) else None

    def levels(self, sizes: Sequence[int], attributes: Sequence[Attribute]) -> BinLevels:
        """Return the attributes, of `sizes` codes, and the levels in which larger marginals are counted."""
        coarsens = isinstance(self.cliques, AllCliques | AdaptiveCliques) and self.cliques.coarsen
        target = self.cliques.target if isinstance(self.cliques, AllCliques) else None
        targets = () if target is None else target.columns
        return BinLevels.make(sizes, attributes, coarsens=bool(coarsens), targets=targets)

    def reserved_shares(self, cliques: Sequence[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
        """Return the share of the budget of larger marginals that the one of the target has, if it is among these."""
        if not isinstance(self.cliques, AllCliques) or self.cliques.target is None:
            return {}
        longer = [clique for clique in cliques if len(clique) > self.cliques.all]
        return dict.fromkeys(longer, self.cliques.target.share)

    @property
    def most_weight(self) -> float:
        """Most by which the share of a marginal is multiplied."""
        target = self.cliques.target if isinstance(self.cliques, AllCliques) else None
        return 1.0 if target is None else target.weight

    def target_weights(
        self, cliques: Sequence[tuple[int, ...]], levels: BinLevels
    ) -> list[float] | None:
        """Return by how much the share of each marginal is multiplied; None without a target.

        Single attributes, which another draw measures, have equal weights. DP: arithmetic on public numbers.
        """
        if not isinstance(self.cliques, AllCliques) or self.cliques.target is None:
            return None
        weights: list[float] = []
        for clique in cliques:
            columns = levels.columns(clique) if len(clique) > 1 else ()
            has_target = not set(levels.targets).isdisjoint(columns)
            weights.append(self.cliques.target.weight if has_target else 1.0)
        return weights

    def selects(self, attributes: int) -> bool:
        """Return whether marginals are chosen by draws; with a single attribute there is nothing to choose."""
        return (self.cliques == "selected" or self.adaptive is not None) and attributes > 1

    def longest(self, attributes: int) -> int:
        """Return the most attributes of a marginal, whatever is drawn; with `merge_cells` merged marginals may have more."""
        if isinstance(self.cliques, tuple):
            return max(map(len, self.cliques))
        if isinstance(self.cliques, AllCliques):
            return min(self.cliques.all, attributes)
        longest = 2 if self.adaptive is None else self.adaptive.adaptive
        return min(longest, attributes)

    def has_larger(self, attributes: int) -> bool:
        """Return whether marginals of two or more attributes are measured."""
        return attributes > 1 and not (
            isinstance(self.cliques, AllCliques) and self.cliques.all == 1
        )
