"""Rules between sections: settings that do not fit together are refused, with the key to change."""

from __future__ import annotations

import math
from collections.abc import Sequence

from marginweave.configuration.attributes import check_records
from marginweave.configuration.columns import Category, IdentifierColumn, MeasuredColumn, SetColumn
from marginweave.configuration.columns.binned import BinnedColumn
from marginweave.configuration.default_records import MOST_MARGINALS
from marginweave.configuration.defaults import NEEDED
from marginweave.configuration.marginals import (
    AdaptiveCliques,
    AllCliques,
    MarginalSettings,
    TargetTable,
)
from marginweave.configuration.preparation import WeightedImputation
from marginweave.configuration.rules.structure import Structure
from marginweave.configuration.sections import Sections


def check_preparation(configuration: Sections) -> None:
    """Refuse a unit, an imputation, a resize, forbidden combinations or private bounds that do not fit; raises ValueError."""
    subject = configuration.privacy.subject
    if subject is not None:
        column = configuration.columns.get(subject.column)
        if column is not None and not isinstance(column, IdentifierColumn):
            raise ValueError(
                f"privacy.unit names column {subject.column!r}, which must be of type identifier or not be among the columns"
            )
    structure = configuration.structure or Structure()
    check_records(configuration.attributes, configuration.excluded_by(structure))
    _check_exact(configuration, structure)
    if not configuration.synthesize.complete:
        _check_no_missing_forbidden(configuration)
    for name, column in configuration.columns.items():
        if isinstance(column, MeasuredColumn) and column.impute is not None:
            _check_imputation(configuration, name, column)
    if configuration.resize is not None:
        _check_resize(configuration)
    _check_filled_sets(configuration)


def _check_no_missing_forbidden(configuration: Sections) -> None:
    """Refuse a forbidden missing value where records may stay incomplete (ValueError)."""
    for box in configuration.forbidden:
        if any(None in labels for _, labels in box):
            raise ValueError(
                "structure.forbidden names a missing value, which synthesize.relax: false leaves in records that cannot "
                "grow; leave relax out"
            )


def _check_filled_sets(configuration: Sections) -> None:
    """Refuse min_values where a set can still be empty, or is counted as one attribute (ValueError)."""
    for name, column in configuration.columns.items():
        if not isinstance(column, SetColumn) or column.min_values is None:
            continue
        needed = None
        if configuration.marginals is None:
            needed = "aggregate: {method: marginals}"
        elif configuration.missing_texts(name):
            needed = "missing: [], as no text of it means “no value”"
        elif configuration.resize:
            needed = "a table without resize, whose added records have no values"
        if needed:
            raise ValueError(f"column {name!r} has min_values, which needs {needed}")


def _check_exact(configuration: Sections, structure: Structure) -> None:
    """Refuse columns that an order, a difference or a sum needs and that can be read back as missing (ValueError)."""
    exact = {("ordered", name) for pair in structure.orders for name in pair}
    exact |= {(rule.key, rule.computed) for rule in structure.totals}
    for key, name in sorted(exact):
        column = configuration.columns[name]
        if (
            isinstance(column, BinnedColumn)
            and column.runs(configuration.missing_texts(name)) is not None
        ):
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
    """Refuse an imputation that the kind of column cannot have, or weights of other values (ValueError)."""
    place = f"columns.{name}.impute"
    impute = column.impute
    structure = configuration.structure
    if structure and structure.rule_of(name):
        raise ValueError(
            f"{place} must not stand in a computed column: its values come from others"
        )
    assert impute is not None
    if column.is_set:
        raise ValueError(
            f"{place} must not stand in a set: a cell without values is a separate value"
        )
    possible = ("weights",) if column.private else column.imputations
    if impute.kind not in possible:
        raise ValueError(f"{place} ({impute.kind}) must be {' or '.join(possible)}: {impute.needs}")
    if isinstance(impute, WeightedImputation) and not column.private:
        codes = [column.code_of(value) for value in impute.weights]
        if min(codes) < 0 or len(set(codes)) < len(codes):
            raise ValueError(f"{place}.weights must name declared values, each once")


def _check_resize(configuration: Sections) -> None:
    """Refuse a resize without values for the added records, or with amplification where its formulas do not hold (ValueError).

    An added record has an imputed value, or any value of a column without declared missing values; its sets are empty.
    """
    for attribute in configuration.attributes:
        column = configuration.columns[attribute.column]
        undeclared = attribute.name in configuration.undeclared and not attribute.optional
        if not (attribute.imputed or undeclared or column.is_set):
            raise ValueError(
                f"resize needs impute for column {attribute.column!r}: records that are added have no other value"
            )
    if configuration.resize is None or not configuration.resize.amplify:
        return
    if configuration.privacy.stability.records > 1:
        raise ValueError(
            "resize.amplify (true) must be false where a subject has several records: its formulas are for one"
        )
    if configuration.private_bounds:
        raise ValueError(
            "resize.amplify (true) must be false with bounds: private, which are bought before the table is sampled"
        )


