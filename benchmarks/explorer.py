"""How long the explorer takes to answer a click, in Chromium: python -m benchmarks.explorer [--check].

Pages of a million records, of which they hold a sample, with few columns and with many. Medians of twenty clicks stand beside
those of as many layouts of the whole page, which every change of it costs. With `--check` a ratio that is half as much again as
`RATIOS`, in three measurements one after another, ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.browser import Browser, browser
from tests.support.explorer_pages import large_page, settle

# By columns of the table: a click over a layout, as measured on 2026-11-28.
RATIOS = {15: 3.5, 200: 1.8}
SLOWER = 1.5
CLICKS = 20
TRIES = 3
_CLICK = """
    const start = performance.now();
    document.querySelector(`[data-key="${arguments[0]}"]`).click(); document.body.offsetHeight;
    return performance.now() - start"""
_LAYOUT = """
    const body = document.body, start = performance.now();
    body.style.display = "none"; body.offsetHeight; body.style.display = ""; body.offsetHeight;
    return performance.now() - start"""


@dataclass(frozen=True)
class Measured:
    """Medians, in milliseconds."""

    click: float
    layout: float

    @property
    def ratio(self) -> float:
        """A click over a layout of the page."""
        return self.click / self.layout


def measured(chromium: Browser, page: Path, columns: int) -> Measured:
    """Click on a value of one column after another, and lay out the page after each."""
    chromium.open(page, 1440)
    settle(chromium)
    clicks = list[float]()
    layouts = list[float]()
    for number in range(CLICKS):
        clicks.append(chromium.run(_CLICK, f"{number % columns}-0"))
        settle(chromium)
        layouts.append(chromium.run(_LAYOUT))
    return Measured(click=statistics.median(clicks), layout=statistics.median(layouts))


def main() -> None:
    """Measure, print, and end with 1 where clicks are slow."""
    parser = argparse.ArgumentParser(prog="benchmarks.explorer", description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    slow = list[str]()
    with TemporaryDirectory() as place, browser(Path(place) / "profile") as chromium:
        for columns, usual in RATIOS.items():
            page = Path(place) / f"{columns}.html"
            page.write_text(large_page(columns, 10**6), encoding="utf-8")
            ratios: list[float] = []
            while not ratios or (check and len(ratios) < TRIES and min(ratios) > SLOWER * usual):
                medians = measured(chromium, page, columns)
                ratios.append(medians.ratio)
                print(  # noqa: T201 - a benchmark prints
                    f"{columns:4} columns: click {medians.click:6.1f} ms, layout {medians.layout:6.1f} ms "
                    f"({medians.ratio:.2f} x)"
                )
            if min(ratios) > SLOWER * usual:
                slow.append(f"{columns} columns: {min(ratios):.2f}, was {usual}")
    if check and slow:
        sys.exit("slower than before: " + "; ".join(slow))


if __name__ == "__main__":
    main()
