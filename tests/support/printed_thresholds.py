"""The threshold of a private domain as SDS prints it, of real numbers."""

from __future__ import annotations

import math

from scipy.stats import norm

from marginweave.base.budget import Stability

ONE_ROW = Stability(records=1, neighbors="add-remove")


def printed_threshold(sigma: float, bound: int, delta: float) -> float:
    """rho_1 = 1 + sigma sqrt(Delta) PhiInv((1 - delta/2)^{1/Delta}), in its stable form."""
    return 1 + sigma * math.sqrt(bound) * stable_quantile(delta / 2, bound)


def stable_quantile(d: float, bound: int) -> float:
    return float(norm.isf(-math.expm1(math.log1p(-d) / bound)))
