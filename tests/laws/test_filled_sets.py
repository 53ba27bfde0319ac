"""A set of which every cell has a value: no record lacks all of them, by any method, and a cell that does stops the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from marginweave.answers.rules import AnswerRules
from marginweave.base.errors import InputError
from marginweave.configuration.columns import SetColumn
from marginweave.configuration.release import Configuration
from marginweave.domain.boxes import allowed_boxes
from marginweave.domain.masks import Mask, NeverTogether
from marginweave.domain.zeros import PossibleCells, broken_records, structural_masks
from marginweave.drafts.look import ColumnLook
from marginweave.drafts.tally import judge
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.mixture.model import Mixture, pack_mixture, unpack_mixture
from marginweave.flows.check.advice import column_findings
from marginweave.mechanisms.randomness import KeyedBits, RecordWords
from marginweave.prepare.codes import EncodedTable
from marginweave.prepare.repair import Repair
from marginweave.records.mixture import repair_structural_zeros, sample_stratified
from marginweave.schemas.source import source_contract
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
    columns = {
        "dx": DIAGNOSES | changes,
        "sex": {"type": "category", "values": ["f", "m"], "outside": "error"},
    }
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
    contract = source_contract(declared())
    contract.check(pa.table({"dx": ["a", "a;b;c"], "sex": ["f", "m"]}))
    with pytest.raises(
        InputError,
        match="column 'dx' breaks the rule 'every cell has a value, and every value is declared'",
    ):
        contract.check(pa.table({"dx": ["a", cell], "sex": ["f", "m"]}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"outside": None}, "needs outside: error"),
        ({"aggregate": {"reporting_length": 2}}, "needs aggregate: {method: marginals}"),
        ({"missing": ["none"]}, "needs missing: \\[\\]"),
        ({"min_values": 2}, "min_values"),
    ],
)
def test_where_a_set_may_be_empty_all_the_same_it_is_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        declared(**changes)


def test_the_operator_is_told_and_not_sent_to_declare_what_is_refused() -> None:
    column, look = declared().columns["dx"], ColumnLook()
    assert isinstance(column, SetColumn)
    look.add(judge(pa.chunked_array([["a", ""]]), declared(), "dx"))
    (remark,) = column_findings(column, look, on_purpose=True, undeclared=False)
    assert str(remark.text) == "50.0 % of the cells are empty, which is no value here; a run stops."
    assert str(remark.advice) == "If a cell may have no value, leave `min_values` out."


MANY = [f"v{i}" for i in range(20)]
"""Of so many values no rule can be a table: 2 to the power of 20 cells."""


@pytest.mark.parametrize("method", METHODS)
def test_no_record_lacks_all_of_many_values(method: str) -> None:
    """Most records have one of twenty values, which a model that does not know the rule leaves out of one record in five."""
    config, rng = declared(values=MANY), np.random.default_rng(4)
    rows = np.ones((600, 21), np.int64)
    rows[np.arange(600), rng.choice(20, 600)] = 0
    rows[rng.random(600) < 0.2, 3] = 0
    rows[:, 20] = rng.integers(0, 2, 600)
    codes, _ = synthesized(rows, config, method, 5, 10.0)
    values = np.stack(codes[:20])
    assert (values == 0).any(axis=0).all()
    assert ((values == 0).sum(axis=0) <= 2).all()


def test_records_that_get_a_value_get_it_from_records_that_have_several() -> None:
    """How many records have each value stays as it is, where records of all components together have enough."""
    rng, parts = np.random.default_rng(8), np.full((4, 21, 2), 0.5)
    parts[:, :20, 0] = rng.uniform(0.02, 0.1, (4, 20))
    parts[:, :20, 1] = 1 - parts[:, :20, 0]
    zeros = NeverTogether(attributes=tuple(range(20)), codes=(1,) * 20, sizes=(2,) * 20)
    shares = [np.ascontiguousarray(parts[:, a]) for a in range(21)]
    model = Mixture.of(np.full(4, 0.25), shares, (2,) * 21, 3000.0, [zeros])
    records, owners = sample_stratified(model, 3000, rng)
    counts = (records == 0).sum(axis=0)
    assert (records[:, :20] == 1).all(axis=1).mean() > 0.2
    repair_structural_zeros(records, owners, model, rng)
    assert not (records[:, :20] == 1).all(axis=1).any()
    assert (records == 0).sum(axis=0).tolist() == counts.tolist()


def test_what_boxes_keep_is_kept_by_swaps_between_components() -> None:
    """No record of the first component can be mended by another of it; a swap of the second value would break its box."""
    equal = Mask(attributes=(0, 1), allowed=np.eye(2, dtype=np.bool_))
    not_both_first = Mask(attributes=(1, 2), allowed=np.array([[False, True], [True, True]]))
    certain = np.eye(2)
    blocks = tuple(Block(attributes=(a,), cells=np.arange(2)[:, None]) for a in range(3))
    model = Mixture(
        weights=np.full(2, 0.5),
        shares=(certain, certain, certain),
        blocks=blocks,
        boxes=np.array([[1, 0, 1, 0, 1, 1], [0, 1, 0, 1, 1, 1]], np.bool_),
        sizes=(2, 2, 2),
        total=200.0,
        masks=(not_both_first,),
        inside=(equal,),
    )
    owners = np.repeat([0, 1], 100)
    records = np.repeat(owners[:, None], 3, axis=1).astype(np.int32)
    repair_structural_zeros(records, owners, model, np.random.default_rng(2))
    assert not broken_records(tuple(records.T), [not_both_first, equal]).any()


def test_a_rule_on_many_attributes_says_what_a_table_of_it_would() -> None:
    """Of nine values, whose table can be listed: cells, projections, kinds, boxes and what is left of fewer codes."""
    attributes, zeros = tuple(range(9)), (1,) * 9
    never = NeverTogether(attributes=attributes, codes=zeros, sizes=(2,) * 9)
    listed = Mask(attributes=attributes, allowed=never.table())
    cells = np.indices((2,) * 9).reshape(9, -1)
    assert np.array_equal(never.allow(list(cells)), (cells == 0).any(axis=0))
    assert np.array_equal(
        broken_records(tuple(cells), [never]), broken_records(tuple(cells), [listed])
    )
    boxes = [allowed_boxes((2,) * 9, [mask], 512) for mask in (never, listed)]
    for found in boxes:
        assert found is not None
        inside = np.stack([found[:, 2 * a + cells[a]] for a in attributes]).all(axis=0)
        # in one box, or forbidden
        assert np.array_equal(inside.sum(axis=0), (cells == 0).any(axis=0))
    for some in (attributes, attributes[2:5], ()):
        assert np.array_equal(never.project(some), listed.project(some))
    both = [np.arange(2)] * 9
    assert list(never.forbidden(both)) == list(listed.forbidden(both)) == [zeros]
    assert not list(never.forbidden([np.array([0]), *both[1:]]))
    swapped = never.over([np.array([1, 0]), *both[1:]])
    assert swapped.codes == (0, *zeros[1:])


def test_an_answer_knows_that_nobody_lacks_all_of_many_values() -> None:
    config = declared(values=MANY)
    labels = tuple(attribute.labels for attribute in config.attributes)
    rules = AnswerRules(rules=structural_masks(config, labels), sizes=(2,) * 21)
    lacks, has = np.array([False, True]), np.array([True, False])
    none = dict.fromkeys(range(20), lacks)
    assert not rules.allow(none)
    assert not rules.allow({**none, 20: has})
    assert rules.allow({**none, 7: has})
    assert rules.allow(dict.fromkeys(range(19), lacks))
    others = {place: lacks for place in range(20) if place != 7}
    assert rules.possible({**others, 7: lacks | has})[7].tolist() == [True, False]


def test_a_model_is_the_same_after_it_was_kept() -> None:
    zeros = NeverTogether(attributes=tuple(range(9)), codes=(1,) * 9, sizes=(2,) * 9)
    model = Mixture.of(np.ones(1), [np.full((1, 2), 0.5)] * 9, (2,) * 9, 10.0, [zeros])
    (kept,) = unpack_mixture(pack_mixture(model)).masks
    assert isinstance(kept, NeverTogether)
    assert (kept.attributes, kept.codes, kept.sizes) == (zeros.attributes, zeros.codes, zeros.sizes)


def test_a_rule_that_takes_the_only_one_of_many_values_gives_another() -> None:
    """Men do not have v7: a man who has it alone becomes a man with another value."""
    structure = {"forbidden": [{"sex": "m", "dx": ["v7"]}]}
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "dx": DIAGNOSES | {"values": MANY},
    }
    config = configuration(columns=columns, missing=[], aggregate=MARGINALS, structure=structure)
    labels = tuple(attribute.labels for attribute in config.attributes)
    codes = np.ones((200, 21), np.uint8)
    codes[:, 8] = 0
    table = EncodedTable(labels=labels, codes=tuple(codes.T))
    words = RecordWords(words=KeyedBits(key=b"k" * 32, purpose="rules"), records=np.arange(200))
    repaired = np.stack(Repair(config, labels)(table, words).codes)
    assert (repaired[0] == 1).all()
    assert (repaired[8] == 1).all()
    assert (repaired[1:] == 0).any(axis=0).all()


def test_a_set_of_two_values_has_no_cell_without_both() -> None:
    config = declared(values=["a", "b"])
    labels = tuple(attribute.labels for attribute in config.attributes)
    cells = PossibleCells.of(config, labels).contain((0, 1), np.indices((2, 2)), {})
    assert cells.tolist() == [[True, True], [True, False]]
