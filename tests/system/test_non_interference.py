"""Right of `aggregate` everything follows from the measurements alone, and nothing of a table is found outside its places.

The stages right of `aggregate` run three times on the same noisy measurements, in the real flow: on the run as it is, with
everything private replaced by that of an unrelated table, and with nothing private there at all.
"""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import json
import os
import re
import shutil
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from marginweave.accounting.accounts import Account
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.flows import stages
from marginweave.flows.prefect.session import prefect_session
from marginweave.ledger import Ledger
from marginweave.runs.bookkeeping import Wrap
from marginweave.runs.capabilities import RunReference
from marginweave.runs.progress import reporting
from marginweave.runs.request import Request
from tests.support.command_line import CommandLine
from tests.support.forked_runs import STAGES
from tests.support.opened_files import opened_files, within
from tests.support.people_table import people, visits
from tests.support.prefect_artifacts import ARTIFACTS, noted_artifacts
from tests.support.release_checks import contents, unpacked
from tests.support.samples import every

# whose name in the package is the flow
flow_module = importlib.import_module("marginweave.flows.release")
pytestmark = pytest.mark.system
LEFT = STAGES[: STAGES.index("normalize_counts")]
SETTINGS: dict[str, Any] = {
    "privacy__epsilon": 8.0,
    "privacy__unit": {"column": "person", "max_records": 3},
    "columns__town": {"type": "category", "domain": "private"},
    "columns__age": {
        "type": "number",
        "bounds": "private",
        "within": [0, 200],
        "bins": 4,
        "decimals": 0,
    },
    "structure": {"forbidden": [{"sex": "f", "region": "west"}]},
    "publish__keep_private": True,
}
METHODS = {
    "k-tuples": {},
    "gum": {"synthesize": {"method": "gum"}},
    "marginals": {"aggregate__method": "marginals"},
    "rounds": {"aggregate__method": "marginals", "aggregate__cliques": {"rounds": 2, "batch": 2}},
    "mixture": {
        "aggregate__method": "marginals",
        "synthesize": {"method": "mixture", "fits": 2, "iterations": 50},
    },
}


class Unrelated(Exception):
    """The run of the unrelated table has everything private that it will ever have."""


@dataclass
class Pass:
    """What one pass over the stages right of `aggregate` left behind, and the files that it opened."""

    release: dict[str, bytes] = field(default_factory=dict)
    artifacts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    printed: str = ""
    log: list[str] = field(default_factory=list)
    opened: list[str] = field(default_factory=list)

    @property
    def seen(self) -> dict[str, Any]:
        """All that leaves the pass."""
        return {
            "release": self.release,
            "artifacts": self.artifacts,
            "printed": self.printed,
            "log": self.log,
        }


@dataclass
class Flow:
    """The flow on a table of visits, in a home of its own, whose right part runs again after each of `changes`."""

    home: Path
    table: Callable[[Path], Path]
    changes: tuple[Callable[[RunFolder, Path], None], ...] = ()
    passes: list[Pass] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home.mkdir()
        account = Account(
            dataset="people",
            epsilon=Decimal(50),
            delta=Decimal("1e-4"),
            unit="subject:person",
            neighbors="add-remove",
        )
        Ledger.create(self.ledger, environment={}).accounts.open(account, actor="test")

    @property
    def ledger(self) -> Path:
        return self.home / "ledger" / "ledger.sqlite"

    @property
    def folder(self) -> RunFolder:
        return RunFolder.at(self.home, "r")

    @property
    def source(self) -> Path:
        return self.home / "people.csv"

    def run(self, server: str) -> list[Pass]:
        """Run the flow, and return what its passes left behind."""
        config = self.table(self.home)
        with (
            mock.patch.dict(
                os.environ, {"MARGINWEAVE_LEDGER": str(self.ledger), "PREFECT_API_URL": server}
            ),
            prefect_session(self.home, self.home / "log"),
            mock.patch.multiple(
                flow_module, run_stages=self._passes, shown_in_prefect=lambda _: nullcontext()
            ),
        ):
            flow_module.release(str(config), "r", None, str(self.home))
        return self.passes

    @property
    def kept(self) -> Path:
        """Run and ledger as they stood when everything was measured."""
        return self.home.with_name(f"{self.home.name}-kept")

    @property
    def log(self) -> Path:
        return self.home / "log" / "prefect.log"

    def _passes(self, request: Request, private: RunReference, wrap: Wrap) -> None:
        results: dict[str, list[Any]] = {name: [] for name in LEFT}
        noted = {name: _noting(getattr(stages, name), results[name]) for name in LEFT}
        self._observe(request, private, wrap, noted)
        for change in self.changes:
            for place in (self.folder.path, self.ledger.parent):
                shutil.rmtree(place)
                shutil.copytree(self.kept / place.name, place)
            change(self.folder, self.source)
            repeated = {name: _repeating(getattr(stages, name), results[name]) for name in LEFT}
            self._observe(request, replace(private), wrap, repeated)

    def _observe(
        self, request: Request, private: RunReference, wrap: Wrap, left: dict[str, Any]
    ) -> None:
        """One pass: what is printed from the start on, what is logged and opened once everything is measured."""
        self.passes.append(found := Pass())
        normalize, printed = stages.normalize_counts, io.StringIO()
        begun = 0
        watching = ExitStack()

        @functools.wraps(normalize)
        def measured(*arguments: Any) -> Any:
            nonlocal begun
            if not self.changes:
                raise Unrelated
            if not self.kept.exists():
                for place in (self.folder.path, self.ledger.parent):
                    shutil.copytree(place, self.kept / place.name)
            begun = self.log.stat().st_size
            watching.enter_context(opened_files(found.opened))
            return normalize(*arguments)

        with (
            watching,
            redirect_stdout(printed),
            redirect_stderr(printed),
            reporting(None),
            noted_artifacts(found.artifacts),
            mock.patch.multiple(stages, **left, normalize_counts=measured),
            SHOWN(private),
        ):
            RUN_STAGES(request, private, wrap)
        found.release = {
            name: TIME_OF.sub(b"", content)
            for name, content in contents(self.folder.release).items()
        }
        found.printed = CLOCK.sub("", printed.getvalue())
        written = self.log.read_bytes()[begun:].decode()
        found.log = [TIME.sub("", line) for line in written.splitlines()]


