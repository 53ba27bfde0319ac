"""Rows that are not counted because subjects have more than the cap, by noisy numbers. DP: post-processing of a draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marginweave.domain.labels import UncountedRows
from marginweave.mechanisms.catalogue import noise_reach

_LEVEL = 0.95


def uncounted_rows(
    subjects: int,
    rows: int,
    *,
    cap: int,
    most: int,
    sigma: float,
) -> UncountedRows:
    """Return what a draw says about subjects with more than `cap` rows.

    Args:
        subjects: `most` times how many there are, with noise.
        rows: how many rows beyond the cap they have, `most` of each at most, with noise.
        cap: theta, how many rows of a subject are counted.
        most: w, at most how many rows of a subject beyond the cap are counted.
        sigma: standard deviation of the noise of either number.
    """
    half = noise_reach("rounded-gaussian", sigma, _LEVEL)
    low = max(-((half - subjects) // most), 0)
    high = max((subjects + half) // most, 0)
    return UncountedRows(
        cap=cap,
        most=most,
        subjects=max(round(subjects / most), 0),
        subjects_deviation=sigma / most,
        subjects_ends=(low, high),
        rows_at_least=max(rows, 0),
        rows_deviation=sigma,
        rows_ends=(max(rows - half, 0), max(rows, 0) + half),
    )


def unpack_uncounted(fields: Mapping[str, Any]) -> UncountedRows:
    """Return the rows of a mapping of `dataclasses.asdict`, read back from JSON."""
    ends = {name: tuple(fields[name]) for name in ("subjects_ends", "rows_ends")}
    return UncountedRows(**{**fields, **ends})
