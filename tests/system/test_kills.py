"""SIGKILL at every transition and at random times: no charge lost, none uncharged, no draw made twice for one, none lost.

Every run ends by the command that began it. `make test-long` kills a thousand; `--kills-file FILE` keeps how far that has
come, so that it can be stopped and goes on by the same command.
"""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from marginweave.accounting.records import State
from tests.support.command_line import CommandLine
from tests.support.configurations import PRIVATE
from tests.support.forked_runs import POINTS, ForkedRuns, begin
from tests.support.kills import Victim
from tests.support.release_checks import RELEASED
from tests.support.samples import every
from tests.support.shapes import SHAPES, NewVictim
from tests.support.walk import Walk

pytestmark = pytest.mark.system
COMMAND_LINE_SHARE = 0.05
LIVES = 8
# with every kind of draw of k-tuples; the others take their time: in `make test-long`
USUAL = {"private bounds"}


def _walk(part: str, pytestconfig: pytest.Config) -> Walk:
    file = pytestconfig.getoption("kills_file")
    return Walk(part=part, file=None if file is None else Path(file))


def _ended(victim: Victim, killed: int, shape: str) -> Counter[str]:
    """What is told of a run that was finished by the same command."""
    victim.check_finished()
    lines = [line.split() for line in victim.makes.read_text().splitlines()]
    begun = Counter(name for said, name, *_ in lines if said == "begun")
    made = Counter(name for said, name, *_ in lines if said == "made")
    return Counter(
        {
            "kills": killed,
            "runs": 1,
            f"kills of {shape}": killed,
            "draws": len(begun),
            "draws begun again": sum(times - 1 for times in begun.values()),
            "draws made again": sum(times - 1 for times in made.values()),
        }
    )


def _order(choice: random.Random, calls: dict[str, int]) -> dict[str, Any]:
    """Where and how a run is killed next: at a transition that an undisturbed one passes, or at a time."""
    if choice.random() < 0.3:
        return {"after": choice.uniform(0.0, 1.5)}
    point = choice.choice(sorted(calls))
    return {"point": [point, choice.choice(["before", "after"]), choice.randint(1, calls[point])]}


def _one_of_the_walk(forks: ForkedRuns, new_victim: NewVictim, walk: Walk) -> None:
    """One run, killed up to six times wherever chance has it, and finished."""
    number, choice = walk.choices()
    shape = sorted(SHAPES)[number % len(SHAPES)]
    victim = new_victim(shape, publish__keep_private=choice.random() < 0.7)
    calls, killed, refused = forks.calls(shape), 0, 0
    for _ in range(choice.randint(1, 6)):
        order = _order(choice, calls)
        if choice.random() < 0.1:
            order["version"] = f"0.0.{choice.randint(1, 3)}"
        answer = forks.ask(victim.order(**order))
        victim.check()
        if answer.code == 2 and "was begun by marginweave" in answer.message:
            refused += 1  # a program does not end a draw that another one has begun
            continue
        assert answer.code in (0, -signal.SIGKILL), (number, shape, order, answer)
        killed += answer.code != 0
    answer = forks.ask(victim.order())
    if answer.code == 2 and "was begun by marginweave 0.0." in answer.message:
        begun_by = answer.message.split("was begun by marginweave ")[1].split()[0]
        answer = forks.ask(victim.order(version=begun_by))
    assert answer.code == 0, (number, shape, answer)
    ended = _ended(victim, killed, shape)
    walk.add(ended + Counter({"refused to another program": refused}))
    # which are no draws of the collected ones
    kept = victim.folder.draws.is_dir() and shape != "private bounds"
    if kept and choice.random() < 0.3:
        told = forks.ask(victim.order(recompute=True))
        assert told.code == 0, f"the release is not what the draws say: {told}"
    shutil.rmtree(victim.home)


