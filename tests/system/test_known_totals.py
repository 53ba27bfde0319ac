"""Whatever is known from elsewhere, what is drawn of the rows is the same: counts, choices, charges and the record count."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from marginweave.accounting.accounts import Account
from marginweave.answers.marginals import MarginalAnswers
from marginweave.base.errors import InputError
from marginweave.inference.answers import read_answers
from marginweave.ledger import Ledger
from tests.support.fixed_noise import drawn_facts, fixed_noise
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly
from tests.support.samples import every

pytestmark = pytest.mark.system
KNOWN = [
    {
        "columns": ["sex", "region"],
        "table": [["f", "north", 90], ["f", "west", 20], ["m", "south", 130]],
        "others": 0,
        "from": "these-rows",
        "public": "a yearbook",
    },
    {
        "columns": ["grade"],
        "table": [["1", 100], ["7", 5]],
        "others": 0,
        "sd": 9,
        "from": "other-source",
        "public": "-",
    },
]
METHODS: dict[str, dict[str, Any]] = {
    "k-tuples": {
        "aggregate": {"method": "k-tuples", "reporting_length": 2, "percentile": 90},
        "synthesize": {"method": "aggregate-seeded"},
    },
    "k-tuples, mixture": {"aggregate": {"method": "k-tuples", "reporting_length": 2}},
    "k-tuples, gum": {
        "aggregate": {"method": "k-tuples", "reporting_length": 2},
        "synthesize": {"method": "gum"},
    },
    "marginals": {"aggregate": {"method": "marginals"}},
    "rounds": {
        "aggregate": {"method": "marginals", "cliques": {"adaptive": 2, "rounds": 3, "batch": 2}}
    },
}


def _released(home: Path, patch: pytest.MonkeyPatch, changes: dict[str, Any]) -> Path:
    place = home / "ledger" / "ledger.sqlite"
    patch.setenv("MARGINWEAVE_LEDGER", str(place))
    account = Account(
        dataset="people",
        epsilon=Decimal(5),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(place).accounts.open(account, actor="steward")
    with fixed_noise():
        return run_plainly(home, people(home, 300, **changes), "r") / "release"


def _followed(place: Path) -> str:
    """Known tables of other rows that the model of a release follows: its answers are then claimed to cover nothing."""
    answers = read_answers(place)
    assert isinstance(answers, MarginalAnswers)
    model = answers.model()
    assert model is not None
    return model.follows


@pytest.mark.parametrize("method", every(3, METHODS))
def test_no_draw_depends_on_what_is_known(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = []
    for number, more in enumerate(({}, {"known": KNOWN})):
        home = tmp_path / str(number)
        home.mkdir()
        places.append(_released(home, monkeypatch, {**METHODS[method], **more}))
    plain, known = (drawn_facts(place, method) for place in places)
    assert plain == known
    with (places[1] / "synthetic.csv").open() as lines:
        made = [(row["sex"], row["region"]) for row in csv.DictReader(lines)]
    assert {pair: made.count(pair) for pair in set(made)} == {
        ("f", "north"): 90,
        ("f", "west"): 20,
        ("m", "south"): 130,
    }
    statement = json.loads((places[1] / "privacy.json").read_text())
    assert statement["invariants"] == [
        {"attributes": ["sex", "region"], "records": 240, "published": "a yearbook"}
    ]
    if method in ("marginals", "rounds"):
        plain, known = map(_followed, places)
        assert plain == ""
        assert known.startswith("grade, from another source; and of sex x region, from which what")
    followed = "follow the known counts of sex x region, grade"
    for name in ("croissant.json", "report.html", "explore.html"):
        assert [followed in (place / name).read_text() for place in places] == [False, True]
    assert (
        "Exact counts of these rows were published elsewhere"
        in (places[1] / "report.html").read_text()
    )


def test_what_cannot_hold_together_is_refused_before_anything_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = {"forbidden": [{"sex": "m", "region": "south"}]}
    with pytest.raises(
        InputError,
        match=r"known: no whole numbers of records keep the exact tables of \[sex, region\] and",
    ):
        _released(tmp_path, monkeypatch, {"known": KNOWN, "structure": forbidden})
    assert not (tmp_path / "runs").exists()
