"""Makes the sentences on what was done to the rows before they were counted, from the configuration. Public."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from marginweave.configuration.columns import (
    DateColumn,
    MeasuredColumn,
    NumberColumn,
)
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.execution import SourceFile
from marginweave.configuration.linked import LinkedTable
from marginweave.configuration.preparation import GaussianImputation, Imputation, WeightedImputation
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.computed import TotalColumn
from marginweave.configuration.values import listed
from marginweave.domain.zeros import rows_are_changed, unenforced_columns
from marginweave.released.statement import PrivacyStatement
from marginweave.texts.sentences import Sentence, report_sentence

Bounds = Mapping[str, tuple[float, float]]

# Keys of a column that change no row: words for readers, what the records are drawn by, and who has confirmed the column.
_FOR_READERS = {"confirm", "public", "label", "description", "titles", "draw"}


def preparation_sentences(configuration: Configuration, bounds: Bounds) -> list[Sentence]:
    """Return sentences on the unit, derived columns, moments, imputation, rules, bounds, decimals and resize."""
    return [
        *_unit(configuration),
        *filter(None, (derived_sentence(configuration, name) for name in configuration.derived)),
        *_moments(configuration),
        *_imputations(configuration),
        *_rules(configuration),
        *_public_bounds(configuration, bounds),
        *_private_bounds(bounds),
        *_rounding(configuration),
        *_resize(configuration),
    ]


def preparation_differences(
    before: tuple[Configuration, PrivacyStatement],
    after: tuple[Configuration, PrivacyStatement],
    shared: Collection[str],
) -> Iterator[Sentence]:
    """Yield in what the preparation of two tables differs, a part of a sentence each: units, rules, columns, bounds.

    `shared` are the attributes whose counts are compared: the declaration of another column changes none of these.
    """
    first, second = before[0], after[0]
    if _form(first.source) != _form(second.source):
        yield report_sentence("prepared.reading")
    if list(_unit(first)) != list(_unit(second)):
        yield report_sentence("prepared.unit")
    if _rules_of_rows(first) != _rules_of_rows(second):
        yield report_sentence("prepared.rules")
    columns = sorted({a.column for a in second.attributes if a.name in shared})
    facts = [
        {name: _reading(configuration, statement, name) for name in columns}
        for configuration, statement in (before, after)
    ]
    other = [name for name in columns if facts[0][name] != facts[1][name]]
    if other:
        yield report_sentence("prepared.columns", columns=_quoted(other))
    if _bounds_that_cut(*before) != _bounds_that_cut(*after):
        yield report_sentence("prepared.bounds")


def _rules_of_rows(configuration: Configuration) -> Any:
    """Return the rules that may change rows, and the columns because of which some change none.

    A `determined` column is in no counted row, and neither is a sum.
    """
    structure = configuration.structure
    if structure is None:
        return None
    rules = structure.model_dump(mode="json", exclude_none=True, exclude={"determined", "sum"})
    # a row that breaks a rule is changed column by column, so that their order decides what it becomes
    in_order = [name for name in configuration.columns if name in configuration.repaired_columns]
    return (rules, unenforced_columns(configuration), in_order) if rules else None


def _form(source: SourceFile) -> Any:
    """Return how the file of a table is read, wherever it is."""
    return source.model_copy(update={"file": "", "confirm": None})


def _reading(configuration: Configuration, statement: PrivacyStatement, name: str) -> Any:
    """Return what decides what cells of a column are: its declaration, derivation, missing texts, type and released bounds."""
    column = configuration.columns.get(name)
    if not isinstance(column, MeasuredColumn):
        return None
    return (
        _derivation(configuration, name),
        column.model_dump(mode="json", exclude_none=True, exclude=_FOR_READERS),
        configuration.missing_texts(name),
        "tz=" in (statement.types or {}).get(name, ""),
        statement.bounds.get(name),
    )


def _derivation(configuration: Configuration, name: str) -> Any:
    """Return how a derived column follows, with the declarations of the columns that it reads; None for any other column."""
    if name not in configuration.derived:
        return None
    table, derivation = configuration.derived[name]
    linked = (configuration.tables or {})[table]
    columns = {
        read: (
            linked.columns[read].model_dump(mode="json", exclude_none=True, exclude=_FOR_READERS),
            linked.missing_texts(read, configuration.missing),
        )
        for read in derivation.columns
    }
    return table, _form(linked.source), derivation.model_dump(mode="json"), columns


def _bounds_that_cut(configuration: Configuration, statement: PrivacyStatement) -> dict[int, int]:
    """Return how many combinations are counted of a record, for the lengths of which it may hold more."""
    bounds = statement.bounds_of_lengths
    return {length: most for length, most in bounds.items() if configuration.is_cut(length, most)}


def derived_sentence(configuration: Configuration, name: str) -> Sentence | None:
    """Return a sentence on how a column follows from the rows of a linked table; None for any other column."""
    if name not in configuration.derived:
        return None
    table, derivation = configuration.derived[name]
    key = f"derived.{derivation.kind}{'-where' if derivation.where else ''}"
    sentence = report_sentence(
        key,
        column=name,
        table=table,
        conditions=derivation.condition_words,
        of=derivation.column,
        start=derivation.start or "",
        end=derivation.end or "",
        days=derivation.days,
    )
    linked = (configuration.tables or {})[table]
    optional = [
        read for read in derivation.conditions if linked.can_be_missing(read, configuration.missing)
    ]
    if optional:
        sentence = report_sentence("derived.missing", sentence=sentence, columns=listed(optional))
    becomes_missing = getattr(configuration.columns[name], "outside", None) == "null"
    if becomes_missing and name in configuration.undeclared_by_rows:
        sentence = report_sentence("derived.null", sentence=sentence)
    return sentence


def value_sentences(configuration: Configuration, name: str) -> list[Sentence]:
    """Return sentences on what became of the values of a column before they were counted, for whoever reads its counts.

    They are about derived columns, values beyond bounds, and numbers that were rounded. Of a column that is computed in the
    records from such columns it is said that it is.
    """
    rule = configuration.structure.rule_of(name) if configuration.structure else None
    if isinstance(rule, TotalColumn):
        return [report_sentence("preparation.computed", of=listed(rule.sources))]
    derived = derived_sentence(configuration, name)
    sentences = [] if derived is None else [derived]
    words = configuration.clamped_words(name)
    if words:
        sentences.append(
            report_sentence("preparation.clamped", words=f"{words[0].upper()}{words[1:]}")
        )
    rounding = configuration.rounding_words(name)
    if rounding:
        sentences.append(report_sentence("preparation.rounded", to=rounding))
    return sentences


def _rounding(configuration: Configuration) -> Iterator[Sentence]:
    """Yield a sentence on all numbers that are rounded to declared decimals."""
    says: list[str] = []
    for name in configuration.names:
        words = configuration.rounding_words(name)
        if words:
            says.append(f"{name!r} to {words}")
    if says:
        yield report_sentence("preparation.all-rounded", says=", ".join(says))


def _public_bounds(configuration: Configuration, bought: Bounds) -> Iterator[Sentence]:
    """Yield a sentence on all columns whose bounds were not bought, beyond which values count as the bound."""
    says: list[str] = []
    for name in configuration.names:
        words = configuration.clamped_words(name)
        if words and name not in bought:
            says.append(f"of {name!r}, {words}")
    if says:
        yield report_sentence("preparation.public-bounds", says="; ".join(says))


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
    tables = listed(sorted(configuration.tables or {}))
    if tables:
        yield report_sentence("preparation.subject-linked", column=subject.column, tables=tables)
        yield report_sentence("preparation.unlinked", tables=tables)
        yield from _counted_tables(configuration)
    else:
        yield report_sentence("preparation.subject", column=subject.column)
    if subject.max_records is None:
        yield report_sentence("preparation.joined")
    else:
        yield report_sentence("preparation.cut", most=subject.max_records)
    yield report_sentence(
        "preparation.own" if subject.missing_subject == "own" else "preparation.left-out"
    )


def _counted_tables(configuration: Configuration) -> Iterator[Sentence]:
    """Yield how the rows of each counted linked table became numbers."""
    for name in configuration.counted_tables:
        table = (configuration.tables or {})[name]
        yield report_sentence("preparation.linked-counted", table=name, most=table.at_most or 1)
        if name in configuration.recorded_tables:
            yield report_sentence("preparation.linked-records", table=name)
        yield from _linked_numbers(name, table)


def _linked_numbers(name: str, table: LinkedTable) -> Iterator[Sentence]:
    """Yield what numbers and dates of a counted linked table count as beyond their bounds, and what they are rounded to."""
    bounds: list[str] = []
    rounding: list[str] = []
    for column_name, column in table.columns.items():
        title = f"{name}.{column_name}"
        if isinstance(column, BinnedColumn) and column.clamped_ends:
            bounds.append(f"of {title!r}, {column.clamped_words(column.clamped_ends)}")
        if isinstance(column, NumberColumn) and column.rounding_words:
            rounding.append(f"{title!r} to {column.rounding_words}")
    if bounds:
        yield report_sentence("preparation.public-bounds", says="; ".join(bounds))
    if rounding:
        yield report_sentence("preparation.all-rounded", says=", ".join(rounding))


def moment_sentences(
    configuration: Configuration, statement: PrivacyStatement
) -> dict[str, Sentence]:
    """Return, by their names, what to say beside columns of moments that the release has, or may have, in UTC."""
    types = statement.types or {}
    sentences = {name: report_sentence("preparation.perhaps-utc") for name in _texts(configuration)}
    for name, kind in types.items():
        if kind.startswith("timestamp"):
            sentences.pop(name, None)
        column = configuration.columns.get(name)
        if "tz=" in kind and isinstance(column, DateColumn) and column.type == "datetime":
            sentences[name] = report_sentence("preparation.utc")
    return sentences


def _texts(configuration: Configuration) -> list[str]:
    """Return the columns of moments whose texts may have a zone; whether any has is not known."""
    return [
        name
        for name, column in configuration.columns.items()
        if isinstance(column, DateColumn) and column.type == "datetime" and column.format is None
    ]


def _moments(configuration: Configuration) -> Iterator[Sentence]:
    """Yield a sentence where texts of moments may have a zone."""
    columns = _texts(configuration)
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
    uncounted = structure.computed_columns
    if uncounted:
        yield report_sentence("preparation.uncounted", columns=_quoted(uncounted))


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
