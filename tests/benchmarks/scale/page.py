"""deployments/benchmarks.md: what was asked for, what was measured, wins and losses alike."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from tests.benchmarks.scale.figures import Figure, Line, fit_line

NOT_YET = "not yet measured"
FAR = 100_000_000
HEAD = """# Benchmarks: speed and memory as tables grow

Written by `python -m tests.benchmarks.scale --write` ({command}); do not edit by hand. `make bench` runs a short form and
writes nothing. The numbers are of one machine{dates}; ratios between two columns of one line carry over to others better than
seconds do. All tables are made from the public Adult census extract (`adult_cat.csv`) or from formulas, with a seed; all
releases are at epsilon 4, delta = 1 / (n ln n), with every other setting as it comes.
"""
RUNS = """
## Whole releases

`marginweave run` from outside: read a folder of Parquet parts (`adult-csv`: one CSV file), aggregate up to R, synthesize about
as many records as there are rows, evaluate, write. Each release had a home and a ledger of its own, and started a Prefect
server of its own.

- **wall** is all of it, **of it start** until the server listens: a server that stands already (`PREFECT_API_URL`) saves that.
- **CPU** is of the program and its workers; the server's is apart.
- **peak** is the most memory that the program and its workers held at once; **beyond imports** is without the {imports} that a
  process holds that has only imported the program and its libraries. The server, about {server}, is in neither.
- **load** is the machine's average of 15 minutes at the end: much more than its number of cores means that others were at work,
  and wall times are too long.

`adult`: 14 columns, rows drawn with replacement, {perturbed:.0%} of the values exchanged. `wide`: 60 columns, copies of adult's
whose rows agree half of the time. `values`: 10 columns of 5,000 public values each, by Zipf's law.
"""
STAGES = """
## Where the time goes

Wall seconds and CPU seconds of each stage at the largest table of `adult` that was measured ({rows} rows), and the most memory
that the processes held during it. The first stage includes the imports that wait for the server.
"""
LINES = """
## As rows grow

Least squares of the relative distance, value = fixed + slope x rows, over the releases of `adult` at R = 3{span}. The
residuals are what each measured value exceeds the line by. The extrapolation to 100 million rows supposes that the line goes
on; no run of that size was made. Its range is the largest residual either way.
"""
RATIO = """
## Beside pac-synth

pac-synth {version} from PyPI, SDS's own engine in Rust, in an environment of its own; the same CSV file (rows of adult drawn
with replacement, nothing exchanged), R = 3, epsilon 4, the same delta, one after the other on the same machine. Both make as
many records as the file has rows. CPU seconds of all threads. Imports are apart on both sides (for ours the loading of compiled
code as well), and so is **convert**, which makes the table in memory a table of codes. **memory** is the peak beyond imports,
with the raw table in memory on both sides. Here ours are the shipped functions without Prefect, ledger and checkpoints.
"""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Something that was asked for: `measure` finds its value and whether that is enough."""

    what: str
    asked: str
    measure: Callable[[Sequence[Figure]], tuple[str, bool] | None]


def render(figures: Sequence[Figure], command: str) -> str:
    """The page, from whatever was measured so far."""
    runs = [f for f in figures if "ours" not in f.numbers and f.name != "pac-synth"]
    done = [f for f in runs if not f.failed]
    parts = [
        HEAD.format(command=command, dates=_dates(figures)),
        *machine(),
        *_section("\n## Asked and reached\n", asked(figures)),
        *_section(_runs_text(done), run_lines(runs)),
    ]
    adults = [f for f in done if f.name == "adult"]
    if adults:
        parts += _section(STAGES.format(rows=f"{adults[-1].rows:,}"), stage_lines(adults[-1]))
    parts += _section(_lines_text(adults), growth_lines(adults))
    peers = [f for f in figures if f.name == "pac-synth"]
    parts += _section(RATIO.format(version="0.0.8"), ratio_lines(peers))
    return "\n".join(parts) + "\n"


def machine() -> Iterator[str]:
    """The machine, without its name."""
    cores = len(os.sched_getaffinity(0))
    memory = psutil.virtual_memory().total / 1e9
    names = ("numpy", "numba", "pyarrow", "prefect")
    libraries = ", ".join(f"{name} {version(name)}" for name in names)
    yield "| machine | |"
    yield "| --- | --- |"
    yield f"| processor | {_processor()}, {cores} cores |"
    yield f"| memory | {memory:.0f} GB |"
    yield f"| system | {platform.system()}, Python {platform.python_version()} |"
    yield f"| versions | marginweave {version('marginweave')}, {libraries} |"


