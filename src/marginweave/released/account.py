"""What a statement says of the account that a release is charged to."""

from __future__ import annotations

from pydantic import Field

from marginweave.released.contract import Described, optional


class Amounts(Described):
    """What a draw costs, in every unit that the ledger adds up."""

    mu2: str = Field(description="mu squared, under Gaussian differential privacy.")
    rho: str = Field(description="rho, under zero-concentrated differential privacy.")
    delta: str = Field(description="Additive delta of a threshold, a probability.")
    plain_epsilon: str = Field(description="Epsilon of what is known as (epsilon, delta) alone.")
    plain_delta: str = Field(description="Delta of what is known as (epsilon, delta) alone.")


class EpsilonDelta(Described):
    """An (epsilon, delta) of differential privacy."""

    epsilon: float = Field(description="Epsilon, a bound of the privacy loss in natural logarithms.")
    delta: float = Field(description="Delta, a probability.")


class AccountBox(Described):
    """What the account may ever spend, coordinate by coordinate; empty for an account of 0.1.0 that was not upgraded."""

    mu2: str | None = optional("Sum of mu squared, at most.")
    delta_add: str | None = optional("Sum of the additive deltas of thresholds, at most.")
    allowance_epsilon: str | None = optional("Sum of epsilons charged as (epsilon, delta), at most.")
    allowance_delta: str | None = optional("Sum of their deltas, at most.")


class ReconciledStatement(Described):
    """What was added to the account after its ledger had been restored from an old copy."""

    on: str = Field(description="Date, YYYY-MM-DD.")
    rows_adopted: int = Field(description="Rows of the account that were added.")
    draws_charged_as_lost: int = Field(description="Draws that were charged although their results are gone.")
    homes_looked_at: int = Field(description="Homes whose runs were compared with the ledger.")
    no_other_home: str | None = Field(description="The steward's word that there is no other home; null otherwise.")
    unaccounted: EpsilonDelta | None = Field(description="Charged for homes that could not be looked at; null if none.")


class AccountSums(Described):
    """What follows from the account and its sums: an auditor finds it in the rows of the whole ledger."""

    dataset: str = Field(description="Name of the account.")
    epsilon: float = Field(description="Epsilon of everything spent so far, at delta.")
    delta: float = Field(description="Delta of the account's cap, a probability.")
    cap_epsilon: float = Field(description="Epsilon of the account's cap.")
    composition: str = Field(description="How the spent epsilon was composed: gdp, zcdp or basic.")
    box: AccountBox | None = optional("What the account may ever spend; left out by 0.1.0.")
    spent: Amounts | None = optional("What was charged so far; left out by 0.1.0.")
    releases: int = Field(description="Releases that were charged.")
    releases_before_box: int | None = optional(
        "How many of them were made before the account had a box; left out by 0.1.0."
    )
    weak_delta: str | None = optional("The steward's reason for a delta above .001.")
    reconciled: tuple[ReconciledStatement, ...] | None = optional("Every restoring of the ledger from an old copy.")


class CapStatement(EpsilonDelta):
    """A cap of the account, and since when."""

    since: str = Field(description="Moment, ISO 8601.")


class LargestCap(EpsilonDelta):
    """What holds where the cap was changed after the first draw."""

    meaning: str = Field(description="What that means, in words.")


class LostDraw(Described):
    """Which draw was charged and lost."""

    release: str = Field(description="Its release.")
    draw: str = Field(description="Its name.")


class LostDrawCost(Amounts, LostDraw):
    """A draw that was charged and lost in a crash: it is in no file, and stays charged."""


class PolicyStatement(Described):
    """What the account's policy says of the period of the release; a rule of the house, not part of the guarantee."""

    per: str = Field(description="Length of a period.")
    epsilon: float = Field(description="Epsilon that may be reserved in a period.")
    delta: float = Field(description="Delta at which it is counted, a probability.")
    since: str = Field(description="Start of the period, ISO 8601.")
    spent_epsilon: float = Field(description="Epsilon reserved in this period so far.")
    meaning: str = Field(description="What that means, in words.")


class AccountStatement(AccountSums):
    """The account of everybody in the data when the release was made."""

    caps_since_the_first_draw: tuple[CapStatement, ...] | None = optional("Caps since then, if the cap was changed.")
    largest_cap: LargestCap | None = optional("The largest of them.")
    lost_draws: tuple[LostDrawCost, ...] = Field(description="Draws of all releases that were charged and lost.")
    policy: PolicyStatement | None = optional("The account's policy, if it has one.")
    purse: dict[str, float] | None = optional("Written by 0.1.0 alone: an allowance, and what was spent of it.")
