"""Noisy marginals of a made-up table, and the configuration that they are measured by."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from marginweave.base.arrays import Codes
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import (
    AnySynthesis,
    GumSynthesis,
    MixtureSynthesis,
    SynthesisSettings,
)
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.marginals import compression_of, normalize_marginals
from marginweave.observations.compression import Compression
from marginweave.observations.tables import Marginals, Observation
from marginweave.records.release import synthesize_blocks
from tests.support.configurations import configuration

CLIQUES = ((0, 1), (1, 2, 3))


def marginals(config: Configuration, seed: int = 1, sd: float = 4.0) -> Marginals:
    """Marginals of a made-up table with made-up noise, rare values merged as a run would."""
    rng = np.random.default_rng(seed)
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes = domain_sizes(config.attributes, labels)
    rows = [np.minimum(rng.geometric(0.5, 900) - 1, n - 1) for n in sizes]
    noisy = [
        np.bincount(r, minlength=n) + rng.normal(0, sd, n).round().astype(np.int64)
        for r, n in zip(rows, sizes, strict=True)
    ]
    one_way = tuple(
        Observation(attributes=(a,), counts=c, deviation=sd) for a, c in enumerate(noisy)
    )
    plain = Marginals(
        domain=Domain(names=tuple(a.name for a in config.attributes), labels=labels),
        one_way=one_way,
        larger=(),
    )
    compression = compression_of(plain, config)[1]
    larger = []
    for clique in CLIQUES:
        shape = [compression.sizes[a] for a in clique]
        counts = np.zeros(shape, np.int64)
        np.add.at(counts, tuple(compression.codes[a][rows[a]] for a in clique), 1)
        noise = rng.normal(0, sd, shape).round().astype(np.int64)
        larger.append(Observation(attributes=clique, counts=counts + noise, deviation=sd))
    return Marginals(domain=plain.domain, one_way=one_way, larger=tuple(larger))


def config(**changes: Any) -> Configuration:
    lists = [["sex", "region"], ["region", "age", "grade"]]
    return configuration(aggregate__method="marginals", aggregate__cliques=lists, **changes)


def measure_merged(marginal: Observation, compression: Compression) -> Observation:
    """The marginal over the codes that rare values were merged into."""
    codes = np.unravel_index(np.arange(marginal.counts.size), marginal.counts.shape)
    counts = np.zeros([compression.sizes[a] for a in marginal.attributes], np.int64)
    new = tuple(compression.codes[a][c] for a, c in zip(marginal.attributes, codes, strict=True))
    np.add.at(counts, new, marginal.counts.ravel())
    return replace(marginal, counts=counts)


def noisy_counts(
    rows: np.ndarray, sizes: tuple[int, ...], width: int, sd: float, rng: np.random.Generator
) -> tuple[Observation, ...]:
    """Every marginal of a width."""
    found = []
    for clique in itertools.combinations(range(len(sizes)), width):
        counts = np.zeros([sizes[a] for a in clique], np.int64)
        np.add.at(counts, tuple(rows[:, a] for a in clique), 1)
        noise = rng.normal(0, sd, counts.shape).round().astype(np.int64)
        found.append(Observation(attributes=clique, counts=counts + noise, deviation=sd))
    return tuple(found)


METHODS: dict[str, AnySynthesis] = {
    "aggregate-seeded": SynthesisSettings(records=60),
    "gum": GumSynthesis(records=60, rounds=4),
    "mixture": MixtureSynthesis(records=60, components=12, fits=1, iterations=4),
}


def synthesized(
    rows: np.ndarray, config: Configuration, method: str, seed: int, sd: float
) -> tuple[Sequence[Codes], Domain]:
    """Codes that a method makes of the noisy single and pair counts of rows, and their domain."""
    rng = np.random.default_rng(seed)
    labels = tuple(attribute.labels for attribute in config.attributes)
    sizes, domain = (
        domain_sizes(config.attributes, labels),
        Domain(names=tuple(config.names), labels=labels),
    )
    one_way = noisy_counts(rows, sizes, 1, sd, rng)
    compression = compression_of(Marginals(domain=domain, one_way=one_way, larger=()), config)[1]
    larger = tuple(
        measure_merged(pair, compression) for pair in noisy_counts(rows, sizes, 2, sd, rng)
    )
    known = normalize_marginals(Marginals(domain=domain, one_way=one_way, larger=larger), config)
    (codes,) = synthesize_blocks(known, config, METHODS[method].model_copy(update={"seed": seed}))
    return codes, domain
