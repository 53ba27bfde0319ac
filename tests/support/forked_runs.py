"""Runs in processes forked from the one of the tests: killed at a named transition or after some time, or met by a fault.

A run calls the functions of the stages, without Prefect. Killed as the installed program, through Prefect, it is at random
times (tests/system/test_kills.py).
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from marginweave.base import durable as files
from marginweave.base.durable import StagedFile
from marginweave.base.errors import MarginweaveError
from marginweave.checkpoints import store
from marginweave.checkpoints.codecs import unpack_table
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import Store
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.draws import files as draw_files
from marginweave.draws.files import DrawSecrets, DrawStore
from marginweave.flows import stages
from marginweave.ledger.draws import Draws
from marginweave.ledger.releases import Approvals, Releases
from marginweave.measurements import (
    contribution_bound,
    pair_scores,
    private_values,
    quantile_bounds,
    record_count,
    round_draws,
    tuple_level,
    whole_marginals,
)
from marginweave.mechanisms import laplace
from marginweave.mechanisms.randomness import DrawBits
from marginweave.publish.tables import csv_bytes
from marginweave.released.program import Program
from marginweave.runs import capabilities as references
from marginweave.runs import continuity, drawing
from marginweave.runs.lookup import decide
from marginweave.tasks import budget as budget_stage
from marginweave.tasks import publish as publish_stage
from marginweave.tasks.normalize import load_counts
from marginweave.tasks.publish import counts_and_marginals
from tests.support import plain_runs
from tests.support.forks import RAISED, Ended, Fork
from tests.support.outcomes import Injected
from tests.support.shapes import NewVictim

STAGES = (
    "validate", "preprocess", "encode", "reserve_budget", "aggregate", "collect_bounds", "collect",
    "normalize_counts", "fit_model", "fit_row_models", "synthesize", "decode", "evaluate", "publish",
)  # fmt: skip
LEASE = re.compile(r"\.[0-9a-f]{32}")
LEDGER: dict[str, tuple[type, str]] = {
    "reserve": (Releases, "reserve"),
    "take_lease": (Draws, "take_lease"),
    "begin_draw": (Draws, "begin"),
    "commit_draw": (Draws, "commit"),
    "lose_draw": (Draws, "lose"),
    "give_back": (Draws, "return_unused"),
    "finish": (Releases, "publish"),
    "submit": (Approvals, "submit"),
    "decide": (Approvals, "decide"),
}


def made(payload: bytes) -> bytes:
    """What a mechanism has made, before a byte of it is on disk."""
    return payload


# transition → where the call is that makes it
POINTS: dict[str, tuple[Any, str]] = {
    **LEDGER,
    "draw level": (tuple_level, "draw_level"),
    "draw number": (record_count, "add_noise"),
    "draw percentile": (contribution_bound, "select_percentile"),
    "draw bound": (quantile_bounds, "select_percentile"),
    "draw values": (private_values, "discover_labels"),
    "draw marginals": (whole_marginals, "measure_marginals"),
    "draw scores": (pair_scores, "measure_indif"),
    "draw pick": (round_draws, "select_candidate"),
    "words": (DrawBits, "words"),
    "Laplace noise": (laplace, "draw_laplace_noise"),
    "reconcile": (budget_stage, "reconcile"),
    "room": (DrawStore, "room"),
    "room on disk": (os, "posix_fallocate"),
    "secret": (DrawSecrets, "make"),
    "sealed noise": (DrawSecrets, "keep_noise"),
    "secret written": (draw_files, "write_once"),
    "secret read": (DrawSecrets, "read"),
    "secret destroyed": (DrawSecrets, "destroy"),
    "made": (sys.modules[__name__], "made"),
    "staged": (DrawStore, "stage"),
    "committed": (DrawStore, "mend"),
    "destroy": (DrawStore, "destroy"),
    "checkpoint": (Store, "put"),
    "file written": (StagedFile, "write"),
    "file named": (os, "link"),
    "file replaced": (Path, "replace"),
    "file removed": (Path, "unlink"),
    "fsync": (os, "fsync"),
    "release file": (publish_stage, "replace_file"),
    "published": (continuity, "publish_staged"),
    "proposed": (continuity, "propose_staged"),
    "manifest": (RunFolder, "write_manifest"),
    "folders": (RunFolder, "create"),
    "purge": (RunFolder, "purge_private"),
    "folder removed": (shutil, "rmtree"),
}


class ForkedRuns:
    """Does what `Victim.order` orders; knows how often a run of each shape passes each transition."""

    def __init__(self, new_victim: NewVictim) -> None:
        self._new_victim = new_victim
        self._calls: dict[str | None, Counter[str]] = {}

    def calls(self, shape: str | None) -> Counter[str]:
        """How often an undisturbed run of a shape passes each transition."""
        if shape not in self._calls:
            self._calls[shape] = _count(self._new_victim(shape).order())
        return self._calls[shape]

    def ask(self, order: dict[str, Any]) -> Ended:
        """Do an order to its end, or until it is killed: by itself, or after some time."""
        run = begin(order)
        if "after" in order and not run.has_ended(order["after"]):
            run.kill()
        return Ended(code=run.wait(), message=run.err)


def begin(order: dict[str, Any]) -> Fork:
    """Begin to do an order."""
    return Fork(partial(_do, order))


def _count(order: dict[str, Any]) -> Counter[str]:
    """Make a run here, and count the transitions that it passes."""
    calls: Counter[str] = Counter()
    with ExitStack() as patches:
        patches.enter_context(mock.patch.dict(os.environ, {"MARGINWEAVE_LEDGER": order["ledger"]}))
        for point, (owner, name) in POINTS.items():
            counting = _counting(calls, point, getattr(owner, name))
            patches.enter_context(mock.patch.object(owner, name, counting))
        run_by_stages(order)
    return calls


def _do(order: dict[str, Any]) -> int:
    """Do an order in this process, which is a fork, and return its exit code; where that is not 0 it says why."""
    os.environ.update({"MARGINWEAVE_LEDGER": order["ledger"], **order.get("environment", {})})
    try:
        return _run(order)
    except MarginweaveError as error:
        said, code = getattr(error, "detail", str(error)), error.exit_code
    except BaseException as error:
        said, code = f"{type(error).__name__}: {error}", RAISED
    # which may be the fault
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    sys.stderr.write(said)
    return code


def _run(order: dict[str, Any]) -> int:
    _log_makes(order["makes"])
    if "version" in order:
        _become(order["version"])
    # as on another machine, where the lock of the file system does not reach
    if order.get("no_lock"):
        plain_runs.run_lock = lambda *_, **__: nullcontext()
    if "point" in order:
        _kill_at(*order["point"])
    if "fault" in order:
        _break_disk_at(*order["fault"])
    if "outcome" in order:
        Injected(order, FAULTS)
    if "decision" in order:
        return (
            0 if decide(Path(order["home"]), order["run"], **order["decision"])[1].approved else 96
        )
    if order.get("recompute"):
        return 0 if recompute(Path(order["home"]), order["run"]) else 98
    run_by_stages(order)
    return 0


def run_by_stages(order: dict[str, Any]) -> None:
    """Run by the functions of the stages, without Prefect; a fault of the machine ends it at once."""
    with mock.patch.object(stages, "with_patience", lambda stage: stage):
        plain_runs.run_plainly(Path(order["home"]), Path(order["config"]), order["run"])


def recompute(home: Path, run: str) -> bool:
    """Whether the published tables follow from the committed draws that a finished run has kept."""
    folder = RunFolder.at(home, run)
    shutil.rmtree(folder.derived)
    folder.derived.mkdir()
    reference = references.RunReference(folder=folder, source="", ledger_file=None, lease="none")
    public = reference.derived
    collected = stages.collect(reference)
    normalized = stages.normalize_counts(public, collected)
    fits = isinstance(reference.configuration.synthesize, MixtureSynthesis)
    fitted = stages.fit_model(public, normalized) if fits else None
    parts = {"normalize": normalized}
    parts["synthesize"] = stages.synthesize(public, normalized, fitted)
    decoded = stages.decode(public, parts, None)
    counts = counts_and_marginals(public, load_counts(public, normalized), collected)[2][
        "aggregates.csv"
    ]
    records = csv_bytes(pa.concat_tables(map(unpack_table, public.load_blocks(decoded))))
    return (counts, records) == tuple(
        (folder.release / f"{t}.csv").read_bytes() for t in ("aggregates", "synthetic")
    )


def _log_makes(path: str) -> None:
    """Write a line for every draw that a mechanism begins to make and for every one that it has made, with its digest."""
    run_draw = drawing.run_draw

    def tell(*words: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, f"{' '.join(words)}\n".encode())
        os.close(descriptor)

    def logging(
        ledger: Any, store: Any, secrets: Any, attempt: Any, name: str, prepared: Any
    ) -> tuple[bytes, Any]:
        def told(bits: Any, noise: bytes) -> bytes:
            tell("begun", name)
            payload: bytes = prepared.make(bits, noise)
            tell("made", name, hashlib.sha256(payload).hexdigest())
            return made(payload)

        logged = None if prepared is None else replace(prepared, make=told)
        return run_draw(ledger, store, secrets, attempt, name, logged)

    drawing.run_draw = logging


def _become(version: str) -> None:
    """Another program: of this version, with code of its own."""
    other = Program(version=version, digest=hashlib.sha256(version.encode()).hexdigest())
    for module in [
        module for name, module in sys.modules.items() if name.startswith("marginweave.")
    ]:
        if hasattr(module, "program_identity"):
            module.program_identity = lambda: other  # pyright: ignore[reportAttributeAccessIssue]


def _kill_at(point: str, side: str, number: int, how: str = "kill") -> None:
    owner, name = POINTS[point]
    original = getattr(owner, name)
    seen = Counter[str]()

    def dying(*arguments: Any, **named: Any) -> Any:
        seen[point] += 1
        mine = seen[point] == number
        if mine and side == "before":
            os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        result = original(*arguments, **named)
        if mine and side == "after":
            os.kill(os.getpid(), signal.SIGSTOP if how == "stop" else signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def _break_disk_at(kind: str, moment: int | list[str], place: str) -> None:
    """Break the disk under `place`: right after a number of draws is charged, or before the first file not in a list."""
    seen = Counter[str]()
    if isinstance(moment, int):
        original = Draws.begin

        def charged(*arguments: Any, **named: Any) -> None:
            original(*arguments, **named)
            seen["calls"] += 1
            if seen["calls"] == moment:
                FAULTS[kind](place)

        Draws.begin = charged
        return
    staged_file = files.staged_file

    def begun(path: Path, *arguments: Any, **named: Any) -> Any:
        if LEASE.sub("", path.name) not in moment and not seen["calls"]:
            seen["calls"] += 1
            FAULTS[kind](place)
        return staged_file(path, *arguments, **named)

    files.staged_file = draw_files.staged_file = store.staged_file = begun


def _fill(place: str) -> None:
    with suppress(OSError), (Path(place) / "ballast").open("ab", buffering=0) as ballast:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while ballast.write(b"x" * size):
                    pass


def _make_read_only(place: str) -> None:
    subprocess.run(["mount", "--bind", place, place], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)


FAULTS: dict[str, Callable[[str], None]] = {
    "full": _fill,
    "read-only": _make_read_only,
    "forbidden": lambda place: Path(place).chmod(0o500),
    "size limit": lambda _: resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)),
}


def _counting(calls: Counter[str], point: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        calls[point] += 1
        return original(*arguments, **named)

    return call
