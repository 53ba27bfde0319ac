"""SIGKILL at every named transition and at random times: no charge lost, none uncharged, no second noisy output for one."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from marginweave.schemas.ledger import State
from tests.support.kills import Victim, WarmParent
from tests.support.people import people
from tests.support.warm_parent import POINTS
from tests.system.conftest import CommandLine
from tests.system.test_release import RELEASED

pytestmark = pytest.mark.system
PARENTS = 2
COMMAND_LINE_KILLS = 12
MARGINALS: dict[str, object] = {
    "aggregate__method": "marginals",
    "columns__region": {"type": "category", "domain": "private"},
}
ROUNDS: dict[str, object] = {
    "aggregate__method": "marginals",
    "aggregate__cliques": {"adaptive": 2, "rounds": 3, "batch": 2},
}
NewVictim = Callable[..., Victim]


def _victims(place: Path) -> NewVictim:
    numbers = itertools.count()

    def make(**changes: object) -> Victim:
        home = place / f"home-{next(numbers)}"
        home.mkdir()
        tuples = {} if "aggregate__method" in changes else {"aggregate__reporting_length": 2}
        settings = {**tuples, "publish__keep_private": True, **changes}
        return Victim(home=home, config=people(home, 40, **settings))

    return make


@pytest.fixture
def new_victim(tmp_path: Path) -> NewVictim:
    return _victims(tmp_path)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory, server: str) -> Iterator[list[WarmParent]]:
    environment = {**os.environ, "PREFECT_API_URL": server}
    warm = _victims(tmp_path_factory.mktemp("warm"))
    with ThreadPoolExecutor() as pool:
        started = list(pool.map(lambda victim: WarmParent(victim, environment), [warm() for _ in range(PARENTS)]))
    yield started
    for parent in started:
        parent.close()


@pytest.fixture
def parent(parents: list[WarmParent]) -> WarmParent:
    return parents[0]


def _orders(calls: dict[str, int], seed: int, kills: int) -> Iterator[dict[str, object]]:
    """`kills` orders: every transition before and after, each at its first call and at random ones; every tenth at a time."""
    choice = random.Random(seed)
    # what an undisturbed run never passes is passed once by a run that resumes
    points = [(point, side) for point in POINTS for side in ("before", "after")]
    for number in range(kills):
        through = "prefect" if number % 12 == 0 else "doors"
        if number % 10 == 9:
            yield {"through": through, "after": choice.uniform(0.0, 0.9)}
        else:
            point, side = points[(number + seed) % len(points)]
            first = number < len(points)
            nth = 1 if first else choice.randint(1, max(1, calls.get(point, 1)))
            yield {"through": through, "point": [point, side, nth]}


def _kill_and_resume(parent: WarmParent, new_victim: NewVictim, seed: int, kills: int) -> dict[str, int]:
    """Kill runs `kills` times; each is resumed until it is finished, or stops naming a loss.

    A fifth of them measure marginals, with a private domain and so with all four draws, or in rounds, and are killed at random
    times only.
    """
    choice = random.Random(seed)
    seen = dict.fromkeys(("killed", "finished", "stopped"), 0)
    victim: Victim | None = None
    orders = _orders(parent.calls, seed, 10 * kills)
    while seen["killed"] < kills:
        if victim is None:
            chosen: dict[str, object] = choice.choice([MARGINALS, ROUNDS]) if choice.random() < 0.2 else {}
            keep = choice.random() < 0.7
            victim = new_victim(privacy__redraws=choice.choice([0, 1, 3]), publish__keep_private=keep, **chosen)
            deaths = choice.randint(1, 6)
        if deaths > 0:
            order = {"through": "doors", "after": choice.uniform(0.0, 2.0)} if chosen else next(orders)
        else:
            order = {"through": "doors"}
        if choice.random() < 0.1:
            order["version"] = f"0.0.{choice.randint(1, 3)}"
        answer = parent.ask(victim.order(**order))
        victim.check()
        if answer["code"] == -signal.SIGKILL:
            seen["killed"] += 1
            deaths -= 1
            continue
        if answer["code"] == 0:
            victim.check_finished()
            seen["finished"] += 1
            if victim.folder.draws.is_dir() and "version" not in order and choice.random() < 0.5:
                told = parent.ask(victim.order(recompute=True))
                assert told["code"] == 0, f"the release is not what the draws say: {told}"
        else:
            assert answer["code"] == 3, (order, answer)
            victim.check_stopped(answer["message"])
            seen["stopped"] += 1
        victim = None
    return seen


def test_killed_anywhere_nothing_is_lost_uncharged_or_drawn_twice(
    parents: list[WarmParent], new_victim: NewVictim, pytestconfig: pytest.Config
) -> None:
    """Processes forked from warm parents, through Prefect and by the stages' functions, at transitions and random times."""
    kills = -(-(pytestconfig.getoption("kills") - COMMAND_LINE_KILLS) // len(parents))
    with ThreadPoolExecutor() as pool:
        seen = list(
            pool.map(
                lambda numbered: _kill_and_resume(numbered[1], new_victim, 17 * numbered[0] + 1, kills),
                enumerate(parents),
            )
        )
    assert sum(part["killed"] for part in seen) >= kills * len(parents)
    assert all(part["finished"] for part in seen), seen


def test_the_command_line_killed_at_random_times(
    marginweave: CommandLine, new_victim: NewVictim, pytestconfig: pytest.Config
) -> None:
    """The installed program, killed at times spread over a whole run, with four lives each, until it is finished."""
    choice = random.Random(3)

    def one(number: int) -> int:
        victim = new_victim(privacy__redraws=3)
        cli = CommandLine(victim.home, marginweave.environment)
        killed = 0
        for share in choice.sample(range(1, 5), 4):
            process = subprocess.Popen(
                cli.command("run", victim.config, "--run", victim.run),
                cwd=cli.home, env=cli.variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            time.sleep(length * (share - choice.random()) / 4)
            process.kill()
            killed += process.wait() == -signal.SIGKILL
            victim.check()
        ended = cli("run", victim.config, "--run", victim.run)
        if ended.returncode == 3:
            victim.check_stopped(ended.stderr)
        else:
            assert ended.returncode == 0, ended.stderr
            victim.check_finished()
            assert {p.name for p in victim.folder.release.iterdir()} == RELEASED
        return killed

    calm = new_victim()
    cli = CommandLine(calm.home, marginweave.environment)
    begun = time.monotonic()
    assert cli("run", calm.config, "--run", calm.run).returncode == 0
    length = time.monotonic() - begun
    killed = 0
    for number in itertools.count():
        killed += one(number)
        if killed >= COMMAND_LINE_KILLS:
            break


def test_a_changed_version_of_the_code_adopts_what_was_drawn(parent: WarmParent, new_victim: NewVictim) -> None:
    """Resumed by another version: deterministic stages are computed anew, committed draws are read, nothing is drawn again."""
    victim = new_victim()
    assert parent.ask(victim.order(point=["begin_draw", "before", 4]))["code"] == -signal.SIGKILL
    victim.check()
    before = {file.name for file in victim.folder.private.glob("*.ckpt")}
    committed = dict(victim.committed)
    assert len(committed) == 3
    assert parent.ask(victim.order(version="0.0.0"))["code"] == 0
    victim.check_finished()
    assert committed.items() <= victim.committed.items()
    assert len(victim.makes.read_text().splitlines()) == 5
    assert len({file.name for file in victim.folder.private.glob("*.ckpt")}) == 2 * len(before)


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_a_corrupt_committed_draw_stops_the_run(parent: WarmParent, new_victim: NewVictim, damage: str) -> None:
    """Exit 3 that says so, at every attempt; no spare is used, nothing is drawn under its charge."""
    victim = new_victim(privacy__redraws=1)
    assert parent.ask(victim.order(point=["begin_draw", "before", 3]))["code"] == -signal.SIGKILL
    (file,) = victim.folder.draws.glob("count.*.draw")
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:]) if damage == "flipped" else file.unlink()
    for _ in range(2):
        answer = parent.ask(victim.order())
        assert answer["code"] == 3
        assert "draw count" in answer["message"]
        assert "bytes are missing or damaged" in answer["message"]
    assert len([line for line in victim.makes.read_text().splitlines() if line.startswith("count")]) == 1