@pytest.mark.long  # at random; at every transition below
def test_killed_anywhere_nothing_is_lost_uncharged_or_drawn_twice(
    forks: ForkedRuns, new_victim: NewVictim, pytestconfig: pytest.Config
) -> None:
    """Processes forked from this one, at transitions and random times."""
    walk, kills = _walk("forked", pytestconfig), int(str(pytestconfig.getoption("kills")))
    wanted = kills - int(COMMAND_LINE_SHARE * kills)
    while walk.figures["kills"] < wanted or walk.figures["runs"] < len(SHAPES):
        _one_of_the_walk(forks, new_victim, walk)


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=() if shape in USUAL else pytest.mark.long) for shape in SHAPES],
)
def test_a_kill_at_every_transition(forks: ForkedRuns, new_victim: NewVictim, shape: str) -> None:
    """Right before and right after the first call of each, some of them in one run; none is left out that a run passes.

    And after each draw: what is made again is the same.
    """
    passed = forks.calls(shape)
    left = deque(
        (point, side) for point in POINTS if passed.get(point) for side in ("before", "after")
    )
    total, killed = len(left), 0
    while left:
        victim, lives = new_victim(shape), LIVES
        while lives and left:
            point, side = left.popleft()
            answer = forks.ask(victim.order(point=[point, side, 1]))
            victim.check()
            if answer.code != -signal.SIGKILL:
                assert answer.code == 0, (point, side, answer)
                assert lives < LIVES, f"{point} is passed no more"
                left.append((point, side))  # behind what the run had passed: at the next one
                break
            killed, lives = killed + 1, lives - 1
        answer = forks.ask(victim.order())
        assert answer.code == 0, answer
        victim.check_finished()
        shutil.rmtree(victim.home)
    assert killed == total >= 50
    victim, code, draws = new_victim(shape), -signal.SIGKILL, 0
    # after each draw in turn, which the next life makes again before it makes another
    while code == -signal.SIGKILL:
        code = forks.ask(victim.order(point=["made", "after", min(draws, 1) + 1])).code
        victim.check()
        draws += code == -signal.SIGKILL
    assert code == 0
    victim.check_finished()
    assert draws == len(victim.committed)


@pytest.mark.long  # twice, at named stages, in tests/system/test_release.py
def test_the_command_line_killed_at_random_times(
    served: CommandLine, new_victim: NewVictim, pytestconfig: pytest.Config
) -> None:
    """The installed program, through Prefect: killed at times spread over a whole run, then finished by the same command."""
    walk = _walk("command line", pytestconfig)
    wanted = int(COMMAND_LINE_SHARE * int(str(pytestconfig.getoption("kills"))))
    calm = new_victim("marginals")
    cli = replace(served, home=calm.home)
    begun = time.monotonic()
    assert cli("run", calm.config, "--run", calm.run).returncode == 0
    # of the same program, that starts as those that are killed do
    length = time.monotonic() - begun

    while walk.figures["kills"] < wanted:
        number, choice = walk.choices()
        shape = sorted(SHAPES)[number % len(SHAPES)]
        victim, killed = new_victim(shape), 0
        cli = replace(served, home=victim.home)
        for share in choice.sample(range(1, 5), 4):
            resumed = victim.folder.manifest_file.exists() and choice.random() < 0.5
            command = (
                ("resume", victim.run) if resumed else ("run", victim.config, "--run", victim.run)
            )
            process = subprocess.Popen(
                cli.command(*command),
                cwd=cli.home, env=cli.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            with suppress(subprocess.TimeoutExpired):  # a run that ends before is not waited for
                process.wait(timeout=length * (share - choice.random()) / 4)
            process.kill()
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
            victim.check()
        ended = cli("run", victim.config, "--run", victim.run)
        assert ended.returncode == 0, (number, shape, ended.stderr)
        victim.check_finished()
        # k-tuples have none
        assert {p.name for p in victim.folder.release.iterdir()} >= RELEASED - {"model.parquet"}
        walk.add(Counter({"kills": killed, "runs": 1, f"kills of {shape}": killed}))
        shutil.rmtree(victim.home)
    assert walk.figures["kills"] >= wanted


def test_a_changed_version_of_the_code_adopts_what_was_drawn(
    forks: ForkedRuns, new_victim: NewVictim
) -> None:
    """Resumed by another version: deterministic stages are computed anew, committed draws are read, nothing is drawn again."""
    victim = new_victim()
    assert forks.ask(victim.order(point=["begin_draw", "before", 4])).code == -signal.SIGKILL
    victim.check()
    before = {file.name for file in victim.folder.private.glob("*.ckpt")}
    committed = dict(victim.committed)
    assert len(committed) == 3
    assert forks.ask(victim.order(version="0.0.0")).code == 0
    victim.check_finished()
    assert committed.items() <= victim.committed.items()
    assert victim.makes.read_text().count("made ") == 5
    assert len({file.name for file in victim.folder.private.glob("*.ckpt")}) == 2 * len(before)


def test_a_draw_is_ended_by_the_program_that_began_it(
    forks: ForkedRuns, new_victim: NewVictim
) -> None:
    """Begun and not made: another program is refused, draws nothing and books nothing; the one that began it goes on."""
    victim = new_victim()
    assert forks.ask(victim.order(point=["made", "before", 3])).code == -signal.SIGKILL
    victim.check()
    rows, made = len(victim.events), victim.makes.read_text()
    answer = forks.ask(victim.order(version="0.0.0"))
    assert answer.code == 2, answer
    assert "finish the run with the program that began it" in answer.message
    victim.check()
    assert (len(victim.events), victim.makes.read_text()) == (rows, made)
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()


def _flip(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])


