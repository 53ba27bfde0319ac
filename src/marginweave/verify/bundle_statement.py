"""privacy.json and its noise against the rows of the ledger, number by number: a part of verify.py, in every handover.

Every mechanism, parameter and total is compared with the row that reserved it; what follows from rows is computed from them
again, the epsilon of the draws among it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from marginweave.base.formats import ACCOUNT_MEANING, CAP_WAS_CHANGED, CAP_WAS_LOWERED, STATEMENT_FORMAT
from marginweave.verify.bundle_accounting import (
    AMOUNTS,
    ROUNDED,
    SLACK,
    Content,
    check_epsilon,
    exposure,
    require,
    share_of_marginals,
    totals,
)

# What the rows of one release do not determine, by its path in privacy.json, and why; `ledger verify` has all rows.
_UNKNOWN = {
    "released values": ("domain", "bounds", "bins", "measured_together", "marginals.attributes", "marginals.cells"),
    "follows from released values": (
        *("not_measured", "confidence"),
        *("noise.threshold", "noise.raised_from", "noise.candidates"),
    ),
    "words": ("preparation", "assumptions", "not_covered", "composition"),
    "the steward's word": ("invariants",),
    "compared elsewhere": ("configuration", "rejected", "marginals.draw"),
    "the rate of the sample is in no row; the draws are checked to be that private": (
        "guarantee.on_the_sampled_table",
    ),
    "the home keeps it, not the ledger": ("configured_after_check", "drafted_from_table", "types"),
    "rows of other releases": (
        *(
            "supersedes.run",
            "selected_after_internal_evaluation",
        ),
    ),
}
NOT_IN_ROWS = {name: reason for reason, names in _UNKNOWN.items() for name in names}


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
    known = f"urn:marginweave:{contract}:{STATEMENT_FORMAT}"
    same = (statement["format"], statement["$schema"]) == (STATEMENT_FORMAT, known)
    require(same, "format and $schema in privacy.json are of no known contract")
    compare("", statement, {"dataset": own[0]["account"], "run": body["run"], "release": release})
    old = {"release": body["supersedes"]} if "supersedes" in body else None
    said = {"release": statement["supersedes"]["release"]} if "supersedes" in statement else None
    require(said == old, "supersedes in privacy.json is not that of the rows")
    drew = [row["body"] for row in own if row["kind"] == "DRAWN"]
    each = {row["program"]: {"version": row["version"], "digest": row["program"]} for row in drew}
    compare("programs", statement["programs"], {"reserved": body["program"], "drew": list(each.values())})
    _check_guarantee(statement, body, draws)
    _check_mechanisms(statement, draws)
    check_epsilon(statement["guarantee"], draws, body)


def _draws(body: Content, own: list[Content]) -> list[Content]:
    """The planned draws with their costs as decimals, in the order of the plan, and what has become of each."""
    costs = {row["draw"]: row for row in own if row["kind"] == "RESERVED" and row["draw"] is not None}
    last = {row["draw"]: row["kind"] for row in own if row["draw"] is not None}
    return [
        {
            **draw,
            **{name: Decimal(costs[draw["name"]][name]) for name in AMOUNTS},
            "state": "returned" if last[draw["name"]] == "RETURNED" else "drawn",
        }
        for draw in body["draws"]
    ]


def _check_guarantee(statement: Content, body: Content, draws: list[Content]) -> None:
    said, total = statement["guarantee"], totals(draws)
    plain = bool(total["plain_epsilon"] or total["plain_delta"])
    mu = None if plain else math.sqrt(total["mu2"])
    booked = {
        **{name: float(body[name]) for name in ("epsilon", "delta")},
        **{name: body[name] for name in ("neighbors", "delta_threshold")},
        "epsilon_of_the_draws": body["spent_epsilon"],
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


def _check_mechanisms(statement: Content, draws: list[Content]) -> None:
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
        noise = _stated_noise(statement, draw, draws) if published else {}
        compare(place, row, noise)
        unknown = ", ".join(sorted(set(row) - {*planned, *AMOUNTS, *noise}))
        require(not unknown, f"{place} in privacy.json has {unknown}, which no row explains")
    for draw in draws if "marginals" in statement else ():
        _check_marginals(statement, draw, draws)


def check_account(told: Content, rows: list[Content], published: Content) -> None:
    """Refuse an account.json with another account, unit, cap, date or meaning than the rows; its total has those of others.

    Raises:
        Fault: the first thing that differs.
        KeyError, IndexError, TypeError, ValueError: it is not what the program writes.
    """
    before = [row for row in rows if row["account"] == published["account"] and row["seq"] < published["seq"]]
    opened = [row["body"] for row in before if row["kind"] == "OPENED"][-1]
    cap = [row["body"] for row in before if row["kind"] in {"OPENED", "CAP_CHANGED"}][-1]
    booked = {
        "$schema": "urn:marginweave:account:1",
        "dataset": published["account"],
        "unit": opened["unit"],
        "neighbors": opened["neighbors"],
        "cap": {name: float(cap[name]) for name in ("epsilon", "delta")},
        "as_of": f"{published['created'][:19]}Z",
    }
    # of a ledger that was restored from an old copy, where the row came back from a home: later than it was published
    unknown = {"cap", "as_of"} if "adopted" in published["body"] else set()
    for name, value in booked.items():
        require(name in unknown or told[name] == value, f"{name} in account.json is not that of the rows")
    if not unknown:
        _check_caps(told, before)


def _check_caps(told: Content, before: list[Content]) -> None:
    """The caps since the first draw, the largest of them, and what that means.

    The first draw may be of a release whose rows are not here: more caps may be listed than follow from those of this one.
    """
    caps = [row for row in before if row["kind"] in {"OPENED", "CAP_CHANGED"}]
    drawn = next((row["seq"] for row in before if row["kind"] == "DRAWN"), math.inf)
    since = len(caps) - max(i for i, row in enumerate(caps) if row["seq"] < drawn)
    listed = told.get("caps_since_the_first_draw")
    many = 1 if listed is None else len(listed)
    fits = since <= many <= len(caps) and (listed is None or many > 1)
    found = [{name: float(row["body"][name]) for name in ("epsilon", "delta")} for row in caps[-many:]]
    dated = [{**cap, "since": row["created"]} for cap, row in zip(found, caps[-many:], strict=False)]
    require(fits and listed in (None, dated), "caps_since_the_first_draw in account.json is not that of the rows")
    largest = {name: max(cap[name] for cap in found) for name in ("epsilon", "delta")}
    booked = {
        "meaning": ACCOUNT_MEANING if told["cap"] == largest else CAP_WAS_LOWERED,
        "largest_cap": {**largest, "meaning": CAP_WAS_CHANGED} if listed is not None else None,
    }
    for name, value in booked.items():
        require(told.get(name) == value, f"{name} in account.json is not that of the rows")


def _stated_noise(statement: Content, draw: Content, draws: list[Content]) -> Content:
    """The noise that a draw had, by its terms: a sigma in steps of a grid, where it has one, and a threshold."""
    name, terms = draw["name"], draw["terms"]
    records, replaced = terms["records"], terms["neighbors"] == "replace-one"
    if name.startswith("select-"):
        return {"sensitivity": records * (2 if replaced else 1)}
    if name.startswith("measure-"):
        batch = sum(other["name"].startswith(f"select-{name.partition('-')[2]}-") for other in draws) or 1
        return {"sigma": _sigma(draw["parameter"] * math.sqrt(batch), 1, records, replaced)}
    if not name.startswith("level-"):
        found = {"threshold": terms["threshold"]} if "threshold" in terms else {}
        found |= {"step": 1 / terms["steps"]} if "steps" in terms else {}
        return {**found, "sigma": float(Fraction(terms["sigma"])) / terms.get("steps", 1)} if "sigma" in terms else {}
    level = statement["noise"][draw["length"] - 1]
    bound = level["contribution_bound"]
    same = level["length"] == draw["length"] and 1 <= bound <= terms["cap"]
    require(same, f"the noise of length {draw['length']} in privacy.json is not that of its row")
    compare(f"noise.{name}", level, {"deviation": _sigma(draw["parameter"], bound, records, replaced)})
    public = {"contribution_bound": terms["contribution_bound"]} if "contribution_bound" in terms else {}
    if "private_threshold" in terms or "private_values" not in terms:
        public["private_threshold"] = terms.get("private_threshold", 0)
    compare(f"noise.{name}", level, public)
    if "threshold_delta" in terms:
        _check_thresholds(level, terms, records)
    return {"sigma": level["deviation"]}


def _check_thresholds(level: Content, terms: Content, records: int) -> None:
    """That the threshold of private values is the least that its delta pays for."""
    sigma, bound, delta = level["deviation"], level["contribution_bound"], float(terms["threshold_delta"])
    threshold, values_each = level["private_threshold"], min(bound, terms["private_values"])
    at, below = (exposure(least, sigma, values_each, records) for least in (threshold, threshold - 1))
    fits = at <= delta * (1 + SLACK) and (below > delta * (1 - SLACK) or threshold == level["threshold"])
    require(fits, f"noise.{level['length']}.private_threshold in privacy.json is not that of its delta")


def _sigma(multiplier: float, bound: int, records: int, replaced: bool) -> float:
    """Multiplier x theta x sqrt(Delta), times sqrt(2) where records are replaced, rounded up to a multiple of 1/1024."""
    square = (Fraction(multiplier) * ROUNDED) ** 2 * records**2 * bound * (2 if replaced else 1)
    return (math.isqrt(math.ceil(square) - 1) + 1) / ROUNDED


def _check_marginals(statement: Content, draw: Content, draws: list[Content]) -> None:
    """The sigmas of the marginals of a draw cost what it did together; those of rounds, merged, no more.

    With those of single attributes stand the tables of sets that count values which are not declared.
    """
    shares = [other for other in draws if other["name"].startswith("measure-") and other["state"] == "drawn"]
    rounds = bool(shares) and draw["name"] == shares[0]["name"]
    found = [row for row in statement["marginals"] if row["draw"] == ("rounds" if rounds else draw["name"])]
    of_sets = [row["deviation"] for row in statement.get("undeclared") or () if row.get("of_set")]
    if not found:
        return
    same = all(row["noise"] == draw["mechanism"] for row in found)
    require(same, f"the noise of the marginals of {draw['name']} in privacy.json is not that of its row")
    deviations = [row["deviation"] for row in found] + (of_sets if draw["name"] == "one-way" else [])
    least, most = share_of_marginals(draw, deviations)
    together = len(shares) if rounds else 1
    paid = least <= together * (1 + SLACK) and (rounds or most >= 1 - SLACK)
    require(paid, f"the deviations of the marginals of {draw['name']} in privacy.json are not what its row pays for")


def compare(place: str, stated: Content, booked: Content) -> None:
    """Numbers within 1e-9 of themselves, which is what another library may compute otherwise; everything else exactly."""
    for name, value in booked.items():
        said, where = stated[name], f"{place}.{name}".strip(".")
        number = isinstance(value, float) and isinstance(said, (int, float)) and not isinstance(said, bool)
        same = math.isclose(said, value, rel_tol=SLACK) if number else said == value
        require(same, f"{where} in privacy.json is not that of the rows")
