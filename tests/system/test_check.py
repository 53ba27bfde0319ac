"""`marginweave check` and a person's run: a table that is lost is found before anything is charged, and told to nobody else."""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.configurations import quick, raw
from tests.support.forked_runs import STAGES
from tests.support.people_table import people
from tests.support.samples import every
from tests.support.terminal import on_terminal

pytestmark = pytest.mark.system
MARKER = "xq7marker"
COLUMNS = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "cost": {"type": "number", "bounds": [0, 1000], "bins": 4},
}
ROWS = [f"{'fm'[i % 2]},{i * 7 % 1000}.5,p{i // 3}" for i in range(300)]


def write(place: Path, rows: list[str], head: str = "sex,cost,patient_id", **changes: Any) -> Path:
    (place / "people.csv").write_text("\n".join([head, *rows]) + "\n")
    path = place / "people.yaml"
    path.write_text(yaml.safe_dump(quick(raw(**{"columns": COLUMNS, **changes})), sort_keys=False))
    return path


def decimal_commas(place: Path) -> Path:
    rows = [row.replace(",", ";").replace(".", ",") for row in ROWS]
    source = {"file": "people.csv", "delimiter": "semicolon"}
    return write(place, [*rows, f"f;{MARKER};"], "sex;cost;patient_id", source=source)


def wrong_codes(place: Path) -> Path:
    return write(place, [*ROWS, f"{MARKER},1,"], columns__sex__values=["female", "male"])


def header_only(place: Path) -> Path:
    return write(place, [])


def dates_of_another_form(place: Path) -> Path:
    columns = {
        **COLUMNS,
        "day": {"type": "date", "bounds": ["2020-01-01", "2021-12-31"], "bins": "year"},
    }
    return write(
        place,
        [f"{row},{i % 28 + 1:02d}.02.2021" for i, row in enumerate(ROWS)],
        "sex,cost,id,day",
        columns=columns,
    )


def currency_signs(place: Path) -> Path:
    return write(place, [row.replace(",", ",€", 1) for row in ROWS])


def half_outside(place: Path) -> Path:
    return write(
        place, [f"{row.split(',')[0]},{5000 if i % 3 else 7},p{i}" for i, row in enumerate(ROWS)]
    )


STOPS = {
    decimal_commas: ("column 'cost': no cell can be read as a number", "decimal: comma", "No cell"),
    wrong_codes: (
        "column 'sex': no cell can be read as a declared value",
        "published code list",
        "No cell",
    ),
    header_only: ("the table has no rows", "Is it the right file", "no rows"),
    dates_of_another_form: ("column 'day': no cell can be read as a date", '"%d.%m.%Y"', "No cell"),
    currency_signs: (
        "column 'cost': no cell can be read as a number",
        'text: {unit: "€"}',
        "No cell",
    ),
    half_outside: (
        "column 'cost': more than half of the cells not declared missing",
        "widen `bounds`",
        "66.7 %",
    ),
}


def said(text: str) -> str:
    return " ".join(text.split())


def opened(cli: CommandLine) -> CommandLine:
    assert cli("ledger", "open", "people", "--epsilon", "9", "--delta", "1e-4").returncode == 0
    return cli


@pytest.mark.parametrize("trap", STOPS, ids=lambda trap: trap.__name__)
def test_a_lost_table_is_found(marginweave: CommandLine, tmp_path: Path, trap: Any) -> None:
    """`check` says what, and what to do about it; no value, and nothing that stays."""
    (_, advice, share), path = STOPS[trap], trap(tmp_path)
    looked = marginweave("check", path)
    assert looked.returncode == 1, looked.stderr
    assert re.search(share, said(looked.stdout))
    assert advice in said(looked.stdout)
    assert "Stops a run." in looked.stdout
    assert MARKER not in looked.stdout + looked.stderr
    assert {file.name for file in marginweave.home.rglob("*") if file.is_file()} == {
        "looks.jsonl",
        "looks.key",
        "looks.lock",
    }


