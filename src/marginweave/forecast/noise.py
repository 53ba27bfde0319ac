"""Forecast what a configuration will cost and how exact it will be, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from marginweave.accounting.accountants import gdp_mu
from marginweave.configuration.attributes import most_combinations
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.preparation import ResizeSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import CompleteSynthesis
from marginweave.configuration.values import listed
from marginweave.counts.marginals import cells
from marginweave.domain.zeros import rows_are_changed, unenforced_columns
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.base import Forecast, Measurement
from marginweave.measurements.linked_counts import (
    MOST_CELLS,
    LinkedHistograms,
    RowHistograms,
    UnitHistograms,
)
from marginweave.measurements.marginal_split import public_cells, shares_of_draws
from marginweave.measurements.plan import Plan
from marginweave.measurements.quantile_bounds import HIGH_PERCENTILE, HighBound
from marginweave.measurements.round_draws import RoundMarginals
from marginweave.measurements.rows_beyond_cap import SHARE, RowsBeyondCap
from marginweave.measurements.split import plan_budget
from marginweave.measurements.thresholds import level_threshold
from marginweave.measurements.tuple_level import TupleLevel
from marginweave.mechanisms.base import CountNoise
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.laplace import DiscreteLaplace
from marginweave.mechanisms.normal import ndtr, ndtri
from marginweave.texts.sentences import Sentence, Share


@dataclass(frozen=True, kw_only=True)
class DrawForecast:
    """The forecast of one draw, or of several that are alike; `numbers` are those of its noise, `share` is of the budget.

    `noise` and `error` are those of its least noisy table, `most_noise` and `most_error` those of the noisiest, where they
    are shown otherwise. `threshold` is the least count that is released, `private_threshold` that of values of private domains.
    """

    name: str
    noise: Sentence
    share: float
    error: str | Sentence
    numbers: dict[str, float]
    threshold: str = ""
    private_threshold: str = ""
    most_noise: Sentence | None = None
    most_error: Sentence | None = None


def forecast(configuration: Configuration) -> tuple[list[DrawForecast], float]:
    """Return the draws of a release, and their epsilon together at the release's delta.

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
        first = draws[0][0]
        last = draws[-1][0]
        row = _forecast(configuration, first, sum(share for _, share in draws))
        if first is not last:
            names = f"{row.name} … {last.name}"
            row = replace(
                row,
                name=names,
                noise=_each(row.noise) or row.noise,
                most_noise=_each(row.most_noise),
            )
        rows.append(row)
    return rows, plan.spent_epsilon


def noise_forecast(configuration: Configuration) -> list[Sentence]:
    """Return which noise marginals get, where there was a choice."""
    if configuration.marginals is None or configuration.marginals.noise == "gaussian":
        return []
    plan = plan_budget(configuration)
    noise = plan.pure_noise
    if noise is None:
        return [_gaussian_noise(configuration)]
    plain = plan.cost.plain
    key = "noise.pure-delta" if plain.delta else "noise.pure"
    return [
        plan_sentence(
            key, mechanism=noise.title, epsilon=float(plain.epsilon), delta=float(plain.delta)
        )
    ]


def _gaussian_noise(configuration: Configuration) -> Sentence:
    """Return why the noise is Gaussian where Laplace noise was possible."""
    cells = public_cells(configuration)
    if cells is None:
        return plan_sentence("noise.gaussian-unknown")
    if sum(cells) > DiscreteLaplace.most_cells:
        return plan_sentence(
            "noise.gaussian-many", cells=sum(cells), most=DiscreteLaplace.most_cells
        )
    return plan_sentence("noise.gaussian-smaller")


def combinations_forecast(configuration: Configuration) -> list[Sentence]:
    """Return how many candidates each length of k-tuples can have; nothing where a domain is private.

    With them how many noise alone would publish if everything shorter survived and nobody had any, at the public cap's noise.
    """
    if configuration.marginals is not None or configuration.private_columns:
        return []
    plan = plan_budget(configuration)
    return [
        _combinations(configuration, plan, length)
        for length in range(1, configuration.reporting_length + 1)
    ]


