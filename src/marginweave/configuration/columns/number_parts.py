"""Parts of a column of numbers: its bins, bounds and special codes as read, and the points of a grid that are codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marginweave.base.errors import MustError
from marginweave.configuration.columns.binned import MAX_BINS, BinSteps, Gap
from marginweave.configuration.columns.scales import LogBins
from marginweave.configuration.values import declared_number, to_number, to_whole


def read_bins(value: Any) -> Any:
    """Return a count of bins, their edges, steps of one width, or a logarithmic scale; raises ValueError."""
    if isinstance(value, list | tuple):
        if len(value) < 2:
            raise MustError("be a count or a list of at least two edges")
        return tuple(to_number(edge) for edge in value)
    if isinstance(value, dict):
        model = LogBins if "log" in value else BinSteps
        return model.model_validate(value)
    if isinstance(value, BinSteps | LogBins):
        return value
    count = to_whole(value)
    if not 1 <= count <= MAX_BINS:
        raise MustError(f"be between 1 and {MAX_BINS}")
    return count


def read_pair(value: Any) -> Any:
    """Return a minimum and a maximum as numbers, or None; raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise MustError("be [minimum, maximum]")
    return to_number(value[0]), to_number(value[1])


def read_bounds(value: Any) -> Any:
    """Return a minimum and a maximum as numbers, `private` or None; raises ValueError."""
    return value if value == "private" else read_pair(value)


def read_codes(value: Any) -> Any:
    """Return special codes with their labels, from the least code to the largest, or None; raises ValueError."""
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        raise MustError("be a mapping of numbers to what they mean, such as {997: refused}")
    labels = {str(code).strip(): str(label).strip() for code, label in value.items()}
    numbers = dict[str, Any]()
    for code, label in labels.items():
        numbers[code] = declared_number(code)
        if numbers[code] is None or not label:
            raise MustError(f"give a number what it means; {code!r} is no number, or means nothing")
    if len(set(numbers.values())) < len(value):
        raise ValueError("has a number twice")
    return {code: labels[code] for code in sorted(labels, key=lambda code: numbers[code])}


def check_order(name: str, pair: tuple[float, float] | str | None) -> None:
    """Refuse a minimum that is not below the maximum; raises ValueError."""
    if isinstance(pair, tuple) and not pair[0] < pair[1]:
        raise ValueError(
            f"has {name} ({pair[0]:g}, {pair[1]:g}): the minimum must be below the maximum"
        )


def gaps_on_grid(missing: Sequence[str], low: float, high: float, resolution: int) -> list[Gap]:
    """Return the multiples of 10^-resolution inside [low, high] that are missing codes, as pairs of one integer twice.

    Beyond the precision of doubles several multiples are one code.
    """
    scale = 10**resolution
    gaps = list[Gap]()
    for text in missing:
        number = declared_number(text.strip())
        if number is None:
            continue
        code = float(number)
        if low <= code <= high:
            nearest = round(code * scale)
            gaps += [
                (point, point) for point in range(nearest - 2, nearest + 3) if point / scale == code
            ]
    return gaps
