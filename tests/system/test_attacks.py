"""`evaluate RUN --attacks FILE`: what it finds stays in `internal/`, that somebody looked is booked, wrong files are not."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path

import pytest

from marginweave.base.errors import InputError
from marginweave.flows.internal import attack_release
from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.release_checks import contents, opened

pytest.importorskip("syntheval")
pytestmark = pytest.mark.system
HEAD = "sex,region,age,grade"
MARKER, OTHER = "xq7marker", "xq7other"
# name of the file → its content, and what is said of it
WRONG = {
    "few.csv": (f"{HEAD}\n{OTHER},south,30,2\n", "attacks need at least 8"),
    "columns.csv": (f"a,b\n1,{OTHER}\n", "source lacks the declared columns"),
    "quote.csv": (f'{HEAD}\nf,south,30,"{OTHER}\n', "has a quote that is never closed"),
    "nowhere.csv": (None, "does not exist"),
}


def test_what_attacks_find_stays_in_internal(marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No value of either table and no number that was found is printed, logged or written anywhere else."""
    cli, place = opened(marginweave), marginweave.home.with_name("others")
    path = people(cli.home, 300, aggregate__reporting_length=1)
    place.mkdir()
    people(place, 200)
    for table, marker in ((cli.home, MARKER), (place, OTHER)):
        with (table / "people.csv").open("a") as stream:
            stream.write(f"{marker},south,30,2\n")
    assert cli("run", path, "--run", "r").returncode == 0
    before = contents(cli.home / "runs" / "r" / "release")

    monkeypatch.setenv("MARGINWEAVE_LEDGER", cli.variables["MARGINWEAVE_LEDGER"])
    refuses_wrong_files(cli, place)
    result = cli("evaluate", "r", "--attacks", place / "people.csv")
    assert result.returncode == 0, result.stderr
    report = cli.home / "runs" / "r" / "internal" / "attacks.json"
    assert result.stdout.split() == ["Not", "for", "release:", str(report)]
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    found = json.loads(report.read_text())
    assert found["nearest_records"]["rows"] == 201
    numbers = [n for n in re.findall(r"\d\.\d+", report.read_text()) if len(n) > 8]
    assert len(numbers) > 3
    forbidden = re.compile("|".join(map(re.escape, [MARKER, OTHER, *numbers])).encode())
    assert not forbidden.search((result.stdout + result.stderr).encode())
    for name, content in contents(cli.home).items():
        assert name in {"people.csv", "runs/r/internal/attacks.json"} or not forbidden.search(content), name

    assert contents(cli.home / "runs" / "r" / "release") == before
    assert cli("synthesize", "r", "--seed", "3", "--to", cli.home / "more").returncode == 0
    assert json.loads((cli.home / "more" / "privacy.json").read_text())["selected_after_internal_evaluation"] is True


def refuses_wrong_files(cli: CommandLine, place: Path) -> None:
    """Each by a sentence that quotes nothing of the file; one that cannot be read is not booked as a look."""
    with pytest.raises(InputError, match="these are the source of the run"):
        attack_release(cli.home, "r", None, cli.home / "people.csv")
    for name, (content, words) in WRONG.items():
        if content is not None:
            (place / name).write_text(content)
        with pytest.raises(InputError, match=words) as refused:
            attack_release(cli.home, "r", None, place / name)
        assert OTHER not in str(refused.value)
    assert not (cli.home / "runs" / "r" / "internal" / "attacks.json").exists()
