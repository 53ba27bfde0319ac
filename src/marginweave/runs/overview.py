"""One page on accounts, releases and what waits for somebody, from the ledger and the homes; nothing private is read.

It is for the operator and the data protection officer: that a run stopped can depend on the data, as privacy.json says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from markupsafe import Markup

from marginweave.accounting.accounts import AccountTotal, Spent
from marginweave.accounting.records import ReleaseRecord, State
from marginweave.base.errors import BudgetError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.ledger import Ledger, LedgerLocation, Witness
from marginweave.ledger.admission import rounded_down, rounded_up
from marginweave.ledger.boxes import epsilon_left, is_closed, spent_share
from marginweave.ledger.rules import period_epsilon
from marginweave.publish.figures import spending_figure
from marginweave.publish.templates import render
from marginweave.runs.metrics import last_verification
from marginweave.runs.published import released_verdict
from marginweave.runs.retention import RunSummary, list_runs

_STALE = timedelta(days=31)
_NEARLY = 0.9
_USEFUL = 0.01  # part of epsilon 1, or of a smaller cap, below which a release would be noise
_NOTHING = "nothing: it is used up"
_SETTLED = ("superseded", "finished", "purged", "rejected", "awaiting approval")


@dataclass(frozen=True, kw_only=True)
class _AccountLine:
    """One account: what was spent of it, when, and what is left."""

    total: AccountTotal
    spent: str
    left: str
    share: float
    period: str | None
    figure: Markup | None


@dataclass(frozen=True, kw_only=True)
class _ReleaseLine:
    """One release as ledger and homes know it."""

    record: ReleaseRecord
    state: str
    verdict: str
    private: str
    lost: int


def overview_page(homes: Sequence[Path], location: LedgerLocation, moment: datetime) -> bytes:
    """The page as HTML. DP: public totals, states, and verdicts of published releases.

    Raises:
        BudgetError: the ledger cannot be read.
    """
    ledger = Ledger.open(location)
    runs = {(home, run.name): run for home in homes for run in list_runs(home)}
    accounts, lines = [], []
    for number, total in enumerate(ledger.accounts.totals()):
        records = ledger.releases.of(total.account.dataset)
        accounts.append(_account(total, records, ledger, moment, f"account-{number}"))
        lines += [_release(record, runs) for record in records]
    lines.sort(key=lambda line: line.record.created, reverse=True)
    known = {line.record.run for line in lines}
    others = [run for run in runs.values() if run.name not in known]
    checks = [last_verification(home) for home in homes]
    attention = [
        *_warnings(homes, location),
        *_waiting(accounts, lines),
        *(said for run in runs.values() for said in _left_over(run)),
        *(said for check in checks for said in _verification(check, moment)),
    ]
    return render(
        "overview.html.j2",
        moment=moment,
        accounts=accounts,
        releases=lines,
        others=others,
        attention=list(dict.fromkeys(attention)),
        verified=max((check for check in checks if check), default=None),
    ).encode()


def _account(
    total: AccountTotal, records: Sequence[ReleaseRecord], ledger: Ledger, moment: datetime, name: str
) -> _AccountLine:
    policy, period = total.account.policy, None
    if policy is not None:
        spent = period_epsilon(policy, ledger.accounts.period_spent(total.account.dataset, moment))
        period = f"{rounded_up(spent)} of {float(policy.epsilon):g} since {policy.start(moment)}, per {policy.per}"
    sums, points = Spent(), list[tuple[datetime, float]]()
    for record in records:
        sums = sums.with_release(record)
        points.append((record.created, spent_share(replace(total, spent=sums))))
    return _AccountLine(
        total=total,
        spent=f"{rounded_up(total.epsilon)} of {float(total.account.epsilon):g}",
        left=_left(total),
        share=min(1.0, spent_share(total)),
        period=period,
        figure=spending_figure(points, moment, total.account.dataset, name) if points else None,
    )


def _left(total: AccountTotal) -> str:
    """What one more release may cost; so little that it is all noise is nothing."""
    account, left = total.account, epsilon_left(total)
    no_use = left < _USEFUL * min(1.0, float(account.epsilon)) if account.delta else spent_share(total) >= 1
    if no_use or is_closed(account, total.spent):
        return _NOTHING
    return (
        f"one more release of epsilon {rounded_down(left)}" if account.delta else "allowance, for Laplace noise alone"
    )


def _release(record: ReleaseRecord, runs: dict[tuple[Path, str], RunSummary]) -> _ReleaseLine:
    """The line of a release; one that is not published has no verdict."""
    home, run = next(((home, run) for (home, name), run in runs.items() if name == record.run), (None, None))
    verdict, state = "", run.state if run else "not in these homes"
    if record.published is not None:
        state = "published" if record.superseded_by is None else "published, superseded"
        judged = released_verdict(RunFolder.at(home, record.run).release) if home else None
        verdict = judged.publication if judged else "not known here"
    elif record.decision is not None:
        state = "approved" if record.decision.approved else "rejected"
    elif record.proposed:
        state = "awaits approval"
    private = "" if run is None else "yes" if run.holds_private else "exact evaluation" if run.holds_exact else "no"
    lost = sum(draw.state == State.CHARGED_LOST for draw in record.draws)
    return _ReleaseLine(record=record, state=state, verdict=verdict, private=private, lost=lost)


def _warnings(homes: Sequence[Path], location: LedgerLocation) -> Iterator[str]:
    """Homes whose runs have seen more of the ledger than it knows."""
    for home in homes:
        try:
            Ledger.open(location, witness=Witness(home))
        except BudgetError as refusal:
            yield f"Ledger: {refusal}"


def _waiting(accounts: Sequence[_AccountLine], releases: Sequence[_ReleaseLine]) -> Iterator[str]:
    """What somebody should decide."""
    for line in releases:
        run = line.record.run
        if line.state == "awaits approval":
            yield f"{run} awaits approval: read marginweave report {run}, then approve or reject it"
        elif line.verdict == "not for publication":
            yield f"{run} is published, and its verdict is: not for publication"
    for account in accounts:
        name = account.total.account.dataset
        if account.total.account.frozen:
            yield f"Account {name} is frozen since its ledger was restored: marginweave ledger reconcile"
        elif account.left == _NOTHING:
            yield (
                f"Account {name} is used up. Records, answers and pages of what is released cost nothing more (marginweave "
                "synthesize, query, report), and marginweave ledger expire gives back what stalled runs have reserved. For a "
                "further release raise the cap, which weakens the promise to everybody in the table: marginweave ledger cap "
                f"{name} --epsilon E --delta D --reason TEXT"
            )
        elif account.share >= _NEARLY:
            yield f"Account {name} has used {100 * account.share:.0f} % of its budget"


def _left_over(run: RunSummary) -> Iterator[str]:
    """What a run left behind."""
    if run.state != "in progress" and not run.state.startswith(_SETTLED):
        yield f"Run {run.name} is {run.state}: marginweave resume {run.name}, or purge it with --unfinished"
    elif run.holds_private and run.state != "in progress":
        yield f"Run {run.name} still holds private files: marginweave purge {run.name}"
    if run.holds_exact:
        yield f"Run {run.name} holds an exact comparison in internal/: delete it when it is read"


def _verification(check: tuple[datetime, bool] | None, moment: datetime) -> Iterator[str]:
    if check is None:
        yield "The ledger was never verified from this home: marginweave ledger verify"
    elif not check[1]:
        yield f"The last verification, on {check[0]:%Y-%m-%d}, found a fault: marginweave ledger verify says which"
    elif moment - check[0] > _STALE:
        yield f"The ledger was last verified on {check[0]:%Y-%m-%d}: marginweave ledger verify"
