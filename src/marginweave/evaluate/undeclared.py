"""Sentences of a verdict on cells that are not as declared, and on rows that are not counted. DP: post-processing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.labels import UndeclaredCells, share_texts
from marginweave.observations.combinations import Aggregates
from marginweave.observations.linked_uncounted import LinkedUncounted
from marginweave.observations.linked_undeclared import LinkedUndeclared
from marginweave.released.verdict import Publication, Verdict
from marginweave.texts.sentences import Sentence, verdict_sentence

# Shares of a column that is not as declared: from the first on a release is a grade worse, from the second on not published.
_SOME = 0.01
_MUCH = 0.10
WORSE: Mapping[Publication, Publication] = {
    "good": "with care",
    "with care": "not for publication",
    "not for publication": "not for publication",
}


def with_undeclared(
    verdict: Verdict,
    counts: Aggregates,
    titles: Mapping[str, str],
    configuration: Configuration,
    linked: Sequence[LinkedUndeclared] = (),
) -> Verdict:
    """Return the verdict with a sentence for each column with cells that are not as declared, `linked` ones included.

    There is one more sentence for all sets, and one for all columns, where such cells are not counted. The verdict is one grade
    worse where at least 1 % of some column is not as declared, and not for publication from 10 %: by the lower end of the
    interval. `titles` has what the sentences call a column.
    """
    undeclared = [cells for cells in counts.domain.undeclared if cells.found]
    record_count = counts.record_count
    record_deviation = counts.record_deviation
    lower_ends = [cells.share_ends(record_count, record_deviation)[0] for cells in undeclared]
    lower_ends += [decided.lower_end for decided in linked if decided.cells.found]
    publication = _lower_grade(verdict.publication, max(lower_ends, default=0.0))

    says = [undeclared_sentence(cells, counts, configuration, titles) for cells in undeclared]
    advice: list[Sentence] = []
    for key, columns in (
        ("uncounted", configuration.uncounted_sets),
        ("uncounted-gaps", configuration.uncounted_gaps),
    ):
        if columns:
            names = listed_titles(columns, titles)
            says.append(verdict_sentence(f"undeclared.{key}", names=names))
            advice.append(verdict_sentence(f"undeclared-advice.{key}", names=names))
    tables = sorted({configuration.linked_table_of(cells.name) for cells in undeclared} - {""})
    if tables:
        advice.append(verdict_sentence("undeclared-advice.rows", tables=listed(tables)))
    found_linked = _of_each_column(linked)
    says += [linked_undeclared_sentence(decided, configuration) for decided in found_linked]
    if found_linked or any(cells.kept or cells.of_set for cells in undeclared):
        advice.append(verdict_sentence("undeclared-advice.declare"))
    known_columns = [cells.name for cells in undeclared if not (cells.kept or cells.of_set)]
    if known_columns:
        names = listed_titles(known_columns, titles)
        advice.append(verdict_sentence("undeclared-advice.known", names=names))
    verdict = verdict.model_copy(update={"publication": publication})
    return with_sentences_before(verdict, says=says, advice=advice)


def undeclared_sentence(
    cells: UndeclaredCells,
    counts: Aggregates,
    configuration: Configuration,
    titles: Mapping[str, str],
) -> Sentence:
    """Return the sentence on the cells of a column that are not as declared; `titles` has what it calls the column."""
    title = titles.get(cells.name, cells.name)
    share = cells.sentence(counts.record_count, counts.record_deviation, title)
    table = configuration.linked_table_of(cells.name)
    if table and cells.found:
        return verdict_sentence("undeclared.by-rows", share=share, table=table)
    is_by_rule = cells.name in configuration.missing_by_rule
    return verdict_sentence(f"undeclared.{'by-rule' if is_by_rule else 'sentence'}", share=share)


def linked_undeclared_sentence(decided: LinkedUndeclared, configuration: Configuration) -> Sentence:
    """Return the sentence on the cells of a column of a linked table that are not as declared."""
    share = decided.cells.sentence(decided.total, decided.total_deviation, decided.cells.name)
    most = (configuration.tables or {})[decided.table].at_most or 1
    return verdict_sentence(f"undeclared.linked-{decided.count_of}", share=share, most=most)


def _of_each_column(linked: Iterable[LinkedUndeclared]) -> list[LinkedUndeclared]:
    """Return what was found of each column, by rows where these have it."""
    of_columns = {decided.cells.name: decided for decided in linked if decided.cells.found}
    return [of_columns[name] for name in sorted(of_columns)]


def listed_titles(names: Iterable[str], titles: Mapping[str, str]) -> str:
    """Return the titles of columns as a list for readers; the name of a column that has no title."""
    return listed([titles.get(name, name) for name in names])


def with_sentences_before(
    verdict: Verdict,
    *,
    says: Iterable[Sentence] = (),
    advice: Iterable[Sentence] = (),
) -> Verdict:
    """Return the verdict with the texts of sentences before its own."""
    return verdict.model_copy(
        update={
            "says": (*map(str, says), *verdict.says),
            "advice": (*map(str, advice), *verdict.advice),
        }
    )


def _lower_grade(publication: Publication, share: float) -> Publication:
    """Return the grade of a release of which a share of some column is not as declared."""
    if share >= _MUCH:
        return "not for publication"
    return WORSE[publication] if share >= _SOME else publication


def uncounted_title(title: str, configuration: Configuration) -> str:
    """Return what a sentence on rows that are not counted calls the unit: beside linked tables it says of whose rows."""
    return f"{title} in the source" if configuration.tables else title


def with_uncounted(
    verdict: Verdict,
    counts: Aggregates,
    titles: Mapping[str, str],
    configuration: Configuration,
    linked: Sequence[LinkedUncounted] = (),
) -> Verdict:
    """Return the verdict with a sentence on rows that are not counted, those of `linked` tables included.

    A release is no better than "with care" where at least 10 % of the rows of a table are in no number, by the lower end: the
    most rows of a subject are declared, but not how many rows that leaves out. `titles` has what the sentence calls a column.
    """
    says, advice = _linked_uncounted(configuration, linked)
    shares = [told.shares[1] for told in linked]
    uncounted = counts.domain.uncounted
    subject = configuration.privacy.subject
    if uncounted is not None and subject is not None:
        title = uncounted_title(titles.get(subject.column, subject.column), configuration)
        facts = counts.record_count, counts.record_deviation
        says.insert(0, uncounted.sentence(*facts, title))
        least = uncounted.least_share(*facts)[1] if uncounted.found else 0.0
        shares.append(least)
        if least >= _MUCH:
            advice.insert(0, verdict_sentence("uncounted.advice"))
    if max(shares, default=0.0) >= _MUCH and verdict.publication == "good":
        verdict = verdict.model_copy(update={"publication": "with care"})
    return with_sentences_before(verdict, says=says, advice=advice)


def linked_uncounted_sentence(told: LinkedUncounted) -> Sentence:
    """Return the sentence on the rows of a linked table that are in no count of rows."""
    rows = told.rows
    low, high = rows.subjects_ends
    if not rows.found:
        return verdict_sentence("uncounted.no-linked", high=high, cap=rows.cap, table=told.table)
    share = share_texts(*told.shares)
    return verdict_sentence(
        "uncounted.linked", **share, low=low, high=high, cap=rows.cap, table=told.table
    )


def _linked_uncounted(
    configuration: Configuration, linked: Iterable[LinkedUncounted]
) -> tuple[list[Sentence], list[Sentence]]:
    """Return what the verdict says of rows of linked tables that are not counted, and what it advises."""
    says, advice = list[Sentence](), list[Sentence]()
    of_tables = {told.table: told for told in linked}
    for name in configuration.counted_tables:
        told = of_tables.get(name)
        if told is None:
            most = (configuration.tables or {})[name].at_most or 1
            says.append(verdict_sentence("uncounted.linked-unknown", table=name, most=most))
            advice.append(
                verdict_sentence("uncounted.linked-unknown-advice", table=name, edge=most + 1)
            )
            continue
        says.append(linked_uncounted_sentence(told))
        if told.shares[1] >= _MUCH:
            advice.append(verdict_sentence("uncounted.linked-advice", table=name))
    return says, advice
