"""Rules between sections: what does not go together is refused, by the key to change."""

from __future__ import annotations

import math

from marginweave.configuration.attributes import check_records
from marginweave.configuration.columns import Category, IdentifierColumn, MeasuredColumn, SetColumn
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.defaults import NEEDED
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.configuration.preparation import WeightedImputation
from marginweave.configuration.rules.structure import Structure
from marginweave.configuration.sections import Sections

_PURE = "write aggregate: {method: marginals, cliques: {all: 2}, noise: laplace}, with public domains and bounds"


def check_preparation(configuration: Sections) -> None:
    """Refuse a unit, an imputation, a resize, forbidden combinations or private bounds that do not fit; raises ValueError."""
    subject = configuration.privacy.subject
    named = None if subject is None else configuration.columns.get(subject.column)
    if subject is not None and named is not None and not isinstance(named, IdentifierColumn):
        raise ValueError(
            f"privacy.unit names column {subject.column!r}, which must be of type identifier or not be among the columns"
        )
    structure = configuration.structure or Structure()
    forbidden = configuration.excluded_by(structure)
    check_records(configuration.attributes, forbidden)
    _check_exact(configuration, structure)
    if not configuration.synthesize.complete and any(
        None in labels for box in configuration.forbidden for _, labels in box
    ):
        raise ValueError(
            "structure.forbidden names a missing value, which synthesize.relax: false leaves in records that cannot grow; "
            "leave relax out"
        )
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn) and column.impute is not None:
            _check_imputation(configuration, name, column)
    if configuration.resize is not None:
        _check_resize(configuration)
    _check_filled_sets(configuration)


def _check_filled_sets(configuration: Sections) -> None:
    """Refuse min_values where a set can be empty all the same, or is counted as one attribute (ValueError)."""
    for name, column in configuration.columns.items():
        if isinstance(column, SetColumn) and column.min_values is not None:
            why = ["aggregate: {method: marginals}"] if configuration.marginals is None else []
            why += ["missing: [], as no text of it means “no value”"] if configuration.missing_texts(name) else []
            why += ["a table without resize, whose added records have no values"] if configuration.resize else []
            if why:
                raise ValueError(f"column {name!r} has min_values, which needs {why[0]}")


def _check_exact(configuration: Sections, structure: Structure) -> None:
    """Refuse columns that an order, a difference or a sum needs and that can be read back as missing (ValueError)."""
    named = {("ordered", name) for pair in structure.orders for name in pair}
    named |= {(rule.key, rule.computed) for rule in structure.totals}
    for key, name in sorted(named):
        column = configuration.columns[name]
        if isinstance(column, BinnedColumn) and column.runs(configuration.missing_texts(name)) is not None:
            raise ValueError(
                f"structure.{key} has {name!r}, whose missing or special codes must lie outside of its bounds"
            )
    for rule in structure.difference or ():
        if not configuration.lacks_values(rule.column) and configuration.lacks_values(rule.since):
            raise ValueError(
                f"structure.difference has {rule.column!r}, which is imputed, since {rule.since!r}, which can be missing; "
                "declare missing for both, or impute for both"
            )


def _check_imputation(configuration: Sections, name: str, column: MeasuredColumn) -> None:
    place, impute = f"columns.{name}.impute", column.impute
    structure = configuration.structure
    if structure and structure.rule_of(name):
        raise ValueError(f"{place} must not stand in a computed column: its values come from others")
    assert impute is not None
    if column.is_set:
        raise ValueError(f"{place} must not stand in a set: a cell without values is a separate value")
    possible = ("weights",) if column.private else column.imputations
    if impute.kind not in possible:
        raise ValueError(f"{place} ({impute.kind}) must be {' or '.join(possible)}: {impute.needs}")
    if isinstance(impute, WeightedImputation) and not column.private:
        codes = [column.code_of(value) for value in impute.weights]
        if min(codes) < 0 or len(set(codes)) < len(codes):
            raise ValueError(f"{place}.weights must name declared values, each once")


def _check_resize(configuration: Sections) -> None:
    """Added records need values: what `impute` says, or any, where none is declared missing; a set of theirs is empty."""
    for attribute in configuration.attributes:
        column = configuration.columns[attribute.column]
        undeclared = attribute.name in configuration.undeclared and not attribute.optional
        if not (attribute.imputed or undeclared or column.is_set):
            raise ValueError(
                f"resize needs impute for column {attribute.column!r}: records that are added have no other value"
            )
    resize, privacy = configuration.resize, configuration.privacy
    if resize is None or not resize.amplify:
        return
    if privacy.stability.records > 1:
        raise ValueError(
            "resize.amplify (true) must be false where a subject has several records: its formulas are for one"
        )
    if configuration.private_bounds:
        raise ValueError(
            "resize.amplify (true) must be false with bounds: private, which are bought before the table is sampled"
        )


