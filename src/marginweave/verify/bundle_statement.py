"""Compares privacy.json and account.json with the rows of the ledger: a part of verify.py, in every handover.

Every mechanism, parameter and total is compared with the row that reserved it. What follows from rows, such as the epsilon of
the draws, is computed from them again.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

from marginweave.base.formats import (
    ACCOUNT_MEANING,
    CAP_WAS_CHANGED,
    CAP_WAS_LOWERED,
    COMBINED_DRAWS,
    STATEMENT_FORMAT,
)
from marginweave.verify.bundle_accounting import (
    AMOUNTS,
    ROUNDED,
    SLACK,
    Content,
    check_epsilon,
    draws_hold,
    exposure,
    require,
    share_of_marginals,
    totals,
)

# Entries of privacy.json that the rows of one release do not determine, by reason; `ledger verify` has all rows.
_UNKNOWN = {
    "released values": (
        "domain",
        "bounds",
        "bins",
        "measured_together",
        "uncounted",
        "marginals.attributes",
        "marginals.cells",
        "linked.columns",
        "linked.cells",
    ),
    "follows from released values": (
        *("not_measured", "confidence", "verdict", "linked_undeclared", "linked_uncounted"),
        *("noise.threshold", "noise.raised_from", "noise.candidates"),
    ),
    "words": ("preparation", "assumptions", "not_covered", "composition"),
    "the steward's word": ("invariants",),
    "compared elsewhere": ("configuration", "rejected", "marginals.draw"),
    "the rate of the sample is in no row; the draws are checked to be that private": (
        "guarantee.on_the_sampled_table",
    ),
    "the home keeps it, not the ledger": ("configured_after_check", "drafted_from_table", "types"),
    "rows of other releases": ("supersedes.run", "selected_after_internal_evaluation"),
}
# Draws that measured marginals together where there were few records.
_COMBINED = ("one-way", "marginals")
_CAP_ROWS = frozenset({"OPENED", "CAP_CHANGED"})
NOT_IN_ROWS = {path: reason for reason, paths in _UNKNOWN.items() for path in paths}


def check_statement(statement: Content, rows: list[Content], release: str) -> None:
    """Refuse a privacy.json that differs from the rows of `release`.

    `rows` are those of the release and of its account, with bodies as objects, oldest first.

    Raises:
        Fault: the first thing that differs.
        KeyError, IndexError, TypeError, ValueError, ArithmeticError: it is not what the program writes.
    """
    release_rows = [row for row in rows if row["release"] == release and row["kind"] != "REFUSED"]
    body = release_rows[0]["body"]
    draws = _planned_draws(body, release_rows)
    contract = "privacy-of-rejected" if "rejected" in statement else "privacy"
    schema = f"urn:marginweave:{contract}:{STATEMENT_FORMAT}"
    same = (statement["format"], statement["$schema"]) == (STATEMENT_FORMAT, schema)
    require(same, "format and $schema in privacy.json are of no known contract")
    identity = {"dataset": release_rows[0]["account"], "run": body["run"], "release": release}
    compare("", statement, identity)
    corrected = {"release": body["supersedes"]} if "supersedes" in body else None
    stated = {"release": statement["supersedes"]["release"]} if "supersedes" in statement else None
    require(stated == corrected, "supersedes in privacy.json is not that of the rows")
    programs = {"reserved": body["program"], "drew": _drawing_programs(release_rows)}
    compare("programs", statement["programs"], programs)
    _check_guarantee(statement, body, draws)
    _check_mechanisms(statement, draws)
    check_epsilon(statement["guarantee"], draws, body)


def _drawing_programs(release_rows: list[Content]) -> list[Content]:
    """Return version and digest of each program that made draws, in the order of their first draws."""
    programs: dict[str, Content] = {}
    for row in release_rows:
        if row["kind"] == "DRAWN":
            program = row["body"]
            programs[program["program"]] = {
                "version": program["version"],
                "digest": program["program"],
            }
    return list(programs.values())


def _planned_draws(body: Content, release_rows: list[Content]) -> list[Content]:
    """Return the planned draws in the order of the plan, each with its costs as decimals and its state.

    The state is "returned" or "drawn".
    """
    draw_rows = [row for row in release_rows if row["draw"] is not None]
    reserved = {row["draw"]: row for row in draw_rows if row["kind"] == "RESERVED"}
    last_kind = {row["draw"]: row["kind"] for row in draw_rows}
    draws = []
    for draw in body["draws"]:
        row = reserved[draw["name"]]
        costs = {name: Decimal(row[name]) for name in AMOUNTS}
        state = "returned" if last_kind[draw["name"]] == "RETURNED" else "drawn"
        draws.append({**draw, **costs, "state": state})
    return draws


def _check_guarantee(statement: Content, body: Content, draws: list[Content]) -> None:
    """Refuse a guarantee that differs from the row of the reservation or from the sums over the draws."""
    stated = statement["guarantee"]
    total = totals(draws)
    plain = bool(total["plain_epsilon"] or total["plain_delta"])
    mu = None if plain else math.sqrt(total["mu2"])
    expected = {
        **{name: float(body[name]) for name in ("epsilon", "delta")},
        **{name: body[name] for name in ("neighbors", "delta_threshold")},
        "epsilon_of_the_draws": body["spent_epsilon"],
        "mu": mu,
        "rho": None if plain else float(total["rho"]),
    }
    compare("guarantee", stated, expected)
    column = body["unit"].partition(":")[2]
    is_subject = stated["unit"].startswith(f"subject of column {column!r}, ")
    same = stated["unit"] == body["unit"] or is_subject
    require(same, "guarantee.unit in privacy.json is not that of the rows")
    threshold = stated["delta_threshold"]
    covered = float(total["delta"]) <= threshold * (1 + SLACK)
    require(
        covered, "guarantee.delta_threshold in privacy.json is less than the rows of the draws have"
    )
    if mu is not None:
        # Phi(mu/2) + delta of thresholds
        phi = math.erfc(-mu / 2 / math.sqrt(2)) / 2
        observer = min(1.0, phi + threshold)
    else:
        # (1 + delta e^-epsilon) / (1 + e^-epsilon)
        odds = math.exp(-stated["epsilon"])
        observer = min(1.0, (1 + stated["delta"] * odds) / (1 + odds))
    compare("", statement, {"observer": observer})


def _check_mechanisms(statement: Content, draws: list[Content]) -> None:
    """Refuse a draw with another parameter, state, cost or noise than its rows, and other noise of a length or a marginal."""
    mechanisms = statement["mechanisms"]
    same = [mechanism["draw"] for mechanism in mechanisms] == [draw["name"] for draw in draws]
    require(same, "the draws in privacy.json are not those of the rows")
    for mechanism, draw in zip(mechanisms, draws):  # noqa: B905 - Python 3.9 runs it
        parameter_name = (
            "noise_multiplier" if draw["mechanism"] == "rounded-gaussian" else "epsilon"
        )
        place = f"mechanisms.{draw['name']}"
        planned = {"draw": draw["name"], parameter_name: draw["parameter"]}
        planned |= {name: draw[name] for name in ("mechanism", "length", "state")}
        compare(place, mechanism, planned)
        same = all(Decimal(mechanism[name]) == draw[name] for name in AMOUNTS)
        require(same, f"the cost of {draw['name']} in privacy.json is not that of its row")
        noise = _expected_noise(statement, draw, draws) if "noise" in statement else {}
        compare(place, mechanism, noise)
        unknown = set(mechanism) - {*planned, *AMOUNTS, *noise}
        names = ", ".join(sorted(unknown))
        require(not names, f"{place} in privacy.json has {names}, which no row explains")
    if "marginals" in statement:
        for draw in draws:
            _check_marginals(statement, draw, draws)
            _check_linked(statement, draw)


def check_account(account: Content, rows: list[Content], published: Content) -> None:
    """Refuse an account.json with another account, unit, cap, date or meaning than the rows, or too small a total.

    Its total includes releases whose rows may not be here, so that it is compared with the charge of this release alone.
    `published` is the row of the publication.

    Raises:
        Fault: the first thing that differs.
        KeyError, IndexError, TypeError, ValueError: it is not what the program writes.
    """
    account_rows = [row for row in rows if row["account"] == published["account"]]
    before = [row for row in account_rows if row["seq"] < published["seq"]]
    opened = [row["body"] for row in before if row["kind"] == "OPENED"][-1]
    cap = [row["body"] for row in before if row["kind"] in _CAP_ROWS][-1]
    expected = {
        "$schema": "urn:marginweave:account:1",
        "dataset": published["account"],
        "unit": opened["unit"],
        "neighbors": opened["neighbors"],
        "cap": {name: float(cap[name]) for name in ("epsilon", "delta")},
        "as_of": f"{published['created'][:19]}Z",
    }
    # A row that a restored ledger adopted from a home is later than the publication.
    unknown = {"cap", "as_of"} if "adopted" in published["body"] else set()
    for name, value in expected.items():
        require(
            name in unknown or account[name] == value,
            f"{name} in account.json is not that of the rows",
        )
    if not unknown:
        _check_caps(account, before)
        _check_total(account, [row for row in before if row["release"] == published["release"]])


def _check_total(account: Content, release_rows: list[Content]) -> None:
    """Refuse a total that is below the charge of this release, or whose epsilon is below what follows from its amounts."""
    total = account["total"]
    charged = {name: Decimal(total["charged"][name]) for name in AMOUNTS}
    states = {row["draw"]: row["kind"] for row in release_rows if row["draw"] is not None}
    reserved = [
        row for row in release_rows if row["kind"] == "RESERVED" and row["draw"] is not None
    ]
    drawn = [row for row in reserved if states[row["draw"]] != "RETURNED"]
    for name in AMOUNTS:
        least = sum(Fraction(row[name]) for row in drawn)  # exact, however many digits
        require(
            Fraction(total["charged"][name]) >= least,
            f"total.charged.{name} in account.json is below the charge of this release",
        )
    require(account["releases"] >= bool(drawn), "releases in account.json is below 1")
    same_delta = total["delta"] == account["cap"]["delta"]
    require(same_delta, "total.delta in account.json is not that of the cap")
    if total["composition"] == "plain":
        least_epsilon = float(release_rows[0]["body"]["epsilon"]) if drawn else 0.0
        enough = total["epsilon"] >= least_epsilon * (1 - SLACK)
    else:
        draw = {"name": "total", "mechanism": "", "parameter": 0.0, **charged}
        is_composition = total["composition"] in {"gdp", "zcdp"}
        delta = Decimal(repr(total["delta"]))
        is_infinite = math.isinf(total["epsilon"])
        enough = is_composition and (
            is_infinite or draws_hold([draw], total["epsilon"] * (1 + SLACK), delta)
        )
    require(
        enough, "total.epsilon in account.json is below what its composition of `charged` gives"
    )


def _check_caps(account: Content, before: list[Content]) -> None:
    """Refuse other caps since the first draw, or another largest cap or meaning, than the rows `before` the publication.

    The first draw may be of a release whose rows are not here: more caps may be listed than follow from those of this one.
    """
    caps = [row for row in before if row["kind"] in _CAP_ROWS]
    draws = [row["seq"] for row in before if row["kind"] == "DRAWN"]
    first_draw = draws[0] if draws else math.inf
    cap_at_first_draw = max(i for i, row in enumerate(caps) if row["seq"] < first_draw)
    fewest = len(caps) - cap_at_first_draw
    listed = account.get("caps_since_the_first_draw")
    number = 1 if listed is None else len(listed)
    fits = fewest <= number <= len(caps) and (listed is None or number > 1)
    amounts = []
    dated = []
    for row in caps[-number:]:
        amount = {name: float(row["body"][name]) for name in ("epsilon", "delta")}
        amounts.append(amount)
        dated.append({**amount, "since": row["created"]})
    require(
        fits and listed in (None, dated),
        "caps_since_the_first_draw in account.json is not that of the rows",
    )
    largest = {}
    for name in ("epsilon", "delta"):
        largest[name] = max(amount[name] for amount in amounts)
    expected = {
        "meaning": ACCOUNT_MEANING if account["cap"] == largest else CAP_WAS_LOWERED,
        "largest_cap": {**largest, "meaning": CAP_WAS_CHANGED} if listed is not None else None,
    }
    for name, value in expected.items():
        require(account.get(name) == value, f"{name} in account.json is not that of the rows")


def _expected_noise(statement: Content, draw: Content, draws: list[Content]) -> Content:
    """Return the noise that a draw had by its terms, as its entry in `mechanisms` states it.

    The noise of a level is compared with its entry in `noise`, too.
    """
    name = draw["name"]
    terms = draw["terms"]
    records = terms["records"]
    replaced = terms["neighbors"] == "replace-one"
    if name.startswith("level-"):
        return _expected_level_noise(statement, draw)
    if name.startswith("select-"):
        return {"sensitivity": records * (2 if replaced else 1)}
    if name.startswith("measure-"):
        selection = f"select-{name.partition('-')[2]}-"
        batch = sum(planned["name"].startswith(selection) for planned in draws) or 1
        multiplier = draw["parameter"] * math.sqrt(batch)
        return {"sigma": _sigma(multiplier, 1, records, replaced)}
    if "sigma" not in terms:
        return {}
    noise = {}
    if "threshold" in terms:
        noise["threshold"] = terms["threshold"]
    if "steps" in terms:
        noise["step"] = 1 / terms["steps"]
    noise["sigma"] = float(Fraction(terms["sigma"])) / terms.get("steps", 1)
    return noise


def _expected_level_noise(statement: Content, draw: Content) -> Content:
    """Refuse an entry of `noise` for a level that differs from the terms of its draw; return its sigma."""
    name = draw["name"]
    terms = draw["terms"]
    records = terms["records"]
    replaced = terms["neighbors"] == "replace-one"
    level = statement["noise"][draw["length"] - 1]
    bound = level["contribution_bound"]
    same = level["length"] == draw["length"] and 1 <= bound <= terms["cap"]
    require(same, f"the noise of length {draw['length']} in privacy.json is not that of its row")
    compare(
        f"noise.{name}", level, {"deviation": _sigma(draw["parameter"], bound, records, replaced)}
    )
    public = (
        {"contribution_bound": terms["contribution_bound"]} if "contribution_bound" in terms else {}
    )
    if "private_threshold" in terms or "private_values" not in terms:
        public["private_threshold"] = terms.get("private_threshold", 0)
    compare(f"noise.{name}", level, public)
    if "threshold_delta" in terms:
        _check_thresholds(level, terms, records)
    return {"sigma": level["deviation"]}


def _check_thresholds(level: Content, terms: Content, records: int) -> None:
    """Refuse a threshold of private values that is not the least that its delta pays for."""
    sigma = level["deviation"]
    delta = float(terms["threshold_delta"])
    threshold = level["private_threshold"]
    values_each = min(level["contribution_bound"], terms["private_values"])
    delta_at_threshold = exposure(threshold, sigma, values_each, records)
    delta_below = exposure(threshold - 1, sigma, values_each, records)
    is_least = delta_below > delta * (1 - SLACK) or threshold == level["threshold"]
    fits = delta_at_threshold <= delta * (1 + SLACK) and is_least
    require(
        fits, f"noise.{level['length']}.private_threshold in privacy.json is not that of its delta"
    )


def _sigma(multiplier: float, bound: int, records: int, replaced: bool) -> float:
    """Return multiplier x theta x sqrt(Delta), times sqrt(2) where records are replaced, rounded up to a multiple of 1/1024.

    Theta is `records`, Delta is `bound`.
    """
    # ceil(sqrt(square)) = isqrt(ceil(square) - 1) + 1
    sensitivity2 = records**2 * bound * (2 if replaced else 1)
    square = (Fraction(multiplier) * ROUNDED) ** 2 * sensitivity2
    return (math.isqrt(math.ceil(square) - 1) + 1) / ROUNDED


def _check_marginals(statement: Content, draw: Content, draws: list[Content]) -> None:
    """Refuse marginals whose sigmas do not cost together what their draw did; those of rounds, merged, may cost less.

    The one-way draw also made the tables of sets that count undeclared values. Marginals of both draws, merged, may cost less
    than both did: scores of pairs cost the rest.
    """
    round_draws = [
        planned
        for planned in draws
        if planned["name"].startswith("measure-") and planned["state"] == "drawn"
    ]
    is_rounds = bool(round_draws) and draw["name"] == round_draws[0]["name"]
    draw_name = "rounds" if is_rounds else draw["name"]
    is_combined = draw["name"] in _COMBINED and any(
        marginal["draw"] == COMBINED_DRAWS for marginal in statement["marginals"]
    )
    if is_combined:
        draw_name = COMBINED_DRAWS
    marginals = [marginal for marginal in statement["marginals"] if marginal["draw"] == draw_name]
    if not marginals:
        return
    same = all(marginal["noise"] == draw["mechanism"] for marginal in marginals)
    require(
        same, f"the noise of the marginals of {draw['name']} in privacy.json is not that of its row"
    )
    sigmas = [marginal["deviation"] for marginal in marginals]
    if draw["name"] == "one-way" or is_combined:
        undeclared = statement.get("undeclared") or ()
        sigmas += [table["deviation"] for table in undeclared if table.get("of_set")]
    least, most = share_of_marginals(draw, sigmas)
    draws_paid = float(len(round_draws)) if is_rounds else 1.0
    if is_combined:
        combined = [planned for planned in draws if planned["name"] in _COMBINED]
        costs = [float(planned["parameter"]) ** -2 for planned in combined]
        draws_paid = math.fsum(costs) * float(draw["parameter"]) ** 2
    may_cost_less = is_rounds or is_combined
    paid = least <= draws_paid * (1 + SLACK) and (may_cost_less or most >= 1 - SLACK)
    require(
        paid,
        f"the deviations of the marginals of {draw['name']} in privacy.json are not what its row pays for",
    )


def _check_linked(statement: Content, draw: Content) -> None:
    """Refuse histograms of a linked table that differ from the terms of their draw, or whose sigmas do not cost what it did."""
    histograms = [seen for seen in statement.get("linked") or () if seen["draw"] == draw["name"]]
    terms = draw["terms"]
    number = terms["marginals"] if "linked" in terms and draw["state"] == "drawn" else 0
    require(
        len(histograms) == number,
        f"the histograms of {draw['name']} in privacy.json are not as many as its row has",
    )
    if not histograms:
        return
    steps = terms["steps"]
    expected = {
        "table": terms["linked"],
        "count_of": terms["of"],
        "steps": steps,
        "most": terms["unit_mass"] // steps,
    }
    for seen in histograms:
        compare(f"linked.{draw['name']}", seen, expected)
    in_steps = {**draw, "terms": {**terms, "records": terms["records"] * terms["unit_mass"]}}
    least, most = share_of_marginals(in_steps, [seen["deviation"] * steps for seen in histograms])
    require(
        least <= 1 + SLACK and most >= 1 - SLACK,
        f"the deviations of the histograms of {draw['name']} in privacy.json are not what its row pays for",
    )


def compare(place: str, stated: Content, expected: Content) -> None:
    """Refuse an entry of `stated`, at `place` in privacy.json, that differs from `expected`.

    Floats may differ by 1e-9 of their value, as another library may compute them; everything else is compared exactly.
    """
    for name, value in expected.items():
        entry = stated[name]
        is_number = isinstance(entry, (int, float)) and not isinstance(entry, bool)
        same = entry == value
        if isinstance(value, float) and is_number:
            same = math.isclose(entry, value, rel_tol=SLACK)
        path = f"{place}.{name}".strip(".")
        require(same, f"{path} in privacy.json is not that of the rows")
