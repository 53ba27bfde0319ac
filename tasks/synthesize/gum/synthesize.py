"""Synthetic records from consistent marginals by the gradually updating method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from marginweave.schemas.arrays import Floats, Integers, Records
from marginweave.schemas.configuration.synthesis import GumSynthesis
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.estimate.mixture.fit import check_marginals
from marginweave.tasks.estimate.mixture.start import spanning_tree
from marginweave.tasks.estimate.rounding import apportion
from marginweave.tasks.normalize.consistency import Holders
from marginweave.tasks.synthesize.gum.kernel import Pace, Target, Zeros, residual, update
from marginweave.tasks.synthesize.gum.start import Drawing, draw_tree, maximal, plan_graph


class Gum:
    """Records that agree with the marginals as far as the noise of these can be trusted (PrivSyn, algorithm 3, step 5).

    Attributes that appear in one pair only are set aside; the others start from a tree or from their one-way marginals, and
    each round updates every marginal once, the one farthest from its target first. The attributes set aside are appended at
    the end. Own additions to the paper: the tree (GUMMI's idea), and cells within `settings.tolerance` sigma of their target
    stay as they are. No record ever holds a forbidden combination, at the start, in between or at the end.

    Shards share the marginals and their order; each has its own start and its own rounding to whole records.

    Args:
        measurements: consistent marginals (`make_consistent`) that together hold every attribute; those inside others
            only serve the start.
        sizes: number of codes of each attribute, a missing value included.
        settings: the same settings and marginals make the same records.
        masks: structural zeros.

    Raises:
        InputError: an attribute in no marginal, or a shape other than `sizes` say.
    """

    def __init__(
        self,
        measurements: Sequence[Measurement],
        sizes: Sequence[int],
        settings: GumSynthesis,
        masks: Sequence[Mask] = (),
    ) -> None:
        check_marginals(measurements, sizes, masks)
        self._marginals, self._settings, self._masks = _Marginals(measurements), settings, masks
        cliques = maximal([m.attributes for m in measurements])
        self._graph = plan_graph(len(sizes), cliques, [mask.attributes for mask in masks])
        self._one_way = [self._marginals.counts((a,)) for a in range(len(sizes))]
        pairs: list[Clique] = [pair for clique in cliques for pair in itertools.combinations(clique, 2)]
        self._pairs = {pair: self._marginals.counts(pair) for pair in pairs}
        core = {p: counts for p, counts in self._pairs.items() if self._graph.core.issuperset(p)}
        self._tree = spanning_tree(len(sizes), core) if settings.start == "tree" else ()
        self._zeros = _zeros(masks)

    def sample(self, records: int, generator: np.random.Generator) -> Records:
        """Records, shape (records, attributes), in random order. DP: post-processing.

        Raises:
            InputError: the masks leave no record.
        """
        drawing = Drawing(
            records=np.zeros((records, len(self._one_way)), np.int32, order="F"),  # the kernel reads column by column
            one_way=self._one_way,
            masks=self._masks,
            generator=generator,
            pairs=self._pairs,
        )
        if records:
            draw_tree(drawing, sorted(self._graph.core), self._tree)
            drawing.revive()
            self._update(drawing.records, generator)
            for attribute, parent in self._graph.appended:
                drawing.draw(attribute, parent)
        return drawing.records

    def _update(self, records: Records, generator: np.random.Generator) -> None:
        """Update every marginal once a round, the farthest first, until a round moves nothing."""
        settings, code = self._settings, np.empty(len(records), np.int64)
        targets = [self._target(clique, len(records), generator) for clique in self._graph.cliques]
        for done in range(settings.rounds):
            distances = np.array([residual(records, target, code) for target in targets])
            pace = Pace(update_rate(settings.schedule, done), settings.duplicate[done % len(settings.duplicate)])
            order = np.argsort(-distances, kind="stable")
            if not sum(update(records, targets[i], self._zeros, pace, code, generator) for i in order):
                break

    def _target(self, clique: Clique, records: int, generator: np.random.Generator) -> Target:
        """The marginal in whole records. Rounding once, by chance, is what lets cells of less than half a record exist."""
        counts, deviation = self._marginals.counts(clique), self._marginals.source(clique).deviation
        return Target(
            attributes=np.array(clique, np.int64),
            strides=_strides(counts.shape),
            sizes=np.array(counts.shape, np.int64),
            counts=apportion(counts.ravel(), records, generator),
            margin=float(self._settings.tolerance * deviation * (records / counts.sum())),
            columns=np.array(sorted(next(part for part in self._graph.components if clique[0] in part)), np.int64),
        )


def update_rate(schedule: str, done: int) -> float:
    """Alpha after `done` rounds, at most 1: an under-full cell of n records takes at most alpha n more.

    PrivSyn, appendix J, alpha_0 = 1: step k^floor(t/s), exponential e^(-kt), linear 1/(1 + kt), root 1/sqrt(1 + kt), with the
    constants of PrivSyn's code.
    """
    return {
        "step": 0.84 ** (done // 20),
        "exponential": math.exp(-0.008 * done),
        "linear": 1 / (1 + 0.02 * done),
        "root": 1 / math.sqrt(1 + 0.12 * done),
    }[schedule]


class _Marginals:
    """Counts of any clique inside a measurement; those of a measured clique itself without a search."""

    def __init__(self, measurements: Sequence[Measurement]) -> None:
        self._all, self._holders = measurements, Holders([m.attributes for m in measurements])
        self._exact = {m.attributes: m for m in sorted(measurements, key=lambda m: -m.deviation)}

    def source(self, clique: Clique) -> Measurement:
        """The marginal of this clique, or the one around it that needs the fewest cells summed."""
        if clique in self._exact:
            return self._exact[clique]
        holders = (self._all[i] for i in self._holders.of(clique))
        return min(holders, key=lambda m: (m.counts.size, m.deviation))

    def counts(self, clique: Clique) -> Floats:
        """Counts with none negative; ones where all are zero."""
        source = self.source(clique)
        others = tuple(axis for axis, a in enumerate(source.attributes) if a not in clique)
        counts = np.maximum(source.counts.sum(axis=others, dtype=np.float64), 0.0)
        return counts if counts.any() else np.ones_like(counts)


def _zeros(masks: Sequence[Mask]) -> Zeros:
    none = np.zeros(0, np.int64)
    return Zeros(
        starts=np.cumsum([0, *(len(mask.attributes) for mask in masks)]),
        attributes=np.concatenate([none, *(np.array(mask.attributes, np.int64) for mask in masks)]),
        strides=np.concatenate([none, *(_strides(mask.allowed.shape) for mask in masks)]),
        offsets=np.cumsum([0, *(mask.allowed.size for mask in masks)])[:-1],
        allowed=np.concatenate([np.zeros(0, np.bool_), *(mask.allowed.ravel() for mask in masks)]),
    )


def _strides(shape: Sequence[int]) -> Integers:
    """Step of each axis in the flat cell, the last one 1."""
    return np.cumprod([1, *reversed(shape[1:])], dtype=np.int64)[::-1].copy()
