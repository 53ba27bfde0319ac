"""Rules between the methods of aggregation and synthesis, and between marginals and the attributes they are made of."""

from __future__ import annotations

from marginweave.schemas.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.schemas.configuration.sections import Sections

MAX_PAIRS = 5_000_000
"""Pairs of values that aggregate-seeded synthesis has of marginals; 4.9 million took 1.2 GB, and 49 s of 200,000 records."""


def check_marginals(configuration: Sections) -> None:
    """Refuse methods that do not go together, and marginals that the attributes do not have; raises ValueError."""
    settings, method = configuration.marginals, configuration.synthesize.method
    if settings is None:
        if method != "aggregate-seeded":
            _refuse_sets(
                configuration,
                f"synthesize.method ({method}) cannot make records of",
                "counted in k-tuples; use aggregate-seeded, aggregate.method: marginals, or a boolean column for each value",
            )
        return
    if method == "aggregate-seeded":
        _check_pairs(configuration)
    if configuration.privacy.accountant == "sds":
        raise ValueError("privacy.accountant (sds) must be gdp or zcdp with aggregate.method: marginals")
    _refuse_sets(
        configuration,
        "aggregate.method (marginals) cannot measure",
        "with a private domain: each value is an attribute of its own; declare the values, or use k-tuples",
    )
    names = [attribute.name for attribute in configuration.attributes]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"columns has {name!r} twice, once as a value of a set that is measured by itself; rename a column"
            )
    _check_cliques(configuration, settings, names)


def _check_pairs(configuration: Sections) -> None:
    """Refuse marginals whose pairs of values, measured or not, are too many to be looked up one by one."""
    what, other = (
        "synthesize.method (aggregate-seeded) cannot make records of marginals with",
        "k-tuples, mixture or gum",
    )
    for attribute in configuration.attributes:
        if attribute.private:
            raise ValueError(
                f"{what} the private domain {attribute.name!r}, as it needs every pair of values; use {other}"
            )
    sizes = [len(attribute.labels) for attribute in configuration.attributes]
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    if pairs > MAX_PAIRS:
        raise ValueError(
            f"{what} {pairs} pairs of values, more than {MAX_PAIRS}, as it needs each of them; use {other}"
        )


def _refuse_sets(configuration: Sections, what: str, why: str) -> None:
    for attribute in configuration.attributes:
        if attribute.is_set:  # of the others each value is an attribute
            raise ValueError(f"{what} column {attribute.name!r}, a set {why}")


def _check_cliques(configuration: Sections, settings: MarginalSettings, names: list[str]) -> None:
    chosen = settings.cliques
    if isinstance(chosen, AdaptiveCliques) and settings.noise == "laplace":
        raise ValueError("aggregate.noise (laplace) must be gaussian with adaptive cliques")
    if chosen != "selected" and settings.merge_cells != "none" and settings.preset == "default":
        raise ValueError(
            f"aggregate.merge_cells ({settings.merge_cells}) needs aggregate.cliques: selected, whose pairs it merges"
        )
    if isinstance(chosen, AllCliques) and chosen.all > len(names):
        raise ValueError(
            f"aggregate.cliques.all ({chosen.all}) must be at most the number of attributes ({len(names)})"
        )
    if isinstance(chosen, tuple):
        _check_list(configuration, chosen, names)


def _check_list(configuration: Sections, chosen: tuple[tuple[str, ...], ...], names: list[str]) -> None:
    for clique in chosen:
        if len(clique) < 2:
            raise ValueError(
                "aggregate.cliques must have two and more attributes each; single ones are always measured"
            )
        for name in clique:
            if name not in names:
                raise _unknown(configuration, name)
        if len(set(clique)) < len(clique):
            raise ValueError(f"aggregate.cliques has an attribute twice in [{', '.join(clique)}]")
    if len({frozenset(clique) for clique in chosen}) < len(chosen):
        raise ValueError("aggregate.cliques has a marginal twice")


def _unknown(configuration: Sections, name: str) -> ValueError:
    values = [a.name for a in configuration.attributes if a.of_set and name in a.columns]
    told = f"a set that is measured value by value; name its values, as {values[0]!r}" if values else ""
    return ValueError(f"aggregate.cliques names {name!r}, {told or 'which is no attribute that is counted'}")
