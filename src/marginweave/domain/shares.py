"""Shares of noisy counts among noisy numbers of records. DP: post-processing of released counts."""

from __future__ import annotations

import math


def share_ends(
    count: float,
    half: float,
    records: float,
    half_of_records: float,
) -> tuple[float, float]:
    """Return both ends of the share of a count among records, both noisy, by the half widths of their intervals.

    Where there may be no records every share is possible.
    """
    bounded = min(max(count, 0.0), records)
    low, high = ratio_ends(bounded, half, records, half_of_records)
    return min(low, 1.0), min(high, 1.0)


def ratio_ends(
    count: float,
    half: float,
    records: float,
    half_of_records: float,
) -> tuple[float, float]:
    """Return both ends of the ratio of a count to a number of records, both noisy, by the half widths of their intervals.

    They are the ends of all R >= 0 for which count - R records is no farther from 0 than its noise reaches, the root of
    half^2 + R^2 half_of_records^2 (Fieller 1954). A count and a number from the same tables rise and fall together, which is
    not used: the interval is then wider than it need be. Where there may be no records every ratio is possible.
    """
    scale = records**2 - half_of_records**2
    if records <= 0 or scale <= 0:
        return 0.0, math.inf
    # roots R of (count - R records)^2 = half^2 + R^2 half_of_records^2
    discriminant = (count * records) ** 2 - scale * (count**2 - half**2)
    root = math.sqrt(max(discriminant, 0.0))
    low = max((count * records - root) / scale, 0.0)
    high = max((count * records + root) / scale, 0.0)
    return low, high
