"""Makes the sentences on what was done to the rows before they were counted, from the configuration. Public."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from marginweave.configuration.columns import DateColumn, MeasuredColumn
from marginweave.configuration.preparation import GaussianImputation, Imputation, WeightedImputation
from marginweave.configuration.release import Configuration
from marginweave.domain.zeros import rows_are_changed, unenforced_columns
from marginweave.texts.sentences import Sentence, report_sentence

Bounds = Mapping[str, tuple[float, float]]


def preparation_sentences(configuration: Configuration, bounds: Bounds) -> list[Sentence]:
    """Return sentences on the unit, moments, imputation, rules, private bounds and resize."""
    return [
        *_unit(configuration),
        *_moments(configuration),
        *_imputations(configuration),
        *_rules(configuration),
        *_private_bounds(bounds),
        *_resize(configuration),
    ]


def _private_bounds(bounds: Bounds) -> Iterator[Sentence]:
    """Yield a sentence for each column with private bounds."""
    for name, (low, high) in bounds.items():
        yield report_sentence("preparation.bounds", column=name, low=low, high=high)


def _unit(configuration: Configuration) -> Iterator[Sentence]:
    """Yield sentences on the unit of privacy, and on what was done to the rows of a subject."""
    subject = configuration.privacy.subject
    if subject is None:
        yield report_sentence("preparation.row")
        return
    yield report_sentence("preparation.subject", column=subject.column)
    if subject.max_records is None:
        yield report_sentence("preparation.joined")
    else:
        yield report_sentence("preparation.cut", most=subject.max_records)
    yield report_sentence(
        "preparation.own" if subject.missing_subject == "own" else "preparation.left-out"
    )


def _moments(configuration: Configuration) -> Iterator[Sentence]:
    """Yield a sentence where texts of moments may have a zone; whether any has is not known."""
    columns = [
        name
        for name, column in configuration.columns.items()
        if isinstance(column, DateColumn) and column.type == "datetime" and column.format is None
    ]
    if columns:
        yield report_sentence("preparation.moments", columns=_quoted(columns))


def _imputations(configuration: Configuration) -> Iterator[Sentence]:
    """Yield a sentence for each distribution that values were imputed from."""
    imputed: defaultdict[str, list[str]] = defaultdict(list)
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn) and column.impute is not None:
            imputed[str(_distribution(column.impute))].append(
                str(report_sentence("preparation.column", name=name))
            )
    for distribution, columns in imputed.items():
        yield report_sentence(
            "preparation.imputed", columns=", ".join(columns), distribution=distribution
        )


def _rules(configuration: Configuration) -> Iterator[Sentence]:
    """Yield sentences on the treatment of rows that break rules, whether there are any or not."""
    structure = configuration.structure
    if structure is None:
        return
    if rows_are_changed(configuration):
        yield report_sentence("preparation.repaired")
    unkept = unenforced_columns(configuration)
    if unkept:
        yield report_sentence("preparation.unkept", columns=_quoted(unkept))
    missing = configuration.missing_by_rule
    if missing:
        yield report_sentence("preparation.missing-by-rule", columns=_quoted(missing))
    for rule in structure.difference or ():
        yield report_sentence(
            "preparation.difference", column=rule.column, of=rule.of, since=rule.since
        )
    uncounted = [rule.computed for rule in structure.computed]
    if uncounted:
        yield report_sentence("preparation.computed", columns=_quoted(uncounted))


def _quoted(names: Iterable[str]) -> str:
    """Return names in quotes, with commas between them."""
    return ", ".join(map(repr, names))


def _distribution(impute: Imputation) -> Sentence:
    """Return the distribution of an imputation in words."""
    if isinstance(impute, GaussianImputation):
        return report_sentence(
            "distribution.gaussian", mean=impute.mean, deviation=impute.deviation
        )
    return report_sentence(
        "distribution.weighted"
        if isinstance(impute, WeightedImputation)
        else "distribution.uniform"
    )


def _resize(configuration: Configuration) -> Iterator[Sentence]:
    """Yield sentences on a table of a public number of records, and on its noise."""
    resize = configuration.resize
    if resize is None:
        return
    source = report_sentence(
        "source.copies" if resize.copies > 1 else "source.table", copies=resize.copies
    )
    yield report_sentence(
        "preparation.resized", records=resize.records, source=source, rate=float(resize.rate)
    )
    if resize.amplify:
        yield report_sentence("preparation.amplified", formula=resize.formula or "tight")
    else:
        replaced = resize.copies * configuration.privacy.stability.records
        yield report_sentence("preparation.calibrated", replaced=replaced)
