"""Whatever the table holds, everything outside the noise is the same: files, schemas, order, tasks, log, progress, artifacts.

The real flow runs on pairs of tables. Under the same noise, two tables that differ in the order of their rows and in rows
that hold no value must give the same bytes. Under noise of their own, two tables that have nothing in common must give the
same shape of everything. Nothing here is statistical. A stage that tells something of the rows is found out by both.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from prefect import task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.settings import PREFECT_API_URL, temporary_settings

from marginweave.accounting.accounts import Account
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.flows import stages
from marginweave.flows.prefect.session import prefect_session
from marginweave.ledger import Ledger
from marginweave.mechanisms import randomness
from marginweave.mechanisms.randomness import DrawBits
from marginweave.runs.capabilities import RunReference
from marginweave.runs.progress import reporting
from tests.support.configurations import quick, raw
from tests.support.prefect_artifacts import noted_artifacts
from tests.support.release_checks import unpacked
from tests.support.ruled_table import SETTINGS as RULES
from tests.support.ruled_table import SOURCE
from tests.support.samples import every

# whose name in the package is the flow
flow_module = importlib.import_module("marginweave.flows.release")
pytestmark = pytest.mark.system
NAMES = ("sex", "region", "age", "grade", "town")
SETTINGS: dict[str, Any] = {
    "privacy__epsilon": 8.0,
    "columns__town": {"type": "category", "domain": "private"},
    "aggregate__reporting_length": 2,
    "aggregate__percentile": "none",
    "synthesize": {"seed": 4},
    "publish__keep_private": True,
}
PUBLIC: dict[str, Any] = {"columns__town": {"type": "category", "values": ["T0", "T1", "T2"]}}
METHODS: dict[str, dict[str, Any]] = {
    "k-tuples": {},
    "marginals": {"aggregate": {"method": "marginals"}},
    "mixture": {**PUBLIC, "synthesize": {"method": "mixture", "fits": 2, "iterations": 50}},
}
# As many rounds and lengths whatever is drawn: by noisy counts annealing makes fewer rounds, merged values leave less to
# choose, and whether there is a marginal of three attributes is a choice, which is released.
ROUNDS: dict[str, Any] = {
    **PUBLIC,
    "aggregate": {
        "method": "marginals",
        "cliques": {"adaptive": 2, "rounds": 2, "batch": 2, "annealing": False},
        "compress": "none",
    },
}
PROGRESS = re.compile(
    r'"text": "(model \d+ of \d+, [a-z 0-9()]+|turn \d+ \(\d+ at most\)|part \d+ of \d+)"'
)
# What differs from run to run for reasons that no table has part in: names and moments.
CHANGING = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{32}\b|\b[0-9a-f]{64}\b"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.,+:Z]*"
    r'|"seconds": [0-9.]+'
)
Rows = list[tuple[str, ...]]


@dataclass
class Seen:
    """What a run leaves: its end, published files, names of all files, artifacts, lines printed and logged, its tasks."""

    ended: str = ""
    release: dict[str, str] = field(default_factory=dict)
    schemas: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    artifacts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    tasks: list[tuple[str, str]] = field(default_factory=list)

    @property
    def shape(self) -> dict[str, Any]:
        """All of it without the numbers, which are noise, and without what follows from them."""
        artifacts = [
            (name, sorted(content), len(content.get("table", [])))
            for name, content in self.artifacts
        ]
        masked = {
            key: [re.sub(r"\d+", "#", line) for line in getattr(self, key)]
            for key in ("printed", "log")
        }
        return masked | {
            "ended": self.ended,
            "files": self.files,
            "schemas": self.schemas,
            "artifacts": artifacts,
            "tasks": self.tasks,
        }


def equal_noise(*, seed: bytes, context: tuple[str | int, ...], tainted: bool) -> DrawBits:
    """The bits of a draw whose seed everybody knows, and whose release, another one in every run, says nothing."""
    return DrawBits(seed=bytes(len(seed)), context=context[1:], tainted=tainted)


def run(
    home: Path,
    rows: Rows,
    server: str,
    changes: dict[str, Any],
    *,
    equal: bool = False,
    names: tuple[str, ...] = NAMES,
) -> Seen:
    """The flow on a table in a home of its own; with `equal` noise in every draw, or with its own."""
    home.mkdir()
    config = home / "people.yaml"
    config.write_text(yaml.safe_dump(quick(raw(**SETTINGS | changes)), sort_keys=False))
    (home / "people.csv").write_text("\n".join([",".join(names), *map(",".join, rows)]) + "\n")
    ledger, seen = home / "ledger" / "ledger.sqlite", Seen()
    account = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(ledger, environment={}).accounts.open(account, actor="test")
    printed = io.StringIO()
    with (
        mock.patch.dict(os.environ, {"MARGINWEAVE_LEDGER": str(ledger), "PREFECT_API_URL": server}),
        mock.patch.object(randomness, "DrawBits", equal_noise) if equal else nullcontext(),
        prefect_session(home, home / "log"),
        redirect_stdout(printed),
        redirect_stderr(printed),
        reporting(None),
        noted_artifacts(seen.artifacts),
    ):
        state = flow_module.release(str(config), "r", None, str(home), return_state=True)
    seen.ended = without_names(f"{state.name} {state.message}", home)
    seen.tasks = tasks_of(state.state_details.flow_run_id, server)
    describe(seen, home, printed.getvalue())
    return seen


def without_names(text: str, home: Path) -> str:
    """`text` without what is another one in every run."""
    return CHANGING.sub("*", text).replace(str(home), "HOME")


def describe(seen: Seen, home: Path, printed: str) -> None:
    """Fill in what can be read afterwards."""

    def unnamed(text: str) -> str:
        return without_names(text, home)

    for file in sorted(RunFolder.at(home, "r").release.glob("*")):
        content = unpacked(file.name, file.read_bytes())
        seen.release[file.name] = unnamed(content.decode("latin-1"))
        if file.suffix == ".parquet":
            described = pq.read_metadata(file)
            seen.schemas[file.name] = f"{pq.read_schema(file)} {described.created_by}"
        if file.suffix == ".csv":
            seen.schemas[file.name] = content.partition(b"\n")[0].decode()
        if file.suffix == ".json":
            seen.schemas[file.name] = " ".join(sorted(json.loads(content)))
    everything = (str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    kept = (name for name in everything if not name.startswith(("log/", "prefect")))
    seen.files = sorted(unnamed(re.sub(r"[0-9a-f]{16,}", "*", name)) for name in kept)
    # How far a stage is, is said by the clock, of noisy counts alone.
    lines = unnamed(printed).splitlines()
    seen.printed = [line for line in lines if '"event": "progress"' not in line]
    assert all(PROGRESS.search(line) for line in lines if line not in seen.printed)
    lines = (home / "log" / "prefect.log").read_text().splitlines()
    # how many events wait when a run ends is a matter of time
    seen.log = [unnamed(line) for line in lines if "Still processing items" not in line]
    seen.artifacts = [
        (name, json.loads(unnamed(json.dumps(content)))) for name, content in seen.artifacts
    ]


def tasks_of(flow_run: Any, server: str) -> list[tuple[str, str]]:
    """Names and last states of the flow run's tasks, once the server has been told of all of them."""
    found: list[tuple[str, str]] = []
    for _ in range(240):
        with temporary_settings({PREFECT_API_URL: server}), get_client(sync_client=True) as client:
            only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run]))
            told = [
                (t.name, t.state_name or "")
                for t in client.read_task_runs(flow_run_filter=only, limit=200)
            ]
        if (
            told
            and sorted(told) == found
            and {state for _, state in told} <= {"Completed", "Failed"}
        ):
            return found
        found = sorted(told)
        time.sleep(0.5)
    raise AssertionError("the server was not told of the end of all tasks")


