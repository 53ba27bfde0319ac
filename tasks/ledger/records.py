"""Accounts and releases as the events of the ledger leave them, one event after the other; pure functions of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from functools import reduce
from typing import Any

from marginweave.schemas.budget import NOTHING, Cost, Plain, stated
from marginweave.schemas.draws import BudgetPlan, Discovery
from marginweave.schemas.ledger.accounts import PERIODS, Account, Box, Policy, Reconciled, Spent
from marginweave.schemas.ledger.events import SPARE_PREFIX, Event, EventKind, State
from marginweave.schemas.ledger.releases import Decision, DrawRecord, ReleaseRecord
from marginweave.schemas.program import Program
from marginweave.tasks.ledger.tables import cost_of

_DRAW_STATES = frozenset(kind for kind in EventKind if kind.value in set(State))


def account_body(account: Account) -> dict[str, Any]:
    """The facts of an account as the body of its OPENED event."""
    optional = {
        "box": account.box and box_body(account.box),
        "for": account.kind_of_plan and account.kind_of_plan.texts,
        "weak_delta": account.weak_delta,
        "policy": policy_body(account.policy),
    }
    return {
        **cap_body(account.epsilon, account.delta),
        "unit": account.unit,
        "neighbors": account.neighbors,
        **{name: value for name, value in optional.items() if value},
    }


def boxed_body(box: Box, spent: Spent) -> dict[str, Any]:
    """The body of the row that gives an account of 0.1.0 its box: after which releases, and what they had spent."""
    return {"box": box_body(box), "releases": spent.ever, "spent": spent.cost.texts}


def box_body(box: Box) -> dict[str, str]:
    """A box as exact texts, as the body of a row has it."""
    named = {
        "mu2": box.mu2,
        "delta_add": box.delta_add,
        "allowance_epsilon": box.allowance.epsilon,
        "allowance_delta": box.allowance.delta,
    }
    return {name: format(value, "f") for name, value in named.items()}


def cap_body(epsilon: float | Decimal, delta: float | Decimal) -> dict[str, Any]:
    """A cap as (part of) the body of an event."""
    return {"epsilon": str(stated(epsilon)), "delta": str(stated(delta))}


def policy_body(policy: Policy | None) -> dict[str, str] | None:
    """A policy as the body of a row has it."""
    return None if policy is None else {"per": policy.per, "epsilon": str(policy.epsilon), "delta": str(policy.delta)}


def release_body(
    plan: BudgetPlan,
    *,
    run: str,
    plan_digest: str,
    source_mark: str,
    unit: str,
    program: Program | None = None,
    needs_approval: bool = False,
    supersedes: str | None = None,
) -> dict[str, Any]:
    """The public facts of a release, its whole plan included, as the body of its first event."""
    optional = {
        "approval": "required" if needs_approval else None,
        "supersedes": supersedes,
        "discovery": plan.discovery and asdict(plan.discovery),
        "program": program and program.model_dump(),
    }
    return {
        **{name: value for name, value in optional.items() if value is not None},
        **cap_body(plan.epsilon, plan.delta),
        "run": run,
        "plan_digest": plan_digest,
        "source": source_mark,
        "unit": unit,
        "neighbors": plan.neighbors,
        "accountant": plan.accountant,
        "delta_threshold": plan.delta_threshold,
        "spent_epsilon": plan.spent_epsilon,
        "draws": [draw.facts for draw in plan.draws],
    }


def accounts_of(events: Iterable[Event], known: Mapping[str, Account] | None = None) -> dict[str, Account]:
    """All accounts by dataset, in order of opening, with their present caps: those `known` before, and of `events`."""
    accounts = dict(known or {})
    for event in events:
        if event.account is not None and event.kind == EventKind.OPENED:
            accounts[event.account] = _opened(event.account, event.body)
        elif event.account is not None and event.kind in _CHANGES:
            accounts[event.account] = _CHANGES[event.kind](accounts[event.account], event)
    return accounts


def _opened(dataset: str, body: Mapping[str, Any]) -> Account:
    return Account(
        dataset=dataset,
        epsilon=Decimal(body["epsilon"]),
        delta=Decimal(body["delta"]),
        unit=body["unit"],
        neighbors=body["neighbors"],
        box=_box(body),
        kind_of_plan=cost_of(body["for"]) if "for" in body else None,
        old_allowance=_plain(body["purse"]) if body.get("purse") else NOTHING,  # what 0.1.0 set aside
        weak_delta=body.get("weak_delta"),
        policy=_policy(body),
    )


def _capped(account: Account, event: Event) -> Account:
    body = event.body
    return replace(
        account,
        epsilon=Decimal(body["epsilon"]),
        delta=Decimal(body["delta"]),
        box=_box(body),
        weak_delta=body.get("weak_delta", account.weak_delta),
        policy=_policy(body) if "policy" in body else account.policy,
    )


def _boxed(account: Account, event: Event) -> Account:
    spent, releases = cost_of(event.body["spent"]), int(event.body["releases"])
    return replace(account, box=_box(event.body), history=spent, releases_before=releases)


def _reconciled(account: Account, event: Event) -> Account:
    body = event.body
    added = Reconciled(
        created=event.created,
        adopted=int(body["adopted"]),
        lost=int(body["lost"]),
        homes=int(body["homes"]),
        no_other_home=body.get("no_other_home"),
        unaccounted=_plain(body["unaccounted"]) if body.get("unaccounted") else None,
    )
    return replace(account, reconciled=(*account.reconciled, added))


def _aliased(account: Account, event: Event) -> Account:
    return replace(account, aliases=account.aliases | {event.body["other"]})


_CHANGES = {
    EventKind.CAP_CHANGED: _capped,
    EventKind.ACCOUNT_BOXED: _boxed,
    EventKind.RECONCILED: _reconciled,
    EventKind.ALIASED: _aliased,
}


def _plain(texts: Mapping[str, Any]) -> Plain:
    return Plain(epsilon=Decimal(texts["epsilon"]), delta=Decimal(texts["delta"]))


def _box(body: Mapping[str, Any]) -> Box | None:
    found = body.get("box")
    if found is None:
        return None
    allowance = Plain(epsilon=Decimal(found["allowance_epsilon"]), delta=Decimal(found["allowance_delta"]))
    return Box(mu2=Decimal(found["mu2"]), delta_add=Decimal(found["delta_add"]), allowance=allowance)


def _policy(body: Mapping[str, Any]) -> Policy | None:
    found = body.get("policy")
    if found is None:
        return None
    if found["per"] not in PERIODS:
        raise ValueError(f"per ({found['per']}) must be one of {', '.join(PERIODS)}")
    return Policy(per=found["per"], epsilon=Decimal(found["epsilon"]), delta=Decimal(found["delta"]))


def releases_of(events: Iterable[Event], known: Mapping[str, ReleaseRecord] | None = None) -> dict[str, ReleaseRecord]:
    """All releases that were ever reserved, by id, in order of reservation: those `known` before, and of `events`."""
    releases = dict(known or {})
    for event in events:
        if event.release is not None:
            record = release_with(releases.get(event.release), event)
            if record is not None:
                releases[event.release] = record
    return releases


def release_of(events: Sequence[Event]) -> ReleaseRecord | None:
    """The release that the events of one id describe, or None if it was never reserved."""
    return reduce(release_with, events, None)


def release_with(record: ReleaseRecord | None, event: Event) -> ReleaseRecord | None:
    """A release as `event`, which is of it, leaves it; None before it is reserved. A refused one is no release."""
    if event.kind == EventKind.RESERVED and event.draw is None:
        return record or _reserved(event)
    if record is None:
        return None
    if event.draw is not None:
        return _with_draw(record, event)
    return replace(record, **_fields(event))


def _fields(event: Event) -> dict[str, Any]:
    """The fields of a release that a row about it, and none of its draws, sets."""
    match event.kind:
        case EventKind.LEASED:
            return {"lease": event.lease}
        case EventKind.SUBMITTED:
            return {"proposed": dict(event.body["outputs"])}
        case EventKind.PUBLISHED:
            return {"outputs": dict(event.body["outputs"]), "published": event.created}
        case EventKind.APPROVED | EventKind.REJECTED:
            return {"decision": decision_of(event)}
        case EventKind.SUPERSEDED:
            return {"superseded_by": str(event.body["by"])}
        case _:
            return {}


def _reserved(event: Event) -> ReleaseRecord | None:
    if event.release is None or event.account is None:
        return None
    body = event.body
    spares = (f"{SPARE_PREFIX}{number}" for number in range(1, body.get("spares", 0) + 1))  # of 0.1.0
    return ReleaseRecord(
        release=event.release,
        dataset=event.account,
        run=body["run"],
        plan_digest=body["plan_digest"],
        source_digest=body.get("source") or body["source_digest"],  # the latter of 0.1.0
        epsilon=Decimal(body["epsilon"]),
        delta=Decimal(body["delta"]),
        draws=(),
        actor=event.actor,
        created=event.created,
        unit=body["unit"],
        neighbors=body["neighbors"],
        needs_approval=body.get("approval") == "required",
        supersedes=body.get("supersedes"),
        discovery=Discovery(**body["discovery"]) if body.get("discovery") is not None else None,
        accountant=body.get("accountant", "gdp"),
        delta_threshold=body.get("delta_threshold"),
        spent_epsilon=body.get("spent_epsilon"),
        program=Program.model_validate(body["program"]) if "program" in body else None,
        by_statement=body.get("admitted") == "statement",
        planned={draw["name"]: draw for draw in body["draws"]} | {name: {} for name in spares},
    )


def _with_draw(record: ReleaseRecord, event: Event) -> ReleaseRecord:
    """`record` with a draw reserved, or moved to another state."""
    if event.kind == EventKind.RESERVED:
        plan = record.planned.get(event.draw or "", {})
        draw = DrawRecord(
            release=record.release,
            name=event.draw or "",
            state=State.RESERVED,
            cost=event.cost or Cost(),
            mechanism=plan.get("mechanism", ""),
            length=plan.get("length", 0),
            parameter=plan.get("parameter"),
            terms=plan.get("terms", {}),
        )
        return replace(record, draws=(*record.draws, draw))
    known = record.draw(event.draw or "")
    if known is None or event.kind not in _DRAW_STATES:
        return record
    moved = replace(
        known,
        state=State(event.kind.value),
        lease=event.lease,
        digest=event.digest,
        replaces=known.replaces or event.body.get("replaces"),
        facts=beginning_facts(event) if event.kind == EventKind.DRAWN else known.facts,
    )
    return replace(record, draws=tuple(moved if draw is known else draw for draw in record.draws))


def decision_of(event: Event) -> Decision:
    """What an APPROVED or REJECTED row says."""
    approved, reason = event.kind == EventKind.APPROVED, str(event.body["reason"])
    return Decision(approved=approved, by=event.actor, reason=reason, created=event.created)


def beginning_facts(event: Event) -> dict[str, str]:
    """What a DRAWN row says of its draw: the bound inputs, and the program."""
    return {name: str(event.body[name]) for name in ("inputs", "program", "version") if name in event.body}
