"""Forecast about how long a run takes and how much memory, from public numbers, by laws through what was measured.

CPU seconds on one core. Fits: adult_cat (epsilon 1 and 10), a million rows made of it (4), drug_deaths_cat and ma2019_cat (1)
and a made table of 35 columns (10), which took 1.5 to 22 s, .55 to 1.2 times what this says. Consistency: nine releases of
48,000 to 304,000 cells, of which five were beside rules. The rest also by the releases of docs/benchmarks.md, whose fits were
slower. Without tables of noise, single marginals and turns for rules, CPU seconds of seventeen releases with slower fits were
met within a factor of two (.63 to 1.64); with them five releases of 24 columns took 1.2 to 1.5 times what this says. A fit to
counts that are x sigmas in the mean cell takes as long as the square root of x says, up to 12: beyond, passes gain too little.
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
from marginweave.forecast.plan_sentence import plan_sentence
from marginweave.measurements.whole_marginals import public_sizes
from marginweave.texts.sentences import Sentence

SERVER = 6.0  # wall seconds of the start of Prefect's server in a home that has had one
START = 5.0  # wall seconds of our imports
_IMPORTED = 0.45  # gigabytes of these
_FIT = 8e-6  # of 2,400 components, by cells
_FIT_TABLE = 4.5e-2  # of 2,400 components, by the square root of the number of tables
_MOST_SIGMAS = 12.0  # of the mean cell: beyond, a fit takes no longer
# of 2,400 components, by cells of columns that rules tie together and sets of these columns
_TIED = 4e-4
_TUPLES = 1.5  # a fit to counts that were clipped takes this many times as long
_CONSISTENCY = 5e-6  # by cells
_RULES = 4.0  # rules take this many times as long, as they need more turns
_NOISE_TABLE = 0.053  # a sigma's table of noise
_MARGINAL = 5e-3  # a marginal that is kept, read by five stages, and published
_ROUND = 2.5e-4  # a round of choices, by columns^2
_SWAP = 1.5e-8  # a record of a mixture, by columns^2
_COUNT = 1e-8  # a row and table, counted and evaluated
_VALUE = 2.2e-7  # a value that is read, written and shown
_GROW = 1.25e-6  # a record that is grown of combinations, by columns
_GROW_CODE = 1e-9  # the same record, by codes
_MOST_CORES = 8
_BLOCKS = 1_000_000  # rows in memory at once
_MOST_TUPLES = 2_000_000


class RunCost(NamedTuple):
    """Wall seconds on an idle machine, the start of Prefect's server included; without that CPU seconds and gigabytes."""

    seconds: float
    cpu: float
    gigabytes: float

    @property
    def cells(self) -> tuple[Sentence, Sentence, Sentence]:
        """Time, CPU time and memory, for three cells of a table."""
        time, unit = _in_unit(self.seconds)
        cpu_time, cpu_unit = _in_unit(self.cpu)
        return (
            plan_sentence(f"time.{unit}", time=time),
            plan_sentence(f"cpu-time.{cpu_unit}", time=cpu_time),
            plan_sentence("cost.memory", gigabytes=self.gigabytes),
        )

    @property
    def sentence(self) -> Sentence:
        """Time, CPU time and memory, for a reader."""
        time, cpu, memory = self.cells
        return plan_sentence("cost.run", time=time, cpu=cpu, memory=memory)


def _in_unit(seconds: float) -> tuple[float, str]:
    """Return a time in a unit that people use, and that unit."""
    for unit_seconds, unit in ((3600, "h"), (60, "min")):
        if seconds >= 1.5 * unit_seconds:
            return seconds / unit_seconds, unit
    return seconds, "s"


class Table(NamedTuple):
    """A table of counts: the number of its cells, and the sigma of their noise."""

    cells: float
    sigma: float


def run_cost(
    configuration: Configuration, tables: Sequence[Table], rows: int, cores: int
) -> RunCost | None:
    """Return what a run costs that measures these tables; None where nothing was measured of its synthesizer."""
    settings = configuration.synthesize
    columns = len(configuration.attributes)
    cells = sum(table.cells for table in tables)
    serial = _VALUE * rows * columns
    memory = _IMPORTED + 2.2e-8 * columns * min(rows, _BLOCKS)
    if isinstance(settings, MixtureSynthesis):
        sigmas = sum(rows / table.sigma for table in tables) / cells
        fitted = _FIT * cells + _FIT_TABLE * math.sqrt(len(tables))
        fitted *= math.sqrt(min(sigmas, _MOST_SIGMAS))
        fitted *= _TUPLES if configuration.marginals is None else 1.0
        tied = [*_tied_cells(configuration)]
        fitted += _TIED * sum(combinations * sets for combinations, sets in tied)
        parallel = fitted * settings.components * settings.fits / 2400 + _SWAP * rows * columns**2
        serial += _CONSISTENCY * cells * (_RULES if tied else 1.0)
        if configuration.marginals is not None:
            serial += _NOISE_TABLE * len({table.sigma for table in tables}) + _MARGINAL * len(
                tables
            )
            adaptive = configuration.marginals.adaptive
            rounds = 0 if adaptive is None else adaptive.rounds
            serial += _ROUND * rounds * columns**2
        memory += (
            3e-7 * cells + 2e-3 * columns + 1e-4 * sum(combinations for combinations, _ in tied)
        )
    elif isinstance(settings, SynthesisSettings):
        length = 2 if configuration.marginals is not None else configuration.reporting_length
        parallel = rows * (
            _GROW * columns * 3.0 ** max(0, length - 3)
            + _GROW_CODE * sum(public_sizes(configuration))
        )
        memory += 5e-7 * min(cells, _MOST_TUPLES)
    else:
        return None
    parallel += _COUNT * rows * len(tables)
    wall = SERVER + START + serial + parallel / min(cores, _MOST_CORES)
    return RunCost(wall, START + serial + parallel, memory)


def _ties(configuration: Configuration) -> Ties:
    """Return which columns the rules between columns tie together."""
    attributes = configuration.attributes
    labels = [attribute.labels for attribute in attributes]
    masks = structural_masks(configuration, labels)
    masks_of_columns = [
        mask for mask in masks if isinstance(mask, Mask) and len(mask.attributes) > 1
    ]
    return tie(domain_sizes(attributes, labels), masks_of_columns)


def _tied_cells(configuration: Configuration) -> Iterator[tuple[int, int]]:
    """Yield, of columns that rules tie together, the combinations and the number of their sets that are measured."""
    if not configuration.forbidden:
        return
    longest = configuration.longest
    for block in _ties(configuration).blocks:
        width = len(block.attributes)
        if width > 1:
            yield (
                len(block.cells),
                sum(math.comb(width, length) for length in range(1, longest + 1)),
            )


_MANY_CELLS = 1024


def tied_columns(configuration: Configuration) -> list[str]:
    """Return the columns that rules between them tie together in many combinations, which makes a fit long."""
    if not configuration.forbidden or not isinstance(configuration.synthesize, MixtureSynthesis):
        return []
    ties = _ties(configuration)
    wide = [
        block
        for block in ties.blocks
        if len(block.attributes) > 1 and len(block.cells) > _MANY_CELLS
    ]
    places: set[int] = set()
    for block in wide:
        places.update(block.attributes)
    for mask in ties.across:
        places.update(mask.attributes)
    return [configuration.attributes[place].name for place in sorted(places)]
