"""privacy.json against the rows of the ledger, number by number: a part of verify.py, which every handover carries.

Every mechanism, parameter and total is compared with the row that reserved it; what follows from rows is computed from them
again, the epsilon of the draws among it. Rows of 0.1.0 hold less: what they hold is compared.
"""

from __future__ import annotations

import math
from decimal import Decimal

from marginweave.flows.verify.bundle_accounting import AMOUNTS, SLACK, Content, draws_hold, selection_covered, totals
from marginweave.flows.verify.bundle_noise import check_marginals, compare, require, stated_noise

# What the rows of one release do not determine, by its path in privacy.json; `ledger verify` has the rows of the whole ledger.
NOT_IN_ROWS = {
    "domain": "released values",
    "bounds": "released bounds",
    "preparation": "words on the configuration",
    "assumptions": "words",
    "not_covered": "words",
    "composition": "words",
    "configuration": "plan.json has it, with the digest of what was written",
    "confidence": "computed from released counts",
    "measured_together": "released values",
    "not_measured": "follows from released values",
    "code_version": "0.1.0 alone; its rows do not have it",
    "supersedes.run": "a row of another release",
    "selected_after_internal_evaluation": "a row of another release",
    "rejected": "compared with the row that rejected it",
    "noise.threshold": "follows from released counts",
    "noise.raised_from": "follows from released counts",
    "noise.candidates": "follows from released counts",
    "noise.stopped": "follows from released counts",
    "marginals.attributes": "released choices",
    "marginals.cells": "released values",
    "marginals.draw": "the deviations of each draw are compared together",
    "guarantee.on_the_sampled_table": "the rate of the sample is in no row; the draws are checked to be that private",
    "account.epsilon": "rows of other releases",
    "account.composition": "rows of other releases",
    "account.box": "follows from the cap and from rows of other releases",
    "account.spent": "rows of other releases",
    "account.releases_before_box": "rows of other releases",
    "account.weak_delta": "words",
    "account.releases": "rows of other releases",
    "account.purse.spent_epsilon": "rows of other releases",
    "account.purse.spent_delta": "rows of other releases",
    "account.policy": "rows of other releases",
}  # fmt: skip


def check_statement(statement: Content, rows: list[Content], release: str) -> None:
    """Refuse a privacy.json that says of `release` anything else than the rows do.

    `rows` are those of the release and of its account, with bodies as objects, oldest first.

    Raises:
        Fault: the first thing that differs.
        KeyError, IndexError, TypeError, ValueError, ArithmeticError: it is not what the program writes.
    """
    own = [row for row in rows if row["release"] == release and row["kind"] != "REFUSED"]
    body = own[0]["body"]
    draws = _draws(body, own)
    contract = "privacy-of-rejected" if "rejected" in statement else "privacy"
    known = statement.get("$schema") == {1: None, 2: f"urn:marginweave:{contract}:2"}.get(statement["format"], "")
    require(known, "format and $schema in privacy.json are of no known contract")
    compare("", statement, {"dataset": own[0]["account"], "run": body["run"], "release": release})
    old = {"release": body["supersedes"]} if "supersedes" in body else None
    said = {"release": statement["supersedes"]["release"]} if "supersedes" in statement else None
    require(said == old, "supersedes in privacy.json is not that of the rows")
    if "program" in body:
        drew = [row["body"] for row in own if row["kind"] == "DRAWN" and "program" in row["body"]]
        each = {row["program"]: {"version": row["version"], "digest": row["program"]} for row in drew}
        compare("programs", statement["programs"], {"reserved": body["program"], "drew": list(each.values())})
    _check_guarantee(statement, body, draws)
    _check_mechanisms(statement, body, draws)
    _check_account(statement["account"], rows, own)
    _check_epsilon(statement["guarantee"], draws, body)


