"""What `marginweave evaluate` says below its table."""

from __future__ import annotations

import pytest

from marginweave.flows.cli.released import _evaluation_words
from marginweave.released.evaluation import ErrorParts
from tests.support.published import EVALUATION

KNOWN = ErrorParts(length=1, model_error=0.25, sampling_error=0.5)
UNKNOWN = ErrorParts(length=2, model_error=None, sampling_error=None)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            [KNOWN],
            ["TVD by length from counts to the model 0.250, from the model to its records 0.500"],
        ),
        (
            [KNOWN, UNKNOWN],
            [
                "TVD by length from counts to the model 0.250, unknown, from the model to its records 0.500, unknown"
            ],
        ),
        ([UNKNOWN], []),
    ],
)
def test_a_length_of_which_nothing_was_released_is_unknown(
    model: list[ErrorParts], said: list[str]
) -> None:
    assert list(_evaluation_words(EVALUATION.model_copy(update={"model": tuple(model)}))) == said
