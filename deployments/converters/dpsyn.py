"""Convert the files of DPSyn (parameters.json, column_datatypes.json, data.yaml) into configurations, one a run.

`python deployments/converters/dpsyn.py parameters.json --source drug_deaths.csv` writes drug_deaths.yaml, and says what could
not be converted. No data is read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marginweave.base.durable import write_once
from marginweave.base.errors import InputError
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import to_number
from marginweave.configuration.yaml_lines import yaml_line
from marginweave.configuration.yaml_source import parse_yaml, read_text, read_yaml
from marginweave.drafts.column_draft import ColumnDraft, plain
from marginweave.drafts.draft import dataset_name
from marginweave.drafts.draft_text import column_line, heading

_HEAD = """\
# Converted from the files of DPSyn by deployments/converters/dpsyn.py.
"""
_UNCONFIRMED = """\
# Tools that write parameters.json (schema generators) read it off the data; then its domains are no public knowledge. Each
# column says `confirm: true` until you write  public: "where this is published"  instead, or make it private.
"""
_PAIRS = """\
# All pairs of attributes, as in DPSyn; `cliques: selected` measures only those that are worth their noise.
"""
_EMPTY = """\
missing: [""]  # DPSyn's empty value
"""
_IN_FILES = {"parameters.json": {"runs", "schema"}, "column_datatypes.json": {"dtype"}}
_IN_RUNS = {"epsilon", "delta", "max_records", "max_records_per_individual"}
_KNOWN = {"dtype", "kind", "values", "codes", "min", "max", "bins"}
_BINS = 10  # where DPSyn's schema has none
_YEARS = 3
_IN_DATA = {"identifier", "numerical_binning", "determined_attributes"}


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The configurations as YAML, one an entry of `runs`, and what could not be converted."""

    configurations: tuple[str, ...]
    remarks: tuple[str, ...]


def convert_dpsyn(
    parameters: Path,
    datatypes: Path | None,
    data: Path | None,
    form: SourceFile,
    public: str | None,
) -> Conversion:
    """Convert DPSyn's files; no data is read. `public` says where their domains are published, as a fact of every column.

    Identifier and `max_records_per_individual` become the unit, `max_records` the cap of the output, open-ended bins an open
    outer bin, determined columns the structure. As in DPSyn, all pairs of attributes are measured, and GUM makes the
    records. All configurations share one account.

    Raises:
        InputError: a file is not DPSyn's, or describes what a configuration refuses.
    """
    content, types = _json(parameters, "parameters.json"), _json(datatypes, "column_datatypes.json")
    settings = {} if data is None else read_yaml(data, as_text=True)
    remarks = _unknown(settings, _IN_DATA, "data.yaml")
    for name, mapping in (("parameters.json", content), ("column_datatypes.json", types)):
        remarks += _unknown(mapping, _IN_FILES[name], name)
    identifier = settings.get("identifier")
    columns = _columns(content, types, settings, remarks)
    if not columns:
        raise InputError(f"parameters.json ({parameters}) has no column in its schema")
    body = _HEAD + ("" if public else _UNCONFIRMED) + heading(dataset_name(form.file), form)
    lines = "".join(
        column_line(name, replace(draft, public=public)) for name, draft in columns.items()
    )
    runs = content.get("runs")
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise InputError(
            f"parameters.json ({parameters}) must have runs, each with epsilon, delta and their caps"
        )
    made = []
    for run in runs:
        remarks += _unknown(run, _IN_RUNS, "parameters.json: runs")
        text = f"{body}{_privacy(run, identifier)}{_EMPTY}columns:\n{lines}{_structure(settings)}"
        text += _methods(run, len(_checked(text, public).attributes))
        _checked(text, public)
        made.append(text)
    return Conversion(configurations=tuple(made), remarks=tuple(dict.fromkeys(remarks)))


