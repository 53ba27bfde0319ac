"""Chance before counting: decisions because of which two releases of the same rows count other records.

Noise is not part of it. Each release chooses again which rows of a subject are counted, which values replace missing cells or
cells that break a rule, and which values or combinations of a record are left out. Public: it follows from declarations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from marginweave.configuration.release import Configuration
from marginweave.prepare.repair import Repair


@dataclass(frozen=True, kw_only=True)
class Chance:
    """The attributes whose counts depend on chance, the lengths of combinations that do, and what chance decides.

    `rows` and `cut_sets` say in words what is counted of the rows, and of the values of sets, that are there. `imputed` and
    `repaired` are the columns in which a cell without a value, or a row that breaks a rule, has a value by chance.

    Each count is then a sum over subjects that are independent of each other. What a subject adds is in turn distributed as a
    sum of independent 0 or 1: a fixed number of its rows is chosen uniformly, and each is counted in a cell or not by itself
    (strongly Rayleigh measures: Borcea, Branden and Liggett 2009). For a resized table (`resized`) that does not hold, as the
    number of synthetic records that are added is random.
    """

    attributes: frozenset[int] = frozenset()
    lengths: frozenset[int] = frozenset()
    rows: str | None = None
    imputed: tuple[str, ...] = ()
    cut_sets: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    resized: bool = False

    @property
    def is_any(self) -> bool:
        """True if chance decides anything."""
        return bool(self.attributes or self.lengths or self.resized)

    def decides(self, attributes: Sequence[int]) -> bool:
        """Return whether joint counts of these attributes depend on chance."""
        return not self.attributes.isdisjoint(attributes) or len(attributes) in self.lengths


def chance_before_counting(
    configuration: Configuration,
    labels: Sequence[Sequence[str]],
    bounds: Mapping[int, int],
) -> Chance:
    """Return what chance decides before a table is counted; `bounds` are those of combinations of k-tuples by their length."""
    counted = configuration.with_undeclared(configuration.undeclared)
    attributes = counted.attributes
    imputed: set[int] = set()
    cut: set[int] = set()
    for j, attribute in enumerate(attributes):
        if attribute.imputed:
            imputed.add(j)
        if attribute.column in configuration.cut_sets:
            cut.add(j)
    by_chance = Repair(counted, labels).drawn(imputed | cut)
    is_cut = configuration.is_cut
    lengths = frozenset(length for length, bound in bounds.items() if is_cut(length, bound))
    privacy = configuration.privacy
    rows = None if privacy.joins else privacy.counted_words

    def columns(numbers: Collection[int]) -> tuple[str, ...]:
        names = {attributes[j].column for j in numbers}
        return tuple(sorted(names))

    return Chance(
        attributes=frozenset(range(len(attributes))) if rows else by_chance,
        lengths=lengths,
        rows=rows,
        imputed=columns(imputed),
        cut_sets=tuple(configuration.cut_sets.values()),
        repaired=columns(by_chance - imputed - cut),
        resized=configuration.resize is not None,
    )
