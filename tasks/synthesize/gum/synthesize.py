"""Synthetic records from consistent marginals by the gradually updating method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.arrays import Records
from marginweave.schemas.configuration.synthesis import GumSynthesis
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.estimate.mixture.fit import check_marginals
from marginweave.tasks.estimate.mixture.start import spanning_tree
from marginweave.tasks.estimate.rounding import apportion
from marginweave.tasks.normalize.consistency import Holders
from marginweave.tasks.synthesize.gum.kernel import Pace, Target, Zeros, residual, update
from marginweave.tasks.synthesize.gum.start import Drawing, Graph, draw_tree, maximal, oriented, plan_graph
from marginweave.tasks.synthesize.shards import SHARD, ShardPlan, stream

Array = NDArray[np.float64]


Schedule = Literal["step", "exponential", "linear", "root"]
# The constants of PrivSyn's code; the step also falls every 20 rounds.
RATES: dict[Schedule, float] = {"step": 0.84, "exponential": 0.008, "linear": 0.02, "root": 0.12}
_STEP_ROUNDS = 20


@dataclass(frozen=True, kw_only=True)
class Gum:
    """Records that agree with the marginals as far as the noise of these can be trusted (PrivSyn, algorithm 3, step 5).

    Attributes that appear in one pair only are set aside; the others start from a tree or from their one-way marginals, and
    each round updates every marginal once, the one farthest from its target first. The attributes set aside are appended at
    the end. Own additions to the paper: the tree (GUMMI's idea), and cells within `settings.tolerance` sigma of their target
    stay as they are. No record ever holds a forbidden combination, at the start, in between or at the end.

    Shards share the marginals and their order; each has its own start and its own rounding to whole records.
    """

    marginals: _Marginals
    sizes: tuple[int, ...]
    number: int
    settings: GumSynthesis
    masks: tuple[Mask, ...]
    graph: Graph
    pairs: dict[Clique, Array]
    plan: ShardPlan

    @classmethod
    def of(
        cls,
        measurements: Sequence[Measurement],
        sizes: Sequence[int],
        records: int,
        settings: GumSynthesis,
        masks: Sequence[Mask] = (),
        *,
        most: int = SHARD,
    ) -> Gum:
        """Prepare `records` records, in shards of at most `most`.

        Args:
            measurements: consistent marginals (`make_consistent`) that together hold every attribute; those inside others
                only serve the start.
            sizes: number of codes of each attribute, a missing value included.
            records: how many to make.
            settings: the same settings and marginals make the same records.
            masks: structural zeros.
            most: records of a shard at most.

        Raises:
            InputError: a negative number of records, an attribute in no marginal, or a shape other than `sizes` say.
        """
        if records < 0:
            raise InputError(f"records ({records}) must not be negative")
        check_marginals(measurements, sizes, masks)
        marginals = _Marginals(measurements)
        cliques = maximal([m.attributes for m in measurements])
        return cls(
            marginals=marginals,
            sizes=tuple(sizes),
            number=records,
            settings=settings,
            masks=tuple(masks),
            graph=plan_graph(len(sizes), cliques, [mask.attributes for mask in masks]),
            pairs={p: marginals.counts(p) for c in cliques for p in itertools.combinations(c, 2)},
            plan=ShardPlan.of(records, most=most),
        )

    def records(self, shard: int) -> Records:
        """The records of a shard, shape (n, attributes), in random order. DP: post-processing.

        Raises:
            InputError: the masks leave no record.
        """
        generator = stream(self.settings.seed, shard)  # post-processing
        records = self.plan.records(self.number, shard)
        drawing = Drawing(
            records=np.zeros((records, len(self.sizes)), np.int32, order="F"),  # the kernel reads column by column
            one_way=[self.marginals.counts((a,)) for a in range(len(self.sizes))],
            masks=self.masks,
            generator=generator,
        )
        if records == 0:
            return drawing.records
        _start(drawing, self.graph, self.pairs, self.settings)
        targets = [
            _target(self.marginals, clique, self.graph, records, self.settings, generator)
            for clique in self.graph.cliques
        ]
        _rounds(drawing.records, targets, _zeros(self.masks, self.sizes), self.settings, generator)
        for attribute, parent in self.graph.appended:
            drawing.draw(attribute, parent, oriented(self.pairs, parent, attribute))
        return drawing.records


def _start(drawing: Drawing, graph: Graph, pairs: dict[Clique, Array], settings: GumSynthesis) -> None:
    aside = {attribute for attribute, _ in graph.appended}
    core = [a for a in range(len(drawing.one_way)) if a not in aside]
    inside = {pair: counts for pair, counts in pairs.items() if not aside.intersection(pair)}
    tree = spanning_tree(len(drawing.one_way), inside) if settings.start == "tree" else ()
    draw_tree(drawing, core, tree, inside)
    drawing.revive()


def update_rate(schedule: Schedule, done: int) -> float:
    """Alpha after `done` rounds, at most 1: an under-full cell of n records takes at most alpha n more.

    PrivSyn, appendix J, alpha_0 = 1: step k^floor(t/s), exponential e^(-kt), linear 1/(1 + kt), root 1/sqrt(1 + kt).
    """
    k = RATES[schedule]
    if schedule == "step":
        return float(k ** (done // _STEP_ROUNDS))
    if schedule == "exponential":
        return math.exp(-k * done)
    if schedule == "linear":
        return 1 / (1 + k * done)
    return 1 / math.sqrt(1 + k * done)


def _rounds(
    records: Records, targets: Sequence[Target], zeros: Zeros, settings: GumSynthesis, generator: np.random.Generator
) -> None:
    """Update every marginal once a round, the farthest first, until a round moves nothing."""
    code = np.empty(len(records), np.int64)
    for done in range(settings.rounds):
        distances = np.array([residual(records, target, code) for target in targets])
        share = settings.duplicate[done % len(settings.duplicate)]
        pace = Pace(alpha=update_rate(settings.schedule, done), share=share)
        order = np.argsort(-distances, kind="stable")
        if not sum(update(records, targets[i], zeros, pace, code, generator) for i in order):
            break


def _target(
    marginals: _Marginals,
    clique: Clique,
    graph: Graph,
    records: int,
    settings: GumSynthesis,
    generator: np.random.Generator,
) -> Target:
    """The marginal in whole records. Rounding once, by chance, is what lets cells of less than half a record exist."""
    counts, deviation = marginals.counts(clique), marginals.source(clique).deviation
    scale = records / counts.sum()
    home = graph.component[clique[0]]
    return Target(
        attributes=np.array(clique, np.int64),
        strides=_strides(counts.shape),
        sizes=np.array(counts.shape, np.int64),
        counts=apportion(counts.ravel(), records, generator),
        margin=float(settings.tolerance * deviation * scale),
        columns=np.flatnonzero(np.array(graph.component) == home),
    )


class _Marginals:
    """Counts of any clique inside a measurement; those of a measured clique itself without a search."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self._all, self._holders = measurements, Holders([m.attributes for m in measurements])
        self._exact: dict[Clique, Measurement] = {}
        for m in sorted(measurements, key=lambda m: -m.deviation):
            self._exact[m.attributes] = m

    def source(self, clique: Clique) -> Measurement:
        """The marginal of this clique, or the one around it that needs the fewest cells summed."""
        if clique in self._exact:
            return self._exact[clique]
        holders = (self._all[i] for i in self._holders.of(clique))
        return min(holders, key=lambda m: (m.counts.size, m.deviation))

    def counts(self, clique: Clique) -> Array:
        """Counts with none negative; ones where all are zero."""
        source = self.source(clique)
        others = tuple(axis for axis, a in enumerate(source.attributes) if a not in clique)
        counts = np.maximum(source.counts.sum(axis=others, dtype=np.float64), 0.0)
        return counts if counts.any() else np.ones_like(counts)


def _zeros(masks: Sequence[Mask], sizes: Sequence[int]) -> Zeros:
    strides = [_strides([sizes[a] for a in mask.attributes]) for mask in masks]
    none = np.zeros(0, np.int64)
    return Zeros(
        starts=np.cumsum([0, *(len(mask.attributes) for mask in masks)]),
        attributes=np.concatenate([none, *(np.array(mask.attributes, np.int64) for mask in masks)]),
        strides=np.concatenate([none, *strides]),
        offsets=np.cumsum([0, *(mask.allowed.size for mask in masks)])[:-1],
        allowed=np.concatenate([np.zeros(0, np.bool_), *(mask.allowed.ravel() for mask in masks)]),
    )


def _strides(shape: Sequence[int]) -> NDArray[np.int64]:
    """Step of each axis in the flat cell, the last one 1."""
    return np.cumprod([1, *reversed(shape[1:])], dtype=np.int64)[::-1].copy()
