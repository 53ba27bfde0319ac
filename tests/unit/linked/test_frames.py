"""Frames of a notebook: the source and its linked tables, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from marginweave.base.errors import InputError
from marginweave.ledger.keys import SourceDigest
from marginweave.linked.places import TablePlaces
from marginweave.linked.source import ReleaseSource
from marginweave.runs.frame_tables import frame_tables
from tests.support.configurations import configuration
from tests.support.linked_tables import Stay, derived_by_definition, derived_rows, hospital

CONFIG = hospital()
PATIENTS = pd.DataFrame({"patient": [7, 8], "sex": ["f", "m"]})
ROWS = [Stay(), Stay("emergency", "5", "2024-02-20", "2024-02-25"), Stay("birth", None, None)]
STAYS = pd.DataFrame([vars(stay) for stay in ROWS]).assign(
    patient_id=8,
    days=pd.array([1, 5, None], "Int64"),
    admitted=pd.to_datetime(["2024-02-01", "2024-02-20", "NaT"]),
)
BOTH = {"patients": PATIENTS, "stays": STAYS}


def test_frames_are_read_as_files_are(tmp_path: Path) -> None:
    """Numbers, dates and ids of any dtype; the name of the source's frame is free."""
    for frames in (BOTH, {"stays": STAYS.assign(patient_id="8"), "anything": PATIENTS}):
        tables = frame_tables(frames, CONFIG)
        (tmp_path / "root.parquet").write_bytes(tables.root)
        (tmp_path / "linked.parquet").write_bytes(tables.linked["stays"])
        places = TablePlaces(
            str(tmp_path / "root.parquet"), {"stays": str(tmp_path / "linked.parquet")}
        )
        first, second = derived_rows(ReleaseSource.of(places, CONFIG))
        assert first["stays"] == 0
        assert second == {"patient": "8", "sex": "m", **derived_by_definition(ROWS)}


def test_frames_are_known_by_all_their_cells() -> None:
    """Also by cells of columns that nobody declares, and by the frame that a cell is in."""
    changed: list[Any] = [
        BOTH,
        {**BOTH, "patients": PATIENTS.assign(odd=1)},
        {**BOTH, "stays": STAYS.assign(odd=1)},
        {**BOTH, "stays": STAYS[:2]},
    ]
    digests = [
        SourceDigest.of(bytes(32), frame_tables(frames, CONFIG).frame.contents())
        for frames in [*changed, dict(reversed(BOTH.items()))]
    ]
    assert len({digest.base for digest in digests}) == len(changed)
    assert digests[0] == digests[-1]


REFUSED: list[tuple[Any, str]] = [
    (PATIENTS, "the configuration has linked tables; give a frame for each, and one more"),
    ({"stays": STAYS}, "fit has other frames than the configuration has tables"),
    ({"patients": PATIENTS, "visits": STAYS}, "fit has other frames than the configuration has tables"),
    ({**BOTH, "more": STAYS}, "fit has other frames than the configuration has tables"),
    ({**BOTH, "patients": PATIENTS.assign(first="x")}, "the frame has the column 'first', which tables.stays.derive makes"),
    ({**BOTH, "stays": STAYS.drop(columns="kind")}, "tables.stays: the frame lacks the declared column 'kind'"),
    ({**BOTH, "stays": STAYS.assign(patient_id=8.0)}, "tables.stays: the frame has the column 'patient_id' with the dtype"),
    ({**BOTH, "stays": "stays.csv"}, "tables.stays: the data must be a frame of pandas or Polars"),
    ({**BOTH, "patients": "patients.csv"}, "the data must be a frame of pandas or Polars"),
]  # fmt: skip


@pytest.mark.parametrize(("frames", "message"), REFUSED, ids=[m[:50] for _, m in REFUSED])
def test_what_is_no_such_mapping_is_refused(frames: Any, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        frame_tables(frames, CONFIG)
    assert str(refusal.value).startswith(message)


def test_a_mapping_needs_linked_tables() -> None:
    with pytest.raises(
        InputError, match="fit takes one frame where the configuration has no tables"
    ):
        frame_tables({"people": PATIENTS}, configuration())
