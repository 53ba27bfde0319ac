"""What a fault does at every step of a run: the table in docs/operations.md, cell by cell.

`make test-long` makes the whole table and compares it, `make test` some cells of it and what the steps of a draw are.
`python -m pytest tests/system/test_outcomes.py -m "long or not long" --write-outcomes` writes it anew.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from marginweave.accounting.records import State
from tests.support.forked_runs import ForkedRuns
from tests.support.kills import LOST, Victim
from tests.support.outcomes import FAULTS, NOTHING, NOTHING_WRITTEN, STEPS, flip, unflip, word
from tests.support.people_table import people
from tests.support.places import REPOSITORY
from tests.support.samples import every

pytestmark = pytest.mark.system
PAGE = REPOSITORY / "docs" / "operations.md"
TABLE = re.compile(r"^\| step \|.*\n(?:\|.*\n)+", re.MULTILINE)
FINISHES, GOES_ON, RESTORED = "finishes", "resumes", "resumes once restored"


def table_of_page() -> dict[str, dict[str, str]]:
    """step → fault → what the page says."""
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    if found is None:
        return {}
    lines = [
        [cell.strip() for cell in line.strip("|\n").split(" | ")] for line in found[0].splitlines()
    ]
    return {row[0]: dict(zip(lines[0][1:], row[1:], strict=True)) for row in lines[2:]}


def write_column(fault: str, column: dict[str, str]) -> None:
    """Put what came of one fault into the page."""
    table = table_of_page()
    rows = [["step", *FAULTS], ["---"] * (1 + len(FAULTS))]
    for step in STEPS:
        cells = {**dict.fromkeys(FAULTS, "?"), **table.get(step, {})}
        if step in column:
            cells[fault] = column[step]
        rows.append([step, *(cells[name] for name in FAULTS)])
    text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a disk of limited size can be mounted by root only")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--recursive", str(place)], check=True)


def _mend(victim: Victim) -> None:
    """Remove the fault, but for a flipped byte."""
    home, ledger = victim.home, victim.ledger_file
    if home.exists() and not os.access(home, os.W_OK):
        subprocess.run(["umount", str(home)], check=True)
    (home / "ballast").unlink(missing_ok=True)
    away = ledger.with_suffix(".away")
    if away.exists():
        away.replace(ledger)


def outcome(forks: ForkedRuns, disk: Path, step: str, fault: str) -> str:
    """What a run says that the fault strikes at the step, and what it takes to finish it; it is finished, for one charge."""
    home = disk / "home"
    home.mkdir()
    victim = Victim(home=home, config=people(home, 40, aggregate__reporting_length=2))
    makes = disk.parent / "makes"  # what the tests write down is not on the disk that is faulty
    makes.write_text("")
    try:
        answer = forks.ask(victim.order(outcome=[step, fault], makes=str(makes)))
        if answer.code == NOTHING_WRITTEN:
            return NOTHING
        replaced = (
            victim.ledger_file.with_suffix(".away").exists() and fault == "older copy of the ledger"
        )
        if answer.code == 0 and replaced:
            return FINISHES  # it had been booked, and the next command compares
        _mend(victim)
        told = FINISHES if answer.code == 0 else word(answer)
        again = forks.ask(victim.order(makes=str(makes)))
        if again.code != 0:
            said = word(again)
            told = said if told in (FINISHES, said) else f"{told}, then {said}"
            assert unflip(home), (step, fault, again)
            again = forks.ask(victim.order(makes=str(makes)))
            told = f"{told}; {RESTORED}"
        elif told != FINISHES:
            told = f"{told}; {GOES_ON}"
        assert again.code == 0, (step, fault, told, again)
        shutil.copy(makes, victim.makes)
        victim.check_finished()
        return told
    finally:
        _mend(victim)
        shutil.rmtree(home)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_the_table_is_what_happens(
    forks: ForkedRuns, disk: Path, fault: str, pytestconfig: pytest.Config
) -> None:
    """Every step; no draw is lost."""
    column = {step: outcome(forks, disk, step, fault) for step in STEPS}
    if pytestconfig.getoption("write_outcomes"):
        write_column(fault, column)
    assert not [step for step, told in column.items() if "lost" in told]
    table = table_of_page()
    assert column == {step: table[step][fault] for step in STEPS}


SOME = [
    *itertools.islice(
        zip(STEPS, (FAULTS * len(STEPS))[:: len(FAULTS) - 1], strict=False), 0, None, 3
    ),
    ("DRAWN", "disk full"),
    ("write the draw", "read-only"),
    ("COMMITTED", "ledger gone"),
    ("encode", "one byte flipped"),
    ("write the draw", "one byte flipped"),
]


@pytest.mark.parametrize(("step", "fault"), every(2, dict.fromkeys(SOME)))
def test_some_of_the_table_is_what_happens(
    forks: ForkedRuns, disk: Path, step: str, fault: str
) -> None:
    """Of a diagonal every third cell, and what befalls a draw."""
    assert outcome(forks, disk, step, fault) == table_of_page()[step][fault]


# what is damaged between DRAWN and COMMITTED of a draw, when the run had been killed there: file → whether the draw is lost
DAMAGE = {
    "one copy of the seed": (["private/seeds/level-1.seed"], False),
    "both copies of the seed": (["private/seeds/level-1.seed", "private/seeds/level-1.copy"], True),
    "the rows it is drawn from (`private/encode-….ckpt`)": (["private/encode-*.ckpt"], False),
    "the key of choices on its rows (`private/key`), where bounding has made such choices": (
        ["private/key"],
        True,
    ),
    "the draw before it": (["private/draws/count.*.draw"], False),
}


@pytest.mark.parametrize("damaged", DAMAGE)
def test_only_damaged_seeds_and_inputs_lose_a_draw(
    forks: ForkedRuns, tmp_path: Path, damaged: str
) -> None:
    """Killed in the noise of a draw, then one byte flipped: the same command finishes it, or says that the draw is lost."""
    files, loses = DAMAGE[damaged]
    home = tmp_path / "home"
    home.mkdir()
    victim = Victim(
        home=home, config=people(home, 40, aggregate__reporting_length=2, aggregate__percentile=50)
    )
    with (home / "people.csv").open("a") as table:
        # so that the others are bounded (but with a probability below 1e-6), by choices
        table.write("f,,,\n" * 3000)
    assert forks.ask(victim.order(point=["draw level", "before", 1])).code == -signal.SIGKILL
    victim.check()
    for name in files:
        (file,) = victim.folder.path.glob(name)
        flip(file, file.stat().st_size // 2)
    victim.may_lose = loses
    answer = forks.ask(victim.order())
    victim.check()
    said = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| {damaged} |"))
    assert ("**draw lost**" in said) == loses
    if not loses:
        assert answer.code == 0, answer
        victim.check_finished()
        return
    for _ in range(2):
        found = LOST.search(answer.message)
        assert (answer.code, found and found[1]) == (3, "level-1"), answer
        answer = forks.ask(victim.order())
    record = victim.record()
    assert record is not None
    assert [draw.name for draw in record.draws if draw.state == State.CHARGED_LOST] == ["level-1"]
    assert victim.bytes_made.get("level-1", set()) == set()
