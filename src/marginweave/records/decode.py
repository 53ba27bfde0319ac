"""Codes become a table again: the declared columns, in declared order, types and formats."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
        seed: Seed of the draws; each column has a stream of its own.
        block: Number of this block of records, in each of which the streams are others.
        counts: Released counts of the labels of each attribute (`label_counts`), which smooth draws follow; without them
            they are uniform.
        types: Types of the source, whose decimals numbers have that declare none; `typed_table` is what converts to them.

    Returns:
        A table of n rows. DP: post-processing.

    Raises:
        InputError: if `domain` does not have a declared attribute, or not its values.
    """
    structure = configuration.structure or Structure()
    counted = _column_codes(codes, domain, configuration)
    known = {} if counts is None else column_counts(counts, domain, configuration)
    arrays: dict[str, pa.Array] = {}
    kinds: dict[str, ColumnValues[Any]] = {}
    for place, (name, column) in enumerate(configuration.columns.items()):
        if name in counted:
            rng = stream([seed, place], block)  # post-processing
            source = named_type((types or {}).get(name))
            kinds[name] = values_of(column, configuration.missing_texts(name), known.get(name), source)
            arrays[name] = kinds[name].decode(*counted[name], rng.random)
    cells = {name: codes for name, (codes, _) in counted.items()}
    columns = {name: kind.column for name, kind in kinds.items()}
    arrays = keep_order(arrays, cells, columns, structure.orders)
    for rule in structure.computed:
        name = rule.computed
        kinds[name] = values_of(configuration.columns[name], configuration.missing_texts(name))
        arrays[name] = computed_values(rule, arrays, configuration.columns)
    arrays = {name: kinds[name].declare(array) for name, array in arrays.items()}
    for name, column in configuration.columns.items():
        if isinstance(column, ConstantColumn):
            arrays[name] = pa.repeat(pa.scalar(column.value, pa.string()), len(codes[0]))
    return pa.table({name: arrays[name] for name in configuration.output_names})


def _column_codes(
    codes: Sequence[Codes], domain: Domain, configuration: Configuration
) -> dict[str, tuple[Codes, tuple[str, ...]]]:
    """Codes and labels of each counted column."""
    coded = {name: (codes[j], labels) for j, (name, labels) in enumerate(zip(domain.names, domain.labels, strict=True))}
    found: dict[str, tuple[Codes, tuple[str, ...]]] = {}
    values: defaultdict[str, list[Codes]] = defaultdict(list)
    for attribute in configuration.attributes:
        if attribute.name not in coded:
            raise InputError(f"{attribute.name} is not in the domain of the records")
        own, labels = coded[attribute.name]
        if not attribute.private and len(labels) != len(attribute.labels):
            raise InputError(
                f"{attribute.name} has {len(attribute.labels)} values; the domain of the records has {len(labels)}"
            )
        if attribute.of_set:
            values[attribute.column].append(own)
        else:
            found[attribute.name] = own, labels
    for name, label_cells in values.items():
        size = len(label_cells)
        cells = np.where(np.column_stack(label_cells) == 0, np.arange(size), size)
        found[name] = cells, configuration.columns[name].labels
    return found


def label_counts(aggregates: Aggregates) -> tuple[Floats, ...]:
    """Released counts of the labels of each attribute, 0 where none was released; shapes (labels,). DP: post-processing."""
    first, found = aggregates.levels[0], [np.zeros(size) for size in aggregates.domain.sizes]
    for j, counted in enumerate(found):
        rows = first.columns[:, 0] == j
        counted[first.values[rows, 0]] = first.counts[rows]
    return tuple(found)


