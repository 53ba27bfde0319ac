"""Loading of a configuration: the settings that the user leaves to us (`auto`) are decided here, once, and recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from marginweave.base.errors import InputError
from marginweave.base.places import FRAME
from marginweave.configuration.checks import check_automatic_privacy
from marginweave.configuration.code_lists import with_code_lists
from marginweave.configuration.default_records import resolve_method
from marginweave.configuration.defaults import (
    NEEDED,
    check_own_keys,
    resolve_aggregate,
    resolve_sigma,
)
from marginweave.configuration.gone import refuse_gone
from marginweave.configuration.methods import method_of
from marginweave.configuration.parse import refusal, refuse_unsupported
from marginweave.configuration.release import Configuration
from marginweave.configuration.sections import Sections
from marginweave.configuration.yaml_source import parse_yaml, read_text


def load_configuration(path: Path) -> Configuration:
    """Return the configuration in the YAML file at `path`.

    Raises:
        InputError: the file, or a code list that it names, is not there or cannot be parsed, or the first rule that it
            breaks, by key: `privacy.epsilon (-1.0) must be positive`.
    """
    text = read_text(path, "configuration")
    return parse_configuration(
        with_code_lists(parse_yaml(text, str(path)), path.resolve().parent), text
    )


def configuration_of(content: Mapping[str, Any]) -> Configuration:
    """Return the configuration that a mapping made in Python describes; its paths are relative to the working folder.

    Raises:
        InputError: as `load_configuration`.
    """
    raw = with_frames(_with_texts(content))
    return parse_configuration(with_code_lists(raw, Path.cwd()))


def with_frames(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping made in Python with places for the frames of tables whose `source` is not written."""
    raw = {"source": FRAME, **content}
    if isinstance(raw.get("tables"), Mapping):
        raw["tables"] = {
            name: {"source": f"{name}.parquet", **table} if isinstance(table, Mapping) else table
            for name, table in raw["tables"].items()
        }
    return raw


def _with_texts(value: Any) -> Any:
    """Return the value with texts in the place of paths, at any depth."""
    if isinstance(value, Mapping):
        return {key: _with_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def parse_configuration(raw: dict[str, Any], text: str = "") -> Configuration:
    """Return the configuration that a mapping describes; raises InputError as `load_configuration` does.

    `text` is the text of its file, if it has one: messages name lines in it.
    """
    refuse_gone(raw)
    refuse_unsupported(raw)
    try:
        return Configuration.from_written(resolve(raw), raw)
    except ValidationError as error:
        raise refusal(error, text) from None
    except ValueError as error:
        raise InputError(str(error)) from None


def resolve(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as it was written, with every `auto` resolved.

    These are the method and the proportions of counting (`aggregate`) and the method that makes records (`synthesize`).
    Decisions are made from the sections as they were declared, with k-tuples where `aggregate` is `auto`.
    DP: a function of public facts alone.

    Raises:
        ValidationError: a section that breaks a rule of its own.
        ValueError: a key beside `auto` that only some methods have, or a delta of 0 where `auto` decides.
    """
    aggregate = raw.get("aggregate", {})
    synthesize = raw.get("synthesize", {})
    check_own_keys(aggregate)
    is_method_automatic = (
        isinstance(synthesize, dict) and synthesize.get("method", "auto") == "auto"
    )
    assumed = {"method": "mixture"} if is_method_automatic else synthesize
    declared = {} if _is_automatic(aggregate) else _without_sigma(aggregate)
    sections = Sections.model_validate({**raw, "aggregate": declared, "synthesize": assumed})
    if _is_automatic(aggregate):
        aggregate = _decide_aggregate(sections, method_of(synthesize, "auto"))
    elif sections.target is not None:
        raise ValueError(
            "target is for aggregate: {method: auto}; where you name the method, write the target under aggregate.cliques, as "
            "{all: 3, target: {columns: [...]}}"
        )
    elif _counts_tuples(aggregate):
        sections = Sections.model_validate({**raw, "aggregate": {}, "synthesize": {}})
    if _counts_tuples(aggregate):
        aggregate = resolve_sigma(aggregate, sections)
    if is_method_automatic:
        counted = Sections.model_validate({**raw, "aggregate": aggregate, "synthesize": assumed})
        settings = {key: value for key, value in synthesize.items() if key != "method"}
        synthesize = resolve_method(settings, counted.aggregate, counted.attributes)
    return {**raw, "aggregate": aggregate, "synthesize": synthesize}


def _decide_aggregate(sections: Sections, synthesis: str) -> dict[str, Any]:
    """Return the section `aggregate` that `auto` becomes with this method of synthesis; raises ValueError for a delta of 0."""
    check_automatic_privacy(sections, synthesis)
    needed = NEEDED.get(synthesis)
    return resolve_aggregate(sections) if needed is None else {"method": needed}


def _is_automatic(section: Any) -> bool:
    """Return whether the section `aggregate` leaves everything to us: it has no key but `method: auto`."""
    return isinstance(section, dict) and section in ({}, {"method": "auto"})


def _counts_tuples(section: Any) -> bool:
    """Return whether the section `aggregate` has the method k-tuples."""
    return isinstance(section, dict) and method_of(section, "k-tuples") == "k-tuples"


def _without_sigma(section: Any) -> Any:
    """Return the section `aggregate` without `sigma: auto`."""
    if isinstance(section, dict) and section.get("sigma") == "auto":
        return {key: value for key, value in section.items() if key != "sigma"}
    return section