def check_privacy(configuration: Sections) -> None:
    """Refuse a delta of 0 where a draw needs more; raises ValueError."""
    if configuration.privacy.delta:
        return
    reason = _reason_for_delta(configuration)
    if reason is not None:
        raise ValueError(
            f"privacy.delta (0) must be positive {reason}; for 0 {_pure_advice(configuration)}"
        )


def _pure_advice(configuration: Sections) -> str:
    """Return what has no draw that needs a delta: all pairs, or single columns where there are no pairs or very many."""
    columns = len(configuration.attributes)
    length = 2 if 0 < math.comb(columns, 2) <= MOST_MARGINALS else 1
    return f"write aggregate: {{method: marginals, cliques: {{all: {length}}}, noise: laplace}}, with public domains and bounds"


def check_automatic_privacy(configuration: Sections, synthesis: str) -> None:
    """Refuse a delta of 0 where `auto`, or the method of `synthesis`, decides what is counted; raises ValueError."""
    if configuration.privacy.delta:
        return
    if synthesis in NEEDED:
        reason = f"with synthesize.method: {synthesis}"
        advice = f"leave the method out and {_pure_advice(configuration)}"
    else:
        reason = "where aggregate is left to auto"
        advice = _pure_advice(configuration)
    raise ValueError(
        f"privacy.delta (0) must be positive {reason}, whose counts have Gaussian noise; write a small one such as 1e-6, or "
        f"for 0 {advice}"
    )


def _reason_for_delta(configuration: Sections) -> str | None:
    """Return words for a draw that has no pure epsilon; None if every draw has one."""
    settings = configuration.marginals
    resize = configuration.resize
    reason = None
    if settings is None:
        reason = "where k-tuples are counted, with Gaussian noise"
    elif settings.noise == "gaussian":
        reason = "with aggregate.noise: gaussian"
    elif configuration.private_columns:
        reason = "with a private domain"
    elif configuration.private_bounds:
        reason = "with private bounds"
    elif settings.selects(len(configuration.attributes)):
        reason = "where marginals are selected"
    elif resize is not None and resize.amplify:
        reason = "with resize.amplify"
    return reason


MAX_PAIRS = 5_000_000
"""Most pairs of values of marginals for aggregate-seeded synthesis; 4.9 million took 1.2 GB, and 49 s for 200,000 records."""


def check_marginals(configuration: Sections) -> None:
    """Refuse methods that do not fit together, and marginals that the attributes do not have; raises ValueError."""
    settings = configuration.marginals
    method = configuration.synthesize.method
    sets = [
        f"column {attribute.name!r}, a set"
        for attribute in configuration.attributes
        if attribute.is_set
    ]
    if settings is None:
        if method != "aggregate-seeded" and sets:
            raise ValueError(
                f"synthesize.method ({method}) cannot make records of {sets[0]} counted in k-tuples; use aggregate-seeded, "
                "aggregate.method: marginals, or a boolean column for each value"
            )
        return
    if method == "aggregate-seeded":
        _check_pairs(configuration)
    if sets:  # each value of a set with a public domain is an attribute
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
    _check_least_records(configuration, settings)


def _check_least_records(configuration: Sections, settings: MarginalSettings) -> None:
    """Refuse `least_records` beside settings with which few pairs cannot be measured instead (ValueError)."""
    if settings.least_records is None:
        return
    reason = None
    if settings.noise != "gaussian":
        reason = "aggregate.noise: gaussian"
    elif settings.cliques != "selected" and not isinstance(settings.cliques, AllCliques):
        reason = "aggregate.cliques: selected or {all: k}"
    elif configuration.private_columns:
        reason = "public domains"
    elif configuration.synthesize.method == "aggregate-seeded":
        reason = "synthesize.method: mixture or gum"
    if reason is not None:
        raise ValueError(f"aggregate.least_records ({settings.least_records}) needs {reason}")


def _check_pairs(configuration: Sections) -> None:
    """Refuse marginals of private domains, or with too many pairs of values, for aggregate-seeded synthesis (ValueError)."""
    beginning = "synthesize.method (aggregate-seeded) cannot make records of marginals with"
    for name in configuration.private_columns:
        raise ValueError(
            f"{beginning} the private domain {name!r}, as it needs every pair of values; use k-tuples, mixture or gum"
        )
    sizes = [len(attribute.labels) for attribute in configuration.attributes]
    # The sum of n_i n_j over i < j is ((sum of n_i)^2 - sum of n_i^2) / 2.
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    if pairs > MAX_PAIRS:
        raise ValueError(
            f"{beginning} {pairs} pairs of values, more than {MAX_PAIRS}, as it needs each of them; use k-tuples, mixture "
            "or gum"
        )


