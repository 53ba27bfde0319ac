"""Sentences of a verdict on cells that are not as declared, and on rows that are not counted. DP: post-processing."""

from __future__ import annotations

from collections.abc import Mapping

from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.observations.combinations import Aggregates
from marginweave.released.statement import MISSING_BY_RULE
from marginweave.released.verdict import Publication, Verdict

# Shares of a column that is not as declared: from the first on a release is a grade worse, from the second on not published.
_SOME = 0.01
_MUCH = 0.10
_ADVICE = (
    "What was not among the declared values is known to you alone: complete `values` or widen `bounds`, or say by `missing` or "
    "`outside` what such a cell is."
)
_KNOWN_ADVICE = (
    "The known counts of {names} have no cell that is not as declared, and records follow them: look whether the table or "
    "these counts are wrong."
)
_UNCOUNTED = (
    "How many records hold a value of {names} that is not declared is not known: k-tuples leave such values out and do not "
    "count them. Declare outside: other to have them counted."
)
_UNCOUNTED_GAPS = (
    "How many records lack a value of {names} where a rule wants one is not known: each got a value, and k-tuples do not count "
    "them. Marginals do."
)
_WORSE: Mapping[Publication, Publication] = {
    "good": "with care",
    "with care": "not for publication",
    "not for publication": "not for publication",
}


def with_undeclared(
    verdict: Verdict,
    counts: Aggregates,
    titles: Mapping[str, str],
    configuration: Configuration,
) -> Verdict:
    """Return the verdict with a sentence for each column with cells that are not as declared.

    There is one more sentence for all sets, and one for all columns, where such cells are not counted. The verdict is one grade
    worse where at least 1 % of some column is not as declared, and not for publication from 10 %: by the lower end of the
    interval. `titles` has what the sentences call a column.
    """
    undeclared = [cells for cells in counts.domain.undeclared if cells.found]
    record_count = counts.record_count
    record_deviation = counts.record_deviation
    lower_ends = [cells.share_ends(record_count, record_deviation)[0] for cells in undeclared]
    publication = _lower_grade(verdict.publication, max(lower_ends, default=0.0))

    says: list[str] = []
    for cells in undeclared:
        among = MISSING_BY_RULE if cells.name in configuration.missing_by_rule else ""
        words = cells.words(record_count, record_deviation, titles.get(cells.name, cells.name))
        says.append(f"{words}.{among}")
    uncounted = ((configuration.uncounted_sets, _UNCOUNTED), (configuration.uncounted_gaps, _UNCOUNTED_GAPS))
    for names, sentence in uncounted:
        if names:
            titled = [titles.get(name, name) for name in names]
            says.append(sentence.format(names=listed(titled)))

    advice: list[str] = []
    if any(cells.kept or cells.of_set for cells in undeclared):
        advice.append(_ADVICE)
    known_columns = [cells.name for cells in undeclared if not (cells.kept or cells.of_set)]
    if known_columns:
        titled = [titles.get(name, name) for name in known_columns]
        advice.append(_KNOWN_ADVICE.format(names=listed(titled)))
    return verdict.model_copy(
        update={
            "publication": publication,
            "says": (*says, *verdict.says),
            "advice": (*advice, *verdict.advice),
        }
    )


def _lower_grade(publication: Publication, share: float) -> Publication:
    """Return the grade of a release of which a share of some column is not as declared."""
    if share >= _MUCH:
        return "not for publication"
    return _WORSE[publication] if share >= _SOME else publication


def with_uncounted(
    verdict: Verdict,
    counts: Aggregates,
    titles: Mapping[str, str],
    configuration: Configuration,
) -> Verdict:
    """Return the verdict with a sentence on rows that are not counted, where their number was measured.

    It makes no release worse: the number of rows that are counted of a subject is declared. `titles` has what the sentence
    calls a column.
    """
    uncounted = counts.domain.uncounted
    subject = configuration.privacy.subject
    if uncounted is None or subject is None:
        return verdict
    title = titles.get(subject.column, subject.column)
    words = uncounted.words(counts.record_count, counts.record_deviation, title)
    return verdict.model_copy(update={"says": (f"{words}.", *verdict.says)})
