"""What was done to the rows before they were counted, in words. Public."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.preparation import GaussianImputation, Imputation, WeightedImputation
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import rows_are_changed, unkept_columns

Bounds = Mapping[str, tuple[float, float]]


def preparation_words(configuration: Configuration, bounds: Bounds) -> list[str]:
    """Unit, imputation, private bounds and resize, a sentence each."""
    return [
        *_unit(configuration),
        *_imputations(configuration),
        *_rules(configuration),
        *(
            f"The bounds of column {name!r}, {low:g} and {high:g}, were bought under the budget: two quantiles among public "
            "candidates; values beyond them count as the nearest bound."
            for name, (low, high) in bounds.items()
        ),
        *_resize(configuration),
    ]


def _unit(configuration: Configuration) -> Iterator[str]:
    subject = configuration.privacy.subject
    if subject is None:
        yield "The unit of privacy is one row."
        return
    yield f"The unit of privacy is one subject: all rows with the same value of column {subject.column!r}."
    if subject.join:
        yield "All rows of a subject were joined into one record: sets united, a value missing where the rows disagree."
    else:
        yield f"At most {subject.max_records:,} row(s) of a subject were counted, uniformly chosen where there were more."
    if subject.missing_subject == "own":
        yield "A row without a subject counts as a separate subject."
    else:
        yield "Rows without a subject were left out."


def _imputations(configuration: Configuration) -> Iterator[str]:
    """One sentence a distribution."""
    imputed: defaultdict[str, list[str]] = defaultdict(list)
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn) and column.impute is not None:
            imputed[_source(column.impute)].append(f"column {name!r}")
    for source, names in imputed.items():
        yield (
            f"Cells of {', '.join(names)} without a value, missing or not as declared, were replaced by draws of {source}, and "
            "counted like any other."
        )


def _rules(configuration: Configuration) -> Iterator[str]:
    """What became of rows that break rules, whether there are any or not."""
    structure = configuration.structure
    if structure is None:
        return
    if rows_are_changed(configuration):
        yield (
            "A row that breaks rules between columns of public values was counted as one that keeps them, by its own cells "
            "alone."
        )
    if names := unkept_columns(configuration):
        yield (
            f"A rule that names {', '.join(map(repr, names))} changed no row: rows that break it were counted as they are, and "
            "the records alone keep it."
        )
    if names := configuration.missing_by_rule:
        yield f"Where rules want a value of {', '.join(map(repr, names))}, a cell without one was counted as not as declared."
    for rule in structure.difference or ():
        yield f"Column {rule.column!r} was computed: {rule.of!r} less {rule.since!r}, or the nearest value inside its bounds."
    if uncounted := [repr(rule.computed) for rule in structure.computed]:
        yield f"Not counted, but computed from other columns in the records that are made: {', '.join(uncounted)}."


def _source(impute: Imputation) -> str:
    if isinstance(impute, GaussianImputation):
        normal = f"a normal distribution with mean {impute.mean:g} and standard deviation {impute.deviation:g}"
        return f"{normal}, clamped to the bounds"
    weighted = isinstance(impute, WeightedImputation)
    return "declared values with declared weights" if weighted else "the uniform distribution"


def _resize(configuration: Configuration) -> Iterator[str]:
    resize = configuration.resize
    if resize is None:
        return
    copies = f"{resize.copies:,} copies of the table" if resize.copies > 1 else "the table"
    yield (
        f"The counted table has the public number of {resize.records:,} records: sampled from {copies} at rate "
        f"{float(resize.rate):g}, cut to that number or filled up with imputed records."
    )
    if resize.amplify:
        yield (
            "Noise was calibrated to the functional (epsilon, delta) of the sampled table "
            f"({resize.formula or 'tight'} formula); the release as a whole is charged as plain (epsilon, delta)."
        )
    else:
        replaced = resize.copies * configuration.privacy.stability.records
        yield f"Noise was calibrated for {replaced:,} replaced record(s) of that table, the most that one unit can cause."
