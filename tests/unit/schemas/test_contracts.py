"""Contracts between stages name stage, column and rule, and let pass what the stages make."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import StageError
from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.values import ValueMatcher
from marginweave.domain.membership import check_codes
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.schemas.clean import clean_contract
from marginweave.schemas.source import source_contract
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration
from tests.support.tables import FixedWords

CONFIGURATION = configuration(columns={name: column for name, (column, _) in KINDS.items()})
ROW = st.fixed_dictionaries({name: texts for name, (_, texts) in KINDS.items()})


@settings(max_examples=8, deadline=None)
@given(st.lists(ROW, max_size=6))
def test_what_the_stages_make_keeps_the_contracts(rows):
    """Clean and encoded tables of every kind, empty ones included."""
    raw = pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in KINDS})
    clean = clean_table(raw, CONFIGURATION)
    clean_contract(CONFIGURATION).check(clean)
    table = encode_table(clean, CONFIGURATION, FixedWords(1))
    check_codes(CONFIGURATION.attributes, table.sizes, table.codes, "encode", complete=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"age": pa.array([101.0])},
            "preprocess: column 'age' breaks the rule 'every value lies within bounds'",
        ),
        (
            {"sex": pa.array(["f"]).dictionary_encode()},
            "column 'sex' breaks the rule 'the labels are the declared ones'",
        ),
        (
            {"grade": pa.array([None], pa.string()).dictionary_encode()},
            "column 'grade' breaks the rule",
        ),
    ],
)
def test_a_broken_clean_table(change, words):
    strict = configuration(columns__grade__missing=[], columns__grade__outside="error")
    good = clean_table(
        pa.table({"sex": ["f"], "region": ["west"], "age": ["3"], "grade": ["7"]}), strict
    )
    clean_contract(strict).check(good)
    broken = pa.table({name: change.get(name, good.column(name)) for name in good.column_names})
    with pytest.raises(StageError, match=words):
        clean_contract(strict).check(broken)


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"other", "private", "private set"}))
@given(data=st.data())
def test_the_raw_table_is_judged_as_its_cells_are(kind, data):
    """`outside: error`: a column breaks the rule if a cell does, block by block, whatever entries its dictionary has."""
    declared, texts = KINDS[kind]
    strict = configuration(
        columns={"c": {**declared, "outside": "error"}}, aggregate__reporting_length=1
    )
    column, missing = strict.columns["c"], ValueMatcher(strict.missing_texts("c"))
    assert isinstance(column, MeasuredColumn)
    cells = data.draw(st.lists(st.one_of(texts, st.none()), max_size=8))
    trimmed = [(cell or "").strip() for cell in cells]
    expected = all(missing.index(text) >= 0 or column.accepts(text) for text in trimmed)
    rules, array = source_contract(strict), pa.array(cells, pa.string())
    assert (rules.broken(pa.table({"c": array})) == set()) == expected
    more = pa.concat_arrays([array, pa.array([data.draw(texts)], pa.string())]).dictionary_encode()
    assert (rules.broken(pa.table({"c": more.slice(0, len(cells))})) == set()) == expected
    assert rules.broken(pa.table({"c": more})) in (set(), {("c", column.stopping_rule)})
