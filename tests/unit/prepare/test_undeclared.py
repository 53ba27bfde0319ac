"""Where nothing is declared missing nothing ever is: not in what is counted, nor in records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.synthesis import AnySynthesis, GumSynthesis, MixtureSynthesis, SynthesisSettings
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.marginals import normalize_marginals
from marginweave.prepare.clean import clean_table
from marginweave.prepare.encode import imputation_weights, imputed_codes
from marginweave.publish.preparation_words import preparation_words
from marginweave.records.decode import decode_table
from tests.support import noisy_marginals
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration, raw
from tests.support.synthesized import synthesize_codes
from tests.support.tables import completed, encoded, fixed_streams

SEX = {"type": "category", "values": ["f", "m"]}
DRAWN = [name for name in KINDS if "set" not in name and name not in {"private", "other"}]
GROUP = {"name": "place", "columns": ["town", "zone"], "combinations": [["A", "1"], ["B", "1"], ["B", "2"]]}
TOWNS = {"town": {"type": "category", "values": ["A", "B"]}, "zone": {"type": "category", "values": [1, 2]}}


@pytest.mark.parametrize("name", DRAWN)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_cell_without_a_value_becomes_a_draw_with_its_own_word(name: str, data: st.DataObject) -> None:
    """Empty, unreadable or outside: by the public weights; a value stays; the domain has no level for missing."""
    column, texts = KINDS[name]
    cells = data.draw(st.lists(texts, min_size=1, max_size=12))
    config = configuration(columns={"x": column}, missing=[])
    (attribute,), table = config.attributes, encoded([[cell] for cell in cells], config)
    size = len(attribute.labels)
    assert (attribute.optional, config.can_be_missing("x")) == (False, False)
    assert domain_sizes(config.attributes, table.labels) == (size,)
    words = fixed_streams("impute x").words_of(np.arange(len(cells)))
    drawn = imputed_codes(imputation_weights(config.columns["x"], table.labels[0]), words)  # pyright: ignore[reportArgumentType]
    there = np.array([config.columns["x"].accepts(cell.strip()) for cell in cells])
    found = completed(table, config, fixed_streams).codes[0]
    assert found.tolist() == np.where(there, table.codes[0], drawn).tolist()
    assert (found < size).all()


METHODS: dict[str, AnySynthesis] = {
    "gum": GumSynthesis(records=40, rounds=3),
    "mixture": MixtureSynthesis(records=40, components=4, fits=1, iterations=3),
    "aggregate-seeded": SynthesisSettings(records=40),
}


@pytest.mark.parametrize("method", METHODS)
def test_no_cell_is_empty_in_a_hundred_releases(method: str) -> None:
    """Under noise of a tenth of the table, by three methods in turn: what has no level gets no record, whatever has one."""
    changes: dict[str, Any] = {"missing": [], "columns__grade__missing": ["-9"]}
    config, gaps = noisy_marginals.config(**changes), 0
    assert config.optional == (False, False, False, True)
    for seed in range(list(METHODS).index(method), 100, len(METHODS)):
        counts = normalize_marginals(noisy_marginals.marginals(config, seed, sd=90.0), config)
        made = METHODS[method].model_copy(update={"seed": seed})
        table = decode_table(synthesize_codes(counts, config, made), counts.domain, config, seed)
        assert [table.column(name).null_count for name in ("sex", "region", "age")] == [0, 0, 0]
        gaps += table.column("grade").null_count
    assert gaps > 0


def test_a_combination_that_a_group_does_not_list_becomes_one_that_it_does() -> None:
    """Each as likely, chi-square at 1e-6; where every column of the group can be missing, it is missing instead."""
    config = configuration(columns={**TOWNS, "sex": SEX}, structure={"grouped": [GROUP]}, missing=[])
    assert config.optional == (False, False)
    assert (config.can_be_missing("town"), config.can_be_missing("zone")) == (False, False)
    rows = [["A", "2", "f"], ["", "", "f"], ["B", "2", "f"]] * 2000
    codes = completed(encoded(rows, config), config, fixed_streams).codes[0].reshape(-1, 3)
    assert (codes[:, 2] == 2).all()
    assert stats.chisquare(np.bincount(codes[:, :2].ravel(), minlength=4)[:3]).pvalue > 1e-6
    assert codes.max() == 2
    declared = {name: {**column, "missing": [""]} for name, column in TOWNS.items()}
    assert configuration(columns=declared, structure={"grouped": [GROUP]}, missing=[]).optional == (True,)
    assert "of column 'sex', group 'place' were replaced by draws of the uniform" in preparation_words(config, {})[1]


def test_what_can_be_missing_all_the_same_says_so() -> None:
    """A private domain has a level for what is not released; rows of a subject can disagree; a set can be empty."""
    private = {"type": "category", "domain": "private"}
    config = configuration(columns={"town": private, "sex": SEX}, missing=[])
    assert config.optional == (True, False)
    table = encoded([["", "f"], ["x", "m"], [" ", "f"]], config)
    assert table.labels[0] == ("x",), "an empty cell is a value"
    assert table.codes[0].tolist() == [1, 0, 1]
    assert configuration(privacy__unit={"column": "id", "join": True}, missing=[]).optional == (True,) * 4
    assert configuration(columns={"s": {"type": "set", "values": ["a"], "max_values": 1}}, missing=[]).optional == (
        True,
    )


@pytest.mark.parametrize("missing", [["", "-9"], []])
def test_outside_becomes_missing_where_missing_is_declared(missing: list[str]) -> None:
    """The default of `outside` follows from `missing`, and `outside: null` needs it."""
    config = configuration(columns__sex__missing=missing)
    assert config.optional[0] is bool(missing)
    asked = raw(columns__sex={**SEX, "missing": missing, "outside": "null"})
    if missing:
        assert parse_configuration(asked).optional[0]
        return
    with pytest.raises(InputError, match=r"columns\.sex has outside: null, but nothing is declared missing there"):
        parse_configuration(asked)
    grouped = {"grouped": [{**GROUP, "outside": "null"}]}
    with pytest.raises(InputError, match="group 'place' has outside: null, but nothing is declared missing in 'town'"):
        configuration(columns=TOWNS, structure=grouped, missing=[])
    other = configuration(columns__sex={**SEX, "missing": [], "outside": "other"})
    assert clean_table(pa.table({n: ["", "x"] for n in other.names}), other).column("sex").to_pylist() == ["other"] * 2
