"""Renders figures as inline SVG, each with a text alternative: the same bytes for the same numbers, no fonts, no network.

Lengths are in units of which a figure is `WIDTH` wide; colors are in report.css, by class.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any, Literal, TypeAlias
from unicodedata import east_asian_width
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from marginweave.base.arrays import Floats
from marginweave.publish.best import Distribution, ValueCounts
from marginweave.released.evaluation import CountBucket, MarginalDistance
from marginweave.texts.sentences import Sentence, Share, report_sentence

WIDTH = 360.0  # shown at about this size on a phone
_RIGHT = WIDTH - 14  # right end of the axes: half of the last number is beyond it
_FONT = 9.5
# widths of a wide font
_LETTERS = dict.fromkeys("iljtfrI.,:;'|!()[]- ", 0.42) | dict.fromkeys("<>=+~#%@MWmw…—", 1.0)
_ROW = 15.0  # height of a value
_LINE = 11.0  # height of one of several lines in a label
_BELOW = 16.0  # height of the numbers of an axis


_COLORS = 10  # of a heat map
_SAME = -2  # color number of a column with itself


_MOST_NUMBERED = 10  # a heat map of more attributes has no room for its numbers


class _Figure:
    """An `<svg>` element for an HTML page: scales with the page, with `title` and `description` as its text alternative."""

    def __init__(
        self,
        name: str,
        height: float,
        title: str | Sentence,
        description: str | Sentence,
    ) -> None:
        attributes = {
            "viewBox": f"0 0 {_tidy(WIDTH)} {_tidy(height)}",
            "role": "img",
            "aria-labelledby": f"{name}-title {name}-desc",
            "class": "figure",
            "font-size": _tidy(_FONT),
        }
        self._root = ElementTree.Element("svg", attributes)
        for tag, text in (("title", title), ("desc", description)):
            self.add(tag, str(text), id=f"{name}-{tag}")

    def add(
        self,
        tag: str,
        text: str = "",
        parent: ElementTree.Element | None = None,
        **attributes: object,
    ) -> ElementTree.Element:
        """Add an element, and return it. Characters that cannot be printed are replaced, as XML does not allow them."""
        texts = {}
        for key, value in attributes.items():
            name = key.rstrip("_").replace("_", "-")
            texts[name] = _tidy(value) if isinstance(value, float) else str(value)
        element = ElementTree.SubElement(self._root if parent is None else parent, tag, texts)
        printable = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
        element.text = printable or None
        return element

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        kind: str,
    ) -> None:
        """Add a straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)

    def axis(
        self,
        places: Iterable[tuple[float, str]],
        top: float,
        bottom: float,
        title: str = "",
    ) -> None:
        """Add vertical lines from a horizontal axis, their numbers below it, and the title of the axis."""
        for x, number in places:
            self.line(x, top, x, bottom, "grid")
            self.add("text", number, x=x, y=bottom + 11.0, text_anchor="middle")
        if title:
            self.add("text", title, x=_RIGHT, y=bottom + 24.0, text_anchor="end")

    def label(
        self, lines: Sequence[str], x: float, middle: float, font: float = _FONT, **attributes: Any
    ) -> None:
        """Add lines of a text that end left of `x`, centered at the height `middle`."""
        middle_line = (len(lines) + 1) / 2
        for line, text in enumerate(lines, 1):
            below_middle = _LINE / _FONT * font * (line - middle_line)
            y = middle + 0.35 * font + below_middle
            self.add("text", text, x=x - 5.0, y=y, text_anchor="end", font_size=font, **attributes)

    def markup(self) -> Markup:
        """Return the figure as HTML."""
        return Markup(ElementTree.tostring(self._root, encoding="unicode"))  # noqa: S704 - escaped by the XML writer