@pytest.mark.parametrize(
    "trap", [decimal_commas, *every(3, [header_only, wrong_codes, half_outside])]
)
def test_a_run_of_a_lost_table_stops_before_anything_is_charged(
    served: CommandLine, tmp_path: Path, trap: Any
) -> None:
    """It stops before the first draw, and the reason is the operator's alone: Prefect and the log have a constant text."""
    cli, reason, path = opened(served), STOPS[trap][0], trap(tmp_path)
    stopped = cli("run", path, "--run", "r")
    assert stopped.returncode == 2, stopped.stderr
    assert reason in stopped.stderr
    assert "Nothing was charged" in stopped.stderr
    assert MARKER not in stopped.stderr
    assert "epsilon 0 of 9" in cli("ledger", "list").stdout
    look = json.loads((cli.home / ".marginweave" / "looks.jsonl").read_text())
    assert (look["command"], look["dataset"]) == ("run", "people")
    last = json.loads(stopped.stdout.splitlines()[-1])
    assert (last["stage"], last["error"]) == ("validate", "OperatorError")
    telling = [
        file.name
        for file in cli.home.rglob("*")
        if file.is_file() and reason.encode() in file.read_bytes()
    ]
    assert telling == ["stopped.txt"]
    # where one looks next: the place of the reason, and not the reason
    why = str(cli.home / "runs" / "r" / "internal" / "stopped.txt")
    for asked in (cli("runs").stdout, cli("publish", "r", "--to", cli.home / "out").stderr):
        assert (why in asked, reason in asked) == (True, False)
    assert not (cli.home / "runs" / "r" / "release" / "privacy.json").exists()


