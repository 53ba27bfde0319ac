"""What is read of a column of numbers: bins, bounds and special codes, and which points of a grid are taken by codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marginweave.configuration.columns.binned import MAX_BINS, BinSteps, Gap
from marginweave.configuration.columns.scales import LogBins
from marginweave.configuration.values import declared_number, to_number, to_whole


def read_bins(value: Any) -> Any:
    """A count of bins, their edges, steps of one width, or a logarithmic scale."""
    if isinstance(value, list | tuple):
        if len(value) < 2:
            raise ValueError("must be a count or a list of at least two edges")
        return tuple(to_number(edge) for edge in value)
    if isinstance(value, dict):
        return (LogBins if "log" in value else BinSteps).model_validate(value)
    if isinstance(value, BinSteps | LogBins):
        return value
    count = to_whole(value)
    if not 1 <= count <= MAX_BINS:
        raise ValueError(f"must be between 1 and {MAX_BINS}")
    return count


def read_pair(value: Any) -> Any:
    """A minimum and a maximum, or nothing."""
    if value is not None and (not isinstance(value, list | tuple) or len(value) != 2):
        raise ValueError("must be [minimum, maximum]")
    return None if value is None else (to_number(value[0]), to_number(value[1]))


def read_bounds(value: Any) -> Any:
    """The same, or `private`."""
    return value if value == "private" else read_pair(value)


def read_codes(value: Any) -> Any:
    """Special codes by size, whatever order they were written in, each with its label."""
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        raise ValueError("must be a mapping of numbers to what they mean, such as {997: refused}")
    labels = {str(code).strip(): str(label).strip() for code, label in value.items()}
    numbers = {code: declared_number(code) for code in labels}
    wrong = next((code for code, given in numbers.items() if given is None or not labels[code]), None)
    if wrong is not None:
        raise ValueError(f"must give a number what it means; {wrong!r} is no number, or means nothing")
    if len(set(numbers.values())) < len(value):
        raise ValueError("has a number twice")
    return dict(sorted(labels.items(), key=lambda pair: numbers[pair[0]] or 0))


def check_order(name: str, pair: tuple[float, float] | str | None) -> None:
    """Refuse a minimum that is not below the maximum; raises ValueError."""
    if isinstance(pair, tuple) and not pair[0] < pair[1]:
        raise ValueError(f"has {name} ({pair[0]:g}, {pair[1]:g}): the minimum must be below the maximum")


def gaps_on_grid(missing: Sequence[str], low: float, high: float, resolution: int) -> list[Gap]:
    """Multiples of 10^-resolution inside [low, high] that are missing codes; beyond doubles several spell one code."""
    scale = 10**resolution
    codes = [float(code) for text in missing if (code := declared_number(text.strip())) is not None]
    near = [(code, round(code * scale)) for code in codes if low <= code <= high]
    return [(g, g) for code, place in near for g in range(place - 2, place + 3) if g / scale == code]
