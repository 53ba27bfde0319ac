"""Reading accounts and releases out of the events of the ledger; pure functions of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any

from marginweave.schemas.budget import NOTHING, BudgetPlan, Cost, Discovery, Plain
from marginweave.schemas.ledger.accounts import Account, Box, Reconciled, Spent
from marginweave.schemas.ledger.events import Event, EventKind
from marginweave.schemas.ledger.policy import PERIODS, Policy
from marginweave.schemas.ledger.releases import Decision, DrawRecord, ReleaseRecord
from marginweave.schemas.ledger.states import State
from marginweave.schemas.program import Program
from marginweave.tasks.ledger.boxes import box_body, box_from

_DRAW_STATES = frozenset(kind for kind in EventKind if kind.value in set(State))


def stated(value: float | Decimal) -> Decimal:
    """`value` as the shortest decimal of its double, so that caps and statements compare as they were typed."""
    return Decimal(repr(float(value)))


def account_body(account: Account) -> dict[str, Any]:
    """The facts of an account as the body of its OPENED event."""
    facts = {**cap_body(account.epsilon, account.delta), "unit": account.unit, "neighbors": account.neighbors}
    box = {"box": box_body(account.box)} if account.box else {}
    kind = {"for": account.kind_of_plan.texts} if account.kind_of_plan else {}
    weak = {"weak_delta": account.weak_delta} if account.weak_delta else {}
    policy = {"policy": policy_body(account.policy)} if account.policy else {}
    return {**facts, **box, **kind, **weak, **policy}


def boxed_body(box: Box, spent: Spent) -> dict[str, Any]:
    """The body of the row that gives an account of 0.1.0 its box: after which releases, and what they had spent."""
    return {"box": box_body(box), "releases": spent.ever, "spent": spent.cost.texts}


def cap_body(epsilon: float | Decimal, delta: float | Decimal) -> dict[str, Any]:
    """A cap as (part of) the body of an event."""
    return {"epsilon": str(stated(epsilon)), "delta": str(stated(delta))}


def policy_of(body: Mapping[str, Any]) -> Policy | None:
    """The policy in the body of a row, or None."""
    found = body.get("policy")
    if found is None:
        return None
    if found["per"] not in PERIODS:
        raise ValueError(f"per ({found['per']}) must be one of {', '.join(PERIODS)}")
    return Policy(per=found["per"], epsilon=Decimal(found["epsilon"]), delta=Decimal(found["delta"]))


def policy_body(policy: Policy | None) -> dict[str, str] | None:
    """A policy as `policy_of` reads it."""
    if policy is None:
        return None
    return {"per": policy.per, "epsilon": str(policy.epsilon), "delta": str(policy.delta)}


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
    ties = {"approval": "required"} if needs_approval else {}
    if supersedes is not None:
        ties["supersedes"] = supersedes
    discovery = {} if plan.discovery is None else {"discovery": asdict(plan.discovery)}
    return {
        **ties,
        **discovery,
        **({} if program is None else {"program": program.model_dump()}),
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
    accounts: dict[str, Account] = dict(known or {})
    for event in events:
        if event.account is None:
            continue
        if event.kind == EventKind.OPENED:
            accounts[event.account] = Account(
                dataset=event.account,
                epsilon=Decimal(event.body["epsilon"]),
                delta=Decimal(event.body["delta"]),
                unit=event.body["unit"],
                neighbors=event.body["neighbors"],
                box=box_from(event.body),
                kind_of_plan=_cost(event.body.get("for")),
                old_allowance=_old_allowance(event.body),
                weak_delta=event.body.get("weak_delta"),
                policy=policy_of(event.body),
            )
        elif event.kind == EventKind.CAP_CHANGED:
            epsilon, delta = Decimal(event.body["epsilon"]), Decimal(event.body["delta"])
            account = accounts[event.account]
            policy = policy_of(event.body) if "policy" in event.body else account.policy
            weak = event.body.get("weak_delta", account.weak_delta)
            box = box_from(event.body)
            accounts[event.account] = replace(
                account, epsilon=epsilon, delta=delta, box=box, weak_delta=weak, policy=policy
            )
        elif event.kind == EventKind.ACCOUNT_BOXED:
            accounts[event.account] = replace(
                accounts[event.account],
                box=box_from(event.body),
                history=_cost(event.body["spent"]),
                releases_before=int(event.body["releases"]),
            )
        elif event.kind == EventKind.RECONCILED:
            account = accounts[event.account]
            accounts[event.account] = replace(account, reconciled=(*account.reconciled, _reconciled(event)))
        elif event.kind == EventKind.ALIASED:
            account = accounts[event.account]
            accounts[event.account] = replace(account, aliases=account.aliases | {event.body["other"]})
    return accounts


def _old_allowance(body: Mapping[str, Any]) -> Plain:
    """What 0.1.0 set aside for plain charges, and called a purse."""
    aside = body.get("purse")
    return NOTHING if aside is None else Plain(epsilon=Decimal(aside["epsilon"]), delta=Decimal(aside["delta"]))


def _cost(texts: Mapping[str, str] | None) -> Cost | None:
    """What `Cost.texts` wrote."""
    if texts is None:
        return None
    plain = Plain(epsilon=Decimal(texts["plain_epsilon"]), delta=Decimal(texts["plain_delta"]))
    return Cost(mu2=Decimal(texts["mu2"]), rho=Decimal(texts["rho"]), delta=Decimal(texts["delta"]), plain=plain)


def _reconciled(event: Event) -> Reconciled:
    body = event.body
    charge = body.get("unaccounted")
    return Reconciled(
        created=event.created,
        adopted=int(body["adopted"]),
        lost=int(body["lost"]),
        homes=int(body["homes"]),
        no_other_home=body.get("no_other_home"),
        unaccounted=charge and Plain(epsilon=Decimal(charge["epsilon"]), delta=Decimal(charge["delta"])),
    )


def releases_of(events: Sequence[Event]) -> dict[str, ReleaseRecord]:
    """All releases that were ever reserved, by id, in order of reservation; refused ones are no releases."""
    grouped: dict[str, list[Event]] = {}
    for event in events:
        if event.release is not None:
            grouped.setdefault(event.release, []).append(event)
    records = ((name, release_of(own)) for name, own in grouped.items())
    return {name: record for name, record in records if record is not None}


def release_of(events: Sequence[Event]) -> ReleaseRecord | None:
    """The release that the events of one id describe, or None if it was never reserved."""
    first = next((event for event in events if event.kind == EventKind.RESERVED and event.draw is None), None)
    if first is None or first.release is None or first.account is None:
        return None
    return ReleaseRecord(
        release=first.release,
        dataset=first.account,
        run=first.body["run"],
        plan_digest=first.body["plan_digest"],
        source_digest=first.body.get("source") or first.body["source_digest"],  # the latter of 0.1.0
        epsilon=Decimal(first.body["epsilon"]),
        delta=Decimal(first.body["delta"]),
        draws=_draws(events),
        actor=first.actor,
        created=first.created,
        unit=first.body["unit"],
        neighbors=first.body["neighbors"],
        needs_approval=first.body.get("approval") == "required",
        supersedes=first.body.get("supersedes"),
        discovery=_discovery(first.body),
        accountant=first.body.get("accountant", "gdp"),
        delta_threshold=first.body.get("delta_threshold"),
        spent_epsilon=first.body.get("spent_epsilon"),
        program=Program.model_validate(first.body["program"]) if "program" in first.body else None,
        by_statement=first.body.get("admitted") == "statement",
        **_course(events),
    )


def _discovery(body: Mapping[str, Any]) -> Discovery | None:
    facts = body.get("discovery")
    return None if facts is None else Discovery(**facts)


def _course(events: Iterable[Event]) -> dict[str, Any]:
    """What has become of a release since it was reserved, its draws apart: fields of its record."""
    found: dict[str, Any] = {}
    for event in events:
        if event.kind == EventKind.PUBLISHED:
            found.update(outputs=dict(event.body["outputs"]), published=event.created)
        elif event.kind == EventKind.LEASED:
            found["lease"] = event.lease
        elif event.kind == EventKind.SUBMITTED:
            found["proposed"] = dict(event.body["outputs"])
        elif event.kind in {EventKind.APPROVED, EventKind.REJECTED}:
            found["decision"] = decision_of(event)
        elif event.kind == EventKind.SUPERSEDED:
            found["superseded_by"] = str(event.body["by"])
    return found


def decision_of(event: Event) -> Decision:
    """What an APPROVED or REJECTED row says."""
    return Decision(
        approved=event.kind == EventKind.APPROVED,
        by=event.actor,
        reason=str(event.body["reason"]),
        created=event.created,
    )


def beginning_facts(event: Event) -> dict[str, str]:
    """What a DRAWN row says of its draw: the bound inputs, and the program."""
    return {name: str(event.body[name]) for name in ("inputs", "program", "version") if name in event.body}


def _draws(events: Sequence[Event]) -> tuple[DrawRecord, ...]:
    draws: dict[str, DrawRecord] = {}
    planned: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.kind == EventKind.RESERVED and event.draw is None:
            planned = {draw["name"]: draw for draw in event.body["draws"]}
        if event.draw is None or event.release is None or event.kind not in _DRAW_STATES:
            continue
        state = State(event.kind.value)
        known = draws.get(event.draw)
        if known is None:
            plan = planned.get(event.draw, {})
            draws[event.draw] = DrawRecord(
                release=event.release,
                name=event.draw,
                state=state,
                cost=event.cost or Cost(),
                mechanism=plan.get("mechanism", ""),
                length=plan.get("length", 0),
                parameter=plan.get("parameter"),
                terms=plan.get("terms", {}),
            )
        else:
            replaces = known.replaces or event.body.get("replaces")
            facts = beginning_facts(event) if state == State.DRAWN else known.facts
            draws[event.draw] = replace(
                known, state=state, lease=event.lease, digest=event.digest, replaces=replaces, facts=facts
            )
    return tuple(draws.values())
