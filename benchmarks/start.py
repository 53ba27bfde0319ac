"""How long commands take beside what they cannot do without, in one run: python -m benchmarks.start [--check].

CPU seconds (user and system, servers apart) and wall seconds, each the least of three. `--help`, `plan` and a run that is found
finished stand beside the import of the libraries that they need, in scripts as well; the example's release beside
a bare Prefect flow of fifteen tasks, with a server that stands and with one that each starts itself. The first release, where
nothing is compiled and no server has been, stands beside the second one, and so do the wall seconds of its stages: these are
alike where all was compiled while the server started. Releases of a made-up table of 14 columns, by default, stand beside the
bare flow as well: as many rows as adult_cat has, and 200,000. Answers outside measured sets, and a logistic regression by
`analyse`, stand beside twenty such regressions of as many rows, all without imports. With `--check` no other release starts a
server, of the made-up table the larger one alone is released, what is not slower at the first try has no other, and a ratio of
CPU seconds that is half as much again as `RATIOS` ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.scale.figures import Figure, figure
from benchmarks.scale.limits import SIZES, table
from tests.support.command_line import prefect_database
from tests.support.places import EXAMPLES, INSTALLED
from tests.support.production import documented_server, free_port

AFFAIRS = str(EXAMPLES / "affairs.yaml")
# CPU seconds of ours over those of the floor, as measured on 2026-11-28.
RATIOS = {"--help": 2.2, "plan": 1.7, "run, finished": 1.95}
RATIOS |= {"Python: import": 0.1, "Python: plan": 2.3, "Python: fit, finished": 2.9}
SLOWER, TRIES = 1.5, 3
# On 2026-11-30, on a busy machine. Compiled when they were needed, the stages of the first release took five times as long.
RATIOS |= {"query": 1.6, "first release": 2.4, "first release, stages": 1.1}
RATIOS |= {"Python: 936 answers": 0.9, "Python: analyse": 2.2}
RATIOS |= {"run, server runs already": 2.0, "run, 48,842 x 14": 7.5, "run, 200,000 x 14": 7.8}
# Rows and epsilon of releases of the made-up table.
LARGE = {"run, 48,842 x 14": (48_842, 1.0), "run, 200,000 x 14": (200_000, 1.0)}
NAME = "start"
SHELL = "import rich.console, typer"
VISITS = "import marginweave as mw; model = mw.Synthesizer('visits.yaml')"
SCRIPTS = {
    "Python: import": "import marginweave",
    "Python: plan": f"{VISITS}; model.plan()",
    "Python: fit, finished": f"{VISITS}; model.fit('visits.csv')",
}
# Each prints the CPU seconds of what it does after its imports. No measured set has four columns: all answers are bounds.
ANSWERS = """
import sys, time
import marginweave as mw

release = mw.Release.open(sys.argv[1])
release.query(by=["sex", "region", "age", "smokes"])
begun = time.process_time()
for by in ("region age diagnosis cost", "sex age diagnosis cost", "sex region age cost"):
    release.query(by=by.split())
print(time.process_time() - begun)
"""
FIT = "smf.logit('smoking ~ age + sex + region + diagnosis', rows).fit(disp=0)"
ANALYSE = f"""
import sys, time
import statsmodels.formula.api as smf
from marginweave.inference import analyse

def fit(rows):
    rows = rows.assign(smoking=1.0 * (rows["smokes"] == "yes"))
    return {FIT}

begun = time.process_time()
analyse(sys.argv[1], ["smokes", "age", "sex", "region", "diagnosis"], fit)
print(time.process_time() - begun)
"""
FITS = f"""
import time
import numpy as np, pandas as pd
import statsmodels.formula.api as smf

rng, n = np.random.default_rng(1), 5000
rows = pd.DataFrame({{"age": rng.random(n), "smoking": rng.integers(0, 2, n)}})
for column, values in (("sex", "fm"), ("region", "nsw"), ("diagnosis", "abcd")):
    rows[column] = rng.choice([*values], n)
begun = time.process_time()
for _ in range(20):
    {FIT}
