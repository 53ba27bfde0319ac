"""What a configuration will cost and how exact it will be, from public facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from marginweave.accounting.accountants import gdp_mu
from marginweave.configuration.attributes import most_combinations
from marginweave.configuration.columns.number import MAX_CANDIDATES
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.counts.discovery import discovery
from marginweave.counts.noise import MARGINALS, planned_sigmas, public_sizes, sigma_alone
from marginweave.counts.selection import scoring
from marginweave.measurements.plan import BudgetPlan, DrawKind, PlannedDraw
from marginweave.mechanisms.base import l1_sensitivity
from marginweave.mechanisms.catalogue import MECHANISMS, count_noise, pure_noise
from marginweave.mechanisms.gaussian import RoundedGaussian, query_sigma
from marginweave.mechanisms.laplace import DiscreteLaplace
from marginweave.mechanisms.normal import ndtr, ndtri
from marginweave.mechanisms.percentile import rank_error
from marginweave.planning.marginals import public_cells, rounds_of, shares_of_draws
from marginweave.planning.split import plan_budget
from marginweave.planning.thresholds import level_threshold, private_threshold
from marginweave.prepare.clean import HIGH_PERCENTILE


@dataclass(frozen=True, kw_only=True)
class DrawForecast:
    """One draw, in words; `numbers` are those of its noise."""

    name: str
    noise: str
    share: float
    error: str
    numbers: dict[str, float]
    threshold: str = ""


_OF_MARGINALS = {*MARGINALS, DrawKind.VALUES, DrawKind.SCORES, DrawKind.MEASURE}


def forecast(configuration: Configuration) -> tuple[list[DrawForecast], float]:
    """The draws of a release, and their epsilon together at the release's delta.

    The contribution bound is its public cap here: a bought percentile can only make it, and the noise, less. Shares are of
    what the draws have together, which under an amplified resize is not what the account is charged: of mu^2, or of epsilon
    where there is Laplace noise.
    """
    plan = plan_budget(configuration)
    alike: dict[str | DrawKind, list[tuple[PlannedDraw, float]]] = {}  # choices in rounds, and their measurements
    for draw, share in zip(plan.draws, _shares(configuration, plan), strict=True):
        in_rounds = draw.kind in {DrawKind.SELECT, DrawKind.MEASURE}
        alike.setdefault(draw.kind if in_rounds else draw.name, []).append((draw, share))
    rows = []
    for draws in alike.values():
        (first, _), (last, _) = draws[0], draws[-1]
        row = _forecast(configuration, plan, first, sum(share for _, share in draws))
        rows.append(row if first is last else replace(row, name=f"{row.name} … {last.name}", noise=f"{row.noise} each"))
    return rows, plan.spent_epsilon


def noise_forecast(configuration: Configuration) -> list[str]:
    """Which noise marginals get, in words, where there was a choice."""
    if configuration.marginals is None or configuration.marginals.noise == "gaussian":
        return []
    plan = plan_budget(configuration)
    noise = pure_noise(plan.draws)
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
        sd = query_sigma(plan.draw(DrawKind.LEVEL, length), configuration.stability)
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


def _shares(configuration: Configuration, plan: BudgetPlan) -> list[float]:
    if configuration.marginals is not None:
        return shares_of_draws(configuration, plan.draws)
    spent = [float(MECHANISMS[draw.mechanism].price(draw.parameter).mu2) for draw in plan.draws]
    return [mu2 / sum(spent) for mu2 in spent]


def _forecast(configuration: Configuration, plan: BudgetPlan, draw: PlannedDraw, share: float) -> DrawForecast:
    """A draw in words: the noise and the typical error of one count, from the least noisy table to the most."""
    if draw.mechanism == "exponential":
        error = _choice_error(configuration, draw)
        noise, numbers = f"epsilon {draw.epsilon:.4g}", {"noise_epsilon": float(draw.epsilon)}
        return DrawForecast(name=draw.name, noise=noise, share=share, error=error, numbers=numbers)
    drawn, sigmas = count_noise(draw.mechanism), [float(sigma) for sigma in planned_sigmas(configuration, plan, draw)]
    most = least = threshold = ""
    unit = " a cell" if draw.kind in _OF_MARGINALS else ""
    if draw.kind is DrawKind.SCORES:
        sigmas, unit = [scoring(configuration, plan).score_sigma], " a score"
    elif draw.kind is DrawKind.LEVEL:
        most = "" if configuration.percentile is None else "at most "
        threshold = _threshold(configuration, draw, plan.delta_threshold)
    elif draw.kind is DrawKind.VALUES:
        threshold = str(discovery(configuration, plan)[1])
    elif not sigmas:  # how many marginals will share the draw is not known yet
        least, unit = " or more", " times the marginals" if drawn.is_pure else " times √(marginals)"
        sigmas = [sigma_alone(draw, configuration.stability)]
    span, errors = (
        " to ".join(sorted({f"{factor * sd:.1f}" for sd in (min(sigmas), max(sigmas))}, key=float))
        for factor in (1, drawn.mean_error)
    )
    return DrawForecast(
        name=draw.name,
        noise=f"{'' if drawn is RoundedGaussian else f'{drawn.title}, '}sd {most}{span}{least}",
        share=share,
        error=f"± {errors}{unit}",
        numbers={"noise_sd_least": min(sigmas), "noise_sd_most": max(sigmas)},
        threshold=threshold,
    )


def _choice_error(configuration: Configuration, draw: PlannedDraw) -> str:
    """What a choice may fall short of, with probability 0.95: of a rank, or of the records of the best marginal's distance."""
    if draw.kind is DrawKind.SELECT:
        adaptive, sizes = rounds_of(configuration), public_sizes(configuration)
        assert adaptive is not None
        candidates = sum(math.comb(len(sizes), k) for k in range(2, min(adaptive.adaptive, len(sizes)) + 1))
        short = 2 * l1_sensitivity(configuration.stability) / draw.epsilon * math.log(candidates / 0.05)
        return f"L1 ± {short:.0f}"
    percentile, unit, most = HIGH_PERCENTILE, configuration.privacy.stability, MAX_CANDIDATES
    if draw.length:
        percentile, unit = configuration.percentile or HIGH_PERCENTILE, configuration.stability
        most = configuration.contribution_cap(draw.length)
    return f"rank ± {rank_error(percentile, unit, draw.epsilon, most):.0f}"


