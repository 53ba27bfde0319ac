"""What a configuration will cost and how exact it will be, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from marginweave.accounting.accountants import gdp_mu
from marginweave.configuration.attributes import most_combinations
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.zeros import rows_are_changed, unenforced_columns
from marginweave.measurements.base import Measurement
from marginweave.measurements.marginal_split import public_cells, shares_of_draws
from marginweave.measurements.plan import Plan
from marginweave.measurements.round_draws import RoundMarginals
from marginweave.measurements.rows_beyond_cap import SHARE, RowsBeyondCap
from marginweave.measurements.split import plan_budget
from marginweave.measurements.thresholds import level_threshold
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.laplace import DiscreteLaplace
from marginweave.mechanisms.normal import ndtr, ndtri


@dataclass(frozen=True, kw_only=True)
class DrawForecast:
    """One draw, in words; `numbers` are those of its noise."""

    name: str
    noise: str
    share: float
    error: str
    numbers: dict[str, float]
    threshold: str = ""


def forecast(configuration: Configuration) -> tuple[list[DrawForecast], float]:
    """The draws of a release, and their epsilon together at the release's delta.

    The contribution bound is its public cap here: a bought percentile can only make it, and the noise, less. Shares are of
    what the draws have together, which under an amplified resize is not what the account is charged: of mu^2, or of epsilon
    where there is Laplace noise.
    """
    plan = plan_budget(configuration)
    alike: dict[str, list[tuple[Measurement[Any], float]]] = {}
    for draw, share in zip(plan.draws, _shares(configuration, plan), strict=True):
        alike.setdefault(draw.template if draw.is_repeated else draw.name, []).append((draw, share))
    rows = []
    for draws in alike.values():
        (first, _), (last, _) = draws[0], draws[-1]
        row = _forecast(configuration, first, sum(share for _, share in draws))
        rows.append(row if first is last else replace(row, name=f"{row.name} … {last.name}", noise=f"{row.noise} each"))
    return rows, plan.spent_epsilon


def noise_forecast(configuration: Configuration) -> list[str]:
    """Which noise marginals get, in words, where there was a choice."""
    if configuration.marginals is None or configuration.marginals.noise == "gaussian":
        return []
    plan = plan_budget(configuration)
    noise = plan.pure_noise
    if noise is None:
        return [f"Noise: Gaussian, {_why_gaussian(configuration)}"]
    plain = plan.cost.plain
    charged = f"epsilon {float(plain.epsilon):.6g}" + (f" and delta {float(plain.delta):g}" if plain.delta else "")
    return [f"Noise: {noise.title}, charged to the account's allowance with {charged}"]


def combinations_forecast(configuration: Configuration) -> list[str]:
    """How many candidates each length can have, in words; nothing where a domain is private.

    Beside them how many noise alone would keep if everything shorter survived and nobody had any, at the public cap's noise.
    """
    if configuration.marginals is not None:
        return []
    settings, plan, forecasts = configuration.tuples, plan_budget(configuration), []
    if configuration.private_columns:
        return []
    for length in range(1, configuration.reporting_length + 1):
        candidates = most_combinations((len(attribute.labels) for attribute in configuration.attributes), length)
        sd = plan.draw(TupleLevel, length).sigma(configuration)
        least = level_threshold(settings, length, sd, 1, 1)
        alone = candidates * ndtr((0.5 - least) / float(sd))
        known = "" if length == 1 else "at most "
        words, most = f"Combinations of {length}: {known}{candidates}; about {alone:.0f}", settings.max_combinations
        if length == 1 or alone <= most:
            words += " of the published ones would be pure noise"
        else:
            words += " would reach the least count by noise alone"
            raised = math.ceil(0.5 - float(sd) * ndtri(most / candidates))
            words += f", {most} of them from a count of {raised} on"
        forecasts.append(words)
    return forecasts


def _why_gaussian(configuration: Configuration) -> str:
    cells = public_cells(configuration)
    if cells is None:
        return "as marginals are selected, or a domain or bounds are bought: the variances are not known beforehand"
    if sum(cells) > DiscreteLaplace.most_cells:
        return f"as the marginals have {sum(cells)} cells, and Laplace noise is drawn for at most {DiscreteLaplace.most_cells}"
    return "whose variance is the smaller one here"


def _shares(configuration: Configuration, plan: Plan) -> list[float]:
    if configuration.marginals is not None:
        return shares_of_draws(configuration, plan.draws)
    spent = [float(draw.mechanism.price(draw.parameter).mu2) for draw in plan.draws]
    return [mu2 / sum(spent) for mu2 in spent]


def _forecast(configuration: Configuration, draw: Measurement[Any], share: float) -> DrawForecast:
    """A draw in words: the noise and the typical error of one count, from the least noisy table to the most."""
    found = draw.forecast(configuration)
    if not issubclass(draw.mechanism, CountNoise):
        numbers = {"noise_epsilon": float(draw.epsilon)}
        return DrawForecast(
            name=draw.name, noise=f"epsilon {draw.epsilon:.4g}", share=share, error=found.short, numbers=numbers
        )
    drawn, unit = draw.mechanism, f" a {found.unit}" if found.unit else ""
    if found.is_shared:
        unit = " times the marginals" if drawn.is_pure else " times √(marginals)"
    least, most = min(found.sigmas), max(found.sigmas)
    span, errors = (
        " to ".join(sorted({f"{factor * sd:.1f}" for sd in (least, most)}, key=float))
        for factor in (1, drawn.mean_error)
    )
    kind = "" if drawn is RoundedGaussian else f"{drawn.title}, "
    return DrawForecast(
        name=draw.name,
        noise=f"{kind}sd {'at most ' if found.at_most else ''}{span}{' or more' if found.is_shared else ''}",
        share=share,
        error=f"± {errors}{unit}",
        numbers={"noise_sd_least": least, "noise_sd_most": most},
        threshold=found.threshold,
    )


def rounds_forecast(configuration: Configuration) -> list[str]:
    """How marginals are chosen in rounds, in words; nothing where they are not."""
    adaptive = configuration.rounds
    if adaptive is None:
        return []
    plan = plan_budget(configuration)
    sd = plan.draw(RoundMarginals, 1).sigma(configuration)
    words = (
        f"Rounds: {adaptive.rounds} shares; each chooses {adaptive.batch} marginal(s) of 2 to {adaptive.adaptive} attributes, "
        f"measured with sd {sd:.1f} a share"
    )
    if adaptive.annealing:
        words += f", of four shares {sd / 2:.1f}, and so on, where the round before taught no more than noise"
    return [words]


def preparation_forecast(configuration: Configuration) -> list[str]:
    """What happens to the rows before they are counted, in words, where it bears on privacy."""
    lines = []
    resize, share = configuration.resize, 100 * configuration.bounds_share
    columns = configuration.private_bounds
    if columns:
        lines.append(f"Bounds: bought for {', '.join(map(repr, columns))}, {share:g} % of the budget for bounds")
    if plan_budget(configuration).of(RowsBeyondCap):
        lines.append(f"Rows beyond max_records: how many are left out is counted, for {100 * SHARE:g} % of the budget")
    if resize is not None:
        how = "charged as (epsilon, delta) to the account's allowance" if resize.amplify else "noised for it"
        lines.append(
            f"Resize: {resize.records} records from {resize.copies} cop{'y' if resize.copies == 1 else 'ies'} sampled at rate "
            f"{float(resize.rate):g}; one unit replaces at most "
            f"{resize.copies * configuration.privacy.stability.records} of them, {how}; no record count is drawn"
        )
    if sets := configuration.uncounted_sets:
        lines.append(
            f"Values of {listed(sets)} that are not declared are left out of records, and k-tuples do not count how many "
            "records hold one: declare outside: other to have them counted"
        )
    if gaps := configuration.uncounted_gaps:
        lines.append(
            f"Where a rule wants a value of {listed(gaps)} and a record has none it gets one, and k-tuples do not count how "
            "many: marginals do, and make none up"
        )
    if rows_are_changed(configuration):
        lines.append(f"A record that breaks a rule between columns, by its bins, {_REPAIRED}")
    if names := unenforced_columns(configuration):
        lines.append(
            f"A rule that names {listed(names)} changes no row: rows that break it are counted as they are, and the records "
            "alone keep it"
        )
    return lines


_REPAIRED = (
    "becomes one that keeps all: not applicable where that can be, else the nearest value of a number or date, else missing, "
    "else a value by chance"
)


def known_forecast(configuration: Configuration) -> list[str]:
    """What is known from elsewhere, and how many records exact tables make, in words."""
    lines = []
    for known in configuration.totals:
        words = f"Known from {'these rows' if known.table.origin == 'these-rows' else 'another source'}: {known.table.words}"
        if known.table.origin == "these-rows":
            kept = " an invariant, which privacy.json lists:" if known.exact else ""
            words += f";{kept} the guarantee does not cover it"
        lines.append(f"{words}; free, and no draw depends on it")
    exact, settings = [known for known in configuration.totals if known.exact], configuration.synthesize
    if exact:
        number = (
            f"{exact[0].total:,.0f}" if settings.records == "count" else f"{settings.records:,} in shares of its counts"
        )
        lines.append(f"Exact known tables hold in the synthetic records, of which there will be {number}")
    return lines


EPSILONS = 0.1, 0.3, 1.0, 3.0, 10.0


def observer_forecast(configuration: Configuration) -> list[str]:
    """What epsilon means: how often an observer who knows all else can be right, of this release and of others, in words."""
    privacy = configuration.privacy
    guess = (
        "is in the data"
        if privacy.neighbors == "add-remove"
        else f"has one {'row' if privacy.subject is None else 'set of rows'} in the data or another"
    )
    others = (
        f"{epsilon:g}: {observer_chance(configuration, epsilon)}" for epsilon in EPSILONS if epsilon != privacy.epsilon
    )
    chance = observer_chance(configuration, privacy.epsilon)
    return [
        f"Which epsilon? Who knows all else and guesses whether a person {guess} is right at most",
        f"{chance} of the time, where chance is 50 %; at epsilon {', '.join(others)}",
    ]


def observer_chance(configuration: Configuration, epsilon: float) -> str:
    """How often the observer is right at most, in percent.

    Phi(mu / 2) of Gaussian differential privacy (Dong, Roth and Su 2022, section 2); (e^epsilon + delta)/(1 + e^epsilon) of
    noise that is charged in epsilon alone, and of an amplified resize, of which no more than (epsilon, delta) is known. What
    `noise: auto` chooses at the configuration's epsilon is taken for all. DP: arithmetic on public numbers.
    """
    delta, resize, marginals = configuration.privacy.delta, configuration.resize, configuration.marginals
    has_choice = marginals is not None and marginals.noise != "gaussian"
    is_pure = has_choice and plan_budget(configuration).pure_noise is not None
    if delta > 0 and not is_pure and not (resize is not None and resize.amplify):
        chance = float(ndtr(gdp_mu(epsilon, delta) / 2))
    else:
        chance = min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))
    return f"{100 * chance:.1f} %"
