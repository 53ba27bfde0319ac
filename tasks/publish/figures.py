"""Figures as inline SVG, each with a text alternative: the same bytes for the same numbers, no fonts and no network."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from marginweave.schemas.released.evaluation import CountBucket, MarginalDistance
from marginweave.tasks.empirical.findings import Finding
from marginweave.tasks.publish.reader import Distribution, ValueCounts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path

# Okabe and Ito's colours, told apart by colour-blind people as well.
BLUE, ORANGE, GREEN, PINK, SKY = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9"
WIDTH = 5.0  # inches: drawn at about its own size on a phone
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_STYLE = {
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#5b5b5b",
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.parse_math": False,  # a label may hold dollar signs
}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_LINE = 0.21  # inches a value
_COLOURS = 10  # of a heat map
_SAID_IN_CELLS = 10  # a heat map of more attributes has no room for its numbers


@contextmanager
def drawing(name: str, height: float, *, legend: bool = False) -> Iterator[tuple[Figure, Axes]]:
    """An empty figure of `WIDTH` and this height, in inches, and its axes; no pyplot, which keeps figures and wants a screen.

    It has our style, whatever a matplotlibrc says; `name` makes its ids unique on a page of many. With `legend` there is room
    for one outside the axes, and laying it out takes longer.
    """
    from matplotlib import style
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import TightLayoutEngine

    with style.context(["default", {**_STYLE, "svg.hashsalt": name}]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that matplotlib's font lacks: the browser has others
        # "tight" measures every text once more, for a rectangle that is the whole figure: with the same result
        tight = TightLayoutEngine(rect=None)  # type: ignore[arg-type]
        figure = Figure(figsize=(WIDTH, height), layout="constrained" if legend else tight)
        yield figure, figure.subplots()


def shown_label(label: str, most: int = 22) -> str:
    """A label as it fits beside an axis; what cannot be printed would not be XML."""
    printable = "".join(c if c.isprintable() else "\ufffd" for c in label) or "(empty)"
    return printable if len(printable) <= most else printable[: most - 1] + "…"


def _inline_svg(figure: Figure, name: str, title: str, description: str) -> Markup:
    """An `<svg>` element for an HTML page: scales with the page, with `title` and `description` as its text alternative.

    Must be called inside `drawing(name, …)`.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    sink = io.StringIO()
    # `savefig` would lay everything out and draw it twice, with the same result
    FigureCanvasSVG(figure).print_svg(sink, metadata=_NO_METADATA)  # type: ignore[no-untyped-call]
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(sink.getvalue())  # noqa: S314 - matplotlib wrote it, just now
    for definitions in root.findall(f"{{{_SVG}}}defs"):
        for style in definitions.findall(f"{{{_SVG}}}style"):
            definitions.remove(style)  # it would hold for the whole page
    _own_ids(root, name)
    for text, tag in ((description, "desc"), (title, "title")):
        element = ElementTree.Element(f"{{{_SVG}}}{tag}", {"id": f"{name}-{tag}"})
        element.text = "".join(c if c.isprintable() else "\ufffd" for c in text)
        root.insert(0, element)
    for size in ("width", "height"):
        del root.attrib[size]
    labelled = f"{name}-title {name}-desc"
    root.attrib.update({"role": "img", "aria-labelledby": labelled, "stroke-linejoin": "round", "class": "figure"})
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704 - escaped by the XML writer


def _own_ids(root: ElementTree.Element, name: str) -> None:
    """Every id, and every reference to one, begins with `name`: ids are unique on a page."""
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{name}-{value}")
            elif key == f"{{{_XLINK}}}href":
                element.set(key, value.replace("#", f"#{name}-", 1))
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))