def run_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line a release."""
    head = (
        "table|rows|columns|R|wall s|of it start|CPU s|CPU µs a row|server CPU s|beyond imports MB|peak MB|combinations"
    )
    yield from _header(f"{head}|records|load")
    for f in figures:
        size = f"| {f.name} | {f.rows:,} | {f.columns} | {f.length} |"
        if f.failed:
            yield f"{size} {f.failed} | {'| ' * 9}"
            continue
        times = f"{f['wall']:.1f} | {f['start']:.1f} | {f['cpu']:.1f} | {1e6 * f['cpu'] / f.rows:.1f} | {f['server_cpu']:.1f}"
        yield f"{size} {times} | {f.beyond:.0f} | {f['peak']:.0f} | {f['combinations']:,} | {f['records']:,} | {f.load:.1f} |"


def stage_lines(figure: Figure) -> Iterator[str]:
    """A line a stage."""
    yield from _header("stage|wall s|CPU s|peak MB")
    for stage in figure["stages"]:
        yield f"| {stage['name']} | {stage['wall']:.2f} | {stage['cpu']:.2f} | {stage['peak']:.0f} |"


def growth(figures: Sequence[Figure], key: Callable[[Figure], float]) -> Line | None:
    """The line through the releases of adult."""
    return fit_line([f.rows for f in figures], map(key, figures))


def growth_lines(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each quantity that may grow with the rows."""
    quantities: dict[str, tuple[Callable[[Figure], float], str]] = {
        "wall": (_release_wall, "s"),
        "CPU": (lambda f: float(f["cpu"]), "s"),
        "peak beyond imports": (lambda f: f.beyond, "MB"),
    }
    fitted = {name: (growth(figures, key), unit) for name, (key, unit) in quantities.items()}
    if not all(line for line, _ in fitted.values()):
        return
    yield from _header("quantity|fixed|a million rows|residuals|at 100M rows")
    for name, (line, unit) in fitted.items():
        assert line is not None
        residuals = ", ".join(f"{r:+.0%}" for r in line.residuals)
        slope = f"{1e6 * line.slope:.2f} {unit}"
        yield f"| {name} | {line.fixed:.1f} {unit} | {slope} | {residuals} | {_far(line)} {unit} |"


def ratio_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """Two lines and their ratio for each size."""
    yield from _header("rows|system|convert|aggregate, fit|synthesize, sample|CPU s|records|memory MB")
    for f in figures:
        if f.failed:
            yield f"| {f.rows:,} | {f.failed} | {'| ' * 6}"
            continue
        for name, facts in (("marginweave", f["ours"]), ("pac-synth", f["theirs"])):
            parts = (
                f"{facts['convert']:.2f} | {facts['aggregate']:.2f} | {facts['synthesize']:.2f} | {facts['cpu']:.2f}"
            )
            yield f"| {f.rows:,} | {name} | {parts} | {facts['records']:,} | {facts['beyond']:.0f} |"
        keys = ("convert", "aggregate", "synthesize", "cpu")
        times = " | ".join(f"{_ratio(f, key):.1f} x" for key in keys)
        yield f"| {f.rows:,} | **ratio** | {times} | | {_ratio(f, 'beyond'):.1f} x |"


def asked(figures: Sequence[Figure]) -> Iterator[str]:
    """What was asked for beside what was reached."""
    yield from _header("asked for|at least or at most|measured|reached")
    for target in TARGETS:
        found = target.measure(figures)
        value, verdict = (NOT_YET, "") if found is None else (found[0], "yes" if found[1] else "**no**")
        yield f"| {target.what} | {target.asked} | {value} | {verdict} |"


def ratio_target(rows: int, key: str, least: float) -> Callable[[Sequence[Figure]], tuple[str, bool] | None]:
    """At least so many times less than pac-synth."""

    def measure(figures: Sequence[Figure]) -> tuple[str, bool] | None:
        found = next((f for f in figures if (f.name, f.rows) == ("pac-synth", rows) and not f.failed), None)
        return None if found is None else (f"{_ratio(found, key):.1f} x", _ratio(found, key) >= least)

    return measure


