"""Fields of account.json, about the account that a release is charged to, and sums for the operator."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from marginweave.base.budget import Neighbors
from marginweave.released.contract import Described, ReleasedFile, contract, optional

ACCOUNT = "account.json"


class Amounts(Described):
    """What a draw costs, in every unit that the ledger adds up."""

    mu2: str = Field(description="mu squared, under Gaussian differential privacy.")
    rho: str = Field(description="rho, under zero-concentrated differential privacy.")
    delta: str = Field(description="Additive delta of a threshold, a probability.")
    plain_epsilon: str = Field(description="Epsilon of what is known as (epsilon, delta) alone.")
    plain_delta: str = Field(description="Delta of what is known as (epsilon, delta) alone.")


class EpsilonDelta(Described):
    """An (epsilon, delta) of differential privacy."""

    epsilon: float = Field(
        description="Epsilon, a bound of the privacy loss in natural logarithms."
    )
    delta: float = Field(description="Delta, a probability.")


class AccountBox(Described):
    """What the account may ever spend, coordinate by coordinate."""

    mu2: str = Field(description="Sum of mu squared, at most.")
    delta_add: str = Field(description="Sum of the additive deltas of thresholds, at most.")
    allowance_epsilon: str = Field(
        description="Sum of epsilons charged as (epsilon, delta), at most."
    )
    allowance_delta: str = Field(description="Sum of their deltas, at most.")


class RestoredStatement(Described):
    """That the ledger of the account was restored from an old copy, and what was decided then."""

    on: str = Field(description="Date, YYYY-MM-DD.")
    homes_looked_at: int = Field(description="Homes whose runs were compared with the ledger.")
    no_other_home: str | None = Field(
        description="The steward's word that there is no other home; null otherwise."
    )
    unaccounted: EpsilonDelta | None = Field(
        description="Charged for homes that could not be looked at; null if none."
    )


class ReconciledStatement(RestoredStatement):
    """What was added to the account then, for its operator: how many rows and draws can follow from unpublished noise."""

    rows_adopted: int = Field(description="Rows of the account that were added.")
    draws_charged_as_lost: int = Field(
        description="Draws that were charged although their results are gone."
    )


class AccountSums(Described):
    """What the account was charged so far, for its operator; what unpublished releases gave back follows from their noise."""

    dataset: str = Field(description="Name of the account.")
    epsilon: float = Field(
        description="Epsilon of everything spent so far, at delta; no bound if budgets were adaptive."
    )
    delta: float = Field(description="Delta of the account's cap, a probability.")
    cap_epsilon: float = Field(description="Epsilon of the account's cap.")
    composition: str = Field(description="How the spent epsilon was composed: gdp, zcdp or basic.")
    box: AccountBox = Field(description="What the account may ever spend.")
    spent: Amounts = Field(description="What was charged so far.")
    releases: int = Field(description="Releases that were charged.")
    weak_delta: str | None = optional("The steward's reason for a delta above .001.")
    reconciled: tuple[ReconciledStatement, ...] | None = optional(
        "Every restoring of the ledger from an old copy."
    )


class CapStatement(EpsilonDelta):
    """A cap of the account, and since when."""

    since: str = Field(description="Moment, ISO 8601.")


class LargestCap(EpsilonDelta):
    """What holds where the cap was changed after the first draw."""

    meaning: str = Field(description="What that means, in words.")


class AccountCost(EpsilonDelta):
    """What was charged, as one (epsilon, delta)."""

    composition: str = Field(description="How epsilon was composed: gdp, zcdp or basic.")
    charged: Amounts = Field(description="The sums that it follows from.")


class AccountFile(ReleasedFile):
    """account.json: the account of everybody in the data when the release was published.

    What releases that are not published gave back follows from their noise, and is not in it.
    """

    schema_: Literal["urn:marginweave:account:1"] = contract("urn:marginweave:account:1")
    as_of: str = Field(description="Moment of the publication, ISO 8601, in UTC.")
    dataset: str = Field(description="Name of the account.")
    unit: str = Field(
        description="Whose data is protected: row, or the column that names a subject."
    )
    neighbors: Neighbors = Field(description="How neighboring tables differ in one unit.")
    cap: EpsilonDelta = Field(
        description="The bound of everything that is released under the account, as long as the cap is not raised."
    )
    releases: int = Field(
        description="Releases of which something was drawn or is reserved, published or not."
    )
    total: AccountCost = Field(
        description="What published releases were charged, and all that others had reserved, at the cap's delta."
    )
    meaning: str = Field(description="What cap and total mean, in words.")
    caps_since_the_first_draw: tuple[CapStatement, ...] | None = optional(
        "Caps since then, if the cap was changed."
    )
    largest_cap: LargestCap | None = optional("The largest of them.")
    weak_delta: str | None = optional("The steward's reason for a delta above .001.")
    restored: tuple[RestoredStatement, ...] | None = optional(
        "Every restoring of the ledger from an old copy."
    )