def test_rows_that_cannot_be_read_are_told_to_the_operator_alone(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Which row it is says how many there are: no line of a log has it, and it is a look, as a later configuration says."""
    cli, path = opened(marginweave), write(tmp_path, [*ROWS, "f,5"])
    stopped = cli("run", path, "--run", "r", "--yes")
    assert (stopped.returncode, f"line {len(ROWS) + 2} has 2 fields" in stopped.stderr) == (
        2,
        True,
    ), stopped.stderr
    assert str(len(ROWS) + 2) not in re.sub(r'"time": "[^"]*"', "", stopped.stdout)
    assert json.loads((cli.home / ".marginweave" / "looks.jsonl").read_text())["command"] == "run"
    assert (
        cli("run", write(tmp_path, ROWS, columns__cost__decimals=0), "--run", "r2").returncode == 0
    )
    statement = json.loads((cli.home / "runs" / "r2" / "release" / "privacy.json").read_text())
    assert statement["configured_after_check"]


def test_a_release_that_does_not_fit_is_refused_before_a_row_is_read(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Also where its last row could not be read."""
    cli, path = opened(marginweave), write(tmp_path, [*ROWS, "f,5"], privacy__epsilon=30.0)
    refused = cli("run", path)
    assert (refused.returncode, "does not hold this release" in refused.stderr) == (3, True), (
        refused.stderr
    )
    assert not list(cli.home.rglob("looks.jsonl"))


def test_a_run_that_stopped_begins_anew_when_its_table_is_mended(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Under the same name, with nothing left of the other table; once noise was drawn the name stands for its table."""
    cli, path = opened(marginweave), decimal_commas(tmp_path)
    assert cli("run", path, "--run", "r").returncode == 2
    rows = [row.replace(",", ";") for row in ROWS]
    (tmp_path / "people.csv").write_text("\n".join(["sex;cost;patient_id", *rows]) + "\n")
    mended = cli("run", path, "--run", "r")
    assert mended.returncode == 0, mended.stderr
    assert "1 release(s)" in cli("ledger", "list").stdout
    assert not (cli.home / "runs" / "r" / "internal" / "stopped.txt").exists()
    decimal_commas(tmp_path)
    again = cli("run", path, "--run", "r")
    assert (again.returncode, "other source bytes" in again.stderr) == (2, True), again.stderr


def test_a_run_that_nobody_watches_does_not_stop(marginweave: CommandLine, tmp_path: Path) -> None:
    """With --yes a lost table is released like any other, stage by stage; `check: stop` stops it there, too."""
    cli, path = opened(marginweave), wrong_codes(tmp_path)
    lost = cli("run", path, "--run", "lost", "--yes")
    assert lost.returncode == 0, lost.stderr
    good = cli("run", write(tmp_path, ROWS), "--run", "good")
    assert good.returncode == 0, good.stderr
    events = [
        [(line["event"], line.get("stage")) for line in map(json.loads, result.stdout.splitlines())]
        for result in (lost, good)
    ]
    assert events[0] == events[1]
    assert len(events[0]) > len(STAGES) / 2
    statement = json.loads((cli.home / "runs" / "lost" / "release" / "privacy.json").read_text())
    assert "a column that is lost for the most part" in statement["not_covered"][0]
    assert "check" not in json.loads(statement["configuration"])
    strict = write(tmp_path, [*ROWS, ""], columns__sex__values=["female", "male"], check="stop")
    assert cli("run", strict, "--run", "strict", "--yes").returncode == 2


def test_outside_on_purpose_does_not_stop(marginweave: CommandLine, tmp_path: Path) -> None:
    """Most values outside, and `outside: null` is written out: it is meant."""
    rows = [f"{'fxy'[i % 3]},{i},p{i}" for i in range(90)]
    assert marginweave("check", write(tmp_path, rows)).returncode == 1
    looked = marginweave("check", write(tmp_path, rows, columns__sex__outside="null"))
    assert looked.returncode == 0
    assert (
        "Fewer than half of the cells not declared missing have a declared value: 66.7 % are outside"
        in said(looked.stdout)
    )


def test_a_good_table_is_said_to_be_in_one_line(marginweave: CommandLine, tmp_path: Path) -> None:
    result = marginweave("check", people(tmp_path, 100))
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(
        r"people: the table is as \S+ declares it, all 4 columns\. Next: \S+ plan \S+\n",
        result.stdout,
    )
    kept = [file for file in marginweave.home.rglob("*") if file.is_file()]
    assert {file.name for file in kept} == {"looks.jsonl", "looks.key", "looks.lock"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in kept} == {0o600}


def test_a_table_that_cannot_be_read(marginweave: CommandLine, tmp_path: Path) -> None:
    """A semicolon file that is read with commas, and a ragged one: refused as `run` refuses them, and nobody has looked."""
    path = write(tmp_path, [row.replace(",", ";") for row in ROWS], "sex;cost;patient_id")
    result = marginweave("check", path)
    assert result.returncode == 2
    assert "delimiter: semicolon" in result.stderr
    assert not (marginweave.home / ".marginweave").exists()
    ragged = marginweave("check", write(tmp_path, [*ROWS, f"f,{MARKER}"]))
    assert ragged.returncode == 2
    assert MARKER not in ragged.stderr


@pytest.mark.parametrize(
    "columns",
    [COLUMNS, {**COLUMNS, "patient_id": {"type": "identifier"}}],
    ids=["not declared", "identifier"],
)
def test_ids_that_repeat(marginweave: CommandLine, tmp_path: Path, columns: dict[str, Any]) -> None:
    result = marginweave("check", write(tmp_path, [*ROWS, "f,1,once", "m,2,"], columns=columns))
    assert result.returncode == 0
    assert "99.7 % of them share their patient_id with another row" in said(result.stdout)
    assert "{column: patient_id, max_records: …}" in said(result.stdout)
    unique = [re.sub("p[0-9]+", f"p{i}", row) for i, row in enumerate(ROWS)]
    assert (
        "declares it, all 2 columns"
        in marginweave("check", write(tmp_path, unique, columns=columns)).stdout
    )
    unit = {"column": "patient_id", "max_records": 3}
    assert (
        "unit: row"
        not in marginweave(
            "check", write(tmp_path, ROWS, columns=columns, privacy__unit=unit)
        ).stdout
    )


def test_rows_without_an_id_are_counted(marginweave: CommandLine, tmp_path: Path) -> None:
    """A release leaves them out, and never says how many they are."""
    path = write(
        tmp_path,
        ["f,1,a", "m,2,", "f,3, "],
        privacy__unit={"column": "patient_id", "max_records": 2},
    )
    result = marginweave("check", path)
    assert "66.7 % of the rows have no patient_id: no number of a release counts them" in said(
        result.stdout
    )
    own = {"column": "patient_id", "max_records": 2, "missing_subject": "own"}
    assert (
        "no patient_id"
        not in marginweave("check", write(tmp_path, ["f,1,a", "m,2,"], privacy__unit=own)).stdout
    )


def test_special_codes_are_no_reason_to_widen_bounds(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Cells beyond the bounds that look like codes: the advice is to declare them, without a value of the table."""
    coded = [
        f"{row.split(',')[0]},{99999 if i % 9 == 0 else -9 if i == 1 else i},p{i}"
        for i, row in enumerate(ROWS)
    ]
    told = said(marginweave("check", write(tmp_path, coded)).stdout)
    assert "Most look like special codes" in told
    assert "widen `bounds`: write those that are documented below `codes`" in told
    assert "99999" not in told
    few = [*ROWS, *(f"f,{1500 + i},x{i}" for i in range(40))]
    assert "If the published limits are wider" in said(
        marginweave("check", write(tmp_path, few)).stdout
    )


def test_ids_of_a_column_that_is_not_declared(marginweave: CommandLine, tmp_path: Path) -> None:
    """By a name that people give to ids, where the values repeat as those of people do; a column of groups is none."""
    for head, tells in (
        ("sex,cost,Patientennummer", True),
        ("sex,cost,fall", True),
        ("sex,cost,town", False),
    ):
        told = marginweave("check", write(tmp_path, ROWS, head)).stdout
        assert ("`unit: row` protects single rows" in said(told)) is tells
    groups = [re.sub("p[0-9]+", f"p{i % 3}", row) for i, row in enumerate(ROWS)]
    assert "unit: row" not in marginweave("check", write(tmp_path, groups, "sex,cost,fall")).stdout


@pytest.mark.long  # whole runs on a terminal; `check` says the same above
def test_a_person_at_a_terminal_is_told_of_repeated_ids_before_the_release(
    served: CommandLine, tmp_path: Path
) -> None:
    """On the terminal alone: no pipe, no --yes, no log, no record of Prefect and no file of the home has it."""
    cli, path, words = (
        opened(served),
        write(tmp_path, ROWS, "sex,cost,case_no"),
        "values of case_no",
    )
    shown = on_terminal(cli, "run", path, "--run", "seen").stdout
    assert words in shown
    assert "Released" in shown
    # finished: nothing is read
    assert words not in on_terminal(cli, "run", path, "--run", "seen").stdout
    assert words not in on_terminal(cli, "run", path, "--run", "other", "--yes").stdout
    piped = cli("run", path, "--run", "piped")
    assert words not in said(piped.stdout + piped.stderr)
    heard = re.compile(rb"values\s+of\s+case_no")
    assert not [
        file for file in cli.home.rglob("*") if file.is_file() and heard.search(file.read_bytes())
    ]


def test_rules_suites_and_columns_of_one_value(marginweave: CommandLine, tmp_path: Path) -> None:
    columns = {
        **COLUMNS,
        "town": {"type": "category", "values": ["a", "b"]},
        "free": {"type": "category", "values": ["x"]},
    }
    columns["group"] = {"type": "category", "values": ["low", "high"]}
    rows = [f"{row.rsplit(',', 1)[0]},{'a' if i % 4 else ''},,low" for i, row in enumerate(ROWS)]
    structure = {
        "forbidden": [{"sex": "f", "town": "a"}],
        "determined": [{"column": "group", "by": "sex", "mapping": {"f": "low", "m": "high"}}],
    }
    suite = {
        "name": "s",
        "expectations": [
            {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "sex"}}
        ],
    }
    suite["expectations"].append(
        {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "sex", "regex": "m"}}
    )
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    expectations = {"input": "suite.json"}
    path = write(
        tmp_path,
        rows,
        "sex,cost,town,free,group",
        columns=columns,
        structure=structure,
        expectations=expectations,
    )
    result = marginweave("check", path)
    assert result.returncode == 1, result.stderr
    told = said(result.stdout)
    assert "not met: column 'sex' breaks expect_column_values_to_match_regex" in told
    assert re.search(
        r"structural zeros 25\.0 % of the rows have a combination that `structure\.forbidden` rules out",
        told,
    )
    assert "50.0 % of the rows have another value than `structure.determined` computes" in told
    assert re.search(r"free 100\.0 % Every cell is missing", told)
    assert re.search(r"town 25\.0 % Every cell that is filled has the same value", told)
    assert (
        told.index("Stops a run.")
        < told.index("Every cell is missing")
        < told.index("has the same value")
    )
    assert not re.search(r"\bb\b", told)  # which declared values do not occur is told to nobody


