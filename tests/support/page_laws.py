"""Laws of every page in a browser: it asks for nothing, fits any width, breaks no rule of accessibility, and can be printed."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.browser import Browser, need
from tests.support.firefox import Firefox

PAPERS = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}
_BEYOND = """
document.querySelectorAll("main > details, main div > details").forEach((e) => { e.open = true });
const hidden = (e) => e.closest("svg, thead, .track, .visually-hidden, #attributes, #guide");
return [...document.body.querySelectorAll("*")]
  .filter((e) => !hidden(e) && e.getBoundingClientRect().right > innerWidth + 1)
  .map((e) => e.outerHTML.slice(0, 80))
"""


_CUT_OFF = """
return [...document.querySelectorAll("svg.figure text")].filter((text) => {
  const [own, whole] = [text, text.closest("svg")].map((e) => e.getBoundingClientRect());
  return own.left < whole.left - 0.5 || own.right > whole.right + 0.5 || own.bottom > whole.bottom + 0.5;
}).map((text) => text.textContent)
"""


_TINY = """
return [...document.querySelectorAll("svg.figure text")].filter((text) => {
  const svg = text.closest("svg");
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return scale > 0 && parseFloat(getComputedStyle(text).fontSize) * scale < 8;
}).map((text) => text.textContent)
"""


def stands_alone(browser: Browser | Firefox, page: Path, width: int) -> None:
    """No message in the console, no request but for the page itself, no text beyond its edge, cut off in a figure or tiny."""
    browser.requests()
    browser.open(page, width)
    assert browser.run("return document.readyState") == "complete"
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run(_BEYOND) == []
    assert browser.run(_CUT_OFF) == []
    assert browser.run(_TINY) == []
    assert browser.complaints() == []
    assert set(browser.requests()) <= {page.as_uri()}


def light_and_dark(pages: Iterable[str]) -> list[Any]:
    """Each page in the dark and in the light; in `make test` by turns, the first in the dark."""
    return [
        pytest.param(page, dark, marks=() if dark == (place % 2 == 0) else pytest.mark.long)
        for (place, page), dark in itertools.product(enumerate(pages), [True, False])
    ]


def breaks_no_rule(chromium: Browser, page: Path, axe: str, *, dark: bool) -> None:
    """Of accessibility, neither on a phone nor on a desk; what can be unfolded is."""
    chromium.prefer(dark=dark)
    for width in (360, 1440):
        chromium.open(page, width)
        chromium.run("document.querySelectorAll('details').forEach((e) => { e.open = true })")
        assert chromium.violations(axe) == []
    chromium.prefer(dark=False)


def is_printed_well(chromium: Browser, pdf: Path, paper: str, *, half_empty: bool = False) -> int:
    """No heading of the open page ends a sheet, nothing is cut off, none but the last has an empty third; their number."""
    need("pdftotext", "pdftoppm")
    headings = set(
        chromium.run(
            "return [...document.querySelectorAll('h2, h3')].map((e) => e.innerText.trim())"
        )
    )
    pdf.write_bytes(chromium.printed(*PAPERS[paper]))
    sheets = sheets_of(pdf)
    last = [
        [line for line in sheet if not re.search(r"^\d+ / \d+$|NOT FOR RELEASE", line)][-1]
        for sheet in sheets
    ]
    assert headings.isdisjoint(last), last
    inked = [_ink(pdf, number + 1) for number in range(len(sheets))]
    for across, down in inked:
        assert across < 0.96
        assert half_empty or down > 0.7 or (across, down) == inked[-1], inked
    return len(sheets)


def sheets_of(pdf: Path) -> list[list[str]]:
    """The lines of each sheet."""
    text = subprocess.run(
        ["pdftotext", "-layout", pdf, "-"], check=True, capture_output=True, text=True
    ).stdout
    *sheets, end = text.split("\f")
    assert end == ""
    return [[line.strip() for line in sheet.splitlines() if line.strip()] for sheet in sheets]


def _ink(pdf: Path, sheet: int) -> tuple[float, float]:
    """How far something is printed to the right and down on a sheet, from 0 to 1; not counting the line of its number."""
    where = ["-r", "30", "-gray", "-f", str(sheet), "-l", str(sheet)]
    image = subprocess.run(["pdftoppm", *where, pdf], check=True, capture_output=True).stdout
    _, width, height, _, pixels = re.split(rb"\s", image, maxsplit=4)
    dark = np.frombuffer(pixels, np.uint8).reshape(int(height), int(width)) < 200
    content = dark[: int(0.94 * len(dark))]
    right, bottom = np.flatnonzero(dark.any(axis=0))[-1], np.flatnonzero(content.any(axis=1))[-1]
    return (right + 1) / dark.shape[1], (bottom + 1) / len(dark)
