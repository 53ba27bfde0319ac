"""A run is named by what the user wrote: spellings of one content are one name, and any other value is another."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.configuration import defaults
from marginweave.configuration.load import parse_configuration, resolve
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import canonical_written, mapping_of, parse_yaml
from tests.support.configurations import raw

_SCALARS = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 3)),
    st.booleans(),
    st.none(),
    st.text(st.characters(categories=("L", "N")), min_size=1, max_size=6),
)
_KEYS = st.sampled_from(
    ["privacy", "values", "epsilon", "bins", "structure", "columns", "region", "x", "delta"]
)
_CONTENT = st.dictionaries(
    _KEYS,
    st.recursive(
        _SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
        max_leaves=8,
    ),
    min_size=1,
    max_size=4,
)


def _turned(content: Any, *, columns: bool = False) -> Any:
    """The same content with its keys in another order, but for the columns, whose order counts."""
    if isinstance(content, dict):
        items = list(content.items())
        return {
            key: _turned(value, columns=key == "columns")
            for key, value in (items if columns else items[::-1])
        }
    return [_turned(value) for value in content] if isinstance(content, list) else content


def _spelled(content: Any, style: str) -> str:
    """The content as YAML in which every text is quoted in one way, with comments between the lines."""

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style)
    )
    Dumper.add_representer(
        float,
        lambda dumper, x: dumper.represent_scalar(
            "tag:yaml.org,2002:float", f"{x:.3f}" if style == "'" else repr(x)
        ),
    )
    text = yaml.dump(
        content, Dumper=Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True
    )
    return "# a comment\n" + text if style == "'" else text


def _paths(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    return (
        [path]
        if not isinstance(content, dict | list)
        else [p for key, value in inner for p in _paths(value, (*path, key))]
    )


@settings(max_examples=50)
@given(content=_CONTENT)
def test_spellings_of_one_content_are_one(content: dict[str, Any]) -> None:
    """Order of keys, comments, quotes of texts and trailing zeros change nothing."""
    content = parse_yaml(_spelled(content, '"'))  # what YAML can say
    one = canonical_written(parse_yaml(_spelled(content, '"')))
    assert one == canonical_written(parse_yaml(_spelled(_turned(content), "'")))


@settings(max_examples=50)
@given(content=_CONTENT, data=st.data())
def test_another_value_is_another_digest(content: dict[str, Any], data: st.DataObject) -> None:
    """Whichever value is changed, whether its key is known or not."""
    paths = _paths(content)
    if not paths:
        return
    *above, last = data.draw(st.sampled_from(paths))
    changed = json.loads(json.dumps(content))
    place: Any = changed
    for key in above:
        place = place[key]
    place[last] = "another value"
    assert canonical_written(changed) != canonical_written(content)


@pytest.mark.parametrize(
    "change",
    [{"privacy__epsilon": 1}, {"memory": "3GB"}, {"engine": "local"}, {"partitions": 3}],
)
def test_what_is_the_same_release_has_the_same_name(change: dict[str, Any]) -> None:
    assert parse_configuration(raw(**change)).default_run == parse_configuration(raw()).default_run


def test_defaults_and_auto_are_not_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose `auto` resolves to something else names the same file the same."""
    written = raw(aggregate=None)
    before = parse_configuration(written)
    original = defaults.resolve_aggregate
    monkeypatch.setattr(
        "marginweave.configuration.load.resolve_aggregate",
        lambda c: {**original(c), "cliques": {"all": 1}},
    )
    after = parse_configuration(written)
    assert after.digest != before.digest
    assert (after.written_digest, after.default_run) == (before.written_digest, before.default_run)


def test_the_order_of_columns_counts() -> None:
    columns = dict(reversed(raw()["columns"].items()))
    assert (
        parse_configuration(raw(columns=columns)).default_run
        != parse_configuration(raw()).default_run
    )


def test_what_was_written_can_be_written_again() -> None:
    """As `fit` does, for whoever resumes its run."""
    config = parse_configuration(raw())
    again = parse_configuration(parse_yaml(json.dumps(mapping_of(config.written))))
    assert (again.written, again) == (config.written, config)
    made = Configuration.model_validate(resolve(raw()))
    assert (
        parse_configuration(parse_yaml(json.dumps(mapping_of(made.written)))).written
        == made.written
    )


@pytest.mark.parametrize("name", ["value", "values", "source", "columns", "age"])
def test_a_column_can_have_the_name_of_a_key(name: str) -> None:
    """Spellings of a number in its settings are one number, as in those of any other column."""
    spellings = [
        f"columns: {{{name}: {{type: number, bounds: [{low}, 5]}}}}" for low in ("0", "0.0")
    ]
    whole, decimal = (canonical_written(parse_yaml(text)) for text in spellings)
    assert whole == decimal
    assert mapping_of(whole)["columns"][name]["bounds"] == [0, 5]