def column_codes(domain: Domain, configuration: Configuration) -> dict[str, tuple[int, Codes]]:
    """For each counted column but sets the place of its attribute, and its code in each label of that; DP: public facts."""
    every = [np.arange(size, dtype=np.int32) for size in domain.sizes]
    coded, at = _column_codes(every, domain, configuration), {name: j for j, name in enumerate(domain.names)}
    single = [attribute for attribute in configuration.attributes if not (attribute.is_set or attribute.of_set)]
    return {one.column: (at[one.name], coded[one.column][0]) for one in single}


def column_counts(counts: Sequence[Floats], domain: Domain, configuration: Configuration) -> dict[str, Floats]:
    """Counts of the labels of each counted column but sets, from those of the attributes. DP: post-processing."""
    found = {}
    for name, (attribute, codes) in column_codes(domain, configuration).items():
        weights = counts[attribute].astype(np.float64)
        size = len(configuration.columns[name].labels) or len(weights)  # private labels are those of the attribute
        found[name] = np.bincount(codes, weights=weights, minlength=size + 1)[:size].astype(np.float64)
    return found


def typed_table(table: pa.Table, domain: Domain, configuration: Configuration, types: Mapping[str, str]) -> pa.Table:
    """A decoded table with each column in its type of the source, where that holds all that the column can have.

    Which columns those are, and all dtypes that pandas makes of the table, follow from public facts and from the released
    domain, never from the records. DP: post-processing.
    """
    released = dict(zip(domain.names, domain.labels, strict=True))
    for place, name in enumerate(table.column_names):
        own = _values(name, configuration, named_type(types.get(name)))
        cells = own.typed(table.column(place).combine_chunks(), own.column.labels or released.get(name, ()))
        table = table.set_column(place, name, cells)
    return _with_dtypes(table, configuration, types)


def spelled_table(table: pa.Table, configuration: Configuration) -> pa.Table:
    """A typed table as a source of texts has it: spellings, formats, decimals and marks as declared."""
    form = configuration.source.numbers
    for place, name in enumerate(table.column_names):
        own, kind = _values(name, configuration), table.schema.types[place]
        plain = table.column(place).combine_chunks().cast(pa.string() if is_text(kind) else cell_type(kind))
        cells = own.spelled(plain)
        if isinstance(own.column, NumberColumn) and not form.is_usual:
            cells = pa.array([text and form.spelled(text) for text in cells.cast(pa.string()).to_pylist()], pa.string())
        table = table.set_column(place, name, cells)
    return table


def stored_table(table: pa.Table, configuration: Configuration, types: Mapping[str, str]) -> pa.Table:
    """A typed table as Parquet can hold it, where texts alone stand behind dictionaries; as it is where there are no types."""
    if not types:
        return table.replace_schema_metadata(None)
    kinds = [field if is_text(field.type) else field.with_type(cell_type(field.type)) for field in table.schema]
    return _with_dtypes(table.cast(pa.schema(kinds)), configuration, types)


def _values(name: str, configuration: Configuration, kind: pa.DataType | None = None) -> ColumnValues[Any]:
    """What a column of the output does with its values, of which the texts of uncounted ones never mean "no value"."""
    column, counted = configuration.columns[name], name in configuration.names
    if isinstance(column, ConstantColumn):
        column = Category(type="category", values=(column.value,))
    return values_of(column, configuration.missing_texts(name) if counted else (), None, kind)


def _with_dtypes(table: pa.Table, configuration: Configuration, types: Mapping[str, str]) -> pa.Table:
    """The table with the dtypes that pandas has to give its columns, whatever was drawn: nullable ones where gaps can be."""
    columns = []
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        dtype = types.get(name, "").partition(" (")[2][:-1] if named_type(types.get(name)) == kind else ""
        if not dtype and has_gaps(configuration, name) and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            dtype = str(kind).replace("bool", "boolean").replace("u", "U").replace("int", "Int")
        if dtype:
            columns.append(
                {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype, "metadata": None}
            )
    described = {"index_columns": [], "column_indexes": [], "columns": columns}
    return table.replace_schema_metadata({"pandas": json.dumps(described, default=str)})
