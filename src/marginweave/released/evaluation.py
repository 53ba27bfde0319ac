"""Fields of evaluation.json: how far synthetic records are from the released counts, or from the sensitive table.

S is the reference count of a combination of values, and N the number of records of the reference. Of n synthetic records Y is
the count, multiplied by N / n. SDS is Microsoft's Synthetic Data Showcase. A distance is a total variation distance (TVD): half
the sum of the differences of the shares of all cells, from 0 (best) to 1.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from marginweave.released.contract import Described, ReleasedFile, contract, optional
from marginweave.released.numbers import ExactSummary, NumberSummary
from marginweave.released.verdict import Verdict, VerdictSummary
from marginweave.texts.sentences import Sentence, report_sentence

Matrix = tuple[tuple[float | None, ...], ...]


class LengthMetrics(Described):
    """Agreement at one length k, over all sets of k attributes; null where there is nothing to average.

    S is a reference count, and Y the count of synthetic records, each counted as N / n of a record where there are other
    numbers of both. The names that begin with `sds_` are numbers of SDS (Synthetic Data Showcase) as it prints them of S and Y.
    The others count every combination; `suppressed` is the same in both.
    """

    length: int = Field(description="Attributes in a combination, k.")
    combinations: int = Field(description="Combinations with S > 0.")
    preservation: float | None = Field(
        description="Mean of min(Y / S, 1) over {S > 0}, from 0 to 1, which is best."
    )
    suppressed: float | None = Field(
        description="100 |{S > 0, Y = 0}| / |{S > 0}|, in percent, as in SDS."
    )
    fabricated: float | None = Field(
        description="100 |{Y > 0, S = 0}| / |{Y > 0}|, in percent, at most 100."
    )
    mean_error: float | None = Field(
        description="Mean of |S - Y| over {S > 0 or Y > 0}, in records."
    )
    proportional_error: float | None = Field(
        description="Mean of |S - Y| / S over {S > 0}; suppressed ones count 1."
    )
    weighted_error: float | None = Field(
        description="Sum of |S - Y| over {S > 0}, divided by the sum of S."
    )
    frequent_error: float | None = Field(description="Mean of |S - Y| / S over {S >= 10}.")
    frequent_suppressed: float | None = Field(
        description="100 |{S >= 10, Y = 0}| / |{S >= 10}|, in percent."
    )
    shown_preservation: float | None = Field(
        description="Mean over {Y > 0} of min(Y / S, 1), or 0 where S = 0."
    )
    shown_proportional_error: float | None = Field(
        description="Mean over {Y > 0} of |S - Y| / S, or 1 where S = 0."
    )
    sds_preservation: float | None = Field(
        description="As shown_preservation, over {S > 0 or Y > 0}, as in SDS."
    )
    sds_proportional_error: float | None = Field(
        description="As shown_proportional_error, over {S > 0 or Y > 0}."
    )
    sds_fabricated: float | None = Field(
        description="100 |{Y > 0, S = 0}| / |{S > 0}|, in percent; can exceed 100."
    )
    sds_mean_error: float | None = Field(
        description="Mean of |S - Y| over {S > 0 and Y > 0}, in records."
    )
    tvd: float | None = Field(
        description="Mean distance over attribute sets with some S > 0: the cells with S > 0, and one more for all the rest."
    )
    tvd_missing: float | None = Field(
        description="Mean distance, missing as a value, over sets without set columns; null against released counts."
    )
    l1_missing: float | None = Field(
        description="Twice tvd_missing: mean sum of the differences of shares."
    )


class CountBucket(Described):
    """Combinations of every length, {S > 0 or Y > 0}, whose synthetic count Y lies in one of SDS's bins (…, `at_most`].

    The bins end at 10, 20, 40, …; the first holds the suppressed ones as well. Means are null in an empty bin.
    """

    at_most: int = Field(description="Largest synthetic count of the bin, in records.")
    combinations: int = Field(description="Combinations in the bin.")
    mean_count: float | None = Field(description="Mean synthetic count, in records.")
    mean_length: float | None = Field(description="Mean number of attributes of a combination.")
    preservation: float | None = Field(
        description="Mean of min(Y / S, 1), or 0 where S = 0; 1 is best."
    )
    proportional_error: float | None = Field(description="Mean of |S - Y| / S, or 1 where S = 0.")


class BucketMeans(Described):
    """The two numbers that SDS makes of its bins: plain means over all of them, an empty bin counting 0."""

    sds_combination_loss: float = Field(description="Mean of 1 - preservation.")
    sds_proportional_error: float = Field(description="Mean of the proportional error.")


class MarginalDistance(Described):
    """Distance of one marginal, and the part of it that noise alone implies."""

    attributes: tuple[str, ...] = Field(description="Names of its attributes.")
    tvd: float = Field(description="Distance, from 0 to 1.")
    noise: float | None = Field(
        description="Distance that the noise of its counts implies; null where there is no noise."
    )


class Measure(Described):
    """One measure of association: one symmetric matrix for the reference, one for the synthetic records."""

    names: tuple[str, ...] = Field(description="Attributes of rows and columns, in this order.")
    reference: Matrix = Field(
        description="Of the reference; null where a pair is not known, or within its noise."
    )
    synthetic: Matrix = Field(
        description="Of the synthetic records; null where they have no number."
    )
    mean_difference: float | None = Field(
        description="Mean of |reference - synthetic| over pairs with both numbers."
    )


class Association(Described):
    """Measures over pairs of attributes that have one value a record."""

    cramers_v: Measure = Field(description="Cramér's V, from 0 to 1.")
    mutual_information: Measure = Field(description="Normalized mutual information, from 0 to 1.")
    spearman: Measure = Field(
        description="Spearman's rank correlation, from -1 to 1, of attributes with ordered values."
    )
    from_independence: Measure = Field(
        description="Distance (TVD) of the pair from independent columns with the same shares, below 1."
    )
    within_noise: int | None = optional(
        "Number of pairs left out because noise and chance explain them. If all pairs were of independent columns, any of them "
        "would stay in once in 1,000 releases. The key is left out of an internal evaluation, whose reference has no noise."
    )


class BrokenRule(Described):
    """Number of records that break one declared rule.

    Synthetic records break none by construction; they are counted so that a reader need not rely on it.
    """

    rule: str = Field(
        description="structural zeros, max_values, determined, difference, sum or never missing."
    )
    subject: str = Field(description="The column of the rule; empty for structural zeros.")
    records: int = Field(description="Records that break it.")
    share: float = Field(description="Their share of all records, from 0 to 1.")


class ErrorParts(Described):
    """The distance `tvd` of a length, cut in two by the fitted model: D(S, Y) <= D(S, model) + D(model, Y)."""

    length: int = Field(description="Attributes in a combination.")
    model_error: float | None = Field(
        description="Mean D(S, model): what the fit did not follow, mostly noise."
    )
    sampling_error: float | None = Field(
        description="Mean D(model, Y): rounding to whole records, rules and caps."
    )


class MarginalBound(Described):
    """Distance from the synthetic records to the drawn marginal, and a bound on the distance to the noiseless one."""

    attributes: tuple[str, ...] = Field(description="Names of its attributes.")
    distance: float = Field(description="Sum of |count as drawn - synthetic count|, in records.")
    bound: float | None = Field(
        description="Bound of the same sum without noise, in records; null where not known."
    )
    noise: float | None = optional(
        "What noise alone would make of the same sum, and what was suppressed, in records."
    )
    deviation: float | None = optional("Standard deviation of the noise of one of these counts.")


class DistanceBounds(Described):
    """Confidence bounds of the distance from the counts without noise."""

    level: float = Field(description="Confidence of each bound by itself, from 0 to 1.")
    about: str = Field(description="What is summed, in words.")
    marginals: tuple[MarginalBound, ...] = Field(description="One entry a marginal.")


class RecordAgreement(Described):
    """What is known of synthetic records against any reference."""

    records: int = Field(description="Synthetic records, n.")
    reference_records: int = Field(
        description="Records of the reference, N; of a release their noisy number."
    )
    expansion: float | None = Field(
        description="100 (n / N - 1), in percent, as SDS prints it; null for N = 0."
    )
    lengths: tuple[LengthMetrics, ...] = Field(
        description="Combinations of length 1, 2, …, an entry each."
    )
    by_count: tuple[CountBucket, ...] = Field(
        description="Combinations of all lengths by their synthetic count."
    )
    by_count_means: BucketMeans = Field(description="Means over these bins.")
    marginals: tuple[MarginalDistance, ...] = Field(
        description="The ten marginals of the largest distance."
    )
    association: Association = Field(
        description="Pairs of attributes; against released counts without missing values."
    )
    rules: tuple[BrokenRule, ...] = Field(
        description="Declared rules, with the number of synthetic records that break each, 0 by construction."
    )

    @property
    def weight_sentence(self) -> Sentence | None:
        """What a synthetic record counts as in the numbers of combinations, N / n; None where that is 1, to three digits."""
        if not self.records or not self.reference_records:
            return None
        weight = f"{self.reference_records / self.records:.3g}"
        if weight == "1":
            return None
        return report_sentence(
            "quality.weight",
            records=self.records,
            reference=self.reference_records,
            weight=weight,
        )


class Evaluation(ReleasedFile, RecordAgreement):
    """evaluation.json: synthetic records against the released counts they were made from; post-processing."""

    schema_: Literal["urn:marginweave:evaluation:1"] = contract("urn:marginweave:evaluation:1")
    verdict: Verdict = Field(description="What the release is good for.")
    counted: str | None = optional(
        "What all numbers are of: at most some rows of a person or values of a cell, or a resized table. The key is "
        "left out where it is the whole table."
    )
    bounds: DistanceBounds = Field(
        description="How far the records can be from the counts without noise."
    )
    model: tuple[ErrorParts, ...] | None = optional(
        "Distance by length, of the model and of its records."
    )
    numbers: tuple[NumberSummary, ...] | None = optional(
        "Means and quantiles of the number columns, if there are any."
    )

    @property
    def summary(self) -> VerdictSummary:
        """Verdict in words: what the release is good for."""
        return self.verdict.summary

    @property
    def mean_distances(self) -> dict[str, float]:
        """Mean distance of synthetic records from released counts by the attributes of a combination, rounded."""
        return {str(row.length): round(row.tvd, 4) for row in self.lengths if row.tvd is not None}

    @property
    def beyond_noise(self) -> int:
        """Number of `marginals` that are farther from their counts than noise alone implies, where that is known."""
        return sum(row.noise is not None and row.tvd > row.noise for row in self.marginals)


class MeanDistance(Described):
    """Mean distance over marginals of one length, missing as a value."""

    length: int = Field(description="Attributes of a marginal.")
    sets: int = Field(description="Marginals that were compared.")
    of: int = Field(description="Marginals that there are.")
    tvd: float = Field(description="Mean distance, from 0 to 1.")
    l1: float = Field(description="Twice tvd.")


class InternalEvaluation(ReleasedFile, RecordAgreement):
    """internal/evaluation.json: exact functions of sensitive rows, never for release."""

    schema_: Literal["urn:marginweave:internal-evaluation:1"] = contract(
        "urn:marginweave:internal-evaluation:1"
    )
    distances: tuple[MeanDistance, ...] = Field(
        description="Mean distance of all marginals of one to three attributes, and of 100 sampled ones of four and of five."
    )
    k_marginal_score: float | None = Field(
        description="The NIST k-marginal score, k = 3, from 0 to 1000, which is best."
    )
    score: int | None = Field(
        description="The quality score of the verdict, from 0 to 100, by true distances; null where no pair has one."
    )
    sensitive_rules: tuple[BrokenRule, ...] = Field(
        description="Sensitive rows that break rules, before preparation."
    )
    numbers: tuple[ExactSummary, ...] | None = optional(
        "Means and quantiles of the number columns, if there are any."
    )