def _combinations(configuration: Configuration, plan: Plan, length: int) -> Sentence:
    """Return how many candidates of a length there can be, and how many of them noise alone would publish."""
    settings = configuration.tuples
    candidates = most_combinations(
        (len(attribute.labels) for attribute in configuration.attributes), length
    )
    sd = plan.draw(TupleLevel, length).sigma(configuration)
    threshold = level_threshold(settings, length, sd, 1, 1)
    # candidates Phi((1/2 - threshold) / sd)
    noise_alone = candidates * ndtr((0.5 - threshold) / float(sd))
    facts = {"length": length, "candidates": candidates, "alone": noise_alone}
    if length == 1:
        return plan_sentence("combinations.single", **facts)
    most = settings.max_combinations
    if noise_alone <= most:
        return plan_sentence("combinations.published", **facts)
    least = math.ceil(0.5 - float(sd) * ndtri(most / candidates))
    return plan_sentence("combinations.reach", **facts, most=most, least=least)


def _shares(configuration: Configuration, plan: Plan) -> list[float]:
    """Return the share of the budget that each draw has."""
    if configuration.marginals is not None:
        return shares_of_draws(configuration, plan.draws)
    spent = [float(draw.mechanism.price(draw.parameter).mu2) for draw in plan.draws]
    return [mu2 / sum(spent) for mu2 in spent]


def _forecast(configuration: Configuration, draw: Measurement[Any], share: float) -> DrawForecast:
    """Return the forecast of a draw: noise and typical error of one count of the least noisy table, and of the most."""
    measured = draw.forecast(configuration)
    if not issubclass(draw.mechanism, CountNoise):
        return DrawForecast(
            name=draw.name,
            noise=plan_sentence("draw.choice", epsilon=draw.epsilon),
            share=share,
            error=measured.short,
            numbers={"noise_epsilon": float(draw.epsilon)},
        )
    least = min(measured.sigmas)
    most = max(measured.sigmas)
    has_span = f"{least:.1f}" != f"{most:.1f}"
    return DrawForecast(
        name=draw.name,
        noise=_noise(draw.mechanism, measured, least),
        share=share,
        error=_error(draw.mechanism, measured, least),
        numbers={"noise_sd_least": least, "noise_sd_most": most},
        threshold=measured.threshold,
        private_threshold=measured.private_threshold,
        most_noise=_noise(draw.mechanism, measured, most) if has_span else None,
        most_error=_error(draw.mechanism, measured, most) if has_span else None,
    )


def _each(noise: Sentence | None) -> Sentence | None:
    """Return the noise of each of several draws that are alike."""
    return None if noise is None else plan_sentence("draw.each", noise=noise)


def _noise(mechanism: type[CountNoise], measured: Forecast, sigma: float) -> Sentence:
    """Return the noise of a draw of counts, of standard deviation `sigma`."""
    sd = plan_sentence("span.sd", least=sigma)
    if measured.is_shared:
        sd = plan_sentence("draw.or-more", sd=sd)
    if measured.at_most:
        sd = plan_sentence("draw.at-most", sd=sd)
    key = "draw.gaussian" if mechanism is RoundedGaussian else "draw.mechanism"
    return plan_sentence(key, mechanism=mechanism.title, sd=sd)


def _error(mechanism: type[CountNoise], measured: Forecast, sigma: float) -> Sentence:
    """Return the typical error of one count whose noise has the standard deviation `sigma`."""
    error = plan_sentence("span.sd", least=mechanism.mean_error * sigma)
    if measured.is_shared:
        key = "draw.error-of-marginals-pure" if mechanism.is_pure else "draw.error-of-marginals"
    else:
        key = "draw.error-of-unit" if measured.unit else "draw.error"
    return plan_sentence(key, error=error, unit=measured.unit)


def rounds_forecast(configuration: Configuration) -> list[Sentence]:
    """Return how marginals are chosen in rounds; nothing where they are not."""
    adaptive = configuration.rounds
    if adaptive is None:
        return []
    sd = plan_budget(configuration).draw(RoundMarginals, 1).sigma(configuration)
    rounds = plan_sentence(
        "rounds.annealed" if adaptive.annealing else "rounds.fixed",
        rounds=adaptive.rounds,
        batch=adaptive.batch,
        longest=adaptive.adaptive,
        sd=sd,
        four=sd / 2,
    )
    return [plan_sentence("rounds.coarser", rounds=rounds) if adaptive.coarsen else rounds]


