"""The order in which GUM fills attributes: the first records, and the attributes appended at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from marginweave.schemas.arrays import Flags, Floats, Integers, Records
from marginweave.schemas.configuration.attributes import find_record, tied_parts
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask
from marginweave.tasks.estimate.rounding import apportion


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
    tied = {a for group in bound for a in group}
    left = [c for c in cliques if len(c) > 1]
    appended: list[tuple[int, int]] = []
    while True:
        degree = np.bincount([a for c in left for a in c], minlength=attributes)
        leaf = next(((c, a) for c in left if len(c) == 2 for a in c if degree[a] == 1 and a not in tied), None)
        if leaf is None:
            break
        clique, attribute = leaf
        left.remove(clique)
        appended.append((attribute, next(b for b in clique if b != attribute)))
    return Graph(
        core=frozenset(range(attributes)) - {attribute for attribute, _ in appended},
        cliques=tuple(left),
        components=tied_parts([*left, *bound]),
        appended=tuple(reversed(appended)),
    )


def maximal(cliques: Sequence[Clique]) -> tuple[Clique, ...]:
    """The distinct cliques that lie in no other one, in order."""
    distinct = sorted(set(cliques))
    longer = {n: [set(c) for c in distinct if len(c) > n] for n in {len(c) for c in distinct}}
    return tuple(c for c in distinct if not any(other.issuperset(c) for other in longer[len(c)]))


@dataclass(kw_only=True, eq=False)
class Drawing:
    """Records whose attributes are filled one by one, every attribute at most once.

    `one_way[a]` are the counts of attribute a, `pairs` those of pairs of attributes, `records` has shape (rows, attributes).
    Rows that a mask leaves no value for are `dead` until `revive`.
    """

    records: Records
    one_way: Sequence[Floats]
    masks: Sequence[Mask]
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
        masks = [m for m in self.masks if attribute in m.attributes and {*m.attributes} <= {*self.drawn, attribute}]
        context = {a for mask in masks for a in mask.attributes} - {attribute}
        for rows in self._groups(sorted(context if parent is None else context | {parent})):
            example = self.records[rows[0]]
            allowed = np.ones(len(self.one_way[attribute]), np.bool_)
            for mask in masks:
                allowed &= mask.allowed[tuple(slice(None) if a == attribute else example[a] for a in mask.attributes)]
            if not allowed.any():
                self.dead[rows] = True
                continue
            candidates = [] if parent is None else [self._given(attribute, parent)[example[parent]]]
            masked = (np.where(allowed, counts, 0.0) for counts in (*candidates, self.one_way[attribute], 1.0))
            shares = next(shares for shares in masked if shares.any())
            values = np.repeat(np.arange(len(shares), dtype=np.int32), apportion(shares, len(rows), self.generator))
            self.records[rows, attribute] = values
        self.drawn.add(attribute)

    def revive(self) -> None:
        """Make dead rows copies of random live ones; if all are dead, give them the likeliest values that the masks allow.

        That happens where the counts of a few records lead every row into a value that a mask later leaves no partner for.
        Raises InputError if the masks allow no record, or none is found.
        """
        if not self.dead.any():
            return
        live = np.flatnonzero(~self.dead)
        if len(live):
            self.records[self.dead] = self.records[self.generator.choice(live, int(self.dead.sum()))]
        else:
            for attribute, value in self._allowed_record().items():
                self.records[:, attribute] = value
        self.dead[:] = False

    def _allowed_record(self) -> dict[int, int]:
        rules: defaultdict[Clique, set[tuple[int, ...]]] = defaultdict(set)
        for mask in self.masks:
            rules[mask.attributes].update(map(tuple, np.argwhere(~mask.allowed).tolist()))
        values = {a: np.argsort(-self.one_way[a], kind="stable").tolist() for places in rules for a in places}
        try:
            return find_record(values, rules)
        except ValueError as error:
            raise InputError(f"masks must leave a record: {error}") from None

    def _groups(self, columns: Iterable[int]) -> list[Integers]:
        """Rows in random order, those of equal `columns` together."""
        group = np.zeros(len(self.records), np.int64)
        for column in columns:
            group = np.unique(group * len(self.one_way[column]) + self.records[:, column], return_inverse=True)[1]
        shuffled = self.generator.permutation(len(group))
        order = shuffled[np.argsort(group[shuffled], kind="stable")]
        return np.split(order, np.cumsum(np.bincount(group))[:-1])

    def _given(self, attribute: int, parent: int) -> Floats:
        """The pair's counts with the parent's values along the first axis."""
        return self.pairs[parent, attribute] if parent < attribute else self.pairs[attribute, parent].T


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
