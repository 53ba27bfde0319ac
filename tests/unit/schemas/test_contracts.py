"""Contracts between stages name stage, column and rule, and let pass what the stages make."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import StageError
from marginweave.estimate.normalize import normalize
from marginweave.prepare.clean import clean_frame, clean_table
from marginweave.prepare.codes import encode_table
from marginweave.schemas.contracts import check_aggregates, check_codes, check_contract, clean_schema
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration
from tests.support.noisy_counts import aggregates_of
from tests.support.tables import FixedWords

CONFIGURATION = configuration(columns={name: column for name, (column, _) in KINDS.items()})
ROW = st.fixed_dictionaries({name: texts for name, (_, texts) in KINDS.items()})


@settings(max_examples=8, deadline=None)
@given(st.lists(ROW, max_size=6))
def test_what_the_stages_make_keeps_the_contracts(rows):
    """Clean and encoded tables of every kind, empty ones included."""
    raw = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in KINDS})
    clean = clean_table(raw, CONFIGURATION)
    check_contract(clean_schema(CONFIGURATION), clean_frame(clean), "preprocess")
    table = encode_table(clean, CONFIGURATION, FixedWords(1))
    check_codes(CONFIGURATION.attributes, table.sizes, table.codes, "encode", complete=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"age": pa.array([101.0])}, "preprocess: column 'age' breaks the rule 'every value lies within bounds'"),
        (
            {"sex": pa.array(["f"]).dictionary_encode()},
            "column 'sex' breaks the rule 'the labels are the declared ones'",
        ),
        ({"grade": pa.array([None], pa.string()).dictionary_encode()}, "column 'grade' breaks the rule"),
    ],
)
def test_a_broken_clean_table(change, words):
    strict = configuration(columns__grade__missing=[], columns__grade__outside="error")
    good = clean_table(pa.table({"sex": ["f"], "region": ["west"], "age": ["3"], "grade": ["7"]}), strict)
    check_contract(clean_schema(strict), clean_frame(good), "preprocess")
    broken = pa.table({name: change.get(name, good.column(name)) for name in good.column_names})
    with pytest.raises(StageError, match=words):
        check_contract(clean_schema(strict), clean_frame(broken), "preprocess")


def test_broken_codes():
    """A code beyond the missing one, or a missing one where nothing can be missing."""
    config = configuration(columns__sex__missing=[], columns__sex__outside="error")
    good = [np.array([v]) for v in (1, 3, 5, 7)]
    check_codes(config.attributes, (2, 3, 5, 7), good, "encode", complete=True)
    for place, name, code in ((0, "sex", 2), (1, "region", 4)):
        codes = [*good[:place], np.array([code]), *good[place + 1 :]]
        with pytest.raises(StageError, match=f"encode: column '{name}' breaks the rule 'every code has a label'"):
            check_codes(config.attributes, (2, 3, 5, 7), codes, "encode", complete=True)
    check_codes(config.attributes, (2, 3, 5, 7), [np.array([2]), *good[1:]], "synthesize", complete=False)


def test_broken_counts():
    """Order, domain and sign of released counts."""
    good = normalize(aggregates_of({((0, 0),): 5, ((1, 2),): 5, ((0, 0), (1, 2)): 3}, length=2))
    check_aggregates(good, "normalize")
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
            check_aggregates(replace(good, levels=(level,)), "normalize")
