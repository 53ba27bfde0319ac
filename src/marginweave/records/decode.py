"""Turns codes into a table again: the declared columns, in declared order, types and formats."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from marginweave.base.arrays import Codes, Floats
from marginweave.base.arrow import cell_type, is_text, named_type
from marginweave.base.errors import InputError
from marginweave.columns import values_of
from marginweave.columns.base import ColumnValues
from marginweave.columns.computed import computed_values
from marginweave.configuration.columns import Category, ConstantColumn, NumberColumn
from marginweave.configuration.gaps import has_gaps
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.structure import Structure
from marginweave.domain.labels import Domain
from marginweave.observations.combinations import Aggregates
from marginweave.records.order import keep_order
from marginweave.records.shards import stream


def decode_table(
    codes: Sequence[Codes],
    domain: Domain,
    configuration: Configuration,
    seed: int,
    block: int = 0,
    counts: Sequence[Floats] | None = None,
    *,
    types: Mapping[str, str] | None = None,
) -> pa.Table:
    """Turn codes into the table that the configuration declares: every column but identifiers, in declared order.

    A value of a category is its label, one of a number or date is drawn inside its bin (`columns`), a combination of a
    group gives each of its columns a value, some columns are computed from others, a constant has its value. A missing
    value is null. Encoding a decoded table gives back its codes.

    Args:
        codes: Codes of each attribute, shape (n,), or (n, width) for a set; `domain.sizes[j]` is the missing value.
        domain: Names and labels of the attributes.
        configuration: What is declared, bounds resolved.
        seed: Seed of the draws; each column has a separate stream.
        block: Number of this block of records; each block has other streams.
        counts: Released counts of the labels of each attribute (`label_counts`), which smooth draws follow; without them
            they are uniform.
        types: Types of the source, whose decimals are used for numbers that declare none; `typed_table` converts to them.

    Returns:
        A table of n rows. DP: post-processing.

    Raises:
        InputError: if `domain` does not have a declared attribute, or not its values.
    """
    structure = configuration.structure or Structure()
    counted = _column_codes(codes, domain, configuration)
    weights = {} if counts is None else column_counts(counts, domain, configuration)
    arrays: dict[str, pa.Array] = {}
    kinds: dict[str, ColumnValues[Any]] = {}
    for place, (name, column) in enumerate(configuration.columns.items()):
        if name in counted:
            rng = stream([seed, place], block)  # post-processing
            source = named_type((types or {}).get(name))
            missing = configuration.missing_texts(name)
            kinds[name] = values_of(column, missing, weights.get(name), source)
            column_cells, labels = counted[name]
            arrays[name] = kinds[name].decode(column_cells, labels, rng.random)
    cells = {name: column_cells for name, (column_cells, _) in counted.items()}
    columns = {name: kind.column for name, kind in kinds.items()}
    arrays = keep_order(arrays, cells, columns, structure.orders)
    for rule in structure.computed:
        name = rule.computed
        missing = configuration.missing_texts(name)
        kinds[name] = values_of(configuration.columns[name], missing)
        arrays[name] = computed_values(rule, arrays, configuration.columns)
    arrays = {name: kinds[name].declare(array) for name, array in arrays.items()}
    for name, column in configuration.columns.items():
        if isinstance(column, ConstantColumn):
            constant = pa.scalar(column.value, pa.string())
            arrays[name] = pa.repeat(constant, len(codes[0]))
    return pa.table({name: arrays[name] for name in configuration.output_names})


def _column_codes(
    codes: Sequence[Codes],
    domain: Domain,
    configuration: Configuration,
) -> dict[str, tuple[Codes, tuple[str, ...]]]:
    """Return codes and labels of each counted column.

    Raises:
        InputError: if `domain` does not have a declared attribute, or not its values.
    """
    coded = {name: (codes[j], domain.labels[j]) for j, name in enumerate(domain.names)}
    columns: dict[str, tuple[Codes, tuple[str, ...]]] = {}
    set_codes: defaultdict[str, list[Codes]] = defaultdict(list)
    for attribute in configuration.attributes:
        if attribute.name not in coded:
            raise InputError(f"{attribute.name} is not in the domain of the records")
        attribute_codes, labels = coded[attribute.name]
        if not attribute.private and len(labels) != len(attribute.labels):
            raise InputError(
                f"{attribute.name} has {len(attribute.labels)} values; the domain of the records has {len(labels)}"
            )
        if attribute.of_set:
            set_codes[attribute.column].append(attribute_codes)
        else:
            columns[attribute.name] = (attribute_codes, labels)
    for name, codes_of_values in set_codes.items():
        size = len(codes_of_values)
        has_value = np.column_stack(codes_of_values) == 0
        cells = np.where(has_value, np.arange(size), size)
        columns[name] = (cells, configuration.columns[name].labels)
    return columns


def label_counts(aggregates: Aggregates) -> tuple[Floats, ...]:
    """Return the released counts of the labels of each attribute, 0 where none was released; shapes (labels,).

    DP: post-processing.
    """
    first = aggregates.levels[0]
    counts = []
    for j, size in enumerate(aggregates.domain.sizes):
        rows = first.columns[:, 0] == j
        attribute_counts = np.zeros(size)
        attribute_counts[first.values[rows, 0]] = first.counts[rows]
        counts.append(attribute_counts)
    return tuple(counts)


def column_codes(domain: Domain, configuration: Configuration) -> dict[str, tuple[int, Codes]]:
    """Return for each counted column that is not a set the place of its attribute, and its code in each label of that.

    DP: public facts.
    """
    all_codes = [np.arange(size, dtype=np.int32) for size in domain.sizes]
    coded = _column_codes(all_codes, domain, configuration)
    places = {name: j for j, name in enumerate(domain.names)}
    columns = {}
    for attribute in configuration.attributes:
        if not attribute.is_set and not attribute.of_set:
            codes, _ = coded[attribute.column]
            columns[attribute.column] = (places[attribute.name], codes)
    return columns


def column_counts(
    counts: Sequence[Floats], domain: Domain, configuration: Configuration
) -> dict[str, Floats]:
    """Return the counts of the labels of each counted column that is not a set, from those of the attributes.

    DP: post-processing.
    """
    counts_of_columns = {}
    for name, (attribute, codes) in column_codes(domain, configuration).items():
        weights = counts[attribute].astype(np.float64)
        # private labels are those of the attribute
        size = len(configuration.columns[name].labels) or len(weights)
        sums = np.bincount(codes, weights=weights, minlength=size + 1)
        counts_of_columns[name] = sums[:size].astype(np.float64)
    return counts_of_columns


def typed_table(
    table: pa.Table,
    domain: Domain,
    configuration: Configuration,
    types: Mapping[str, str],
) -> pa.Table:
    """Return a decoded table with each column in its type of the source, where that holds all that the column can have.

    Which columns those are, and all dtypes that pandas makes of the table, follow from public facts and from the released
    domain, never from the records. DP: post-processing.
    """
    released = dict(zip(domain.names, domain.labels, strict=True))
    for place, name in enumerate(table.column_names):
        kind = named_type(types.get(name))
        values = _values(name, configuration, kind)
        labels = values.column.labels or released.get(name, ())
        declared = table.column(place).combine_chunks()
        cells = values.typed(declared, labels)
        table = table.set_column(place, name, cells)
    return _with_dtypes(table, configuration, types)


def spelled_table(table: pa.Table, configuration: Configuration) -> pa.Table:
    """Return a typed table as a source of texts has it: spellings, formats, decimals and marks as declared.

    Where `publish.csv` has another mark before decimals, numbers have that one, and none between thousands.
    """
    form = configuration.source.numbers
    decimal = configuration.publish.csv.decimal
    if decimal not in (None, form.decimal):
        form = replace(form, decimal=decimal, thousands=None)
    for place, name in enumerate(table.column_names):
        values = _values(name, configuration)
        kind = table.schema.types[place]
        plain_type = pa.string() if is_text(kind) else cell_type(kind)
        typed = table.column(place).combine_chunks()
        cells = values.spelled(typed.cast(plain_type))
        if isinstance(values.column, NumberColumn) and not form.is_usual:
            texts = cells.cast(pa.string()).to_pylist()
            spelled_texts = [text and form.spelled(text) for text in texts]
            cells = pa.array(spelled_texts, pa.string())
        table = table.set_column(place, name, cells)
    return table


def stored_table(
    table: pa.Table, configuration: Configuration, types: Mapping[str, str]
) -> pa.Table:
    """Return a typed table as Parquet can hold it: only texts are dictionaries; without `types` the table is as it is."""
    if not types:
        return table.replace_schema_metadata(None)
    fields = []
    for field in table.schema:
        stored_type = field.type if is_text(field.type) else cell_type(field.type)
        fields.append(field.with_type(stored_type))
    stored = table.cast(pa.schema(fields))
    return _with_dtypes(stored, configuration, types)


def _values(
    name: str, configuration: Configuration, kind: pa.DataType | None = None
) -> ColumnValues[Any]:
    """Return what decodes a column of the output; the texts of an uncounted column never mean "no value"."""
    column = configuration.columns[name]
    if isinstance(column, ConstantColumn):
        column = Category(type="category", values=(column.value,))
    missing = configuration.missing_texts(name) if name in configuration.names else ()
    return values_of(column, missing, None, kind)


def _with_dtypes(
    table: pa.Table, configuration: Configuration, types: Mapping[str, str]
) -> pa.Table:
    """Return the table with the dtypes that pandas has to give its columns, whatever was drawn: nullable with gaps."""
    columns = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        dtype = ""
        if named_type(types.get(name)) == kind:
            _, _, dtype = types.get(name, "").partition(" (")
            dtype = dtype[:-1]
        is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
        if not dtype and is_whole and has_gaps(configuration, name):
            dtype = str(kind).replace("bool", "boolean").replace("u", "U").replace("int", "Int")
        if dtype:
            described_column = {
                "name": name,
                "field_name": name,
                "pandas_type": kind,
                "numpy_type": dtype,
                "metadata": None,
            }
            columns.append(described_column)
    described = {"index_columns": [], "column_indexes": [], "columns": columns}
    return table.replace_schema_metadata({"pandas": json.dumps(described, default=str)})