print(time.process_time() - begun)
"""
LIBRARIES = "import numpy, pydantic, rich.console, sqlalchemy, typer, yaml"
LIBRARIES_OF_SCRIPTS = "import pydantic, sqlalchemy, yaml"
BARE = """
from prefect import flow, task

@task
def one(x: int) -> int:
    return x + 1

@flow
def bare() -> None:
    x = 0
    for _ in range(15):
        x = one(x)

bare()
"""


@dataclass(frozen=True)
class Spent:
    """Seconds of a command."""

    cpu: float
    wall: float


def least(measure: Callable[[], Spent], times: int, enough: float = 0.0) -> Spent:
    """The least of a few times, of which the first that spends at most `enough` CPU seconds is the last."""
    found = [measure()]
    while len(found) < times and found[-1].cpu > enough:
        found.append(measure())
    return Spent(min(one.cpu for one in found), min(one.wall for one in found))


def typed(command: list[str], environment: dict[str, str], before: Path | None = None) -> Spent:
    """What a command spends in the home; `before` it, this folder is removed."""
    if before is not None:
        shutil.rmtree(before, ignore_errors=True)
    start, used = time.perf_counter(), _children()
    subprocess.run(
        command,
        env=environment,
        cwd=environment["MARGINWEAVE_HOME"],
        check=True,
        capture_output=True,
    )
    return Spent(_children() - used, time.perf_counter() - start)


def printed(program: str, release: Path, environment: dict[str, str]) -> Spent:
    """The CPU seconds that a program about a release prints."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(release)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return Spent(float(done.stdout), float(done.stdout))


