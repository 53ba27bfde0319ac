"""docs/accuracy.md: what was asked for, what was measured, wins and losses alike; every number is from a figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from benchmarks.accuracy.figures import Figure
from benchmarks.accuracy.measures import MEASURES
from benchmarks.accuracy.methods import INDEPENDENT
from benchmarks.accuracy.summaries import Summaries, Summary, best, summarize, verdict
from benchmarks.accuracy.targets import TARGETS
from benchmarks.scale.page import NOT_YET, header, machine_lines

SLOW = ("drug_deaths_cat", "ma2019_cat", "adult")
Default = Callable[[str, float], str]

HEAD = """# Accuracy: synthetic records beside the table, and beside peers

For a reader who compares tools: how close do synthetic records come to public tables, ours and those of peers?
`python -m benchmarks.accuracy --write` wrote this page from {count} figures{dates}, and measures missing ones; do not edit it.

- **Ours** is a `marginweave run` with its own home and ledger, scored on its `synthetic.csv`. **Peers** are pinned packages
  from PyPI on the same two cores, with the same table, public domain, epsilon and delta, and their own settings. Ours make
  as many records as the protected count says, peers as many as the table has.
- **±** is the sample standard deviation of repetitions.
- **TVD**: half the L1 distance of relative frequencies, mean of all marginals of one and of two columns, and of a fixed sample
  of 300 of three, or of all. **L1**: of all marginals. A missing value is a value. Less is better.
- **CPU s** and **MB** are of all processes of a run, without Prefect's server. The load average was {load}.
"""
METHODS = """
## Methods

The sections `aggregate` and `synthesize` of a configuration; for a peer, what it is asked for.
"""
ASKED = """
## Asked and reached

The best of our methods by each target's own measure.
"""
DEFAULTS = """
## The default beside independent columns

A configuration with neither `aggregate` nor `synthesize`, beside `independent`, which spends the whole budget on one-way
marginals. Not worse: mean TVD of two and of three columns at most that of `independent`.
**{good} of {all} cells are not worse.**
"""
WINS = """
## Wins and losses

The best of our methods and the best peer that ended within its limits, picked after the fact. `even`: the means differ by
less than both standard deviations together.
"""
ENDS = """
## Opponents that take their time

MST, AIM and PrivBayes, stopped at three hours of CPU time or where the table says less. **Times** is the peer's CPU time by the
default's. At epsilon 10 AIM is not expected to end within three hours: after 70 CPU minutes on adult it had spent 21 % of its
budget. The AIM of mbi's authors is not on PyPI, and is not measured.
"""


def render(
    figures: Iterable[Figure], default: Default, *further: Callable[[], Iterable[str]]
) -> str:
    """The page; `default` says which method the default is on a table at an epsilon, `further` makes more sections."""
    every = list(figures)
    summaries = summarize(every)
    beside = list(default_lines(summaries, default))
    good = sum(line.endswith("yes |") for line in beside)
    parts = [
        _head(every),
        *_machines(every),
        *_section(METHODS, method_lines(every)),
        *_section(ASKED, target_lines(summaries)),
        *_section(DEFAULTS.format(good=good, all=max(0, len(beside) - 2)), beside),
        *_section(WINS, win_lines(summaries, default)),
        *_section(ENDS, end_lines(summaries, default)),
    ]
    tables: dict[str, list[tuple[Summary, ...]]] = {}
    for (table, _), found in summaries.items():
        tables.setdefault(table, []).append(found)
    for table, epsilons in tables.items():
        of = epsilons[0][0].figures[0]
        parts.append(
            f"\n## {table}\n\n{of.rows:,} rows, {of.columns} columns, delta {of.delta:.3g}.\n"
        )
        parts += result_lines(epsilons)
    for section in further:
        parts += section()
    return "\n".join(parts) + "\n"


def result_lines(epsilons: Iterable[Sequence[Summary]]) -> Iterator[str]:
    """A line a method and epsilon."""
    yield from header(f"epsilon|method|repetitions|{'|'.join(MEASURES.values())}|CPU s|MB")
    for found in epsilons:
        for s in found:
            name = f"| {s.epsilon:g} | {s.method} | {len(s.figures)} |"
            if s.failed:
                yield f"{name} {s.failed} |{' |' * (len(MEASURES) - 1)} {s.of('cpu').mean:.0f} | {s.of('peak').mean:.0f} |"
                continue
            errors = " | ".join(str(s.of(key)) for key in MEASURES)
            yield f"{name} {errors} | {s.of('cpu').mean:.0f} | {s.of('peak').mean:.0f} |"


def method_lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line a method: what it is, of which version."""
    versions: dict[tuple[str, str, str], set[str]] = {}
    for f in figures:
        key = (f.cell.method, f.system, json.dumps(f.settings))
        versions.setdefault(key, set()).add(f.version)
    yield from header("method|system|version or commit|settings")
    for (method, system, settings), found in versions.items():
        yield f"| {method} | {system} | {', '.join(sorted(found))} | `{settings}` |"


