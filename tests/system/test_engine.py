"""A Dask cluster counts what one machine counts: with two workers, over TLS, and while workers die."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from distributed import Client

from marginweave.base.errors import MachineError, StageError
from marginweave.base.parallel import LocalEngine
from marginweave.configuration.execution import EngineSettings
from marginweave.counts import cluster as cluster_module
from marginweave.counts.cluster import DaskEngine, check_workers, dask_engine
from marginweave.prepare.codes import EncodedBlocks
from tests.support.command_line import CommandLine
from tests.support.counting import same_counts
from tests.support.engine_tests import EngineTests, counted, encoded_blocks
from tests.support.fatal_workers import Failing, FatalBlocks, Slow, Square
from tests.support.places import EXAMPLES, REPOSITORY

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskEngine]:
    """A cluster of this machine's cores."""
    place = tmp_path_factory.mktemp("private")
    with dask_engine(EngineSettings(dask="local"), (), place) as engine:
        assert place in Path(engine.client.run_on_scheduler(_folder)).parents
        yield engine
    assert not list(place.iterdir())


def _folder(dask_scheduler) -> str:
    """Where a scheduler keeps files."""
    return dask_scheduler.local_directory


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> EncodedBlocks:
    return encoded_blocks(tmp_path_factory.mktemp("blocks"))


class TestDask(EngineTests):
    """Two workers of this machine, each a process; a failure is told without the data of its part."""

    failure = StageError

    @pytest.fixture
    def engine(self, cluster: DaskEngine) -> DaskEngine:
        return cluster


def test_what_fails_on_a_worker_is_told_without_its_data(
    cluster: DaskEngine, capfd: pytest.CaptureFixture
) -> None:
    """Neither the error nor anything that Dask writes has the part, what the function holds, or the text of the error."""
    with pytest.raises(StageError, match=r"^ValueError at .*, on a worker$") as caught:
        list(cluster.map(Failing("Ada Lovelace"), ["Konrad Zuse"]))
    assert caught.value.__context__ is None
    written = "".join(capfd.readouterr())
    assert "Lovelace" not in written
    assert "Zuse" not in written
    held = cluster.client.run_on_scheduler(
        lambda dask_scheduler: [str(e) for e in dask_scheduler.get_events().values()]
    )
    assert "Lovelace" not in str(held)
    assert "Zuse" not in str(held)


def test_a_cluster_shows_no_page_and_listens_on_loopback_alone(cluster: DaskEngine) -> None:
    """No dashboard, metrics, health or log of a worker is served; what else listens speaks TLS."""
    me = psutil.Process()
    found = [
        c.laddr
        for p in (me, *me.children(recursive=True))
        for c in p.net_connections()
        if c.status == "LISTEN"
    ]
    assert found
    for place in found:
        assert place.ip == "127.0.0.1"
        for page in (
            "",
            "status",
            "health",
            "metrics",
            "info/main/workers.html",
            "json/counts.json",
        ):
            assert served(f"http://127.0.0.1:{place.port}/{page}") is None


def served(url: str) -> int | None:
    """The status with which a page is served; None where there is no such page, or no HTTP at all."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except (OSError, http.client.HTTPException):  # also of 404
        return None


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """An authority and one certificate, by the commands of docs/scale.md."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(
        folder,
        "req",
        "-x509",
        *curve,
        "-days",
        "365",
        "-subj",
        "/CN=marginweave-dask",
        "-keyout",
        "ca-key.pem",
        "-out",
        "ca.pem",
    )
    openssl(
        folder,
        "req",
        *curve,
        "-subj",
        "/CN=marginweave-node",
        "-keyout",
        "node-key.pem",
        "-out",
        "node.csr",
    )
    openssl(
        folder,
        "x509",
        "-req",
        "-in",
        "node.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca-key.pem",
        "-CAcreateserial",
        "-days",
        "365",
        "-out",
        "node.pem",
    )
    return folder / "ca.pem", folder / "node.pem", folder / "node-key.pem"


