"""Settings of marginals: which ones are measured, and how the budget is shared among them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from marginweave.base.budget import NoiseSetting
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.bin_levels import BinLevels
from marginweave.configuration.columns import Texts
from marginweave.configuration.values import (
    MAX_CELLS,
    FrozenModel,
    OpenFraction,
    PaperPreset,
    PositiveWhole,
    Whole,
    or_none,
    to_number,
    to_whole,
)

COMPRESS = 3.0
"""Values whose noisy count is below so many standard deviations are measured together, unless a configuration says another."""

# Choices of one release, each a draw in the ledger.
_MOST_PICKS = 400


class AllCliques(FrozenModel):
    """All marginals of `all` attributes that have at most `max_cells` cells, and what is left of those that have more.

    That is their subsets with at most so many cells, as far as no other marginal contains them; pairs however many cells they
    have, so that no dependence of two attributes is lost, unless only pairs are asked for. In marginals of more than
    `coarsen` cells, columns are in coarser bins, until there are no more cells (`BinLevels.within`); what such a marginal does
    not have at its finest is measured in shorter ones as well. Pairs are never in coarser bins.
    """

    all: PositiveWhole
    max_cells: PositiveWhole | None = None
    coarsen: PositiveWhole | None = None

    def places(self, levels: BinLevels) -> Iterator[tuple[int, ...]]:
        """Places of the attributes or levels of each marginal, the longest first. DP: arithmetic on public sizes."""
        contained: set[tuple[int, ...]] = set()
        longest = min(self.all, levels.attributes)
        for length in range(longest, min(longest, 2) - 1, -1):
            shorter = max(length - 1, 0)
            inside = {part for places in contained for part in itertools.combinations(places, shorter)}
            for places in itertools.combinations(range(levels.attributes), length):
                if places in contained:
                    continue
                at = places if self.coarsen is None or length <= 2 else levels.within(places, self.coarsen)
                if (
                    length == 2 < self.all
                    or self.max_cells is None
                    or math.prod(levels.sizes[j] for j in at) <= self.max_cells
                ):
                    yield at
                    inside.update(itertools.combinations([j for j in at if j < levels.attributes], shorter))
            if self.max_cells is None and self.coarsen is None:  # whatever is shorter is contained
                return
            contained = inside

    def looked_at(self, columns: int) -> int:
        """How many sets of attributes `places` looks at."""
        longest = min(self.all, columns)
        shortest = longest if self.max_cells is None and self.coarsen is None else min(longest, 2)
        return sum(math.comb(columns, length) for length in range(shortest, longest + 1))

    def cells(self, levels: BinLevels) -> Iterator[int]:
        """Cells of each marginal, in the order of `places`."""
        return (math.prod(levels.sizes[j] for j in places) for places in self.places(levels))


class AdaptiveCliques(FrozenModel):
    """Marginals of 2 to `adaptive` attributes, chosen in rounds by what a model of the earlier ones gets wrong (AIM).

    A round chooses `batch` marginals of at most `max_cells` cells, rare values merged, and measures them with one of `rounds`
    equal shares of the budget of the larger marginals. With `annealing`, where they taught no more than noise, later rounds
    take four times as many shares each: fewer rounds, of half the noise. `weights` multiply how far the model is off:
    `workload` by the number of attributes, which is the weight of AIM for all sets of 2 to k of them; `equal` by 1.
    """

    adaptive: Annotated[Whole, Field(ge=2, le=4)] = 3
    max_cells: Annotated[Whole, Field(ge=4)] = 10_000  # the cells of two attributes of two values each
    rounds: Annotated[Whole, Field(ge=1, le=100)] = 16
    batch: Annotated[Whole, Field(ge=1, le=20)] = 4
    annealing: bool = True
    weights: Literal["workload", "equal"] = "workload"

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.rounds * self.batch > _MOST_PICKS:
            raise ValueError(
                f"has rounds ({self.rounds}) times batch ({self.batch}) above {_MOST_PICKS}; each is a separate charge"
            )
        return self

    def candidates(self, columns: int) -> int:
        """How many sets of 2 to `adaptive` of so many attributes there are, whatever their cells are."""
        return sum(math.comb(columns, length) for length in range(2, self.adaptive + 1))

    def most_chosen(self, columns: int) -> int:
        """At most so many different sets are chosen: a set may be chosen in several rounds, and annealing makes fewer."""
        return min(self.rounds * self.batch, self.candidates(columns))


_LIST = TypeAdapter[tuple[tuple[str, ...], ...]](Annotated[tuple[Texts, ...], Field(min_length=1)])


def _cliques(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return _LIST.validate_python(value)
    if isinstance(value, dict):
        own = AdaptiveCliques.model_fields.keys() - AllCliques.model_fields.keys()
        return (AdaptiveCliques if own & value.keys() else AllCliques).model_validate(value)
    if value == "adaptive":
        return AdaptiveCliques()
    if value != "selected" and not isinstance(value, AllCliques | AdaptiveCliques):
        raise ValueError(
            "must be selected, adaptive, {adaptive: k, …}, {all: k, max_cells: …, coarsen: …} or a list of lists of two and "
            "more attributes"
        )
    return value


Cliques = Annotated[Literal["selected"] | AdaptiveCliques | AllCliques | tuple[Texts, ...], BeforeValidator(_cliques)]

_COMPRESS = or_none(to_number, lambda multiple: multiple > 0, "be positive, or none")
_MERGE = or_none(to_whole, lambda limit: 1 <= limit <= MAX_CELLS, f"be at least 1 and at most {MAX_CELLS}, or none")


class MarginalSettings(PaperPreset):
    """Dense noisy marginals (DPSyn). Shares are of the budget, mu².

    Every attribute is measured by itself with `one_way_share`. `cliques` are the larger marginals: chosen by noisy InDif
    scores (`selected`) or in rounds (`adaptive`), which cost `selection_share`, all of k attributes, or a list. They have the
    rest of the budget, shared equally or by the power of their cells that has the least error (`allocation`; in rounds those
    of a round). Values whose one-way count is below
    `compress` standard deviations are measured together. `noise` is that of the counts of all of these marginals: Gaussian,
    charged in mu^2; Laplace, charged in plain epsilon to the account's allowance; or `auto`, whichever has the smaller variance
    by public numbers. `merge_cells`: connected selected pairs become one marginal of at most so many cells.
    `values_share` pays for the discovery of private domains, with `delta_threshold_share` of delta. `preset: paper` has the
    constants of PrivSyn wherever nothing else is said.
    """

    # PrivSyn's constants where they are not ours: an eighth as much for single attributes and for scores as for pairs, and
    # selected pairs are merged up to so many cells.
    paper: ClassVar[dict[str, Any]] = {"one_way_share": 0.1, "selection_share": 0.1, "merge_cells": 5000}
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
    compress: Annotated[float | Literal["none"], _COMPRESS] = COMPRESS

    @property
    def adaptive(self) -> AdaptiveCliques | None:
        """How marginals are chosen in rounds, or None."""
        return self.cliques if isinstance(self.cliques, AdaptiveCliques) else None

    def levels(self, sizes: Sequence[int], attributes: Sequence[Attribute]) -> BinLevels:
        """The attributes of so many codes, and the levels that larger marginals are counted at."""
        coarsens = isinstance(self.cliques, AllCliques) and self.cliques.coarsen is not None
        return BinLevels.make(sizes, attributes, coarsens=coarsens)

    def selects(self, attributes: int) -> bool:
        """Whether marginals are chosen by what was drawn; one attribute alone leaves nothing to choose."""
        return (self.cliques == "selected" or self.adaptive is not None) and attributes > 1

    def longest(self, attributes: int) -> int:
        """The most attributes of a marginal, whatever is drawn; with `merge_cells` what was chosen may have more."""
        if isinstance(self.cliques, tuple):
            return max(map(len, self.cliques))
        if isinstance(self.cliques, AllCliques):
            return min(self.cliques.all, attributes)
        return min(2 if self.adaptive is None else self.adaptive.adaptive, attributes)

    def has_larger(self, attributes: int) -> bool:
        """Whether anything but single attributes is measured."""
        return attributes > 1 and not (isinstance(self.cliques, AllCliques) and self.cliques.all == 1)