def people(seed: int) -> Rows:
    """400 rows of which each holds something."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(400):
        cells = [
            rng.choice(list("fm")),
            rng.choice(["north", "south", "west"]),
            rng.integers(0, 100),
            rng.integers(1, 8),
        ]
        rows.append(tuple(map(str, [*cells, f"T{rng.integers(0, 3)}"])))
    return rows


NOTHING: Rows = [("", "", "", "", ""), (" ", "", "", "", " ")]
OUTSIDE: Rows = [("q", "east", "old", "8", ""), ("F ", "NORTH", "nan", "0", " ")]


def strangers(seed: int) -> Rows:
    """Another number of rows, other values, most of them the same, many missing, another private domain."""
    rng = np.random.default_rng(seed)
    cells = ["m", "west", "99", "7", "Z9"]
    return [tuple(cell if rng.random() < 0.7 else "" for cell in cells) for _ in range(700)]


def same_noise(place: Path, server: str, changes: dict[str, Any]) -> tuple[Seen, Seen]:
    """Rows and two empty ones; the same rows in another order, and two that hold nothing valid."""
    rows = people(1)
    shuffled = [*OUTSIDE[:1], *rows[::-1], *OUTSIDE[1:]]
    first = run(place / "one", [*rows, *NOTHING], server, changes, equal=True)
    return first, run(place / "other", shuffled, server, changes, equal=True)


@pytest.mark.parametrize("method", every(3, METHODS))
def test_neither_order_nor_empty_rows_show(server: str, tmp_path: Path, method: str) -> None:
    """Byte for byte, but for names and moments: every published file, artifact, line and task."""
    one, other = same_noise(tmp_path, server, METHODS[method])
    assert one.ended.startswith("Completed")
    assert {"aggregates.csv", "synthetic.csv", "privacy.json", "report.html"} <= one.release.keys()
    assert len(one.tasks) >= 10
    assert len(one.log) >= 10
    for name, content in one.release.items():
        same = other.release[name] == content
        assert same, name  # spelt so: a difference of whole files would take minutes to print
    assert other.artifacts == one.artifacts
    assert other.printed == one.printed
    assert other.log == one.log
    assert other.shape == one.shape


# Records that break a rule, and what they are counted as: by rules that leave one possibility, so that no secret word decides.
BROKEN: dict[tuple[str, ...], tuple[str, ...]] = {
    # a child that earns and works
    ("7", "20", "c", "2024-01-03", "2024-02-05", "2024-02-09", "1.0", "7.5"):
    ("7", "N", "0", "2024-01-03", "2024-02-05", "2024-02-09", "1.0", "7.5"),
    ("40", "20", "a", "2024-03-20", "2024-01-05", "2024-02-09", "", "30"):  # born after arriving
    ("40", "20", "a", "2024-02-16", "2024-02-29", "2024-03-30", "", "30"),
    ("70", "20", "b", "2024-01-03", "2024-03-05", "2024-01-02", "8", ""):  # leaves before arriving
    ("70", "20", "b", "2024-01-03", "2024-03-05", "2024-03-05", "8", ""),
    ("20", "5", "d", "", "", "2024-02-09", "3", "4"):  # leaves without having arrived
    ("20", "5", "d", "", "", "", "3", "4"),
}  # fmt: skip


def test_records_that_break_rules_leave_nothing_of_that(server: str, tmp_path: Path) -> None:
    """All records of one table keep the rules between columns, all of the other break one: byte for byte the same, as above."""
    broken = [list(BROKEN)[i] for i in np.random.default_rng(3).integers(0, len(BROKEN), 300)]
    tables = {"keeping": [BROKEN[row] for row in broken], "breaking": broken}
    one, other = (
        run(tmp_path / n, t, server, RULES, equal=True, names=SOURCE) for n, t in tables.items()
    )
    assert one.ended.startswith("Completed")
    assert {
        name for name, content in one.release.items() if other.release[name] != content
    } == set()
    assert (other.artifacts, other.printed, other.log) == (one.artifacts, one.printed, one.log)
    assert other.shape == one.shape


@pytest.mark.parametrize("method", every(4, [*METHODS, "rounds"], first=3))
def test_tables_with_nothing_in_common_leave_the_same_shape(
    server: str, tmp_path: Path, method: str
) -> None:
    """Names and number of files, columns and their types, tasks and their states, lines of log and progress, artifacts."""
    changes = {**METHODS, "rounds": ROUNDS}[method]
    one = run(tmp_path / "one", people(1), server, changes)
    other = run(tmp_path / "other", strangers(2), server, changes)
    assert one.release != other.release
    for key, value in one.shape.items():
        assert other.shape[key] == value, key


def test_a_stop_tells_nothing_of_its_reason(server: str, tmp_path: Path) -> None:
    """Two tables that break different rules, in different rows and columns: the same end, tasks, log and files."""
    strict = {f"columns__{name}__outside": "error" for name in ("sex", "region")}
    broken = (
        [("q", "north", "3", "1", "T0"), *people(1)],
        [*strangers(2), ("m", "zz", "", "", "")],
    )
    one, other = (run(tmp_path / f"{i}", rows, server, strict) for i, rows in enumerate(broken))
    assert one.ended.startswith("Failed")
    assert {state for _, state in one.tasks} == {"Failed"}
    assert (other.ended, other.tasks, other.files) == (one.ended, one.tasks, one.files)
    assert (other.log, other.printed, other.release) == (one.log, one.printed, {})


# --- the tests above can fail --------------------------------------------------------------------------------------


def first_cell(private: RunReference) -> str:
    """Something of the rows."""
    return Path(private.source).read_text().splitlines()[1].split(",")[0]


def logging_stage(private: RunReference, _: Any) -> None:
    logging.getLogger("prefect.flow_runs").warning("the first row has %r", first_cell(private))


def task_stage(private: RunReference, _: Any) -> None:
    for value in {line.split(",")[0] for line in Path(private.source).read_text().splitlines()[1:]}:

        @task(name=f"look at {value!r}")
        def look() -> None:
            pass

        look()


def file_stage(private: RunReference, _: Any) -> None:
    (private.folder.private / f"of-{first_cell(private) or 'none'}.tmp").write_text("")


@contextmanager
def telling(tell: Callable[[RunReference, Any], None]) -> Iterator[None]:
    """After encoding, something more is done."""
    encode = stages.encode

    @functools.wraps(encode)  # it is a stage as well
    def more(private: RunReference, preprocessed: Any) -> Any:
        result = encode(private, preprocessed)
        tell(private, preprocessed)
        return result

    with mock.patch.object(stages, "encode", more):
        yield


@pytest.mark.parametrize("tell", every(3, [logging_stage, task_stage, file_stage]))
def test_a_stage_that_tells_something_of_the_rows_is_found_out(
    server: str, tmp_path: Path, tell: Callable[[RunReference, Any], None]
) -> None:
    """A line of log, a task a value, a file named after a cell."""
    with telling(tell):
        one, other = same_noise(tmp_path, server, {})
    assert one.shape != other.shape