@contextlib.contextmanager
def scheduler_over_tls(folder: Path, files: tuple[Path, Path, Path]) -> Iterator[str]:
    """`dask scheduler` and two `dask worker`, each a process of its own, as the page says; the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tls://127.0.0.1:{free.getsockname()[1]}"
    security = [
        f"--tls-{option}={file}"
        for option, file in zip(("ca-file", "cert", "key"), files, strict=True)
    ]
    dask = [str(Path(sys.executable).parent / "dask")]
    environment = {
        **os.environ,
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
        "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    }
    commands = [[*dask, "scheduler", "--host", address, "--no-dashboard", *security]]
    commands += [
        [
            *dask,
            "worker",
            address,
            "--host",
            "127.0.0.1",
            "--nthreads=1",
            "--memory-limit=0",
            "--no-dashboard",
            "--local-directory",
            str(folder),
            *security,
        ]
    ] * 2
    with contextlib.ExitStack() as stack, (folder / "dask.log").open("w") as log:
        for command in commands:
            process = stack.enter_context(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            )
            stack.callback(process.terminate)
        yield address


def test_workers_of_another_version_are_refused_at_once(
    cluster: DaskEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_workers(cluster)
    run = cluster.client.run
    # another answer
    monkeypatch.setattr(cluster.client, "run", lambda _, **settings: run(os.getpid, **settings))
    with pytest.raises(StageError, match="every worker must have marginweave"):
        check_workers(cluster)


def patiently(cluster: DaskEngine, private: Path, work: Callable[[DaskEngine], None]) -> None:
    """Do some work on workers of which some die; after a fault of the machine once more, on another cluster, as a stage does.

    Dask replaces workers that have died, but for rare cases, on a machine under load, in which it gives up.
    """
    try:
        work(cluster)
    except MachineError:
        with dask_engine(EngineSettings(dask="local"), (), private) as another:
            work(another)


@pytest.mark.parametrize(("fatal", "deaths"), [(0, 1), (13, 2)])
def test_a_worker_that_dies_in_the_middle_changes_no_count(
    cluster: DaskEngine, blocks: EncodedBlocks, tmp_path: Path, fatal: int, deaths: int
) -> None:
    """SIGKILL while a block is read, in both passes: the parts of the dead worker are counted anew, and once."""
    (tmp_path / "client").write_text(str(os.getpid()))
    one, here = counted(blocks, LocalEngine())

    def count_as_workers_die(engine: DaskEngine) -> None:
        for mark in tmp_path.glob("death-*"):
            mark.unlink()
        other, there = counted(FatalBlocks(blocks, fatal, deaths, tmp_path), engine)
        assert len(list(tmp_path.glob("death-*"))) == deaths
        assert (one == other, same_counts(here, there)) == (True, True)

    patiently(cluster, tmp_path, count_as_workers_die)


def test_parts_that_are_worked_on_twice_count_once(cluster: DaskEngine, tmp_path: Path) -> None:
    """Results that are done but not taken die with their workers; they are made again, and each is taken once."""

    def take_as_workers_die(engine: DaskEngine) -> None:
        calls = tmp_path / f"calls of {id(engine)}"
        ahead = 2 * engine.cores
        results = engine.map(Square(calls), range(ahead + 3))
        taken = [next(results)]
        deadline = time.monotonic() + 60
        while len(calls.read_text().split()) < ahead and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in set(map(int, calls.read_text().split())):
            os.kill(pid, signal.SIGKILL)
        assert taken + list(results) == [n * n for n in range(ahead + 3)]
        assert len(calls.read_text().split()) > ahead + 3

    patiently(cluster, tmp_path, take_as_workers_die)


@pytest.mark.long  # waits a minute for workers that do not come back
def test_a_part_over_which_all_workers_die_ends_the_stage(
    cluster: DaskEngine, blocks: EncodedBlocks, tmp_path: Path
) -> None:
    (tmp_path / "client").write_text(str(os.getpid()))
    with pytest.raises(MachineError, match="died one after the other"):
        counted(FatalBlocks(blocks, 13, 99, tmp_path), cluster)
    assert list(cluster.map(Square(tmp_path / "calls"), [2, 3])) == [4, 9]


@pytest.mark.long  # half a minute
def test_a_scheduler_over_tls(blocks: EncodedBlocks, tmp_path: Path) -> None:
    """Two workers, processes of their own, give identical counts; a stranger, and one without TLS, is not let in."""
    (tmp_path / "other").mkdir()
    files, strangers = certificates(tmp_path), certificates(tmp_path / "other")
    names = {"ca": "ca.pem", "cert": "node.pem", "key": "node-key.pem"}
    with scheduler_over_tls(tmp_path, files) as address:
        settings = EngineSettings(dask=address, **names)
        with dask_engine(settings, files, tmp_path) as engine:
            engine.client.wait_for_workers(2, timeout="60s")
            one, here = counted(blocks, LocalEngine())
            other, there = counted(blocks, engine)
            with pytest.raises(StageError):
                list(engine.map(Failing("Ada Lovelace"), ["Konrad Zuse"]))
        assert (one == other, same_counts(here, there)) == (True, True)
        with (
            pytest.raises(StageError, match="cannot be reached"),
            dask_engine(settings, strangers, tmp_path),
        ):
            pass
        host, port = address.removeprefix("tls://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as plain:
            plain.sendall(bytes(64))
            assert says_nothing(plain)
    log = (tmp_path / "dask.log").read_text()
    for private in ("Lovelace", "Zuse"):
        assert private not in log


def says_nothing(plain: socket.socket) -> bool:
    """Whether the other side hangs up, at most with a TLS alert (record type 21)."""
    try:
        return plain.recv(1) in {b"", b"\x15"}
    except ConnectionError:
        return True


@contextlib.contextmanager
def dask_process(*command: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dask's own command line, killed at the end."""
    dask, log = str(Path(sys.executable).parent / "dask"), (folder / "dask.log").open("ab")
    paths = {"PYTHONPATH": str(REPOSITORY)}  # of the tests' own functions
    process = subprocess.Popen(
        [dask, *command], env={**os.environ, **paths}, stdout=log, stderr=log
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        log.close()


@contextlib.contextmanager
def worker_of(address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that nobody starts again once it has died, from when the scheduler knows it."""
    places = ("--host", "127.0.0.1", "--local-directory", str(folder))
    settings = ("--nthreads=1", "--no-nanny", "--no-dashboard", "--memory-limit=0")
    with dask_process("worker", address, *places, *settings, folder=folder) as worker:
        with Client(address, timeout="120s", set_as_default=False) as client:
            client.wait_for_workers(1, timeout=120)
        yield worker


@contextlib.contextmanager
def lone_scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler on loopback and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with dask_process("scheduler", "--host", address, "--no-dashboard", folder=folder) as scheduler:
        yield address, scheduler


@pytest.mark.long  # waits for workers that do not come
def test_a_cluster_that_all_workers_have_left_ends_the_stage(
    blocks: EncodedBlocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only worker dies in the middle; the same work is done once there is another one."""
    (tmp_path / "client").write_text(str(os.getpid()))
    with lone_scheduler(tmp_path) as (address, scheduler):
        settings = EngineSettings(dask=address)
        with monkeypatch.context() as impatient, worker_of(address, tmp_path):
            impatient.setattr(cluster_module, "_DESERTED", 2.0)
            with (
                dask_engine(settings, (), tmp_path) as engine,
                pytest.raises(MachineError, match="has had no worker for 2 seconds"),
            ):
                counted(FatalBlocks(blocks, 13, 1, tmp_path), engine)
        with worker_of(address, tmp_path), dask_engine(settings, (), tmp_path) as engine:
            one, here = counted(blocks, LocalEngine())
            other, there = counted(blocks, engine)
            assert (one == other, same_counts(here, there)) == (True, True)
            waiting = engine.map(Slow(tmp_path / "calls"), [1, 2, 3])
            assert next(waiting) == 1
            scheduler.kill()
            with pytest.raises(MachineError, match="scheduler is lost"):
                list(waiting)
            monkeypatch.setattr(
                engine.client, "close", partial(closed_too_late, engine.client.close)
            )


def closed_too_late(close: Callable[[], None]) -> None:
    """What closing a client whose scheduler is lost may end with: nothing comes of it."""
    close()
    raise TimeoutError


@pytest.mark.long  # it waits for the minute that a cluster may be without a worker
def test_a_run_goes_on_when_there_are_workers_again(alone: CommandLine, tmp_path: Path) -> None:
    """All workers die after a draw: exit 1, what is charged stays, and `resume` draws the rest, each once."""
    with lone_scheduler(tmp_path) as (address, _):
        place = tmp_path / "affairs.yaml"
        place.write_text(
            (EXAMPLES / "affairs.yaml").read_text() + f'\nengine: {{dask: "{address}"}}\n'
        )
        with worker_of(address, tmp_path) as worker:
            command = alone.command("run", place, "--run", "one")
            pipe = subprocess.PIPE
            run = subprocess.Popen(
                command, cwd=alone.home, env=alone.variables, stdout=pipe, stderr=pipe, text=True
            )
            assert run.stdout is not None
            has_counted = any(
                json.loads(line).get("stage") == "aggregate count" for line in run.stdout
            )
            assert has_counted, run.communicate()[1]
            worker.send_signal(signal.SIGSTOP)  # the scheduler counts on it
            time.sleep(3)
            worker.kill()
            _, said = run.communicate(timeout=600)
        assert (run.returncode, "worker" in said) == (1, True), said
        charged = (alone.home / "runs" / "one" / "private" / "draws").iterdir()
        assert list(charged)
        with worker_of(address, tmp_path):
            resumed = alone("resume", "one", timeout=600)
        assert resumed.returncode == 0, resumed.stderr
    verified = alone("ledger", "verify", "--example")
    assert verified.returncode == 0, verified.stderr