def _coarse_candidates(configuration: Configuration) -> Iterator[Sentence]:
    """Yield how far the candidates of private bounds are apart, for each column that can have numbers between them."""
    for name in configuration.private_bounds:
        column = configuration.columns[name]
        assert isinstance(column, NumberColumn)
        if not column.has_all_candidates:
            first, second, *_ = column.bound_candidates
            yield plan_sentence("preparation.bounds-coarse", column=repr(name), step=second - first)


def _noisy_bounds(configuration: Configuration) -> Iterator[Sentence]:
    """Yield the columns whose bounds noise may move to an end of their range: by more rows than lie beyond a bound."""
    bounds = plan_budget(configuration).of(HighBound)
    beyond = (1 - HIGH_PERCENTILE / 100) * (configuration.rows or math.inf)
    noisy = [bound for bound in bounds if bound.ranks_off(configuration) > beyond]
    if noisy:
        names = [repr(bound.column(configuration)[0]) for bound in noisy]
        most = max(bound.ranks_off(configuration) for bound in noisy)
        yield plan_sentence(
            "preparation.bounds-noisy", columns=", ".join(names), ranks=most, beyond=beyond
        )


def linked_forecast(configuration: Configuration) -> Iterator[Sentence]:
    """Yield how the rows of linked tables are counted, with which noise, and how far off a share of units will be."""
    plan = plan_budget(configuration)
    for units, rows in zip(plan.of(UnitHistograms), plan.of(RowHistograms), strict=True):
        columns = units.columns(configuration)
        table = {"table": columns.name, "most": columns.table.at_most or 1}
        yield plan_sentence(
            "linked.counted",
            **table,
            units=_span(configuration, units),
            rows=_span(configuration, rows),
        )
        if configuration.rows is not None:
            sigma = max(_pooled_sigma(configuration, units, column) for column in columns.own)
            error = RoundedGaussian.mean_error * sigma / configuration.rows
            yield plan_sentence("linked.good-for", **table, share=Share(error))
        if columns.left_out:
            pairs = listed([f"{a} with {b}" for a, b in columns.left_out])
            yield plan_sentence("linked.left-out", **table, cells=MOST_CELLS, pairs=pairs)
        yield _rows_sentence(configuration, columns.name)


def _rows_sentence(configuration: Configuration, name: str) -> Sentence:
    """Return what the synthetic rows of a counted table keep, or why there are none."""
    table = (configuration.tables or {})[name]
    if name in configuration.recorded_tables:
        return plan_sentence("linked.rows", table=name, column=configuration.recorded_tables[name])
    method = configuration.synthesize.method
    if method != "mixture":
        return plan_sentence("linked.no-method", table=name, method=method)
    if configuration.key_of(name) in table.columns:
        return plan_sentence("linked.no-key", table=name, column=configuration.key_of(name))
    return plan_sentence("linked.no-number", table=name, most=table.at_most or 1)


def _pooled_sigma(configuration: Configuration, draw: LinkedHistograms, column: int) -> float:
    """Return the noise of a value of one column by all histograms that have it: their sums, weighted by precision."""
    sizes = draw.columns(configuration).sizes
    histograms = zip(draw.cliques(configuration), draw.forecast(configuration).sigmas, strict=True)
    precision = 0.0
    for clique, sigma in histograms:
        if column in clique:
            precision += sizes[column] / (cells(clique, sizes) * sigma**2)
    return precision**-0.5


def _span(configuration: Configuration, draw: LinkedHistograms) -> Sentence:
    """Return the least and the most noise of the histograms of a draw."""
    sigmas = draw.forecast(configuration).sigmas
    return plan_sentence("span.sds", least=min(sigmas), most=max(sigmas))


