"""Lets a notebook show an object that has no table by its text."""

from __future__ import annotations

from html import escape


class Shown:
    """Base of objects that a notebook shows as their `repr` in plain letters."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"
