"""Attacks find records that were copied, and nothing in records that have nothing to do with the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from marginweave.base.errors import InputError
from marginweave.evaluate.internal import attack

pytest.importorskip("syntheval")


def frame(seed: int, rows: int) -> pd.DataFrame:
    """Rows of independent values; domains of unequal size."""
    generator = np.random.default_rng(seed)
    return pd.DataFrame({f"c{j}": generator.integers(0, size, rows) for j, size in enumerate((7, 11, 13, 17))})


def test_copied_records_are_found_and_unrelated_ones_are_not() -> None:
    """A copy gives every row a neighbor at no distance; independent rows are not nearer to the synthetic ones than others."""
    released, others = frame(1, 300), frame(2, 300)
    copied = attack(
        released=released, synthetic=released.sample(frac=1, random_state=1).reset_index(drop=True), others=others
    )["nearest_records"]
    unrelated = attack(released=released, synthetic=frame(3, 300), others=others)["nearest_records"]
    assert copied["eps_risk"] > 0.9
    assert copied["priv_loss"] > 0.25
    assert abs(unrelated["priv_loss"]) < 0.25  # 300 rows a side: 6 standard deviations of a difference of two shares


def test_membership_inference_says_how_well_it_did() -> None:
    found = attack(released=frame(1, 200), synthetic=frame(3, 200), others=frame(2, 200))
    membership = found["membership_inference"]
    assert {"MIA precision", "MIA recall", "MIA macro F1"} <= membership.keys()
    assert all(0 <= membership[name] <= 1 for name in ("MIA precision", "MIA recall", "MIA macro F1"))


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="attacks need at least 8"):
        attack(released=frame(1, 3), synthetic=frame(3, 200), others=frame(2, 200))


def test_records_of_sets_alone_are_refused() -> None:
    """Sets of values are left out of attacks; nothing is left then."""
    with pytest.raises(InputError, match="attacks need a column that is no set"):
        attack(*[pd.DataFrame(index=range(20))] * 3)
