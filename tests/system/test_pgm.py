"""The extra `pgm` in an environment of its own: its laws hold, and a release is made with it from end to end."""

from __future__ import annotations

import csv
import subprocess
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.people_table import people
from tests.support.places import REPOSITORY
from tests.support.release_checks import opened

pytestmark = [pytest.mark.system, pytest.mark.long]  # downloads 100 MB


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that this environment has, and the extra beside it, as the project pins it: 400 MB on the disk."""
    place = tmp_path_factory.mktemp("pgm")
    venv.create(place, with_pip=True, symlinks=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    (own / "project.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]["pgm"]
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", "constraints.txt"]
    subprocess.run([place / "bin" / "python", *install, *wanted], cwd=REPOSITORY, check=True)
    return place / "bin" / "python"


def test_the_laws_hold_where_the_extra_is(interpreter: Path) -> None:
    command = [interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/laws/test_pgm.py"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


@pytest.fixture
def program(interpreter: Path, settled: CommandLine) -> CommandLine:
    """`marginweave` of that environment."""
    path = interpreter.with_name("marginweave")
    path.write_text(f"#!{interpreter}\nfrom marginweave.flows.cli import main\nmain()\n")
    path.chmod(0o755)
    return CommandLine(settled.home, program=path)


@pytest.mark.parametrize(
    "aggregate",
    [
        {"method": "marginals"},
        {"method": "marginals", "cliques": {"adaptive": 3, "rounds": 2, "batch": 2}},
        {"method": "k-tuples"},
    ],
    ids=["selected", "rounds", "k-tuples"],
)
def test_a_release_from_end_to_end(program: CommandLine, aggregate: dict[str, object]) -> None:
    """Counts of more than a limited model holds; no forbidden record, no value missing where none can be,
    and the same again by `synthesize`.
    """
    changes: dict[str, object] = {
        "aggregate": aggregate,
        "synthesize__method": "pgm",
        "synthesize__model_size": 400,
    }
    forbidden = {"forbidden": [{"sex": "f", "region": "north"}]}
    for name in ("sex", "grade"):
        changes |= {f"columns__{name}__missing": [], f"columns__{name}__outside": "error"}
    path = people(opened(program).home, 300, **changes, structure=forbidden)
    done = program("run", path, "--run", "r", timeout=600)
    assert done.returncode == 0, done.stderr
    release = program.home / "runs" / "r" / "release"
    with (release / "synthetic.csv").open(newline="") as stream:
        records = list(csv.DictReader(stream))
    assert 200 < len(records) < 400
    assert not [r for r in records if r["sex"] == "f" and r["region"] == "north"]
    assert all(record["sex"] and record["grade"] for record in records)
    again = program("synthesize", "r", "--to", program.home / "again", timeout=600)
    assert again.returncode == 0, again.stderr
    assert (program.home / "again" / "synthetic.csv").read_bytes() == (release / "synthetic.csv").read_bytes()