def _columns(
    content: Mapping[str, Any],
    types: Mapping[str, Any],
    settings: Mapping[str, Any],
    remarks: list[str],
) -> dict[str, ColumnDraft]:
    schema = _mapping(content, "schema", "parameters.json")
    binning = _mapping(settings, "numerical_binning", "data.yaml")
    dtypes, identifier = (
        _mapping(types, "dtype", "column_datatypes.json"),
        settings.get("identifier"),
    )
    remarks += [
        f"column {name!r} has a type in column_datatypes.json, but no domain: it is left out"
        for name in dtypes
        if name not in schema and name not in binning and name != identifier
    ]
    columns: dict[str, ColumnDraft] = {}
    for name in dict.fromkeys((*schema, *binning)):
        if name != identifier:
            described = _mapping(schema, name, "parameters.json: schema")
            dtype = str(dtypes.get(name) or described.get("dtype") or "")
            remarks += _unknown(described, _KNOWN, f"column {name!r}")
            columns[name] = _column(name, described, dtype, binning.get(name), remarks)
    if binning:
        remarks.append(
            "DPSyn's bins are closed above; ours are closed below, the last one on both sides"
        )
    return columns


def _privacy(run: Mapping[str, Any], identifier: Any) -> str:
    most = run.get("max_records_per_individual", 1)
    if identifier is None and most != 1:
        raise InputError(
            f"max_records_per_individual ({most}) needs to know whose records they are: name the identifier in data.yaml "
            "and give it with --data"
        )
    unit = "row" if identifier is None else {"column": str(identifier), "max_records": most}
    settings = {"epsilon": run.get("epsilon"), "delta": run.get("delta"), "unit": unit}
    return f"privacy: {yaml_line(settings)}\n"


def _methods(run: Mapping[str, Any], attributes: int) -> str:
    aggregate = {"method": "marginals", "cliques": {"all": min(2, attributes)}}
    cap = {"max_records": run["max_records"]} if run.get("max_records") else {}
    return f"{_PAIRS}aggregate: {yaml_line(aggregate)}\nsynthesize: {yaml_line({'method': 'gum', **cap})}\n"


def _structure(settings: Mapping[str, Any]) -> str:
    rules = _mapping(settings, "determined_attributes", "data.yaml")
    try:
        determined = [{"column": name, "by": rule["by"], **rule} for name, rule in rules.items()]
    except (KeyError, TypeError):
        raise InputError(
            "data.yaml must give each of determined_attributes its by and mapping"
        ) from None
    lines = "".join(f"    - {yaml_line(item)}\n" for item in determined)
    return f"structure:\n  determined:\n{lines}" if lines else ""


def _checked(text: str, public: str | None) -> Configuration:
    """The configuration that a converted text stands for, as if it were confirmed."""
    raw = parse_yaml(text, "the converted configuration")
    for column in raw["columns"].values():
        if public is None and column.pop("confirm", None):
            column["public"] = "to be confirmed"
    try:
        return parse_configuration(raw)
    except InputError as error:
        reason = str(error)
    raise InputError(f"the files of DPSyn cannot be converted: {reason}")


def _json(path: Path | None, name: str) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = json.loads(read_text(path, name))
    except ValueError:
        raise InputError(f"{name} ({path}) must be JSON") from None
    if not isinstance(content, dict):
        raise InputError(f"{name} ({path}) must be a JSON object")
    return content