SHOWN = flow_module.shown_in_prefect
RUN_STAGES = stages.run_stages
CLOCK = re.compile(r'"time": "[^"]*", |"seconds": [0-9.]+, ')
TIME_OF = re.compile(rb'"as_of": "[^"]*"')  # of account.json
TIME = re.compile(r"^[0-9-]+ [0-9:,]+ ")


def _noting(stage: Callable[..., Any], results: list[Any]) -> Callable[..., Any]:
    @functools.wraps(stage)
    def call(*arguments: Any, **named: Any) -> Any:
        results.append(stage(*arguments, **named))
        return results[-1]

    return call


def _repeating(stage: Callable[..., Any], results: list[Any]) -> Callable[..., Any]:
    left = iter(results)
    return functools.wraps(stage)(lambda *_, **__: next(left))


def people_of(changes: dict[str, Any]) -> Callable[[Path], Path]:
    """The table of visits."""
    return lambda home: visits(home, **SETTINGS, **changes)


def strangers_of(changes: dict[str, Any]) -> Callable[[Path], Path]:
    """An unrelated table for the same configuration: another size, other values, many of them missing, another order."""

    def write(home: Path) -> Path:
        path = people_of(changes)(home)
        rng = np.random.default_rng(11)
        lines = ["town,grade,age,region,sex,person"]
        for row in range(211):
            cells = [
                f"U{rng.integers(0, 2)}",
                "7",
                str(rng.integers(150, 190)),
                "west",
                "m",
                f"stranger-{row // 2}",
            ]
            lines.append(
                ",".join(
                    cell if rng.random() < 0.6 or j == 5 else "" for j, cell in enumerate(cells)
                )
            )
        (home / "people.csv").write_text("\n".join(lines) + "\n")
        return path

    return write


def replaced_by(other: Flow) -> Callable[[RunFolder, Path], None]:
    """Put everything private of another run, and its table, into the place of a run's own."""

    def change(folder: RunFolder, source: Path) -> None:
        shutil.rmtree(folder.private)
        shutil.copytree(other.folder.private, folder.private)
        shutil.copyfile(other.source, source)
        ours, theirs = (
            json.loads(place.manifest_file.read_text()) for place in (folder, other.folder)
        )
        ours["source_digest"] = theirs["source_digest"]
        for stage in ("validate", "preprocess", "encode"):
            ours["stages"][stage] = theirs["stages"][stage]
        folder.manifest_file.write_text(json.dumps(ours))

    return change


def removed(folder: RunFolder, source: Path) -> None:
    """Leave nothing private."""
    shutil.rmtree(folder.private)
    shutil.rmtree(folder.internal)
    source.unlink()


def run_again(place: Path, server: str, changes: dict[str, Any]) -> tuple[Flow, list[Pass]]:
    """The three passes over the visits."""
    other = Flow(place / "other", strangers_of(changes))
    with pytest.raises(Unrelated):
        other.run(server)
    flow = Flow(place / "home", people_of(changes), (replaced_by(other), removed))
    return flow, flow.run(server)


