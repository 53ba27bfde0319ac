"""The templates beside this module, rendered with everything escaped that is not markup of our own."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined


def read_text(name: str) -> str:
    """The text of a file of this package."""
    return files("marginweave.publish").joinpath(name).read_text(encoding="utf-8")


def render(name: str, **context: object) -> str:
    """The template `name` with `context`; a name that is not given is an error."""
    return _environment().get_template(name).render(context)


@cache  # it keeps the templates that it has compiled
def _environment() -> Environment:
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, loader=FunctionLoader(read_text))
