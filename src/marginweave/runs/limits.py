"""Whether a plan can be carried out: cells and noise, from public facts and before any draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import most_forbidden
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MAX_MODEL, MixtureSynthesis, SynthesisSettings
from marginweave.configuration.values import MAX_CELLS, MAX_KEY
from marginweave.counts.marginals import all_cliques, cells
from marginweave.domain.masks import Clique
from marginweave.estimate.totals import exact_parts
from marginweave.measurements.larger_marginals import LargerMarginals
from marginweave.measurements.one_way import OneWayMarginals
from marginweave.measurements.plan import Plan
from marginweave.measurements.selection import declared_cliques
from marginweave.measurements.split import plan_budget
from marginweave.measurements.whole_marginals import WholeMarginals, counted_sizes, public_sizes
from marginweave.mechanisms.gaussian import RoundedGaussian
from marginweave.mechanisms.noise_table import MAX_SIGMA
from marginweave.prepare.repair import Repair

_MAX_FORBIDDEN = 1_000_000
# Each set of columns costs about a millisecond, whatever it holds.
_MAX_SETS = 200_000
# Every round of consistency and synthesis goes over all marginals.
_MAX_MARGINALS = 20_000


def check_size(configuration: Configuration) -> Plan:
    """Refuse, from public facts and before any draw, a release with more cells or more noise than can be handled.

    Returns the plan of its budget.
    """
    sizes, forbidden = public_sizes(configuration), configuration.forbidden
    listed = configuration.marginals is None or isinstance(configuration.synthesize, SynthesisSettings)
    if (listed or configuration.totals) and most_forbidden(forbidden) > _MAX_FORBIDDEN:
        raise InputError(
            f"structure forbids more than {_MAX_FORBIDDEN} combinations of values, which k-tuples, aggregate-seeded "
            "records and known tables list one by one; use marginals and another method, coarser bins or fewer values"
        )
    shared: dict[type[WholeMarginals], int] = {}
    if configuration.marginals is None:
        _check_combinations(configuration)
        plan = plan_budget(configuration)
    else:
        most = _check_marginals(configuration, configuration.marginals, sizes)
        plan = plan_budget(configuration)
        _check_pure_noise(plan, most, sizes)
        one_way = len(sizes) + len(configuration.indicators)
        shared = {OneWayMarginals: one_way, LargerMarginals: most.number}
    _check_models(configuration, sizes)
    for part in exact_parts(configuration, [attribute.labels for attribute in configuration.attributes]):
        part.counts()
    if forbidden:
        Repair(configuration, [attribute.labels for attribute in configuration.attributes])
    _check_noise(configuration, plan, shared)
    return plan


class _Most(NamedTuple):
    """How many marginals there are at most, how many cells they have together, and whether pairs of columns are chosen."""

    number: int
    cells: int
    is_chosen: bool


def _check_marginals(configuration: Configuration, settings: MarginalSettings, sizes: tuple[int, ...]) -> _Most:
    """How much there is at most; raises InputError where it is too much."""
    chosen = settings.cliques if isinstance(settings.cliques, AllCliques) else AllCliques(all=2)
    number = len(settings.cliques) if isinstance(settings.cliques, tuple) else chosen.count_sets(len(sizes))
    adaptive = configuration.rounds  # its candidates have a limit of their own
    if number > _MAX_MARGINALS and adaptive is None:
        raise InputError(
            f"aggregate.cliques makes {number} marginals, more than {_MAX_MARGINALS}; use fewer columns or smaller marginals"
        )
    selects = settings.selects(len(sizes))
    cliques: tuple[Clique, ...] = ()
    if adaptive is not None:
        together = _batch_cells(adaptive, sizes)
    elif selects:
        together = math.prod(sorted(sizes)[-2:])
    else:
        if settings.has_larger(len(sizes)):
            cliques = declared_cliques(settings, configuration.attributes, sizes)
            if not cliques:
                raise InputError("aggregate.cliques.max_cells leaves no marginal to measure; use a larger one")
        together = sum(cells(clique, counted_sizes(configuration)) for clique in cliques)
    if together > MAX_CELLS:
        raise InputError(
            f"the marginals have {together} cells together, more than {MAX_CELLS}; use coarser bins, fewer values, fewer "
            "marginals or a smaller aggregate.cliques.max_cells"
        )
    return _Most(number=max(number, len(cliques)), cells=together, is_chosen=selects)


def _check_pure_noise(plan: Plan, most: _Most, sizes: tuple[int, ...]) -> None:
    """Refuse marginals with more cells together than noise in plain epsilon is drawn for."""
    noise = plan.pure_noise
    if noise is None:
        return
    together = sum(cells(pair, sizes) for pair in all_cliques(sizes, 2)) if most.is_chosen else most.cells
    if together > noise.most_cells:
        raise InputError(
            f"the marginals may have {together} cells together, and {noise.title} noise is drawn for at most "
            f"{noise.most_cells}; use aggregate.noise: gaussian, coarser bins, fewer values or fewer marginals"
        )


def _check_noise(configuration: Configuration, plan: Plan, shared: Mapping[type[WholeMarginals], int]) -> None:
    """Refuse noise without a table; so many marginals of a kind as `shared` says may have equal parts of their draw."""
    instead = "a smaller aggregate.reporting_length" if configuration.marginals is None else "fewer marginals"
    for draw in plan.draws:
        sigmas = list(draw.forecast(configuration).sigmas)
        if (
            isinstance(draw, WholeMarginals) and draw.mechanism is RoundedGaussian
        ):  # what an unequal split falls back to
            sigmas.append(draw.equal_sigma(configuration, shared[type(draw)]))
        if max(sigmas, default=0) > MAX_SIGMA:
            raise InputError(
                f"the noise of {draw} may have a standard deviation above {MAX_SIGMA}; raise privacy.epsilon, or use fewer "
                f"columns, {instead}, or fewer records a subject"
            )


def _check_models(configuration: Configuration, sizes: tuple[int, ...]) -> None:
    """Refuse a model that no memory holds: it would end a run whose counts are paid for, and whose settings are fixed."""
    settings = configuration.synthesize
    if isinstance(settings, MixtureSynthesis):
        needed = 8 * settings.fits * settings.components * sum(sizes) + 4 * settings.components**2 * len(sizes)
        if needed > MAX_MODEL:
            raise InputError(
                f"synthesize.fits ({settings.fits}) times synthesize.components ({settings.components}) makes a model of "
                f"{needed / 1e9:.3g} GB, more than {MAX_MODEL / 1e9:g} GB; use fewer of them, coarser bins or fewer values"
            )


def _batch_cells(adaptive: AdaptiveCliques, sizes: tuple[int, ...]) -> int:
    """The most cells of the marginals of one round. Raises InputError for more candidates than can be looked at."""
    lengths = range(2, min(adaptive.adaptive, len(sizes)) + 1)
    candidates = sum(math.comb(len(sizes), length) for length in lengths)
    if candidates > _MAX_SETS:
        raise InputError(
            f"aggregate.cliques.adaptive ({adaptive.adaptive}) makes {candidates} candidates, more than {_MAX_SETS}; use fewer "
            "attributes a marginal, or fewer columns"
        )
    return adaptive.batch * min(adaptive.max_cells, math.prod(sorted(sizes)[-lengths[-1] :]))


def _check_combinations(configuration: Configuration) -> None:
    length = configuration.reporting_length
    sets = max(math.comb(len(configuration.attributes), k) for k in range(1, length + 1))
    if sets > _MAX_SETS:
        raise InputError(
            f"aggregate.reporting_length ({length}) makes {sets} sets of columns, more than {_MAX_SETS}; "
            "use a smaller one, or fewer columns"
        )
    sizes = sorted(((len(a.labels), a.name) for a in configuration.attributes), reverse=True)
    values, most = sum(size for size, _ in sizes), configuration.tuples.max_combinations
    if values > most:
        raise InputError(
            f"the columns have {values} values together, more than aggregate.max_combinations ({most}), and every one of them "
            "may be released; use coarser bins, fewer values or fewer columns"
        )
    largest = sizes[:length]
    if len(largest) > 1 and math.prod(size + 1 for size, _ in largest) > MAX_KEY:
        names = ", ".join(name for _, name in largest)
        raise InputError(
            f"columns {names} have more than 2^63 combinations; use coarser bins, fewer values or a smaller "
            "aggregate.reporting_length"
        )
