"""Run a command and watch its processes from outside: time, CPU and memory, the Prefect server apart.

Memory is what is resident (RSS, 10^6 bytes): the most that all processes of the command held at once, sampled, and at least
the high-water mark that the kernel keeps of each. Linux only.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.scale.peer import memory
from marginweave.flows.prefect.servers import SERVER

SAMPLE, LOOK = 0.05, 0.4  # seconds between samples of memory, and between looks for new processes


@dataclass(frozen=True, kw_only=True)
class Stage:
    """From the end of the stage before (of the server's start, for the first) to the end of this one."""

    name: str
    wall: float
    cpu: float
    peak: float


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Seconds and megabytes of a command; `start` is until its server listens, `ended` why it did not succeed."""

    wall: float
    cpu: float
    peak: float
    start: float
    server_cpu: float
    server_peak: float
    stages: tuple[Stage, ...]
    ended: str

    def facts(self) -> dict[str, Any]:
        """As JSON writes it."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a run is stopped: it would spoil the machine for others, or last for ever."""

    megabytes: float = 6000
    seconds: float = 3600
    cpu: float = math.inf


@dataclass
class _Process:
    """What was last seen of a process."""

    handle: psutil.Process
    is_server: bool
    cpu: float = 0.0
    now: float = 0.0
    peak: float = 0.0

    def look(self) -> None:
        self.now = 0.0  # of a process that has ended
        with suppress(psutil.Error):
            times = self.handle.cpu_times()
            self.cpu = times.user + times.system
            self.now = self.handle.memory_info().rss / 1e6
            self.peak = max(self.peak, memory("VmHWM", self.handle.pid), self.now)

    def listens(self) -> bool:
        with suppress(psutil.Error):
            return any(c.status == psutil.CONN_LISTEN for c in self.handle.net_connections("tcp"))
        return False


@dataclass
class _Tree:
    """All processes of a command."""

    root: psutil.Process
    seen: dict[int, _Process] = field(default_factory=dict)
    looked: float = -LOOK
    most: float = 0.0
    in_stage: float = 0.0

    def sample(self) -> None:
        now = time.perf_counter()
        if now - self.looked >= LOOK:
            self.looked = now
            with suppress(psutil.Error):
                for handle in (self.root, *self.root.children(recursive=True)):
                    if handle.pid not in self.seen:
                        self.seen[handle.pid] = _Process(handle, SERVER in handle.cmdline())
        for process in self.seen.values():
            process.look()
        ours = sum(process.now for process in self.ours())
        self.most, self.in_stage = max(self.most, ours), max(self.in_stage, ours)

    def ours(self) -> list[_Process]:
        return [process for process in self.seen.values() if not process.is_server]

    def servers(self) -> list[_Process]:
        return [process for process in self.seen.values() if process.is_server]

    def peak(self) -> float:
        return max([self.most, *(process.peak for process in self.ours())])

    def cpu(self) -> float:
        return sum(process.cpu for process in self.ours())

    def kill(self) -> None:
        for process in self.seen.values():
            with suppress(psutil.Error):
                process.handle.kill()


@contextmanager
def _no_survivors(tree: _Tree) -> Iterator[None]:
    """Where the watching ends early, so do those that are watched."""
    try:
        yield
    except BaseException:
        tree.kill()
        raise


def watch(
    command: list[str], environment: Mapping[str, str], folder: Path, limits: Limits | None = None
) -> Watched:
    """Run `command` in `folder` to its end; a JSON line {"event": "stage", "stage": …} on its output ends a stage."""
    limits = limits or Limits()
    begun = time.perf_counter()
    with (folder / "errors.txt").open("wb") as errors:
        child = subprocess.Popen(
            command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, stderr=errors
        )
    assert child.stdout is not None
    tree = _Tree(psutil.Process(child.pid))
    stages, start, ended = [], 0.0, ""
    marked = (begun, 0.0)  # when the stage began, and the CPU seconds before it
    with _no_survivors(tree), selectors.DefaultSelector() as selector, child.stdout as output:
        selector.register(output, selectors.EVENT_READ)
        os.set_blocking(output.fileno(), False)
        pending, is_open = b"", True
        while is_open:
            ready = selector.select(SAMPLE)
            tree.sample()
            now = time.perf_counter()
            if not start and any(server.listens() for server in tree.servers()):
                start, marked, tree.in_stage = now - begun, (now, tree.cpu()), 0.0
            if ready:
                chunk = output.read()
                is_open = chunk != b""
                *lines, pending = (pending + (chunk or b"")).split(b"\n")
                for name in filter(None, map(_stage_name, lines)):
                    cpu = tree.cpu()
                    stages.append(
                        Stage(
                            name=name, wall=now - marked[0], cpu=cpu - marked[1], peak=tree.in_stage
                        )
                    )
                    marked, tree.in_stage = (now, cpu), 0.0
            ended = ended or _over(limits, now - begun, tree.peak(), tree.cpu())
            if ended:
                tree.kill()
    code = child.wait()
    if code and not ended:
        said = _last_line(folder / "errors.txt").replace(f"{folder.parent}/", "").replace("|", "/")
        ended = f"exit code {code}: {said}"
    if ended and stages:
        ended = f"{ended}, after {stages[-1].name}"
    return Watched(
        wall=time.perf_counter() - begun,
        cpu=tree.cpu(),
        peak=tree.peak(),
        start=start,
        server_cpu=sum(server.cpu for server in tree.servers()),
        server_peak=max([0.0, *(server.peak for server in tree.servers())]),
        stages=tuple(stages),
        ended=ended,
    )


def _stage_name(line: bytes) -> str:
    try:
        said = json.loads(line)
    except ValueError:
        return ""
    return str(said["stage"]) if isinstance(said, dict) and said.get("event") == "stage" else ""


def _over(limits: Limits, seconds: float, megabytes: float, cpu: float) -> str:
    if megabytes > limits.megabytes:
        return f"stopped at {limits.megabytes:.0f} MB"
    if cpu > limits.cpu:
        return f"stopped after {limits.cpu:.0f} CPU s"
    return f"stopped after {limits.seconds:.0f} s" if seconds > limits.seconds else ""


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
