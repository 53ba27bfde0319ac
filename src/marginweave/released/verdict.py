"""Fields of the verdict on a release: what it is good for, in numbers and in words."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from marginweave.released.contract import Described, optional
from marginweave.texts.sentences import Sentence, verdict_sentence

Grade = Literal["good", "with care", "not", "unknown"]
Unmeasured = Literal["known", "not chosen", "too many cells", "nothing released", "not asked for"]
GOOD = 0.05
CARE = 0.15
"""Largest expected distances of a set that is good, and of one that is to be used with care."""

Publication = Literal["good", "with care", "not for publication"]


def grade(error: float | None) -> Grade:
    """Return the grade of a distance; None is that of a set of which nothing is known."""
    if error is None:
        return "unknown"
    if error <= GOOD:
        return "good"
    return "with care" if error <= CARE else "not"


class SetVerdict(Described):
    """What the counts of a column, or of a pair, are good for."""

    attributes: tuple[str, ...] = Field(description="Names of its attributes.")
    error: float | None = Field(
        description="Expected distance (TVD) from the rows as prepared, at most 1: an estimate from noisy counts, noise "
        "and the model, as nothing compares records with rows; null where nothing is known of the set."
    )
    grade: Grade = Field(description="What that allows: good, with care, not, unknown.")
    unmeasured: Unmeasured | None = Field(
        default=None,
        description="Why there are no counts of the set; null where there are. One that was “not chosen” was passed over by "
        "scores or rounds, and has the distance of such sets. One that is “known” is in a declared table that records follow. "
        "One of “too many cells” has more than max_cells. Where “nothing released” is said, no count reached its threshold. "
        "Otherwise it was “not asked for”.",
    )


class UnlistedPairs(Described):
    """Pairs without counts that are too many to be listed: those with one grade, for one reason."""

    pairs: int = Field(description="How many these are.")
    grade: Grade = Field(description="The grade of each: good, with care, not, unknown.")
    unmeasured: Unmeasured = Field(
        description="Why there are no counts, as for a set that is listed."
    )
    least_error: float | None = Field(
        description="The smallest expected distance (TVD) of these; null where nothing is known of them."
    )
    largest_error: float | None = Field(
        description="The largest expected distance (TVD) of these; null where nothing is known of them."
    )


class LengthVerdict(Described):
    """How many sets of so many columns have which grade."""

    length: int = Field(description="Attributes of a set, k.")
    good: int = Field(description="Sets whose expected distance is at most .05.")
    with_care: int = Field(description="Sets whose expected distance is at most .15.")
    bad: int = Field(
        description="Sets whose expected distance is larger, by their own counts or by those of fewer of their columns."
    )
    unknown: int = Field(description="All other sets of so many columns: nothing is known of them.")
    least_group: int | None = Field(
        description="A group of fewer records has a count whose noise is above a quarter of it; no less than that of fewer "
        "columns. Above the number of records no group of the table is seen. null where not known."
    )


class VerdictSummary(Described):
    """The verdict in words."""

    publication: Publication = Field(
        description="Whether the release is fit to be published, by its accuracy alone."
    )
    score: int | None = Field(
        default=None,
        description="Quality from 0 to 100, by what the records keep of pairs of columns as they were counted: 0 where "
        "they have lost all dependence, 100 without any distance; null where there is no pair.",
    )
    says: tuple[str, ...] = Field(
        description="What it is good for, with care, and not for: one sentence each."
    )
    advice: tuple[str, ...] = Field(
        description="What the steward can do for a better release: one sentence each."
    )

    @property
    def line(self) -> Sentence:
        """The one line that run, report, explorer and publish have: the grade of the release, and its score if it has one."""
        publication = verdict_sentence(f"publication.{self.publication.replace(' ', '-')}")
        if self.score is None:
            return verdict_sentence("lines.verdict", publication=publication)
        return verdict_sentence("lines.scored", publication=publication, score=self.score)


class Verdict(VerdictSummary):
    """The verdict, and what it follows from."""

    lengths: tuple[LengthVerdict, ...] = Field(description="An entry a number of columns.")
    sets: tuple[SetVerdict, ...] = Field(
        description="Every column, and every pair; with more than 10,000 pairs those that have counts."
    )
    unlisted: tuple[UnlistedPairs, ...] | None = optional("The pairs that are not in `sets`.")

    @property
    def summary(self) -> VerdictSummary:
        """Verdict without the numbers that it follows from."""
        return VerdictSummary(
            publication=self.publication, score=self.score, says=self.says, advice=self.advice
        )