def _draws(body: Content, own: list[Content]) -> list[Content]:
    """The planned draws with their costs as decimals, in the order of the plan, and what has become of each."""
    costs = {row["draw"]: row for row in own if row["kind"] == "RESERVED" and row["draw"] is not None}
    last = {row["draw"]: row["kind"] for row in own if row["draw"] is not None}
    return [
        {
            **draw,
            **{name: Decimal(costs[draw["name"]][name] or 0) for name in AMOUNTS},
            "state": "returned" if last[draw["name"]] == "RETURNED" else "drawn",
            "terms": draw.get("terms", {}),
        }
        for draw in body["draws"]
    ]


def _check_guarantee(statement: Content, body: Content, draws: list[Content]) -> None:
    said, total = statement["guarantee"], totals(draws)
    plain = bool(total["plain_epsilon"] or total["plain_delta"])
    mu = None if plain else math.sqrt(total["mu2"])
    fabricated = [draw["terms"]["fabrication"] for draw in draws if "fabrication" in draw["terms"]]
    booked = {
        **{name: float(body[name]) for name in ("epsilon", "delta")},
        **{name: body[name] for name in ("neighbors", "accountant")},
        **{name: body[name] for name in ("delta_threshold",) if name in body},
        **({"epsilon_of_the_draws": body["spent_epsilon"]} if "spent_epsilon" in body else {}),
        **({"fabrication": (fabricated or [None])[0] or "possible"} if any(draw["terms"] for draw in draws) else {}),
        "mu": mu,
        "rho": None if plain else float(total["rho"]),
    }
    compare("guarantee", said, booked)
    subject = said["unit"].startswith(f"subject of column {body['unit'].partition(':')[2]!r}, ")
    require(said["unit"] == body["unit"] or subject, "guarantee.unit in privacy.json is not that of the rows")
    threshold, epsilon, delta = said["delta_threshold"], said["epsilon"], said["delta"]
    covered = float(total["delta"]) <= threshold * (1 + SLACK)
    require(covered, "guarantee.delta_threshold in privacy.json is less than the rows of the draws have")
    if mu is not None:
        observer = min(1.0, math.erfc(-mu / 2 / math.sqrt(2)) / 2 + threshold)
    else:
        observer = min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))
    compare("", statement, {"observer": observer})


def _check_epsilon(said: Content, draws: list[Content], body: Content) -> None:
    """That each draw costs what its mechanism does, and all of them no more than is said."""
    sampled, delta = said["on_the_sampled_table"], Decimal(body["delta"])
    if sampled is None:
        for draw in draws:
            _check_price(draw)
    else:  # all is charged on the first draw; what they are to the sample follows from their parameters
        left = Decimal(repr(sampled["delta"])) - Decimal(repr(said["delta_threshold"]))
        by_parameter = [_by_parameter(draw) for draw in draws]
        private = body["accountant"] == "joint" or draws_hold(by_parameter, sampled["epsilon"], left, None)
        require(
            private, "the draws are not (epsilon, delta)-private to the sample as guarantee.on_the_sampled_table says"
        )
    spent, discovery = said["epsilon_of_the_draws"], body.get("discovery") if sampled is None else None
    paid = spent <= said["epsilon"] * (1 + SLACK) and draws_hold(draws, spent, delta, discovery)
    require(paid, "the draws cost more than guarantee.epsilon_of_the_draws in privacy.json, or that more than epsilon")


def _by_parameter(draw: Content) -> Content:
    one, mechanism = float(draw["parameter"]), draw["mechanism"]
    free = {**draw, **dict.fromkeys(AMOUNTS, Decimal(0))}
    if mechanism == "discrete-laplace":
        return {**free, "plain_epsilon": Decimal(repr(draw["parameter"]))}
    require(mechanism in {"rounded-gaussian", "exponential"}, f"draw {draw['name']} has a mechanism without a price")
    gaussian = mechanism == "rounded-gaussian"
    mu2 = 1 / one**2 if gaussian else one**2 * math.pi / 8  # of a selection, the bound of `selection_mu`
    rho = 1 / one**2 / 2 if gaussian else one**2 / 8
    return {**free, "mu2": Decimal(mu2), "rho": Decimal(rho)}


