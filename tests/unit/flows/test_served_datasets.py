"""Which datasets `serve` releases, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.base.errors import InputError
from marginweave.flows.service import served_datasets
from tests.support.configurations import FAIR

NIGHTLY, WEEKLY = "30 1 * * *", "0 5 * * 1"


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    made = []
    for name in ("visits", "clinics"):
        path = tmp_path / f"{name}.yaml"
        text = FAIR.format(execution="", epsilon="1")
        path.write_text(text.replace("dataset: fair", f"dataset: {name}"))
        made.append(path)
    return made


def test_one_time_is_for_all_and_several_are_in_order(paths: list[Path]) -> None:
    def times(*crons: str) -> list[tuple[str, str]]:
        return [(served.name, served.cron) for served in served_datasets(paths, crons)]

    assert times(NIGHTLY) == [("visits", NIGHTLY), ("clinics", NIGHTLY)]
    assert times(NIGHTLY, WEEKLY) == [("visits", NIGHTLY), ("clinics", WEEKLY)]


def test_another_number_of_times_is_refused(paths: list[Path]) -> None:
    with pytest.raises(InputError, match="--cron is given 3 times for 2 configurations"):
        served_datasets(paths, [NIGHTLY, WEEKLY, NIGHTLY])
    with pytest.raises(InputError, match="are both for dataset visits"):
        served_datasets([paths[0], paths[0]], [NIGHTLY])
