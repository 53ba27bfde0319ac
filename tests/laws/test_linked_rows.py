"""Synthetic rows of linked tables join with their records, are as many as these say, and keep rules and derived columns."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marginweave.base.arrays import Codes, Floats
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.labels import Domain
from marginweave.estimate.mixture.blocks import Block, tie
from marginweave.estimate.mixture.linked_rows import (
    RowModel,
    fit_rows,
    pack_row_models,
    pooled,
    row_gaps,
    unpack_row_models,
)
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.combinations import Aggregates
from marginweave.observations.compression import Compression
from marginweave.observations.tables import Observation
from marginweave.publish.fitted import model_table, read_row_models
from marginweave.records.decode import decode_table
from marginweave.records.linked_rows import RowMaker, row_masks, units_with_rows
from marginweave.records.nested import Nested, rows_of, with_keys, with_nested
from tests.support.linked_tables import HOSPITAL, STAYS, hospital

AT_MOST = {"at_most": 4}
DERIVED = {
    "stays": "count",
    "emergency": {"any": {"kind": "emergency"}},
    "longest": {"largest": "days", "where": {"kind": ["planned", "birth"]}},
    "first": {"smallest": "admitted"},
    "readmitted": {"within": "30 days", "from": "discharged", "to": "admitted"},
}
ORDERED = {"ordered": [{"columns": ["admitted", "discharged"]}]}


def normal(shares: Floats) -> Floats:
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


@cache
def declared(derived: tuple[str, ...], *, ordered: bool) -> Configuration:
    """The hospital with some of its derived columns, whose stays are counted."""
    columns = HOSPITAL["columns"]
    table = {**STAYS, **AT_MOST, "derive": {name: DERIVED[name] for name in derived}}
    if ordered:
        table["structure"] = ORDERED
    kept = {name: column for name, column in columns.items() if name in ("sex", *derived)}
    return hospital(
        columns=kept,
        tables={"stays": table},
        aggregate={"method": "marginals"},
        synthesize={"method": "mixture"},
    )


def random_maker(
    config: Configuration, rng: np.random.Generator, evenness: float = 0.5
) -> RowMaker:
    """A maker of rows from a model of random shares, which are the more alike the larger `evenness` is."""
    components = 6
    sizes = [len(attribute.labels) + 1 for attribute in config.attributes]
    shares = [normal(rng.gamma(0.3, size=(components, size)) + 1e-3) for size in sizes]
    weights = normal(rng.random(components))
    model = Mixture.of(weights, shares, sizes, 100.0, ())
    of_rows = config.of_rows("stays", ["kind", "days"])
    row_sizes = [len(attribute.labels) + 1 for attribute in of_rows.attributes]
    blocks = tie(row_sizes, row_masks(of_rows)).blocks
    rows = RowModel(
        blocks=blocks,
        shares=tuple(
            normal(rng.gamma(evenness, size=(components, len(b.cells))) + 1e-3) for b in blocks
        ),
    )
    return RowMaker(
        name="stays",
        configuration=config,
        domain=domain_of(config),
        model=model,
        compression=Compression(
            codes=tuple(np.arange(size) for size in sizes),
            counts=tuple(np.ones(size) for size in sizes),
        ),
        rows=rows,
    )


def domain_of(config: Configuration) -> Domain:
    return Domain(
        names=tuple(attribute.name for attribute in config.attributes),
        labels=tuple(attribute.labels for attribute in config.attributes),
    )


def made(maker: RowMaker, codes: tuple[Codes, ...], seed: int) -> tuple[pa.Table, Nested]:
    records = decode_table(codes, maker.domain, maker.configuration, seed)
    return maker.with_rows(records, codes, seed, 0)


DERIVATIONS = [
    ("stays", *more)
    for size in (0, 1, 4)
    for more in itertools.combinations(("emergency", "longest", "first", "readmitted"), size)
]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(DERIVATIONS), st.booleans(), st.integers(0, 2**32), st.integers(0, 60))
def test_rows_are_those_of_their_records(
    derived: tuple[str, ...], ordered: bool, seed: int, records: int
) -> None:
    """As many as the record says, each of declared values, in the declared order; the same seed makes the same bytes."""
    rng = np.random.default_rng(seed)
    config = declared(derived, ordered=ordered)
    maker = random_maker(config, rng)
    codes = tuple(
        rng.integers(0, len(a.labels) + (a.name != "stays"), records) for a in config.attributes
    )
    table, nested = made(maker, codes, seed)
    assert nested.lengths.tolist() == table.column("stays").to_pylist()
    assert len(nested.table) == nested.lengths.sum()
    again, nested_again = made(maker, codes, seed)
    assert again.equals(table)
    assert nested_again.table.equals(nested.table)
    rows = nested.table.to_pandas()
    assert set(rows["kind"].dropna()) <= {"planned", "emergency", "birth"}
    if ordered:
        both = rows[["admitted", "discharged"]].dropna()
        assert (both["admitted"] <= both["discharged"]).all()
        assert (both["admitted"] >= pd.Timestamp("2024-01-01").date()).all()


def by_definition(nested: Nested, name: str) -> list[Any]:
    """What is derived of the rows of each record."""
    rows = nested.table.to_pandas()
    rows["record"] = np.repeat(np.arange(len(nested.lengths)), nested.lengths)
    derived = []
    for record in range(len(nested.lengths)):
        of_record = rows[rows["record"] == record]
        if name == "emergency":
            derived.append(bool((of_record["kind"] == "emergency").any()))
        elif name == "longest":
            days = of_record[of_record["kind"].isin(["planned", "birth"])]["days"]
            ends = days[days != 99].dropna()
            derived.append(ends.max() if len(ends) else None)
        else:
            derived.append(of_record["admitted"].min() if len(of_record) else None)
    return derived


@pytest.mark.parametrize("name", ["emergency", "longest", "first"])
def test_derived_columns_follow_from_rows(name: str) -> None:
    """Of records with rows, all but a few have rows from which the derived column follows; an end is that of the rows.

    With one derived column any code but "no value" can follow from two rows or more. 1 in 50 is more than was ever left.
    """
    rng = np.random.default_rng(5)
    config = declared(("stays", name), ordered=False)
    maker = random_maker(config, rng, evenness=9.0)
    labels = dict(zip(maker.domain.names, maker.domain.labels, strict=True))
    number = rng.integers(2, 4, 400)  # two rows or more
    wanted = rng.integers(0, len(labels[name]), 400)
    codes = {"sex": rng.integers(0, 2, 400), "stays": number, name: wanted}
    table, nested = made(maker, tuple(codes[each] for each in maker.domain.names), 8)
    derived = by_definition(nested, name)
    agreeing = [
        drawn == value for drawn, value in zip(table.column(name).to_pylist(), derived, strict=True)
    ]
    assert np.mean(agreeing) > 0.98


def test_a_record_without_a_value_keeps_it() -> None:
    """Nobody knows what was not as declared: any rows go with it, and the record has no value still."""
    config = declared(("stays", "emergency"), ordered=False)
    maker = random_maker(config, np.random.default_rng(2))
    codes = {"sex": np.zeros(50, int), "stays": np.full(50, 3), "emergency": np.full(50, 2)}
    table, _ = made(maker, tuple(codes[name] for name in maker.domain.names), 1)
    assert table.column("emergency").null_count == 50


def test_rows_are_fitted_where_no_unit_has_any() -> None:
    """As where no row of a linked table has the id of a row of the source, and a run was charged for its counts."""
    sizes = [2, 3]
    shares = [normal(np.ones((4, 2))), np.tile([1.0, 0.0, 0.0], (4, 1))]
    model = Mixture.of(normal(np.ones(4)), shares, sizes, 100.0, ())
    units = units_with_rows(model, 1, np.array([0.0, 1.0, 1.0]))
    assert np.allclose(units.marginal((1,)), [100, 0, 0])
    shares[1][0] = [0.5, 0.0, 0.5]
    some = Mixture.of(normal(np.ones(4)), shares, sizes, 100.0, ())
    assert np.allclose(units_with_rows(some, 1, np.array([0.0, 1.0, 1.0])).weights, [1, 0, 0, 0])


def test_a_rule_is_kept_where_noise_has_left_no_row_that_keeps_it() -> None:
    """All shares are on values that the rules exclude, in columns by themselves: rows are drawn from all values."""
    config = declared(("stays",), ordered=True)
    maker = random_maker(config, np.random.default_rng(2))
    sizes = [len(labels) + 1 for labels in maker.row_domain.labels]
    single = [
        Block(attributes=(i,), cells=np.arange(size)[:, None]) for i, size in enumerate(sizes)
    ]
    shares = [np.ones((6, size)) / size for size in sizes]
    late, early = np.zeros(sizes[2]), np.zeros(sizes[3])
    late[-2] = early[0] = 1.0
    shares[2], shares[3] = np.tile(late, (6, 1)), np.tile(early, (6, 1))
    broken = RowModel(blocks=tuple(single), shares=tuple(shares))
    maker = RowMaker(**{**vars_of(maker), "rows": broken})
    _, nested = made(maker, (np.zeros(3, int), np.full(3, 2)), 1)
    rows = nested.table.to_pandas()
    assert len(rows) == nested.lengths.sum() > 0
    assert (rows["admitted"] <= rows["discharged"]).all()


def vars_of(maker: RowMaker) -> dict[str, Any]:
    return {name: getattr(maker, name) for name in RowMaker.__dataclass_fields__}


def test_every_foreign_key_has_its_parent() -> None:
    """Numbers of records go on over blocks, and each row has that of the record that holds it."""
    config = declared(("stays", "emergency"), ordered=False)
    maker = random_maker(config, np.random.default_rng(4))
    blocks = []
    for block in range(3):
        rng = np.random.default_rng(block)
        codes = tuple(rng.integers(0, len(a.labels), 20 * block + 1) for a in config.attributes)
        table, nested = made(maker, codes, block)
        blocks.append(with_nested(table, [nested]))
    records = pa.concat_tables(with_keys(blocks, config)).to_pandas()
    rows = pa.concat_tables(rows_of(blocks, "stays", config)).to_pandas()
    assert records["patient"].tolist() == list(range(1, 64))
    assert list(records.columns) == ["patient", "sex", "stays", "emergency"]
    assert next(iter(rows.columns)) == "patient_id"
    numbers = rows.groupby("patient_id").size().reindex(records["patient"], fill_value=0)
    assert numbers.tolist() == records["stays"].tolist()
    has = rows[rows["kind"] == "emergency"]["patient_id"]
    agreeing = records["patient"].isin(has) == records["emergency"]
    assert agreeing[records["stays"] > 0].mean() > 0.9


def test_records_without_linked_rows_have_no_key() -> None:
    config = hospital(synthesize={"method": "gum"}, aggregate={"method": "marginals"})
    assert not config.recorded_tables
    table = pa.table({name: pa.nulls(2) for name in config.output_names})
    (records,) = with_keys([table], config)
    assert records.column_names == table.column_names


ROOT = (2, 3)
ROWS = (3, 2)


@cache
def two_levels() -> tuple[Mixture, list[Floats]]:
    """A mixture of units of two columns, and the shares of rows of two columns in each of its components."""
    rng = np.random.default_rng(11)
    shares = [normal(rng.gamma(0.4, size=(24, size)) + 0.02) for size in ROOT]
    units = Mixture.of(np.full(24, 1 / 24), shares, ROOT, 5000.0, ())
    # rows depend on the first column of their unit, and on each other
    leaning = shares[0][:, :1]
    first = normal(leaning * np.array([4.0, 1.0, 0.5]) + (1 - leaning) * np.array([0.2, 1.0, 3.0]))
    second = normal(0.2 + first[:, :2] ** 2)
    return units, [first, second]


def expected(units: Mixture, rows: list[Floats], attributes: tuple[int, ...]) -> Floats:
    """The histogram by units over attributes of units and columns of rows, behind them."""
    factors = [*units.shares, *rows]
    letters = "abcd"[: len(attributes)]
    terms = ",".join(f"k{letter}" for letter in letters)
    table = np.einsum(f"k,{terms}->{letters}", units.weights, *(factors[a] for a in attributes))
    return np.asarray(5000.0 * table)


def test_exact_counts_give_the_model_back() -> None:
    """Fitted to exact histograms, with the noise of half a unit a cell, all pairs are within .005 of them (TVD)."""
    units, rows = two_levels()
    cliques = [(2,), (3,), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    exact = {clique: expected(units, rows, clique) for clique in cliques}
    seen = [
        Observation(attributes=clique, counts=counts, deviation=0.5)
        for clique, counts in exact.items()
    ]
    blocks = tuple(
        Block(attributes=(i,), cells=np.arange(size)[:, None]) for i, size in enumerate(ROWS)
    )
    chosen = MixtureSynthesis(method="mixture", components=24, fits=1)
    fitted = fit_rows(units, seen, ROWS, blocks, chosen)
    distances = {
        clique: np.abs(expected(units, list(fitted.shares), clique) - counts).sum() / 2 / 5000
        for clique, counts in exact.items()
    }
    assert max(distances.values()) < 0.005, distances
    independent = np.outer(exact[0, 2].sum(axis=1), exact[0, 2].sum(axis=0)) / 5000
    assert np.abs(independent - exact[0, 2]).sum() / 2 / 5000 > 0.05
    again = fit_rows(units, seen, ROWS, blocks, chosen)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(fitted.shares, again.shares, strict=True))


def test_a_column_is_the_mean_of_all_that_have_it() -> None:
    """Of 400 draws the mean square is what its deviation says, within a factor of 1.5: of chance alone less than 1e-7."""
    units, rows = two_levels()
    rng = np.random.default_rng(3)
    cliques = [(2,), (3,), (0, 2), (2, 3)]
    exact = {clique: expected(units, rows, clique) for clique in cliques}
    errors = []
    deviation = 60 / np.sqrt(1 + 1 / 2 + 1 / 2)
    for _ in range(400):
        seen = [
            Observation(attributes=c, counts=t + rng.normal(0, 60, t.shape), deviation=60.0)
            for c, t in exact.items()
        ]
        first, second, *others = pooled(seen, 2)
        assert [m.attributes for m in (first, second)] == [(2,), (3,)]
        assert others == seen[2:]
        assert first.deviation == pytest.approx(deviation)
        errors.append((first.counts - exact[2,]) / deviation)
    assert 1 / 1.5 < np.mean(np.square(errors)) < 1.5


def test_models_come_back_from_bytes_and_from_the_file() -> None:
    """A model of rows in which rules tie two columns, behind a mixture, as model.parquet has it."""
    config = declared(("stays", "emergency"), ordered=True)
    maker = random_maker(config, np.random.default_rng(9))
    packed = unpack_row_models(pack_row_models({"stays": maker.rows}))
    counts = Aggregates(
        domain=maker.domain, record_count=1, record_deviation=1.0, levels=(), noise=()
    )
    table = model_table(maker.model, counts, config, {"stays": maker.rows})
    read = read_row_models(table, config)
    assert max(len(block.attributes) for block in maker.rows.blocks) == 2
    for model in (packed["stays"], read["stays"]):
        for ours, theirs in zip(maker.rows.blocks, model.blocks, strict=True):
            assert ours.attributes == theirs.attributes
            assert ours.cells.tolist() == theirs.cells.tolist()
        for ours, theirs in zip(maker.rows.shares, model.shares, strict=True):
            assert ours.tobytes() == theirs.tobytes()
    assert row_gaps(config, read) == {"stays": tuple(maker.row_domain.names)}