def _check_price(draw: Content) -> None:
    parameter, mu2, rho = draw["parameter"], draw["mu2"], draw["rho"]
    if draw["mechanism"] == "rounded-gaussian":
        least = (1 - SLACK) / float(parameter) ** 2
        enough = float(mu2) >= least and float(rho) >= least / 2
    elif draw["mechanism"] == "discrete-laplace":
        enough = draw["plain_epsilon"] >= Decimal(repr(parameter))
    else:
        enough = draw["mechanism"] == "exponential" and selection_covered(float(parameter), mu2, rho)
    require(enough, f"draw {draw['name']} costs less than its mechanism does")


def _check_mechanisms(statement: Content, body: Content, draws: list[Content]) -> None:
    """Every draw with its parameter, state, cost and noise; the noise of each length and of each marginal."""
    said, published = statement["mechanisms"], "noise" in statement
    same = [row["draw"] for row in said] == [draw["name"] for draw in draws]
    require(same, "the draws in privacy.json are not those of the rows")
    for row, draw in zip(said, draws):  # noqa: B905 - Python 3.9 runs it
        named = "noise_multiplier" if draw["mechanism"] == "rounded-gaussian" else "epsilon"
        place = f"mechanisms.{draw['name']}"
        planned = {"draw": draw["name"], named: draw["parameter"]}
        planned |= {name: draw[name] for name in ("mechanism", "length", "state")}
        compare(place, row, planned)
        same = all(Decimal(row[name]) == draw[name] for name in AMOUNTS)
        require(same, f"the cost of {draw['name']} in privacy.json is not that of its row")
        noise = stated_noise(statement, body, draw, draws) if published else {}
        compare(place, row, {name: value for name, value in noise.items() if value is not None})
        unknown = ", ".join(sorted(set(row) - {*planned, *AMOUNTS, *noise}))
        require(not unknown, f"{place} in privacy.json has {unknown}, which no row explains")
    for draw in draws if "marginals" in statement else ():
        check_marginals(statement["marginals"], draw, draws)


def _check_account(statement: Content, rows: list[Content], own: list[Content]) -> None:
    """Account, cap and purse at the time of publication, and the draws of this release that were lost."""
    account, drawn = own[0]["account"], max(row["seq"] for row in own if row["draw"] is not None)
    after = [row["seq"] for row in own if row["kind"] in {"SUBMITTED", "PUBLISHED"} and row["seq"] > drawn]
    rejected, ended = any(row["kind"] == "REJECTED" for row in own), min(after, default=0)
    caps = [row for row in rows if row["account"] == account and row["kind"] in {"OPENED", "CAP_CHANGED"}]
    opened = [row["body"] for row in caps if row["kind"] == "OPENED"][-1]
    before = [row for row in caps if row["seq"] < drawn][-1:]
    meanwhile = [row for row in caps if row["seq"] > drawn and (rejected or row["seq"] < ended)]
    compare("account", statement, {"dataset": account})
    said = statement["cap_epsilon"], statement["delta"]
    known = [(float(row["body"]["epsilon"]), float(row["body"]["delta"])) for row in before + meanwhile]
    require(said in known, "the cap of the account in privacy.json is not that of the rows")
    if "purse" in statement:
        purse = opened.get("purse", {"epsilon": "0", "delta": "0"})
        compare("account.purse", statement["purse"], {name: float(purse[name]) for name in ("epsilon", "delta")})
    costs = {row["draw"]: row for row in own if row["kind"] == "RESERVED"}
    begun = {row["draw"]: row["body"].get("replaces") or row["draw"] for row in own if row["kind"] == "DRAWN"}
    names = [row["draw"] for row in own if row["kind"] == "CHARGED_LOST"]
    lost = [(begun[draw], *(Decimal(costs[draw][name] or 0) for name in AMOUNTS)) for draw in names]
    mine = [row for row in statement["lost_draws"] if row["release"] == own[0]["release"]]
    same = sorted(lost) == sorted((row["draw"], *(Decimal(row[name]) for name in AMOUNTS)) for row in mine)
    require(same, "the lost draws of the release in privacy.json are not those of the rows")
