"""The notebook interface runs the same stages under the same ledger, in the process of its caller."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pandas as pd
import pytest

from marginweave import Synthesizer
from marginweave.base.errors import BudgetError, InputError, StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.publish.statement import TYPED
from marginweave.runs.lookup import run_lock
from tests.golden.releases import comparable_files
from tests.support.command_line import CommandLine
from tests.support.configurations import quick, raw
from tests.support.people_table import people, people_frame
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.system


@pytest.fixture
def ledgered(marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """This process with the environment of the command line."""
    for name, value in marginweave.variables.items():
        if name.startswith(("PREFECT_", "MARGINWEAVE_")):
            monkeypatch.setenv(name, value)
    return marginweave


def test_fit_and_sample(ledgered: CommandLine) -> None:
    """fit charges once; sample is free, has the declared columns, and leaves no copy of the frame behind."""
    with pytest.raises(BudgetError, match="marginweave ledger open people"):
        Synthesizer(quick(raw())).fit(people_frame())
    ledgered("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6")
    model = Synthesizer(quick(raw())).fit(people_frame())
    sample = model.sample(50, seed=3)
    assert list(sample.columns) == ["sex", "region", "age", "grade"]
    assert len(sample) == 50
    assert set(sample["sex"].dropna()) <= {"f", "m"}
    assert sample.equals(model.sample(50, seed=3))
    assert len(model.sample()) == model.release.published.aggregates.record_count
    Synthesizer(quick(raw())).fit(people_frame())
    assert "1 release(s)" in ledgered("ledger", "list").stdout
    assert not list(Path(os.environ["MARGINWEAVE_HOME"]).rglob("frame.parq*"))


def test_a_sample_has_the_dtypes_of_the_frame(ledgered: CommandLine) -> None:
    """So has the file that the release alone gives anew; no text of the frame that is not declared is in any of it."""
    ledgered("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6")
    frame = people_frame()
    sexes = pd.CategoricalDtype(["m", "f", "otherwise-sexed"], ordered=True)
    dates = pd.to_datetime("2019-01-31") + pd.to_timedelta(range(len(frame)), "h")
    typed = frame.assign(
        sex=frame["sex"].astype(sexes),
        region=frame["region"].astype("string"),
        age=pd.to_numeric(frame["age"]).astype("UInt8"),
        grade=pd.to_numeric(frame["grade"]).astype("Int16"),
        seen=dates.tz_localize("UTC").tz_convert("Asia/Tokyo"),
    )
    days = {
        "type": "datetime",
        "bounds": ["2019-01-01", "2021-12-31"],
        "bins": "year",
        "missing": ["none"],
    }
    model = Synthesizer(quick(raw(columns__seen=days))).fit(typed)
    typed["sex"] = typed["sex"].astype(pd.CategoricalDtype(["f", "m"], ordered=True))
    for records in (1, 50):
        sample = model.sample(records)
        assert sample.dtypes.to_dict() == typed[sample.columns].dtypes.to_dict()
    assert set(sample["seen"].dropna().dt.year) <= {2019, 2020, 2021}
    run = model.release.statement.run
    ledgered(
        "synthesize", run, "--seed", "9", "--records", "30", "--to", str(ledgered.home / "anew")
    )
    for place in (ledgered.home / "anew", ledgered.home / "runs" / run / "release"):
        assert (
            pd.read_parquet(place / "synthetic.parquet").dtypes.to_dict() == sample.dtypes.to_dict()
        )
        assert b"otherwise-sexed" not in b"".join(
            path.read_bytes() for path in place.iterdir() if path.is_file()
        )
    assert str(TYPED) in model.release.statement.assumptions


def test_what_cannot_be_fitted(ledgered: CommandLine) -> None:
    with pytest.raises(InputError, match="fit must be called"):
        Synthesizer(raw()).sample(1)
    with pytest.raises(InputError, match="lacks the declared column 'grade'"):
        Synthesizer(raw()).fit(people_frame().drop(columns="grade"))
    with pytest.raises(InputError, match=r"privacy.epsilon \(0\) must be positive"):
        Synthesizer(raw(privacy__epsilon=0))


UNCHANGED = """
import ctypes, os, resource, signal, sys
from marginweave import Synthesizer
from tests.support.configurations import quick, raw
from tests.support.people_table import people_frame

def settings():
    umask = os.umask(0)
    os.umask(umask)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    dumpable = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
    ours = {n: v for n, v in os.environ.items() if n.startswith(("PREFECT_", "MARGINWEAVE_", "GX_", "DO_NOT_TRACK"))}
    return umask, handlers, resource.getrlimit(resource.RLIMIT_CORE), dumpable, ours

