"""Numbers that stand for something else: each is a value of its own, and no draw inside a bin is one of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import InputError
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import parse_yaml
from marginweave.domain.labels import Domain
from marginweave.measurements.quantile_bounds import _without_codes
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.prepare.encode import imputation_weights
from marginweave.records.decode import decode_table
from marginweave.schemas.clean import clean_contract
from marginweave.schemas.records import records_contract
from tests.support.configurations import configuration, raw

RATIO = {"type": "number", "bounds": [0, 500], "bins": 5, "decimals": 0, "missing": ["", "998"]}
CODES = {"997": "refused", "501": "above five times", "0": "none", "250": "not told"}
BINS = ("[0, 100)", "[100, 200)", "[200, 300)", "[300, 400)", "[400, 500]")
CONFIGURATION = configuration(columns={"x": {**RATIO, "codes": CODES}})
LABELS = (*BINS, "none", "not told", "above five times", "refused")


def code(text: str) -> int:
    """The slow reference: codes first, then missing and unreadable, then the bin of the clamped number."""
    special = {0: 5, 250: 6, 501: 7, 997: 8}
    try:
        number = float(text)
    except ValueError:
        return 9
    if number in special:
        return special[number]  # pyright: ignore[reportArgumentType]
    return 9 if number == 998 else min(int(min(max(number, 0), 500) // 100), 4)


TEXTS = st.one_of(
    st.integers(-20, 1100).map(str),
    st.sampled_from(
        [
            "501",
            "501.0",
            "997",
            "9.97e2",
            "0",
            "250",
            " 501 ",
            "998",
            "",
            "x",
            "500.5",
            "249.9",
            "-0",
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(cells=st.lists(TEXTS, min_size=1, max_size=30), seed=st.integers(0, 99))
def test_codes_missing_and_outside_go_round(cells: list[str], seed: int) -> None:
    """text -> code -> number -> the same code; contracts hold on both sides; the number of a code is the code as written."""
    clean = clean_table(pa.table({"x": cells}), CONFIGURATION)
    first = encode_table(clean, CONFIGURATION)
    assert first.labels == (LABELS,)
    assert first.codes[0].tolist() == [code(cell) for cell in cells]
    assert clean_contract(CONFIGURATION).broken(clean) == set()
    made = decode_table(first.codes, Domain(names=("x",), labels=first.labels), CONFIGURATION, seed)
    assert records_contract(CONFIGURATION).broken(made) == set()
    again = encode_table(clean_table(made, CONFIGURATION), CONFIGURATION)
    assert again.codes[0].tolist() == first.codes[0].tolist()
    written = {5: 0, 6: 250, 7: 501, 8: 997, 9: None}
    for found, number in zip(first.codes[0].tolist(), made.column("x").to_pylist(), strict=True):
        assert number == written.get(found, number)


@pytest.mark.parametrize("draw", ["uniform", "midpoint", {"edges": [0, 500], "weights": [1]}])
def test_no_draw_inside_a_bin_is_a_code(draw: Any) -> None:
    """Bins of three numbers, of which codes and missing codes leave one: it alone is drawn."""
    column = {"type": "number", "bins": [0, 3, 6, 9], "decimals": 0, "draw": draw, "missing": ["5"]}
    config = configuration(columns={"x": {**column, "codes": {0: "a", 1: "b", 4: "c", 8: "d"}}})
    domain = Domain(names=("x",), labels=(config.columns["x"].labels,))
    made = (
        decode_table([np.repeat([0, 1, 2], 500)], domain, config, 0)
        .column("x")
        .to_numpy()
        .reshape(3, -1)
    )
    assert [set(part.tolist()) for part in made] == [
        {2},
        {3},
        {6, 7, 9} if draw != "midpoint" else {7},
    ]


def test_a_code_is_neither_drawn_for_a_gap_nor_counted_in_private_bounds() -> None:
    """Imputation has the bins alone; of bought bounds a code is no number."""
    for impute in (
        {"distribution": "uniform"},
        {"distribution": "gaussian", "mean": 100, "deviation": 50},
    ):
        config = configuration(columns={"x": {**RATIO, "codes": CODES, "impute": impute}})
        column = config.columns["x"]
        assert isinstance(column, NumberColumn)
        weights = imputation_weights(column, column.labels)
        assert (len(weights), weights[5:]) == (9, (0.0,) * 4)
        assert min(weights[:5]) > 0
    bought = {
        "type": "number",
        "bounds": "private",
        "within": [0, 1000],
        "bins": 4,
        "decimals": 0,
        "codes": CODES,
    }
    config = configuration(columns={"x": bought})
    values = (
        clean_table(pa.table({"x": ["501", "3", "", "997", "1200"]}), config)
        .column("x")
        .combine_chunks()
    )
    number = config.columns["x"]
    assert isinstance(number, NumberColumn)
    assert _without_codes(values, number).to_pylist() == [None, 3, None, None, 1000]
    assert config.with_bounds({"x": (0, 1000)}).columns["x"].labels[4:] == LABELS[5:]


def test_codes_are_read_as_written() -> None:
    """Labels are texts, whatever YAML makes of `no`; order and spelling of the file do not matter; nothing is without."""
    text = "columns: {x: {type: number, bounds: [0, 9], bins: 3, decimals: 0, codes: {97: no, 11: 1_000}}}"
    config = parse_configuration({**raw(), **parse_yaml(text)})
    assert config.columns["x"].labels[3:] == ("1_000", "no")
    assert config.columns["x"].ordered is False
    again = Configuration.from_canonical(config.canonical())
    assert (again.canonical(), again.columns["x"].labels) == (
        config.canonical(),
        config.columns["x"].labels,
    )
    assert "codes" not in configuration().canonical()
    assert configuration(columns={"x": RATIO}).columns["x"].ordered is True


def test_a_structural_zero_names_a_code_by_number_or_label() -> None:
    columns = {"x": {**RATIO, "codes": CODES}, "sex": {"type": "category", "values": ["f", "m"]}}
    for spelled in ("501", "501.0", "above five times"):
        config = configuration(
            columns=columns, structure={"forbidden": [{"x": spelled, "sex": "m"}]}
        )
        assert config.forbidden == (((0, ("above five times",)), (1, ("m",))),)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ({}, "must be a mapping of numbers to what they mean"),
        ({"x": "a"}, "'x' is no number"),
        ({"01": "a"}, "'01' is no number"),
        ({"7": " "}, "or means nothing"),
        ({"7": "a", "7.0": "b"}, "has a number twice"),
        ({"7": "a", "8": "a"}, "whose label is that of another code"),
        ({"7": "[0, 100)"}, "or of a bin"),
        ({"7.5": "a"}, "more decimals than the column"),
        ({"1e17": "a"}, "beyond 2^53"),
        ({"998": "a"}, "declares '998' as a value and as missing"),
    ],
)
def test_codes_that_could_not_be_told_are_refused(codes: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as refusal:
        configuration(columns={"x": {**RATIO, "codes": codes}})
    assert said in str(refusal.value)
