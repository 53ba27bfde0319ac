"""Makes synthetic records from consistent marginals by the gradually updating method: order, first records, updates."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers, Records
from marginweave.base.errors import InputError
from marginweave.configuration.rules.record_search import (
    ContradictionError,
    UndecidedError,
    find_record,
    tied_parts,
)
from marginweave.configuration.synthesis import GumSynthesis
from marginweave.domain.masks import Clique, Mask, StructuralZeros, alike
from marginweave.estimate.holders import Holders
from marginweave.estimate.mixture.fit import check_marginals
from marginweave.estimate.mixture.start import spanning_tree
from marginweave.estimate.rounding import apportion
from marginweave.observations.tables import Observation
from marginweave.records.gum.kernel import Pace, Target, Zeros, residual, strides, update


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The order of synthesis: the `core` attributes by GUM over `cliques`, then the `appended` ones, one by one.

    `components` share no clique. An appended attribute comes with the one it hangs on.
    """

    core: frozenset[int]
    cliques: tuple[Clique, ...]
    components: Sequence[set[int]]
    appended: tuple[tuple[int, int], ...]


def plan_graph(attributes: int, cliques: Sequence[Clique], bound: Sequence[Clique]) -> Graph:
    """Clip attributes that appear in one pair only, layer by layer, and find the components of what is left.

    An attribute in a single marginal, and that a pair, is drawn from it at the end, exactly (PrivSyn: attribute appending).
    Components share no marginal and are updated apart. `bound` are sets of attributes that structural zeros tie together:
    they are never clipped and never parted. DP: post-processing.
    """
    tied = {a for clique in bound for a in clique}
    core_cliques: list[Clique] = [clique for clique in cliques if len(clique) > 1]
    appended: list[tuple[int, int]] = []
    leaf = _find_leaf(attributes, core_cliques, tied)
    while leaf is not None:
        clique, attribute = leaf
        partner = clique[1] if attribute == clique[0] else clique[0]
        core_cliques.remove(clique)
        appended.append((attribute, partner))
        leaf = _find_leaf(attributes, core_cliques, tied)
    return Graph(
        core=frozenset(range(attributes)) - {attribute for attribute, _ in appended},
        cliques=tuple(core_cliques),
        components=tied_parts([*core_cliques, *bound]),
        appended=tuple(reversed(appended)),
    )


def _find_leaf(
    attributes: int, cliques: Sequence[Clique], tied: set[int]
) -> tuple[Clique, int] | None:
    """Return the first pair with an attribute that is in no other clique and not `tied`, and this attribute; or None."""
    degree = np.bincount([a for clique in cliques for a in clique], minlength=attributes)
    for clique in cliques:
        if len(clique) == 2:
            for a in clique:
                if degree[a] == 1 and a not in tied:
                    return clique, a
    return None


