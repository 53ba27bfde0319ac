"""Fields of privacy.json: the guarantee, its mechanisms, and its assumptions.

Amounts are exact decimals in texts, as the ledger adds them up; every value computed from them is a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import Field, JsonValue, model_validator

from marginweave.base.budget import NoiseName
from marginweave.base.errors import refuse_older
from marginweave.base.formats import STATEMENT_FORMAT
from marginweave.configuration.earlier import KnownRelease
from marginweave.released.account import Amounts, EpsilonDelta
from marginweave.released.contract import Described, ReleasedFile, contract, optional
from marginweave.released.manifest import Correction
from marginweave.released.program import Program
from marginweave.released.verdict import VerdictSummary

if TYPE_CHECKING:
    from marginweave.domain.labels import Domain  # numpy


class Guarantee(Described):
    """The promise by which the release was admitted."""

    unit: str = Field(
        description="Whose data is protected: row, or all rows with one value of a column."
    )
    neighbors: Literal["add-remove", "replace-one"] = Field(
        description="How neighboring tables differ in one unit."
    )
    epsilon: float = Field(
        description="Epsilon, a bound of the privacy loss in natural logarithms."
    )
    delta: float = Field(description="Delta, a probability.")
    weak_delta: str | None = optional("The steward's reason for a delta above .001.")
    epsilon_of_the_draws: float = Field(description="Epsilon of all draws together, at delta.")
    on_the_sampled_table: EpsilonDelta | None = Field(
        description="What the draws are towards the sampled table of an amplified resize; null without one."
    )
    mu: float | None = Field(
        description="mu of all draws; null where part of the cost is (epsilon, delta) alone."
    )
    rho: float | None = Field(description="rho of all draws; null where mu is.")
    delta_threshold: float = Field(
        description="The part of delta that pays for thresholds, a probability."
    )


class PlannedMechanism(Described):
    """A draw as it was planned, and whether it was made."""

    draw: str = Field(description="Name of the draw, as in the ledger.")
    mechanism: str = Field(description=f"{', '.join(get_args(NoiseName))} or exponential.")
    length: int = Field(
        description="Attributes of the combinations it is for; 0 for single numbers and many marginals."
    )
    noise_multiplier: float | None = optional(
        "Standard deviation of the noise divided by the L2 sensitivity."
    )
    epsilon: float | None = optional("Epsilon of a pure mechanism.")
    state: Literal["drawn", "returned"] = Field(
        description="returned: it was never made, and its cost was given back."
    )


class DrawNoise(Described):
    """The noise of a draw, as far as it has one standard deviation; those of tables are in `marginals` and `linked`."""

    sensitivity: int | None = optional(
        "How far one unit moves what is chosen by or measured, in records."
    )
    threshold: int | None = optional("Smallest noisy count of a released value, in records.")
    sigma: float | None = optional(
        "Standard deviation of the noise, in records; of a weighted sum in the unit of its weights."
    )
    step: float | None = optional(
        "Grid of scores, in records; of a weighted sum that of its weights, in their unit."
    )


class Mechanism(DrawNoise, Amounts, PlannedMechanism):
    """A draw: what was planned, what it costs, and the noise it had."""


class LevelNoiseStatement(Described):
    """The noise of all combinations of one length (k-tuples)."""

    length: int = Field(description="Attributes of a combination.")
    contribution_bound: int = Field(
        description="Combinations of this length that one record adds at most."
    )
    deviation: float = Field(description="Standard deviation of the noise of a count, in records.")
    threshold: int = Field(description="Smallest noisy count that was published, in records.")
    private_threshold: int = Field(
        description="The same for values of private domains, in records; 0 where not used."
    )
    candidates: int | None = Field(
        description="Combinations that noise was drawn for; null where that is not public."
    )
    raised_from: int | None = Field(
        description="The threshold before it was raised to publish fewer; null if it was not."
    )


class MarginalStatement(Described):
    """One measured marginal."""

    draw: str = Field(
        description="The draw that measured it; rounds, or two draws: their measurements, merged."
    )
    attributes: tuple[str, ...] = Field(description="Names of its attributes.")
    cells: int = Field(description="Number of its cells, missing values included.")
    deviation: float = Field(description="Standard deviation of the noise of a cell, in records.")
    noise: NoiseName = Field(description="Kind of this noise.")
    joined: dict[str, int] | None = optional(
        "By attribute in coarser bins, how many neighboring bins are counted as one."
    )


class LinkedStatement(Described):
    """One measured histogram of the rows of a linked table."""

    draw: str = Field(description="The draw that measured it.")
    table: str = Field(description="Name of the linked table.")
    count_of: Literal["units", "rows"] = Field(
        description="units: the rows of each unit weigh 1 together; rows: each row that was kept counts 1."
    )
    columns: tuple[str, ...] = Field(
        description="Names of its columns, those of the linked table behind its name and a point."
    )
    cells: int = Field(description="Number of its cells, missing values included.")
    deviation: float = Field(
        description="Standard deviation of the noise of a cell, in units or rows."
    )
    steps: int = Field(description="The grid of weights: they are whole numbers of 1/steps.")
    most: int = Field(
        description="What one unit adds to all cells together, at most, in units or rows."
    )


class UncountedStatement(Described):
    """How many rows no number counts, as only some rows are counted of each value of a column."""

    column: str = Field(description="The column that tells whose a row is.")
    cap: int = Field(description="At most so many rows of each of its values are counted.")
    most: int = Field(
        description="Of the rows of a value beyond these, at most so many are in `rows_at_least`."
    )
    subjects: int = Field(
        description="Values with more than `cap` rows, as counted, with noise; never below 0."
    )
    subjects_deviation: float = Field(description="Standard deviation of the noise of this number.")
    subjects_ends: tuple[int, int] = Field(
        description="An interval for it, with a confidence of 95 %."
    )
    rows_at_least: int = Field(
        description="Rows beyond `cap`, of each value `most` at most, as counted, with noise; never below 0. Far more may "
        "be in no number."
    )
    rows_deviation: float = Field(description="Standard deviation of the noise of this number.")
    rows_ends: tuple[int, int] = Field(
        description="An interval for the number of such rows, with a confidence of 95 %; not for that of all rows in no number."
    )
    words: str = Field(
        description="The same, with the share of all rows that is at least not counted, for a reader."
    )


class LinkedUncountedStatement(UncountedStatement):
    """How many rows of a linked table are in no count of rows, by the released numbers of rows of its units."""

    table: str = Field(description="Name of the linked table.")
    share: float = Field(
        description="Share of all rows of the table that is at least in no count of rows, from 0 to 1; 0 if noise explains all."
    )
    share_low: float = Field(
        description="Its lower end, with a confidence of 95 %, from 0 to 1; the share has no upper end."
    )


class LinkedUndeclaredStatement(Described):
    """How many cells of a column of a linked table were not as declared, in a count of its units or rows."""

    table: str = Field(description="Name of the linked table.")
    column: str = Field(description="Name of its column.")
    count_of: Literal["units", "rows"] = Field(
        description="What is counted, as in the histograms of the table."
    )
    count: int = Field(description="As counted, with noise, in units or rows; never below 0.")
    deviation: float = Field(
        description="Standard deviation of the noise of this count, in units or rows."
    )
    low: int = Field(description="At least so many, in units or rows, with a confidence of 95 %.")
    high: int = Field(description="At most so many.")
    found: bool = Field(
        description="Whether there are more than noise explains, with a confidence of 99.9 % for all linked tables together."
    )
    words: str = Field(description="The same as a share of the cells, for a reader.")


class CountsStatement(Described):
    """What was computed from draws."""

    bounds: dict[str, tuple[float, float]] = Field(
        description="By column, the bounds that were bought, in its unit."
    )
    domain: dict[str, tuple[str, ...]] = Field(
        description="By attribute, the labels of its values, in order."
    )
    noise: tuple[LevelNoiseStatement, ...] = Field(
        description="The noise of each length; empty for marginals."
    )


class MarginalsStatement(Described):
    """What was measured, where a release is made of marginals."""

    marginals: tuple[MarginalStatement, ...] | None = optional(
        "Every marginal, as rows of measurements.parquet."
    )
    measured_together: dict[str, tuple[tuple[str | None, ...], ...]] | None = optional(
        "By attribute, values that were measured as one; null is a missing value."
    )
    not_measured: tuple[tuple[str, ...], ...] | None = optional(
        "Marginals left out because they had too many cells."
    )
    linked: tuple[LinkedStatement, ...] | None = optional(
        "Every histogram of the rows of linked tables, as rows of linked.parquet."
    )
    linked_undeclared: tuple[LinkedUndeclaredStatement, ...] | None = optional(
        "Of each column of counted linked tables that can have such cells, how many were not as declared."
    )
    linked_uncounted: tuple[LinkedUncountedStatement, ...] | None = optional(
        "Of each counted linked table whose units' numbers of rows were measured, how many rows are in no count of rows."
    )


class BoundingBias(Described):
    """How far a bounded count of a length may fall short of the count of the rows as prepared."""

    length: int = Field(description="Attributes of a combination.")
    records: int | None = Field(
        description="At most by so many records; null where that is not known."
    )
    confidence: float | None = Field(
        description="Probability that this holds, 1 where public facts say so; null likewise."
    )
    words: str = Field(description="The same, for a reader.")


class Confidence(Described):
    """What the intervals of released counts mean."""

    level: float = Field(description="Confidence of each interval by itself, from 0 to 1.")
    intervals: tuple[str, ...] = Field(description="What the intervals cover, in words.")
    bounding: tuple[BoundingBias, ...] = Field(
        description="What bounding contributions may have taken from a count."
    )


class Programs(Described):
    """The programs that worked on the release."""

    reserved: Program = Field(description="The program that reserved the budget.")
    drew: tuple[Program, ...] = Field(description="The programs that began draws.")


class ReleaseIdentity(Described):
    """Which release it is."""

    dataset: str = Field(description="Name of the account.")
    run: str = Field(description="Name of the run.")
    release: str = Field(description="Identifier of the release in the ledger.")
    begun: str = Field(description="Day on which its run was begun, in UTC, YYYY-MM-DD.")
    supersedes: Correction | None = optional("The release that this one corrects.")
    programs: Programs = Field(description="The programs that reserved and drew it.")
    selected_after_internal_evaluation: bool = Field(
        description="Whether somebody had compared an earlier release with the sensitive table before this one was made."
    )
    configured_after_check: bool = Field(
        default=False,
        description="Whether somebody is known to have looked at the table by other settings than those of this release, "
        "before it: a change may then have followed what was seen. Looks are check, and a run that stopped for its rows or "
        "looked for ids that repeat. False: none is known in the home of this run.",
    )
    drafted_from_table: bool = Field(
        default=False,
        description="Whether init, or Configuration.draft, is known to have drafted a configuration from the table before this "
        "run was begun. Its steward has answered its questions and may have corrected it, which is no such change.",
    )


class StatementFile(ReleasedFile):
    """A file that states a guarantee."""

    format: Literal[3] = Field(description="Version of this contract.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_older(cls, content: Any) -> Any:
        """Refuse the statement of an older version, by an InputError."""
        if isinstance(content, dict):
            number = content.get("format", STATEMENT_FORMAT)
            refuse_older(f"the release of run {content.get('run')}", number, STATEMENT_FORMAT)
        return content


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """Facts of a release from the ledger: its identity, draws that were not made, and whether it was compared with rows."""

    identity: ReleaseIdentity
    returned: tuple[str, ...] = ()
    evaluated_until_now: bool = False


class Invariant(Described):
    """An exact table of these rows that was published elsewhere."""

    attributes: tuple[str, ...] = Field(description="Names of its columns.")
    records: int = Field(description="What its counts add up to, in records.")
    published: str = Field(description="Where it is published, by the steward's word.")


class EarlierStatement(Described):
    """An earlier release of the same rows whose noisy counts are used again, at no further cost."""

    release: str = Field(description="Identifier of that release in the ledger.")
    run: str = Field(description="Name of its run.")
    files: dict[str, str] = Field(description="SHA-256 of its files that were used, by name.")
    same_rows: str = Field(
        description="How it is known that the rows are the same, by the steward's word."
    )

    @classmethod
    def of(cls, earlier: KnownRelease) -> Self:
        """Return the statement about an earlier release that a configuration names."""
        release = earlier.release
        return cls(
            release=release.id, run=release.run, files=release.files, same_rows=earlier.same_rows
        )


class Promise(Described):
    """What follows from configuration, plan and ledger; nothing that was computed from a draw."""

    guarantee: Guarantee = Field(description="The guarantee of this release.")
    observer: float = Field(
        description="Largest probability that a best guess whether one unit is in the data is right, from 0.5 to 1."
    )
    preparation: tuple[str, ...] = Field(
        description="What was done to the rows before they were counted, in words."
    )
    mechanisms: tuple[Mechanism, ...] = Field(description="Every draw, in the order of the plan.")
    composition: str = Field(description="How the draws compose, in words.")
    assumptions: tuple[str, ...] = Field(description="What the guarantee rests on, in words.")
    not_covered: tuple[str, ...] = Field(description="What the guarantee does not cover, in words.")
    invariants: tuple[Invariant, ...] | None = optional(
        "Exact counts of these rows, published elsewhere, that the synthetic records keep and the guarantee does not cover."
    )
    earlier: tuple[EarlierStatement, ...] | None = optional(
        "Releases of the same rows, charged to the account before, whose counts this one uses beside its own."
    )
    configuration: str = Field(description="The resolved configuration, canonical JSON in a text.")


class UndeclaredStatement(Described):
    """How many records have a cell of one attribute that was not as declared."""

    attribute: str = Field(description="Name of the attribute, or of a column of sets.")
    count: int = Field(description="As counted, with noise, in records; never below 0.")
    deviation: float = Field(
        description="Standard deviation of the noise of this count, in records."
    )
    low: int = Field(description="At least so many, in records, with a confidence of 95 %.")
    high: int = Field(description="At most so many.")
    found: bool = Field(
        description="Whether there are more than noise explains, with a confidence of 99.9 % for all together."
    )
    words: str = Field(description="The same as a share of the records, for a reader.")
    kept: bool = Field(
        description="Whether synthetic records have empty cells for them. If not, they have values alone."
    )
    of_set: bool | None = optional(
        "True where the attribute is a column of sets: counted are records that hold a value that is not declared."
    )


class PrivacyStatement(
    MarginalsStatement, CountsStatement, Promise, ReleaseIdentity, StatementFile
):
    """privacy.json of a published release."""

    schema_: Literal["urn:marginweave:privacy:3"] = contract("urn:marginweave:privacy:3")
    confidence: Confidence = Field(description="What the intervals mean.")
    verdict: VerdictSummary = Field(
        description="What the release is good for, in words; evaluation.json has the numbers."
    )
    undeclared: tuple[UndeclaredStatement, ...] | None = optional(
        "Of each attribute with cells that nothing declares, empty or outside, how many were not as declared."
    )
    uncounted: UncountedStatement | None = optional(
        "Where some rows of each value of a column are counted, and no more: how many are not."
    )
    types: dict[str, str] | None = optional(
        "By column, its type in the source's schema; in brackets that of pandas."
    )
    synthesis: dict[str, JsonValue] | None = optional(
        "Settings of later synthetic records, as in a configuration."
    )

    @property
    def bounds_of_lengths(self) -> dict[int, int]:
        """Largest number of combinations that a record adds, for each length; empty for marginals."""
        return {noise.length: noise.contribution_bound for noise in self.noise}

    @property
    def released_domain(self) -> Domain:
        """Domain of its counts."""
        from marginweave.domain.labels import Domain, UncountedRows, UndeclaredCells

        undeclared = tuple(
            UndeclaredCells(
                name=cells.attribute,
                count=cells.count,
                deviation=cells.deviation,
                low=cells.low,
                high=cells.high,
                found=cells.found,
                kept=cells.kept,
                of_set=bool(cells.of_set),
            )
            for cells in self.undeclared or ()
        )
        uncounted = None
        if self.uncounted is not None:
            uncounted = UncountedRows(**self.uncounted.model_dump(exclude={"column", "words"}))
        return Domain(
            names=tuple(self.domain),
            labels=tuple(self.domain.values()),
            undeclared=undeclared,
            uncounted=uncounted,
        )


class Rejection(Described):
    """Who rejected a release, and why."""

    by: str = Field(description="Who decided.")
    reason: str = Field(description="Why, in their words.")


class RejectedStatement(Promise, ReleaseIdentity, StatementFile):
    """privacy.json in the handover of a rejected release: what it would have promised; nothing of it is published."""

    schema_: Literal["urn:marginweave:privacy-of-rejected:3"] = contract(
        "urn:marginweave:privacy-of-rejected:3"
    )
    rejected: Rejection = Field(description="The decision.")
