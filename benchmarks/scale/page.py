"""docs/benchmarks.md: what was asked for, what was measured, wins and losses alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.accuracy import figures as accuracy
from benchmarks.accuracy.environments import pinned
from benchmarks.accuracy.figures import Cell
from benchmarks.scale import limits
from benchmarks.scale.checks import CHECKS
from benchmarks.scale.figures import Figure
from benchmarks.scale.machine import machine
from benchmarks.scale.tables import PERTURBED
from benchmarks.scale.targets import TARGETS, far, growth, of_full_blocks, ratio, release_wall

NOT_YET = "not yet measured"
PEER, START_NAME = "pac-synth", "start"
ACCURACY = Path(__file__).parents[1] / "accuracy" / "figures.jsonl"
HEAD = """# Benchmarks: speed and memory as tables grow

For people who plan a large release: how long does it take, and how much memory? Written by `python -m benchmarks.scale
--write` ({command}); do not edit by hand. The numbers are of one machine{dates}; ratios carry over to others better than
seconds. All tables are made from the public Adult census extract (`adult_cat.csv`) or from formulas, with a seed. All
releases are at epsilon 4, delta = 1 / (n ln n), with default settings. Where the name of a table does not say otherwise,
methods are k-tuples and aggregate-seeded, as in pac-synth.
"""
RUNS = """
## Whole releases

`marginweave run` from outside, on a folder of Parquet parts (`adult-csv`: one CSV file), up to R, with about as many records
as rows. Each release had its own home and ledger, and a Prefect server that ran already.

- **wall** is from the start of Python on; **of it start** is the wait for a server that it started.
- **CPU** is of the program and its workers; the server's is apart.
- **peak** is the most memory that the program and its workers held at once; **beyond imports** is without the {imports} of a
  process that has only imported the program and its libraries. The server, about 250 MB, is in neither.
- **load** is the machine's average of 15 minutes at the end. Where it is much more than the number of cores, wall times are
  too long.

`adult`: 14 columns, rows drawn with replacement, {perturbed:.0%} of the values exchanged. `wide`: 60 columns, copies of
adult's whose rows agree half of the time. `values`: 10 columns of 5,000 public values each, by Zipf's law. `adult-mixture`:
k-tuples with records by `mixture`; `adult-marginals`: `marginals` with the same. `adult-auto`: what `auto` chooses, marginals
of three columns with records by `mixture`. `wider`: 200 columns, selected pairs. `coded`: a column of 100,000 codes, and five
small ones that depend on it; selected pairs.
"""
STAGES = """
## Where the time of `{name}` goes

Each stage at the largest table of `{name}` that was measured ({rows} rows). The first stage includes the imports.
"""
LINES = """
## As rows grow

Least squares of the relative distance, value = fixed + slope x rows, over the releases of `adult` at R = 3 ({span}without the
server's start); that of memory from a million rows on. The residuals are what each measured value exceeds the line by. The
range of the extrapolation to 100 million rows is the largest residual either way.
"""
RATIO = """
## Beside pac-synth

pac-synth {version} from PyPI is SDS's engine in Rust; ours are the shipped functions without Prefect, ledger and checkpoints.
The same CSV file (rows of adult drawn with replacement, nothing exchanged), R = 3, epsilon 4, the same delta, as many records
as rows, on the same machine. CPU seconds of all threads, without imports and the loading of compiled code. **convert** makes
the table in memory a table of codes, and is apart. **memory** is the peak beyond imports, with the raw table in memory.
"""
LIMITS = """
## Beside the machine

A release without Prefect, ledger and checkpoints: all marginals of three columns of a made-up table of 14 columns ({rows}
rows, epsilon 1). CPU seconds on one core, beside numpy's `bincount` of the same marginals (codes joined by
`ravel_multi_index`). The copy is of every column of every marginal, one byte a code. `python -m benchmarks.scale.limits
--check` runs in CI.
"""
START = """
## Beside a bare Prefect flow

Commands on the example (8,056 rows, 8 columns) in a settled home, beside a floor: the import of the libraries that they need,
or a flow of fifteen tasks that add one to a number. Releases of 14 columns are of a made-up table, by default, epsilon 1. The
least of a few times; CPU without servers'. `python -m benchmarks.start --check` runs in CI.
"""
MODELS = """
## Beside dpmm's MST and AIM

