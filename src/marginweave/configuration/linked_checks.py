"""What a configuration with linked tables must keep: its unit, and a declared column of a fitting type for each derivation."""

from __future__ import annotations

from collections.abc import Iterator

from marginweave.configuration.columns import (
    BooleanColumn,
    DateColumn,
    MeasuredColumn,
    NumberColumn,
)
from marginweave.configuration.columns.base import ColumnBase
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.linked import Derivation, LinkedTable
from marginweave.configuration.rules.conditions import ConditionError, labels_of
from marginweave.configuration.rules.structure import Structure, check_structure
from marginweave.configuration.sections import Sections
from marginweave.configuration.values import ValueMatcher

_ORDERED = (NumberColumn, DateColumn)


def check_tables(configuration: Sections) -> None:
    """Refuse linked tables without a column of ids, beside what they cannot stand beside, or that do not fit (ValueError)."""
    if configuration.tables is None:
        return
    if configuration.privacy.subject is None:
        raise ValueError(
            "tables needs the column that says whose row it is: privacy: {unit: {column: ID, max_records: 1}}"
        )
    for key, is_used in (
        ("aggregate: {method: k-tuples}", configuration.marginals is None),
        ("resize", configuration.resize is not None),
        ("known", configuration.known is not None),
    ):
        if is_used:
            raise ValueError(f"{key} must not stand beside tables; leave one of the two out")
    _check_counted(configuration)
    derived: set[str] = set()
    for name, table in sorted(configuration.tables.items()):
        _check_purpose(name, table)
        _check_columns(configuration, name, table)
        if table.structure is not None:
            _check_rules(configuration, name, table.structure, table)
        for column, derivation in table.derive.items():
            place = f"tables.{name}.derive.{column}"
            if column in derived:
                raise ValueError(f"{place} is derived twice; a column follows from one table")
            derived.add(column)
            _check_derivation(configuration, place, table, column, derivation)


def _check_purpose(name: str, table: LinkedTable) -> None:
    """Refuse a table that is neither counted nor read for derived columns, and keys without effect (ValueError)."""
    if table.at_most is not None:
        return
    if not table.derive:
        raise ValueError(
            f"tables.{name} needs at_most, with which its rows are counted, or derive, or both"
        )
    for key, value in (
        ("beside", table.beside),
        ("share", table.share),
        ("structure", table.structure),
    ):
        if value is not None:
            raise ValueError(f"tables.{name}.{key} needs at_most, with which rows are counted")


def _check_rules(
    configuration: Sections, name: str, structure: Structure, table: LinkedTable
) -> None:
    """Refuse rules of rows that do not fit the columns of their table, or compute one of them (ValueError)."""
    place = f"tables.{name}.structure"
    for key in ("determined", "difference", "sum"):
        if getattr(structure, key):
            raise ValueError(
                f"{place}.{key} must not be used: rows of linked tables have forbidden, applies and ordered alone"
            )
    try:
        check_structure(structure, table.columns)
        _ = configuration.of_rows(
            name
        ).forbidden  # raises ValueError for a value that a column does not have
    except ValueError as error:
        raise ValueError(f"tables.{name}.{error}") from None


def _check_counted(configuration: Sections) -> None:
    """Refuse tables that are counted beside what that does not hold for (ValueError)."""
    privacy = configuration.privacy
    subject = privacy.subject
    assert subject is not None
    assert configuration.tables is not None
    shares = configuration.table_shares
    if sum(shares) >= 1:
        named = ", ".join(map("{:g}".format, shares))
        raise ValueError(
            f"tables must leave something of the budget for the source; the shares of counted tables are {named}: "
            "together below 1"
        )
    for name in configuration.counted_tables:
        table = configuration.tables[name]
        place = f"tables.{name}.at_most"
        if privacy.joins or privacy.stability.records > 1:
            raise ValueError(
                f"{place} needs one row of the source for each {subject.column}: privacy: {{unit: {{column: "
                f"{subject.column}, max_records: 1}}}}"
            )
        if not privacy.delta:
            raise ValueError(
                f"{place} needs a privacy.delta above 0: rows are counted with Gaussian noise"
            )
        if not table.columns:
            raise ValueError(f"{place} needs columns: those of the table that are counted")
        possible = {attribute.name for attribute in configuration.beside_attributes}
        for column in table.beside or ():
            if column not in possible:
                raise ValueError(
                    f"tables.{name}.beside names {column!r}, which is no counted column of the source with public values"
                )


def _check_columns(configuration: Sections, name: str, table: LinkedTable) -> None:
    """Refuse a column that is read and not declared, or whose cells have no public value by themselves (ValueError)."""
    if table.by is not None and not table.by.strip():
        raise ValueError(f"tables.{name}.by must not be empty")
    for column_name in table.read_names:
        place = f"tables.{name}.columns.{column_name}"
        column = table.columns.get(column_name)
        if column is None:
            raise ValueError(
                f"tables.{name}.derive names {column_name!r}, which is not among its columns"
            )
        if not isinstance(column, MeasuredColumn) or not column.public_cells:
            raise ValueError(
                f"{place} must be a category, boolean, number or date with public values or bounds"
            )
        if column.impute is not None or column.outside == "error":
            raise ValueError(
                f"{place} must not have impute, or outside: error: a cell without a value meets no condition"
            )
        missing = table.missing_texts(column_name, configuration.missing)
        for text in column.also_missing(missing):
            raise ValueError(f"{place} declares {text!r} as a value and as missing")


