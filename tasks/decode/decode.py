"""Codes become a table again: the declared columns, in declared order, types and formats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from marginweave.schemas.arrays import Codes, Floats
from marginweave.schemas.configuration.columns import ConstantColumn
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.structure import Structure
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Aggregates, Domain
from marginweave.tasks.columns import values_of
from marginweave.tasks.columns.base import ColumnValues
from marginweave.tasks.columns.computed import computed_values
from marginweave.tasks.decode.order import keep_order
from marginweave.tasks.synthesize.shards import stream


def decode_table(
    codes: Sequence[Codes],
    domain: Domain,
    configuration: Configuration,
    seed: int,
    block: int = 0,
    counts: Sequence[Floats] | None = None,
) -> pa.Table:
    """Turn codes into the table that the configuration declares: every column but identifiers, in declared order.

    A value of a category is its label, one of a number or date is drawn inside its bin (`tasks/columns`), a combination of a
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
            kinds[name] = values_of(column, configuration.missing_texts(name), known.get(name))
            arrays[name] = kinds[name].decode(*counted[name], rng.random)
    cells = {name: codes for name, (codes, _) in counted.items()}
    arrays = keep_order(arrays, cells, configuration.columns, structure.orders)
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
    groups = {group.name: group for group in configuration.structure.grouped} if configuration.structure else {}
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
            values[attribute.columns[0]].append(own)
        elif attribute.name in groups:
            names = [configuration.columns[name].labels for name in attribute.columns]
            members = [*configuration.member_codes(groups[attribute.name]), [len(labels) for labels in names]]
            for name, labels, member in zip(attribute.columns, names, np.array(members, np.int64).T, strict=True):
                found[name] = member[own], labels
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
    return {name: (at[attribute.name], coded[name][0]) for attribute in single for name in attribute.columns}


def column_counts(counts: Sequence[Floats], domain: Domain, configuration: Configuration) -> dict[str, Floats]:
    """Counts of the labels of each counted column but sets, from those of the attributes. DP: post-processing."""
    found = {}
    for name, (attribute, codes) in column_codes(domain, configuration).items():
        weights = counts[attribute].astype(np.float64)
        size = len(configuration.columns[name].labels) or len(weights)  # private labels are those of the attribute
        found[name] = np.bincount(codes, weights=weights, minlength=size + 1)[:size].astype(np.float64)
    return found