def first_and_second(environment: dict[str, str]) -> dict[str, tuple[Spent, Spent]]:
    """The first release of a home with an empty cache of compiled code beside the second; alone, and its stages alone."""
    whole, stages = [], []
    runs = Path(environment["MARGINWEAVE_HOME"]) / "runs"
    for _ in range(2):
        shutil.rmtree(runs, ignore_errors=True)
        start, used = time.perf_counter(), _children()
        done = subprocess.run(
            [str(INSTALLED), "run", AFFAIRS],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        whole.append(Spent(_children() - used, time.perf_counter() - start))
        lines = map(json.loads, done.stdout.splitlines())
        seconds = sum(line["seconds"] for line in lines if line["event"] == "stage")
        stages.append(Spent(seconds, seconds))
    return {
        "first release": (whole[0], whole[1]),
        "first release, stages": (stages[0], stages[1]),
    }


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def made_table(home: Path, rows: int, epsilon: float) -> str:
    """Write a made-up table of 14 columns of texts and its configuration into the home; return its dataset."""
    dataset = f"made-{rows}"
    source = home / f"{dataset}.parquet"
    names = [f"column{j}" for j in range(len(SIZES))]
    codes = [pa.array(column).cast(pa.string()) for column in table(rows)]
    pq.write_table(pa.table(codes, names), source)
    configuration = {
        "dataset": dataset,
        "source": str(source),
        "privacy": {"epsilon": epsilon, "delta": 1e-6, "unit": "row"},
        "missing": [],
        "columns": {
            name: {"type": "category", "values": list(map(str, range(size)))}
            for name, size in zip(names, SIZES, strict=True)
        },
    }
    (home / f"{dataset}.yaml").write_text(json.dumps(configuration), "utf-8")  # JSON is YAML, too
    return dataset


@dataclass(frozen=True)
class Commands:
    """Measures commands and programs in the environment of a home; a `check` repeats what is slower than it was."""

    home: Path
    environment: dict[str, str]
    check: bool

    def beside(self, name: str, measure: Callable[[], Spent], floor: Spent) -> tuple[Spent, Spent]:
        """What is called `name` in `RATIOS`, and its floor."""
        enough = SLOWER * RATIOS[name] * floor.cpu if self.check else 0.0
        return least(measure, TRIES, enough), floor

    def ours(self, *words: str, before: Path | None = None) -> Spent:
        """A command of ours."""
        return typed([str(INSTALLED), *words], self.environment, before)

    def program(self, text: str) -> Spent:
        """A program of Python."""
        return typed([sys.executable, "-c", text], self.environment)

    def floor(self, text: str) -> Spent:
        """A program that is a floor."""
        return least(lambda: self.program(text), TRIES)


def with_server(commands: Commands) -> dict[str, tuple[Spent, Spent]]:
    """Releases beside the bare flow, with a server that stands and has the database that another one has made."""
    home, environment = commands.home, commands.environment
    shutil.copytree(prefect_database(home).parent, home / "server")
    with documented_server(home / "server", free_port()) as url:
        environment["PREFECT_API_URL"] = url
        bare = commands.floor(BARE)
        name = "run, server runs already"
        again = partial(commands.ours, "run", AFFAIRS, before=home / "runs")
        found = {name: commands.beside(name, again, bare)}
        for name, (rows, epsilon) in list(LARGE.items())[-1 if commands.check else 0 :]:
            dataset = made_table(home, rows, epsilon)
            commands.ours("ledger", "open", dataset, "--for", f"{dataset}.yaml")
            found[name] = commands.ours("run", f"{dataset}.yaml"), bare
        for words in ("example", "ledger open visits --for visits.yaml", "run visits.yaml"):
            commands.ours(*words.split())
        del environment["PREFECT_API_URL"]
    return found


def measured(home: Path, *, servers: bool) -> dict[str, tuple[Spent, Spent]]:
    """What ours and the floor spend, by what is typed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MARGINWEAVE_"))}
    environment = {
        **kept,
        "MARGINWEAVE_HOME": str(home),
        "MARGINWEAVE_LEDGER": str(home / "visits.db"),
        "PREFECT_HOME": str(home / "bare"),
        "DO_NOT_TRACK": "1",
        "NUMBA_CACHE_DIR": str(home / "compiled"),
    }
    commands = Commands(home, environment, check=not servers)
    found = first_and_second(environment) | with_server(commands)
    libraries, shell = commands.floor(LIBRARIES), commands.floor(SHELL)
    (visits,) = (home / "runs").glob("visits-*")
    query = ("query", visits.name, "--by", "sex", "--mean", "age")
    for name, words, floor in (
        ("run, finished", ("run", AFFAIRS), libraries),
        ("plan", ("plan", AFFAIRS), libraries),
        ("--help", ("--help",), shell),
        ("query", query, libraries),
    ):
        found[name] = commands.beside(name, partial(commands.ours, *words), floor)
    release = visits / "release"
    fits = printed(FITS, visits, environment)
    for name, text in (("Python: 936 answers", ANSWERS), ("Python: analyse", ANALYSE)):
        answer = partial(printed, text, release, environment)
        found[name] = commands.beside(name, answer, fits)
    libraries = commands.floor(LIBRARIES_OF_SCRIPTS)
    for name, text in SCRIPTS.items():
        found[name] = commands.beside(name, partial(commands.program, text), libraries)
    if servers:
        again = partial(commands.ours, "run", AFFAIRS, before=home / "runs")
        found["run, its own server"] = least(again, TRIES), commands.floor(BARE)
    return found


def figure_of_all() -> Figure:
    """All of it, for docs/benchmarks.md."""
    with TemporaryDirectory() as home:
        spent = {
            name: [asdict(one) for one in pair]
            for name, pair in measured(Path(home), servers=True).items()
        }
    return figure(NAME, 0, 0, 0, spent=spent)


def main() -> None:
    """Measure, print, and end with 1 where a ratio has grown."""
    parser = argparse.ArgumentParser(prog="benchmarks.start", description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    slower = []
    with TemporaryDirectory() as home:
        for name, (ours, floor) in measured(Path(home), servers=not check).items():
            ratio, wall = ours.cpu / floor.cpu, ours.wall - floor.wall
            text = f"{name:24} {ours.cpu:6.2f} s CPU ({ratio:4.2f} x the floor) {ours.wall:6.2f} s wall ({wall:+5.2f} s)"
            print(text)  # noqa: T201 - a benchmark prints
            if ratio > SLOWER * RATIOS.get(name, float("inf")):
                slower.append(f"{name}: {ratio:.2f}, was {RATIOS[name]}")
    if check and slower:
        sys.exit("slower than before: " + "; ".join(slower))


if __name__ == "__main__":
    main()