os.umask(0o002)
before = settings()
Synthesizer(quick(raw())).fit(people_frame())
assert settings() == before
assert not {"prefect", "great_expectations", "typer"} & {*sys.modules}
"""


def _python(ledgered: CommandLine, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        env=ledgered.variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_fit_changes_nothing_of_its_process_and_needs_no_prefect(ledgered: CommandLine) -> None:
    """No signal handler, limit, umask or variable; yet what it writes is closed to others, and Prefect has no database."""
    ledgered("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6")
    done = _python(ledgered, UNCHANGED)
    assert done.returncode == 0, done.stderr
    assert not (ledgered.home / ".marginweave" / "prefect").exists()
    (run,) = (ledgered.home / "runs").iterdir()
    kept = [
        path
        for path in run.rglob("*")
        if "release" not in path.relative_to(run).parts and path.is_file()
    ]
    assert kept
    assert {oct(path.stat().st_mode & 0o077) for path in kept} == {"0o0"}


STOPPED_AFTER_DRAWS = """
import os, signal
from marginweave import Synthesizer
from marginweave.runs.bookkeeping import Bookkeeper

step = Bookkeeper.step
def dying(self, name, *arguments):
    if name == "normalize":
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, name, *arguments)
Bookkeeper.step = dying
Synthesizer({config!r}).fit({source!r})
"""


def test_a_killed_fit_is_resumed_by_run_with_the_same_bytes(ledgered: CommandLine) -> None:
    """Of one run that was killed when everything was drawn, a copy is finished by `fit`, and one by `marginweave run`."""
    config, kept = people(ledgered.home, 200), ledgered.home.with_name("kept")
    source = ledgered.home / "people.csv"
    ledgered("ledger", "open", "people", "--for", config)
    killed = _python(ledgered, STOPPED_AFTER_DRAWS.format(config=str(config), source=str(source)))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    shutil.copytree(ledgered.home, kept)
    by_fit = Synthesizer(config).fit(source).release.place
    expected = comparable_files(Path(by_fit), ledgered.home)
    shutil.rmtree(ledgered.home)
    kept.rename(ledgered.home)
    resumed = ledgered("run", config)
    assert resumed.returncode == 0, resumed.stderr
    files = comparable_files(Path(by_fit), ledgered.home)
    assert files.keys() == expected.keys()
    assert [name for name in files if files[name] != expected[name]] == []


KILLED = """
import os, signal, sys
import pandas as pd
from marginweave import Synthesizer
from marginweave.sources.source import TableSource
from tests.support.configurations import quick, raw
from tests.support.people_table import people_frame
read = TableSource.tables
def dying(self, columns):
    rows = sum(table.num_rows for table in read(self, columns))
    assert rows == len(people_frame())
    os.kill(os.getpid(), signal.SIGKILL)
TableSource.tables = dying
Synthesizer(quick(raw())).fit(people_frame())
"""


def _with_rows(home: Path) -> list[Path]:
    """Files that hold a table as it was given: Parquet files outside what was released."""
    files = [path for path in home.rglob("*") if path.is_file() and path.parent.name != "release"]
    return [path for path in files if path.read_bytes()[:4] == b"PAR1"]


def test_a_killed_fit_leaves_no_rows(ledgered: CommandLine) -> None:
    """The rows were readable when SIGKILL came and are in no file afterwards; the next fit goes on, the one after is free."""
    ledgered("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6")
    killed = _python(ledgered, KILLED)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (link,) = ledgered.home.rglob("frame.parq*")
    assert link.is_symlink()
    assert not link.exists()
    assert _with_rows(ledgered.home) == []
    models, runs = [], []
    for _ in range(2):
        models.append(Synthesizer(quick(raw())).fit(people_frame()))
        (line,) = [
            line for line in ledgered("runs").stdout.splitlines() if line.startswith("people-")
        ]
        assert line.split()[-1] == "no", line
        runs.append(line.split()[0])
    assert not (ledgered.home / "runs" / runs[-1] / "private").exists()
    assert not list(ledgered.home.rglob("frame.parq*"))
    assert "1 release(s)" in ledgered("ledger", "list").stdout
    assert len(models[-1].sample(5)) == 5


def test_two_fits_of_one_name_do_not_meet(ledgered: CommandLine) -> None:
    """The second is refused before it writes anything; the first one's link stays what it was."""
    folder = RunFolder.at(ledgered.home, "one")
    with run_lock(folder):
        folder.create_internal()
        link = folder.internal / "frame.parquet"
        link.symlink_to("/proc/1/fd/1")
        before = sorted(folder.path.rglob("*"))
        refused = []

        def fit() -> None:
            try:
                Synthesizer(raw(), home=ledgered.home).fit(people_frame(), run="one")
            except StageError as error:
                refused.append(str(error))

        other = threading.Thread(target=fit)
        other.start()
        other.join()
        assert refused == ["run one is in progress in another process or thread"]
        assert (str(link.readlink()), sorted(folder.path.rglob("*"))) == ("/proc/1/fd/1", before)
