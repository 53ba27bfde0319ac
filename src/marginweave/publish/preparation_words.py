"""Says in words what was done to the rows before they were counted. Public."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from marginweave.configuration.columns import MeasuredColumn
from marginweave.configuration.preparation import GaussianImputation, Imputation, WeightedImputation
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import rows_are_changed, unenforced_columns

Bounds = Mapping[str, tuple[float, float]]


def preparation_words(configuration: Configuration, bounds: Bounds) -> list[str]:
    """Return sentences on the unit, imputation, rules, private bounds and resize."""
    return [
        *_unit(configuration),
        *_imputations(configuration),
        *_rules(configuration),
        *_private_bounds(bounds),
        *_resize(configuration),
    ]


def _private_bounds(bounds: Bounds) -> Iterator[str]:
    """Yield a sentence for each column with private bounds."""
    for name, (low, high) in bounds.items():
        yield (
            f"The bounds of column {name!r}, {low:g} and {high:g}, were bought under the budget: two quantiles among public "
            "candidates; values beyond them count as the nearest bound."
        )


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
    """Yield a sentence for each distribution that values were imputed from."""
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
    """Yield sentences on the treatment of rows that break rules, whether there are any or not."""
    structure = configuration.structure
    if structure is None:
        return
    if rows_are_changed(configuration):
        yield (
            "A row that breaks rules between columns of public values was counted as one that keeps them, by its own cells "
            "alone."
        )
    unkept = unenforced_columns(configuration)
    if unkept:
        yield (
            f"A rule that names {_quoted(unkept)} changed no row: rows that break it were counted as they are, and "
            "the records alone keep it."
        )
    missing = configuration.missing_by_rule
    if missing:
        yield f"Where rules want a value of {_quoted(missing)}, a cell without one was counted as not as declared."
    for rule in structure.difference or ():
        yield f"Column {rule.column!r} was computed: {rule.of!r} less {rule.since!r}, or the nearest value inside its bounds."
    uncounted = [rule.computed for rule in structure.computed]
    if uncounted:
        yield f"Not counted, but computed from other columns in the records that are made: {_quoted(uncounted)}."


def _quoted(names: Iterable[str]) -> str:
    """Return names in quotes, with commas between them."""
    return ", ".join(map(repr, names))


def _source(impute: Imputation) -> str:
    """Return the distribution of an imputation in words."""
    if isinstance(impute, GaussianImputation):
        normal = f"a normal distribution with mean {impute.mean:g} and standard deviation {impute.deviation:g}"
        return f"{normal}, clamped to the bounds"
    if isinstance(impute, WeightedImputation):
        return "declared values with declared weights"
    return "the uniform distribution"


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
