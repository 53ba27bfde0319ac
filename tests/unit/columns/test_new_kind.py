"""A kind of column is its declaration and its values: one that only this test knows goes through every stage of the table."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from marginweave.base.arrays import Codes
from marginweave.base.errors import InputError
from marginweave.columns import KINDS
from marginweave.columns.base import ColumnValues, Uniform, binned
from marginweave.configuration.columns import Column, MeasuredColumn
from marginweave.configuration.columns.base import RULE_BOUNDS, Limits, Rule
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.conditions import Condition
from marginweave.configuration.rules.structure import Structure, check_structure
from marginweave.domain.labels import Domain
from marginweave.domain.membership import check_codes
from marginweave.mechanisms.randomness import CellWords
from marginweave.records.decode import decode_table
from marginweave.schemas.clean import clean_contract
from marginweave.schemas.records import records_contract
from marginweave.schemas.source import source_contract
from tests.support.configurations import raw
from tests.support.tables import encoded, prepare_rows

MINUTES = 24 * 60


class ClockColumn(MeasuredColumn, frozen=True):
    """A time of day, 07:45, released by the hour."""

    value_form: ClassVar[str | None] = "a time of day"
    range_end: ClassVar[str] = "a time like 07:45"
    type: Literal["clock"]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The hours."""
        return tuple(f"{hour:02d}h" for hour in range(24))

    @cached_property
    def label_limits(self) -> tuple[Limits, ...]:
        """The first and the last minute of each hour."""
        return tuple((Fraction(60 * hour), Fraction(60 * hour + 59)) for hour in range(24))

    def point_of(self, text: str) -> Fraction | None:
        """Return minutes since midnight."""
        minute = minutes(text)
        return None if minute is None else Fraction(minute)

    def accepts(self, text: str) -> bool:
        """Whether the text is a time of day."""
        return minutes(text) is not None

    @property
    def clean_rules(self) -> tuple[Rule, ...]:
        """Minutes of one day."""
        return (Rule(name=RULE_BOUNDS, limits=(0, MINUTES - 1)),)

    @property
    def released_rules(self) -> tuple[Rule, ...]:
        """Texts of one day."""
        return (Rule(name=self.input_rule, test=self.accepts),)


class ClockValues(ColumnValues[ClockColumn]):
    """Minutes since midnight."""

    @property
    def clean_type(self) -> pa.DataType:
        return pa.int16()

    @property
    def declared_type(self) -> pa.DataType:
        return pa.string()

    def clean(self, values: pa.Array) -> pa.Array:
        found = [
            None if text is None or text in self.missing else minutes(text.strip())
            for text in values.to_pylist()
        ]
        return pa.array(found, pa.int16())

    def encode(self, values: pa.Array, words: CellWords | None) -> Codes:  # noqa: ARG002 - a cell has one value
        return binned(values, pc.fill_null(values, 0).to_numpy(), range(0, MINUTES + 1, 60))

    def decode(self, codes: Codes, labels: tuple[str, ...], uniform: Uniform) -> pa.Array:
        drawn = 60.0 * codes + np.floor(60 * uniform(len(codes)))
        return pa.array(drawn.astype(np.int16), mask=codes == len(labels))

    def declare(self, values: pa.Array) -> pa.Array:
        texts = [
            None if minute is None else f"{minute // 60:02d}:{minute % 60:02d}"
            for minute in values.to_pylist()
        ]
        return pa.array(texts, pa.string())


def minutes(text: str) -> int | None:
    hour, _, minute = text.partition(":")
    fits = hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60
    return int(hour) * 60 + int(minute) if fits else None


class WithClocks(Configuration):
    """A configuration that knows one kind more."""

    columns: Annotated[  # pyright: ignore[reportIncompatibleVariableOverride]
        dict[str, Annotated[Column | ClockColumn, Field(discriminator="type")]], Field(min_length=1)
    ]


def with_clocks(**column: Any) -> WithClocks:
    return WithClocks.model_validate(raw(columns__woke={"type": "clock", **column}))


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """The second of two registrations: the first is the union of all kinds."""
    monkeypatch.setitem(KINDS, ClockColumn, ClockValues)