def private_files(flow: Flow, opened: list[str]) -> list[str]:
    """Those of the opened files that hold something private: not the room for rows of the ledger, nor the folder of seeds."""
    found = within(opened, flow.folder.private, flow.folder.internal, flow.source)
    return [name for name in found if not name.endswith(("/ledger.reserve", "/seeds"))]


def assert_keys_are_fresh(flow: Flow) -> None:
    """The run of the other table made its choices, and drew its noise, by secrets of its own."""
    other = RunFolder.at(flow.home.with_name("other"), "r")
    keys = {(folder / "private" / "key").read_bytes() for folder in (flow.kept / "r", other.path)}
    assert [len(key) for key in keys] == [32, 32]


@pytest.mark.parametrize("method", every(4, METHODS))
def test_what_is_released_follows_from_the_measurements_alone(
    server: str, tmp_path: Path, method: str
) -> None:
    """Release, artifacts, progress and log are the same, byte for byte, and no private file is opened."""
    flow, (as_it_is, *others) = run_again(tmp_path, server, METHODS[method])
    assert_keys_are_fresh(flow)
    assert {
        "privacy.json",
        "report.html",
        "explore.html",
        "synthetic.csv",
    } <= as_it_is.release.keys()
    assert [name for name, _ in as_it_is.artifacts] == [ARTIFACTS[0], *ARTIFACTS]
    assert json.loads(as_it_is.printed.splitlines()[-1])["stage"] == "publish"
    assert len(as_it_is.log) >= 5
    for other in others:
        assert other.seen == as_it_is.seen
    for one in (as_it_is, *others):
        assert any(Path(name).parent.name == "derived" for name in one.opened)
        assert private_files(flow, one.opened) == []


def test_a_stage_that_looks_at_private_rows_is_found_out(server: str, tmp_path: Path) -> None:
    """The test above can fail: an evaluation that reads a private checkpoint is seen opening it, and changes the release."""
    evaluate = stages.evaluate

    @functools.wraps(evaluate)
    def looking(public: Any, *others: Any) -> Any:
        encoded = sorted((public.place.parent / "private").glob("encode*"))
        sizes = [len(file.read_bytes()) for file in encoded]
        result = evaluate(public, *others)
        payload = json.loads(public.load(result))
        payload["bounds"]["level"] = float(sum(sizes))
        return public.checkpoint("evaluate", [result], lambda: json.dumps(payload).encode())

    with mock.patch.object(stages, "evaluate", looking):
        flow, (as_it_is, replaced, gone) = run_again(tmp_path, server, {})
    assert private_files(flow, as_it_is.opened)
    assert as_it_is.seen != replaced.seen != gone.seen


MARKER = "xq7marker"
RUN = 1
"""Place of the run among the commands after which markers are looked for."""
MARKED: dict[str, Any] = {
    "privacy__unit": {"column": "person", "max_records": 3},
    "columns__region": {"type": "category", "domain": "private"},
    "columns__sex__outside": "other",
    "publish__keep_private": True,
    "synthesize__records": 500,
}
RECORDS = 104_729  # a number of rows, with the marked one, that nothing else is


def marked_people(home: Path, changes: dict[str, Any]) -> Path:
    """Markers in every subject, in an ignored column and its name, and once in private domains and outside public ones."""
    path = people(home, 997, **MARKED, **changes)
    head, *rows = (home / "people.csv").read_text().splitlines()
    repeated = itertools.islice(itertools.cycle(rows), RECORDS - 1)
    marked = [
        f"{row},{'cough;rash' if i % 3 else 'rash'},{MARKER}person{i // 2},{MARKER}cell"
        for i, row in enumerate(repeated)
    ]
    marked.append(
        f"{MARKER}sex,{MARKER}region,{MARKER}7,{MARKER}grade,rash;{MARKER}sign,{MARKER}person,{MARKER}"
    )
    (home / "people.csv").write_text(
        "\n".join([f"{head},signs,person,{MARKER}header", *marked]) + "\n"
    )
    return path


def exact_numbers(table: Path) -> set[str]:
    """Numbers of rows, of subjects, and of each value of each column, where they are too large to be something else."""
    head, *rows = (line.split(",") for line in table.read_text().splitlines())
    counts = [Counter(column) for column in zip(*rows, strict=True)]
    subjects = len(counts[head.index("person")])
    return {
        str(n)
        for n in (len(rows), subjects, *(n for c in counts for n in c.values()))
        if n > 10_000
    }


def cells_of(name: str, content: bytes) -> bytes:
    """What is written in a file, of a database every cell; without the ports and processes of this machine."""
    if name.endswith((".db", ".sqlite")):
        with closing(sqlite3.connect(":memory:")) as database:
            # memory has no write-ahead log
            database.deserialize(content[:18] + b"\1\1" + content[20:])
            content = "\n".join(database.iterdump()).encode()
    return re.sub(rb"(?:127\.0\.0\.1|localhost):\d+|process \[\d+\]|pid\W+\d+", b"", content)


