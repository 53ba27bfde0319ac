"""From what a user wrote to the configuration of a release: what is left to us (`auto`) is decided here, once and recorded."""

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
from marginweave.configuration.defaults import NEEDED, check_own_keys, resolve_aggregate, resolve_sigma
from marginweave.configuration.gone import refuse_gone
from marginweave.configuration.methods import method_of
from marginweave.configuration.parse import refusal, refuse_unsupported
from marginweave.configuration.release import Configuration
from marginweave.configuration.sections import Sections
from marginweave.configuration.yaml_source import parse_yaml, read_text


def load_configuration(path: Path) -> Configuration:
    """The configuration in the YAML file at `path`.

    Raises:
        InputError: the file, or a code list that it names, is not there or cannot be parsed, or the first rule that it
            breaks, by key: `privacy.epsilon (-1.0) must be positive`.
    """
    text = read_text(path, "configuration")
    return parse_configuration(with_code_lists(parse_yaml(text, str(path)), path.resolve().parent), text)


def configuration_of(given: Mapping[str, Any]) -> Configuration:
    """The configuration that a mapping made in Python describes; its paths are relative to the working folder.

    Raises:
        InputError: as `load_configuration`.
    """
    return parse_configuration(with_code_lists({"source": FRAME, **_with_texts(given)}, Path.cwd()))


def _with_texts(value: Any) -> Any:
    """The value with the texts of paths, at any depth."""
    if isinstance(value, Mapping):
        return {key: _with_texts(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_texts(inner) for inner in value]
    return str(value) if isinstance(value, Path) else value


def parse_configuration(raw: dict[str, Any], text: str = "") -> Configuration:
    """The configuration that a mapping describes, of the file's `text`; raises InputError as `load_configuration` does."""
    refuse_gone(raw)
    refuse_unsupported(raw)
    try:
        return Configuration.from_written(resolve(raw), raw)
    except ValidationError as error:
        raise refusal(error, text) from None
    except ValueError as error:
        raise InputError(str(error)) from None


def resolve(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What was written, with all decided that it leaves to us: what is counted, in what proportions, and what makes records.

    Decisions see the sections as they were declared, with k-tuples where counts are left to us.
    DP: a function of public facts alone.

    Raises:
        ValidationError: a section that breaks a rule of its own.
        ValueError: a key beside `auto` that only some methods have, or a delta of 0 where `auto` decides.
    """
    counting, making = raw.get("aggregate", {}), raw.get("synthesize", {})
    is_free = isinstance(making, dict) and making.get("method", "auto") == "auto"
    check_own_keys(counting)
    assumed = {"method": "mixture"} if is_free else making
    declared = {**raw, "aggregate": {} if _is_automatic(counting) else _without_sigma(counting), "synthesize": assumed}
    sections = Sections.model_validate(declared)
    if _is_automatic(counting):
        maker = method_of(making, "auto")
        check_automatic_privacy(sections, maker)
        needed = NEEDED.get(maker)
        counting = resolve_aggregate(sections) if needed is None else {"method": needed}
    elif isinstance(counting, dict) and method_of(counting, "k-tuples") == "k-tuples":
        sections = Sections.model_validate({**raw, "aggregate": {}, "synthesize": {}})
    if isinstance(counting, dict) and method_of(counting, "k-tuples") == "k-tuples":
        counting = resolve_sigma(counting, sections)
    if is_free:
        counted = Sections.model_validate({**raw, "aggregate": counting, "synthesize": assumed})
        given = {key: value for key, value in making.items() if key != "method"}
        making = resolve_method(given, counted.aggregate, counted.attributes)
    return {**raw, "aggregate": counting, "synthesize": making}


def _is_automatic(section: Any) -> bool:
    """Whether the section `aggregate` leaves all to us: no key but `method: auto`."""
    return isinstance(section, dict) and section in ({}, {"method": "auto"})


def _without_sigma(section: Any) -> Any:
    if isinstance(section, dict) and section.get("sigma") == "auto":
        return {key: value for key, value in section.items() if key != "sigma"}
    return section
