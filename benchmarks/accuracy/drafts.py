"""Public tables as `init` drafts them, all questions answered yes: python -m benchmarks.accuracy.drafts --keep FOLDER.

Every table is released by its draft at epsilon 3 into a folder of FOLDER; what is there is not released again. What is
printed is a Markdown table. Of each release: the pairs and triples of columns of which all rows keep a relation (an order, a
sum, one column that follows from another, values only where another column has some), how many of these more than 1 % of
the records break, and how many of these the draft has no rule about, nor several from which it follows; the verdict and its
score; and by the rows themselves the mean distance (TVD) of pairs, the score by the same formula, and the verdict that the
same rules give by true distances.

The relations are found here, by reading all rows, and not by the product. A chance relation does not count: shuffled columns
would break it in 1 % of the rows at least. A rule of the draft is a hint, and so is an order that a comment names.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import re
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.verdicts import dependence_of, distance
from marginweave.configuration.load import load_configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.evaluate.internal import (
    RawBlocks,
    encoded_rows,
    joined_tables,
    over_one_domain,
    published_records,
)
from marginweave.evaluate.score import quality_score
from marginweave.evaluate.verdict import verdict
from marginweave.linked.places import TablePlaces
from marginweave.linked.source import ReleaseSource
from marginweave.released.evaluation import Evaluation
from tests.support.drafted_releases import DraftedRelease, answered_yes, release_by_draft
from tests.support.places import DATA

EPSILON = 3.0
_ALLOWED = 0.01
_BY_CHANCE = 0.01
_LEAST_ROWS = 30
_MOST_COLUMNS = 40
STATSMODELS = (
    "anes96/anes96", "fair/fair", "fair/fair_pt", "randhie/randhie", "modechoice/modechoice", "star98/star98", "engel/engel",
    "grunfeld/grunfeld", "co2/co2", "macrodata/macrodata", "cancer/cancer", "statecrime/statecrime", "heart/heart",
    "fertility/fertility",
)  # fmt: skip
SKLEARN = ("breast_cancer.csv", "iris.csv", "wine_data.csv", "digits.csv.gz")
SHARED = (
    "drug_deaths/drug_deaths.csv", "ma2019/ma2019.csv", "airbnb/users.csv", "adult/adult_raw.csv", "adult/adult_cat.csv",
)  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """A relation that all rows keep: its columns, and the share of the records that break it."""

    columns: tuple[str, ...]
    share: float


def main() -> None:
    """Release what is missing in the folder, and print a line a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.drafts")
    parser.add_argument(
        "--keep", type=Path, required=True, help="a folder; what is there is not released again"
    )
    keep = parser.parse_args().keep
    sys.stdout.write(
        "| table | rows | relations | broken in > 1 % | of these without a hint | verdict | score | mean TVD of pairs | "
        "score by it | verdict by it |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    for name, content in public_tables():
        place = keep / name
        if not place.is_dir():
            release_into(place, name, content)
        sys.stdout.write(line_of(name, place, content) + "\n")
        sys.stdout.flush()


def public_tables() -> Iterator[tuple[str, bytes]]:
    """The tables that are here: those of statsmodels and scikit-learn, and the test tables."""
    for name in STATSMODELS:
        folder, file = name.split("/")
        yield (
            file,
            resources.files("statsmodels").joinpath("datasets", folder, f"{file}.csv").read_bytes(),
        )
    for name in SKLEARN:
        content = resources.files("sklearn").joinpath("datasets", "data", name).read_bytes()
        text = gzip.decompress(content) if name.endswith(".gz") else content
        yield name.split(".")[0], named(text, has_counts=name.endswith(".csv"))
    for name in SHARED:
        if (DATA / name).is_file():
            yield Path(name).stem, (DATA / name).read_bytes()


def named(text: bytes, *, has_counts: bool) -> bytes:
    """The table with names of columns, where scikit-learn has none, or a line that counts rows and columns."""
    rows = text.partition(b"\n")[2] if has_counts else text
    width = len(rows.splitlines()[0].split(b","))
    names = [*(f"x{place}" for place in range(1, width)), "y"]
    return ",".join(names).encode() + b"\n" + rows


def release_into(place: Path, name: str, content: bytes) -> None:
    """Release a table by its draft, in an empty home, and keep what is looked at."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / f"{name}.csv").write_bytes(content)
        done = release_by_draft(home, home / f"{name}.csv", is_quick=False, epsilon=EPSILON)
        place.mkdir(parents=True)
        (place / "ended.txt").write_text(f"{done.command} {done.code}\n{done.printed}")
        (place / "drafted.yaml").write_text(done.draft, encoding="utf-8")
        if done.code == 0:
            for file in ("evaluation.json", "synthetic.csv"):
                shutil.copy(done.release / file, place / file)
            (place / "true.json").write_text(json.dumps(true_distances(done)))


def true_distances(done: DraftedRelease) -> list[tuple[list[str], float, float]]:
    """Of each column and pair its names, how far records are from the rows, and how far these are from independent columns."""
    configuration = load_configuration(done.home / "confirmed.yaml")
    places = TablePlaces(str(done.home / configuration.source.file))
    source = ReleaseSource.of(places, configuration)
    raw = RawBlocks(source, configuration, tuple(configuration.source_names))
    rows = joined_tables(encoded_rows(raw, configuration, done.home))
    records, _ = published_records(done.release / "synthetic.parquet", configuration)
    real, synthetic = over_one_domain(rows, records)
    distances = []
    for length in (1, 2):
        for places in itertools.combinations(range(len(configuration.attributes)), length):
            both = (places * 2)[:2]
            codes = [
                np.stack([table.codes[place].astype(np.int64) for place in both], axis=1)
                for table in (real, synthetic)
            ]
            names = [configuration.attributes[place].name for place in places]
            dependence = dependence_of(codes[0]) if length == 2 else 0.0
            distances.append((names, distance(*codes), dependence))
    return distances


def line_of(name: str, place: Path, content: bytes) -> str:
    """A line of the Markdown table."""
    ended = (place / "ended.txt").read_text().splitlines()[0]
    if not (place / "evaluation.json").is_file():
        return f"| {name} | | | | | {ended} | | | | |"
    draft = (place / "drafted.yaml").read_text(encoding="utf-8")
    configuration = answered_yes(draft)
    source = configuration["source"]
    delimiter = source.get("delimiter") if isinstance(source, dict) else None
    rows = read(
        content.decode("utf-8-sig"), {"semicolon": ";", "tab": "\t", None: ","}.get(delimiter, ",")
    )
    records = read((place / "synthetic.csv").read_text(encoding="utf-8-sig"), ",")
    relations = list(kept_relations(rows, records, configuration))
    broken = [relation for relation in relations if relation.share > _ALLOWED]
    hinted = [*hinted_columns(configuration), *named_orders(draft)]
    without_hint = [one for one in broken if not any(set(one.columns) <= names for names in hinted)]
    claimed = Evaluation.from_json((place / "evaluation.json").read_bytes()).verdict
    true = json.loads((place / "true.json").read_text())
    distances = {tuple(names): apart for names, apart, _ in true}
    dependences = {tuple(sorted(names)): dependence for names, _, dependence in true}
    pairs = [apart for names, apart in distances.items() if len(names) == 2]
    by_rows = verdict(distances, {}, 1e9).publication
    words = "; ".join(" & ".join(one.columns) + f" {one.share:.0%}" for one in without_hint[:4])
    assert claimed is not None
    mean = f"{fmean(pairs):.3f}" if pairs else ""
    number = len(next(iter(rows.values())))
    return (
        f"| {name} | {number:,} | {len(relations)} | {len(broken)} | {len(without_hint)} {words} | {claimed.publication} | "
        f"{claimed.score} | {mean} | {quality_score(distances, dependences)} | {by_rows} |"
    )


def read(text: str, delimiter: str) -> dict[str, list[str]]:
    """The columns of a file of texts, trimmed."""
    quote = "'" if text.startswith("'") else '"'
    header, *rows = csv.reader(io.StringIO(text), delimiter=delimiter, quotechar=quote)
    full = [row for row in rows if len(row) == len(header)]
    return {name.strip(): [row[place].strip() for row in full] for place, name in enumerate(header)}


def hinted_columns(configuration: dict[str, object]) -> list[set[str]]:
    """The columns of each rule of the draft."""
    columns: list[set[str]] = []
    for rules in dict(configuration.get("structure", {})).values():  # pyright: ignore[reportCallIssue, reportArgumentType]
        for rule in rules:
            texts = json.dumps(rule)
            columns.append({name for name in configuration["columns"] if json.dumps(name) in texts})  # pyright: ignore
    structure: Any = configuration.get("structure", {})
    return [
        *columns,
        *pairs_that_follow(steps_of_orders(structure)),
        *pairs_that_follow(steps_of_gaps(structure)),
    ]


def named_orders(draft: str) -> list[set[str]]:
    """The columns of each order that a draft names in a comment, as it may be chance."""
    lines = re.findall(r"^#( +- columns: \[.*\])  # ", draft, re.MULTILINE)
    return [
        set(order["columns"])
        for line in lines
        for order in parse_yaml(f"orders:\n{line}")["orders"]
    ]


def steps_of_orders(structure: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """Each column of an order with the next one."""
    for rule in structure.get("ordered", ()):
        yield from itertools.pairwise(rule["columns"])


def steps_of_gaps(structure: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[str, str]]:
    """Each column with one that has a value wherever it has one."""
    for rule in structure.get("applies", ()):
        for name, other in itertools.product(rule["columns"], rule["where"]):
            yield name, other
            yield other, name
    for rule in structure.get("forbidden", ()):
        cells = {name: values for name, values in rule.items() if name != "confirm"}
        inner = [
            name for name, values in cells.items() if isinstance(values, dict) and "but" in values
        ]
        yield from itertools.product(inner, cells.keys() - set(inner))


def pairs_that_follow(steps: Iterator[tuple[str, str]]) -> list[set[str]]:
    """The pairs of columns of which a rule follows from several rules: of an order through a third column, or of gaps."""
    behind: defaultdict[str, set[str]] = defaultdict(set)
    for name, other in steps:
        behind[name].add(other)
    pairs = []
    for name in list(behind):
        reached = [name]
        for column in reached:
            reached += [other for other in sorted(behind[column]) if other not in reached]
        pairs += [{name, other} for other in reached[1:]]
    return pairs


def kept_relations(
    rows: dict[str, list[str]], records: dict[str, list[str]], configuration: dict[str, object]
) -> Iterator[Broken]:
    """The relations between released columns that all rows keep, with the share of the records that break each."""
    names = [name for name in records if name in rows][:_MOST_COLUMNS]
    numbers = {}
    for name in names:
        before, after = numbers_of(rows[name]), numbers_of(records[name])
        if before is not None and after is not None:
            numbers[name] = (before, after)
    yield from _orders(numbers)
    yield from _sums(numbers)
    yield from _following({name: (rows[name], records[name]) for name in names})
    yield from _nested({name: (rows[name], records[name]) for name in names})


def numbers_of(cells: Sequence[str]) -> NDArray[np.float64] | None:
    """The cells as numbers, nan where there is none; None where many are no numbers."""
    numbers = np.full(len(cells), np.nan)
    odd = 0
    for place, cell in enumerate(cells):
        try:
            numbers[place] = float(cell.replace("-", "") if cell.count("-") == 2 else cell)
        except ValueError:
            odd += cell not in {"", "NA", "."}
    return numbers if odd <= 0.02 * len(cells) else None


Both = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def _orders(numbers: Both) -> Iterator[Broken]:
    """Of two numbers one is never above the other."""
    for low, high in itertools.permutations(numbers, 2):
        x, y = numbers[low][0], numbers[high][0]
        both = ~(np.isnan(x) | np.isnan(y))
        if both.sum() < _LEAST_ROWS or (x[both] > y[both]).any() or (x[both] == y[both]).all():
            continue
        ordered = np.sort(y[both])
        if np.searchsorted(ordered, x[both], side="left").mean() / both.sum() < _BY_CHANCE:
            continue
        u, v = numbers[low][1], numbers[high][1]
        yield Broken((low, high), float((u > v).mean()))


def _sums(numbers: Both) -> Iterator[Broken]:
    """A number is the sum of two others, in all rows that have the three."""
    for first, second in itertools.combinations(numbers, 2):
        for total in numbers.keys() - {first, second}:
            x, y, z = (numbers[name][0] for name in (first, second, total))
            full = ~np.isnan(x + y + z)
            if full.sum() < _LEAST_ROWS or min(len(set(cells[full])) for cells in (x, y, z)) < 3:
                continue
            if np.abs(x + y - z)[full].max() < 1e-6 * max(1.0, np.abs(z[full]).max()):
                u, v, w = (numbers[name][1] for name in (first, second, total))
                apart = np.abs(u + v - w) > 1e-6 * np.maximum(1.0, np.abs(w))
                yield Broken((first, second, total), float(apart.mean()))


Texts = dict[str, tuple[list[str], list[str]]]


def _following(texts: Texts) -> Iterator[Broken]:
    """A column follows from a finer one, whose values have three rows each on average."""
    for by, name in itertools.permutations(texts, 2):
        finer, coarser = texts[by][0], texts[name][0]
        values, common = set(finer), Counter(coarser).most_common(1)[0][1]
        if not 1 < len(set(coarser)) < len(values) <= len(finer) / 3 or common > 0.9 * len(finer):
            continue
        value_of: dict[str, str] = {}
        if all(value_of.setdefault(x, y) == y for x, y in zip(finer, coarser, strict=True)):
            seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
            for x, y in zip(*(texts[column][1] for column in (by, name)), strict=True):
                seen[x][y] += 1
            kept = sum(
                count[value_of.get(x, count.most_common(1)[0][0])] for x, count in seen.items()
            )
            yield Broken((by, name), 1 - kept / max(1, len(texts[by][1])))


def _nested(texts: Texts) -> Iterator[Broken]:
    """A column has a value only where another has one."""
    for inner, outer in itertools.permutations(texts, 2):
        has, can = ([cell not in {"", "NA"} for cell in texts[name][0]] for name in (inner, outer))
        share, gaps = fmean(has), 1 - fmean(can)
        if share * gaps < _BY_CHANCE or any(x and not y for x, y in zip(has, can, strict=True)):
            continue
        records = zip(texts[inner][1], texts[outer][1], strict=True)
        yield Broken((inner, outer), fmean(bool(x and not y) for x, y in records))


if __name__ == "__main__":
    main()
