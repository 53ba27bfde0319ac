"""The graphical model of noisy marginals: fitted by `mbi` (an extra, imported by a fit only), and sampled along its tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from marginweave.schemas.arrays import Flags, Floats, Records
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.estimate.rounding import round_shares


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


# A fit ends before its last step where 50 steps improve the loss by less than this share of it, twice.
_TOLERANCE = 1e-6


def check_installed() -> None:
    """Raise InputError unless the extra `pgm` is installed."""
    if find_spec("mbi") is None:
        raise InputError("synthesize.method (pgm) needs mbi: pip install 'marginweave[pgm]'")


def fit_tree(
    measurements: Sequence[Measurement], sizes: Sequence[int], total: float, masks: Sequence[Mask], iterations: int
) -> Tree:
    """The model of largest entropy among those nearest to marginals, each with the weight of its precision.

    Minimizes sum_i ||total p_i - y_i||^2 / deviation_i^2 over the marginals p of graphical models by entropic mirror descent
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
    model = mbi.estimation.MirrorDescent().estimate(
        domain,
        [_measured(mbi, m, total) for m in measurements],
        total,
        _constraints(mbi, domain, together),
        iters=iterations,
        tol=_TOLERANCE,
    )
    return Tree.of(_tables(mbi, domain, model, masks), sizes)


def _measured(mbi: Any, measurement: Measurement, total: float) -> Any:
    scale = measurement.scale(total)
    counts = np.asarray(measurement.counts, np.float64).ravel() * scale
    return mbi.LinearMeasurement(counts, measurement.attributes, measurement.deviation * scale)


def _constraints(mbi: Any, domain: Any, masks: Sequence[Mask]) -> tuple[Any, ...]:
    return tuple(
        mbi.Constraint(domain.project(mask.attributes), invalid=np.argwhere(~mask.allowed))
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
