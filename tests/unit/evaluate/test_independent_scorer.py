"""The numbers of an independent scorer, a program of its own beside the test tables, come out to 1e-9.

It compares counts as they are: it gets the records of a smaller synthetic table as often as makes them as many as the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from marginweave.evaluate.metrics import evaluate_internal
from tests.support.coded_tables import coded, texts
from tests.support.places import DATA

SCORER = DATA.parent / "score.py"
OURS = {
    "sup": "suppressed",
    "fab": "fabricated",
    "perr": "proportional_error",
    "perrw": "weighted_error",
    "perr_sds": "shown_proportional_error",
    "pres_sds": "shown_preservation",
    "perr10_": "frequent_error",
    "sup10_": "frequent_suppressed",
    "ncombos": "combinations",
}


def adult() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nine columns of the adult table, and rows of it whose education and age were shuffled."""
    table = pd.read_csv(DATA / "adult" / "adult_cat.csv", dtype=str, keep_default_na=False)
    table = table.iloc[:, [0, 1, 2, 4, 5, 7, 8, 11, 13]]
    made = table.sample(1500, replace=True, random_state=1).reset_index(drop=True)
    for name, seed in (("age", 2), ("education", 3)):
        made[name] = made[name].sample(frac=1, random_state=seed).to_numpy()
    return table.head(3000), made


CASES = {
    "small": lambda: (texts(1, 300, (2, 3, 5, 11)), texts(2, 150, (2, 4, 5, 9))),
    "constant": lambda: (texts(3, 80, (1, 2, 3, 1), 0), texts(4, 40, (1, 2, 6, 1), 0)),
    "adult": adult,
    "many columns": lambda: (texts(5, 60, (2, 3, 4, 5, 7) * 5), texts(6, 20, (3, 2, 4, 7, 5) * 5)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_that_both_compute_is_the_same(case: str, tmp_path: Path) -> None:
    """Counts, shares, distances, associations and the k-marginal score; 2300 triples where there are 25 columns."""
    if not SCORER.exists():
        pytest.skip("the scorer is not here; MARGINWEAVE_TEST_DATA names the folder beside it")
    frames = CASES[case]()
    paths = [tmp_path / "real.csv", tmp_path / "made.csv"]
    rows, records = frames
    assert len(records) < len(rows)
    repeated = pd.concat([records] * (len(rows) // len(records)))
    assert len(repeated) == len(rows)
    for frame, path in zip((rows, repeated), paths, strict=True):
        frame.to_csv(path, index=False)
    scored = subprocess.run(
        [sys.executable, SCORER, *paths], check=True, capture_output=True, text=True
    )
    theirs = json.loads(scored.stdout)
    (real, made), domain = coded(*frames)
    ours = evaluate_internal(real, made, domain)
    for metrics in ours.lengths:
        k = metrics.length
        for name, field in OURS.items():
            assert (getattr(metrics, field) or 0) == pytest.approx(
                theirs[f"{name}{k}"], abs=1e-9
            ), (name, k)
        if len(domain.names) < 14:  # beyond, theirs is a sample
            assert metrics.tvd_missing == pytest.approx(theirs[f"tvd{k}"], abs=1e-9)
    assert ours.k_marginal_score == pytest.approx(theirs["kmarg"], abs=1e-9)
    assert ours.association.cramers_v.mean_difference == pytest.approx(
        theirs["cramer_mad"], abs=1e-9
    )
    assert ours.association.mutual_information.mean_difference == pytest.approx(
        theirs["nmi_mad"], abs=1e-9
    )
