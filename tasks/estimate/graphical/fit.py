"""The graphical model of noisy marginals, fitted by `mbi`, an extra: nothing of it is imported before a fit."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.errors import InputError
from marginweave.schemas.released.measurements import Clique, Mask, Measurement
from marginweave.tasks.estimate.graphical.tree import Tree

_TOLERANCE = 1e-6
"""A fit ends before its last step where 50 steps improve the loss by less than this share of it, twice."""


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
    import jax

    jax.config.update("jax_enable_x64", True)  # float32 stalls from 100,000 records on
    jax.config.update("jax_platforms", "cpu")  # the same records with and without another processor
    import mbi

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


def _tables(mbi: Any, domain: Any, model: Any, masks: Sequence[Mask]) -> list[tuple[Clique, NDArray[np.float64]]]:
    """The marginals of the tables of the junction tree, in a preorder, with all masks."""
    constraints = _constraints(mbi, domain, masks)
    cliques = [tuple(clique) for clique in (*model.cliques, *(constraint.clique for constraint in constraints))]
    tree = mbi.junction_tree.make_junction_tree(domain, cliques)[0]
    order = mbi.junction_tree.maximal_cliques(tree)
    marginals = mbi.marginal_oracles.message_passing_shafer_shenoy(
        model.potentials.expand(order), model.total, constraints=constraints
    )
    return [(tuple(clique), np.asarray(marginals.project(clique).values)) for clique in order]