def check_privacy(configuration: Sections) -> None:
    """Refuse a delta of 0 where a draw needs more; raises ValueError."""
    privacy = configuration.privacy
    if not privacy.delta:
        needs = _needs_delta(configuration)
        if needs is not None:
            raise ValueError(f"privacy.delta (0) must be positive {needs}; for 0 {_PURE}")


def check_automatic_privacy(configuration: Sections, maker: str) -> None:
    """Refuse a delta of 0 where `auto`, or the `maker` of records, decides what is counted; raises ValueError."""
    if configuration.privacy.delta:
        return
    is_needed = maker in NEEDED
    reason = f"with synthesize.method: {maker}" if is_needed else "where aggregate is left to auto"
    raise ValueError(
        f"privacy.delta (0) must be positive {reason}, whose counts have Gaussian noise; write a small one such as 1e-6, or "
        f"for 0 {'leave the method out and ' if is_needed else ''}{_PURE}"
    )


def _needs_delta(configuration: Sections) -> str | None:
    """What is drawn that has no pure epsilon, in words; None for nothing."""
    settings, resize = configuration.marginals, configuration.resize
    if settings is None:
        return "where k-tuples are counted, with Gaussian noise"
    if settings.noise == "gaussian":
        return "with aggregate.noise: gaussian"
    for needed, words in (
        (bool(configuration.private_columns), "with a private domain"),
        (bool(configuration.private_bounds), "with private bounds"),
        (settings.selects(len(configuration.attributes)), "where marginals are selected"),
        (resize is not None and resize.amplify, "with resize.amplify"),
    ):
        if needed:
            return words
    return None


MAX_PAIRS = 5_000_000
"""Pairs of values that aggregate-seeded synthesis has of marginals; 4.9 million took 1.2 GB, and 49 s of 200,000 records."""


def check_marginals(configuration: Sections) -> None:
    """Refuse methods that do not go together, and marginals that the attributes do not have; raises ValueError."""
    settings, method = configuration.marginals, configuration.synthesize.method
    sets = [f"column {attribute.name!r}, a set" for attribute in configuration.attributes if attribute.is_set]
    if settings is None:
        if method != "aggregate-seeded" and sets:
            raise ValueError(
                f"synthesize.method ({method}) cannot make records of {sets[0]} counted in k-tuples; use aggregate-seeded, "
                "aggregate.method: marginals, or a boolean column for each value"
            )
        return
    if method == "aggregate-seeded":
        _check_pairs(configuration)
    if sets:  # of the others each value is an attribute
        raise ValueError(
            f"aggregate.method (marginals) cannot measure {sets[0]} with a private domain: each value is a separate "
            "attribute; declare the values, or use k-tuples"
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
    what = "synthesize.method (aggregate-seeded) cannot make records of marginals with"
    for name in configuration.private_columns:
        raise ValueError(
            f"{what} the private domain {name!r}, as it needs every pair of values; use k-tuples, mixture or gum"
        )
    sizes = [len(attribute.labels) for attribute in configuration.attributes]
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    if pairs > MAX_PAIRS:
        raise ValueError(
            f"{what} {pairs} pairs of values, more than {MAX_PAIRS}, as it needs each of them; use k-tuples, mixture or gum"
        )


def _check_cliques(configuration: Sections, settings: MarginalSettings, names: list[str]) -> None:
    chosen = settings.cliques
    if isinstance(chosen, AdaptiveCliques) and settings.noise not in ("gaussian", "auto"):
        raise ValueError(f"aggregate.noise ({settings.noise}) must be gaussian with adaptive cliques")
    if chosen != "selected" and settings.merge_cells != "none" and settings.preset == "default":
        raise ValueError(
            f"aggregate.merge_cells ({settings.merge_cells}) needs aggregate.cliques: selected, whose pairs it merges"
        )
    method = configuration.synthesize.method
    least = 3 if method == "mixture" else math.inf
    if isinstance(chosen, AllCliques) and chosen.coarsen and chosen.all < least:
        raise ValueError(
            "aggregate.cliques.coarsen needs triples and synthesize.method: mixture, which alone takes coarser bins beside "
            f"fine ones; with {method} and all: {chosen.all} leave coarsen out"
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
    values = [a.name for a in configuration.attributes if a.of_set and a.column == name]
    hint = f"a set that is measured value by value; name its values, as {values[0]!r}" if values else ""
    return ValueError(f"aggregate.cliques names {name!r}, {hint or 'which is no attribute that is counted'}")


def check_evaluation(configuration: Sections) -> None:
    """Refuse an order that is not declared; raises ValueError."""
    single = [attribute.name for attribute in configuration.attributes if not attribute.is_set]
    ordered = configuration.evaluate.ordered or ()
    if len(set(ordered)) < len(ordered):
        raise ValueError("evaluate.ordered names a column twice")
    for name in ordered:
        column = configuration.columns.get(name)
        if name not in single or not isinstance(column, Category) or column.private:
            raise ValueError(f"evaluate.ordered names {name!r}, which must be a counted category with public values")
