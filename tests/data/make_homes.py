"""Makes the homes of 0.1.0 that `tests/system/test_homes_of_0_1_0.py` opens. It has to be run by 0.1.0 itself, as root:

    git worktree add ../v0.1.0 v0.1.0 && make -C ../v0.1.0 .venv/.ready
    ../v0.1.0/.venv/bin/python tests/data/make_homes.py tests/data/homes-0.1.0

The homes are made in HOME_OF_ALL, so that no path of a developer's machine is in any file. Tables are made up.
Each home is packed with its ledger, key, configurations and table; Prefect's files and caches are left out.
"""

from __future__ import annotations

import getpass
import io
import json
import os
import random
import shutil
import sqlite3
import sys
import tarfile
import traceback
from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HOME_OF_ALL = Path("/srv/marginweave-home")
VERSION = "0.1.0"
STEWARD = "steward"
_CACHES = (".marginweave", "makes")
_LOGS = ("prefect.log", "prefect-server.log", ".lock")
_DOORS = (
    "validate", "preprocess", "release_bounds", "encode", "reserve_budget", "count_records", "aggregate_level", "collect_draws",
    "discover_values", "measure_one_way", "score_pairs", "measure_larger", "collect_marginals",
    "count_candidates", "measure_round",
    "normalize_counts", "fit_model", "synthesize", "decode", "buy_evaluation", "evaluate", "publish",
)  # fmt: skip

COLUMNS: dict[str, Any] = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "region": {"type": "category", "values": ["north", "south", "west"]},
    "age": {"type": "number", "bounds": [0, 100], "bins": [0, 18, 30, 50, 65, 100], "decimals": 0},
    "grade": {"type": "category", "values": [1, 2, 3, 4, 5, 6, 7]},
}
HIDDEN: dict[str, Any] = {**COLUMNS, "region": {"type": "category", "domain": "private"}}
QUICK = {"method": "mixture", "components": 8, "fits": 1, "iterations": 15}
TUPLES = {"aggregate": {"method": "k-tuples", "reporting_length": 2}, "synthesize": {"method": "aggregate-seeded"}}
MARGINALS = {"aggregate": {"method": "marginals", "cliques": {"all": 2}}, "synthesize": QUICK}

# How a run ends: it finishes; it is stopped before the draw or the step of that name; it is refused.
FINISHED, REFUSED = "finished", "refused"


def main(target: Path) -> None:
    """Make every home and pack it."""
    from marginweave.tasks.references import code_version

    if code_version() != VERSION:
        sys.exit(f"this is marginweave {code_version()}; the homes have to be made by {VERSION}")
    os.environ.update({"LOGNAME": STEWARD, "USER": STEWARD})
    assert getpass.getuser() == STEWARD
    target.mkdir(parents=True, exist_ok=True)
    for name, make in HOMES.items():
        home = HOME_OF_ALL / name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True, mode=0o700)
        os.environ["MARGINWEAVE_LEDGER"] = str(home / "ledger" / "ledger.sqlite")
        make(home)
        _tidy(home)
        _pack(home, target / f"{name}.tar.xz")
        sys.stdout.write(f"{name}: {(target / f'{name}.tar.xz').stat().st_size} bytes\n")
    shutil.rmtree(HOME_OF_ALL)


def _gdp(home: Path) -> None:
    _table(home / "people.csv", 240, seed=1)
    _open("people", 20)
    auto = _configuration(home, "auto")
    _run(home, auto, None, FINISHED)
    _run(home, _configuration(home, "tuples", **TUPLES), "tuples", FINISHED)
    _run(home, _configuration(home, "redraws", redraws=1, **TUPLES), None, FINISHED)
    kept = _configuration(home, "kept", publish={"keep_private": True}, **TUPLES)
    _run(home, kept, "kept", FINISHED)
    _run(home, _configuration(home, "stopped", epsilon=0.9, **TUPLES), None, "level-2")
    _run(home, _configuration(home, "stopped-auto", epsilon=0.8), None, "marginals")
    _run(home, _configuration(home, "reserved", epsilon=0.7, **TUPLES), "reserved", "count_records")
    awaiting = _configuration(home, "awaiting", publish={"approval": "required"}, **TUPLES)
    _run(home, awaiting, "awaiting", FINISHED)
    _run(home, _configuration(home, "refused", epsilon=30.0, **TUPLES), "refused", REFUSED)


def _laplace(home: Path) -> None:
    """Marginals with Laplace noise, in an account with a purse."""
    _table(home / "people.csv", 80, seed=2)
    _open("people", 4, delta="0", purse=Decimal(4))
    cliques = {"method": "marginals", "noise": "laplace", "cliques": {"all": 2}}
    _run(home, _configuration(home, "laplace", delta=0.0, aggregate=cliques, synthesize=QUICK), None, FINISHED)


def _zcdp(home: Path) -> None:
    _table(home / "people.csv", 120, seed=3)
    _open("people", 12)
    _run(home, _configuration(home, "marginals", accountant="zcdp", **MARGINALS), "marginals", FINISHED)
    lost = _configuration(home, "killed", accountant="zcdp", redraws=1, **TUPLES)
    _run(home, lost, "killed", "inside level-2")
    _run(home, _configuration(home, "stopped", accountant="zcdp", epsilon=0.5, **MARGINALS), "stopped", "marginals")