def run_target(
    name: str, rows: int | None, seconds: float, megabytes: float = 2000
) -> Callable[[Sequence[Figure]], tuple[str, bool] | None]:
    """A whole release, the server's start included, within a time and a memory beyond imports.

    Of any size, the largest, if `rows` is None.
    """

    def measure(figures: Sequence[Figure]) -> tuple[str, bool] | None:
        found = [f for f in figures if f.name == name and rows in {None, f.rows}]
        if not found:
            return None
        last = found[-1]
        if last.failed:
            return last.failed, False
        size = "" if rows else f", {last.rows:,} rows"
        reached = last["wall"] <= seconds and last.beyond <= megabytes
        seen = f"{last['wall']:.0f} s ({_release_wall(last):.0f} s without the server's start)"
        return f"{seen}, {last.beyond / 1000:.2f} GB{size}", reached

    return measure


def extrapolated(figures: Sequence[Figure]) -> tuple[str, bool] | None:
    """100 million rows by the line; flat means that the line of memory rises by less than a tenth of 2 GB to there."""
    adults = [f for f in figures if f.name == "adult" and not f.failed]
    wall, memory = growth(adults, _release_wall), growth(adults, lambda f: f.beyond)
    if wall is None or memory is None or adults[-1].rows < 20_000_000:
        return None
    return f"{_far(wall)} s, {memory.at(FAR) / 1000:.2f} GB", memory.slope * FAR <= 200


TARGETS = (
    Target(what="CPU beside pac-synth, 10k rows", asked="30 times less", measure=ratio_target(10_000, "cpu", 30)),
    Target(what="CPU beside pac-synth, 50k rows", asked="50 times less", measure=ratio_target(50_000, "cpu", 50)),
    Target(what="memory beside pac-synth, 10k rows", asked="5 times less", measure=ratio_target(10_000, "beyond", 5)),
    Target(what="memory beside pac-synth, 50k rows", asked="5 times less", measure=ratio_target(50_000, "beyond", 5)),
    Target(what="1M x 14, R = 3, end to end", asked="60 s, 2 GB", measure=run_target("adult", 1_000_000, 60)),
    Target(what="1M x 14, R = 4, end to end", asked="180 s, 2 GB", measure=run_target("adult-4", 1_000_000, 180)),
    Target(what="20M x 14 from Parquet, R = 3", asked="600 s, 2 GB", measure=run_target("adult", 20_000_000, 600)),
    Target(what="100M x 14, R = 3, extrapolated", asked="memory flat", measure=extrapolated),
    Target(what="60 columns, R = 2", asked="2 GB", measure=run_target("wide", None, float("inf"))),
    Target(what="10 columns x 5,000 values, R = 2", asked="2 GB", measure=run_target("values", None, float("inf"))),
)


def _release_wall(figure: Figure) -> float:
    return float(figure["wall"] - figure["start"])


def _ratio(figure: Figure, key: str) -> float:
    return float(figure["theirs"][key] / figure["ours"][key])


def _far(line: Line) -> str:
    value, most = line.at(FAR), max(map(abs, line.residuals))
    return f"{value:,.0f} ± {most * value:,.0f}"


def _runs_text(done: Sequence[Figure]) -> str:
    imports = f"{done[-1]['imports']:.0f} MB" if done else "memory"
    server = f"{max(f['server_peak'] for f in done):.0f} MB" if done else "250 MB"
    return RUNS.format(imports=imports, server=server, perturbed=0.05)


def _lines_text(adults: Sequence[Figure]) -> str:
    span = f", {adults[0].rows:,} to {adults[-1].rows:,} rows, without the server's start" if adults else ""
    return LINES.format(span=span)


def _section(text: str, lines: Iterable[str]) -> list[str]:
    """A section; what has no line below its header is not measured yet."""
    table = list(lines)
    return [text, *(table if len(table) > 2 else [f"*{NOT_YET[0].upper()}{NOT_YET[1:]}.*"])]


def _header(names: str) -> Iterator[str]:
    columns = names.split("|")
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"


def _dates(figures: Sequence[Figure]) -> str:
    dates = sorted({f.date for f in figures})
    return f", of {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