Whole programs on adult_cat (48,842 x 14) at epsilon 1, from the start of Python to the file of records: the median of the
seeds in [accuracy](accuracy.md). Ours by default, with ledger, Prefect and a server that runs already.
"""


def render(figures: Sequence[Figure], command: str) -> str:
    """The page, from whatever was measured so far."""
    runs = [f for f in figures if f.rows and f.name not in (PEER, limits.NAME, *CHECKS)]
    done = [f for f in runs if not f.failed]
    parts = [
        HEAD.format(command=command, dates=_dates(figures)),
        *machine_lines(machine()),
        *_section("\n## Asked and reached\n", asked(figures)),
        *_section(_runs_text(done), run_lines(runs)),
    ]
    adults = [f for f in done if f.name == "adult"]
    for longest in [
        found[-1]
        for name in ("adult", "adult-auto")
        if (found := [f for f in done if f.name == name])
    ]:
        parts += _section(
            STAGES.format(name=longest.name, rows=f"{longest.rows:,}"), stage_lines(longest)
        )
    parts += _section(_lines_text(adults), growth_lines(adults))
    named = {
        name: [f for f in figures if f.name == name] for name in (PEER, limits.NAME, START_NAME)
    }
    parts += _section(RATIO.format(version=pinned(PEER)), ratio_lines(named[PEER]))
    parts += _section(MODELS, model_lines(accuracy.read(ACCURACY)))
    parts += _section(LIMITS.format(rows=f"{limits.ROWS:,}"), limit_lines(named[limits.NAME]))
    parts += _section(START, start_lines(named[START_NAME]))
    return "\n".join(parts) + "\n"


def machine_lines(facts: Mapping[str, str]) -> Iterator[str]:
    """A line each fact about the machine."""
    yield "| machine | |"
    yield "| --- | --- |"
    yield from (f"| {name} | {fact} |" for name, fact in facts.items())


def run_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line a release."""
    head = "table|rows|columns|R|wall s|of it start|CPU s|CPU µs a row|server CPU s|beyond imports MB|peak MB|combinations"
    yield from header(f"{head}|records|load")
    for f in figures:
        size = f"| {f.name} | {f.rows:,} | {f.columns} | {f.length} |"
        if f.failed:
            yield f"{size} {f.failed} | {'| ' * 9}"
            continue
        times = f"{f['wall']:.1f} | {f['start']:.1f} | {f['cpu']:.1f} | {1e6 * f['cpu'] / f.rows:.1f} | {f['server_cpu']:.1f}"
        yield f"{size} {times} | {f.beyond:.0f} | {f['peak']:.0f} | {f['combinations']:,} | {f['records']:,} | {f.load:.1f} |"


def check_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line a check, as the command line prints it; the page has them beside what was asked for."""
    yield from header("table|rows|wall s|CPU s|peak MB")
    for f in figures:
        spent = f.failed or f"{f['wall']:.1f} | {f['cpu']:.1f} | {f['peak']:.0f}"
        yield f"| {f.name} | {f.rows:,} | {spent} |"


def stage_lines(figure: Figure) -> Iterator[str]:
    """A line a stage."""
    yield from header("stage|wall s|CPU s|peak MB")
    for stage in figure["stages"]:
        yield f"| {stage['name']} | {stage['wall']:.2f} | {stage['cpu']:.2f} | {stage['peak']:.0f} |"


def growth_lines(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each quantity that may grow with the rows."""
    quantities: dict[str, tuple[Callable[[Figure], float], str]] = {
        "wall": (release_wall, "s"),
        "CPU": (lambda f: float(f["cpu"]), "s"),
        "peak beyond imports": (lambda f: f.beyond, "MB"),
    }
    fitted = {
        name: (growth(of_full_blocks(figures) if unit == "MB" else figures, key), unit)
        for name, (key, unit) in quantities.items()
    }
    if not all(line for line, _ in fitted.values()):
        return
    yield from header("quantity|fixed|a million rows|residuals|at 100M rows")
    for name, (line, unit) in fitted.items():
        assert line is not None
        residuals = ", ".join(f"{round(r, 2) + 0.0:+.0%}" for r in line.residuals)
        slope = f"{1e6 * line.slope:.2f} {unit}"
        yield f"| {name} | {line.fixed:.1f} {unit} | {slope} | {residuals} | {far(line)} {unit} |"