@pytest.mark.parametrize(
    "point",
    [
        ["file named", "before", 5],
        ["draw percentile", "after", 1],
        ["commit_draw", "before", 3],
        ["release file", "before", 3],
        ["finish", "before", 1],
        ["published", "before", 1],
    ],
)
def test_a_zombie_on_another_machine_is_fenced(parent: WarmParent, new_victim: NewVictim, point: list[object]) -> None:
    """Stopped in a draw or on its way out, taken over, and woken: it cannot name its file, commit, draw again or publish."""
    victim = new_victim(privacy__redraws=1)
    stopped = parent.ask(victim.order(no_lock=True, point=[*point, "stop"]))
    parent.ask(victim.order(no_lock=True))
    victim.check_finished()
    before = victim.record()
    released = {file: file.read_bytes() for file in victim.folder.release.iterdir()}
    zombie = parent.ask({"continue": stopped["stopped"], "log": str(victim.home / "log")})
    booked = point[0] == "published"  # its own files are those that the other attempt has published
    assert zombie["code"] in ((0,) if booked else (1, 3)), zombie
    victim.check_finished()
    assert victim.record() == before
    assert {file: file.read_bytes() for file in victim.folder.release.iterdir()} == released
    assert before is not None
    assert sum(draw.state == State.CHARGED_LOST for draw in before.draws) <= 1


