"""A page on accounts, releases and open decisions, from the ledger and the homes; nothing private is read.

It is for the operator and the data protection officer: whether a run stopped can depend on the data, as privacy.json says.
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
from marginweave.runs.retention import Progress, RunSummary, list_runs
from marginweave.texts.sentences import Sentence, overview_sentence

_STALE = timedelta(days=31)
_NEARLY = 0.9
_USEFUL = 0.01  # part of epsilon 1, or of a smaller cap, below which a release would be noise
_SETTLED = frozenset(
    {
        Progress.SUPERSEDED,
        Progress.FINISHED,
        Progress.PURGED,
        Progress.REJECTED,
        Progress.AWAITING,
        Progress.SKIPPED,
    }
)


@dataclass(frozen=True, kw_only=True)
class _AccountLine:
    """One account: its spent budget over time, and the budget that remains."""

    total: AccountTotal
    spent: Sentence
    still_free: Sentence
    is_used_up: bool
    share: float
    period: Sentence | None
    figure: Markup | None


@dataclass(frozen=True, kw_only=True)
class _ReleaseLine:
    """One release as ledger and homes know it."""

    record: ReleaseRecord
    state: str
    awaits_approval: bool
    verdict: str
    private: str
    lost: int


def overview_page(homes: Sequence[Path], location: LedgerLocation, moment: datetime) -> bytes:
    """Return the page as HTML. DP: public totals, states, and verdicts of published releases.

    Raises:
        BudgetError: the ledger cannot be read.
    """
    ledger = Ledger.open(location)
    runs = {(home, run.name): run for home in homes for run in list_runs(home)}
    accounts: list[_AccountLine] = []
    lines: list[_ReleaseLine] = []
    for number, total in enumerate(ledger.accounts.totals()):
        records = ledger.releases.of(total.account.dataset)
        accounts.append(_account(total, records, ledger, moment, f"account-{number}"))
        lines += [_release(record, runs) for record in records]
    lines.sort(key=lambda line: line.record.created, reverse=True)
    runs_in_ledger = {line.record.run for line in lines}
    other_runs = [run for run in runs.values() if run.name not in runs_in_ledger]
    checks = [last_verification(home) for home in homes]
    attention = [*_warnings(homes, location), *_open_decisions(accounts, lines)]
    for run in runs.values():
        attention += _leftovers(run)
    for check in checks:
        attention += _verification(check, moment)
    return render(
        "overview.html.j2",
        moment=moment,
        accounts=accounts,
        releases=lines,
        others=other_runs,
        attention=list(dict.fromkeys(map(str, attention))),
        verified=max((check for check in checks if check), default=None),
    ).encode()


def _account(
    total: AccountTotal,
    records: Sequence[ReleaseRecord],
    ledger: Ledger,
    moment: datetime,
    name: str,
) -> _AccountLine:
    policy = total.account.policy
    period = None
    if policy is not None:
        spent = period_epsilon(policy, ledger.accounts.period_spent(total.account.dataset, moment))
        period = overview_sentence(
            "spent.of-period",
            epsilon=rounded_up(spent),
            cap=float(policy.epsilon),
            start=str(policy.start(moment)),
            period=policy.per,
        )
    spent_so_far = Spent()
    points: list[tuple[datetime, float]] = []
    for record in records:
        spent_so_far = spent_so_far.with_release(record)
        share = spent_share(replace(total, spent=spent_so_far))
        points.append((record.created, share))
    is_used_up = _is_used_up(total)
    return _AccountLine(
        total=total,
        spent=overview_sentence(
            "spent.of-cap", epsilon=rounded_up(total.epsilon), cap=float(total.account.epsilon)
        ),
        still_free=_still_free(total, is_used_up=is_used_up),
        is_used_up=is_used_up,
        share=min(1.0, spent_share(total)),
        period=period,
        figure=spending_figure(points, moment, total.account.dataset, name) if points else None,
    )


def _is_used_up(total: AccountTotal) -> bool:
    """Return whether no further release fits; an epsilon so small that a release would be noise is none."""
    account = total.account
    least_useful = _USEFUL * min(1.0, float(account.epsilon))
    is_spent = epsilon_left(total) < least_useful if account.delta else spent_share(total) >= 1
    return is_spent or is_closed(account, total.spent)


def _still_free(total: AccountTotal, *, is_used_up: bool) -> Sentence:
    """Return what one more release may cost."""
    if is_used_up:
        return overview_sentence("left.nothing")
    if total.account.delta:
        return overview_sentence("left.release", epsilon=rounded_down(epsilon_left(total)))
    return overview_sentence("left.epsilon-alone")


def _release(record: ReleaseRecord, runs: dict[tuple[Path, str], RunSummary]) -> _ReleaseLine:
    """Return the line of a release; a proposal has no verdict."""
    home = next((home for home, name in runs if name == record.run), None)
    run = runs[home, record.run] if home is not None else None
    verdict = ""
    state = run.state if run else "not in these homes"
    awaits_approval = False
    if record.published is not None:
        state = "released" if record.superseded_by is None else "released, superseded"
        summary = released_verdict(RunFolder.at(home, record.run).release) if home else None
        verdict = summary.publication if summary else "not known here"
    elif record.decision is not None:
        state = "approved" if record.decision.approved else "rejected"
    elif record.proposed:
        state = "awaits approval"
        awaits_approval = True
    if run is None:
        private = ""
    elif run.holds_private:
        private = "yes"
    else:
        private = "exact evaluation" if run.holds_exact else "no"
    lost = sum(draw.state == State.CHARGED_LOST for draw in record.draws)
    return _ReleaseLine(
        record=record,
        state=state,
        awaits_approval=awaits_approval,
        verdict=verdict,
        private=private,
        lost=lost,
    )


def _warnings(homes: Sequence[Path], location: LedgerLocation) -> Iterator[Sentence]:
    """Yield a warning for each home whose runs have seen rows that the ledger lacks."""
    for home in homes:
        try:
            Ledger.open(location, witness=Witness(home))
        except BudgetError as refusal:
            yield overview_sentence("ledger.refused", refusal=str(refusal))


def _open_decisions(
    accounts: Sequence[_AccountLine], releases: Sequence[_ReleaseLine]
) -> Iterator[Sentence]:
    """Yield a sentence for each decision that somebody should make."""
    for line in releases:
        if line.awaits_approval:
            yield overview_sentence("release.awaits", run=line.record.run)
        elif line.verdict == "not for publication" and line.record.superseded_by is None:
            yield overview_sentence("release.refused", run=line.record.run)
    for account in accounts:
        name = account.total.account.dataset
        if account.total.account.frozen:
            yield overview_sentence("account.frozen", name=name)
        elif account.is_used_up:
            yield overview_sentence("account.used-up", name=name)
        elif account.share >= _NEARLY:
            yield overview_sentence("account.nearly", name=name, percent=100 * account.share)


def _leftovers(run: RunSummary) -> Iterator[Sentence]:
    """Yield a sentence for each thing that a run left behind."""
    is_running = run.progress == Progress.IN_PROGRESS
    if run.progress == Progress.NOT_BEGUN and run.reason is not None:
        # nothing is there that `resume` could take
        yield overview_sentence("run.not-begun", run=run.name, file=str(run.reason))
    elif not is_running and run.progress not in _SETTLED:
        yield overview_sentence("run.unfinished", run=run.name, state=run.state)
    elif run.holds_private and not is_running:
        yield overview_sentence("run.private", run=run.name)
    if run.holds_exact:
        yield overview_sentence("run.exact", run=run.name)


def _verification(check: tuple[datetime, bool] | None, moment: datetime) -> Iterator[Sentence]:
    """Yield a sentence where the last verification, with its result, was long ago or found a fault."""
    if check is None:
        yield overview_sentence("ledger.never-verified")
        return
    time, is_sound = check
    if not is_sound:
        yield overview_sentence("ledger.fault", day=time)
    elif moment - time > _STALE:
        yield overview_sentence("ledger.stale", day=time)
