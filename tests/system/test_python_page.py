"""The code of docs/python.md runs as it stands, from top to bottom; what it makes is what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import marginweave as mw
from marginweave.flows.orchestration import session
from tests.support.command_line import CommandLine
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.system
PAGE = REPOSITORY / "docs" / "python.md"
LITTLE = {"method": "mixture", "components": 10, "fits": 2, "iterations": 20}


def test_the_page_from_top_to_bottom(marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a model that is fitted in no time; the account is opened as the page says."""
    for name, value in marginweave.variables.items():
        if name.startswith(("PREFECT_", "MARGINWEAVE_")):
            monkeypatch.setenv(name, value)
    text = PAGE.read_text(encoding="utf-8")
    (command,) = re.findall(r"`marginweave (ledger open [^`]*)`", text)
    opened = marginweave(*command.split())
    assert opened.returncode == 0, opened.stderr
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
        if "mw.Configuration(" in block:
            names["config"]["synthesize"] = LITTLE
    older, records, release = names["older"], names["records"], names["release"]
    assert (len(records), len(older)) == (1000, 500)
    assert {*older["smokes"]} == {"yes"}
    assert older["age"].min() >= 65
    assert records.dtypes.to_dict() == names["visits"].dtypes.to_dict()
    assert [*release.table("region", "smokes").index] == ["north", "south", "west"]
    assert [*names["ledger"].spent("visits").index] == [release.statement.run]
    _found_again(names, marginweave, monkeypatch)


def _found_again(names: dict[str, Any], marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finished release, by the same rows, without Prefect; the same from a path, on which the command line agrees."""

    def refuse(*_: object) -> None:
        raise AssertionError("a server was asked for")

    monkeypatch.setattr(session, "prefect_session", refuse)
    config, visits = names["config"], names["visits"]
    again = mw.Synthesizer(config).fit(visits)
    assert again.release.place == names["model"].release.place
    assert again.sample(1000, seed=7).equals(names["records"])
    assert again.__sklearn_is_fitted__()
    assert str(again.release.place) in repr(again)
    with pytest.raises(mw.errors.InputError, match="was made from other source bytes"):
        mw.Synthesizer(config).fit(visits.iloc[:-1])
    with pytest.raises(mw.errors.InputError, match="ends inside a bin"):
        again.sample(5, where={"age": {"from": 100}})
    monkeypatch.undo()


def test_a_finished_release_is_found_without_prefect(marginweave: CommandLine, tmp_path: Path) -> None:
    """In a process that never imports it; a path is found by the run that the command line has made of it."""
    table, file = tmp_path / "people.csv", tmp_path / "people.yaml"
    table.write_text("sex,region\n" + "f,north\nm,south\nf,west\n" * 100)
    columns = {"sex": mw.category(["f", "m"]), "region": mw.category(["north", "south", "west"])}
    made = {"privacy": mw.Privacy(epsilon=1, delta=1e-6), "columns": columns, "synthesize": LITTLE}
    mw.Configuration(dataset="people", source=str(table), **made).to_yaml(file)
    assert marginweave("ledger", "open", "people", "--for", file).returncode == 0
    released = marginweave("run", file)
    assert released.returncode == 0, released.stderr
    code = f"""
import sys
import marginweave as mw
model = mw.Synthesizer({str(file)!r}).fit({str(table)!r})
assert not {{"prefect", "pandas", "numba"}} & {{*sys.modules}}
print(model.release.place)
"""
    found = marginweave_python(marginweave, code)
    assert Path(found).is_dir()
    assert Path(found).parent.name.startswith("people-")


def marginweave_python(marginweave: CommandLine, code: str) -> str:
    """What a script prints, in the environment of the command line."""
    script, variables = [sys.executable, "-c", code], marginweave.variables
    done = subprocess.run(script, env=variables, cwd=marginweave.home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
