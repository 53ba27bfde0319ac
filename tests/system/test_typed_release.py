"""A Parquet table with types goes through a run: its files, a frame of its records and later records have the same types."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from marginweave.accounting.accounts import Account
from marginweave.base.arrow import schema_types
from marginweave.evaluate.internal import published_records
from marginweave.ledger import Ledger
from marginweave.publish.reader import PublishedRelease
from marginweave.publish.statement import TYPED
from marginweave.runs.published import regenerate_records
from tests.support.configurations import quick, raw
from tests.support.people_table import people_frame
from tests.support.plain_runs import run_plainly

pytestmark = pytest.mark.system
COLUMNS = {
    "seen": {
        "type": "datetime",
        "bounds": ["2019-01-01", "2021-12-31"],
        "bins": "year",
        "missing": ["none"],
    },
    "cost": {"type": "number", "bounds": [0, 90], "bins": 3},
    "code": {"type": "category", "domain": "private"},
}


def typed_frame() -> pd.DataFrame:
    frame = people_frame()
    sexes = pd.CategoricalDtype(["m", "f", "otherwise-sexed"], ordered=True)
    dates = pd.to_datetime("2019-01-31") + pd.to_timedelta(range(len(frame)), "h")
    return frame.assign(
        sex=frame["sex"].astype(sexes),
        region=frame["region"].astype("string"),
        age=pd.to_numeric(frame["age"]).astype("UInt8"),
        grade=pd.to_numeric(frame["grade"]).astype("Int16"),
        seen=dates.tz_localize("UTC").tz_convert("Asia/Tokyo"),
        cost=pd.Series(
            [Decimal(i % 90).quantize(Decimal("0.01")) for i in range(len(frame))],
            index=frame.index,
        ),
        code=["ab"[i % 2] for i in range(len(frame))],
    )


def test_types_survive_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of the source's dictionary that is not declared is in a file."""
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(tmp_path / "ledger.sqlite"))
    frame = typed_frame()
    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    pq.write_table(pa.Table.from_pandas(frame, schema), tmp_path / "people.parquet")
    changes = {f"columns__{name}": column for name, column in COLUMNS.items()}
    given = quick(raw(source="people.parquet", privacy__epsilon=8.0, **changes))
    (tmp_path / "people.yaml").write_text(yaml.safe_dump(given, sort_keys=False))
    account = Account(
        dataset="people",
        epsilon=Decimal(20),
        delta=Decimal("1e-5"),
        unit="row",
        neighbors="add-remove",
    )
    Ledger.create(tmp_path / "ledger.sqlite").accounts.open(account, actor="steward")
    folder = run_plainly(tmp_path, tmp_path / "people.yaml", "r")
    wanted = pq.read_schema(tmp_path / "people.parquet")
    release = PublishedRelease.read(folder / "release")
    assert str(TYPED) in release.statement.assumptions
    assert any(
        "Moments of seen were counted in UTC" in sentence
        for sentence in release.statement.preparation
    )
    assert "Moments of seen were counted in UTC" in (folder / "release" / "report.html").read_text()
    anew = regenerate_records(tmp_path, "r", records=3, seed=9, to=tmp_path / "anew")
    dtypes = frame.assign(sex=pd.Categorical(["f"] * len(frame), ["f", "m"], ordered=True)).dtypes
    for place in (anew, folder / "release"):
        found = pq.read_schema(place / "synthetic.parquet")
        assert schema_types(found, found.names) == schema_types(wanted, found.names)
        made = pd.read_parquet(place / "synthetic.parquet")
        assert made.dtypes.to_dict() == dtypes[made.columns].to_dict()
        assert b"otherwise-sexed" not in b"".join(
            path.read_bytes() for path in place.iterdir() if path.is_file()
        )
        assert set(made["seen"].dropna().dt.year) <= {2019, 2020, 2021}
        encoded, broken = published_records(place / "synthetic.parquet", release.configuration)
        assert encoded.records == len(made)
        assert all(rule.records == 0 for rule in broken)
    assert set(encoded.labels[release.configuration.names.index("code")]) <= {"a", "b"}
