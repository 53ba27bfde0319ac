"""Rules between the unit, imputation, resize, structure and the columns of a configuration."""

from __future__ import annotations

from marginweave.schemas.configuration.columns import IdentifierColumn, MeasuredColumn
from marginweave.schemas.configuration.preparation import WeightedImputation
from marginweave.schemas.configuration.sections import Sections
from marginweave.schemas.configuration.structure_records import check_records


def check_preparation(configuration: Sections) -> None:
    """Refuse a unit, an imputation, a resize, forbidden combinations or private bounds that do not fit; raises ValueError."""
    _check_unit(configuration)
    check_records(configuration.attributes, configuration.forbidden)
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn) and column.impute is not None:
            _check_imputation(configuration, name, column)
    if configuration.split == "sds" and (configuration.resize or configuration.private_bounds):
        what = "a resized table" if configuration.resize else "private bounds"
        raise ValueError(f"aggregate.split (sds) must be shares with {what}: SDS's printed split does not know them")
    groups = configuration.structure.grouped if configuration.structure else ()
    if configuration.private_bounds and any(group.outside == "error" for group in groups):
        raise ValueError(
            "structure.grouped has outside: error, which must be null beside private bounds: the table would be looked at for "
            "a stop after the first draw"
        )
    if configuration.resize is not None:
        _check_resize(configuration)


def _check_unit(configuration: Sections) -> None:
    subject = configuration.privacy.subject
    if subject is None or subject.column not in configuration.columns:
        return
    if not isinstance(configuration.columns[subject.column], IdentifierColumn):
        raise ValueError(
            f"privacy.unit names column {subject.column!r}, which must be of type identifier or not be among the columns"
        )


def _check_imputation(configuration: Sections, name: str, column: MeasuredColumn) -> None:
    place, impute = f"columns.{name}.impute", column.impute
    structure = configuration.structure
    if structure and (structure.group_of(name) or structure.rule_of(name)):
        raise ValueError(f"{place} must not stand in a grouped or determined column: its values come from others")
    assert impute is not None
    if column.is_set:
        raise ValueError(f"{place} must not stand in a set: a cell without values is a value of its own")
    possible = ("weights",) if column.private else column.imputations
    if impute.kind not in possible:
        raise ValueError(f"{place} ({impute.kind}) must be {' or '.join(possible)}: {impute.needs}")
    if isinstance(impute, WeightedImputation) and not column.private:
        codes = [column.code_of(value) for value in impute.weights]
        if min(codes) < 0 or len(set(codes)) < len(codes):
            raise ValueError(f"{place}.weights must name declared values, each once")


def _check_resize(configuration: Sections) -> None:
    """Added records need values, which only `impute` gives; a set of theirs is empty."""
    for attribute in configuration.attributes:
        column = configuration.columns[attribute.columns[0]]
        imputed = len(attribute.columns) == 1 and isinstance(column, MeasuredColumn) and column.impute is not None
        if not imputed and not column.is_set:
            raise ValueError(
                f"resize needs impute for column {attribute.columns[0]!r}: records that are added have no other value"
            )
    resize, privacy = configuration.resize, configuration.privacy
    if resize is None or not resize.amplify:
        return
    if privacy.stability.records > 1:
        raise ValueError(
            "resize.amplify (true) must be false where a subject has several records: its formulas are for one"
        )
    if configuration.private_bounds:
        raise ValueError(
            "resize.amplify (true) must be false with bounds: private, which are bought before the table is sampled"
        )
