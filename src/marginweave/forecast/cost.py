"""About how long a run takes and how much memory, before it is made: laws through what was measured, from public numbers.

CPU seconds on one core of an AMD EPYC. Fits: adult (14 columns, 348 triples of 401,508 cells), epsilon 1 and 4, 1,000 to
1,000,000 rows, where a fit took 0.6 to 20 s; consistency: nine releases of 48,000 to 304,000 cells, of which five were beside
rules; the rest also by the releases of docs/benchmarks.md. Without tables
of noise, single marginals and turns for rules, CPU seconds of seventeen releases were met within a factor of two (.63 to 1.64);
with them five releases of 24 columns took 1.2 to 1.5 times what this says. A fit to counts that are x sigmas in the mean cell
takes as long as the square root of x says, up to 9: then passes gain too little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis, SynthesisSettings
from marginweave.domain.masks import Mask
from marginweave.domain.zeros import domain_sizes, structural_masks
from marginweave.estimate.mixture.blocks import Ties, tie
from marginweave.measurements.whole_marginals import public_sizes

# Wall seconds of the start of Prefect's server in a home that has had one, and of our imports.
SERVER, START = 6.0, 5.0
_IMPORTED = 0.45  # gigabytes of these
_FIT, _FIT_TABLE, _MOST_SIGMAS = 1.55e-5, 3e-3, 9.0  # of 2,400 components, by cells and tables
_TIED = 4e-4  # of 2,400 components, by cells of columns that rules tie together and sets of these columns
_TUPLES = 1.5  # counts that were clipped are fitted so many times as long
_CONSISTENCY, _RULES = 5e-6, 4.0  # rules take more turns
_NOISE_TABLE, _MARGINAL = (
    0.053,
    5e-3,
)  # a sigma's table of noise; a marginal that is kept, read by five stages, and published
_ROUND, _SWAP = 2.5e-4, 1.5e-8  # a round of choices, and a record of a mixture, by columns^2
_COUNT, _VALUE = 1e-8, 2.2e-7  # a row and table, counted and evaluated; a value that is read, written and shown
_GROW, _GROW_CODE = 1.25e-6, 1e-9  # a record that is grown of combinations, by columns and by codes
_MOST_CORES, _BLOCKS, _MOST_TUPLES = 8, 1_000_000, 2_000_000  # rows in memory at once


class RunCost(NamedTuple):
    """Wall seconds on an idle machine, the start of Prefect's server included; without that CPU seconds and gigabytes."""

    seconds: float
    cpu: float
    gigabytes: float

    def __str__(self) -> str:
        return f"{_span(self.seconds)} ({_span(self.cpu, 'CPU ')}), {self.gigabytes:.1f} GB"


def _span(seconds: float, of: str = "") -> str:
    """Seconds with two digits, and a unit that people use."""
    units = ((3600, "h"), (60, "min"), (1, "s"))
    unit, name = next(((unit, name) for unit, name in units if seconds >= 1.5 * unit), units[-1])
    return f"{seconds / unit:.2g} {of}{name}"


class Table(NamedTuple):
    """A table of counts: how many cells it has, and the sigma of their noise."""

    cells: float
    sigma: float


def run_cost(configuration: Configuration, tables: Sequence[Table], rows: int, cores: int) -> RunCost | None:
    """What a run costs that measures these tables; None where nothing was measured of its synthesizer."""
    settings, columns = configuration.synthesize, len(configuration.attributes)
    cells = sum(table.cells for table in tables)
    serial, memory = _VALUE * rows * columns, _IMPORTED + 2.2e-8 * columns * min(rows, _BLOCKS)
    if isinstance(settings, MixtureSynthesis):
        sigmas = sum(rows / table.sigma for table in tables) / cells
        fitted = _FIT * cells * math.sqrt(min(sigmas, _MOST_SIGMAS)) + _FIT_TABLE * len(tables)
        fitted *= _TUPLES if configuration.marginals is None else 1.0
        tied = [*_tied_cells(configuration)]
        fitted += _TIED * sum(combinations * sets for combinations, sets in tied)
        parallel = fitted * settings.components * settings.fits / 2400 + _SWAP * rows * columns**2
        serial += _CONSISTENCY * cells * (_RULES if tied else 1.0)
        if configuration.marginals is not None:
            serial += _NOISE_TABLE * len({table.sigma for table in tables}) + _MARGINAL * len(tables)
            rounds = 0 if (chosen := configuration.marginals.adaptive) is None else chosen.rounds
            serial += _ROUND * rounds * columns**2
        memory += 3e-7 * cells + 2e-3 * columns + 1e-4 * sum(combinations for combinations, _ in tied)
    elif isinstance(settings, SynthesisSettings):
        length = 2 if configuration.marginals is not None else configuration.reporting_length
        parallel = rows * (_GROW * columns * 3.0 ** max(0, length - 3) + _GROW_CODE * sum(public_sizes(configuration)))
        memory += 5e-7 * min(cells, _MOST_TUPLES)
    else:
        return None
    parallel += _COUNT * rows * len(tables)
    wall = SERVER + START + serial + parallel / min(cores, _MOST_CORES)
    return RunCost(wall, START + serial + parallel, memory)


def _ties(configuration: Configuration) -> Ties:
    attributes = configuration.attributes
    labels = [attribute.labels for attribute in attributes]
    masks = [
        mask for mask in structural_masks(configuration, labels) if isinstance(mask, Mask) and len(mask.attributes) > 1
    ]
    return tie(domain_sizes(attributes, labels), masks)


def _tied_cells(configuration: Configuration) -> Iterator[tuple[int, int]]:
    """Of columns that rules tie together the combinations, and how many sets of them are measured, alone or with others."""
    if not configuration.forbidden:
        return
    longest = configuration.longest
    for block in _ties(configuration).blocks:
        if (width := len(block.attributes)) > 1:
            yield len(block.cells), sum(math.comb(width, length) for length in range(1, longest + 1))


_MANY_CELLS = 1024


def slow_rules(configuration: Configuration) -> str:
    """What makes a fit long: columns that rules between them tie together in many combinations; nothing where none do."""
    if not configuration.forbidden or not isinstance(configuration.synthesize, MixtureSynthesis):
        return ""
    ties, attributes = _ties(configuration), configuration.attributes
    wide = [block for block in ties.blocks if len(block.attributes) > 1 and len(block.cells) > _MANY_CELLS]
    if not wide and not ties.across:
        return ""
    tied = {a for block in wide for a in block.attributes} | {a for mask in ties.across for a in mask.attributes}
    names = ", ".join(attributes[a].name for a in sorted(tied))
    return f"; rules tie {names} together, which can make a fit several times as long: coarser bins help"
