"""Renders the templates of this folder; everything is escaped except this package's own markup."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined


def read_text(name: str) -> str:
    """Return the text of a file of this package."""
    return files("marginweave.publish").joinpath(name).read_text(encoding="utf-8")


def render(name: str, **context: object) -> str:
    """Render the template `name` with `context`; a name that the context lacks is an error."""
    return _environment().get_template(name).render(context)


@cache  # it keeps the templates that it has compiled
def _environment() -> Environment:
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        loader=FunctionLoader(read_text),
    )