def outside(home: Path) -> dict[str, bytes]:
    """All files of a home but those in `private/` and `internal/` of a run; the logs in there are looked through as well."""
    return {
        name: unpacked(name, content)
        for name, content in contents(home).items()
        if not re.match(r"runs/[^/]+/(private|internal)/", name) or name.endswith(".log")
    }


def numbers_of(evaluation: Any) -> set[str]:
    """The fractions in an evaluation, as they are written."""
    return {
        text
        for text in re.findall(r"\d+\.\d+(?:e-?\d+)?", json.dumps(evaluation))
        if len(text) > 12
    }


SIGNS = {"type": "set", "max_values": 2}
MARKED_METHODS = {
    "k-tuples": {"columns__signs": {**SIGNS, "domain": "private"}},
    "marginals": {
        **METHODS["marginals"],
        "columns__signs": {**SIGNS, "values": ["ache", "cough", "rash"]},
    },
    "marginals in rounds": {
        **METHODS["rounds"],
        "columns__signs": {**SIGNS, "values": ["ache", "cough", "rash"]},
    },
}


@pytest.mark.parametrize("method", every(2, MARKED_METHODS))
def test_a_marker_in_the_table_is_found_nowhere(
    settled: CommandLine, marginweave: CommandLine, tmp_path: Path, method: str
) -> None:
    """Nor is a number of the internal evaluation, or an exact count: in no file, database, log or line, after any command.

    The home is closed as well: under umask 0, with the database that an earlier version left open, nothing in it is for others
    to read.
    """
    path = marked_people(tmp_path, MARKED_METHODS[method])
    for left in (settled.home / ".marginweave").rglob("*"):
        left.chmod(0o755 if left.is_dir() else 0o644)
    commands: tuple[tuple[str | Path, ...], ...] = (
        (
            "ledger",
            "open",
            "people",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
            "--unit",
            "subject:person",
        ),
        ("run", path, "--run", "r"),
        ("evaluate", "r", "--internal"),
        ("evaluate", "r"),
        ("evaluate", "r", "--json"),
        ("synthesize", "r", "--seed", "8"),
        ("report", "r", "--to", settled.home / "pages"),
        ("runs",),
        ("ledger", "show", "people"),
        ("ledger", "verify"),
        ("ledger", "export", "people", "--to", settled.home / "export"),
        ("run", path, "--run", "r"),
    )
    printed = ""
    for place, command in enumerate(commands):
        # what follows the run is forked from this process
        cli = settled if place == RUN else marginweave
        result = cli(*command, timeout=600, umask=0)
        assert result.returncode == 0, (command, result.stderr)
        printed += result.stdout + result.stderr
        if place == RUN:
            for made in settled.home.rglob("*"):
                assert stat.S_IMODE(made.lstat().st_mode) & 0o077 == 0, made
    run = settled.home / "runs" / "r"
    compared = numbers_of(json.loads((run / "internal" / "evaluation.json").read_text()))
    secret = compared - numbers_of(json.loads((run / "release" / "evaluation.json").read_text()))
    assert len(secret) > 50
    forbidden = re.compile("|".join(map(re.escape, [MARKER, *secret])).encode())
    assert not forbidden.search(printed.encode())
    found = outside(settled.home)
    assert {"prefect.db", "ledger.sqlite", "prefect.log", "prefect-server.log", "metrics.prom"} <= {
        Path(name).name for name in found
    }
    for name, content in found.items():
        assert not forbidden.search(name.encode() + content), name
    assert any(b"person" in content for content in found.values())

    # what is made from noisy counts may come near them by chance; that it follows from these alone is the test above
    exact = exact_numbers(path.with_name("people.csv"))
    assert {str(RECORDS), str((RECORDS + 1) // 2)} < exact
    # so may the protected number of records, which `evaluate` prints: one of a hundred is the exact one, or one of a column
    evaluation = json.loads((run / "release" / "evaluation.json").read_text())
    exact -= {str(evaluation[key]) for key in ("records", "reference_records")}
    assert len(exact) > 10
    number = re.compile(
        rb"(?<![\w.])(?:%s)(?!\w|\.\d)" % "|".join(map(_with_separators, exact)).encode()
    )
    assert number.search(f"read {int(max(exact)):,} rows".encode())
    assert not number.search(printed.encode())
    for name, content in found.items():
        if not re.match(r"runs/r/(release|derived)/|pages/", name):
            assert not number.search(name.encode() + b"\n" + cells_of(name, content)), name


def _with_separators(number: str) -> str:
    """A number of five or six digits, as it stands or with its thousands apart."""
    return f"{number[:-3]}[,_ ]?{number[-3:]}"