def maximal(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """Return the distinct cliques that are part of no other one, in order."""
    distinct = sorted(set(cliques))
    longer_of_length = {}
    for length in {len(clique) for clique in distinct}:
        longer_of_length[length] = [{*clique} for clique in distinct if len(clique) > length]

    def is_maximal(clique: Clique) -> bool:
        return not any(longer.issuperset(clique) for longer in longer_of_length[len(clique)])

    return tuple(filter(is_maximal, distinct))


@dataclass(kw_only=True, eq=False)
class Drawing:
    """Records whose attributes are filled one by one, every attribute at most once.

    `one_way[a]` are the counts of attribute a, `pairs` those of pairs of attributes, `records` has shape (rows, attributes).
    Rows that a mask leaves no value for are `dead` until `replace_dead`.
    """

    records: Records
    one_way: Sequence[Floats]
    masks: Sequence[StructuralZeros]
    generator: np.random.Generator
    pairs: Mapping[Clique, Floats] = field(default_factory=dict)
    drawn: set[int] = field(default_factory=set)
    dead: Flags = field(init=False)

    def __post_init__(self) -> None:
        self.dead = np.zeros(len(self.records), np.bool_)

    def draw(self, attribute: int, parent: int | None = None) -> None:
        """Fill `attribute` given the value of `parent`, a pair with which is known.

        Within every group of rows that have the same parent value (and the same values in masks that this attribute
        completes) the values come as often as their share says, up to rounding by systematic sampling, in random order. The
        shares are the first of these that leave anything allowed: those of the pair, the one-way counts, equal shares.
        DP: post-processing.
        """
        available = {*self.drawn, attribute}
        masks = [
            mask
            for mask in self.masks
            if attribute in mask.attributes and available.issuperset(mask.attributes)
        ]
        for rows in self._groups(attribute, masks, parent):
            example = self.records[rows[0]]
            allowed = self._allowed(attribute, masks, example)
            if not allowed.any():
                self.dead[rows] = True
                continue
            shares = self._shares(attribute, parent, example, allowed)
            numbers = apportion(shares, len(rows), self.generator)
            codes = np.arange(len(shares), dtype=np.int32)
            self.records[rows, attribute] = np.repeat(codes, numbers)
        self.drawn.add(attribute)

    def _allowed(self, attribute: int, masks: Sequence[StructuralZeros], example: Records) -> Flags:
        """Return which codes of `attribute` the masks allow with the other values of a record; shape (codes,)."""
        codes = np.arange(len(self.one_way[attribute]))
        allowed = np.ones(len(codes), np.bool_)
        for mask in masks:
            allowed &= mask.allow(
                [codes if a == attribute else example[a] for a in mask.attributes]
            )
        return allowed

    def _shares(
        self,
        attribute: int,
        parent: int | None,
        example: Records,
        allowed: Flags,
    ) -> Floats:
        """Return the first shares of codes that leave anything allowed: of the pair, the one-way counts, equal shares."""
        if parent is not None:
            a, b = sorted((parent, attribute))
            axis = 0 if a == parent else 1
            pair_counts = np.take(self.pairs[a, b], example[parent], axis=axis)
            shares = np.where(allowed, pair_counts, 0.0)
            if shares.any():
                return shares
        shares = np.where(allowed, self.one_way[attribute], 0.0)
        if shares.any():
            return shares
        return np.where(allowed, np.ones(len(allowed)), 0.0)

    def _groups(
        self,
        attribute: int,
        masks: Sequence[StructuralZeros],
        parent: int | None,
    ) -> list[Integers]:
        """Return rows in random order, grouped by the parent value and by what each mask allows."""
        attributes = {a for mask in masks if isinstance(mask, Mask) for a in mask.attributes} - {
            attribute
        }
        if parent is not None:
            attributes.add(parent)
        keys = list[tuple[Integers | Records | Flags, int]]()
        for a in sorted(attributes):
            keys.append((self.records[:, a], len(self.one_way[a])))
        for mask in masks:
            if not isinstance(mask, Mask):
                forbidden = mask.codes[mask.attributes.index(attribute)]
                columns = [
                    forbidden if a == attribute else self.records[:, a] for a in mask.attributes
                ]
                keys.append((mask.allow(columns), 2))
        group = np.zeros(len(self.records), np.int64)
        for key, size in keys:
            _, group = np.unique(group * size + key, return_inverse=True)
        shuffled = self.generator.permutation(len(group))
        order = shuffled[np.argsort(group[shuffled], kind="stable")]
        return np.split(order, np.cumsum(np.bincount(group))[:-1])


def replace_dead(
    records: Records,
    dead: Flags,
    one_way: Sequence[Floats],
    masks: Sequence[StructuralZeros],
    generator: np.random.Generator,
) -> None:
    """Make dead rows copies of random others; if all are dead, give them the likeliest values that the masks allow.

    That happens where the counts of a few records lead every row into a value that a mask later leaves no partner for.
    Raises InputError if the masks allow no record, or none is found.
    """
    if len(dead) and dead.all():
        for attribute, value in _likeliest_record(one_way, masks).items():
            records[:, attribute] = value
    elif dead.any():
        alive = np.flatnonzero(~dead)
        records[dead] = records[generator.choice(alive, int(dead.sum()))]


def _likeliest_record(
    one_way: Sequence[Floats], masks: Sequence[StructuralZeros]
) -> dict[int, int]:
    """Return likely values, which the masks allow together, of the attributes that masks name; InputError if none."""
    tied = {a for mask in masks for a in mask.attributes}
    values = {}
    for a in tied:
        kinds = alike(a, len(one_way[a]), masks)
        values[a] = _likeliest(one_way[a], kinds)
    rules: defaultdict[Clique, set[tuple[int, ...]]] = defaultdict(set)
    for mask in masks:
        candidates = [values[a] for a in mask.attributes]
        rules[mask.attributes].update(mask.forbidden(candidates))
    try:
        return find_record({a: codes.tolist() for a, codes in values.items()}, rules)
    except (ContradictionError, UndecidedError) as error:
        raise InputError(f"masks must leave a record: {error}") from None


def _likeliest(counts: Floats, kinds: Integers) -> Integers:
    """Return the code of each kind with the largest count, those of large counts first."""
    order = np.argsort(-counts, kind="stable")
    _, places = np.unique(kinds[order], return_index=True)
    return order[np.sort(places)]


def draw_tree(drawing: Drawing, attributes: Sequence[int], tree: Sequence[Clique]) -> None:
    """Fill `attributes` from the root of every tree of the forest down; those without an edge by themselves."""
    neighbors = defaultdict[int, list[int]](list)
    for a, b in tree:
        neighbors[a].append(b)
        neighbors[b].append(a)
    for root in attributes:
        if root in drawing.drawn:
            continue
        drawing.draw(root)
        waiting = [root]
        while waiting:
            parent = waiting.pop()
            for child in neighbors[parent]:
                if child not in drawing.drawn:
                    drawing.draw(child, parent)
                    waiting.append(child)


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
        measurements: Sequence[Observation],
        sizes: Sequence[int],
        settings: GumSynthesis,
        masks: Sequence[StructuralZeros] = (),
    ) -> None:
        check_marginals(measurements, sizes, masks)
        self._marginals = _Marginals(measurements)
        self._settings = settings
        self._masks = masks
        cliques = maximal([measurement.attributes for measurement in measurements])
        self._graph = plan_graph(len(sizes), cliques, [mask.attributes for mask in masks])
        self._one_way = [self._marginals.counts((a,)) for a in range(len(sizes))]
        self._pairs: dict[Clique, Floats] = {}
        for clique in cliques:
            for pair in itertools.combinations(clique, 2):
                self._pairs[pair] = self._marginals.counts(pair)
        core_pairs = {
            pair: counts
            for pair, counts in self._pairs.items()
            if self._graph.core.issuperset(pair)
        }
        self._tree = spanning_tree(len(sizes), core_pairs) if settings.start == "tree" else ()
        self._zeros = Zeros.of(masks)

    def sample(self, records: int, generator: np.random.Generator) -> Records:
        """Return records, shape (records, attributes), in random order. DP: post-processing.

        Raises:
            InputError: the masks leave no record.
        """
        drawing = Drawing(
            # the kernel reads column by column
            records=np.zeros((records, len(self._one_way)), np.int32, order="F"),
            one_way=self._one_way,
            masks=self._masks,
            generator=generator,
            pairs=self._pairs,
        )
        if records:
            draw_tree(drawing, sorted(self._graph.core), self._tree)
            replace_dead(drawing.records, drawing.dead, self._one_way, self._masks, generator)
            self._update(drawing.records, generator)
            for attribute, parent in self._graph.appended:
                drawing.draw(attribute, parent)
        return drawing.records

    def _update(self, records: Records, generator: np.random.Generator) -> None:
        """Update every marginal once a round, the farthest first, until a round moves nothing."""
        settings = self._settings
        code = np.empty(len(records), np.int64)
        targets = [self._target(clique, len(records), generator) for clique in self._graph.cliques]
        for done in range(settings.rounds):
            distances = np.array([residual(records, target, code) for target in targets])
            share = settings.duplicate[done % len(settings.duplicate)]
            pace = Pace(update_rate(settings.schedule, done), share)
            moved = 0
            for i in np.argsort(-distances, kind="stable"):
                moved += update(records, targets[i], self._zeros, pace, code, generator)
            if not moved:
                break

    def _target(
        self,
        clique: Clique,
        records: int,
        generator: np.random.Generator,
    ) -> Target:
        """Return the marginal in whole records. Rounding once, at random, lets cells of less than half a record exist."""
        counts = self._marginals.counts(clique)
        sigma = self._marginals.source(clique).deviation
        (component,) = [part for part in self._graph.components if clique[0] in part]
        return Target(
            attributes=np.array(clique, np.int64),
            strides=strides(counts.shape),
            sizes=np.array(counts.shape, np.int64),
            counts=apportion(counts.ravel(), records, generator),
            margin=float(self._settings.tolerance * sigma * (records / counts.sum())),
            columns=np.array(sorted(component), np.int64),
        )


def update_rate(schedule: str, done: int) -> float:
    """Return alpha after `done` rounds, at most 1: an under-full cell of n records takes at most alpha n more.

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
    """Counts of any clique inside a measurement."""

    def __init__(self, measurements: Sequence[Observation]) -> None:
        self._measurements = measurements
        self._holders = Holders([measurement.attributes for measurement in measurements])

    def source(self, clique: Clique) -> Observation:
        """Return the marginal of this clique, or the one around it that needs the fewest cells summed."""
        holders = [self._measurements[i] for i in self._holders.of(clique)]
        return min(holders, key=lambda marginal: (marginal.counts.size, marginal.deviation))

    def counts(self, clique: Clique) -> Floats:
        """Return counts with none negative; ones where all are zero."""
        source = self.source(clique)
        summed_axes = tuple(axis for axis, a in enumerate(source.attributes) if a not in clique)
        counts = np.maximum(source.counts.sum(axis=summed_axes, dtype=np.float64), 0.0)
        return counts if counts.any() else np.ones_like(counts)