def preparation_forecast(configuration: Configuration) -> Iterator[Sentence]:
    """Yield what happens to the rows before they are counted, where it bears on privacy."""
    subject = configuration.privacy.subject
    if configuration.tables and subject is not None:
        tables = listed(sorted(configuration.tables))
        derived = listed(tuple(configuration.derived))
        key = "preparation.linked" if derived else "preparation.linked-alone"
        yield plan_sentence(key, column=subject.column, tables=tables, columns=derived)
        yield from linked_forecast(configuration)
    columns = configuration.private_bounds
    if columns:
        names = ", ".join(map(repr, columns))
        yield plan_sentence(
            "preparation.bounds", columns=names, share=Share(configuration.bounds_share)
        )
        yield from _coarse_candidates(configuration)
        yield from _noisy_bounds(configuration)
    if plan_budget(configuration).of(RowsBeyondCap):
        yield plan_sentence("preparation.rows-beyond", share=Share(SHARE))
    if configuration.resize is not None:
        yield _resize(configuration, configuration.resize)
    uncounted_sets = configuration.uncounted_sets
    if uncounted_sets:
        yield plan_sentence("preparation.uncounted-sets", columns=listed(uncounted_sets))
    uncounted_gaps = configuration.uncounted_gaps
    if uncounted_gaps:
        yield plan_sentence("preparation.uncounted-gaps", columns=listed(uncounted_gaps))
    if rows_are_changed(configuration):
        yield plan_sentence("preparation.repaired")
    unkept = unenforced_columns(configuration)
    if unkept:
        yield plan_sentence("preparation.unkept", columns=listed(unkept))


def _resize(configuration: Configuration, resize: ResizeSettings) -> Sentence:
    """Return how a table is resized, and what that costs."""
    copies = plan_sentence(
        "preparation.copy" if resize.copies == 1 else "preparation.copies", copies=resize.copies
    )
    return plan_sentence(
        "preparation.resize",
        records=resize.records,
        copies=copies,
        rate=float(resize.rate),
        replaced=resize.copies * configuration.privacy.stability.records,
        charge=plan_sentence("preparation.amplified" if resize.amplify else "preparation.noised"),
    )


def known_forecast(configuration: Configuration) -> Iterator[Sentence]:
    """Yield what is known from elsewhere, and how many records exact tables make."""
    for totals in configuration.totals:
        if totals.table.origin != "these-rows":
            key = "known.other-source"
        else:
            key = "known.invariant" if totals.exact else "known.these-rows"
        yield plan_sentence(key, table=totals.table.words)
    exact = [totals for totals in configuration.totals if totals.exact]
    settings = configuration.synthesize
    if not exact:
        return
    if settings.records == "count":
        yield plan_sentence("known.exact", records=exact[0].total)
    elif isinstance(settings, CompleteSynthesis):
        yield plan_sentence("known.exact-shares", records=settings.number(exact[0].total))
    else:
        yield plan_sentence("known.exact-shares", records=settings.records)


EPSILONS = 0.1, 0.3, 1.0, 3.0, 10.0


def observer_forecast(configuration: Configuration) -> list[Sentence]:
    """Return how often an observer who knows all else can be right, at the release's epsilon and at others."""
    privacy = configuration.privacy
    if privacy.neighbors == "add-remove":
        guess = plan_sentence("observer.in-data")
    else:
        guess = plan_sentence("observer.row" if privacy.subject is None else "observer.rows")
    other_chances = [
        str(
            plan_sentence(
                "observer.other", epsilon=epsilon, chance=observer_chance(configuration, epsilon)
            )
        )
        for epsilon in EPSILONS
        if epsilon != privacy.epsilon
    ]
    chance = observer_chance(configuration, privacy.epsilon)
    others = ", ".join(other_chances)
    return [plan_sentence("observer.guess", guess=guess, chance=chance, others=others)]


def observer_chance(configuration: Configuration, epsilon: float) -> Share:
    """Return how often the observer is right at most.

    Phi(mu / 2) of Gaussian differential privacy (Dong, Roth and Su 2022, section 2); (e^epsilon + delta)/(1 + e^epsilon) of
    noise that is charged in epsilon alone, and of an amplified resize, of which no more than (epsilon, delta) is known. What
    `noise: auto` chooses at the configuration's epsilon is taken for all. DP: arithmetic on public numbers.
    """
    delta = configuration.privacy.delta
    resize = configuration.resize
    marginals = configuration.marginals
    has_choice = marginals is not None and marginals.noise != "gaussian"
    is_pure = has_choice and plan_budget(configuration).pure_noise is not None
    if delta > 0 and not is_pure and not (resize is not None and resize.amplify):
        return Share(float(ndtr(gdp_mu(epsilon, delta) / 2)))
    return Share(min(1.0, (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))))
