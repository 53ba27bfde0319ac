"""Noise on dense marginals: how they share the noise of a draw, and how it is added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np

from marginweave.base.arrays import Counts, Floats
from marginweave.counts.marginals import cells
from marginweave.domain.masks import Clique
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.laplace import add_drawn_noise
from marginweave.mechanisms.randomness import DrawBits
from marginweave.observations.tables import Observation

Split = Literal["equal", "cells"]


def budget_shares(
    cliques: Sequence[Clique],
    sizes: Sequence[int],
    split: Split,
    power: float = 2 / 3,
    weights: Sequence[float] | None = None,
) -> Floats:
    """Return each marginal's share of the budget: 1/m, or proportional to a power of its cells: that of least error.

    Gaussian, of mu^2 or of rho: rho_i = rho c_i^(2/3) / sum_j c_j^(2/3) minimizes the expected L1 error
    sum_i c_i / sqrt(pi rho_i) (PrivSyn, section 4.2: Lagrange). Laplace, of epsilon: the error is S sum_i c_i / epsilon_i,
    whose derivatives -S c_i / epsilon_i^2 are equal where epsilon_i is proportional to c_i^(1/2). With `weights`, shape (m,), a
    marginal has as many times the share that it would have beside the others. Shape (m,), sums to 1;
    empty without cliques, for a selection may select nothing. DP: arithmetic on public sizes.
    """
    exponent = power if split == "cells" else 0.0
    powers = np.array([float(cells(clique, sizes)) ** exponent for clique in cliques])
    weighed = powers if weights is None else powers * np.asarray(weights, np.float64)
    shares: Floats = weighed / weighed.sum()
    return shares


def split_noise(
    noise: CountNoise,
    parameter: float,
    cliques: Sequence[Clique],
    sizes: Sequence[int],
    split: Split,
    *,
    reserved: Mapping[Clique, float] | None = None,
    weights: Sequence[float] | None = None,
) -> tuple[Fraction, ...]:
    """Return the part of each marginal of one draw of `noise` with the joint `parameter`, by the shares of `budget_shares`.

    Marginals in `reserved` have this share, and the others share what is left by their `weights`. All parts cost what the draw
    does. If a share is so small that there is no table for its noise, all other shares are equal, but for their weights; `plan`
    has checked that for every set of marginals that there may be. DP: arithmetic on public numbers.
    """
    reserved = {clique: share for clique, share in (reserved or {}).items() if clique in cliques}
    weight_of = dict(zip(cliques, weights or [1.0] * len(cliques), strict=True))
    shared = [clique for clique in cliques if clique not in reserved]
    weights_of_shared = [weight_of[clique] for clique in shared]
    left = iter(budget_shares(shared, sizes, split, noise.share_power, weights_of_shared).tolist())
    of_shared = 1 - sum(reserved.values()) if shared else 1.0
    shares = [
        reserved[clique] if clique in reserved else of_shared * next(left) for clique in cliques
    ]
    parts = noise.parts(parameter, shares)
    if split == "cells" and max(parts, default=0) > noise.largest_part:
        return split_noise(
            noise, parameter, cliques, sizes, "equal", reserved=reserved, weights=weights
        )
    return parts


def measure_marginals(
    noise: CountNoise,
    exact: Sequence[Counts],
    cliques: Sequence[Clique],
    parts: Sequence[Fraction],
    bits: DrawBits,
    presampled: Sequence[Counts] | None = None,
) -> Iterator[Observation]:
    """Yield each marginal with independent noise on all of its cells, zero ones included.

    Rounded Gaussian noise is `add_noise` of a vector of L2 sensitivity S (`marginal_sigma`), and mu^2 adds (Dong, Roth and Su
    2019, corollary 3.3); discrete Laplace noise is `add_drawn_noise`, and epsilons add (Dwork and Roth 2014, theorem 3.16).
    DP: sum_i (S / sigma_i)^2 in mu^2, or (sum_i epsilon_i, 0)-DP; charge before the first is taken.

    Args:
        noise: its kind, for how many records of one unit move, and how.
        exact: from `count_marginals`, of rows of a unit already bounded to theta.
        cliques: attributes of each marginal, increasing.
        parts: of each marginal, from `split_noise`.
        bits: of the draw; table i is marginal i.
        presampled: noise that was made before the charge, from `CountNoise.presample` with these parts.
    """
    for table, (counts, clique, part) in enumerate(zip(exact, cliques, parts, strict=True)):
        noisy = (
            noise.add(counts, part, bits, table)
            if presampled is None
            else add_drawn_noise(counts, presampled[table])
        )
        yield Observation(
            attributes=clique,
            counts=noisy,
            deviation=float(noise.sigma(part)),
            noise=noise.name,
        )