def rounds_forecast(configuration: Configuration) -> list[str]:
    """How marginals are chosen in rounds, in words; nothing where they are not."""
    adaptive = rounds_of(configuration) if configuration.marginals is not None else None
    if adaptive is None:
        return []
    plan = plan_budget(configuration)
    sd = float(planned_sigmas(configuration, plan, plan.draw(DrawKind.MEASURE, 1))[0])
    words = (
        f"Rounds: {adaptive.rounds} shares; each chooses {adaptive.batch} marginal(s) of 2 to {adaptive.adaptive} attributes, "
        f"measured with sd {sd:.1f} a share"
    )
    if adaptive.annealing:
        words += f", of four shares {sd / 2:.1f}, and so on, where the round before taught no more than noise"
    return [words]


def _threshold(configuration: Configuration, draw: PlannedDraw, delta_threshold: float) -> str:
    # |S| and |V| are not known yet; with as many survivors as candidates the paper's rule is at its lowest.
    settings, records = configuration.tuples, configuration.stability.records
    sd = query_sigma(draw, configuration.stability)
    threshold = level_threshold(settings, draw.length, sd, 1, 1)
    if draw.length == 1 and configuration.private_columns:
        private = private_threshold(sd, min(draw.width, configuration.private_values), records, delta_threshold)
        return f"{threshold} ({max(threshold, private)} for hidden value lists)"
    return str(threshold)


def preparation_forecast(configuration: Configuration) -> list[str]:
    """What happens to the rows before they are counted, in words, where it bears on privacy."""
    lines = []
    resize, share = configuration.resize, 100 * configuration.bounds_share
    columns = configuration.private_bounds
    if columns:
        lines.append(f"Bounds: bought for {', '.join(map(repr, columns))}, {share:g} % of the budget for bounds")
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
    if configuration.structure and configuration.structure.can_be_broken:
        lines.append(f"A record that breaks a rule between columns, by its bins, {_REPAIRED}")
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
    Laplace noise and of an amplified resize, of which no more than (epsilon, delta) is known. DP: arithmetic on public numbers.
    """
    delta, resize, marginals = configuration.privacy.delta, configuration.resize, configuration.marginals
    is_laplace = marginals is not None and marginals.noise == "laplace"
    if delta > 0 and not is_laplace and not (resize is not None and resize.amplify):
        chance = float(ndtr(gdp_mu(epsilon, delta) / 2))
    else:
        chance = min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))
    return f"{100 * chance:.1f} %"
