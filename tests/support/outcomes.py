"""A fault at a step of a run: what strikes, where, and in a few words what came of it."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from marginweave.accounting import records
from marginweave.base.durable import StagedFile
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.draws.files import DrawSecrets, DrawStore
from marginweave.ledger.draws import Draws
from marginweave.ledger.ledger import Keys
from marginweave.ledger.releases import Releases
from marginweave.measurements import tuple_level
from marginweave.runs import bookkeeping, continuity, preparation
from tests.support import plain_runs
from tests.support.forks import Ended

DRAW = "level-1"
FAULTS = (
    "disk full",
    "read-only",
    "ledger gone",
    "older copy of the ledger",
    "clock set back",
    "one byte flipped",
)
NOTHING = "—"
NOTHING_WRITTEN = 90
DAMAGED = ".damaged"


@dataclass(frozen=True)
class Step:
    """The first call of `name` in `owner` whose arguments are `ours`; what it `writes` is a file of the run or the ledger."""

    owner: Any
    name: str
    ours: Callable[..., bool] = lambda *_, **__: True
    writes: str = "file"


def _stage(name: str) -> Step:
    return Step(bookkeeping.Bookkeeper, "step", lambda *arguments, **_: arguments[1] == name)


def _of(owner: Any, name: str, place: int, writes: str = "file") -> Step:
    return Step(owner, name, lambda *arguments, **_: arguments[place] == DRAW, writes)


def _named(ending: str) -> Step:
    def ours(file: StagedFile, *_: Any, **__: Any) -> bool:
        return (
            file.path.parent.name == "draws"
            and file.path.name.startswith(DRAW)
            and file.path.suffix == ending
        )

    return Step(StagedFile, "keep", ours)


STEPS: dict[str, Step] = {
    "read the configuration": Step(plain_runs, "read_request"),
    "open the ledger": Step(preparation, "open_ledger"),
    "digest the source": Step(Keys, "source_digest"),
    "write the manifest": Step(RunFolder, "write_manifest"),
    **{stage: _stage(stage) for stage in ("validate", "preprocess", "encode")},
    "reserve": Step(Releases, "reserve", writes="ledger"),
    "take the lease": Step(Draws, "take_lease", writes="ledger"),
    "make room for a draw": _of(DrawStore, "room", 1),
    "seal its seed": _of(DrawSecrets, "make", 2),
    "DRAWN": _of(Draws, "begin", 2, "ledger"),
    "make the noise": Step(tuple_level, "draw_level"),
    "write the draw": _named(".draw"),
    "write its copy": _named(".copy"),
    "COMMITTED": _of(Draws, "commit", 2, "ledger"),
    "destroy its seed": _of(DrawSecrets, "destroy", 1),
    **{
        stage: _stage(stage)
        for stage in ("collect", "normalize", "fit", "synthesize", "decode", "evaluate", "publish")
    },
    "PUBLISHED": Step(Releases, "publish", writes="ledger"),
    "move the files into place": Step(continuity, "publish_staged"),
    "purge": Step(RunFolder, "purge_private"),
}
LATEST_FIRST = (".draw", ".copy", ".seed", ".ckpt", ".json", ".csv")


class Injected:
    """A fault that strikes when its step begins; a byte is flipped when it has ended."""

    def __init__(self, order: dict[str, Any], disk: dict[str, Callable[[str], None]]) -> None:
        self._home, self._ledger, self._disk = Path(order["home"]), Path(order["ledger"]), disk
        self._step, self._fault = order["outcome"]
        self._struck = False
        self._copies = [self._ledger.read_bytes()]
        self._before: dict[Path, tuple[int, int]] = {}
        for place in {(step.owner, step.name): step for step in STEPS.values()}:
            self._watch(*place)

    def _watch(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            step = STEPS[self._step]
            mine = (
                (owner, name) == (step.owner, step.name)
                and not self._struck
                and step.ours(*arguments, **named)
            )
            self._remember()
            if mine:
                self._struck = True
                self._strike_before()
            result = original(*arguments, **named)
            if mine and self._fault == "one byte flipped":
                self._flip_written(step)
            self._remember()
            return result

        setattr(owner, name, watched)

    def _remember(self) -> None:
        if self._ledger.exists() and (content := self._ledger.read_bytes()) != self._copies[-1]:
            self._copies.append(content)

    def _strike_before(self) -> None:
        if self._fault == "disk full":
            self._disk["full"](str(self._home))
        elif self._fault == "read-only":
            self._disk["read-only"](str(self._home))
        elif self._fault == "ledger gone":
            self._ledger.rename(self._ledger.with_suffix(".away"))
        elif self._fault == "older copy of the ledger":
            if len(self._copies) < 2:
                os._exit(NOTHING_WRITTEN)
            shutil.copy(self._ledger, self._ledger.with_suffix(".away"))
            self._ledger.write_bytes(self._copies[-2])
        elif self._fault == "clock set back":
            _set_back(timedelta(days=1))
        else:
            self._before = self._files()

    def _files(self) -> dict[Path, tuple[int, int]]:
        found = [
            file
            for file in self._home.glob("runs/r/**/*")
            if file.is_file() and not file.name.endswith(".tmp")
        ]
        return {
            file: (file.stat().st_mtime_ns, file.stat().st_ino)
            for file in found
            if file.name != ".lock"
        }

    def _flip_written(self, step: Step) -> None:
        if step.writes == "ledger":
            flip(self._ledger, _newest_hash(self._ledger))
            return
        now = self._files()
        written = [file for file, stamp in now.items() if self._before.get(file) != stamp]
        if not written:
            os._exit(NOTHING_WRITTEN)
        order = {suffix: place for place, suffix in enumerate(LATEST_FIRST)}
        file = min(written, key=lambda file: (order.get(file.suffix, len(order)), file.name))
        flip(file, 0 if file.suffix == ".json" else file.stat().st_size // 2)


def flip(file: Path, place: int) -> None:
    """Flip a bit of one byte, and write down which: `unflip` flips it back."""
    with file.open("r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 1]))
    home = next(above for above in file.parents if (above / "people.yaml").exists())
    with (home / DAMAGED).open("a") as told:
        told.write(f"{place} {file}\n")


def unflip(home: Path) -> bool:
    """What was damaged is put back where it is still there; whether any of it is."""
    told, found = home / DAMAGED, False
    for line in told.read_text().splitlines() if told.exists() else ():
        place, _, name = line.partition(" ")
        if (file := Path(name)).exists():
            found = True
            with file.open("r+b") as stream:
                stream.seek(int(place))
                byte = stream.read(1)[0]
                stream.seek(int(place))
                stream.write(bytes([byte ^ 1]))
    told.unlink(missing_ok=True)
    return found


def _newest_hash(ledger: Path) -> int:
    with closing(sqlite3.connect(ledger)) as connection:
        (newest,) = connection.execute(
            "SELECT row_hash FROM events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
    return ledger.read_bytes().rindex(newest.encode() if isinstance(newest, str) else newest)


def _set_back(by: timedelta) -> None:
    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) - by

    true_now = records.now
    for module in [
        module for name, module in sys.modules.items() if name.startswith("marginweave.")
    ]:
        if getattr(module, "now", None) is true_now:
            module.now = lambda: datetime.now(UTC) - by  # pyright: ignore[reportAttributeAccessIssue]
        if getattr(module, "datetime", None) is datetime:
            module.datetime = Earlier  # pyright: ignore[reportAttributeAccessIssue]


# what a message says, in the words of the table
WORDS = {
    r"No space left on device|disk of the ledger \S+ is full": "full",
    r"is full or cannot be written": "full or read-only",
    r"Read-only file system|readonly database|read-only": "read-only",
    r"was charged and lost": "**draw lost**",
    r"there is no ledger|no ledger at|unable to open database": "no ledger",
    r"older copy|old backup|does not know|was restored|has lost rows|not there any more": "older copy",
    r"bytes are missing or damaged": "draw damaged",
    r"was changed since|not those that": "release changed",
    r"changed, removed, inserted or moved|does not verify|was changed|wrong key|seal": "ledger changed",
    r"manifest\.json is damaged": "manifest damaged",
    r"is damaged": "damaged",
}


def word(answer: Ended) -> str:
    """An attempt that has stopped: its exit code and what it says."""
    for pattern, said in WORDS.items():
        if re.search(pattern, answer.message):
            return f"exit {answer.code} ({said})"
    raise AssertionError(f"no word for {answer}")
