"""Files as people have them, through the command line: what `init` drafts is released right, in every form of the file."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import yaml

from tests.support.command_line import CommandLine
from tests.support.configurations import raw
from tests.support.drafts import answered
from tests.support.samples import every

pytestmark = pytest.mark.system
MARKER = "xq7marker"
ROWS = 3000
TOWNS = [f"Ort {i % 7}é" for i in range(ROWS)]
COSTS = [1000 + (37 * i) % 2000 + i % 4 / 4 for i in range(ROWS)]
MEAN = sum(COSTS) / ROWS
NAMES = ["t.csv", "t.csv.zst", "t.csv.gz", "t.feather", "t.xlsx"]


def text(delimiter: str, spell: Callable[[float], str]) -> str:
    lines = [
        delimiter.join(("ort", "kosten")),
        *(delimiter.join((t, spell(c))) for t, c in zip(TOWNS, COSTS, strict=True)),
    ]
    return "\n".join(lines) + "\n"


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


def write(place: Path) -> None:
    if place.name == "t.csv":
        place.write_bytes(text(";", german).encode("cp1252"))
    elif place.name == "t.csv.gz":
        place.write_bytes(gzip.compress(text("\t", german).encode("utf-16")))
    elif place.name == "t.csv.zst":
        place.write_bytes(
            pa.Codec("zstd").compress(text(",", str).encode("utf-8-sig"), asbytes=True)
        )
    elif place.name == "t.xlsx":
        book = openpyxl.Workbook(write_only=True)
        sheet = book.create_sheet("Kosten")
        book.create_sheet("Hinweise").append([MARKER])
        rows = zip(TOWNS, COSTS, strict=True)
        for row in (
            ["Kosten 2024"],
            [],
            ("ort", "kosten"),
            *rows,
            ["Gesamt", sum(COSTS)],
            [MARKER],
        ):
            sheet.append(row)
        book.save(place)
    else:
        feather.write_feather(pa.table({"ort": TOWNS, "kosten": COSTS}), str(place))


TOLD = {
    "t.csv": "encoding windows-1252, semicolon between fields, decimal comma, dot between thousands",
    "t.csv.gz": "encoding utf-16, tab between fields, decimal comma, dot between thousands",
    "t.csv.zst": "encoding utf-8, comma between fields, decimal dot",
    "t.xlsx": "decimal dot",
    "t.feather": "decimal dot",
}


LAYOUTS = {"t.xlsx": [("sheet", "Kosten"), ("skip", "2"), ("footer", "2")]}


@pytest.mark.parametrize("name", every(4, NAMES))
def test_a_draft_of_any_form_is_released_right(marginweave: CommandLine, name: str) -> None:
    """The mean of a column of numbers is right within half a bin, and nothing is missing but what noise adds.

    The sheet has a title above the table, a total and a note below it, and another sheet beside it.

    3,000 records at epsilon 30: noise of a count below 2, so the mean of ten bins of 200 moves by less than 5 at six sigma;
    a draw inside a bin adds 200 / sqrt(12 x 3,000), 1.1, and bins that are not filled evenly less than half a bin.
    """
    cli = marginweave
    write(cli.home / name)
    drafted = cli("init", name)
    assert drafted.returncode == 0, drafted.stderr
    assert f"Read 3,000 rows of {name} with {TOLD[name]};" in drafted.stdout
    place = cli.home / "t.yaml"
    draft = place.read_text()
    layout = re.findall(r"^  (sheet|skip|footer): (.*)", draft, re.MULTILINE)
    assert layout == LAYOUTS.get(name, [])
    assert MARKER not in draft + drafted.stdout
    assert (
        "kosten: {type: number, bounds: [1000, 3000], bins: 10, decimals: 2, confirm: true}"
        in draft
    )
    draft = answered(draft, "the tariff").replace("epsilon: 1.0", "epsilon: 30.0")
    place.write_text(
        f"{draft}aggregate: {{method: marginals, cliques: [[ort, kosten]]}}\nsynthesize: {{method: gum}}\n"
    )
    looked = cli("check", "t.yaml")
    assert looked.returncode == 0, looked.stdout
    assert cli("ledger", "open", "t", "--epsilon", "30", "--delta", "1e-6").returncode == 0
    result = cli("run", "t.yaml", "--run", "first")
    assert result.returncode == 0, result.stderr
    assert cli("publish", "first", "--to", "out").returncode == 0
    records = pq.read_table(cli.home / "out" / "synthetic.parquet").to_pydict()
    costs = [cost for cost in records["kosten"] if cost is not None]
    assert abs(sum(costs) / len(costs) - MEAN) < 100
    assert min(len(costs), sum(town in TOWNS for town in records["ort"])) > 0.98 * ROWS


def test_a_code_list_of_264_industries_is_given_as_a_file(marginweave: CommandLine) -> None:
    """Codes are no numbers, and left out where most would be missing; list and mapping to sections come from one file."""
    cli = marginweave
    codes = [1000 + 7 * i for i in range(264)]
    listed = "".join(f"{code};{'ABCDE'[i % 5]};Industry {i}\n" for i, code in enumerate(codes))
    (cli.home / "industries.csv").write_text(f"code;section;title\n{listed}")
    rows = "".join(f"{codes[37 * i % 264]},{'fm'[i % 2]}\n" for i in range(2000))
    (cli.home / "people.csv").write_text(f"industry,sex\n{rows}")
    assert cli("init", "people.csv", "--output", "draft.yaml").returncode == 0
    drafted = (cli.home / "draft.yaml").read_text()
    assert "industry: {type: identifier, confirm: true}  # more than 50 values, too rare" in drafted
    mapping = {"file": "industries.csv", "value": "code", "label": "section"}
    configuration = raw(
        privacy__epsilon=30.0,
        columns={
            "industry": {
                "type": "category",
                "values": {"file": "industries.csv", "value": "code", "label": "title"},
            },
            "sex": {"type": "category", "values": ["f", "m"]},
            "section": {
                "type": "category",
                "values": {"file": "industries.csv", "value": "section"},
            },
        },
        structure={"determined": [{"column": "section", "by": "industry", "mapping": mapping}]},
    )
    (cli.home / "people.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False))
    assert cli("ledger", "open", "people", "--epsilon", "30", "--delta", "1e-6").returncode == 0
    assert cli("check", "people.yaml").returncode == 0
    result = cli("run", "people.yaml", "--run", "first")
    assert result.returncode == 0, result.stderr
    assert cli("publish", "first", "--to", "out").returncode == 0
    release = cli.home / "out"
    records = pq.read_table(release / "synthetic.parquet").to_pydict()
    sections = {str(code): "ABCDE"[i % 5] for i, code in enumerate(codes)}
    found = [
        pair
        for pair in zip(records["industry"], records["section"], strict=True)
        if pair[0] is not None
    ]
    assert len(found) > 1500
    assert all(sections[code] == section for code, section in found)
    assert len(json.loads((release / "privacy.json").read_text())["domain"]["industry"]) == 264
    assert re.search(r"\d{4} \(Industry \d+\)", (release / "report.html").read_text())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("t.sav", "is of a kind that is not supported (.sav): save it as .csv"),
        ("https://example.org/t.csv", "must be a path, s3://BUCKET/KEY, or example:NAME"),
    ],
)
def test_what_is_not_supported_is_refused_by_every_command(
    marginweave: CommandLine, source: str, words: str
) -> None:
    cli = marginweave
    (cli.home / "c.yaml").write_text(yaml.safe_dump(raw(source=source)))
    (cli.home / "d.yaml").write_text(yaml.safe_dump(raw()))
    for command in (
        ("plan", "c.yaml"),
        ("run", "c.yaml"),
        ("plan", "d.yaml", "--source", source),
        ("init", source),
    ):
        refused = cli(*command)
        assert refused.returncode == 2, command
        assert words in refused.stderr
        assert "Traceback" not in refused.stderr


ELSE = {
    "ragged": (
        f"sex,grade\nf,1\nm,{MARKER},5\n".encode(),
        "people.csv) line 3 has 3 fields, the header has 2",
    ),
    "semicolons": (
        f"sex;grade\nf;1,5\n{MARKER};2\n".encode(),
        "delimiter is more likely the semicolon: source: {file: …, delimiter: semicolon}",
    ),
    "UTF-16": (
        f"sex,grade\n{MARKER},1\n".encode("utf-16"),
        "must be UTF-8; for another encoding write source: {file: …, encoding: utf-16}",
    ),
}


@pytest.mark.parametrize("case", ELSE)
def test_a_file_in_another_form_is_refused_with_what_it_likely_is(
    marginweave: CommandLine, case: str
) -> None:
    """The line and the form, and the text of no row."""
    cli, (content, words) = marginweave, ELSE[case]
    (cli.home / "people.csv").write_bytes(content)
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "grade": {"type": "category", "values": ["1", "2"]},
    }
    (cli.home / "people.yaml").write_text(yaml.safe_dump(raw(columns=columns)))
    assert cli("ledger", "open", "people", "--epsilon", "1", "--delta", "1e-6").returncode == 0
    refused = cli("run", "people.yaml")
    assert refused.returncode == 2
    assert refused.stderr.endswith(f"{words}\n"), refused.stderr
    assert MARKER not in refused.stderr + refused.stdout
