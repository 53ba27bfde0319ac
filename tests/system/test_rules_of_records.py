"""What holds in the records alone is no fact of what was counted: imputed private domains, and rules that change no row.

Rows break what the records keep, by the hundred: answers, files and pages of a release have these rows. No server.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from marginweave import Release
from marginweave.accounting.accounts import Account
from marginweave.base.errors import InputError
from marginweave.inference import regression, synthetic_sets
from marginweave.ledger import Ledger
from marginweave.publish.reader import PublishedRelease
from tests.support.command_line import CommandLine
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
NEAR = 30
"""Records: 15 standard deviations of the noise of a count at least, and a fifth of the rows that the records do not have."""
YES_NO = {"type": "category", "values": ["0", "1"], "missing": [], "outside": "error"}
TABLE = pd.DataFrame(
    {
        "town": ["u"] * 200 + ["v"] * 200 + [f"rare {n}" for n in range(200)],
        "ill": ["0", "1"] * 300,
        "signs": ["cough;fever", "fever", "cough", ""] * 150,
    }
)
IMPUTED = {"type": "category", "domain": "private", "impute": {"weights": {"u": 3, "v": 1}}}
SIGNS = {"type": "set", "values": ["cough", "fever"], "separator": ";", "max_values": 2}


@pytest.fixture(autouse=True)
def account(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Path(alone.variables["MARGINWEAVE_LEDGER"])
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(ledger))
    opened = Account(
        dataset="people",
        epsilon=Decimal(9),
        delta=Decimal("1e-4"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(ledger).accounts.open(opened, actor="steward")


def _release(home: Path, columns: dict[str, Any], **sections: Any) -> Release:
    configuration = {
        "dataset": "people",
        "source": "people.csv",
        "privacy": {"epsilon": 8.0, "delta": 1e-5, "unit": "row"},
        "columns": columns,
        "aggregate": {"method": "marginals", "cliques": {"all": 2}},
        "synthesize": {"method": "mixture", "components": 10, "fits": 2, "iterations": 20},
    }
    TABLE[[*columns]].to_csv(home / "people.csv", index=False)
    path = home / "people.yaml"
    path.write_text(yaml.safe_dump(configuration | sections, sort_keys=False))
    return Release(run_plainly(home, path, "r") / "release")


def _counts(release: Release, *columns: str) -> pd.DataFrame:
    return release.query(by=[*columns]).set_index([*columns])


def _cell(release: Release, codes: tuple[int, ...]) -> float:
    """A cell of the explorer and the report, of the first columns."""
    published = PublishedRelease.read(Path(release.place))
    table = next(t for t in published.cells if t.attributes == tuple(range(len(codes))))
    return float(table.estimates[codes])


def test_what_was_not_released_is_counted_where_missing_cells_are_imputed(
    alone: CommandLine,
) -> None:
    release = _release(alone.home, {"town": IMPUTED, "ill": YES_NO})
    towns, pairs = _counts(release, "town"), _counts(release, "town", "ill")
    assert {*towns["how"], *pairs["how"]} == {"measured"}
    assert abs(towns["estimate"] - 200).max() < NEAR
    assert abs(pairs["estimate"] - 100).max() < NEAR
    share = release.query(share=True, where={"town": ["u", "v"]})
    others = release.query(where={"town": {"but": ["u"]}})
    assert abs(share["estimate"][0] - 2 / 3) < 0.05
    assert share["how"][0] == "measured"
    assert abs(others["estimate"][0] - 400) < NEAR
    assert abs(_cell(release, (2,)) - 200) < NEAR
    assert abs(_cell(release, (2, 0)) - 100) < NEAR
    assert not release.synthetic["town"].isna().any()
    with pytest.raises(
        InputError,
        match="'town' was counted with values that were not released, and the model has none",
    ):
        list(synthetic_sets(release.place, ["town", "ill"], sets=5, of="table"))


def test_a_rule_that_changes_no_row_is_one_of_records_alone(alone: CommandLine) -> None:
    columns, rule = (
        {"town": {"type": "category", "domain": "private"}, "ill": YES_NO},
        {"town": "u", "ill": "1"},
    )
    release = _release(alone.home, columns, structure={"forbidden": [rule]})
    pairs = _counts(release, "town", "ill")
    assert {*pairs["how"]} == {"measured"}
    assert abs(pairs["estimate"] - 100).max() < NEAR
    assert abs(_cell(release, (0, 1)) - 100) < NEAR
    with pytest.raises(
        InputError, match="a rule on town, ill changed no row, and the model keeps it"
    ):
        regression(release.place, "ill", ["town"], of="table")
    records = release.synthetic
    assert not ((records["town"] == "u") & (records["ill"].astype(str) == "1")).any()
    place = Path(release.place)
    rows = csv.DictReader(io.StringIO((place / "aggregates.csv").read_text()))
    (row,) = [row for row in rows if {row["value_1"], row["value_2"]} == {"u", "1"}]
    assert abs(int(row["count"]) - 100) < NEAR
    assert int(row["low"]) > 0 == int(row["adjusted"])
    assert row["note"].startswith("a rule that changed no row allows no such record")
    verdict = release.evaluation.verdict.says
    assert any(said.startswith("A rule that names town changed no row") for said in verdict)
    assert not any("was counted as one that keeps it" in said for said in verdict)
    preparation = json.loads((place / "privacy.json").read_text())["preparation"]
    assert preparation[-1].startswith("A rule that names 'town' changed no row")


def test_k_tuples_do_not_answer_what_a_rule_on_a_set_leaves_out(alone: CommandLine) -> None:
    release = _release(
        alone.home,
        {"signs": SIGNS, "ill": YES_NO},
        structure={"forbidden": [{"signs": "cough", "ill": "1"}, {"signs": "fever", "ill": "1"}]},
        aggregate={"method": "k-tuples", "reporting_length": 2},
        synthesize={"method": "aggregate-seeded"},
    )
    with pytest.raises(
        InputError, match=r"not measured: a rule on a set or a private domain .* changes no row"
    ):
        release.query(where={"signs": ["cough"], "ill": ["1"]})
    assert release.query(where={"signs": ["cough"], "ill": ["0"]})["how"][0] == "measured"
    packed = re.search(r"H4sI[\w+/=]+", (Path(release.place) / "explore.html").read_text())
    assert packed is not None
    page = gzip.decompress(base64.b64decode(packed[0]))
    header = json.loads(page[4 : 4 + struct.unpack_from("<I", page)[0]])
    assert not header["excluded"]
    assert sorted(map(sorted, header["left_out"])) == [[[0, [0]], [1, [1]]], [[0, [1]], [1, [1]]]]


def test_a_rule_on_a_set_changes_rows_where_marginals_are_counted(alone: CommandLine) -> None:
    release = _release(
        alone.home,
        {"signs": SIGNS, "ill": YES_NO},
        structure={"forbidden": [{"signs": "fever", "ill": "1"}]},
    )
    (answer,) = release.query(where={"signs": ["fever"], "ill": ["1"]}).to_dict("records")
    assert (answer["estimate"], answer["how"]) == (0, "rule")
    assert abs(float(release.query(where={"ill": ["1"]})["estimate"][0]) - 150) < NEAR
    assert any(
        "was counted as one that keeps it" in said for said in release.evaluation.verdict.says
    )
