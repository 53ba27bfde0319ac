"""The graphical model of noisy marginals: its junction tree, what it can hold, its fit (by the extra `mbi`) and records."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from marginweave.base.arrays import Flags, Floats, Records
from marginweave.base.errors import InputError
from marginweave.base.progress import listener
from marginweave.configuration.rules.record_search import tied_parts
from marginweave.measurements.tables import Clique, Mask, Measurement

_BYTES = 8  # a cell


def check_model_size(sizes: Sequence[int], zeros: Sequence[Clique], cliques: Sequence[Clique], most: int) -> None:
    """Refuse a model of more than `most` bytes, of single attributes and structural zeros alone or with the marginals.

    DP: arithmetic on sizes and sets that are public or released.

    Raises:
        InputError: what the setting would have to be.
    """
    alone = "single columns" + (" and of structural zeros, which tie columns together" if zeros else "")
    for parts, what, fewer in (
        (zeros, alone, ""),
        ([*zeros, *cliques], "these marginals: pgm is for few that hardly overlap", ", or fewer marginals"),
    ):
        wanted = _BYTES * model_cells(sizes, parts)
        if wanted > most:
            raise InputError(
                f"synthesize.model_size ({_megabytes(most)}) must be at least {_megabytes(wanted)} for the graphical model "
                f"of {what}; use method: mixture or gum{fewer}"
            )


def model_fits(sizes: Sequence[int], cliques: Collection[Clique], most: int) -> bool:
    """Whether a model takes at most `most` bytes. DP: as `check_model_size`."""
    return _BYTES * model_cells(sizes, cliques) <= most


def model_cells(sizes: Sequence[int], cliques: Collection[Clique]) -> int:
    """Cells of all tables of the junction tree in which each of `cliques`, measured or masked, is part of one table.

    That of `mbi`, as `junction_tree.hypothetical_model_size` counts it, by arithmetic alone. DP: as `check_model_size`.
    """
    return sum(math.prod(sizes[a] for a in table) for table in tree_tables(sizes, cliques))


def tree_tables(sizes: Sequence[int], cliques: Collection[Clique]) -> list[frozenset[int]]:
    """Attributes of each table: those of every attribute and its neighbors when it is eliminated, the cheapest first.

    Greedy elimination, as in `mbi`; pairs that are a tree are its tables. DP: as `check_model_size`.
    """
    edges = {frozenset(pair) for clique in cliques for pair in itertools.combinations(set(clique), 2)}
    near: list[set[int]] = [set() for _ in sizes]
    for one, other in edges:
        near[one].add(other)
        near[other].add(one)
    if len(edges) == len(sizes) - 1 and max(map(len, tied_parts(map(tuple, edges))), default=1) == len(sizes):
        return sorted(edges, key=sorted) if edges else [frozenset({0})]
    eliminated, left = [], dict.fromkeys(range(len(sizes)))
    while left:
        cheapest = min(left, key=lambda a: sizes[a] * math.prod(sizes[b] for b in near[a]))
        del left[cheapest]
        neighbors = near[cheapest]
        eliminated.append(frozenset({cheapest, *neighbors}))
        for a in neighbors:
            near[a] |= neighbors
            near[a] -= {a, cheapest}
    return [t for i, t in enumerate(eliminated) if not any(t <= s for s in eliminated[:i])]  # later ones never hold it


def _megabytes(number: int) -> str:
    return f"{math.ceil(number / 10**6)}MB" if number >= 10**6 else f"{number}B"


def choose_measurements(
    measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask], most: int
) -> list[Measurement]:
    """All that a model of at most `most` bytes holds: each by itself, those that say most first, as long as it still fits.

    Own method; evidence: docs/accuracy.md. A measurement y of c cells says sum (y - n prod_a p_a)^2 / sigma^2 - c: how far
    it is from independent attributes, beyond what its noise makes of that. Those of single attributes are in every model and
    take no room.

    Args:
        measurements: noisy marginals, no cell unknown.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records n.
        masks: structural zeros, which are part of every model.
        most: 8 bytes a cell of the junction tree.

    Returns:
        Some of `measurements`, in their order. DP: post-processing.

    Raises:
        InputError: the structural zeros alone make too large a model.
    """
    kept = [mask.attributes for mask in masks]
    if model_fits(sizes, [*kept, *(m.attributes for m in measurements)], most):
        return list(measurements)
    check_model_size(sizes, kept, (), most)
    from marginweave.measurements.rounding import nearest_column  # a plan does not wait for compiled code

    even = [np.full(size, total / size) for size in sizes]
    singles = {m.attributes[0]: m for m in measurements if len(m.attributes) == 1}
    shares = [nearest_column(singles[a], e, total) / total if a in singles else e / total for a, e in enumerate(even)]
    says = [_says(m, shares, total) for m in measurements]
    chosen: set[int] = set()
    for place in sorted(range(len(says)), key=lambda p: (-says[p], p)):
        attributes = measurements[place].attributes
        if any({*attributes} <= {*known} for known in kept) or model_fits(sizes, [*kept, attributes], most):
            kept.append(attributes)
            chosen.add(place)
    return [measurements[place] for place in sorted(chosen)]


def _says(measurement: Measurement, shares: Sequence[Floats], total: float) -> float:
    alone = total * functools.reduce(np.multiply.outer, [shares[a] for a in measurement.attributes])
    scale = measurement.scale(total)
    away = (measurement.counts * scale - alone) / (measurement.deviation * scale)
    return float((away**2).sum()) - away.size


@dataclass(frozen=True, kw_only=True, eq=False)
class Branch:
    """What a table adds: the joint shares of the attributes `new` for each combination of the attributes `given`.

    `shares` has shape (combinations of given, combinations of new), in C order; a row of zeros is never reached.
    """

    given: Clique
    new: Clique
    shares: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """Branches in an order in which every attribute that is given was new before; `sizes` are those of all attributes."""

    branches: tuple[Branch, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, tables: Sequence[tuple[Clique, Floats]], sizes: Sequence[int]) -> Tree:
        """The tree of marginals, an axis for each attribute, in a preorder of their junction tree.

        p(x) = prod_i p(new_i | given_i): what table i shares with all earlier ones lies inside one of them, its parent (running
        intersection), and p(new | given) = p(new, given) / p(given). From the last table to the first, each tells its parent
        which combinations of `given` have p(given) = 0 (an upward message), so that sampling never reaches an empty row: fits
        end in zeros that only some tables have.

        Raises:
            InputError: nothing is possible.
        """
        values = [np.array(table, np.float64) for _, table in tables]
        branches: list[Branch] = []
        splits = _splits([clique for clique, _ in tables])
        for i in reversed(range(len(tables))):
            clique, (given, new, parent) = tables[i][0], splits[i]
            if not values[i].sum() > 0:  # nor NaN
                raise InputError("masks must allow at least one record")
            order = [clique.index(a) for a in (*given, *new)]
            rows = [sizes[a] for a in given]
            shares = np.transpose(values[i], order).reshape(int(np.prod(rows)), -1)
            sums = shares.sum(axis=1, keepdims=True)
            if given:
                _forbid(values[parent], tables[parent][0], given, sums.reshape(rows) > 0)
            branches.append(Branch(given=given, new=new, shares=shares / np.where(sums > 0, sums, 1.0)))
        return cls(branches=tuple(reversed(branches)), sizes=tuple(sizes))

    def sample(self, records: int, generator: np.random.Generator) -> Records:
        """Records, shape (records, attributes), in random order.

        Branch by branch, the records of each given combination get the cells of its row by their shares up to rounding
        (`round_shares`), which is which by chance. DP: post-processing.
        """
        from marginweave.measurements.rounding import round_shares  # as above

        made = np.zeros((records, len(self.sizes)), np.int32, order="F")
        for branch in self.branches:
            keys = np.zeros(records, np.int64)  # which combination of what is given each record has
            for a in branch.given:
                keys = keys * self.sizes[a] + made[:, a]
            present, owners, numbers = np.unique(keys, return_inverse=True, return_counts=True)
            counts = round_shares(branch.shares[present], numbers, generator)
            rows, cells = np.nonzero(counts)
            cells = np.repeat(cells, counts[rows, cells])
            shuffled = generator.permutation(records)
            places = shuffled[np.argsort(owners[shuffled], kind="stable")]
            for a, codes in zip(branch.new, np.unravel_index(cells, [self.sizes[a] for a in branch.new]), strict=True):
                made[places, a] = codes
        return made[generator.permutation(records)]


def _splits(cliques: Sequence[Clique]) -> list[tuple[Clique, Clique, int]]:
    """For each table the attributes that are known before it, the new ones, and an earlier table that has all the former."""
    found: list[tuple[Clique, Clique, int]] = []
    seen: set[int] = set()
    for i, clique in enumerate(cliques):
        given, new = tuple(a for a in clique if a in seen), tuple(a for a in clique if a not in seen)
        found.append((given, new, next((j for j in range(i) if {*given} <= {*cliques[j]}), 0)))
        seen.update(clique)
    return found


def _forbid(table: Floats, clique: Clique, given: Clique, possible: Flags) -> None:
    """Empty the cells of a table, in place, whose values of `given` are impossible."""
    order = sorted(range(len(given)), key=lambda i: clique.index(given[i]))
    table *= np.transpose(possible, order).reshape(
        [n if a in given else 1 for a, n in zip(clique, table.shape, strict=True)]
    )


_TOLERANCE = 1e-6  # a fit ends where 50 steps improve the loss by less than this share of it, twice


def check_installed() -> None:
    """Raise InputError unless the extra `pgm` is installed."""
    if find_spec("mbi") is None:
        raise InputError("synthesize.method (pgm) needs mbi: pip install 'marginweave[pgm]'")


def fit_tree(
    measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask], iterations: int
) -> Tree:
    """The model of largest entropy among those nearest to marginals, each with the weight of its precision.

    Minimizes sum_i ||total p_i - y_i||^2 / sigma_i^2 over the marginals p of graphical models by entropic mirror descent
    (Private-PGM: McKenna, Sheldon and Miklau 2019, algorithm 1), in double precision. Masks of several attributes are part of
    the model; those of one attribute apply to records only, as noise was measured there.

    Args:
        measurements: noisy marginals, signed; incomplete ones are scaled up to `total`.
        sizes: number of codes of each attribute, a missing value included.
        total: the number of records.
        masks: structural zeros.
        iterations: most steps.

    Returns:
        The model. DP: post-processing.

    Raises:
        InputError: the extra is not installed, or the masks allow no record.
    """
    check_installed()
    import jax  # pyright: ignore[reportMissingImports]  # comes with the extra

    jax.config.update("jax_enable_x64", True)  # float32 stalls from 100,000 records on
    jax.config.update("jax_platforms", "cpu")  # the same records with and without another processor
    import mbi  # pyright: ignore[reportMissingImports]  # the extra

    domain = mbi.Domain(range(len(sizes)), sizes)
    together = [mask for mask in masks if len(mask.attributes) > 1]
    say, steps = listener(), itertools.count(1)
    model = mbi.estimation.MirrorDescent().estimate(
        domain,
        [_measured(mbi, m, total) for m in measurements],
        total,
        _constraints(mbi, domain, together),
        iters=iterations,
        callback_fn=lambda _: say(f"step {next(steps) * mbi.estimation.CALLBACK_EVERY} ({iterations} at most)"),
        tol=_TOLERANCE,
    )
    return Tree.of(_tables(mbi, domain, model, masks), sizes)


def _measured(mbi: Any, measurement: Measurement, total: float) -> Any:
    scale = measurement.scale(total)
    counts = np.asarray(measurement.counts, np.float64).ravel() * scale
    return mbi.LinearMeasurement(counts, measurement.attributes, measurement.deviation * scale)


def _constraints(mbi: Any, domain: Any, masks: Sequence[Mask]) -> tuple[Any, ...]:
    return tuple(
        mbi.Constraint(domain.project(mask.attributes), invalid=np.argwhere(~mask.table()))
        for mask in masks
        if not mask.allowed.all()
    )


def _tables(mbi: Any, domain: Any, model: Any, masks: Sequence[Mask]) -> list[tuple[Clique, Floats]]:
    """The marginals of the tables of the junction tree, in a preorder, with all masks."""
    constraints = _constraints(mbi, domain, masks)
    cliques = [tuple(clique) for clique in (*model.cliques, *(constraint.clique for constraint in constraints))]
    tree = mbi.junction_tree.make_junction_tree(domain, cliques)[0]
    order = mbi.junction_tree.maximal_cliques(tree)
    marginals = mbi.marginal_oracles.message_passing_shafer_shenoy(
        model.potentials.expand(order), model.total, constraints=constraints
    )
    return [(tuple(clique), np.asarray(marginals.project(clique).values)) for clique in order]
