"""What a verdict says of cells that are not as declared, and of rows that are not counted. DP: post-processing."""

from __future__ import annotations

from collections.abc import Mapping

from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.observations.combinations import Aggregates
from marginweave.released.statement import MISSING_BY_RULE
from marginweave.released.verdict import Publication, Verdict

_SOME, _MUCH = 0.01, 0.10
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
    verdict: Verdict, counts: Aggregates, called: Mapping[str, str], configuration: Configuration
) -> Verdict:
    """The verdict with a sentence for each column with such cells, and one each for sets and columns where nobody counts them.

    It is one grade worse where at least 1 % of some column is not as declared, and not for publication from 10 %: by the lower
    end of the interval. `called` has what the sentences call a column.
    """
    fit, says = verdict.publication, list[str]()
    found = [cells for cells in counts.domain.undeclared if cells.found]
    records = counts.record_count, counts.record_deviation
    least = max((cells.share_ends(*records)[0] for cells in found), default=0.0)
    if least >= _SOME:
        fit = "not for publication" if least >= _MUCH else _WORSE[fit]
    for cells in found:
        among = MISSING_BY_RULE if cells.name in configuration.missing_by_rule else ""
        says.append(f"{cells.words(*records, called.get(cells.name, cells.name))}.{among}")
    uncounted = ((configuration.uncounted_sets, _UNCOUNTED), (configuration.uncounted_gaps, _UNCOUNTED_GAPS))
    for names, sentence in uncounted:
        if names:
            says.append(sentence.format(names=listed([called.get(name, name) for name in names])))
    advice = list[str]()
    if any(cells.kept or cells.of_set for cells in found):
        advice.append(_ADVICE)
    if known := [called.get(cells.name, cells.name) for cells in found if not (cells.kept or cells.of_set)]:
        advice.append(_KNOWN_ADVICE.format(names=listed(known)))
    return verdict.model_copy(
        update={"publication": fit, "says": (*says, *verdict.says), "advice": (*advice, *verdict.advice)}
    )


def with_uncounted(
    verdict: Verdict, counts: Aggregates, called: Mapping[str, str], configuration: Configuration
) -> Verdict:
    """The verdict with a sentence on rows that are not counted, where that was measured.

    It makes no release worse: how many rows are counted of a subject is declared. `called` has what the sentence calls a
    column.
    """
    uncounted, subject = counts.domain.uncounted, configuration.privacy.subject
    if uncounted is None or subject is None:
        return verdict
    name = called.get(subject.column, subject.column)
    words = uncounted.words(counts.record_count, counts.record_deviation, name)
    return verdict.model_copy(update={"says": (f"{words}.", *verdict.says)})
