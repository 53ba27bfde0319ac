"""Computes accounts and releases from the events of the ledger, one event after the other; pure functions of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from typing import Any

from marginweave.accounting.accounts import PERIODS, Account, Box, Policy
from marginweave.accounting.records import (
    RECONCILING,
    TRANSITIONS,
    Decision,
    DrawRecord,
    Event,
    EventKind,
    ReleaseRecord,
    State,
)
from marginweave.base.budget import BasicAmount, Cost, stated
from marginweave.ledger.tables import cost_of
from marginweave.released.account import EpsilonDelta, ReconciledStatement
from marginweave.released.program import Program

_PLANNED = ("run", "plan_digest", "unit", "neighbors", "delta_threshold", "spent_epsilon")
_FACTS = ("inputs", "program", "version")
_BOX = ("mu2", "delta_add", "allowance_epsilon", "allowance_delta")
MOVES = frozenset(target for _, target in TRANSITIONS | RECONCILING)
ACCOUNT_ROWS = frozenset({EventKind.OPENED, EventKind.CAP_CHANGED, EventKind.RECONCILED})


def account_body(account: Account) -> dict[str, Any]:
    """Return the facts of an account as the body of its OPENED event."""
    optional = {
        "for": account.kind_of_plan and account.kind_of_plan.texts,
        "weak_delta": account.weak_delta,
        "policy": policy_body(account.policy),
    }
    return {
        **cap_body(account.epsilon, account.delta),
        "unit": account.unit,
        "neighbors": account.neighbors,
        "box": box_body(account.box),
        **{name: value for name, value in optional.items() if value},
    }


def box_body(box: Box) -> dict[str, str]:
    """Return a box as the exact texts in the body of a row."""
    return {name: format(value, "f") for name, value in zip(_BOX, box.amounts, strict=True)}


def cap_body(epsilon: float | Decimal, delta: float | Decimal) -> dict[str, Any]:
    """Return a cap as (part of) the body of an event."""
    return {"epsilon": str(stated(epsilon)), "delta": str(stated(delta))}


def policy_body(policy: Policy | None) -> dict[str, Any] | None:
    """Return a policy as it is in the body of a row."""
    return None if policy is None else {"per": policy.per, **cap_body(policy.epsilon, policy.delta)}


def accounts_of(
    events: Iterable[Event], earlier: Mapping[str, Account] | None = None
) -> dict[str, Account]:
    """Return all accounts by dataset, in order of opening, after `events`; `earlier` are the accounts before them."""
    accounts = dict(earlier or {})
    for event in events:
        if event.account is not None and event.kind in ACCOUNT_ROWS:
            before = None if event.kind == EventKind.OPENED else accounts[event.account]
            accounts[event.account] = account_with(before, event)
    return accounts


def account_with(account: Account | None, event: Event) -> Account:
    """Return an account after an event about it; `account` is None before it is opened."""
    body = event.body
    if account is not None:
        return replace(account, **_changed(account, event))
    if event.account is None:
        raise ValueError("a row opens an account without a name")
    return Account(
        dataset=event.account,
        **_pair(body),
        unit=body["unit"],
        neighbors=body["neighbors"],
        box=_box(body),
        kind_of_plan=cost_of(body["for"]) if "for" in body else None,
        weak_delta=body.get("weak_delta"),
        policy=_policy(body),
    )


def _changed(account: Account, event: Event) -> dict[str, Any]:
    """Return the fields that an event about an open account sets."""
    body = event.body
    if event.kind == EventKind.CAP_CHANGED:
        return {
            **_pair(body),
            "box": _box(body),
            "weak_delta": body.get("weak_delta", account.weak_delta),
            "policy": _policy(body) if "policy" in body else account.policy,
        }
    charge = body.get("unaccounted")
    added = ReconciledStatement(
        on=event.created.date().isoformat(),
        rows_adopted=int(body["adopted"]),
        draws_charged_as_lost=int(body["lost"]),
        homes_looked_at=int(body["homes"]),
        no_other_home=body.get("no_other_home"),
        unaccounted=charge
        and EpsilonDelta(epsilon=float(charge["epsilon"]), delta=float(charge["delta"])),
    )
    return {"reconciled": (*account.reconciled, added)}


def _pair(texts: Mapping[str, Any]) -> dict[str, Any]:
    """Return epsilon and delta in a body."""
    return {name: Decimal(texts[name]) for name in ("epsilon", "delta")}


def _box(body: Mapping[str, Any]) -> Box:
    """Return the box in a body."""
    mu2, delta_add, epsilon, delta = (Decimal(body["box"][name]) for name in _BOX)
    allowance = BasicAmount(epsilon=epsilon, delta=delta)
    return Box(mu2=mu2, delta_add=delta_add, allowance=allowance)


def _policy(body: Mapping[str, Any]) -> Policy | None:
    """Return the policy in a body, or None."""
    policy = body.get("policy")
    if policy is None:
        return None
    if policy["per"] not in PERIODS:
        raise ValueError(f"per ({policy['per']}) must be one of {', '.join(PERIODS)}")
    return Policy(per=policy["per"], **_pair(policy))


def releases_of(
    events: Iterable[Event], earlier: Mapping[str, ReleaseRecord] | None = None
) -> dict[str, ReleaseRecord]:
    """Return all releases that were ever reserved, by id, in order of reservation; `earlier` are those before `events`."""
    releases = dict(earlier or {})
    for event in events:
        if event.release is not None:
            record = release_with(releases.get(event.release), event)
            if record is not None:
                releases[event.release] = record
    return releases


def release_of(events: Sequence[Event]) -> ReleaseRecord | None:
    """Return the release that the events of one id describe, or None if it was never reserved."""
    return reduce(release_with, events, None)


def release_with(record: ReleaseRecord | None, event: Event) -> ReleaseRecord | None:
    """Return a release after an event about it; `record` is None before it is reserved. A refused one is not a release."""
    if event.kind == EventKind.RESERVED and event.draw is None:
        return record or _reserved_release(event)
    if record is None:
        return None
    if event.draw is not None:
        return _with_draw(record, event)
    return replace(record, **_fields(event))


def _fields(event: Event) -> dict[str, Any]:
    """Return the fields of a release that an event sets which is about no draw."""
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


def _reserved_release(event: Event) -> ReleaseRecord | None:
    """Return the release that a RESERVED event begins."""
    if event.release is None or event.account is None:
        return None
    body = event.body
    return ReleaseRecord(
        release=event.release,
        dataset=event.account,
        **_pair(body),
        **{name: body[name] for name in _PLANNED},
        supersedes=body.get("supersedes"),
        source_digest=body["source"],
        draws=(),
        actor=event.actor,
        created=event.created,
        needs_approval=body.get("approval") == "required",
        program=Program.model_validate(body["program"]) if "program" in body else None,
        by_statement=body.get("admitted") == "statement",
        tables=len(body.get("tables", ("",))),
        planned={draw["name"]: draw for draw in body["draws"]},
    )


def _with_draw(record: ReleaseRecord, event: Event) -> ReleaseRecord:
    """Return `record` with a draw reserved, or moved to another state."""
    if event.kind == EventKind.RESERVED:
        plan = record.planned[event.draw or ""]
        draw = DrawRecord(
            release=record.release,
            name=event.draw or "",
            state=State.RESERVED,
            cost=event.cost or Cost(),
            **{name: plan[name] for name in ("mechanism", "length", "parameter", "terms")},
        )
        return replace(record, draws=(*record.draws, draw))
    before = record.draw(event.draw or "")
    if before is None or event.kind not in MOVES:
        return record
    facts = before.facts
    if event.kind == EventKind.DRAWN:  # its row has the bound inputs, and the program
        facts = {name: str(event.body[name]) for name in _FACTS if name in event.body}
    after = replace(before, state=event.kind, lease=event.lease, digest=event.digest, facts=facts)
    return replace(record, draws=tuple(after if draw is before else draw for draw in record.draws))


def decision_of(event: Event) -> Decision:
    """Return the decision in an APPROVED or REJECTED row."""
    approved = event.kind == EventKind.APPROVED
    return Decision(
        approved=approved, by=event.actor, reason=str(event.body["reason"]), created=event.created
    )