@pytest.mark.parametrize("rows_of", [["take_lease", "after", 1], ["commit_draw", "after", 1]])
@pytest.mark.parametrize("manifest", ["kept", "of the backup"])
def test_a_ledger_restored_in_the_middle_of_a_run_stops_it(
    parent: WarmParent, new_victim: NewVictim, rows_of: list[object], manifest: str
) -> None:
    """What has been drawn since the backup is not drawn again under the charges that the backup still takes for open."""
    victim = new_victim()
    parent.ask(victim.order(point=rows_of))
    backup = victim.home / "backup"
    shutil.copytree(victim.location.parent, backup)
    shutil.copy(victim.folder.manifest_file, backup / "manifest.json")
    parent.ask(victim.order(point=["commit_draw", "after", 2]))
    made = victim.makes.read_text()
    shutil.rmtree(victim.location.parent)
    shutil.copytree(backup, victim.location.parent)
    if manifest == "of the backup":
        shutil.copy(backup / "manifest.json", victim.folder.manifest_file)
    for _ in range(2):
        answer = parent.ask(victim.order())
        assert answer["code"] == 3, answer
        assert "restore the newest copy" in answer["message"]
    assert victim.makes.read_text() == made


def test_a_release_whose_folder_was_removed_is_not_charged_again(
    parent: WarmParent, new_victim: NewVictim, marginweave: CommandLine
) -> None:
    """The same command without the manifest is refused, `verify` says what is missing; another name is another release."""
    victim = new_victim()
    assert parent.ask(victim.order())["code"] == 0
    named = {**marginweave.environment, "MARGINWEAVE_LEDGER": str(victim.location)}
    cli = replace(marginweave, home=victim.home, environment=named)
    manifest = victim.folder.manifest_file.read_bytes()
    victim.folder.manifest_file.unlink()
    fault = cli("ledger", "verify")
    assert (fault.returncode, "manifest.json is missing" in fault.stderr) == (1, True), fault.stderr
    shutil.move(victim.folder.path, victim.home / "elsewhere")
    seen = cli("ledger", "verify")
    assert seen.returncode == 0, seen.stderr
    assert "run r is published and not in this home" in seen.stdout
    answer = parent.ask(victim.order())
    assert (answer["code"], "was charged to account people before" in answer["message"]) == (2, True)
    shutil.rmtree(victim.folder.path)
    shutil.move(victim.home / "elsewhere", victim.folder.path)
    victim.folder.manifest_file.write_bytes(manifest)
    assert parent.ask(victim.order())["code"] == 0
    victim.check_finished()


def test_a_length_without_candidates_goes_back_to_the_account(parent: WarmParent, new_victim: NewVictim) -> None:
    """An empty table of private domains leaves nothing to combine: length 2 is given back, the guarantee stays."""
    private = {name: {"type": "category", "domain": "private"} for name in ("sex", "region", "grade")}
    victim = new_victim(columns=private, privacy__redraws=1)
    (victim.config.parent / "people.csv").write_text("sex,region,grade\n")
    assert parent.ask(victim.order())["code"] == 0
    victim.check_finished()
    record = victim.record()
    assert record is not None
    returned = {draw.name for draw in record.draws if draw.state == State.RETURNED}
    assert returned == {"percentile-2", "level-2", "spare-1"}


def test_a_purged_unfinished_run_is_settled_and_stays_over(
    parent: WarmParent, new_victim: NewVictim, marginweave: CommandLine
) -> None:
    """Purging gives back what was not begun and books the begun draw as lost; the name cannot be used again."""
    victim = new_victim()
    cli = replace(marginweave, home=victim.home)
    parent.ask(victim.order(point=["begin_draw", "after", 2]))
    victim.check()
    assert cli("purge", victim.run, "--unfinished").returncode == 0
    victim.check()
    record = victim.record()
    assert record is not None
    assert [draw.state.value for draw in record.draws] == ["COMMITTED", "CHARGED_LOST", *["RETURNED"] * 3]
    answer = parent.ask(victim.order())
    assert answer["code"] == 2
    assert "was purged before it was finished" in answer["message"]


def test_internal_evaluation_of_another_source_is_refused(
    parent: WarmParent, new_victim: NewVictim, marginweave: CommandLine
) -> None:
    """The keyed digest of the source is compared first: nothing is read further, booked or written."""
    victim = new_victim()
    assert parent.ask(victim.order())["code"] == 0
    victim.check()
    rows = len(victim.events)
    other = victim.home / "other.csv"
    other.write_text((victim.home / "people.csv").read_text() + "f,north,3,3\n")
    cli = replace(marginweave, home=victim.home)
    refused = cli("evaluate", victim.run, "--internal", "--source", other)
    assert refused.returncode == 2, refused.stderr
    assert "not the one that run r was made from" in refused.stderr
    victim.check()
    assert len(victim.events) == rows
    assert not (victim.folder.internal / "evaluation.json").exists()
