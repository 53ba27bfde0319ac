"""Limits of a plan, such as its cells and its noise, checked from public facts and before any draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from marginweave.base.errors import InputError
from marginweave.configuration.attributes import most_forbidden
from marginweave.configuration.default_records import MOST_MARGINALS, MOST_SETS
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MAX_MODEL_BYTES, MixtureSynthesis, SynthesisSettings
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
from marginweave.mechanisms.noise_table import MAX_SIGMA
from marginweave.prepare.repair import Repair

_MAX_FORBIDDEN = 1_000_000


def check_size(configuration: Configuration) -> Plan:
    """Refuse, from public facts and before any draw, a release with more cells or more noise than can be handled.

    Returns the plan of its budget.
    """
    sizes = public_sizes(configuration)
    forbidden = configuration.forbidden
    public_labels = [attribute.labels for attribute in configuration.attributes]
    has_tuples = configuration.marginals is None
    lists_forbidden = (
        has_tuples
        or isinstance(configuration.synthesize, SynthesisSettings)
        or configuration.totals
    )
    if lists_forbidden and most_forbidden(forbidden) > _MAX_FORBIDDEN:
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
    # These results are discarded: they are made only because they raise InputError for rules that cannot be kept.
    for part in exact_parts(configuration, public_labels):
        part.counts()
    if forbidden:
        Repair(configuration, public_labels)
    _check_noise(configuration, plan, shared)
    return plan


class _Most(NamedTuple):
    """Upper bounds for the marginals of a plan: their number, their cells in total, and whether draws choose them."""

    number: int
    cells: int
    is_chosen: bool


def _check_marginals(
    configuration: Configuration, settings: MarginalSettings, sizes: tuple[int, ...]
) -> _Most:
    """Return the upper bounds for the marginals; raises InputError where there are too many marginals or cells."""
    if isinstance(settings.cliques, tuple):
        number = len(settings.cliques)
    else:
        chosen = settings.cliques if isinstance(settings.cliques, AllCliques) else AllCliques(all=2)
        number = chosen.count_sets(len(sizes))
    adaptive = configuration.rounds  # its candidates have a separate limit
    if number > MOST_MARGINALS and adaptive is None:
        raise InputError(
            f"aggregate.cliques makes {number} marginals, more than {MOST_MARGINALS}; use fewer columns or smaller marginals"
        )
    selects = settings.selects(len(sizes))
    cliques: tuple[Clique, ...] = ()
    if adaptive is not None:
        total_cells = _batch_cells(adaptive, sizes)
    elif selects:
        total_cells = math.prod(sorted(sizes)[-2:])
    else:
        if settings.has_larger(len(sizes)):
            cliques = declared_cliques(settings, configuration.attributes, sizes)
            if not cliques:
                raise InputError(
                    "aggregate.cliques.max_cells leaves no marginal to measure; use a larger one"
                )
        total_cells = sum(cells(clique, counted_sizes(configuration)) for clique in cliques)
    if total_cells > MAX_CELLS:
        raise InputError(
            f"the marginals have {total_cells} cells together, more than {MAX_CELLS}; use coarser bins, fewer values, fewer "
            "marginals or a smaller aggregate.cliques.max_cells"
        )
    return _Most(number=max(number, len(cliques)), cells=total_cells, is_chosen=selects)


def _check_pure_noise(plan: Plan, most: _Most, sizes: tuple[int, ...]) -> None:
    """Refuse marginals with more cells in total than noise in plain epsilon is drawn for."""
    noise = plan.pure_noise
    if noise is None:
        return
    total_cells = most.cells
    if most.is_chosen:
        total_cells = sum(cells(pair, sizes) for pair in all_cliques(sizes, 2))
    if total_cells > noise.most_cells:
        raise InputError(
            f"the marginals may have {total_cells} cells together, and {noise.title} noise is drawn for at most "
            f"{noise.most_cells}; use aggregate.noise: gaussian, coarser bins, fewer values or fewer marginals"
        )


def _check_noise(
    configuration: Configuration, plan: Plan, shared: Mapping[type[WholeMarginals], int]
) -> None:
    """Refuse noise with a sigma that has no table.

    `shared`: for each kind of draw, among how many marginals at most its budget is split.
    """
    instead = (
        "a smaller aggregate.reporting_length"
        if configuration.marginals is None
        else "fewer marginals"
    )
    for draw in plan.draws:
        sigmas = list(draw.forecast(configuration).sigmas)
        # An unequal split may fall back to equal parts, where noise cannot be drawn for the largest one.
        if isinstance(draw, WholeMarginals) and math.isfinite(
            draw.count_noise(configuration).largest_part
        ):
            sigmas.append(draw.equal_sigma(configuration, shared[type(draw)]))
        if max(sigmas, default=0) > MAX_SIGMA:
            raise InputError(
                f"the noise of {draw} may have a standard deviation above {MAX_SIGMA}; raise privacy.epsilon, or use fewer "
                f"columns, {instead}, or fewer records a subject"
            )


def _check_models(configuration: Configuration, sizes: tuple[int, ...]) -> None:
    """Refuse a model that is too large for memory: it would end a run that is already charged and whose settings are fixed."""
    settings = configuration.synthesize
    if isinstance(settings, MixtureSynthesis):
        value_bytes = 8 * settings.fits * settings.components * sum(sizes)
        pair_bytes = 4 * settings.components**2 * len(sizes)  # pairs of components, for each column
        needed = value_bytes + pair_bytes
        if needed > MAX_MODEL_BYTES:
            raise InputError(
                f"synthesize.fits ({settings.fits}) times synthesize.components ({settings.components}) makes a model of "
                f"{needed / 1e9:.3g} GB, more than {MAX_MODEL_BYTES / 1e9:g} GB; use fewer of them, coarser bins or fewer "
                "values"
            )


def _batch_cells(adaptive: AdaptiveCliques, sizes: tuple[int, ...]) -> int:
    """Return the most cells that the marginals of one round can have. Raises InputError for too many candidates."""
    lengths = range(2, min(adaptive.adaptive, len(sizes)) + 1)
    candidates = sum(math.comb(len(sizes), length) for length in lengths)
    if candidates > MOST_SETS:
        raise InputError(
            f"aggregate.cliques.adaptive ({adaptive.adaptive}) makes {candidates} candidates, more than {MOST_SETS}; use fewer "
            "attributes a marginal, or fewer columns"
        )
    longest = lengths[-1]
    most_cells = math.prod(sorted(sizes)[-longest:])
    return adaptive.batch * min(adaptive.max_cells, most_cells)


def _check_combinations(configuration: Configuration) -> None:
    length = configuration.reporting_length
    columns = len(configuration.attributes)
    sets = max(math.comb(columns, k) for k in range(1, length + 1))
    if sets > MOST_SETS:
        shorter = [k for k in range(1, length) if math.comb(columns, k) <= MOST_SETS]
        instead = (
            f"write aggregate: {{method: k-tuples, reporting_length: {shorter[-1]}}}, or use"
            if shorter
            else "use"
        )
        raise InputError(
            f"combinations of {length} columns are {sets} sets of columns, more than {MOST_SETS}; {instead} fewer columns"
        )
    sizes = [(len(attribute.labels), attribute.name) for attribute in configuration.attributes]
    sizes.sort(reverse=True)
    values = sum(size for size, _ in sizes)
    most = configuration.tuples.max_combinations
    if values > most:
        raise InputError(
            f"the columns have {values} values together, more than aggregate.max_combinations ({most}), and every one of them "
            "may be released; use coarser bins, fewer values or fewer columns"
        )
    largest = sizes[:length]
    combinations = math.prod(size + 1 for size, _ in largest)
    if len(largest) > 1 and combinations > MAX_KEY:
        names = ", ".join(name for _, name in largest)
        raise InputError(
            f"columns {names} have more than 2^63 combinations; use coarser bins, fewer values or a smaller "
            "aggregate.reporting_length"
        )