def _sds(home: Path) -> None:
    _table(home / "people.csv", 60, seed=4)
    _open("people", 6)
    _run(home, _configuration(home, "tuples", accountant="sds", **TUPLES), None, FINISHED)
    _run(home, _configuration(home, "stopped", accountant="sds", epsilon=0.5, **TUPLES), "stopped", "level-2")


def _joint(home: Path) -> None:
    _table(home / "people.csv", 300, seed=5)
    _open("people", 6)
    _run(home, _configuration(home, "tuples", columns=HIDDEN, accountant="joint", **TUPLES), "tuples", FINISHED)
    stopped = _configuration(home, "stopped", columns=HIDDEN, accountant="joint", epsilon=0.5, **TUPLES)
    _run(home, stopped, "stopped", "level-2")


HOMES: dict[str, Callable[[Path], None]] = {
    "gdp": _gdp, "laplace": _laplace, "zcdp": _zcdp, "sds": _sds, "joint": _joint,
}  # fmt: skip


def _table(place: Path, rows: int, *, seed: int) -> None:
    made = random.Random(seed)
    lines = ["sex,region,age,grade"]
    for _ in range(rows):
        sex, region = made.choice("fm"), made.choice(["north", "north", "south", "west"])
        lines.append(f"{sex},{region},{made.randrange(100)},{min(made.randrange(1, 8), made.randrange(1, 8))}")
    place.write_text("\n".join(lines) + "\n")


def _configuration(
    home: Path,
    name: str,
    *,
    columns: dict[str, Any] = COLUMNS,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    accountant: str | None = None,
    redraws: int | None = None,
    **sections: Any,
) -> Path:
    """A configuration file as a steward writes one, with a comment; JSON is YAML."""
    privacy: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "unit": "row"}
    privacy |= {} if accountant is None else {"accountant": accountant}
    privacy |= {} if redraws is None else {"redraws": redraws}
    content = {"dataset": "people", "source": "people.csv", "privacy": privacy, "columns": columns, **sections}
    lines = [f"{key}: {json.dumps(value)}" for key, value in content.items()]
    place = home / f"{name}.yaml"
    place.write_text("\n".join([f"# {name}, made by {VERSION}", *lines]) + "\n")
    return place


def _open(dataset: str, epsilon: float, *, delta: str = "1e-4", purse: Decimal = Decimal(0)) -> None:
    from marginweave.schemas.budget import Plain
    from marginweave.schemas.ledger import Account
    from marginweave.tasks.budget.ledger import Ledger, ledger_location

    account = Account(
        dataset=dataset,
        epsilon=Decimal(epsilon),
        delta=Decimal(delta),
        unit="row",
        neighbors="add-remove",
        purse=Plain(epsilon=purse),
    )
    Ledger.create(ledger_location(os.environ)).accounts.open(account, actor=STEWARD)


def _run(home: Path, config: Path, run: str | None, ending: str) -> None:
    """One run in a process of its own, that ends as `ending` says."""
    child = os.fork()
    if child == 0:
        code = 97
        try:
            code = _released(home, config, run, ending)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    expected = {FINISHED: 0, REFUSED: 3}.get(ending, 0)
    assert os.waitstatus_to_exitcode(status) == expected, (config, ending, status)


def _released(home: Path, config: Path, run: str | None, ending: str) -> int:
    """The flow with the functions of its stages, without Prefect."""
    from marginweave.flows import release
    from marginweave.schemas.errors import MarginweaveError
    from marginweave.tasks import drawing

    flow = sys.modules["marginweave.flows.release"]
    for name in _DOORS:
        setattr(flow, name, getattr(flow, name).fn)
    for name in ("shown_in_prefect", "announced"):  # nothing here starts a server of Prefect
        setattr(flow, name, lambda _: nullcontext(SimpleNamespace()))
    for name in ("end_dead_attempts", "warn_of_exhaustion"):
        setattr(flow, name, lambda *_: None)
    if ending in _DOORS:
        setattr(flow, ending, lambda *_, **__: os._exit(0))
    drawn = drawing.run_draw

    def stopping(ledger: Any, store: Any, release_id: str, name: str, lease: str, make: Any, **more: Any) -> bytes:
        if name == ending:
            os._exit(0)
        inside = (lambda: os._exit(0)) if f"inside {name}" == ending else make
        return drawn(ledger, store, release_id, name, lease, inside, **more)

    drawing.run_draw = stopping  # type: ignore[assignment]
    try:
        release.fn(str(config), run, None, str(home))
    except MarginweaveError as error:
        sys.stderr.write(f"{config.name}: {error}\n")
        return error.exit_code
    assert ending == FINISHED, f"{config} was not stopped at {ending}"
    return 0


def _tidy(home: Path) -> None:
    """Remove what no test needs; the ledger becomes one file."""
    with closing(sqlite3.connect(home / "ledger" / "ledger.sqlite")) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
        (home / "ledger" / name).unlink(missing_ok=True)
    for name in _CACHES:
        shutil.rmtree(home / name, ignore_errors=True)
    for path in sorted(home.rglob("*")):
        if path.name in _LOGS or path.suffix == ".tmp":
            with suppress(FileNotFoundError):
                path.unlink()


def _pack(home: Path, archive: Path) -> None:
    """The home as an archive that is the same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9, format=tarfile.PAX_FORMAT) as packed:
        for path in sorted(home.rglob("*"), key=lambda found: (found.suffix, str(found))):
            entry = packed.gettarinfo(path, arcname=str(path.relative_to(home)))
            entry.mtime = entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            with path.open("rb") if path.is_file() else nullcontext() as stream:
                packed.addfile(entry, stream)
    archive.write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
