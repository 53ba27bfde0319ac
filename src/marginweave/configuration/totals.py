"""Known tables over the codes of attributes, and the rules that they must keep."""

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
_MOST = 10**10  # with the most cells of a table, sums are below 2^53, where they are exact


@dataclass(frozen=True, kw_only=True)
class KnownTotals:
    """A declared table over codes, as a rule without noise. It is unscaled: its total may differ from the release's.

    `counts` has the counts above 0 by the codes of `attributes`, which are in increasing order and have `sizes` codes.
    `estimate.known` makes an observation of it, scaled to the records of a release.
    """

    table: KnownTable
    attributes: Codes
    sizes: Codes
    counts: Mapping[Codes, float]

    @property
    def crossed_names(self) -> str:
        """Its columns in words, as those of a set."""
        return " x ".join(self.table.columns)

    @property
    def exact(self) -> bool:
        """Return whether records must have exactly these counts."""
        return self.table.sd is None

    @property
    def total(self) -> float:
        """Sum of all counts."""
        return sum(self.counts.values())

    def margin(self, attributes: Sequence[int]) -> dict[Codes, float]:
        """Return the sums above 0 of the combinations of some of its attributes."""
        places = [self.attributes.index(attribute) for attribute in attributes]
        sums = defaultdict[Codes, float](float)
        for codes, count in self.counts.items():
            sums[tuple(codes[place] for place in places)] += count
        return dict(sums)


def known_totals(configuration: Sections) -> tuple[KnownTotals, ...]:
    """Return the known tables over codes; raises ValueError for a table that breaks a rule."""
    totals = list[KnownTotals]()
    for position, entry in enumerate(configuration.known or (), start=1):
        if isinstance(entry, KnownTable):
            totals.append(_totals(configuration, entry, f"known, entry {position}"))
    return tuple(totals)


def _totals(configuration: Sections, table: KnownTable, key: str) -> KnownTotals:
    """Return a known table over codes; `key` is its place in messages. Raises ValueError."""
    places = [_place(configuration, name, key) for name in table.columns]
    if len(set(places)) < len(places):
        raise ValueError(f"{key}: columns names a column twice")
    order = sorted(range(len(places)), key=places.__getitem__)
    attributes = [configuration.attributes[place] for place in places]
    sizes = [len(attribute.labels) + attribute.optional for attribute in attributes]
    if math.prod(sizes) > MAX_TABLE:
        raise ValueError(
            f"{key} has {math.prod(sizes)} combinations, more than {MAX_TABLE}; use fewer columns"
        )
    counts: dict[Codes, float] = {}
    for row in table.table:
        if len(row) != len(places) + 1:
            raise ValueError(
                f"{key}: table has the row [{', '.join(row)}], which must be a value of each of {table.name}, then the count"
            )
        *texts, count = row
        codes = [
            _code(configuration, a, text, key) for a, text in zip(attributes, texts, strict=True)
        ]
        cell = tuple(codes[i] for i in order)
        if cell in counts:
            raise ValueError(f"{key}: table has [{', '.join(texts)}] twice; keep one")
        counts[cell] = _count(count, table, key)
    if not any(counts.values()):
        raise ValueError(f"{key}: table must have a count above 0")
    if table.others is None:
        _check_complete(counts, [attributes[i] for i in order], key)
    return KnownTotals(
        table=table,
        attributes=tuple(places[i] for i in order),
        sizes=tuple(sizes[i] for i in order),
        counts={codes: count for codes, count in counts.items() if count},
    )


def _check_complete(
    counts: Mapping[Codes, float], attributes: Sequence[Attribute], key: str
) -> None:
    """Refuse a table that does not list every combination of the attributes (ValueError)."""
    labels = [(*a.labels, "no value") if a.optional else a.labels for a in attributes]
    if len(counts) == math.prod(map(len, labels)):
        return
    for cell in itertools.product(*(range(len(texts)) for texts in labels)):
        if cell not in counts:
            unlisted = ", ".join(texts[code] for texts, code in zip(labels, cell, strict=True))
            raise ValueError(
                f"{key}: table does not list [{unlisted}]: list every combination, or say others: 0 if no other has a record"
            )


