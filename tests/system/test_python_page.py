"""The code of docs/python.md runs as it stands, from top to bottom; what it makes is what the page says."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import marginweave as mw
from marginweave.flows.prefect import session
from tests.support.command_line import CommandLine
from tests.support.places import REPOSITORY

pytestmark = pytest.mark.system
PAGE = REPOSITORY / "docs" / "python.md"
LITTLE = {"method": "mixture", "components": 10, "fits": 2, "iterations": 20}


def test_the_page_from_top_to_bottom(
    marginweave: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a model that is fitted in no time; commands as the page has them, of the run that `fit` has named."""
    for name, value in marginweave.variables.items():
        if name.startswith(("PREFECT_", "MARGINWEAVE_")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(marginweave.home)
    text, said, names = PAGE.read_text(encoding="utf-8"), "", dict[str, Any]()
    for language, block in re.findall(
        r"^```(python|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    ):
        if language == "python":
            exec(compile(block, str(PAGE), "exec"), names)
            said += capsys.readouterr().err
        for line in block.splitlines() if language == "sh" else ():
            run = re.findall("then marginweave publish (.*) --to FOLDER", said)
            words = re.sub("visits-1a2b3c4d-frame", "".join(run), line.partition("#")[0])
            # such a model is not for publication
            even_so = ["--even-so"] if "publish" in words else []
            done = marginweave(*words.split()[1:], *even_so)
            assert done.returncode == 0, (line, done.stderr)
        if "mw.Configuration(" in block:
            names["config"]["synthesize"] = LITTLE
    assert "drawn and charged one-way" in said
    assert f"Released, epsilon 1 and delta 1e-06 charged: {names['model'].release.place}" in said
    assert f"Verdict: {names['release'].evaluation.verdict.publication}" in said
    assert (marginweave.home / "public" / "privacy.json").exists()
    older, records, release = names["older"], names["records"], names["release"]
    assert (len(records), len(older)) == (1000, 500)
    assert {*older["smokes"]} == {"yes"}
    assert older["age"].min() >= 65
    assert records.dtypes.to_dict() == names["visits"].dtypes.to_dict()
    assert [*release.table("region", "smokes").index] == ["north", "south", "west"]
    assert [*names["ledger"].spent("visits").index] == [release.statement.run]
    _found_again(names, monkeypatch, capsys)


def _found_again(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The finished release, by the same rows, without Prefect; the same from a path, on which the command line agrees."""

    def refuse(*_: object) -> None:
        raise AssertionError("a server was asked for")

    monkeypatch.setattr(session, "prefect_session", refuse)
    config, visits = names["config"], names["visits"]
    again = mw.Synthesizer(config).fit(visits)
    assert capsys.readouterr() == (
        "",
        f"Already released, nothing charged: {again.release.place}\n",
    )
    mw.Synthesizer(config, verbose=False).fit(visits)
    assert capsys.readouterr() == ("", "")
    assert again.release.place == names["model"].release.place
    assert again.sample(1000, seed=7).equals(names["records"])
    assert again.__sklearn_is_fitted__()
    assert str(again.release.place) in repr(again)
    with pytest.raises(mw.errors.InputError, match="was made from other source bytes"):
        mw.Synthesizer(config).fit(visits.iloc[:-1])
    with pytest.raises(mw.errors.InputError, match="ends inside a bin"):
        again.sample(5, where={"age": {"from": 100}})
    monkeypatch.undo()


def test_a_finished_release_is_found_without_prefect(
    marginweave: CommandLine, tmp_path: Path
) -> None:
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


@pytest.mark.long  # a signal during a fit is in tests/system/test_stops.py, too
def test_a_fit_that_is_stopped_says_that_it_can_be_resumed(marginweave: CommandLine) -> None:
    """By Ctrl-C after the first charge; the same fit then has a release, and the account one charge."""
    cli, code = (
        marginweave,
        f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background of a shell inherit none
import pandas as pd
import marginweave as mw
table = pd.DataFrame({{"sex": ["f", "m", "f"] * 400, "region": ["north", "south", "west"] * 400}})
columns = {{name: mw.category([*table[name].unique()][:2], missing=[""]) for name in table}}
config = mw.Configuration(dataset="people", privacy=mw.Privacy(epsilon=1, delta=1e-6), columns=columns, synthesize={LITTLE})
mw.Synthesizer(config).fit(table)
""",
    )
    assert cli("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command, env=cli.variables, cwd=cli.home, stderr=subprocess.PIPE, text=True
    ) as stopped:
        assert stopped.stderr is not None
        for line in stopped.stderr:
            if "drawn and charged" in line:
                stopped.send_signal(signal.SIGINT)
                break
        told = stopped.stderr.read()
    assert told.rstrip().endswith("the same fit resumes it. What was charged stays charged."), told
    assert told.count("Traceback") == 1, told
    assert told.count('  File "') == 2, told  # the script and `fit`
    done = subprocess.run(
        command, env=cli.variables, cwd=cli.home, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Account people: epsilon 1 of 1 spent at delta 1e-06, 1 release(s)" in done.stderr
    assert "region is missing in at least" in done.stderr


def marginweave_python(cli: CommandLine, code: str) -> str:
    """What a script prints, in the environment of the command line."""
    script, variables = [sys.executable, "-c", code], cli.variables
    done = subprocess.run(
        script, env=variables, cwd=cli.home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
