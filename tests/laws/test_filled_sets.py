"""A set of which every cell has a value: no record lacks all of them, by any method, and a cell that does stops the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.columns import SetColumn
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import PossibleCells
from marginweave.drafts.look import Look
from marginweave.drafts.tally import judge
from marginweave.flows.check.advice import column_findings
from marginweave.schemas.contracts import check_contract, input_schema
from tests.support.configurations import configuration
from tests.support.noisy_marginals import METHODS, synthesized

MARGINALS = {"method": "marginals", "cliques": {"all": 2}}
DIAGNOSES: dict[str, Any] = {
    "type": "set",
    "values": ["a", "b", "c", "d"],
    "max_values": 2,
    "min_values": 1,
    "outside": "error",
}


def declared(aggregate: dict[str, Any] = MARGINALS, **changes: Any) -> Configuration:
    columns = {"dx": DIAGNOSES | changes, "sex": {"type": "category", "values": ["f", "m"], "outside": "error"}}
    return configuration(columns=columns, missing=[], aggregate=aggregate)


@pytest.mark.parametrize("method", METHODS)
def test_no_record_lacks_all_values(method: str) -> None:
    """Counts of a table in which many records have one rare value alone, with noise as large as some of them."""
    config, rng = declared(), np.random.default_rng(4)
    held = rng.choice(4, 600, p=[0.1, 0.3, 0.3, 0.3])
    rows = np.ones((600, 5), np.int64)
    rows[np.arange(600), held] = 0
    rows[rng.random(600) < 0.1, 1] = 0
    rows[:, 4] = rng.integers(0, 2, 600)
    for seed in range(3):
        codes, _ = synthesized(rows, config, method, seed, 20.0)
        values = np.stack(codes[:4])
        assert (values == 0).any(axis=0).all()
        assert ((values == 0).sum(axis=0) <= 2).all()


@pytest.mark.parametrize("cell", ["", " ; ", None])
def test_a_cell_without_a_value_stops_the_run(cell: str | None) -> None:
    """Before the first draw, and the error says rule and column; nothing is made up in its place."""
    schema = input_schema(declared())
    check_contract(schema, pd.DataFrame({"dx": ["a", "a;b;c"], "sex": ["f", "m"]}), "validate")
    with pytest.raises(InputError, match="column 'dx' breaks the rule 'every value is declared'"):
        check_contract(schema, pd.DataFrame({"dx": ["a", cell], "sex": ["f", "m"]}), "validate")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outside": None}, "needs outside: error"),
        ({"values": [f"v{i}" for i in range(9)]}, "9 values, which must be at most 8"),
        ({"aggregate": {"reporting_length": 2}}, "needs aggregate: {method: marginals}"),
        ({"missing": ["none"]}, "needs missing: \\[\\]"),
        ({"min_values": 2}, "min_values"),
    ],
)
def test_where_a_set_may_be_empty_all_the_same_it_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        declared(**changes)


def test_the_operator_is_told_and_not_sent_to_declare_what_is_refused() -> None:
    column, look = declared().columns["dx"], Look()
    assert isinstance(column, SetColumn)
    look.add(judge(pa.chunked_array([["a", ""]]), declared(), "dx"))
    (remark,) = column_findings(column, look, on_purpose=True, undeclared=False)
    assert remark.text == "50.0 % of the cells are empty, which is no value here; a run stops."
    assert remark.advice == "If a cell may have no value, leave `min_values` out."


def test_a_set_of_two_values_has_no_cell_without_both() -> None:
    config = declared(values=["a", "b"])
    labels = tuple(attribute.labels for attribute in config.attributes)
    cells = PossibleCells.of(config, labels).contain((0, 1), np.indices((2, 2)), {})
    assert cells.tolist() == [[True, True], [True, False]]