def target_lines(summaries: Summaries) -> Iterator[str]:
    """What was asked for beside what was reached."""
    yield from header("asked for|at most|reached|by|verdict")
    for target in TARGETS:
        ours = [s for s in summaries.get((target.table, target.epsilon), ()) if not s.is_peer]
        found = best(ours, target.key)
        asked = f"| {target.what} | {target.asked} |"
        if found is None:
            yield f"{asked} {NOT_YET} | | |"
        else:
            yield f"{asked} {target.shown(found)} | {found.method} | {'yes' if target.reached(found) else '**no**'} |"


def default_lines(summaries: Summaries, default: Default) -> Iterator[str]:
    """A line a table and epsilon where both were measured."""
    yield from header("table|epsilon|the default is|2-way|independent|3-way|independent|not worse")
    for (table, epsilon), found in summaries.items():
        by_name = {s.method: s for s in found}
        usual, other = by_name.get(default(table, epsilon)), by_name.get(INDEPENDENT)
        if usual is None or other is None:
            continue
        name = f"| {table} | {epsilon:g} | {usual.method} |"
        if usual.failed or other.failed:
            yield f"{name} {usual.failed or other.failed} | | | | **no** |"
            continue
        keys = ("tvd2", "tvd3")
        pairs = " | ".join(f"{usual.of(key)} | {other.of(key)}" for key in keys)
        good = all(usual.of(key).mean <= other.of(key).mean for key in keys)
        yield f"{name} {pairs} | {'yes' if good else '**no**'} |"


def win_lines(summaries: Summaries, default: Default) -> Iterator[str]:
    """Two lines a table and epsilon, for two and for three columns, where both sides were measured."""
    yield from header("table|epsilon|columns|best of ours|TVD|best peer|TVD|verdict|the default's")
    for (table, epsilon), found in summaries.items():
        for columns in (2, 3):
            key = f"tvd{columns}"
            ours, peer = (
                best((s for s in found if s.is_peer == is_peer), key) for is_peer in (False, True)
            )
            if ours is None or peer is None:
                continue
            one, other = ours.of(key), peer.of(key)
            usual = next(
                (s for s in found if s.method == default(table, epsilon) and not s.failed), None
            )
            theirs = NOT_YET if usual is None else verdict(usual.of(key), other)
            yield (
                f"| {table} | {epsilon:g} | {columns} | {ours.method} | {one} | {peer.method} | {other} | "
                f"{verdict(one, other)} | {theirs} |"
            )


def end_lines(summaries: Summaries, default: Default) -> Iterator[str]:
    """A line a table, epsilon and peer of dpmm, with its hours."""
    yield from header(
        "table|epsilon|peer|hours|times|2-way|the default's|3-way|the default's|verdict"
    )
    for (table, epsilon), found in summaries.items():
        usual = next(
            (s for s in found if s.method == default(table, epsilon) and not s.failed), None
        )
        if usual is None or epsilon not in {1, 10} or table not in SLOW:
            continue
        for peer in (s for s in found if s.method.startswith("dpmm")):
            hours, times = peer.of("cpu").mean / 3600, peer.of("cpu").mean / usual.of("cpu").mean
            sides = [
                (usual.of(key), None if peer.failed else peer.of(key)) for key in ("tvd2", "tvd3")
            ]
            beside = " | ".join(f"{theirs or peer.failed} | {ours}" for ours, theirs in sides)
            end = ", ".join(verdict(ours, theirs) for ours, theirs in sides if theirs) or NOT_YET
            yield f"| {table} | {epsilon:g} | {peer.method} | {hours:.2f} | {times:.0f} | {beside} | {end} |"


def _head(figures: Sequence[Figure]) -> str:
    dates = sorted({f.date for f in figures})
    loads = [f.load for f in figures]
    load = f"{min(loads):.1f} to {max(loads):.1f}" if loads else NOT_YET
    span = f", of {' to '.join(dict.fromkeys((dates[0], dates[-1])))}" if dates else ""
    return HEAD.format(count=len(figures), dates=span, load=load)


def _machines(figures: Iterable[Figure]) -> Iterator[str]:
    for facts in {json.dumps(f.machine): f.machine for f in figures}.values():
        yield from (*machine_lines(facts), "")


def _section(text: str, lines: Iterable[str]) -> list[str]:
    """A section; what has no line below its header is not measured yet."""
    found = list(lines)
    return [text, *(found if len(found) > 2 else [f"*{NOT_YET.capitalize()}.*"])]