def _check_cliques(configuration: Sections, settings: MarginalSettings, names: list[str]) -> None:
    """Refuse cliques that do not fit the noise, the synthesis or the attributes, which have these names (ValueError)."""
    cliques = settings.cliques
    if isinstance(cliques, AdaptiveCliques) and settings.noise not in ("gaussian", "auto"):
        raise ValueError(
            f"aggregate.noise ({settings.noise}) must be gaussian with adaptive cliques"
        )
    if cliques != "selected" and settings.merge_cells != "none" and settings.preset == "default":
        raise ValueError(
            f"aggregate.merge_cells ({settings.merge_cells}) needs aggregate.cliques: selected, whose pairs it merges"
        )
    method = configuration.synthesize.method
    if isinstance(cliques, AdaptiveCliques) and cliques.coarsen and method != "mixture":
        raise ValueError(
            "aggregate.cliques.coarsen needs synthesize.method: mixture, which alone takes coarser bins beside fine ones; "
            f"with {method} leave coarsen out"
        )
    if isinstance(cliques, AllCliques):
        if cliques.coarsen and (method != "mixture" or cliques.all < 3):
            raise ValueError(
                "aggregate.cliques.coarsen needs triples and synthesize.method: mixture, which alone takes coarser bins "
                f"beside fine ones; with {method} and all: {cliques.all} leave coarsen out"
            )
        if cliques.target is not None:
            _check_target_table(configuration, cliques.target, names)
        if cliques.all > len(names):
            raise ValueError(
                f"aggregate.cliques.all ({cliques.all}) must be at most the number of attributes ({len(names)})"
            )
    if isinstance(cliques, tuple):
        _check_list(configuration, cliques, names)


def _check_target_table(configuration: Sections, target: TargetTable, names: Sequence[str]) -> None:
    """Refuse a target beside records that take no such table, or an unknown attribute (ValueError)."""
    method = configuration.synthesize.method
    if method != "mixture":
        raise ValueError(
            "aggregate.cliques.target needs synthesize.method: mixture, which alone takes a table in two bins beside "
            f"fine ones; with {method} leave target out"
        )
    for name in target.columns:
        if name not in names:
            raise _unknown_attribute(configuration, name, "aggregate.cliques.target")


def _check_list(
    configuration: Sections, cliques: tuple[tuple[str, ...], ...], names: list[str]
) -> None:
    """Refuse a list of marginals with a single, unknown or repeated attribute, or a repeated marginal (ValueError)."""
    for clique in cliques:
        if len(clique) < 2:
            raise ValueError(
                "aggregate.cliques must have two and more attributes each; single ones are always measured"
            )
        for name in clique:
            if name not in names:
                raise _unknown_attribute(configuration, name)
        if len(set(clique)) < len(clique):
            raise ValueError(f"aggregate.cliques has an attribute twice in [{', '.join(clique)}]")
    if len({frozenset(clique) for clique in cliques}) < len(cliques):
        raise ValueError("aggregate.cliques has a marginal twice")


def check_target(configuration: Sections) -> None:
    """Refuse a target that is no counted attribute; raises ValueError."""
    names = [attribute.name for attribute in configuration.attributes]
    for name in configuration.target or ():
        if name not in names:
            raise _unknown_attribute(configuration, name, "target")


def _unknown_attribute(
    configuration: Sections, name: str, key: str = "aggregate.cliques"
) -> ValueError:
    """Return the error for a name that is no attribute."""
    for attribute in configuration.attributes:
        if attribute.of_set and attribute.column == name:
            reason = (
                f"a set that is measured value by value; name its values, as {attribute.name!r}"
            )
            return ValueError(f"{key} names {name!r}, {reason}")
    return ValueError(f"{key} names {name!r}, which is no attribute that is counted")


def check_evaluation(configuration: Sections) -> None:
    """Refuse an order that is not declared; raises ValueError."""
    single = [attribute.name for attribute in configuration.attributes if not attribute.is_set]
    ordered = configuration.evaluate.ordered or ()
    if len(set(ordered)) < len(ordered):
        raise ValueError("evaluate.ordered names a column twice")
    for name in ordered:
        column = configuration.columns.get(name)
        if name not in single or not isinstance(column, Category) or column.private:
            raise ValueError(
                f"evaluate.ordered names {name!r}, which must be a counted category with public values"
            )
