"""What a rejected release gave back follows from its noise, which nobody may see: no file of a later release has it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from marginweave.accounting.accounts import Account, AccountTotal
from marginweave.ledger import Ledger
from marginweave.mechanisms import gaussian
from marginweave.runs.lookup import decide
from tests.golden.releases import comparable_files
from tests.support.fixed_noise import fixed_noise
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly

HIDDEN = {"type": "category", "domain": "private"}
TUPLES: dict[str, Any] = {
    "aggregate": {"method": "k-tuples", "reporting_length": 2},
    "columns__region": HIDDEN,
}
LARGE = 5_000


def after_a_rejected_release(home: Path, noise: int) -> tuple[AccountTotal, dict[str, bytes]]:
    """What the account holds, and the files of a release after a rejected one, whose counts all have the same `noise`."""
    home.mkdir()
    place = home / "ledger" / "ledger.sqlite"
    account = Account(
        dataset="people",
        epsilon=Decimal(20),
        delta=Decimal("1e-4"),
        unit="row",
        neighbors="add-remove",
    )

    def same(_: Any, __: Any, ___: int, ____: int, count: int) -> NDArray[np.int64]:
        return np.full(count, noise, np.int64)

    with mock.patch.dict("os.environ", {"MARGINWEAVE_LEDGER": str(place)}), fixed_noise():
        Ledger.create(place).accounts.open(account, actor="steward")
        with mock.patch.object(gaussian, "draw_signed", same):
            run_plainly(home, people(home, 100, **TUPLES, publish__approval="required"), "first")
        decide(home, "first", approved=False, by="officer", reason="no")
        folder = run_plainly(home, people(home, 100, **TUPLES), "second") / "release"
        return Ledger.open(place).accounts.total("people"), comparable_files(folder, home)


def test_no_file_of_a_later_release_has_what_a_rejected_one_gave_back(tmp_path: Path) -> None:
    """Where nothing is frequent, the draw of pairs has no candidates and is given back; else it is not."""
    nothing, files = after_a_rejected_release(tmp_path / "nothing", -LARGE)
    everything, others = after_a_rejected_release(tmp_path / "everything", LARGE)
    assert nothing != everything  # the operator's sums tell them apart
    assert files == others
