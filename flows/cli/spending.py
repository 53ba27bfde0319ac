"""Texts and tables of `ledger show`: the remaining budget of an account, and the spent one by release, stage and mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from rich.table import Table

from marginweave.accounting.accounts import AccountTotal, Policy, Spent
from marginweave.accounting.records import CHARGED, DrawRecord, ReleaseRecord, State
from marginweave.base.budget import Cost
from marginweave.ledger.admission import rounded_down, rounded_up
from marginweave.ledger.boxes import epsilon_left, is_closed
from marginweave.ledger.rules import period_epsilon
from marginweave.measurements.kinds import kind_named

from .console import table_of

_AMOUNTS = ("mu²", "rho", "delta", "plain")


def tidy(value: Decimal | float) -> str:
    """Return an amount with four digits; 0 for nothing."""
    return f"{float(value):.4g}"


def scientific(delta: Decimal | float) -> str:
    """Return a delta in scientific form with at most three digits; 0 for nothing."""
    if not float(delta):
        return "0"
    mantissa, _, exponent = f"{float(delta):.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"


def line(total: AccountTotal) -> str:
    """Return one line on an account: the spent part of its cap."""
    account = total.account
    return (
        f"{account.dataset}: epsilon {rounded_up(total.epsilon)} of {float(account.epsilon):g} spent at delta "
        f"{scientific(account.delta)}, {total.spent.releases} release(s)"
    )


def left(total: AccountTotal) -> str:
    """Return one sentence on the remaining budget at the cap's delta: the epsilon that one more release may have."""
    at = f"left at delta {scientific(total.account.delta)}"
    if is_closed(total.account, total.spent):
        return f"{at}: nothing; the account admits no release before its cap is set again"
    if not total.account.box.mu2:
        return f"{at}: what the allowance has, for plain charges alone"
    return f"{at}: one more release of Gaussian draws may have epsilon {rounded_down(epsilon_left(total))}"


def box(total: AccountTotal) -> str:
    """Return one sentence on the parts of the account's box, and the spent budget of each. No part pays for another."""
    account_box = total.account.box
    spent = total.spent.cost
    plain = spent.plain
    allowance = account_box.allowance
    noise = tidy(100 * spent.mu2 / account_box.mu2) if account_box.mu2 else "0"
    parts = [f"spent by parts (box, in docs/glossary.md): {noise} % of the budget for noise"]
    if account_box.delta_add:
        parts.append(
            f"delta for thresholds {scientific(spent.delta)} of {scientific(account_box.delta_add)}"
        )
    if allowance:
        amounts = f"delta {scientific(plain.delta)} of {scientific(allowance.delta)}"
        parts.append(
            f"allowance of epsilon {tidy(plain.epsilon)} of {tidy(allowance.epsilon)} and {amounts}"
        )
    elif plain:
        parts.append(
            f"and, beside these parts, epsilon {tidy(plain.epsilon)} and delta {scientific(plain.delta)}"
        )
    return ", ".join(parts)


def period(policy: Policy, in_period: Spent, moment: datetime) -> str:
    """Return one sentence on a policy, and on its spent budget in the period of `moment`."""
    spent = period_epsilon(policy, in_period)
    return (
        f"policy, not a guarantee: epsilon {rounded_up(spent)} of {tidy(policy.epsilon)} at delta "
        f"{scientific(policy.delta)} spent since {policy.start(moment)} (UTC), per {policy.per}"
    )


def by_release(releases: Sequence[ReleaseRecord]) -> Table:
    """Return a line for each release: its plan, and its charge."""
    table = table_of("run", "epsilon", "at delta", *_AMOUNTS, "draws", "lost")
    for record in releases:
        charged = [draw for draw in record.draws if draw.state in CHARGED]
        planned = (tidy(record.epsilon), scientific(record.delta))
        table.add_row(
            record.run, *planned, *_amounts(record.charged), str(len(charged)), _lost(charged)
        )
    return table


def by_stage(releases: Sequence[ReleaseRecord]) -> Table:
    """Return a line for each stage and mechanism over these releases: the charge, and its share of mu²."""
    groups: dict[tuple[str, str], list[DrawRecord]] = {}
    for record in releases:
        for draw in record.draws:
            if draw.state in CHARGED:
                groups.setdefault((_stage(draw), draw.mechanism), []).append(draw)
    total_mu2 = sum((record.charged for record in releases), Cost()).mu2
    table = table_of("stage", "mechanism", *_AMOUNTS, "share", "draws", "lost")
    for (stage, mechanism), draws in sorted(groups.items()):
        cost = sum((draw.cost for draw in draws), Cost())
        share = f"{float(100 * cost.mu2 / total_mu2):.1f}%" if total_mu2 else ""
        table.add_row(stage, mechanism, *_amounts(cost), share, str(len(draws)), _lost(draws))
    return table


def by_draw(record: ReleaseRecord) -> Table:
    """Return a line for each draw of a release, with its state."""
    table = table_of("draw", "state", "mechanism", *_AMOUNTS)
    for draw in record.draws:
        table.add_row(draw.name, draw.state, draw.mechanism, *_amounts(draw.cost))
    return table


def _lost(draws: Sequence[DrawRecord]) -> str:
    lost = sum(draw.state == State.CHARGED_LOST for draw in draws)
    return str(lost or "")


def _stage(draw: DrawRecord) -> str:
    kind = kind_named(draw.name)
    if kind is not None and kind.heading is not None:
        return kind.heading
    return f"length {draw.length}" if draw.length else draw.name


def _amounts(cost: Cost) -> tuple[str, str, str, str]:
    plain = f"{tidy(cost.plain.epsilon)}, {scientific(cost.plain.delta)}" if cost.plain else ""
    return tidy(cost.mu2), tidy(cost.rho), scientific(cost.delta), plain
