"""Runs the compiled steps of a release on a made-up table, so that they are compiled, or loaded, before they are needed.

Numba compiles a step when it is first called, and stores it for later processes: ten seconds of the first release after an
installation. While Prefect's server starts, the process of the run has nothing else to do. Nothing of the release is read here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.observations.tables import Observation

if TYPE_CHECKING:
    from marginweave.estimate.mixture.model import Mixture

_Codes = NDArray[np.uint8]
_SIZES = (2, 3, 2, 3)
_RECORDS = 40
_MEMORY = 1 << 20


def rehearse(configuration: Configuration) -> None:
    """Count, fit, sample and compare a made-up table as this configuration's release does; what it computes is thrown away.

    Records that are not sampled from a mixture have steps that are compiled when they are needed.
    """
    generator = np.random.default_rng(0)  # post-processing, of a made-up table
    rows = [generator.integers(0, size, _RECORDS).astype(np.uint8) for size in _SIZES]
    if configuration.marginals is None:
        _count_combinations(rows)
    observations = _measure(rows)
    if configuration.marginals is not None:
        observations = _make_consistent(observations)
    if isinstance(configuration.synthesize, MixtureSynthesis):
        _compare(_fit(observations), generator)


def _measure(rows: Sequence[_Codes]) -> Sequence[Observation]:
    """Return all triples of columns of a made-up table, as if they had noise."""
    from marginweave.counts.marginals import all_cliques, count_marginals

    triples = all_cliques(_SIZES, 3)
    tables = count_marginals([rows], _SIZES, triples)
    observations = []
    for triple, table in zip(triples, tables, strict=True):
        observations.append(Observation(attributes=triple, counts=table, deviation=1.0))
    return observations


def _count_combinations(rows: Sequence[_Codes]) -> None:
    """Count the single values of a made-up table as `k-tuples` are counted."""
    from marginweave.base.parallel import LocalEngine
    from marginweave.counts.bounded_counts import bounded_counts, contribution_histogram
    from marginweave.counts.candidates import CandidateSet
    from marginweave.counts.count_runs import MemoryBudget
    from marginweave.mechanisms.randomness import KeyedBits
    from marginweave.prepare.codes import EncodedBlocks, EncodedTable, pack_blocks

    labels = tuple(("",) * size for size in _SIZES)
    table = EncodedTable(codes=tuple(rows), labels=labels)
    blocks = EncodedBlocks(list(pack_blocks([table])))
    candidates = CandidateSet(length=1, sizes=_SIZES)
    words = KeyedBits(key=bytes(32), purpose="rehearsal")  # of a made-up table
    memory = MemoryBudget(_MEMORY, Path())  # which holds all of it
    most = len(_SIZES)
    contribution_histogram(blocks, candidates, most, LocalEngine(1), memory)
    bounded_counts(blocks, candidates, most, words, LocalEngine(1), memory)


def _make_consistent(observations: Sequence[Observation]) -> Sequence[Observation]:
    """Return the counts, which agree already, after a turn that counts that agree do not need."""
    from marginweave.estimate.averages import Tables
    from marginweave.estimate.consistency import Nearest, make_consistent

    total = float(_RECORDS)
    tables = Tables.of(observations, (), total)
    Nearest.to(tables.values).approach(tables, total)
    return make_consistent(observations)


def _fit(observations: Sequence[Observation]) -> Mixture:
    """Return a small model of the made-up table."""
    from marginweave.estimate.mixture.fit import fit_mixture

    settings = MixtureSynthesis(method="mixture", components=2, fits=1, iterations=1)
    return fit_mixture(observations, _SIZES, _RECORDS, (), settings).conditioned()


def _compare(model: Mixture, generator: np.random.Generator) -> None:
    """Sample records of a model of the made-up table, and compare pairs of them with the model."""
    from marginweave.evaluate.tallies import Numbering, SetCounter, merged
    from marginweave.records.mixture import sample_mixture

    records = sample_mixture(model, _RECORDS, generator)
    numbering = Numbering(attributes=(0, 1), radices=_SIZES[:2])
    counter = SetCounter(numbering, np.array([[0, 1]]), dense=True)
    counter.add(np.ascontiguousarray(records[:, :2].T, np.uint8))
    tally = counter.tally()
    merged(tally, tally)
    model.probabilities(numbering.attributes, numbering.codes(tally.keys))
