"""Encoding and decoding over tables of all types: the same bins, and every record on its own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.errors import StageError
from marginweave.checkpoints.codecs import pack_table, unpack_table
from marginweave.configuration.columns.periods import parse_instant
from marginweave.domain.labels import Domain
from marginweave.domain.membership import check_codes
from marginweave.prepare.clean import clean_table
from marginweave.prepare.codes import encode_table
from marginweave.records.decode import decode_table
from tests.support.column_kinds import KINDS
from tests.support.configurations import configuration
from tests.support.tables import FixedWords, prepare_rows

CONFIGURATION = configuration(columns={name: column for name, (column, _) in KINDS.items()})
ROWS = st.fixed_dictionaries({name: texts for name, (_, texts) in KINDS.items()})
NOTHING = st.fixed_dictionaries(dict.fromkeys(KINDS, st.sampled_from(["", "  "])))


def table_of(rows):
    return pa.table(
        {name: pa.array([row[name] for row in rows], pa.string()) for name in CONFIGURATION.names}
    )


def encode(rows, words=None):
    return encode_table(clean_table(table_of(rows), CONFIGURATION), CONFIGURATION, words)


def records(encoded):
    """Each record as text values, so that tables with other private labels can be compared."""
    names = [(*labels, None) for labels in encoded.labels]
    found = []
    for i in range(encoded.records):
        cells = (np.atleast_1d(codes[i]).tolist() for codes in encoded.codes)
        found.append(
            tuple(
                tuple(sorted(str(n[v]) for v in cell)) for n, cell in zip(names, cells, strict=True)
            )
        )
    return found


UNITS = {
    "row": "row",
    "bounded": {"column": "id", "max_records": 2, "missing_subject": "drop"},
    "joined": {"column": "id", "join": True, "missing_subject": "drop"},
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("rows", ["none", "without a value", "without a subject"])
def test_a_public_domain_is_whole_whatever_the_table_holds(unit: str, rows: str) -> None:
    """Every declared value has a code, and so gets its noise, where no row, no value or no subject is left; or all are."""
    columns = {name: column for name, (column, _) in KINDS.items()}
    config = configuration(columns=columns, privacy__unit=UNITS[unit])
    count = 0 if rows == "none" else 3
    table = table_of([dict.fromkeys(KINDS, "")] * count)
    if unit != "row":
        table = table.append_column(
            "id", pa.array(["" if rows == "without a subject" else "7"] * count, pa.string())
        )
    clean = unpack_table(pack_table(prepare_rows(table, config)))
    encoded = encode_table(clean, config, FixedWords(1))
    sizes = [0 if attribute.private else len(attribute.labels) for attribute in config.attributes]
    assert list(encoded.sizes) == sizes
    assert max(sizes) > 3
    check_codes(config.attributes, encoded.sizes, encoded.codes, "encode", complete=False)
    lost = [0] * len(sizes)
    with pytest.raises(StageError, match="the labels are the declared ones"):
        check_codes(config.attributes, lost, encoded.codes, "encode", complete=False)


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 3))
def test_a_decoded_table_is_encoded_into_its_own_codes(rows, seed):
    """decode(encode(x)) lands in the same bin for every value of every type, declared formats included."""
    first = encode(rows, FixedWords(seed))
    domain = Domain(names=tuple(a.name for a in CONFIGURATION.attributes), labels=first.labels)
    table = decode_table(first.codes, domain, CONFIGURATION, seed)
    assert table.column_names == list(CONFIGURATION.output_names)
    again = encode_table(clean_table(table, CONFIGURATION), CONFIGURATION, FixedWords(seed))
    assert (records(again) == records(first)) is True


@settings(max_examples=25, deadline=None)
@given(st.lists(ROWS, max_size=10), ROWS)
def test_a_record_changes_only_its_own_row(rows, one):
    """1-stability: with one record more, or another one in its place, all other rows of the encoded table stay."""
    alone, more = records(encode(rows, FixedWords(1))), records(encode([*rows, one], FixedWords(1)))
    assert (more[:-1] == alone) is True
    assert len(more) == len(rows) + 1


@settings(max_examples=20, deadline=None)
@given(st.lists(ROWS, max_size=8), st.lists(NOTHING, min_size=1, max_size=3))
def test_records_without_a_value_change_no_label_and_no_width(rows, nothing):
    """Adding all-null records changes no header, bin, label or shape; they hold nothing."""
    before, after = encode(rows, FixedWords(1)), encode([*rows, *nothing], FixedWords(1))
    assert after.labels == before.labels
    assert [c.shape[1:] for c in after.codes] == [c.shape[1:] for c in before.codes]
    assert [c.dtype for c in after.codes] == [c.dtype for c in before.codes]
    for codes, size in zip(after.codes, after.sizes, strict=True):
        assert (codes[len(rows) :] == size).all()


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_text_is_accepted_exactly_where_cleaning_finds_a_value(name, data):
    """The contract of `outside: error` and the cleaning agree on every text that is not missing."""
    column, texts = KINDS[name]
    config = configuration(columns={"x": column})
    declared, text = config.columns["x"], data.draw(texts)
    value = clean_table(pa.table({"x": [text]}), config).column("x")[0]
    if not text.strip() or declared.type == "set" or column.get("outside") == "other":
        return
    assert declared.accepts(text.strip()) is value.is_valid


@settings(max_examples=50, deadline=None)
@given(
    st.from_regex(
        r"\A[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?)?\Z"
    )
)
def test_iso_texts_are_read_as_one_by_one(text):
    """Reading many ISO texts at once gives what the calendar says of each, leap years included."""
    config = configuration(
        columns={"x": {"type": "datetime", "bounds": ["0001-01-01", "2999-12-31"], "bins": "year"}}
    )
    value = clean_table(pa.table({"x": [text]}), config).column("x")[0]
    moment = parse_instant(text, None)
    assert value.cast(pa.int64()).as_py() == moment