def ratio_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """Two lines and their ratio for each size."""
    yield from header(
        "rows|system|convert|aggregate, fit|synthesize, sample|CPU s|records|memory MB"
    )
    for f in figures:
        if f.failed:
            yield f"| {f.rows:,} | {f.failed} | {'| ' * 6}"
            continue
        for name, facts in (("marginweave", f["ours"]), ("pac-synth", f["theirs"])):
            parts = f"{facts['convert']:.2f} | {facts['aggregate']:.2f} | {facts['synthesize']:.2f} | {facts['cpu']:.2f}"
            yield f"| {f.rows:,} | {name} | {parts} | {facts['records']:,} | {facts['beyond']:.0f} |"
        keys = ("convert", "aggregate", "synthesize", "cpu")
        times = " | ".join(f"{ratio(f, key):.1f} x" for key in keys)
        yield f"| {f.rows:,} | **ratio** | {times} | | {ratio(f, 'beyond'):.1f} x |"


def limit_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line a part."""
    yield from header("part|CPU s|ns a row and marginal|beside bincount")
    for f in figures:
        each = f.rows * math.comb(f.columns, f.length)
        for name, beside in limits.ratios(f).items():
            seconds = f["seconds"][name]
            yield f"| {name} | {seconds:.3f} | {1e9 * seconds / each:.2f} | {beside:.2f} x |"


def start_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line a command."""
    yield from header("command|CPU s|wall s|floor, CPU s|floor, wall s|CPU, ratio|wall beyond")
    for f in figures:
        for name, (ours, floor) in f["spent"].items():
            numbers = (
                f"{ours['cpu']:.2f} | {ours['wall']:.2f} | {floor['cpu']:.2f} | {floor['wall']:.2f}"
            )
            yield f"| {name} | {numbers} | {ours['cpu'] / floor['cpu']:.2f} x | {ours['wall'] - floor['wall']:+.2f} s |"


def model_lines(cells: Mapping[Cell, accuracy.Figure]) -> Iterator[str]:
    """A line a program."""
    yield from header("program|wall s|CPU s|CPU, beside ours|peak MB")
    ours = 0.0
    for method in ("default", "dpmm-mst", "dpmm-aim"):
        found = [
            f
            for c, f in cells.items()
            if (c.table, c.epsilon, c.method) == ("adult_cat", 1.0, method) and not f.failed
        ]
        if found:
            wall, cpu, peak = (median(f[key] for f in found) for key in ("wall", "cpu", "peak"))
            ours = ours or cpu
            yield f"| {method} | {wall:.1f} | {cpu:.1f} | {cpu / ours:.1f} x | {peak:.0f} |"


def asked(figures: Sequence[Figure]) -> Iterator[str]:
    """What was asked for beside what was reached."""
    yield from header("asked for|at least or at most|measured|reached")
    for target in TARGETS:
        found = target.measure(figures)
        value, verdict = (
            (NOT_YET, "") if found is None else (found[0], "yes" if found[1] else "**no**")
        )
        yield f"| {target.what} | {target.asked} | {value} | {verdict} |"


def _runs_text(done: Sequence[Figure]) -> str:
    imports = f"{done[-1]['imports']:.0f} MB" if done else "memory"
    return RUNS.format(imports=imports, perturbed=PERTURBED)


def _lines_text(adults: Sequence[Figure]) -> str:
    span = f"{adults[0].rows:,} to {adults[-1].rows:,} rows, " if adults else ""
    return LINES.format(span=span)


def _section(text: str, lines: Iterable[str]) -> list[str]:
    """A section; what has no line below its header is not measured yet."""
    table = list(lines)
    return [text, *(table if len(table) > 2 else [f"*{NOT_YET[0].upper()}{NOT_YET[1:]}.*"])]


def header(names: str) -> Iterator[str]:
    """The head of a table, from names between bars."""
    columns = names.split("|")
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"


def _dates(figures: Sequence[Figure]) -> str:
    dates = sorted({f.date for f in figures})
    return f", of {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