@pytest.mark.parametrize("damage", [_flip, Path.unlink], ids=["flipped", "missing"])
@pytest.mark.parametrize("ending", ["draw", "copy"])
def test_one_damaged_copy_of_a_draw_is_mended(
    forks: ForkedRuns, new_victim: NewVictim, ending: str, damage: Callable[[Path], None]
) -> None:
    """Of a committed draw and of one that was not committed yet: the other copy takes its place, nothing is drawn again."""
    victim = new_victim()
    assert forks.ask(victim.order(point=["commit_draw", "before", 2])).code == -signal.SIGKILL
    victim.check()
    for draw in ("count", "percentile-1"):
        (file,) = victim.folder.draws.glob(f"{draw}.*.{ending}")
        damage(file)
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()
    made = [
        line.split()[1] for line in victim.makes.read_text().splitlines() if line.startswith("made")
    ]
    assert (made.count("count"), made.count("percentile-1")) == (1, 1)


@pytest.mark.parametrize("damage", [_flip, Path.unlink], ids=["flipped", "missing"])
def test_a_corrupt_committed_draw_stops_the_run(
    forks: ForkedRuns, new_victim: NewVictim, damage: Callable[[Path], None]
) -> None:
    """Both copies: exit 3 that says so, at every attempt; nothing is drawn under its charge."""
    victim = new_victim()
    assert forks.ask(victim.order(point=["begin_draw", "before", 3])).code == -signal.SIGKILL
    for file in victim.folder.draws.glob("count.*"):
        damage(file)
    for _ in range(2):
        answer = forks.ask(victim.order())
        assert answer.code == 3
        assert "draw count" in answer.message
        assert "bytes are missing or damaged" in answer.message
    assert victim.makes.read_text().count("made count ") == 1


def test_a_draw_is_made_again_over_damaged_files(forks: ForkedRuns, new_victim: NewVictim) -> None:
    """Both copies damaged before the commit: the seed is still there, and the same bytes take their place."""
    victim = new_victim()
    assert forks.ask(victim.order(point=["commit_draw", "before", 1])).code == -signal.SIGKILL
    victim.check()
    for file in victim.folder.draws.glob("count.*"):
        _flip(file)
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()
    assert victim.makes.read_text().count("made count ") == 2


@pytest.mark.parametrize(
    "point",
    every(
        2,
        [
            ["file named", "before", 5],
            ["draw percentile", "after", 1],
            ["begin_draw", "after", 3],
            ["commit_draw", "before", 3],
            ["release file", "before", 3],
            ["finish", "before", 1],
            ["published", "before", 1],
        ],
    ),
)
def test_a_zombie_on_another_machine_is_fenced(
    forks: ForkedRuns, new_victim: NewVictim, point: list[object]
) -> None:
    """Stopped in a draw or on its way out, taken over, and woken: it cannot name its file, commit, draw again or publish."""
    victim = new_victim()
    zombie = begin(victim.order(no_lock=True, point=[*point, "stop"]))
    zombie.wait_until_stopped()
    forks.ask(victim.order(no_lock=True))
    victim.check_finished()
    before = victim.record()
    released = {file: file.read_bytes() for file in victim.folder.release.iterdir()}
    zombie.go_on()
    code = zombie.wait()
    booked = point[0] == "published"  # its own files are those that the other attempt has published
    assert code in ((0,) if booked else (1, 3)), zombie.err
    victim.check_finished()
    assert victim.record() == before
    assert {file: file.read_bytes() for file in victim.folder.release.iterdir()} == released


