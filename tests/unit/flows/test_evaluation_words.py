"""What `marginweave evaluate` says below its table."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.flows.cli.released import _evaluation_words

PLAIN: dict[str, Any] = {"marginals": [], "association": {"cramers_v": {"mean_difference": None}}, "rules": []}
KNOWN = {"length": 1, "model_error": 0.25, "sampling_error": 0.5}
UNKNOWN = {"length": 2, "model_error": None, "sampling_error": None}


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ([KNOWN], ["TVD by length from counts to the model 0.250, from the model to its records 0.500"]),
        (
            [KNOWN, UNKNOWN],
            ["TVD by length from counts to the model 0.250, unknown, from the model to its records 0.500, unknown"],
        ),
        ([UNKNOWN], []),
    ],
)
def test_a_length_of_which_nothing_was_released_is_unknown(model: list[dict[str, Any]], said: list[str]) -> None:
    assert list(_evaluation_words({**PLAIN, "model": model})) == said
