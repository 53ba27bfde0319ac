"""What is measured over which domain: codes of attributes, structural zeros, discovered values, chosen marginals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.budget import BudgetPlan, PlannedDraw, Stability
from marginweave.schemas.configuration.attributes import Attribute
from marginweave.schemas.configuration.marginals import AllCliques, MarginalSettings
from marginweave.schemas.configuration.numbers import MAX_CELLS
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.structure import forbidden_codes
from marginweave.schemas.configuration.synthesis import PgmSynthesis
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.accounting.thresholds import private_threshold
from marginweave.tasks.aggregate.marginals import all_cliques, cells, marginal_deviation
from marginweave.tasks.aggregate.selection.combine import merge_pairs
from marginweave.tasks.aggregate.selection.compress import Compression, plan_compression
from marginweave.tasks.aggregate.selection.densemarg import select_marginals
from marginweave.tasks.aggregate.selection.indif import IndifNoise, plan_indif
from marginweave.tasks.encode.codes import EncodedTable
from marginweave.tasks.estimate.graphical.junction import model_fits
from marginweave.tasks.mechanisms.gaussian import add_noise, deviation
from marginweave.tasks.mechanisms.laplace import MAX_LAPLACE_CELLS, l1_sensitivity
from marginweave.tasks.mechanisms.randomness import NoiseBits

Labels = Sequence[Sequence[str]]
Fits = Callable[[Sequence[Clique]], bool]


def domain_sizes(attributes: Sequence[Attribute], labels: Labels) -> tuple[int, ...]:
    """Number of codes of each attribute: its values, and the missing one where a record can lack it.

    In a private domain what was not released is missing as well. DP: arithmetic on public or released labels.
    """
    return tuple(
        len(values) + (attribute.optional or attribute.private)
        for attribute, values in zip(attributes, labels, strict=True)
    )


def structural_masks(configuration: Configuration, labels: Labels) -> tuple[Mask, ...]:
    """The cells that no record can be in: forbidden combinations, and no value where one is never missing.

    DP: arithmetic on public or released labels. Raises InputError for a set of attributes with too many combinations.
    """
    sizes = domain_sizes(configuration.attributes, labels)
    allowed: dict[Clique, NDArray[np.bool_]] = {}
    for combination in forbidden_codes(configuration.forbidden, labels):
        clique = tuple(attribute for attribute, _ in combination)
        if clique not in allowed:
            _check_mask(configuration, clique, sizes)
            allowed[clique] = np.ones([sizes[a] for a in clique], np.bool_)
        allowed[clique][tuple(code for _, code in combination)] = False
    for j, attribute in enumerate(configuration.attributes):
        if attribute.private and not attribute.optional and labels[j]:
            allowed[(j,)] = np.arange(sizes[j]) < len(labels[j])
    return tuple(Mask(attributes=clique, allowed=values) for clique, values in allowed.items())


def released_compression(
    one_way: Sequence[Measurement], settings: MarginalSettings, masks: Sequence[Mask]
) -> Compression:
    """Which rare values are measured together. DP: post-processing of the one-way marginals."""
    return plan_compression(one_way, -math.inf if settings.compress == "none" else settings.compress, masks)


def discovery(configuration: Configuration, plan: BudgetPlan) -> tuple[Fraction, int]:
    """Deviation of the noise of the draw `values`, and the least noisy count of a private value that is released.

    A record holds one value of each of p private attributes at most: L2 sensitivity theta sqrt(p), as of a level.
    DP: arithmetic on public numbers.
    """
    held, stability = len(configuration.private_columns), configuration.stability
    sd = deviation(plan.draw("values").parameter, held, stability)
    return sd, private_threshold(sd, held, stability.records, plan.delta_threshold)


def scoring(configuration: Configuration, plan: BudgetPlan) -> IndifNoise:
    """Grid and noise of the draw `selection`: a score for every pair of attributes. DP: arithmetic on public numbers."""
    pairs = math.comb(len(configuration.attributes), 2)
    return plan_indif(pairs, plan.draw("selection").parameter, configuration.stability)


def count_values(blocks: Iterable[EncodedTable], columns: Sequence[int]) -> dict[int, NDArray[np.int64]]:
    """How many records have each value of the attributes `columns`, by attribute; private."""
    counts: dict[int, NDArray[np.int64]] = {}
    for table in blocks:
        for j in columns:
            here = np.bincount(table.codes[j], minlength=table.sizes[j] + 1)[: table.sizes[j]].astype(np.int64)
            counts[j] = counts[j] + here if j in counts else here
    return counts


def discover_labels(
    counts: Mapping[int, NDArray[np.int64]],
    labels: Sequence[tuple[str, ...]],
    sd: Fraction,
    threshold: int,
    bits: NoiseBits,
) -> dict[int, tuple[str, ...]]:
    """Values of private attributes whose noisy count reaches the threshold, sorted, by attribute.

    Only values that occur are noised; that they do is what delta_threshold pays for (`private_threshold`; differentially
    private set union: Korolova et al. 2009, Gopi et al. 2020).
    DP: mu-GDP with mu = 1 / multiplier, plus delta_threshold.

    Args:
        counts: by attribute, from `count_values`.
        labels: the values of every attribute.
        sd: standard deviation of the noise.
        threshold: noisy counts below it are not released.
        bits: of the draw; an attribute's table has its number.
    """
    released = {}
    for j, exact in counts.items():
        there = np.flatnonzero(exact)
        kept = there[add_noise(exact[there], sd, bits, table=j) >= threshold]
        released[j] = tuple(sorted(labels[j][v] for v in kept.tolist()))
    return released


def declared_cliques(settings: MarginalSettings, names: Sequence[str], sizes: Sequence[int]) -> tuple[Clique, ...]:
    """The larger marginals that the configuration names: all of one length, or a list. DP: arithmetic on released sizes."""
    if isinstance(settings.cliques, AllCliques):
        return tuple(settings.cliques.places(sizes))
    place = {name: j for j, name in enumerate(names)}
    return tuple(tuple(sorted(place[name] for name in clique)) for clique in settings.cliques)


def selected_cliques(
    settings: MarginalSettings,
    sizes: Sequence[int],
    scores: NDArray[np.float64],
    draw: PlannedDraw,
    stability: Stability,
    fits: Fits | None = None,
) -> tuple[Clique, ...]:
    """The pairs that are worth their noise by their noisy scores, merged where `merge_cells` says so, within `most_cells`.

    `scores` are those of `scored_pairs`. `draw` is the planned measurement: its joint noise multiplier M, whose mu^2 is
    1/M^2, or its joint epsilon of Laplace noise. `fits` is that of `synthesizable`. DP: post-processing.
    """
    pairs, most = scored_pairs(sizes, draw), most_cells(draw)
    cell_counts = [cells(pair, sizes) for pair in pairs]

    def together(places: Sequence[int]) -> bool:
        return fits is None or fits([pairs[i] for i in places])

    if draw.mechanism == "discrete-laplace":
        unit = float(l1_sensitivity(stability))
        chosen = select_marginals(cell_counts, scores, draw.parameter, unit, draw.mechanism, together)
    else:
        unit = float(marginal_deviation(1.0, stability))
        chosen = select_marginals(cell_counts, scores, draw.parameter**-2, unit, fits=together)
    selected = fitting([pairs[i] for i in chosen], sizes, most)
    return selected if settings.merge_cells == "none" else merge_pairs(selected, sizes, settings.merge_cells, most)


def synthesizable(configuration: Configuration, sizes: Sequence[int], masks: Sequence[Mask]) -> Fits | None:
    """Whether pairs that are selected leave a graphical model small enough, where records are made of one; None elsewhere.

    Merged pairs make no other model. DP: arithmetic on released sizes.
    """
    settings = configuration.synthesize
    if not isinstance(settings, PgmSynthesis):
        return None
    tied = [mask.attributes for mask in masks]
    return lambda pairs: model_fits(sizes, [*tied, *pairs], settings.model_size)


def scored_pairs(sizes: Sequence[int], draw: PlannedDraw) -> tuple[Clique, ...]:
    """The pairs that may be measured in `draw` and are scored before it. DP: arithmetic on released sizes."""
    return all_cliques(sizes, 2, most_cells(draw))


def most_cells(draw: PlannedDraw) -> int:
    """How many cells the marginals of a draw may have together: what fits into memory, or is drawn in time."""
    return MAX_LAPLACE_CELLS if draw.mechanism == "discrete-laplace" else MAX_CELLS


def fitting(cliques: Sequence[Clique], sizes: Sequence[int], most: int) -> tuple[Clique, ...]:
    """The marginals, in order, without the largest ones, as few as leave at most `most` cells together.

    What was paid for the choice of marginals is thereby never lost to one that is too large. DP: post-processing.
    """
    by_size = sorted(cliques, key=lambda clique: (cells(clique, sizes), clique))
    together = itertools.accumulate(cells(clique, sizes) for clique in by_size)
    kept = {clique for clique, total in zip(by_size, together, strict=True) if total <= most}
    return tuple(clique for clique in cliques if clique in kept)


def _check_mask(configuration: Configuration, clique: Clique, sizes: Sequence[int]) -> None:
    if cells(clique, sizes) > MAX_CELLS:
        names = ", ".join(configuration.attributes[a].name for a in clique)
        raise InputError(
            f"structure.forbidden ties {names} together, which have more than {MAX_CELLS} combinations; use fewer columns"
        )
