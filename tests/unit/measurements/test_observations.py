"""Measurements and masks refuse what does not fit together."""

from __future__ import annotations

import numpy as np
import pytest

from marginweave.base.errors import InputError
from marginweave.domain.masks import Mask
from marginweave.observations.tables import Observation


def test_a_measurement_knows_its_total() -> None:
    """Signed counts add up as they are; () is a record count."""
    assert (
        Observation(attributes=(0, 2), counts=np.array([[5, -2], [3, 1]]), deviation=2.0).total == 7
    )
    assert Observation(attributes=(), counts=np.array(41), deviation=1.0).total == 41


@pytest.mark.parametrize(
    ("attributes", "shape", "deviation", "message"),
    [
        ((1, 0), (2, 2), 1.0, r"^attributes \(1, 0\) must be increasing"),
        ((1, 1), (2, 2), 1.0, r"^attributes \(1, 1\) must be increasing"),
        ((-1,), (2,), 1.0, r"^attributes \(-1,\) must be increasing"),
        ((0, 1), (2,), 1.0, r"^counts of shape \(2,\) must have one axis"),
        ((0,), (2,), 0.0, r"^deviation \(0.0\) must be positive"),
        ((0,), (2,), float("nan"), r"^deviation \(nan\) must be positive"),
    ],
)
def test_a_measurement_that_does_not_fit_is_refused(
    attributes: tuple[int, ...], shape: tuple[int, ...], deviation: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Observation(attributes=attributes, counts=np.zeros(shape), deviation=deviation)


def test_a_mask_must_allow_something() -> None:
    with pytest.raises(InputError, match=r"mask of attributes \(0,\) must allow something"):
        Mask(attributes=(0,), allowed=np.zeros(2, np.bool_))
    with pytest.raises(InputError, match=r"must have one axis"):
        Mask(attributes=(0, 1), allowed=np.ones(2, np.bool_))