def _mapping(above: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = above.get(key) or {}
    if not isinstance(value, dict):
        raise InputError(f"{where}: {key} must be a mapping")
    return value


def _unknown(mapping: Mapping[str, Any], known: set[str], where: str) -> list[str]:
    return [f"{where}: {key}" for key in mapping if key not in known]


def _column(
    name: str, described: Mapping[str, Any], dtype: str, binning: Any, remarks: list[str]
) -> ColumnDraft:
    """Convert one column; `binning` is its [min, max, step] in data.yaml, which goes before the schema's bins.

    Raises:
        InputError: a kind without what it needs.
    """
    kind = str(described.get("kind", "numeric" if binning else ""))
    if binning is not None:
        return _binned(name, described, dtype, binning)
    if "values" in described:
        return _category(name, described["values"])
    if kind == "numeric":
        return _number(name, described, dtype)
    if kind in {"date", "datetime"}:
        return _date(name, described, kind)
    remarks.append(
        f"column {name!r} of kind {kind or 'unknown'} has no values: they are discovered under the budget"
    )
    return ColumnDraft("category", {"domain": "private"})


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
    decimals = _decimals(dtype)
    if low == high:
        return ColumnDraft("constant", {"value": plain(low)})
    if decimals and isinstance(bins, int) and high - low + 1 <= bins:
        return ColumnDraft(
            "category", {"values": [str(value) for value in range(int(low), int(high) + 1)]}
        )
    return ColumnDraft("number", {"bounds": [plain(low), plain(high)], "bins": bins, **decimals})


def _binned(name: str, described: Mapping[str, Any], dtype: str, binning: Any) -> ColumnDraft:
    """Bins of one width, with open outer bins where the schema has numbers beyond them or says nothing."""
    try:
        first, last, step = (to_number(part) for part in binning)
    except (TypeError, ValueError):
        raise InputError(
            f"data.yaml: numerical_binning of column {name!r} must be [min, max, step]"
        ) from None
    facts: dict[str, Any] = {"bins": {"min": plain(first), "max": plain(last), "step": plain(step)}}
    if "min" in described and "max" in described:
        low, high = (_bound(name, described, key) for key in ("min", "max"))
        if low < first or high > last:
            facts = {
                "bounds": [plain(min(low, first)), plain(max(high, last))],
                **facts,
                "outer": "open",
            }
    else:
        facts["outer"] = "open"
    return ColumnDraft("number", {**facts, **_decimals(dtype)})


def _date(name: str, described: Mapping[str, Any], kind: str) -> ColumnDraft:
    bounds = [str(described.get(key, ""))[:10] for key in ("min", "max")]
    if not all(len(bound) == len("2012-01-01") and bound[:4].isdigit() for bound in bounds):
        raise InputError(
            f"parameters.json: column {name!r} of kind {kind} needs min and max, as 2012-01-01"
        )
    years = int(bounds[1][:4]) - int(bounds[0][:4]) + 1
    return ColumnDraft(kind, {"bounds": bounds, "bins": "year" if years >= _YEARS else "month"})


def _bound(name: str, described: Mapping[str, Any], key: str) -> float:
    try:
        return to_number(described[key])
    except (KeyError, ValueError):
        raise InputError(
            f"parameters.json: numeric column {name!r} needs {key}, a number"
        ) from None


def _decimals(dtype: str) -> dict[str, int]:
    """Whole numbers have none."""
    return {"decimals": 0} if dtype.lower().startswith(("int", "uint")) else {}


def main() -> None:
    """Write the configurations, each to a new file that its owner alone can read."""
    options = _options()
    target = options.output or Path(f"{Path(options.source).name.partition('.')[0]}.yaml")
    form = SourceFile(file=os.path.relpath(options.source, target.parent))
    try:
        conversion = convert_dpsyn(
            options.parameters, options.datatypes, options.data, form, options.public
        )
    except InputError as error:
        sys.exit(str(error))
    texts = conversion.configurations
    for number, text in enumerate(texts, start=1):
        place = target.with_stem(f"{target.stem}-{number}") if len(texts) > 1 else target
        if not write_once(place, text.encode()):
            sys.exit(
                f"{place} exists already and is not overwritten; name another file with --output"
            )
        sys.stdout.write(f"Converted to {place}\n")
    for remark in conversion.remarks:
        sys.stdout.write(f"Not converted: {remark}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Convert the files of DPSyn into configurations, one a run."
    )
    parser.add_argument("parameters", type=Path, help="parameters.json")
    parser.add_argument(
        "--source", required=True, help="the table that the configurations name; it is not read"
    )
    parser.add_argument("--datatypes", type=Path, help="column_datatypes.json")
    parser.add_argument("--data", type=Path, help="data.yaml")
    parser.add_argument("--public", help="where the domains in these files are published")
    parser.add_argument(
        "--output",
        type=Path,
        help="the file to write; the name of the table with .yaml if not given",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