def _place(configuration: Sections, name: str, key: str) -> int:
    """Return the place of the attribute of a column of a known table; raises ValueError."""
    places = {attribute.name: place for place, attribute in enumerate(configuration.attributes)}
    if name not in configuration.columns and name not in places:
        raise ValueError(f"{key}: columns names {name!r}, which is not among columns")
    attribute = configuration.attributes[places[name]] if name in places else None
    private_names = {*configuration.private_bounds, *configuration.private_columns}
    if attribute is None or attribute.is_set or attribute.of_set or name in private_names:
        raise ValueError(
            f"{key}: columns names {name!r}, which must be a column that is counted by itself, with one public "
            "value a cell"
        )
    return places[name]


def _code(configuration: Sections, attribute: Attribute, text: str, key: str) -> int:
    """Return the code of a value, or of the missing value, that a table spells as `text`; raises ValueError."""
    name = attribute.column
    labels = attribute.labels
    missing = ValueMatcher(configuration.missing_texts(name))
    is_missing = not text.strip() or missing.index(text) >= 0
    if attribute.optional and is_missing:
        return len(labels)
    code = configuration.columns[name].code_of(text)
    if not 0 <= code < len(labels):
        values = f"{attribute.name!r}; its values: {listed(labels)}"
        raise ValueError(f"{key}: table has {text!r}, which is no value of {values}")
    return code


def _count(text: str, table: KnownTable, key: str) -> float:
    """Return the count that a table spells as `text`; raises ValueError."""
    count = number(text.strip())
    if count is None or not 0 <= count <= _MOST:
        raise ValueError(
            f"{key}: table has the count {text!r}, which must be a number in [0, {_MOST}], without marks between thousands"
        )
    if table.sd is None and count % 1:
        raise ValueError(
            f"{key}: table has the count {text}, which is not exact: say its sd, or write it whole"
        )
    return float(count)


def check_earlier(configuration: Sections, earlier: Sequence[KnownRelease]) -> None:
    """Refuse earlier releases with anything but marginals, where records are chosen by chance or bounded, or named twice.

    Raises ValueError.
    """
    if not earlier:
        return
    if configuration.marginals is None:
        raise ValueError(
            "known has an earlier release, which needs aggregate: {method: marginals}, as it was counted"
        )
    if configuration.resize is not None or configuration.privacy.subject is not None:
        raise ValueError(
            "known has an earlier release, and records are chosen by chance (resize, or privacy.unit with a column): they are "
            "not those that were counted then; leave the earlier release out"
        )
    if len({entry.release.id for entry in earlier}) < len(earlier):
        raise ValueError(
            "known names an earlier release twice; its counts tell what they tell once"
        )


def check_known(configuration: Sections, totals: Sequence[KnownTotals]) -> None:
    """Refuse exact tables that disagree, or a number of records that they cannot add up to; raises ValueError."""
    exact = [table for table in totals if table.exact]
    for first, second in itertools.combinations(exact, 2):
        tables = f"exact tables of {first.table.name} and of {second.table.name}"
        if first.total != second.total:
            raise ValueError(
                f"known has {tables} that add up to {first.total:.0f} and {second.total:.0f}, which must be the same; "
                "give one of them an sd"
            )
        shared = [a for a in first.attributes if a in second.attributes]
        if first.margin(shared) != second.margin(shared):
            names = ", ".join(configuration.attributes[a].name for a in shared)
            raise ValueError(
                f"known has {tables} whose sums over {names} differ; correct one, or give it an sd"
            )
    records = configuration.synthesize.records
    if exact and (records == "exhaust" or not configuration.synthesize.complete):
        raise ValueError(
            "synthesize has records: exhaust or relax: false, which must be left out beside an exact known table, or records "
            "would be too few, or incomplete"
        )
    if exact and not isinstance(records, int) and exact[0].total > MAX_RECORDS:
        raise ValueError(
            f"known adds up to {exact[0].total:.0f} records, more than the {MAX_RECORDS} that can be made; "
            "write synthesize.records: N, which takes it in shares"
        )
