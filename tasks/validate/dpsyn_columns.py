"""One column of DPSyn's schema (dtype, kind, values, codes, min, max, bins) as a column of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marginweave.schemas.configuration.numbers import to_number
from marginweave.schemas.errors import InputError
from marginweave.tasks.validate.look import ColumnDraft

_KNOWN = {"dtype", "kind", "values", "codes", "min", "max", "bins"}
_BINS = 10  # where DPSyn's schema has none
_YEARS = 3


@dataclass(frozen=True, kw_only=True)
class Converted:
    """A column as we have it, and what of it could not be converted."""

    draft: ColumnDraft
    remarks: tuple[str, ...] = ()


def convert_column(name: str, described: Mapping[str, Any], dtype: str, binning: Any) -> Converted:
    """Convert one column; `binning` is its [min, max, step] in data.yaml, which goes before the schema's bins.

    Raises:
        InputError: a kind without what it needs.
    """
    remarks = [f"column {name!r}: {key}" for key in described if key not in _KNOWN]
    kind = str(described.get("kind", "numeric" if binning else ""))
    if binning is not None:
        draft = _binned(name, described, dtype, binning)
    elif "values" in described:
        draft = _category(name, described["values"])
    elif kind == "numeric":
        draft = _number(name, described, dtype)
    elif kind in {"date", "datetime"}:
        draft = _date(name, described, kind)
    else:
        draft = ColumnDraft("category", {"domain": "private"})
        remarks.append(
            f"column {name!r} of kind {kind or 'unknown'} has no values: they are discovered under the budget"
        )
    return Converted(draft=draft, remarks=tuple(remarks))


def _category(name: str, values: Any) -> ColumnDraft:
    """The empty value of DPSyn is our missing; its codes are its own numbering, which nobody needs."""
    if not isinstance(values, list):
        raise InputError(f"parameters.json: the values of column {name!r} must be a list")
    texts = ["" if value is None else str(value) for value in values]
    present = [text for text in texts if text.strip()]
    return ColumnDraft("category", {"values": present} if present else {"domain": "private"})


def _number(name: str, described: Mapping[str, Any], dtype: str) -> ColumnDraft:
    """Bins are a count; whole numbers that have no more values than bins become a category of these values."""
    low, high = (_bound(name, described, key) for key in ("min", "max"))
    bins = described.get("bins") or _BINS
    whole = _is_whole(dtype)
    if low == high:
        return ColumnDraft("constant", {"value": _plain(low)})
    if whole and isinstance(bins, int) and high - low + 1 <= bins:
        return ColumnDraft("category", {"values": [str(value) for value in range(int(low), int(high) + 1)]})
    return ColumnDraft("number", {"bounds": [_plain(low), _plain(high)], "bins": bins, **_decimals(whole)})


def _binned(name: str, described: Mapping[str, Any], dtype: str, binning: Any) -> ColumnDraft:
    """Bins of one width, with open outer bins where the schema has numbers beyond them or says nothing."""
    try:
        first, last, step = (to_number(part) for part in binning)
    except (TypeError, ValueError):
        raise InputError(f"data.yaml: numerical_binning of column {name!r} must be [min, max, step]") from None
    facts: dict[str, Any] = {"bins": {"min": _plain(first), "max": _plain(last), "step": _plain(step)}}
    if "min" in described and "max" in described:
        low, high = (_bound(name, described, key) for key in ("min", "max"))
        if low < first or high > last:
            facts = {"bounds": [_plain(min(low, first)), _plain(max(high, last))], **facts, "outer": "open"}
    else:
        facts["outer"] = "open"
    return ColumnDraft("number", {**facts, **_decimals(_is_whole(dtype))})


def _date(name: str, described: Mapping[str, Any], kind: str) -> ColumnDraft:
    bounds = [str(described.get(key, ""))[:10] for key in ("min", "max")]
    if not all(len(bound) == len("2012-01-01") and bound[:4].isdigit() for bound in bounds):
        raise InputError(f"parameters.json: column {name!r} of kind {kind} needs min and max, as 2012-01-01")
    years = int(bounds[1][:4]) - int(bounds[0][:4]) + 1
    return ColumnDraft(kind, {"bounds": bounds, "bins": "year" if years >= _YEARS else "month"})


def _bound(name: str, described: Mapping[str, Any], key: str) -> float:
    try:
        return to_number(described[key])
    except (KeyError, ValueError):
        raise InputError(f"parameters.json: numeric column {name!r} needs {key}, a number") from None


def _is_whole(dtype: str) -> bool:
    return dtype.lower().startswith(("int", "uint"))


def _decimals(whole: bool) -> dict[str, int]:
    return {"decimals": 0} if whole else {}


def _plain(value: float) -> int | float:
    return int(value) if value.is_integer() else value
