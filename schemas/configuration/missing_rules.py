"""The rule that every bin holds a value, whatever codes mean "no value"."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from marginweave.schemas.configuration.columns import Column, DateColumn, NumberColumn


def check_open_bins(name: str, column: Column, missing: Sequence[str]) -> None:
    """Refuse a number or date with a bin in which every value that could be drawn is a missing code; raises ValueError."""
    if not isinstance(column, NumberColumn | DateColumn):
        return
    if isinstance(column, DateColumn) or column.within is None:
        _check_bins(name, column, missing)
        return
    low, high = column.within
    if column.least_width(missing) > high - low:
        raise _too_narrow(name, column.within)
    try:
        # where the released bounds are hardest to divide: at the ends of the range, and around the codes
        hardest = [(low, low), (high, high), *((code, code) for code in column.codes_within(missing))]
        for bounds in hardest:
            _check_bins(name, column.with_bounds(*bounds, missing), missing)
    except ValidationError:
        raise _too_narrow(name, column.within) from None


def _too_narrow(name: str, within: tuple[float, float]) -> ValueError:
    return ValueError(
        f"columns.{name} has a range within ({within[0]:g}, {within[1]:g}) too narrow for its bins beside its missing codes"
    )


def _check_bins(name: str, column: NumberColumn | DateColumn, missing: Sequence[str]) -> None:
    runs = column.runs(missing)
    if runs is None:
        return
    held = {owner for owner, _, _ in runs}
    for index, label in enumerate(column.labels):
        if index not in held:
            raise ValueError(
                f"columns.{name} has a bin, {label}, in which every value is also missing; give the column its own list, such "
                "as missing: [], or other bins"
            )