@pytest.mark.parametrize(
    ("rows_of", "manifest"),
    every(
        3,
        itertools.product(
            [["take_lease", "after", 1], ["commit_draw", "after", 1]],
            ["kept", "of the backup"],
        ),
    ),
)
def test_a_ledger_restored_in_the_middle_of_a_run_stops_it(
    forks: ForkedRuns, new_victim: NewVictim, rows_of: list[object], manifest: str
) -> None:
    """What has been drawn since the backup is not drawn again under the charges that the backup still takes for open."""
    victim = new_victim()
    forks.ask(victim.order(point=rows_of))
    backup = victim.home / "backup"
    shutil.copytree(victim.ledger_file.parent, backup)
    shutil.copy(victim.folder.manifest_file, backup / "manifest.json")
    forks.ask(victim.order(point=["commit_draw", "after", 2]))
    made = victim.makes.read_text()
    shutil.rmtree(victim.ledger_file.parent)
    shutil.copytree(backup, victim.ledger_file.parent)
    if manifest == "of the backup":
        shutil.copy(backup / "manifest.json", victim.folder.manifest_file)
    for _ in range(2):
        answer = forks.ask(victim.order())
        assert answer.code == 3, answer
        assert "Restore the newest copy" in answer.message
    assert victim.makes.read_text() == made


def test_a_release_whose_folder_was_removed_is_not_charged_again(
    forks: ForkedRuns, new_victim: NewVictim, marginweave: CommandLine
) -> None:
    """The same command without the manifest is refused, `verify` says what is missing; another name is another release."""
    victim = new_victim()
    assert forks.ask(victim.order()).code == 0
    named = {**marginweave.environment, "MARGINWEAVE_LEDGER": str(victim.ledger_file)}
    cli = replace(marginweave, home=victim.home, environment=named)
    manifest = victim.folder.manifest_file.read_bytes()
    victim.folder.manifest_file.unlink()
    fault = cli("ledger", "verify")
    assert (fault.returncode, "manifest.json is missing" in fault.stderr) == (1, True), fault.stderr
    shutil.move(victim.folder.path, victim.home / "elsewhere")
    seen = cli("ledger", "verify")
    assert seen.returncode == 0, seen.stderr
    assert "run r is published and not in this home" in seen.stdout
    answer = forks.ask(victim.order())
    assert (answer.code, "was charged to account people before" in answer.message) == (2, True)
    shutil.rmtree(victim.folder.path)
    shutil.move(victim.home / "elsewhere", victim.folder.path)
    victim.folder.manifest_file.write_bytes(manifest)
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()


def test_a_length_without_candidates_goes_back_to_the_account(
    forks: ForkedRuns, new_victim: NewVictim
) -> None:
    """An empty table of private domains leaves nothing to combine: length 2 is given back, the guarantee stays."""
    victim = new_victim(columns=dict.fromkeys(("sex", "region", "grade"), PRIVATE))
    (victim.config.parent / "people.csv").write_text("sex,region,grade\n")
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()
    record = victim.record()
    assert record is not None
    returned = {draw.name for draw in record.draws if draw.state == State.RETURNED}
    assert returned == {"percentile-2", "level-2"}


def test_a_purged_unfinished_run_is_settled_and_stays_over(
    forks: ForkedRuns, new_victim: NewVictim, marginweave: CommandLine
) -> None:
    """Purging gives back what was not begun and books the begun draw as lost; the name cannot be used again."""
    victim = new_victim()
    cli = replace(marginweave, home=victim.home)
    forks.ask(victim.order(point=["begin_draw", "after", 2]))
    victim.check()
    victim.may_lose = True
    assert cli("purge", victim.run, "--unfinished").returncode == 0
    victim.check()
    record = victim.record()
    assert record is not None
    assert [draw.state.value for draw in record.draws] == [
        "COMMITTED",
        "CHARGED_LOST",
        *["RETURNED"] * 3,
    ]
    answer = forks.ask(victim.order())
    assert answer.code == 2
    assert "was purged before it was finished" in answer.message


def test_internal_evaluation_of_another_source_is_refused(
    forks: ForkedRuns, new_victim: NewVictim, marginweave: CommandLine
) -> None:
    """The keyed digest of the source is compared first: nothing is read further, booked or written."""
    victim = new_victim()
    assert forks.ask(victim.order()).code == 0
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