def distribution_figure(distribution: Distribution, name: str) -> Markup:
    """Synthetic records as bars, released counts as dots with their interval, value by value from the top."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    values = distribution.values
    with drawing(name, 0.42 + _LINE * max(2, len(values))) as (figure, axes):
        rows = np.arange(len(values))
        axes.barh(rows, [v.synthetic for v in values], height=0.72, color=ORANGE, alpha=0.75)
        known = [(i, v) for i, v in enumerate(values) if v.reported is not None]
        places = [i for i, _ in known]
        ends = np.array([[v.low, v.high] for _, v in known], float).reshape(-1, 2)
        # a count that was made consistent may stand beside the interval of what was drawn
        style: dict[str, Any] = {"fmt": "none", "ecolor": BLUE, "capsize": 2.2, "elinewidth": 1.1}
        axes.errorbar(ends.mean(axis=1), places, xerr=np.ptp(ends, axis=1) / 2, **style)
        axes.plot(np.array([v.reported for _, v in known], float), places, "o", color=BLUE, markersize=3.2)
        axes.set_yticks(rows, [shown_label(v.label) for v in values])
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        _rows_from_the_top(axes, max(2, len(values)))
        said = "; ".join(map(_value_words, values))
        title = f"{distribution.name}: synthetic records beside released counts"
        return _inline_svg(figure, name, title, said or "no value")


def worst_marginals_figure(rows: Sequence[MarginalDistance], name: str) -> Markup:
    """Distance of each of the worst marginals as a bar, and the part that noise alone implies as a line across it."""
    lines = max((len(r.attributes) for r in rows), default=1)
    with drawing(name, 0.75 + (0.4 + 0.68 * max(lines, 2)) * _LINE * len(rows), legend=True) as (figure, axes):
        places = np.arange(len(rows))
        axes.barh(places, [r.tvd for r in rows], height=0.6, color=SKY, label="distance (TVD)")
        implied = [(i, r.noise) for i, r in enumerate(rows) if r.noise is not None]
        if implied:
            axes.plot(
                [x for _, x in implied], [i for i, _ in implied], "|", color="#1b1b1b", markersize=12,
                markeredgewidth=2, label="implied by the noise alone",
            )  # fmt: skip
        axes.set_yticks(places, ["\n".join(shown_label(a) for a in r.attributes) for r in rows], fontsize=8)
        axes.set_xlim(left=0)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        figure.legend(loc="outside lower center", ncols=2)
        said = "; ".join(f"{', '.join(r.attributes)}: {r.tvd:.3f}" for r in rows)
        return _inline_svg(figure, name, "The marginals that the synthetic records keep worst", said)


def association_figure(names: Sequence[str], matrix: Sequence[Sequence[float | None]], title: str, name: str) -> Markup:
    """A heat map of association from 0 to 1; pairs without a number are hatched."""
    size = len(names)
    cells = np.array([[np.nan if x is None else x for x in row] for row in matrix], float).reshape(size, size)
    with drawing(name, 4.6) as (figure, axes):
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize
        from matplotlib.patches import PathPatch

        axes.set_facecolor("#f0f0f0")
        axes.patch.set_hatch("////")
        axes.patch.set_edgecolor("#c0c0c0")
        colours = ScalarMappable(Normalize(0, 1), colormaps["cividis_r"].resampled(_COLOURS))
        which = np.clip(np.nan_to_num(cells, nan=-1) * _COLOURS, -1, _COLOURS - 1).astype(int)
        # one path for a colour: one for each cell of 200 columns would be most of the page
        for colour in np.unique(which[which >= 0]):
            fill = colours.to_rgba((colour + 0.5) / _COLOURS)
            axes.add_patch(
                PathPatch(_squares(which == colour), facecolor=fill, edgecolor="white", linewidth=min(0.3, 6 / size))
            )
        axes.set_xlim(0, size)
        axes.set_ylim(size, 0)
        figure.colorbar(colours, ax=axes, shrink=0.8, aspect=25, ticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
        font = min(8.5, 230 / max(size, 1))
        middle = np.arange(size) + 0.5
        labels = [shown_label(label, 18) for label in names]
        axes.set_xticks(middle, labels, rotation=90, fontsize=font)
        axes.set_yticks(middle, labels, fontsize=font)
        axes.tick_params(length=0)
        axes.set_aspect("equal")
        if size <= _SAID_IN_CELLS:
            for row, column in np.argwhere(~np.isnan(cells)):
                dark = cells[row, column] > 0.5
                axes.text(
                    column + 0.5, row + 0.5, f"{cells[row, column]:.2f}", ha="center", va="center", fontsize=7,
                    color="white" if dark else "#1b1b1b",
                )  # fmt: skip
        return _inline_svg(figure, name, title, _strongest_pairs(names, cells))


def _squares(chosen: NDArray[np.bool_]) -> Path:
    """The unit squares of the cells that are chosen, by row and column, as one path."""
    from matplotlib.path import Path

    rows, columns = np.nonzero(chosen)
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]])
    vertices = (np.stack([columns, rows], axis=1)[:, None] + corners).reshape(-1, 2)
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY]
    return Path(vertices, np.tile(np.array(codes, Path.code_type), len(rows)))


def error_figure(buckets: Sequence[CountBucket], name: str) -> Markup:
    """Mean proportional error of combinations by the size of their synthetic count, in bins of a logarithmic axis."""
    from matplotlib.ticker import NullFormatter, StrMethodFormatter

    known = [(b, 100 * b.proportional_error) for b in buckets if b.proportional_error is not None]
    places = [max(bucket.mean_count or 0, 1) for bucket, _ in known]
    with drawing(name, 3.0) as (figure, axes):
        axes.plot(places, [error for _, error in known], "o-", color=BLUE, markersize=4, linewidth=1)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_ylim(bottom=0)
        axes.set_xlabel("synthetic count")
        axes.set_ylabel("mean error, in % of the count")
        axes.grid(linewidth=0.3, color="#d9d9d9")
        said = "; ".join(f"up to {bucket.at_most}: {error:.0f} %" for bucket, error in known)
        return _inline_svg(figure, name, "Error of combinations by the size of their synthetic count", said)


def audit_figure(findings: Sequence[Finding], name: str) -> Markup:
    """Measured intervals as shares of their claims, line by line from the top; the claim is at 1."""
    with drawing(name, 0.9 + 0.3 * len(findings)) as (figure, axes):
        for row, finding in enumerate(findings):
            ends = np.clip(np.array([finding.measured.low, finding.measured.high]) / finding.claim, 0, 2)
            colour = BLUE if finding.verdict == "holds" else ORANGE
            axes.plot(ends, [row, row], "|-", color=colour, markersize=8, linewidth=2)
        axes.axvline(1, color="#1b1b1b", linewidth=0.9)
        axes.set_yticks(range(len(findings)), [f"{finding.name} ({finding.quantity})" for finding in findings])
        _rows_from_the_top(axes, len(findings))
        axes.set_xlim(0, 2.05)
        axes.set_xlabel("measured, as a share of the claim")
        said = "; ".join(
            f"{f.name}: {f.quantity} {f.measured.low:.3g} to {f.measured.high:.3g} of {f.claim:.3g}" for f in findings
        )
        return _inline_svg(figure, name, "Measured privacy loss beside what is claimed", said)


def _rows_from_the_top(axes: Axes, rows: int) -> None:
    """Room for so many rows, and lines only along the axis below."""
    axes.set_ylim(rows - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", linewidth=0.3, color="#d9d9d9")
    axes.set_axisbelow(True)


def _value_words(value: ValueCounts) -> str:
    reported = "not released" if value.reported is None else f"released {value.reported} ({value.low} to {value.high})"
    return f"{value.label or '(empty)'}: synthetic {value.synthetic}, {reported}"


def _strongest_pairs(names: Sequence[str], cells: NDArray[np.float64]) -> str:
    """The text alternative of a heat map."""
    pairs = [(cells[i, j], i, j) for i in range(len(names)) for j in range(i) if not np.isnan(cells[i, j])]
    strongest = sorted(pairs, reverse=True)[:10]
    return "The strongest: " + "; ".join(f"{names[j]} and {names[i]} {value:.2f}" for value, i, j in strongest)