def _check_derivation(
    configuration: Sections, place: str, table: LinkedTable, name: str, derivation: Derivation
) -> None:
    """Refuse a derivation whose column is not declared, not counted, or of another type (ValueError)."""
    column = configuration.columns.get(name)
    if column is None:
        raise ValueError(f"{place} must be declared under columns, too")
    if name not in configuration.raw_names:
        raise ValueError(f"{place} must be a counted column, and none that structure computes")
    wanted = _wanted_type(place, table, derivation)
    if not _has_type(column, wanted):
        raise ValueError(f"columns.{name} must be a {wanted}, as {derivation.kind} gives")
    if not derivation.always_has_value:
        missing = ValueMatcher(configuration.missing_texts(name))
        if missing.index("") < 0:
            raise ValueError(
                f'columns.{name} needs missing: [""], as {derivation.kind} gives no value where there is no such row'
            )
    if isinstance(column, MeasuredColumn) and column.outside == "error":
        raise ValueError(
            f"columns.{name} must not have outside: error, as its cells follow from rows"
        )
    if isinstance(column, BinnedColumn) and derivation.column:
        _check_ends(place, table, name, column, derivation.column)
    _check_conditions(configuration, place, table, derivation)


def _check_ends(
    place: str, table: LinkedTable, name: str, column: BinnedColumn, linked_name: str
) -> None:
    """Refuse a derived column that would say other bounds or decimals than those that its values were given (ValueError).

    Values are clamped and rounded as the linked column says, and then as the derived one does, which is what readers see.
    """
    linked = table.columns[linked_name]
    linked_place = f"{place.rsplit('.derive.', 1)[0]}.columns.{linked_name}"
    assert isinstance(linked, BinnedColumn)
    limits = zip(linked.clamp, column.clamp, linked.clamp_texts, column.clamp_texts, strict=True)
    (low, wanted_low, *low_texts), (high, wanted_high, *high_texts) = limits
    if low > wanted_low or high < wanted_high:
        first = low_texts[low > wanted_low]
        last = high_texts[high < wanted_high]
        raise ValueError(
            f"{linked_place} must have bounds that hold those of columns.{name}: bounds: [{first}, {last}]"
        )
    if isinstance(linked, NumberColumn) and isinstance(column, NumberColumn):
        decimals = column.decimals
        if linked.decimals not in (None, decimals):
            wanted = "no decimals" if decimals is None else f"decimals: {decimals}, or none"
            raise ValueError(f"{linked_place} must have {wanted}, as columns.{name} has")


def _wanted_type(place: str, table: LinkedTable, derivation: Derivation) -> str:
    """Return the type of what a derivation gives, in words. Raises ValueError where its columns do not fit it."""
    if derivation.kind == "count":
        return "number with decimals: 0"
    if derivation.kind == "any":
        return "boolean"
    if derivation.kind == "within":
        ends = [table.columns[name] for name in (derivation.start, derivation.end) if name]
        kinds = {column.type for column in ends}
        if not all(isinstance(column, DateColumn) for column in ends) or len(kinds) > 1:
            raise ValueError(
                f"{place} needs two columns of dates, or two of moments, for from and to"
            )
        return "boolean"
    column = table.columns[derivation.column]
    if not isinstance(column, _ORDERED):
        raise ValueError(f"{place}.{derivation.kind} must name a number or a date")
    return column.type


def _has_type(column: ColumnBase, wanted: str) -> bool:
    """Return whether a column of the source is of the type in words."""
    if wanted == "boolean":
        return isinstance(column, BooleanColumn)
    if wanted.startswith("number with"):
        return isinstance(column, NumberColumn) and column.decimals == 0
    return isinstance(column, _ORDERED) and column.type == wanted


def _check_conditions(
    configuration: Sections, place: str, table: LinkedTable, derivation: Derivation
) -> None:
    """Refuse a condition that no value of its column can meet or fail (ValueError)."""
    for name in derivation.conditions:
        try:
            labels = tuple(met_labels(configuration, table, derivation, name))
        except ConditionError as error:
            raise ValueError(f"{place} {error.fault}") from None
        if not labels:
            raise ValueError(
                f"{place} has a condition on {name!r} that no value meets; a cell without a value meets none"
            )


def met_labels(
    configuration: Sections, table: LinkedTable, derivation: Derivation, name: str
) -> Iterator[str]:
    """Yield the labels of the column `name` of a linked table that meet the condition on it; a missing cell meets none.

    Raises:
        ConditionError: a text that is no value of the column, or a range that ends inside a bin.
    """
    missing = table.missing_texts(name, configuration.missing)
    for label in labels_of(name, table.columns[name], derivation.conditions[name], missing):
        if label is not None:
            yield label
