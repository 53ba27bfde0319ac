"""Matplotlib figures as inline SVG: the same bytes for the same numbers, readable by machines, no fonts and no network."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


@contextmanager
def drawing(name: str) -> Iterator[None]:
    """Our style, whatever a matplotlibrc says; `name` makes the ids of a figure its own on a page of many."""
    from matplotlib import style

    with style.context(["default", {**_STYLE, "svg.hashsalt": name}]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that matplotlib's font lacks: the browser has others
        yield


def new_figure(height: float, width: float = WIDTH, *, legend: bool = False) -> Figure:
    """An empty figure, in inches; without pyplot, which keeps figures and looks for a screen.

    With `legend` there is room for one outside the axes, and laying it out takes longer.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import TightLayoutEngine

    # "tight" measures every text once more, for a rectangle that is the whole figure: with the same result
    tight = TightLayoutEngine(rect=None)  # type: ignore[arg-type]
    return Figure(figsize=(width, height), layout="constrained" if legend else tight)


def shown_label(label: str, most: int = 22) -> str:
    """A label as it fits beside an axis; what cannot be printed would not be XML."""
    printable = "".join(c if c.isprintable() else "\ufffd" for c in label) or "(empty)"
    return printable if len(printable) <= most else printable[: most - 1] + "…"


def inline_svg(figure: Figure, name: str, title: str, description: str) -> str:
    """An `<svg>` element for an HTML page: scales with the page, with `title` and `description` as its text alternative.

    Must be called inside `drawing(name)`.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    sink = io.StringIO()
    # `savefig` would lay everything out and draw it twice, with the same result
    FigureCanvasSVG(figure).print_svg(sink, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    root = ElementTree.fromstring(sink.getvalue())  # noqa: S314 - matplotlib wrote it, just now
    for child in list(root):
        if child.tag == f"{{{_SVG}}}metadata":
            root.remove(child)
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
    return ElementTree.tostring(root, encoding="unicode")


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