def _tidy(value: float) -> str:
    """Return a length with at most two decimals, without zeros at its end."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _lines(label: str, most: int = 22) -> list[str]:
    """Return a whole label in lines that fit next to an axis."""
    return textwrap.wrap(label, most) or [str(report_sentence("figure.empty-label"))]


def _label_width(labels: Iterable[Sequence[str]], font: float = _FONT) -> float:
    """Return the width of the widest line of any label, with a margin."""
    widths = [_text_width(line) for lines in labels for line in lines]
    return 8 + font * max(widths, default=1)


def _text_width(text: str) -> float:
    """Return the width of a text as a multiple of its font size."""
    return sum(_LETTERS.get(letter, _usual_width(letter)) for letter in text)


def _usual_width(letter: str) -> float:
    """Return the width of a letter that is not in `_LETTERS`, in a wide font."""
    is_wide = east_asian_width(letter) in "WF"
    return 0.65 + 0.45 * is_wide + 0.11 * letter.isupper()


def _scaled(axis_left: float, most: float, axis_right: float = _RIGHT) -> Callable[[float], float]:
    """Return the function that gives the place of a number from 0 to `most` between the ends of the axis."""
    length = axis_right - axis_left
    return lambda value: axis_left + length * value / most


def _ticks(most: float, least_step: float = 0.0) -> list[float]:
    """Return at most five round numbers from 0 to `most`, whole numbers if there is a `least_step`."""
    quarter = most / 4
    size = 10.0 ** math.floor(math.log10(quarter))
    round_steps = [factor * size for factor in (1.0, 2.0, 2.5, 5.0, 10.0)]
    large_enough = [step for step in round_steps if step >= quarter]
    step = max(least_step, min(large_enough))
    if least_step:
        step = float(math.ceil(step))
    steps = int(most / step)
    return [i * step for i in range(steps + 1)]


def distribution_figure(distribution: Distribution, name: str) -> Markup:
    """Return a figure of one column, value by value from the top.

    Synthetic records are bars, released counts are dots with their interval.
    """
    values = distribution.values
    description = _listed(map(_value_sentence, values)) or report_sentence("figure.no-value")
    labels = [_lines(value.label) for value in values]
    middles, bottom = _rows(labels, 2)
    title = report_sentence("figure.column", column=distribution.name)
    figure = _Figure(name, bottom + _BELOW, title, description)
    counts = ["" if value.reported is None else f"{value.reported:,}" for value in values]
    largest = [max(value.synthetic, value.reported or 0, value.high or 0) for value in values]
    most = max(largest, default=1)
    axis_end = max(most, 1)
    axis_left, place = _axis_between(labels, counts, axis_end)
    ticks = [(place(tick), f"{tick:,.0f}") for tick in _ticks(axis_end, 1.0)]
    figure.axis(ticks, 4, bottom)
    for value, label, count, middle in zip(values, labels, counts, middles, strict=True):
        figure.label(label, axis_left, middle)
        figure.label([count], WIDTH + 3, middle)
        width = place(value.synthetic) - axis_left
        figure.add("rect", x=axis_left, y=middle - 5.4, width=width, height=10.8, class_="bar")
        if value.reported is not None and value.low is not None and value.high is not None:
            # a count that was made consistent may lie outside the interval of the measured one
            _interval(figure, place(value.low), place(value.high), middle)
            figure.add("circle", cx=place(value.reported), cy=middle, r=2.2, class_="point")
    return figure.markup()


def _rows(labels: Sequence[Sequence[str]], least: int = 0) -> tuple[list[float], float]:
    """Return the middle of the row of each label, and the end of the last row if there are at least `least` rows."""
    heights = [4 + _LINE * len(label) for label in labels]
    ends = list(accumulate(heights, initial=4.0))
    middles = [(top + bottom) / 2 for top, bottom in pairwise(ends)]
    empty_rows = max(0, least - len(labels))
    return middles, ends[-1] + _ROW * empty_rows


def _axis_between(
    labels: list[list[str]], numbers: list[str], most: float
) -> tuple[float, Callable[[float], float]]:
    """Return the left end of an axis between labels and a column of numbers, and the place of a number up to `most`."""
    axis_left = _label_width(labels)
    axis_right = WIDTH - _label_width([numbers])
    return axis_left, _scaled(axis_left, most, axis_right)


def _interval(figure: _Figure, low: float, high: float, y: float) -> None:
    """Add a horizontal line with a short vertical one at either end."""
    left_end = f"M{_tidy(low)},{_tidy(y - 2.5)}v5"
    line = f"m0,-2.5H{_tidy(high)}"
    right_end = "m0,-2.5v5"
    figure.add("path", d=f"{left_end}{line}{right_end}", class_="span")


def worst_marginals_figure(rows: Sequence[MarginalDistance], name: str) -> Markup:
    """Return a figure of the worst marginals.

    The distance of each is a bar, and the part that noise alone implies is a line across it.
    """
    columns_of_rows = [", ".join(row.attributes) for row in rows]
    distances = []
    for row, columns in zip(rows, columns_of_rows, strict=True):
        distances.append(report_sentence("figure.marginal", columns=columns, tvd=row.tvd))
    labels = [_lines(columns, 34) for columns in columns_of_rows]
    middles, bottom = _rows(labels)
    figure = _Figure(name, bottom + 34, report_sentence("figure.worst"), _listed(distances))
    largest = [max(row.tvd, row.noise or 0) for row in rows]
    most = max(largest, default=0) or 1
    axis_left, place = _axis_between(labels, ["0.000"], most)
    ticks = [(place(tick), f"{tick:g}") for tick in _ticks(most)]
    figure.axis(ticks, 4, bottom)
    for row, label, middle in zip(rows, labels, middles, strict=True):
        figure.label(label, axis_left, middle)
        figure.label([f"{row.tvd:.3f}"], WIDTH + 3, middle)
        width = place(row.tvd) - axis_left
        figure.add("rect", x=axis_left, y=middle - 5.4, width=width, height=10.8, class_="distance")
        if row.noise is not None:
            x = place(row.noise)
            figure.line(x, middle - 8, x, middle + 8, "noise")
    figure.add("rect", x=8.0, y=bottom + 22.0, width=10.0, height=8.0, class_="distance")
    figure.add("text", str(report_sentence("figure.distance")), x=22.0, y=bottom + 29.5)
    if any(row.noise is not None for row in rows):
        figure.line(106, bottom + 20, 106, bottom + 32, "noise")
        figure.add("text", str(report_sentence("figure.noise")), x=112.0, y=bottom + 29.5)
    return figure.markup()


def association_figure(
    names: Sequence[str],
    matrix: Sequence[Sequence[float | None]],
    title: str | Sentence,
    name: str,
) -> Markup:
    """Return a heat map of association from 0 to 1; cells below 0.1 are empty, and pairs without a number are hatched."""
    size = len(names)
    cells = np.array(matrix, float).reshape(size, size)  # None becomes NaN
    labels = [_lines(label) for label in names]
    lines = sum(len(label) for label in labels)
    font = min(_FONT, 230 / max(lines, size, 1))
    axis_left = _label_width(labels, font)
    side = WIDTH - 34 - axis_left
    unit = side / max(size, 1)
    pairs = _listed(strongest_pairs(names, matrix))
    description = report_sentence("figure.strongest", pairs=pairs)
    figure = _Figure(name, side + axis_left + 4, title, description)
    hatch: dict[str, Any] = {
        "id": f"{name}-none",
        "width": 4.0,
        "height": 4.0,
        "patternUnits": "userSpaceOnUse",
    }
    pattern = figure.add("pattern", **hatch)
    figure.add("path", parent=pattern, d="M0,4L4,0", class_="hatch")
    figure.add("rect", x=axis_left, y=2.0, width=side, height=side, class_="frame")
    scaled = np.nan_to_num(cells, nan=-0.1) * _COLORS
    colors = np.clip(scaled, -1, _COLORS - 1).astype(int)
    np.fill_diagonal(colors, _SAME)
    _add_cells(figure, colors, axis_left, unit, name)
    for i, label in enumerate(labels):
        middle = 2 + (i + 0.5) * unit
        figure.label(label, axis_left, middle, font)
        x = axis_left + middle - 2
        y = side + 7
        figure.label(label, x + 5, y, font, transform=f"rotate(-90 {_tidy(x)} {_tidy(y)})")
    if size <= _MOST_NUMBERED:
        _add_numbers(figure, cells, colors, axis_left, unit)
    _color_bar(figure, side, name)
    return figure.markup()


def _add_cells(
    figure: _Figure,
    colors: NDArray[np.int_],
    axis_left: float,
    unit: float,
    name: str,
) -> None:
    """Add the cells of a heat map: one path for each color, as one for each cell of 200 columns would fill the page."""
    width = _tidy(unit)
    for color in map(int, np.unique(colors)):
        squares = []
        for row, column in np.argwhere(colors == color).tolist():
            x = _tidy(axis_left + column * unit)
            y = _tidy(2 + row * unit)
            squares.append(f"M{x},{y}h{width}v{width}h-{width}z")
        figure.add("path", d="".join(squares), **_fill(color, name))


def _add_numbers(
    figure: _Figure,
    cells: Floats,
    colors: NDArray[np.int_],
    axis_left: float,
    unit: float,
) -> None:
    """Add the numbers to the cells of a heat map."""
    has_number = ~np.isnan(cells) & (colors != _SAME)
    for row, column in np.argwhere(has_number):
        number = f"{cells[row, column]:.2f}"
        x = axis_left + (column + 0.5) * unit
        y = 4.5 + (row + 0.5) * unit
        is_darkest = colors[row, column] == _COLORS - 1
        kind: dict[str, Any] = {"class": "light"} if is_darkest else {}
        figure.add("text", number, x=x, y=y, text_anchor="middle", font_size=7.0, **kind)


def _fill(color: int, name: str) -> dict[str, Any]:
    """Return the attributes that fill cells of a color; -1 is for cells without a number, and color 0 is transparent."""
    if color == _SAME:
        return {"class_": "same"}
    if color < 0:
        return {"fill": f"url(#{name}-none)"}
    return {"class_": "cells", "fill_opacity": (color + 0.5) / _COLORS if color else 0.0}


def _color_bar(figure: _Figure, side: float, name: str) -> None:
    """Add the colors of a heat map as a bar on its right, with numbers from 0 to 1."""
    step = 0.8 * side / _COLORS
    for color in range(_COLORS):
        y = 2 + 0.9 * side - (color + 1) * step
        figure.add("rect", x=WIDTH - 27, y=y, width=8.0, height=step, **_fill(color, name))
    for share in range(0, _COLORS + 1, 2):
        y = 5 + 0.9 * side - share * step
        figure.add("text", f"{share / _COLORS:g}", x=WIDTH - 16, y=y, font_size=8.0)


def error_figure(buckets: Sequence[CountBucket], name: str) -> Markup:
    """Return a figure of the error of combinations by their synthetic count, in bins of a logarithmic axis."""
    sizes = []
    errors = []
    sentences = []
    for bucket in buckets:
        if bucket.proportional_error is not None:
            percent = 100 * bucket.proportional_error
            sizes.append(math.log10(max(bucket.mean_count or 0, 1)))
            errors.append(percent)
            sentences.append(
                report_sentence("figure.error", at_most=bucket.at_most, percent=percent)
            )
    axis_left = 36.0
    bottom = 176.0
    figure = _Figure(name, bottom + 28, report_sentence("figure.errors"), _listed(sentences))
    first = math.floor(min(sizes))
    most = max(errors) or 1
    decades = max(sizes) - first
    across = _scaled(axis_left, max(decades, 1))
    ticks = []
    for decade in range(int(decades) + 1):
        count = 10 ** (first + decade)
        ticks.append((across(decade), f"{count:,}"))
    figure.axis(ticks, 18, bottom, str(report_sentence("figure.size")))
    figure.add("text", str(report_sentence("figure.mean-error")), x=2.0, y=10.0)

    def up(error: float) -> float:
        return bottom - (bottom - 22) * error / most

    for tick in _ticks(most):
        figure.line(axis_left, up(tick), _RIGHT, up(tick), "grid")
        figure.label([f"{tick:,g}"], axis_left, up(tick))
    points = [(across(size - first), up(error)) for size, error in zip(sizes, errors, strict=True)]
    places = [f"{_tidy(x)},{_tidy(y)}" for x, y in points]
    figure.add("polyline", points=" ".join(places), class_="span")
    for x, y in points:
        figure.add("circle", cx=x, cy=y, r=2.4, class_="point")
    return figure.markup()


Mark: TypeAlias = Literal["dot", "ring", "box", "frame"]
"""How a point is drawn."""


@dataclass(frozen=True, kw_only=True)
class EpsilonErrors:
    """Errors at several epsilons: of each a share from 0 to 1, and the ends of its range; None where nothing is known.

    `mark` is how each is drawn: dot or ring, box or frame.
    """

    title: Sentence
    mark: Mark
    errors: Sequence[tuple[float, float, float] | None]


def epsilon_figure(
    epsilons: Sequence[float],
    kinds: Sequence[EpsilonErrors],
    title: Sentence,
    good: float,
    name: str,
) -> Markup:
    """Return a figure of errors by epsilon, both axes logarithmic, with a line at `good`; there are points and no lines.

    Each point has the place of its epsilon in `data-place`, such that a page can mark those of one epsilon. Errors below
    0.001 % are drawn as that.
    """
    axis_left = 46.0
    top = 10.0 + _LINE * (len(kinds) + 1)
    bottom = top + 150.0
    sentences = [sentence for kind in kinds for sentence in _ends(epsilons, kind)]
    figure = _Figure(name, bottom + 28, title, _listed(sentences))
    logs = [math.log(epsilon / epsilons[0]) for epsilon in epsilons]
    across = _scaled(axis_left + 8, max(logs[-1], 1.0))
    ticks = [(across(logs[epsilons.index(x)]), f"{x:g}") for x in _EPSILON_TICKS if x in epsilons]
    figure.axis(ticks, top, bottom, str(report_sentence("figure.epsilon")))
    decades = _decades(kinds)

    def up(share: float) -> float:
        return top - (bottom - top) * max(-decades, math.log10(max(share, 1e-9))) / decades

    for decade in range(decades + 1):
        y = up(10.0**-decade)
        figure.line(axis_left, y, _RIGHT, y, "grid")
        figure.label([f"{10.0 ** (2 - decade):g} %"], axis_left, y)
    figure.line(axis_left, up(good), _RIGHT, up(good), "noise")
    for number, kind in enumerate(kinds):
        y = 6.0 + _LINE * number
        _mark(figure, kind.mark, axis_left + 4, y)
        figure.add("text", str(kind.title), x=axis_left + 12, y=y + 3.4)
        for place, error in enumerate(kind.errors):
            if error is not None:
                x = across(logs[place]) + _ASIDE[kind.mark]
                _point(figure, kind.mark, x, [up(share) for share in error], place)
    y = 6.0 + _LINE * len(kinds)
    figure.line(axis_left, y, axis_left + 8, y, "noise")
    words = str(report_sentence("figure.good", share=Share(good)))
    figure.add("text", words, x=axis_left + 12, y=y + 3.4)
    return figure.markup()


def _decades(kinds: Sequence[EpsilonErrors]) -> int:
    """Return how many powers of ten, from 2 to 5, an axis has below 100 % for the smallest error, with its range."""
    errors = [error for kind in kinds for error in kind.errors if error is not None]
    smallest = max(min((low for _, low, _ in errors), default=1.0), 1e-5)
    return min(5, max(2, math.ceil(-math.log10(smallest))))


_EPSILON_TICKS = (0.1, 0.3, 1.0, 3.0, 10.0)
_ASIDE = {"dot": 0.0, "ring": 0.0, "box": -2.5, "frame": 2.5}
"""How far marks with a range are drawn beside the place of their epsilon: two ranges at one place would hide each other."""


def _ends(epsilons: Sequence[float], kind: EpsilonErrors) -> list[Sentence]:
    """Return sentences with the errors of the smallest and of the largest epsilon that has one."""
    with_error = [
        (epsilon, error[0])
        for epsilon, error in zip(epsilons, kind.errors, strict=True)
        if error is not None
    ]
    return [
        report_sentence("figure.at-epsilon", kind=kind.title, epsilon=epsilon, share=Share(share))
        for epsilon, share in [*with_error[:1], *with_error[1:][-1:]]
    ]


def _point(figure: _Figure, mark: str, x: float, heights: Sequence[float], place: int) -> None:
    """Add an error at the first height, with a range between the other two where there is one."""
    middle, low, high = heights
    if low != high:
        figure.add("line", x1=x, y1=low, x2=x, y2=high, class_="range", data_place=place)
    _mark(figure, mark, x, middle, data_place=place)


def _mark(figure: _Figure, mark: str, x: float, y: float, **attributes: Any) -> None:
    """Add a dot or ring, or a box or frame, in the colors of measured counts or of synthetic records."""
    if mark in ("dot", "ring"):
        kind = "point" if mark == "dot" else "ring"
        figure.add("circle", cx=x, cy=y, r=2.6, class_=kind, **attributes)
    else:
        kind = "solid" if mark == "box" else "frame-of-records"
        figure.add("rect", x=x - 2.4, y=y - 2.4, width=4.8, height=4.8, class_=kind, **attributes)


def spending_figure(
    points: Sequence[tuple[datetime, float]],
    until: datetime,
    account: str,
    name: str,
) -> Markup:
    """Return a figure of the used part of an account after each of its releases, in steps, up to the moment `until`."""
    ends = []
    for moment, share in (points[0], points[-1]):
        day = f"{moment:%Y-%m-%d}"
        ends.append(report_sentence("figure.spent", day=day, share=Share(share)))
    axis_left = 36.0
    top = 8.0
    bottom = 108.0
    start = points[0][0]
    first = start.timestamp()
    title = report_sentence("figure.spending", account=account)
    figure = _Figure(name, bottom + _BELOW, title, _listed(ends))
    across = _scaled(axis_left, max(until.timestamp() - first, 1))

    def up(share: float) -> float:
        return bottom - (bottom - top) * min(1.0, share)

    for tick in (0.0, 0.5, 1.0):
        y = up(tick)
        kind = "noise" if tick == 1 else "grid"
        figure.line(axis_left, y, _RIGHT, y, kind)
        figure.label([f"{100 * tick:.0f} %"], axis_left, y)
    figure.add("text", f"{start:%Y-%m-%d}", x=axis_left, y=bottom + 12, text_anchor="start")
    figure.add("text", f"{until:%Y-%m-%d}", x=_RIGHT, y=bottom + 12, text_anchor="end")
    path = f"M{_tidy(axis_left)},{_tidy(bottom)}"
    for moment, share in points:
        seconds = moment.timestamp() - first
        path += f"H{_tidy(across(seconds))}V{_tidy(up(share))}"
    figure.add("path", d=f"{path}H{_tidy(_RIGHT)}", class_="span")
    return figure.markup()


def _value_sentence(value: ValueCounts) -> Sentence:
    """Return a value with its counts."""
    label = value.label or report_sentence("figure.empty-label")
    if value.reported is None or value.low is None or value.high is None:
        return report_sentence("figure.value-not-released", label=label, synthetic=value.synthetic)
    return report_sentence(
        "figure.value",
        label=label,
        synthetic=value.synthetic,
        count=value.reported,
        low=value.low,
        high=value.high,
    )


def _listed(sentences: Iterable[Sentence]) -> str:
    """Return sentences as a list in one text."""
    return "; ".join(map(str, sentences))


def strongest_pairs(
    names: Sequence[str], matrix: Sequence[Sequence[float | None]]
) -> list[Sentence]:
    """Return the ten strongest pairs of a heat map, for phones and for readers who cannot see it."""
    pairs: list[tuple[float, int, int]] = []
    for i, row in enumerate(matrix):
        for j, value in enumerate(row[:i]):
            if value is not None:
                pairs.append((value, i, j))
    strongest = sorted(pairs, reverse=True)[:10]
    return [
        report_sentence("figure.pair", column=str(names[j]), row=str(names[i]), association=value)
        for value, i, j in strongest
    ]
