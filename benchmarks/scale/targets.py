"""What is asked of speed and memory, and whether it was reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.scale.figures import Figure, Line, fit_line

FAR = 100_000_000
MILLION = 1_000_000
FULL_BLOCKS = MILLION
"""From so many rows on a table is several full blocks (262,144 rows), and memory that of full blocks."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something that was asked for: `measure` finds its value and whether that is enough."""

    what: str
    asked: str
    measure: Callable[[Sequence[Figure]], tuple[str, bool] | None]


def ratio_target(
    rows: int, key: str, least: float
) -> Callable[[Sequence[Figure]], tuple[str, bool] | None]:
    """At least so many times less than pac-synth."""

    def measure(figures: Sequence[Figure]) -> tuple[str, bool] | None:
        found = next(
            (f for f in figures if (f.name, f.rows) == ("pac-synth", rows) and not f.failed), None
        )
        return None if found is None else (f"{ratio(found, key):.1f} x", ratio(found, key) >= least)

    return measure


def run_target(
    name: str, rows: int, seconds: float, megabytes: float = 2000
) -> Callable[[Sequence[Figure]], tuple[str, bool] | None]:
    """A whole release without the start of a server, within a time and a memory beyond imports."""

    def measure(figures: Sequence[Figure]) -> tuple[str, bool] | None:
        found = next((f for f in figures if (f.name, f.rows) == (name, rows)), None)
        if found is None:
            return None
        if found.failed:
            return found.failed, False
        seen = f"{release_wall(found):.0f} s{' beyond the start of its server' if found['start'] else ''}"
        return f"{seen}, {found.beyond / 1000:.2f} GB", release_wall(
            found
        ) <= seconds and found.beyond <= megabytes

    return measure


def check_target(
    name: str, rows: int, seconds: float, megabytes: float = 500
) -> Callable[[Sequence[Figure]], tuple[str, bool] | None]:
    """A `check`, within a time and a memory, all of the command."""

    def measure(figures: Sequence[Figure]) -> tuple[str, bool] | None:
        found = next((f for f in figures if (f.name, f.rows) == (name, rows)), None)
        if found is None or found.failed:
            return found and (found.failed, False)
        seen = f"{found['wall']:.1f} s, {found['peak']:.0f} MB"
        return seen, found["wall"] <= seconds and found["peak"] <= megabytes

    return measure


def extrapolated(figures: Sequence[Figure]) -> tuple[str, bool] | None:
    """100 million rows by the lines; flat means that the line of memory rises by less than a tenth of 2 GB to there."""
    adults = [f for f in figures if f.name == "adult" and not f.failed]
    wall, memory = growth(adults, release_wall), growth(of_full_blocks(adults), lambda f: f.beyond)
    if wall is None or memory is None or adults[-1].rows < 20_000_000:
        return None
    slope = f"{1e6 * memory.slope:.1f} MB a million rows"
    return f"{far(wall)} s, {memory.at(FAR) / 1000:.2f} GB ({slope})", memory.slope * FAR <= 200


def growth(figures: Sequence[Figure], key: Callable[[Figure], float]) -> Line | None:
    """The line through the releases of adult."""
    return fit_line([f.rows for f in figures], map(key, figures))


def of_full_blocks(figures: Sequence[Figure]) -> list[Figure]:
    """Those of the tables whose memory no longer grows with a block that is not full."""
    return [f for f in figures if f.rows >= FULL_BLOCKS]


def release_wall(figure: Figure) -> float:
    """Seconds of a release from the server's start on."""
    return float(figure["wall"] - figure["start"])


def ratio(figure: Figure, key: str) -> float:
    """How many times more pac-synth takes."""
    return float(figure["theirs"][key] / figure["ours"][key])


def far(line: Line) -> str:
    """The line at 100 million rows, give or take its largest residual."""
    value, most = line.at(FAR), max(map(abs, line.residuals))
    return f"{value:,.0f} ± {most * value:,.0f}"


TARGETS = (
    Target(
        what="CPU beside pac-synth, 10k rows",
        asked="30 times less",
        measure=ratio_target(10_000, "cpu", 30),
    ),
    Target(
        what="CPU beside pac-synth, 50k rows",
        asked="50 times less",
        measure=ratio_target(50_000, "cpu", 50),
    ),
    Target(
        what="memory beside pac-synth, 10k rows",
        asked="5 times less",
        measure=ratio_target(10_000, "beyond", 5),
    ),
    Target(
        what="memory beside pac-synth, 50k rows",
        asked="5 times less",
        measure=ratio_target(50_000, "beyond", 5),
    ),
    Target(what="1M x 14, k-tuples, R = 3", asked="20 s", measure=run_target("adult", MILLION, 20)),
    Target(
        what="1M x 14, k-tuples, R = 4",
        asked="180 s, 2 GB",
        measure=run_target("adult-4", MILLION, 180),
    ),
    Target(
        what="1M x 14, what `auto` chooses",
        asked="25 s, 1 GB",
        measure=run_target("adult-auto", MILLION, 25, 1000),
    ),
    Target(
        what="20M x 14 from Parquet, k-tuples, R = 3",
        asked="200 s",
        measure=run_target("adult", 20 * MILLION, 200),
    ),
    Target(
        what="20M x 14 from Parquet, what `auto` chooses",
        asked="200 s",
        measure=run_target("adult-auto", 20 * MILLION, 200),
    ),
    Target(
        what="100M x 14, what `auto` chooses",
        asked="1,100 s, 1.2 GB",
        measure=run_target("adult-auto", FAR, 1100, 1200),
    ),
    Target(what="memory at 100M x 14, by the line", asked="flat", measure=extrapolated),
    Target(what="1M x 60, R = 2", asked="2 GB", measure=run_target("wide", MILLION, math.inf)),
    Target(
        what="1M x 200, selected pairs",
        asked="measured",
        measure=run_target("wider", MILLION, math.inf, math.inf),
    ),
    Target(
        what="1M x 6, one of 100,000 values",
        asked="measured",
        measure=run_target("coded", MILLION, math.inf, math.inf),
    ),
    Target(
        what="1M x 10 of 5,000 values, R = 2",
        asked="2 GB",
        measure=run_target("values", MILLION, math.inf),
    ),
    Target(
        what="20M x 14 from Parquet, `check`",
        asked="30 s, 500 MB",
        measure=check_target("check", 20 * MILLION, 30),
    ),
    Target(
        what="1M x 14 from CSV, `check`",
        asked="10 s, 500 MB",
        measure=check_target("check-csv", MILLION, 10),
    ),
)
