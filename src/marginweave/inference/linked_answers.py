"""Answers about the rows of a linked table, from its released histograms alone.

The questions are those about the records of a release, and the same program answers them: the records are now those of one
more table, whose columns are those of the linked table and those of the source that were measured beside them. It is read in
two ways: each row counts one, or each unit does, spread over its rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from marginweave.answers.answer import About, Answer, Counted, Note
from marginweave.answers.codes import Codes
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import tables_of
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute
from marginweave.configuration.columns import Column, MeasuredColumn
from marginweave.configuration.linked import LinkedTable
from marginweave.configuration.question import Question
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.labels import Domain, UndeclaredCells, share_texts
from marginweave.domain.zeros import domain_sizes
from marginweave.inference.answers import Answers, find_release
from marginweave.observations.linked import CountOf, spread_of
from marginweave.observations.tables import Observation
from marginweave.publish.tables import read_columns
from marginweave.released.statement import (
    LinkedStatement,
    LinkedUncountedStatement,
    LinkedUndeclaredStatement,
    PrivacyStatement,
)
from marginweave.texts.sentences import Sentence, counts_sentence

OF_SOURCE = "source."
"""Comes before the name of a column of the source, in questions, if the linked table has a column of that name, too."""
_NO_SAMPLE = "rows of one unit belong together and are no simple sample"


@dataclass(frozen=True, kw_only=True, eq=False)
class LinkedAnswers:
    """Answers questions about one linked table of a release, from the counts of the cells of its histograms.

    `configuration` is that of the counts, and `domain` that of the source. `histograms` has what privacy.json says of each, and
    its counts; `undeclared` what it says of cells of the table that are not as declared, and `uncounted` of rows that are in no
    count of rows.
    """

    name: str
    table: LinkedTable
    configuration: Configuration
    domain: Domain
    histograms: Sequence[tuple[LinkedStatement, pa.Array]]
    undeclared: Sequence[LinkedUndeclaredStatement] = ()
    uncounted: LinkedUncountedStatement | None = None

    def ask(self, question: Question) -> Iterator[Answer]:
        """Yield an answer for each group of a question.

        Raises:
            InputError: it asks for what no histogram has, or of a population, or is broken as `MarginalAnswers.ask` says.
        """
        self._check(question)
        about = About(Counted.PART, str(self._counted_words(question)))
        for answer in self.answers(question).ask(question):
            notes = (*answer.notes, *self._notes_on_denominators(question))
            yield replace(answer, about=about, notes=notes)

    def _counted_words(self, question: Question) -> Sentence:
        """Return what the numbers of an answer are of; of rows also which share of them is in none, where that is known."""
        counted: dict[str, Any] = {"table": self.name, "most": self.table.at_most or 1}
        beyond = self.uncounted
        if question.each == "unit" or beyond is None or not beyond.share:
            return counts_sentence(f"of.linked-{question.each}", **counted)
        shares = share_texts(beyond.share, beyond.share_low)
        return counts_sentence("of.linked-row-beyond", **counted, **shares)

    def _notes_on_denominators(self, question: Question) -> Iterator[Note]:
        """Yield a note where a share is of all rows, also of those whose asked cells are not as declared."""
        found = {row.column for row in self.undeclared if row.found}
        asked = [name for name, _ in question.where if name in found]
        if question.asked == "share" and asked:
            yield Note(
                f"a share is of all rows, also of those whose {listed(asked)} is not as declared"
            )

    def answers(self, question: Question) -> MarginalAnswers:
        """Return the answers in which each row counts one, or each unit, as the question asks."""
        return self._by_units if question.each == "unit" else self._by_rows

    @property
    def columns(self) -> Collection[str]:
        """Names of the columns that a question may name."""
        return (*self._source_columns, *self.table.columns)

    def _check(self, question: Question) -> None:
        """Refuse a question that the histograms of its kind have no answer to (InputError)."""
        asked = [
            *(name for name, _ in question.where),
            *question.by,
            *filter(None, [question.column]),
        ]
        own = [name for name in asked if name in self.table.columns]
        others = [name for name in asked if name in self._source_columns]
        if question.each == "row":
            if others:
                raise InputError(
                    f"rows of {self.name} were counted by its columns alone, and {others[0]!r} is of the source: ask for a "
                    "share or mean with each: unit, in which the rows of one unit weigh one together"
                )
        elif question.asked in ("count", "sum") and own:
            raise InputError(
                f"how many units have such a row of {self.name} was not measured; derive a column of the source that says so "
                f"(tables.{self.name}.derive, any: {{{own[0]}: …}}), or ask for a share, or for rows"
            )

    @cached_property
    def _source_columns(self) -> dict[str, Attribute]:
        """Attributes of the source that were measured beside the table, by their names in questions."""
        measured = {name for seen, _ in self.histograms for name in seen.columns}
        columns = {}
        for attribute in self.configuration.attributes:
            if attribute.name in measured:
                is_twice = attribute.name in self.table.columns
                columns[OF_SOURCE * is_twice + attribute.name] = attribute
        return columns

    @cached_property
    def _by_units(self) -> MarginalAnswers:
        return self._answers("units", self._source_columns)

    @cached_property
    def _by_rows(self) -> MarginalAnswers:
        return self._answers("rows", {})

    def _answers(self, count_of: CountOf, of_source: dict[str, Attribute]) -> MarginalAnswers:
        """Return the answers from the histograms of a kind, as if its columns were those of one table."""
        labels = dict(zip(self.domain.names, self.domain.labels, strict=True))
        attributes = [
            replace(attribute, name=name, column=name) for name, attribute in of_source.items()
        ]
        columns: dict[str, Column] = {
            name: self.configuration.columns[attribute.column]
            for name, attribute in of_source.items()
        }
        values = [labels[attribute.name] for attribute in of_source.values()]
        for name, column in self.table.columns.items():
            assert isinstance(column, MeasuredColumn)
            missing = self.table.missing_texts(name, self.configuration.missing)
            columns[name] = column.model_copy(update={"missing": missing})
            attributes.append(self.table.attribute(name, self.configuration.missing))
            values.append(column.labels)
        undeclared = [cells for cells in self.domain.undeclared if cells.name in of_source]
        decided = [row for row in self.undeclared if row.count_of == count_of]
        undeclared += [_cells(row) for row in decided]
        counted = self.configuration.of_columns(columns, attributes)
        domain = Domain(
            names=tuple(attribute.name for attribute in attributes),
            labels=tuple(values),
            undeclared=tuple(undeclared),
        )
        sizes = domain_sizes(attributes, domain.labels)
        observations = self._observations(count_of, of_source, sizes)
        codes = Codes(configuration=counted, domain=domain, sizes=sizes)
        return MarginalAnswers(
            squares=LeastSquares(tables_of(observations, sizes)),
            codes=codes,
            measured_together=[
                tuple(attributes[axis].name for axis in seen.attributes) for seen in observations
            ],
            sampled=_NO_SAMPLE,
            undeclared={row.column: row.words.rstrip(".") for row in decided if row.found},
            lowered=codes.lowered,
        )

    def _observations(
        self, count_of: CountOf, of_source: Mapping[str, Attribute], sizes: Sequence[int]
    ) -> list[Observation]:
        """Return the histograms of a kind; the attributes of the source come first, then the columns of the table."""
        places = {attribute.name: place for place, attribute in enumerate(of_source.values())}
        places |= {
            f"{self.name}.{name}": len(places) + place
            for place, name in enumerate(self.table.columns)
        }
        return [
            _observation(seen, counts, tuple(places[name] for name in seen.columns), sizes)
            for seen, counts in self.histograms
            if seen.count_of == count_of
        ]


def _cells(row: LinkedUndeclaredStatement) -> UndeclaredCells:
    """Return the cells of a column that are not as declared, by its name in questions."""
    return UndeclaredCells(
        name=row.column,
        count=row.count,
        deviation=row.deviation,
        low=row.low,
        high=row.high,
        found=row.found,
        kept=row.found,
    )


def _observation(
    seen: LinkedStatement, counts: pa.Array, axes: tuple[int, ...], sizes: Sequence[int]
) -> Observation:
    """Return a histogram over axes of these numbers, with all that chance adds to a cell as its noise."""
    cells = counts.to_numpy().reshape([sizes[axis] for axis in axes])
    is_of_units = seen.count_of == "units"
    deviation = spread_of(seen.deviation, cells, seen.steps if is_of_units else None)
    return Observation(attributes=axes, counts=cells, deviation=deviation)


def open_linked(place: Path, name: str) -> LinkedAnswers:
    """Return the object that answers questions about the linked table `name` of the release in a folder. DP: post-processing.

    Raises:
        InputError: the folder has no complete release, or no counts of this table.
    """
    try:
        statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
        declared = Configuration.from_canonical(statement.configuration)
        histograms = _histograms(place, statement) if statement.linked else []
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
        raise InputError(
            f"{place} does not hold a complete release (privacy.json and linked.parquet)"
        ) from None
    if name not in declared.counted_tables:
        counted = listed(declared.counted_tables) if declared.counted_tables else "none"
        raise InputError(
            f"the release has no counts of a table {name!r}; of linked tables it has: {counted}"
        )
    return LinkedAnswers(
        name=name,
        table=(declared.tables or {})[name],
        configuration=declared.with_bounds(statement.bounds).with_undeclared(declared.undeclared),
        domain=statement.released_domain,
        histograms=[(seen, counts) for seen, counts in histograms if seen.table == name],
        undeclared=[row for row in statement.linked_undeclared or () if row.table == name],
        uncounted=next(
            (row for row in statement.linked_uncounted or () if row.table == name), None
        ),
    )


def _histograms(place: Path, statement: PrivacyStatement) -> list[tuple[LinkedStatement, pa.Array]]:
    """Return what privacy.json says of each histogram, and its counts; raises ValueError where the files differ."""
    counts = read_columns(place / "linked.parquet", ["count"]).column("count").combine_chunks()
    histograms = []
    start = 0
    for seen in statement.linked or ():
        histograms.append((seen, counts.slice(start, seen.cells)))
        start += seen.cells
    if start != len(counts):
        raise ValueError("linked.parquet has other cells than privacy.json")
    return histograms


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseAnswers:
    """Answers questions about all tables of a release (`find_release`); those about its records are from `source`."""

    home: Path
    named: str
    source: Answers
    _linked: dict[str, LinkedAnswers] = field(default_factory=dict)

    def ask(self, question: Question) -> Iterator[Answer]:
        """Yield an answer for each group of a question; raises InputError as the answers of its table."""
        if question.table is None:
            return self.source.ask(question)
        return self.linked(question.table).ask(question)

    def codes(self, question: Question) -> Codes:
        """Return the codes that a question is read in."""
        if question.table is None:
            return self.source.codes
        return self.linked(question.table).answers(question).codes

    def columns(self, table: str | None) -> Collection[str]:
        """Return the names of the columns that a question about a table may name; None for the records of the release."""
        if table is None:
            return self.source.codes.configuration.columns
        return self.linked(table).columns

    def linked(self, table: str) -> LinkedAnswers:
        """Return the answers of a linked table, which is read once."""
        if table not in self._linked:
            place = find_release(self.home, self.named)
            self._linked[table] = open_linked(place, table)
        return self._linked[table]