TIMES = st.times().map(lambda time: f"{time:%H:%M}")


@given(
    st.lists(
        st.one_of(TIMES, st.sampled_from(["", " 07:45 ", "24:00", "noon"])), min_size=1, max_size=8
    )
)
def test_a_new_kind_goes_from_text_to_text(cells):
    """Clean, encoded, decoded and read again: the same hours, and the same gaps, under every contract."""
    configuration = with_clocks()
    assert configuration.attributes[-1].labels[7] == "07h"
    table = pa.table({name: pa.array(["f", "north", "5", "1"][j : j + 1] * len(cells))
                      for j, name in enumerate(["sex", "region", "age", "grade"])} | {"woke": pa.array(cells)})  # fmt: skip
    clean = prepare_rows(table, configuration)
    clean_contract(configuration).check(clean)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    codes = encoded(rows, configuration)
    check_codes(configuration.attributes, codes.sizes, codes.codes, "encode", complete=True)
    hours = [24 if (minute := minutes(text.strip())) is None else minute // 60 for text in cells]
    assert codes.codes[-1].tolist() == hours
    domain = Domain(names=tuple(a.name for a in configuration.attributes), labels=codes.labels)
    synthetic = decode_table(codes.codes, domain, configuration, 0)
    records_contract(configuration).check(synthetic)
    woken = synthetic.column("woke").to_pylist()
    assert [text and int(text[:2]) for text in woken] == [
        None if hour == 24 else hour for hour in hours
    ]
    again = prepare_rows(table.set_column(4, "woke", synthetic.column("woke")), configuration)
    assert again.column("woke").is_null().to_pylist() == [hour == 24 for hour in hours]


def test_a_range_of_its_values_is_asked_for():
    """By `query` and by rules between columns, in the words of the kind."""
    column = with_clocks().columns["woke"]
    early = Condition.model_validate({"from": "07:00", "below": "09:00"})
    assert early.labels("woke", column) == ("07h", "08h")
    with pytest.raises(
        ValueError,
        match="'noon' as the end of a range of column 'woke', which must be a time like 07:45",
    ):
        Condition.model_validate({"from": "noon"}).labels("woke", column)
    with pytest.raises(ValueError, match="ends inside a bin"):
        Condition.model_validate({"from": "07:30"}).labels("woke", column)


def test_a_rule_that_does_not_take_it_says_its_type():
    totals = {"sum": [{"column": "woke", "of": ["age", "grade"]}]}
    with pytest.raises(
        ValueError, match="sum has 'woke' of the type clock, and takes number, date"
    ):
        check_structure(Structure.model_validate(totals), cast("Any", with_clocks().columns))
    order = {"ordered": [{"columns": ["age", "woke"]}]}
    with pytest.raises(
        ValueError,
        match=r"has age \(number, decimals: 0\), woke \(clock\), which must be of one type",
    ):
        check_structure(Structure.model_validate(order), cast("Any", with_clocks().columns))


def test_a_key_that_would_hide_what_all_kinds_have_is_refused():
    """Where a kind calls a key as a property of all, the declared number would be ignored without a word."""
    with (
        pytest.warns(UserWarning, match="shadows"),
        pytest.raises(TypeError, match="has width, which all columns have"),
    ):
        type(
            "Wide",
            (MeasuredColumn,),
            {"__annotations__": {"width": int}, "width": 60, "__module__": __name__},
            frozen=True,
        )


def test_its_rule_stops_a_table_and_names_no_value():
    """`outside: error` is asked of the kind, and says its rule."""
    configuration = with_clocks(outside="error")
    columns = {"sex": ["f"], "region": ["north"], "age": ["5"], "grade": ["1"]}
    good, bad = (pa.table({**columns, "woke": [text]}) for text in ("23:59", "99:99"))
    source_contract(configuration).check(good)
    with pytest.raises(
        InputError, match="column 'woke' breaks the rule 'every value is a time of day'"
    ):
        source_contract(configuration).check(bad)
