"""Codes and counts that leave their domain are refused by stage, column and rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from marginweave.base.errors import StageError
from marginweave.domain.membership import check_codes, check_levels
from marginweave.estimate.normalize import normalize
from tests.support.configurations import configuration
from tests.support.noisy_counts import aggregates_of


def test_broken_codes():
    """A code beyond the missing one, or a missing one where nothing can be missing."""
    config = configuration(columns__sex__missing=[], columns__sex__outside="error")
    good = [np.array([v]) for v in (1, 3, 5, 7)]
    check_codes(config.attributes, (2, 3, 5, 7), good, "encode", complete=True)
    for place, name, code in ((0, "sex", 2), (1, "region", 4)):
        codes = [*good[:place], np.array([code]), *good[place + 1 :]]
        with pytest.raises(
            StageError, match=f"encode: column '{name}' breaks the rule 'every code has a label'"
        ):
            check_codes(config.attributes, (2, 3, 5, 7), codes, "encode", complete=True)
    check_codes(
        config.attributes, (2, 3, 5, 7), [np.array([2]), *good[1:]], "synthesize", complete=False
    )


def test_broken_counts():
    """Order, domain and sign of released counts."""
    good = normalize(aggregates_of({((0, 0),): 5, ((1, 2),): 5, ((0, 0), (1, 2)): 3}, length=2))
    check_levels(good.levels, good.domain.sizes, "normalize")
    first, second = good.levels
    for level, words in (
        (replace(first, counts=first.counts * 0), "every count is positive"),
        (replace(first, values=first.values + 1), "every code has a label"),
        (replace(first, columns=first.columns[::-1], values=first.values[::-1]), "canonical order"),
        (replace(first, columns=first.columns * 0, values=first.values * 0), "each once"),
        (
            replace(second, columns=second.columns[:, ::-1], values=second.values[:, ::-1]),
            "columns of a combination inc",
        ),
    ):
        with pytest.raises(StageError, match=words):
            check_levels([level], good.domain.sizes, "normalize")