def test_a_gap_that_a_rule_declares_is_no_question(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Most cells of a column are missing where a rule says that it does not apply; without the rule, `check` asks."""
    columns = {**COLUMNS, "packs": {"type": "category", "values": ["1", "2"], "missing": [""]}}
    rows = [
        f"{row},{1 + i // 2 % 2 if row[0] == 'f' and i % 3 else ''}" for i, row in enumerate(ROWS)
    ]
    head = "sex,cost,patient_id,packs"
    applies = {"applies": [{"columns": ["packs"], "where": {"sex": "f"}}]}
    for structure, asks in ((None, True), (applies, False)):
        path = write(tmp_path, rows, head, columns=columns, structure=structure)
        told = said(marginweave("check", path).stdout)
        assert re.search(r"packs \d\d\.\d %", told)
        assert ("% of the cells are missing" in told) is asks


@pytest.mark.parametrize(
    ("rows", "told"), [(3 * len(ROWS), False), (3 * len(ROWS) + 3, True), (1, True)]
)
def test_a_size_that_is_far_from_the_table_is_said(
    marginweave: CommandLine, tmp_path: Path, rows: int, told: bool
) -> None:
    path = write(tmp_path, ROWS)
    path.write_text(f"rows: {rows}\n{path.read_text()}")
    looked = marginweave("check", path)
    assert ("times, of the rows that `rows:` says" in said(looked.stdout)) is told
    assert looked.returncode == 0


def test_values_are_shown_on_a_terminal_alone(marginweave: CommandLine, tmp_path: Path) -> None:
    path = write(tmp_path, [*ROWS, f"{MARKER}\x1b[2J,1,"])
    piped = marginweave("check", path, "--show-values")
    assert piped.returncode == 2
    assert "--show-values needs a terminal" in piped.stderr
    assert MARKER not in on_terminal(marginweave, "check", path).stdout
    shown = on_terminal(marginweave, "check", path, "--show-values").stdout
    assert MARKER in shown
    assert "\x1b[2J" not in shown
    for file in marginweave.home.rglob("*"):
        assert not file.is_file() or MARKER.encode() not in file.read_bytes()


def test_what_is_configured_after_a_look_says_so(marginweave: CommandLine, tmp_path: Path) -> None:
    cli = opened(marginweave)

    def marked(run: str, **changes: Any) -> bool:
        result = cli("run", write(tmp_path, ROWS, **changes), "--run", run)
        assert result.returncode == 0, result.stderr
        statement = json.loads((cli.home / "runs" / run / "release" / "privacy.json").read_text())
        assumed = any("was not taken from the table" in text for text in statement["assumptions"])
        report = (cli.home / "runs" / run / "release" / "report.html").read_text()
        assert assumed == ("Who had looked" in report) == statement["configured_after_check"]
        assert assumed != (
            "No look at the table by other settings than these was recorded" in report
        )
        return bool(statement["configured_after_check"])

    assert cli("check", write(tmp_path, ROWS)).returncode == 0
    assert not marked("same")
    assert marked("changed", columns__cost__bounds=[0, 2000])


def test_rows_that_a_quote_has_taken_are_named_by_their_line(
    marginweave: CommandLine, tmp_path: Path
) -> None:
    """Every row has as many fields as the header, so that nothing else is wrong; `init` says it as well."""
    good = [f"{'fm'[i % 2]},{i % 100},{i}" for i in range(400)]
    taken = ['"f,1,7', *good[:30], 'm",1,8']
    path = write(tmp_path, [*good, *taken, *good])
    checked = said(marginweave("check", path).stdout)
    assert "One cell, from line 402 of the file to line 433, may hold whole rows." in checked
    assert "a quote opens there by mistake" in checked
    drafted = marginweave("init", tmp_path / "people.csv", "--output", tmp_path / "draft.yaml")
    assert "One cell, from line 402 of the file to line 433, may hold whole rows." in said(
        drafted.stdout
    )
    assert "# One cell, from line 402 of the file" in (tmp_path / "draft.yaml").read_text()
