"""Known tables over the codes of what is counted, and what they may not say."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marginweave.configuration.attributes import Attribute
from marginweave.configuration.earlier import KnownRelease
from marginweave.configuration.known import KnownTable
from marginweave.configuration.sections import Sections
from marginweave.configuration.synthesis import MAX_RECORDS
from marginweave.configuration.values import MAX_TABLE, ValueMatcher, listed, number

Codes = tuple[int, ...]
_MOST = 10**10  # as many cells as a table may have add up to less than 2^53, where sums are exact


@dataclass(frozen=True, kw_only=True)
class KnownTotals:
    """A declared table over codes, as a rule without noise: no observation, for it may be of any number of records.

    Counts above 0 by the codes of `attributes`, which increase and have `sizes` codes each. `estimate.known` makes an
    observation of it, scaled to the records of a release.
    """

    table: KnownTable
    attributes: Codes
    sizes: Codes
    counts: Mapping[Codes, float]

    @property
    def exact(self) -> bool:
        """Whether records have to add up to it."""
        return self.table.sd is None

    @property
    def total(self) -> float:
        """Of all counts."""
        return sum(self.counts.values())

    def margin(self, attributes: Sequence[int]) -> dict[Codes, float]:
        """Sums above 0 of the combinations of some of its attributes."""
        places, sums = [self.attributes.index(a) for a in attributes], defaultdict[Codes, float](float)
        for codes, count in self.counts.items():
            sums[tuple(codes[place] for place in places)] += count
        return dict(sums)


def known_totals(configuration: Sections) -> tuple[KnownTotals, ...]:
    """The known tables over codes; raises ValueError for what cannot be one."""
    return tuple(
        _totals(configuration, table, f"known, entry {n}")
        for n, table in enumerate(configuration.known or (), start=1)
        if isinstance(table, KnownTable)
    )


def _totals(configuration: Sections, table: KnownTable, key: str) -> KnownTotals:
    places = [_place(configuration, name, key) for name in table.columns]
    if len(set(places)) < len(places):
        raise ValueError(f"{key}: columns names a column twice")
    order = sorted(range(len(places)), key=places.__getitem__)
    attributes = [configuration.attributes[place] for place in places]
    sizes = [len(attribute.labels) + attribute.optional for attribute in attributes]
    if math.prod(sizes) > MAX_TABLE:
        raise ValueError(f"{key} has {math.prod(sizes)} combinations, more than {MAX_TABLE}; use fewer columns")
    counts: dict[Codes, float] = {}
    for row in table.table:
        if len(row) != len(places) + 1:
            raise ValueError(
                f"{key}: table has the row [{', '.join(row)}], which must be a value of each of {table.name}, then the count"
            )
        codes = [_code(configuration, a, text, key) for a, text in zip(attributes, row[:-1], strict=True)]
        cell = tuple(codes[i] for i in order)
        if cell in counts:
            raise ValueError(f"{key}: table has [{', '.join(row[:-1])}] twice; keep one")
        counts[cell] = _count(row, table, key)
    found = KnownTotals(
        table=table,
        attributes=tuple(places[i] for i in order),
        sizes=tuple(sizes[i] for i in order),
        counts={codes: count for codes, count in counts.items() if count},
    )
    if not found.counts:
        raise ValueError(f"{key}: table must have a count above 0")
    if table.others is None and len(counts) < math.prod(sizes):
        cell = next(codes for codes in itertools.product(*map(range, found.sizes)) if codes not in counts)
        labels = [
            (*configuration.attributes[a].labels, "no value")[v] for a, v in zip(found.attributes, cell, strict=True)
        ]
        unlisted = f"[{', '.join(labels)}]: list every combination, or say others: 0 if no other has a record"
        raise ValueError(f"{key}: table does not list {unlisted}")
    return found


def _place(configuration: Sections, name: str, key: str) -> int:
    if name not in configuration.columns and all(name != attribute.name for attribute in configuration.attributes):
        raise ValueError(f"{key}: columns names {name!r}, which is not among columns")
    places = {attribute.name: j for j, attribute in enumerate(configuration.attributes)}
    attribute = configuration.attributes[places[name]] if name in places else None
    bought = {*configuration.private_bounds, *configuration.private_columns}
    if attribute is None or attribute.is_set or attribute.of_set or name in bought:
        raise ValueError(
            f"{key}: columns names {name!r}, which must be a column that is counted by itself, with one public "
            "value a cell"
        )
    return places[name]


def _code(configuration: Sections, attribute: Attribute, text: str, key: str) -> int:
    """The code of a value, or of the missing one, as the configuration spells it."""
    name = attribute.column
    absent = ValueMatcher(configuration.missing_texts(name)).index(text) >= 0
    if attribute.optional and (absent or not text.strip()):
        return len(attribute.labels)
    labels = attribute.labels
    code = configuration.columns[name].code_of(text)
    if not 0 <= code < len(labels):
        values = f"{attribute.name!r}; its values: {listed(labels)}"
        raise ValueError(f"{key}: table has {text!r}, which is no value of {values}")
    return code


def _count(row: Sequence[str], table: KnownTable, key: str) -> float:
    count = number(row[-1].strip())
    if count is None or not 0 <= count <= _MOST:
        raise ValueError(
            f"{key}: table has the count {row[-1]!r}, which must be a number in [0, {_MOST}], without marks between thousands"
        )
    if table.sd is None and count % 1:
        raise ValueError(f"{key}: table has the count {row[-1]}, which is not exact: say its sd, or write it whole")
    return float(count)


def check_earlier(configuration: Sections, earlier: Sequence[KnownRelease]) -> None:
    """Refuse earlier releases where records are chosen by chance or bounded, or one that is named twice; raises ValueError."""
    if not earlier:
        return
    if configuration.marginals is None:
        raise ValueError("known has an earlier release, which needs aggregate: {method: marginals}, as it was counted")
    if configuration.resize is not None or configuration.privacy.subject is not None:
        raise ValueError(
            "known has an earlier release, and records are chosen by chance (resize, or privacy.unit with a column): they are "
            "not those that were counted then; leave the earlier release out"
        )
    if len({known.release.id for known in earlier}) < len(earlier):
        raise ValueError("known names an earlier release twice; its counts tell what they tell once")


def check_known(configuration: Sections, totals: Sequence[KnownTotals]) -> None:
    """Refuse exact tables that disagree, or a number of records that they cannot add up to; raises ValueError."""
    exact = [known for known in totals if known.exact]
    for one, other in itertools.combinations(exact, 2):
        shared = [a for a in one.attributes if a in other.attributes]
        if one.total != other.total:
            raise ValueError(
                f"known has exact tables of {one.table.name} and of {other.table.name} that add up to {one.total:.0f} and "
                f"{other.total:.0f}, which must be the same; give one of them an sd"
            )
        if one.margin(shared) != other.margin(shared):
            names = ", ".join(configuration.attributes[a].name for a in shared)
            raise ValueError(
                f"known has exact tables of {one.table.name} and of {other.table.name} whose sums over {names} differ; "
                "correct one, or give it an sd"
            )
    records = configuration.synthesize.records
    if exact and (records == "exhaust" or not configuration.synthesize.complete):
        raise ValueError(
            "synthesize has records: exhaust or relax: false, which must be left out beside an exact known table, or records "
            "would be too few, or incomplete"
        )
    if exact and records == "count" and exact[0].total > MAX_RECORDS:
        raise ValueError(
            f"known adds up to {exact[0].total:.0f} records, more than the {MAX_RECORDS} that can be made; "
            "write synthesize.records: N, which takes it in shares"
        )
