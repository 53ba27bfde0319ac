"""Bad input: exit code 2, one line that names the key or column and the rule, no value, no traceback, no heavy library."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.configurations import raw
from tests.support.samples import every

pytestmark = pytest.mark.system
MARKER = "xq7marker"
GOOD = "sex,region,age,grade\nf,north,30,1\nm,south,41,7\n"

CONFIGURATIONS = {
    "unknown key": ({"privacy__epsilo": 1}, "unknown key privacy.epsilo; did you mean epsilon?"),
    "epsilon 0": ({"privacy__epsilon": 0}, "privacy.epsilon (0) must be positive"),
    "negative epsilon": ({"privacy__epsilon": -1.0}, "privacy.epsilon (-1.0) must be positive"),
    "nan epsilon": ({"privacy__epsilon": float("nan")}, "privacy.epsilon (nan) must be finite"),
    "infinite epsilon": (
        {"privacy__epsilon": float("inf")},
        "privacy.epsilon (inf) must be finite",
    ),
    "delta 1": ({"privacy__delta": 1}, "privacy.delta (1) must be below 1"),
    "missing unit": ({"privacy__unit": None}, "privacy.unit is required"),
    "R too large": (
        {"aggregate__reporting_length": 5},
        "must be at most the number of columns (4)",
    ),
    "bins out of order": (
        {"columns__age__bins": [0, 50, 18, 100]},
        "columns.age has bins out of order",
    ),
    "minimum above maximum": (
        {"columns__age__bounds": [100, 0]},
        "the minimum must be below the maximum",
    ),
    "an unknown kind": (
        {"columns__age": {"type": "text"}},
        "columns.age.type (text) must be category, boolean, number",
    ),
    "survey weights": (
        {"weights": "w"},
        "weights: survey weights are not supported: every record counts once",
    ),
    "a join of tables": ({"join": ["a.csv"]}, "join: tables cannot be joined row by row"),
    "households": (
        {"privacy__unit": "household"},
        "privacy.unit.household: households are not supported",
    ),
    "unconfirmed": (
        {"columns__age__confirm": True},
        "columns.age was drafted from the data and waits for confirmation",
    ),
}
SOURCES = {
    "no header": ("", "has no header"),
    "data in the first line": (f"{MARKER},north,30,1\n", "lacks the declared column"),
    "missing column": (f"sex,region,age\nf,{MARKER},30\n", "lacks the declared column 'grade'"),
    "duplicate column": (
        f"sex,region,age,grade,sex\nf,{MARKER},30,1,m\n",
        "has the column 'sex' more than once",
    ),
    "not UTF-8": (b"sex,region,age,grade\nf,xq7marker\xff,30,1\n", "must be UTF-8"),
    "a quote that stays open": (
        f'sex,region,age,grade\nf,"{MARKER},30,1\n',
        "has a quote that is never closed",
    ),
    "another delimiter": (
        f"sex;region;age;grade\nf;{MARKER};30;1\n",
        "lacks the declared columns 'sex', 'region', 'age'",
    ),
    "ragged": (
        f"sex,region,age,grade\nf,north,30,1\nm,{MARKER}\n",
        "line 3 has 2 fields, the header has 4",
    ),
}


def write(place: Path, configuration: dict, source: str | bytes | None = GOOD) -> Path:
    if source is not None:
        (place / "people.csv").write_bytes(source.encode() if isinstance(source, str) else source)
    path = place / "people.yaml"
    path.write_text(yaml.safe_dump(configuration, sort_keys=False))
    return path


def refused(cli: CommandLine, path: Path, words: str) -> None:
    """One line on standard error with the words, at most the line of the failure on standard output, nothing left behind."""
    result = cli("run", path)
    assert result.returncode == 2, result.stderr
    assert [json.loads(line)["event"] for line in result.stdout.splitlines()] in ([], ["failed"])
    assert words in result.stderr
    assert MARKER not in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list((cli.home / "runs").glob("*/manifest.json"))


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_broken_configuration(marginweave: CommandLine, tmp_path: Path, case: str) -> None:
    changes, words = CONFIGURATIONS[case]
    refused(marginweave, write(tmp_path, raw(**changes)), words)


@pytest.mark.parametrize("case", SOURCES)
def test_a_broken_source(marginweave: CommandLine, tmp_path: Path, case: str) -> None:
    content, words = SOURCES[case]
    assert (
        marginweave("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    )
    refused(marginweave, write(tmp_path, raw(), content), words)


def test_an_absent_source(marginweave: CommandLine, tmp_path: Path) -> None:
    refused(marginweave, write(tmp_path, raw(), None), "people.csv) does not exist")


def test_a_data_dependent_stop_is_told_to_the_operator_only(
    served: CommandLine, tmp_path: Path
) -> None:
    """outside: error stops before the first draw: exit 2, the column but not the value; nothing charged.

    That a rule was broken is a fact of the data: it stands on the terminal and in internal/, not in Prefect's database.
    """
    served("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6")
    path = write(
        tmp_path, raw(columns__sex__outside="error"), f"sex,region,age,grade\n{MARKER},north,30,1\n"
    )
    result = served("run", path)
    assert result.returncode == 2
    assert "column 'sex' breaks the rule 'every value is declared'" in result.stderr
    assert "epsilon 0 of 1" in served("ledger", "list").stdout
    rule, telling = b"every value is declared", []
    for file in served.home.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert MARKER.encode() not in content, file
            telling += [file.name] if rule in content else []
    assert telling == ["stopped.txt"]


HEAVY = {
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "numba",
    "sqlalchemy",
    "opendp",
    "great_expectations",
    "prefect",
}


def test_help_and_refusals_load_no_heavy_library(alone: CommandLine, tmp_path: Path) -> None:
    """So they are quick; how quick, `benchmarks/start.py` measures."""
    broken = write(tmp_path, raw(privacy__epsilon=-1.0))
    for arguments in (
        ["--help"],
        ["run", "--help"],
        ["run", str(broken)],
        ["plan", str(tmp_path / "absent.yaml")],
    ):
        command = [sys.executable, "-X", "importtime", *alone.command(*arguments)]
        result = subprocess.run(
            command,
            cwd=alone.home,
            env=alone.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == (0 if "--help" in arguments else 2)
        imported = {
            line.rpartition("|")[2].strip()
            for line in result.stderr.splitlines()
            if "import time:" in line
        }
        assert "typer" in imported
        assert not HEAVY & imported, arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["nothing"],
        ["no\nthing"],
        ["run", "x.yaml", "--what"],
        ["run", "x.yaml", "--wh\nat"],
        ["run", "x\ny.yaml"],
        ["run", "x.yaml", "y.yaml"],
        ["approve", "r", "--by", "x"],
        ["approve", "r", "--by", "x\ny", "--reason", "z"],
        ["ledger", "open", "a"],
        ["ledger", "open", "a", "--epsilon", "1\n2", "--delta", "1e-6"],
        ["synthesize", "r", "--records", "1\n2"],
    ],
)
def test_a_slip_in_the_command_is_exit_2_and_one_line(
    marginweave: CommandLine, arguments: list[str]
) -> None:
    result = marginweave(*arguments)
    assert result.returncode == 2
    assert [json.loads(line)["event"] for line in result.stdout.splitlines()] in ([], ["failed"])
    assert result.stderr.startswith("marginweave: ")
    assert result.stderr.count("\n") == 1


def test_a_group_of_commands_alone_shows_its_help(marginweave: CommandLine) -> None:
    result = marginweave("ledger")
    assert (result.returncode, result.stderr) == (2, "")
    assert "verify" in result.stdout


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [("0", "1e-6"), ("-1", "1e-6"), ("nan", "1e-6"), ("1", "1"), ("x", "1e-6")],
)
def test_a_cap_that_breaks_a_rule_opens_nothing(
    marginweave: CommandLine, epsilon: str, delta: str
) -> None:
    result = marginweave("ledger", "open", "people", f"--epsilon={epsilon}", f"--delta={delta}")
    assert result.returncode == 2, result.stderr
    assert re.search("must|is not a number", result.stderr)
    assert (
        marginweave("ledger", "list").returncode == 3
        or "people" not in marginweave("ledger", "list").stdout
    )


def wide(number: int, rows: int) -> tuple[dict[str, Any], str]:
    """Columns of two values, one of as many as there are rows, and their table."""
    names = [f"c{i}" for i in range(number)]
    columns: dict[str, Any] = {name: {"type": "category", "values": ["a", "b"]} for name in names}
    columns["code"] = {"type": "category", "domain": "private"}
    lines = [
        ",".join(["ab"[(i * j) % 2] for j in range(number)] + [f"{MARKER}{i}"]) for i in range(rows)
    ]
    return columns, "\n".join([",".join([*names, "code"]), *lines]) + "\n"


def test_triples_of_two_hundred_columns(marginweave: CommandLine, tmp_path: Path) -> None:
    """They are refused by their number, from public facts."""
    columns, table = wide(199, 10)
    assert (
        marginweave("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    )
    config = write(tmp_path, raw(columns=columns), table)
    refused(marginweave, config, "combinations of 3 columns are 1313400 sets of columns")


@pytest.mark.parametrize("number", every(2, [29, 199]))
def test_two_hundred_columns_and_thousands_of_categories(
    marginweave: CommandLine, tmp_path: Path, number: int
) -> None:
    """Pairs of 30 or 200 columns are released like any others."""
    cli, (columns, table) = marginweave, wide(number, 3000)
    assert cli("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    result = cli(
        "run",
        write(tmp_path, raw(columns=columns, aggregate__reporting_length=2), table),
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    (release,) = (cli.home / "runs").glob("*/release")
    assert (release / "synthetic.csv").read_text().partition("\n")[0].count(",") == number
    assert MARKER not in (release / "aggregates.csv").read_text()
