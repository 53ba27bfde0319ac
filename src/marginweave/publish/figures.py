"""Figures as inline SVG, each with a text alternative: the same bytes for the same numbers, no fonts and no network.

Lengths are in units of which a figure is `WIDTH` wide; colours are in report.css, by class.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any
from unicodedata import east_asian_width
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from marginweave.publish.best import Distribution, ValueCounts
from marginweave.released.evaluation import CountBucket, MarginalDistance

WIDTH = 360.0  # drawn at about its own size on a phone
_RIGHT = WIDTH - 14  # of the axes: half of the last number stands beyond
_FONT = 9.5
_LETTERS = dict.fromkeys("iljtfrI.,:;'|!()[]- ", 0.42) | dict.fromkeys("<>=+~#%@MWmw…—", 1.0)  # widths of a wide font
_ROW = 15.0  # a value
_LINE = 11.0  # of several in a label
_BELOW = 16.0  # numbers of an axis
_COLOURS = 10  # of a heat map
_SAME = -2  # a column beside itself
_SAID_IN_CELLS = 10  # a heat map of more attributes has no room for its numbers


class _Drawing:
    """An `<svg>` element for an HTML page: scales with the page, with `title` and `description` as its text alternative."""

    def __init__(self, name: str, height: float, title: str, description: str) -> None:
        ids = f"{name}-title {name}-desc"
        labelled = {"role": "img", "aria-labelledby": ids, "class": "figure", "font-size": _tidy(_FONT)}
        self._root = ElementTree.Element("svg", {"viewBox": f"0 0 {_tidy(WIDTH)} {_tidy(height)}", **labelled})
        for tag, text in (("title", title), ("desc", description)):
            self.add(tag, text, id=f"{name}-{tag}")

    def add(
        self, tag: str, text: str = "", parent: ElementTree.Element | None = None, **attributes: object
    ) -> ElementTree.Element:
        """A new element; what cannot be printed would not be XML."""
        named = {
            key.rstrip("_").replace("_", "-"): _tidy(value) if isinstance(value, float) else str(value)
            for key, value in attributes.items()
        }
        element = ElementTree.SubElement(self._root if parent is None else parent, tag, named)
        element.text = "".join(c if c.isprintable() else "\ufffd" for c in text) or None
        return element

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)

    def axis(self, places: Iterable[tuple[float, str]], top: float, bottom: float, title: str = "") -> None:
        """Lines upwards from an axis below, their numbers, and what they are."""
        for x, number in places:
            self.line(x, top, x, bottom, "grid")
            self.add("text", number, x=x, y=bottom + 11.0, text_anchor="middle")
        if title:
            self.add("text", title, x=_RIGHT, y=bottom + 24.0, text_anchor="end")

    def label(self, lines: Sequence[str], x: float, middle: float, font: float = _FONT, **attributes: Any) -> None:
        """Lines of a text, each of which ends before an axis."""
        for line, text in enumerate(lines, 1):
            y = middle + 0.35 * font + _LINE / _FONT * font * (line - (len(lines) + 1) / 2)
            self.add("text", text, x=x - 5.0, y=y, text_anchor="end", font_size=font, **attributes)

    def markup(self) -> Markup:
        """All of it."""
        return Markup(ElementTree.tostring(self._root, encoding="unicode"))  # noqa: S704 - escaped by the XML writer


def _tidy(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _lines(label: str, most: int = 22) -> list[str]:
    """A whole label, in lines that fit beside an axis."""
    return textwrap.wrap(label, most) or ["(empty)"]


def _left(labels: Iterable[Sequence[str]], font: float = _FONT) -> float:
    """Where the axes begin: beside the widest line of a label."""
    lines = (line for label in labels for line in label)
    wide = ([(c, 0.65 + 0.45 * (east_asian_width(c) in "WF") + 0.11 * c.isupper()) for c in text] for text in lines)
    return 8 + font * max((sum(_LETTERS.get(c, width) for c, width in text) for text in wide), default=1)


def _scaled(left: float, most: float, right: float = _RIGHT) -> Callable[[float], float]:
    """Where a number from 0 to `most` stands."""
    return lambda value: left + (right - left) * value / most


def _ticks(most: float, least_step: float = 0.0) -> list[float]:
    """At most five round numbers from 0 on."""
    size = 10.0 ** math.floor(math.log10(most / 4))
    step = max(least_step, next(s * size for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * size >= most / 4))
    if least_step:
        step = float(math.ceil(step))  # of whole numbers
    return [i * step for i in range(int(most / step) + 1)]


def distribution_figure(distribution: Distribution, name: str) -> Markup:
    """Synthetic records as bars, released counts as dots with their interval, value by value from the top."""
    values = distribution.values
    said = "; ".join(map(_value_words, values)) or "no value"
    labels = [_lines(value.label) for value in values]
    middles, bottom = _rows(labels, 2)
    drawing = _Drawing(name, bottom + _BELOW, f"{distribution.name}: synthetic records beside released counts", said)
    counts = ["" if value.reported is None else f"{value.reported:,}" for value in values]
    most = max((max(value.synthetic, value.reported or 0, value.high or 0) for value in values), default=1)
    left, place = _beside(labels, counts, max(most, 1))
    drawing.axis(((place(tick), f"{tick:,.0f}") for tick in _ticks(max(most, 1), 1.0)), 4, bottom)
    for value, label, count, middle in zip(values, labels, counts, middles, strict=True):
        drawing.label(label, left, middle)
        drawing.label([count], WIDTH + 3, middle)
        width = place(value.synthetic) - left
        drawing.add("rect", x=left, y=middle - 5.4, width=width, height=10.8, class_="bar")
        if value.reported is not None and value.low is not None and value.high is not None:
            # a count that was made consistent may stand beside the interval of what was drawn
            _interval(drawing, place(value.low), place(value.high), middle)
            drawing.add("circle", cx=place(value.reported), cy=middle, r=2.2, class_="point")
    return drawing.markup()


def _rows(labels: Sequence[Sequence[str]], least: int = 0) -> tuple[list[float], float]:
    """The middle of the row of each label, and where the last of at least so many rows ends."""
    ends = list(accumulate((4 + _LINE * len(label) for label in labels), initial=4.0))
    return [(a + b) / 2 for a, b in pairwise(ends)], ends[-1] + _ROW * max(0, least - len(labels))


def _beside(labels: list[list[str]], numbers: list[str], most: float) -> tuple[float, Callable[[float], float]]:
    """Where axes begin and a number up to `most` is, between labels and a column of numbers."""
    left, right = _left(labels), WIDTH - _left([numbers])
    return left, _scaled(left, most, right)


def _interval(drawing: _Drawing, low: float, high: float, y: float) -> None:
    path = f"M{_tidy(low)},{_tidy(y - 2.5)}v5m0,-2.5H{_tidy(high)}m0,-2.5v5"
    drawing.add("path", d=path, class_="span")


def worst_marginals_figure(rows: Sequence[MarginalDistance], name: str) -> Markup:
    """Distance of each of the worst marginals as a bar, and the part that noise alone implies as a line across it."""
    said = "; ".join(f"{', '.join(r.attributes)}: {r.tvd:.3f}" for r in rows)
    labels = [_lines(", ".join(r.attributes), 34) for r in rows]
    middles, bottom = _rows(labels)
    drawing = _Drawing(name, bottom + 34, "The marginals that the synthetic records keep worst", said)
    most = max((max(r.tvd, r.noise or 0) for r in rows), default=0) or 1
    left, place = _beside(labels, ["0.000"], most)
    drawing.axis(((place(tick), f"{tick:g}") for tick in _ticks(most)), 4, bottom)
    for one, label, middle in zip(rows, labels, middles, strict=True):
        drawing.label(label, left, middle)
        drawing.label([f"{one.tvd:.3f}"], WIDTH + 3, middle)
        drawing.add("rect", x=left, y=middle - 5.4, width=place(one.tvd) - left, height=10.8, class_="distance")
        if one.noise is not None:
            drawing.line(place(one.noise), middle - 8, place(one.noise), middle + 8, "noise")
    drawing.add("rect", x=8.0, y=bottom + 22.0, width=10.0, height=8.0, class_="distance")
    drawing.add("text", "distance (TVD)", x=22.0, y=bottom + 29.5)
    if any(one.noise is not None for one in rows):
        drawing.line(106, bottom + 20, 106, bottom + 32, "noise")
        drawing.add("text", "implied by the noise alone", x=112.0, y=bottom + 29.5)
    return drawing.markup()


def association_figure(names: Sequence[str], matrix: Sequence[Sequence[float | None]], title: str, name: str) -> Markup:
    """A heat map of association from 0 to 1; nothing is drawn below .1, and pairs without a number are hatched."""
    size = len(names)
    cells = np.array([[np.nan if x is None else x for x in row] for row in matrix], float).reshape(size, size)
    labels = [_lines(label) for label in names]
    font = min(_FONT, 230 / max(sum(map(len, labels)), size, 1))
    left = _left(labels, font)
    side = WIDTH - 34 - left
    unit = side / max(size, 1)
    drawing = _Drawing(name, side + left + 4, title, f"The strongest: {'; '.join(strongest_pairs(names, matrix))}")
    hatch: dict[str, Any] = {"id": f"{name}-none", "width": 4.0, "height": 4.0, "patternUnits": "userSpaceOnUse"}
    drawing.add("path", parent=drawing.add("pattern", **hatch), d="M0,4L4,0", class_="hatch")
    drawing.add("rect", x=left, y=2.0, width=side, height=side, class_="frame")
    which = np.clip(np.nan_to_num(cells, nan=-0.1) * _COLOURS, -1, _COLOURS - 1).astype(int)
    np.fill_diagonal(which, _SAME)
    # one path for a colour: one for each cell of 200 columns would be most of the page
    for colour in map(int, np.unique(which)):
        places = np.argwhere(which == colour).tolist()
        corners = (f"M{_tidy(left + c * unit)},{_tidy(2 + r * unit)}" for r, c in places)
        path = "".join(f"{corner}h{_tidy(unit)}v{_tidy(unit)}h-{_tidy(unit)}z" for corner in corners)
        drawing.add("path", d=path, **_fill(colour, name))
    for i, label in enumerate(labels):
        middle = 2 + (i + 0.5) * unit
        drawing.label(label, left, middle, font)
        x, y = left + middle - 2, side + 7
        drawing.label(label, x + 5, y, font, transform=f"rotate(-90 {_tidy(x)} {_tidy(y)})")
    if size <= _SAID_IN_CELLS:
        for row, column in np.argwhere(~np.isnan(cells) & (which != _SAME)):
            x, y = left + (column + 0.5) * unit, 4.5 + (row + 0.5) * unit
            kind: dict[str, Any] = {"class": "light"} if which[row, column] == _COLOURS - 1 else {}
            drawing.add("text", f"{cells[row, column]:.2f}", x=x, y=y, text_anchor="middle", font_size=7.0, **kind)
    _colour_bar(drawing, side, name)
    return drawing.markup()


def _fill(colour: int, name: str) -> dict[str, Any]:
    """How cells of a colour are filled; -1 is no number, the lowest colour nothing at all."""
    if colour < 0:
        return {"class_": "same"} if colour == _SAME else {"fill": f"url(#{name}-none)"}
    return {"class_": "cells", "fill_opacity": (colour + 0.5) / _COLOURS if colour else 0.0}


def _colour_bar(drawing: _Drawing, side: float, name: str) -> None:
    """The colours of a heat map beside it, with their ends."""
    step = 0.8 * side / _COLOURS
    for colour in range(_COLOURS):
        drawing.add(
            "rect", x=WIDTH - 27, y=2 + 0.9 * side - (colour + 1) * step, width=8.0, height=step, **_fill(colour, name)
        )
    for share in range(0, _COLOURS + 1, 2):
        drawing.add("text", f"{share / _COLOURS:g}", x=WIDTH - 16, y=5 + 0.9 * side - share * step, font_size=8.0)


def error_figure(buckets: Sequence[CountBucket], name: str) -> Markup:
    """Mean proportional error of combinations by the size of their synthetic count, in bins of a logarithmic axis."""
    known = [(b, 100 * b.proportional_error) for b in buckets if b.proportional_error is not None]
    said = "; ".join(f"up to {bucket.at_most:,}: {error:,.0f} %" for bucket, error in known)
    left, bottom = 36.0, 176.0
    drawing = _Drawing(name, bottom + 28, "Error of combinations by the size of their synthetic count", said)
    sizes = [math.log10(max(bucket.mean_count or 0, 1)) for bucket, _ in known]
    first, most = math.floor(min(sizes)), max(error for _, error in known) or 1
    across = _scaled(left, max(max(sizes) - first, 1))
    decades = ((across(d), f"{10 ** (first + d):,}") for d in range(int(max(sizes) - first) + 1))
    drawing.axis(decades, 18, bottom, "synthetic count")
    drawing.add("text", "mean error, in % of the count", x=2.0, y=10.0)

    def up(error: float) -> float:
        return bottom - (bottom - 22) * error / most

    for tick in _ticks(most):
        drawing.line(left, up(tick), _RIGHT, up(tick), "grid")
        drawing.label([f"{tick:,g}"], left, up(tick))
    points = [(across(size - first), up(error)) for size, (_, error) in zip(sizes, known, strict=True)]
    drawing.add("polyline", points=" ".join(f"{_tidy(x)},{_tidy(y)}" for x, y in points), class_="span")
    for x, y in points:
        drawing.add("circle", cx=x, cy=y, r=2.4, class_="point")
    return drawing.markup()


def spending_figure(points: Sequence[tuple[datetime, float]], until: datetime, title: str, name: str) -> Markup:
    """What part of an account was used up after each of its releases, in steps, up to the moment `until`."""
    said = "; ".join(f"{moment:%Y-%m-%d}: {100 * share:.0f} %" for moment, share in (points[0], points[-1]))
    left, top, bottom, first = 36.0, 8.0, 108.0, points[0][0].timestamp()
    drawing = _Drawing(name, bottom + _BELOW, f"{title}: part of the budget that is used up", said)
    across = _scaled(left, max(until.timestamp() - first, 1))

    def up(share: float) -> float:
        return bottom - (bottom - top) * min(1.0, share)

    for tick in (0.0, 0.5, 1.0):
        drawing.line(left, up(tick), _RIGHT, up(tick), "noise" if tick == 1 else "grid")
        drawing.label([f"{100 * tick:.0f} %"], left, up(tick))
    for x, moment, anchor in ((left, points[0][0], "start"), (_RIGHT, until, "end")):
        drawing.add("text", f"{moment:%Y-%m-%d}", x=x, y=bottom + 12, text_anchor=anchor)
    steps = "".join(f"H{_tidy(across(m.timestamp() - first))}V{_tidy(up(share))}" for m, share in points)
    drawing.add("path", d=f"M{_tidy(left)},{_tidy(bottom)}{steps}H{_tidy(_RIGHT)}", class_="span")
    return drawing.markup()


def _value_words(one: ValueCounts) -> str:
    said = "not released" if one.reported is None else f"released {one.reported:,} ({one.low:,} to {one.high:,})"
    return f"{one.label or '(empty)'}: synthetic {one.synthetic:,}, {said}"


def strongest_pairs(names: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> list[str]:
    """What a heat map says in words: ten pairs at most, for a phone and for who does not see it."""
    pairs = [(x, i, j) for i, row in enumerate(matrix) for j, x in enumerate(row[:i]) if x is not None]
    return [f"{names[j]} and {names[i]} {value:.2f}" for value, i, j in sorted(pairs, reverse=True)[:10]]
