"""The noise that privacy.json states, against the reserved terms: a part of verify.py, which every handover carries."""

from __future__ import annotations

import math
from fractions import Fraction

from marginweave.flows.verify.bundle_accounting import SLACK, Content, exposure

_ROUNDED = 1024


class Fault(Exception):
    """What does not fit."""


def require(fits: bool, fault: str) -> None:
    """Raise Fault, which says what does not fit, unless it does."""
    if not fits:
        raise Fault(fault)


def stated_noise(  # noqa: C901, PLR0911 - one case a kind of draw
    statement: Content, body: Content, draw: Content, draws: list[Content]
) -> Content:
    """The noise that a draw had, by its terms; None where rows of 0.1.0 do not say it."""
    name, terms = draw["name"], draw["terms"]
    sigma = float(Fraction(terms["sigma"])) if "sigma" in terms else None
    unit = _unit(statement, body, draw)
    if name == "evaluation":
        return {"sensitivity": terms.get("sensitivity"), "sigma": sigma}
    if name == "values":
        return {"threshold": terms.get("threshold"), "sigma": sigma}
    if name == "selection":
        steps = terms.get("steps")
        deviation = None if steps is None else float(Fraction(terms["sigma"])) / steps
        return {"sigma": deviation, "step": steps and 1 / steps}
    if name.startswith("select-"):
        return {"sensitivity": unit and unit[0] * (2 if unit[1] else 1)}
    if name.startswith("measure-"):
        batch = sum(other["name"].startswith(f"select-{name.partition('-')[2]}-") for other in draws)
        return {"sigma": unit and _deviation(draw["parameter"] * math.sqrt(batch), 1, *unit)}
    if name == "count":
        return {"sigma": sigma or (unit and _deviation(draw["parameter"], 1, unit[0], False))}
    if not name.startswith("level-"):
        return {}
    level = statement["noise"][draw["length"] - 1]
    bound = level["contribution_bound"]
    same = level["length"] == draw["length"] and 1 <= bound <= terms.get("cap", bound)
    require(same, f"the noise of length {draw['length']} in privacy.json is not that of its row")
    if unit is not None:
        compare(f"noise.{name}", level, {"deviation": _deviation(draw["parameter"], bound, *unit)})
    public = {"contribution_bound": terms["contribution_bound"]} if "contribution_bound" in terms else {}
    if terms and ("private_threshold" in terms or "private_values" not in terms):
        public["private_threshold"] = terms.get("private_threshold", 0)
    compare(f"noise.{name}", level, public)
    if "threshold_delta" in terms and unit is not None:
        _check_thresholds(level, terms, unit[0])
    return {"sigma": level["deviation"]}


def _check_thresholds(level: Content, terms: Content, records: int) -> None:
    """That delta pays for thresholds that follow from a percentile, and the one of private values is the least such."""
    sigma, bound, delta = level["deviation"], level["contribution_bound"], float(terms["threshold_delta"])
    if terms["fabrication"] == "none" and exposure(level["threshold"], sigma, bound, records) > delta * (1 + SLACK):
        raise Fault(f"noise.{level['length']}.threshold in privacy.json lets pass more than its delta")
    if "private_values" not in terms:
        return
    threshold, values_each = level["private_threshold"], min(bound, terms["private_values"])
    least = (
        exposure(threshold - 1, sigma, values_each, records) > delta * (1 - SLACK) or threshold == level["threshold"]
    )
    if exposure(threshold, sigma, values_each, records) > delta * (1 + SLACK) or not least:
        raise Fault(f"noise.{level['length']}.private_threshold in privacy.json is not that of its delta")


def _unit(statement: Content, body: Content, draw: Content) -> tuple[int, bool] | None:
    """How many records a unit has, and whether they are replaced; None where rows of 0.1.0 do not say it."""
    terms = draw["terms"]
    if "records" in terms:
        return terms["records"], terms["neighbors"] == "replace-one"
    plain = body["unit"] == "row" and '"resize":{' not in statement["configuration"]
    return (1, body["neighbors"] == "replace-one") if plain else None


def _deviation(multiplier: float, bound: int, records: int, replaced: bool) -> float:
    """Multiplier x theta x sqrt(Delta), times sqrt(2) where records are replaced, rounded up to a multiple of 1/1024."""
    square = (Fraction(multiplier) * _ROUNDED) ** 2 * records**2 * bound * (2 if replaced else 1)
    return (math.isqrt(math.ceil(square) - 1) + 1) / _ROUNDED


def check_marginals(marginals: list[Content], draw: Content, draws: list[Content]) -> None:
    """The deviations of the marginals of a draw cost what it did together; those of rounds, merged, no more."""
    shares = [other for other in draws if other["name"].startswith("measure-") and other["state"] == "drawn"]
    rounds = bool(shares) and draw["name"] == shares[0]["name"]
    found = [row for row in marginals if row["draw"] == ("rounds" if rounds else draw["name"])]
    if not found or "records" not in draw["terms"]:
        return
    same = all(row["noise"] == draw["mechanism"] for row in found)
    require(same, f"the noise of the marginals of {draw['name']} in privacy.json is not that of its row")
    records, replaced = draw["terms"]["records"], draw["terms"]["neighbors"] == "replace-one"
    step = 1 / _ROUNDED
    if draw["mechanism"] == "discrete-laplace":
        one, moved = float(draw["parameter"]), records * (2 if replaced else 1)
        scales = [1 / (2 * math.asinh(1 / (math.sqrt(2) * row["deviation"]))) for row in found]
        least, most = math.fsum(moved / b for b in scales), math.fsum(moved / (b - 2 * step) for b in scales)
    else:
        one, moved = (len(shares) if rounds else 1) / float(draw["parameter"]) ** 2, records**2 * (2 if replaced else 1)
        sigmas = [row["deviation"] for row in found]
        least, most = math.fsum(moved / s**2 for s in sigmas), math.fsum(moved / (s - step) ** 2 for s in sigmas)
    paid = least <= one * (1 + SLACK) and (rounds or most >= one * (1 - SLACK))
    require(paid, f"the deviations of the marginals of {draw['name']} in privacy.json are not what its row pays for")


def compare(place: str, stated: Content, booked: Content) -> None:
    """Numbers within 1e-9 of themselves, which is what another library may compute otherwise; everything else exactly."""
    for name, value in booked.items():
        said, where = stated[name], f"{place}.{name}".strip(".")
        number = isinstance(value, float) and isinstance(said, (int, float)) and not isinstance(said, bool)
        same = math.isclose(said, value, rel_tol=SLACK) if number else said == value
        require(same, f"{where} in privacy.json is not that of the rows")
