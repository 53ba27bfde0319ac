"""Codes of a released domain that a question names: records that meet conditions, groups, and values of a column."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from marginweave.answers.answer import About, Counted, Note
from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute, forbidden_codes
from marginweave.configuration.columns import Category, DateColumn, NumberColumn
from marginweave.configuration.columns.base import MISSING, NOT_DECLARED, NOT_RELEASED, ColumnBase
from marginweave.configuration.columns.binned import ClampedEnd
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.question import Question, read_question
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.conditions import Condition, ConditionError, labels_of
from marginweave.configuration.values import ValueMatcher, listed
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes

DecidingBounds: TypeAlias = Mapping[int, Collection[ClampedEnd]]
MOST_GROUPS = 10_000

"""What an answer is about that looks beyond a table whose records are persons."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """The chosen codes of an attribute, which is given by its place; shape (codes,), the missing one last."""

    place: int
    codes: Flags


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The records with one value of each column of `by`: labels by column, and codes."""

    labels: dict[str, str]
    chosen: tuple[Chosen, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueRange:
    """The least and the largest number that each code of an attribute means; NaN for a code that is no number.

    The code of an open bin has no least, or no largest number: minus infinity, or infinity.
    """

    place: int
    low: Floats
    high: Floats

    @property
    def is_number(self) -> Flags:
        """Flag of each code that means a number."""
        return ~np.isnan(self.low)

    @property
    def limits(self) -> tuple[float, float]:
        """Least and largest number of all codes."""
        least = np.nanmin(self.low)
        largest = np.nanmax(self.high)
        return float(least), float(largest)

    @property
    def middle(self) -> Floats:
        """Midpoints between the two; NaN where a code means no number, or its bin is open."""
        with np.errstate(invalid="ignore"):  # of a bin that is open at both sides
            middle = (self.low + self.high) / 2
        return np.where(np.isfinite(middle), middle, np.nan)

    @property
    def is_bounded(self) -> bool:
        """Return whether each code that is a number has a least and a largest number."""
        has_least = np.isfinite(self.low[self.is_number])
        has_largest = np.isfinite(self.high[self.is_number])
        return bool(has_least.all() and has_largest.all())

    def merge(self, blocks: Integers) -> ValueRange:
        """Return the ranges of codes of which those of a block cannot be told apart; NaN where one of them is no number."""
        size = int(blocks.max()) + 1
        low = np.full(size, np.inf)
        negated_high = np.full(size, np.inf)
        with np.errstate(invalid="ignore"):  # of NaN and a number the minimum is NaN
            np.minimum.at(low, blocks, self.low)
            np.minimum.at(negated_high, blocks, -self.high)
        return ValueRange(
            place=self.place,
            low=low[blocks],
            high=-negated_high[blocks],
        )


@dataclass(frozen=True, kw_only=True)
class Codes:
    """Finds codes in the domain of a release; `sizes` are the numbers of codes of its attributes."""

    configuration: Configuration
    domain: Domain
    sizes: Sequence[int]

    @classmethod
    def of(cls, configuration: Configuration, domain: Domain) -> Codes:
        """Return the codes of a released domain."""
        sizes = domain_sizes(configuration.attributes, domain.labels)
        return cls(configuration=configuration, domain=domain, sizes=sizes)

    def meeting(self, where: Mapping[str, Any]) -> dict[int, Flags]:
        """Return by attribute the codes that meet conditions by column, as a question has them.

        Raises:
            InputError: as `conditions`, or a column holds several values, of which records that have too many lose some.
        """
        meeting = dict[int, Flags]()
        for chosen in self.conditions(read_question({"where": where})):
            attribute = self.configuration.attributes[chosen.place]
            if attribute.is_set or attribute.of_set:
                raise InputError(
                    f"where cannot ask for {attribute.column!r}, which holds several values; leave it out"
                )
            codes = chosen.codes & meeting.get(chosen.place, np.True_)
            if not codes.any():
                labels = listed(self.domain.labels[chosen.place])
                raise InputError(
                    f"no value of column {attribute.column!r} meets where; its values: {labels}"
                )
            meeting[chosen.place] = codes
        return meeting

    def conditions(self, question: Question) -> tuple[Chosen, ...]:
        """Return the codes that each condition of a question asks for.

        Raises:
            InputError: a condition on what was not counted, or one that does not go with its column.
        """
        conditions: list[Chosen] = []
        for name, condition in question.where:
            conditions += self._condition(name, condition)
        return tuple(conditions)

    def sets_without_value(self, question: Question) -> dict[str, list[str]]:
        """Return the columns of sets of which a question asks for no value, each with the names of its values' attributes.

        Raises:
            InputError: as `conditions`.
        """
        sets = dict[str, list[str]]()
        for name, condition in question.where:
            chosen = self._condition(name, condition)
            attributes = [self.configuration.attributes[value.place] for value in chosen]
            if attributes[0].of_set and not chosen[0].codes[0]:
                sets[name] = [attribute.name for attribute in attributes]
        return sets

    def groups(self, question: Question) -> Iterator[Group]:
        """Yield the groups of a question, in the order of the values; a single one of all records without `by`.

        Raises:
            InputError: too many groups, or `by` names what was not counted.
        """
        values_of_columns = [list(self._values(name)) for name in question.by]
        number = math.prod(len(values) for values in values_of_columns)
        if number > MOST_GROUPS:
            raise InputError(
                f"by asks for {number} groups, which must be at most {MOST_GROUPS}; name fewer columns"
            )
        for combination in itertools.product(*values_of_columns):
            labels = [label for label, _ in combination]
            chosen = [codes for _, codes in combination]
            yield Group(
                labels=dict(zip(question.by, labels, strict=True)),
                chosen=tuple(chosen),
            )

    def numbers(self, name: str) -> ValueRange:
        """Return the numbers that the codes of a column mean: of a bin, the least and the largest it holds.

        Raises:
            InputError: the column has no numbers, or was not counted by itself.
        """
        place = self._place(name)
        column = self._column(name)
        low = np.full(self.sizes[place], np.nan)
        high = low.copy()
        if isinstance(column, NumberColumn):
            least, largest = np.array(column.number_limits).T
            low[: len(column.number_limits)] = least
            high[: len(column.number_limits)] = largest
        elif isinstance(column, ValuedColumn) and not column.is_set:
            for code, limits in enumerate(column.label_limits):
                if limits is not None:
                    low[code] = high[code] = float(limits[0])
        attribute = self.configuration.attributes[place]
        if np.isnan(low).all() or attribute.column != name:
            raise InputError(
                f"column {name!r} has no numbers; a mean or quantile needs a number, or values that are numbers"
            )
        return ValueRange(place=place, low=low, high=high)

    def _condition(self, name: str, condition: Condition | tuple[str, ...]) -> list[Chosen]:
        """Return the codes that a condition on a column or on what is counted under this name asks for.

        They are of one attribute, or of each value of a set where it asks for records without any.

        Raises:
            InputError: as `conditions`.
        """
        place = self._place(name)
        column = self._column(name)
        attribute = self.configuration.attributes[place]
        size = self.sizes[place]
        missing = (*self._missing(attribute), *attribute.gaps)
        try:
            labels = labels_of(name, column, condition, missing)
        except ConditionError as error:
            raise InputError(self._fault(place, error)) from None
        if attribute.of_set:
            return self._values_of_set(name, labels)
        gaps = self._gaps(place, condition)
        # "any but" has all the remaining ones
        is_named = bool(gaps) and not isinstance(condition, Condition)
        if is_named and self.ignores(attribute) and size - 1 in gaps:
            raise InputError(
                f"noise explains all cells of column {name!r} that are not as declared; leave the condition out"
            )
        if isinstance(condition, Condition) and not labels and condition.is_beyond(name, column):
            raise InputError(
                f"no value of {name!r} between its bounds meets the condition; values beyond them were counted as the nearest "
                f"bound, so that nothing is known of them. Its values: {listed(column.labels)}"
            )
        codes = [*self._codes_of_labels(place, labels), *gaps]
        if is_named and size in gaps:
            raise InputError(
                f"a condition names the missing value of column {name!r}, which is never missing; leave it out"
            )
        flags = np.zeros(size, np.bool_)
        flags[[code for code in codes if code < size]] = True
        return [Chosen(place=place, codes=flags)]

    def _fault(self, place: int, error: ConditionError) -> str:
        """Return what is wrong with a condition on an attribute, and what it may name instead."""
        attribute = self.configuration.attributes[place]
        name = attribute.column
        words = f"a condition {error.fault}"
        gaps = (
            [] if attribute.of_set else self._shown_texts(place)[len(self.domain.labels[place]) :]
        )
        if error.lists_values and gaps:
            words += f", and {' and '.join(gaps)}"
        if error.names_number:
            words += (
                f'; a range is --where "{name} >= FROM" --where "{name} < BELOW", or written '
                "{from: FROM, below: BELOW}"
            )
        return words

    def _codes_of_labels(self, place: int, labels: Sequence[str | None]) -> list[int]:
        """Return the codes of an attribute that have one of these labels; None is no label."""
        values = tuple(label for label in labels if label is not None)
        codes: list[int] = []
        for box in forbidden_codes([((place, values),)], self.domain.labels):
            _, box_codes = box[0]
            codes.extend(box_codes)
        return codes

    def _missing(self, attribute: Attribute) -> tuple[str, ...]:
        """Return the texts by which a condition names the missing value, as records have it or as tables show it."""
        declared = self.configuration.missing_texts(attribute.column)
        return (*declared, "", NOT_RELEASED) if attribute.private else declared

    def _gaps(self, place: int, condition: Condition | tuple[str, ...]) -> set[int]:
        """Return the codes behind those of values that a condition asks for: missing, not as declared, or both."""
        is_any_but = isinstance(condition, Condition)
        texts = condition.but if isinstance(condition, Condition) else condition
        if is_any_but and not texts:
            return set()
        attribute = self.configuration.attributes[place]
        first = len(self.domain.labels[place])
        missing = ValueMatcher((*self._missing(attribute), MISSING))
        named = set[int]()
        for text in texts:
            if attribute.undeclared and text.strip() == NOT_DECLARED:
                named.add(self.sizes[place] - 1)
            elif missing.index(text) >= 0:
                named.add(first)
        if is_any_but:
            return set(range(first, self.sizes[place])) - named
        return named

    def notes_on_gaps(self, question: Question) -> tuple[Note, ...]:
        """Return a note for each condition on one text that means "no value": all such cells were counted as one."""
        notes: list[Note] = []
        for name, condition in question.where:
            texts = condition.but if isinstance(condition, Condition) else condition
            attribute = self.configuration.attributes[self._place(name)]
            declared = self.configuration.missing_texts(attribute.column)
            if attribute.private or attribute.of_set or attribute.is_set:
                continue
            matcher = ValueMatcher(declared)
            if any(matcher.index(text) >= 0 for text in texts if text.strip() != MISSING):
                words = (
                    f"all cells of {name} without a value were counted as one, whatever they hold"
                )
                notes.append(Note(words))
        return tuple(notes)

    def deciding_bounds(self, question: Question) -> DecidingBounds:
        """Return by place the ends of bounds that decide who meets the conditions of a question.

        A value beyond a bound counts as the bound. Where a condition holds for one of the two alone, other records are counted
        than it says; where it holds for both, such as 60 and more, they are the same.
        """
        deciding: dict[int, set[ClampedEnd]] = {}
        for name, condition in question.where:
            for chosen in self._condition(name, condition):
                for end in self._clamped_ends(chosen.place):
                    if _is_decided(end, condition, chosen.codes):
                        deciding.setdefault(chosen.place, set()).add(end)
        return deciding

    def notes_on_chosen_bounds(self, deciding: DecidingBounds, group: Group) -> tuple[Note, ...]:
        """Return notes on bounds that decide who meets conditions or is in a group: the bin at a bound has what is beyond."""
        ends_of_places = {place: {*ends} for place, ends in deciding.items()}
        for chosen in group.chosen:
            for end in self._clamped_ends(chosen.place):
                if end.code is None or chosen.codes[end.code]:
                    ends_of_places.setdefault(chosen.place, set()).add(end)
        notes: list[Note] = []
        for place, ends in ends_of_places.items():
            notes += self._note_on_ends(place, ends)
        return tuple(notes)

    def notes_on_reached_bounds(
        self, numbers: ValueRange, codes: Flags, low: float, high: float
    ) -> tuple[Note, ...]:
        """Return a note on the bounds that an interval of numbers reaches by bins of `codes`: numbers there may lie beyond.

        It is a public fact, whether any do or not.
        """
        reached = (numbers.low <= high) & (numbers.high >= low) & codes  # False of NaN
        ends = [
            end
            for end in self._clamped_ends(numbers.place)
            if end.code is None or reached[end.code]
        ]
        return self._note_on_ends(numbers.place, ends)

    def _clamped_ends(self, place: int) -> tuple[ClampedEnd, ...]:
        """Return the ends of a column's bounds beyond which values count as the bound."""
        return self.configuration.clamped_ends(self.configuration.attributes[place].column)

    def _note_on_ends(self, place: int, ends: Collection[ClampedEnd]) -> tuple[Note, ...]:
        """Return a note on what values of a column beyond these ends count as; none without ends."""
        name = self.configuration.attributes[place].column
        words = self.configuration.clamped_words(name, ends)
        return (Note(f"of {name}, {words}", of_column=True),) if words else ()

    def _values_of_set(self, name: str, labels: Sequence[str | None]) -> list[Chosen]:
        """Return the records with one value of a column of sets; without any of its values where the label is None.

        Raises:
            InputError: there is not a single label.
        """
        if len(labels) != 1:
            raise InputError(
                f"column {name!r} holds several values, each counted by itself: a condition must name one; give one for each"
            )
        has_value = np.array([labels[0] is not None, labels[0] is None])
        chosen: list[Chosen] = []
        for place, attribute in enumerate(self.configuration.attributes):
            if attribute.column == name and labels[0] in (None, *attribute.labels):
                chosen.append(Chosen(place=place, codes=has_value))
        return chosen

    def _values(self, name: str) -> Iterator[tuple[str, Chosen]]:
        """Yield the values of a column, or of what is counted under this name, each by itself."""
        place = self._place(name, by=True)
        attribute = self.configuration.attributes[place]
        labels = self.domain.labels[place]
        texts = [*labels, f"(not {labels[0]})"] if attribute.of_set else self._shown_texts(place)
        codes = np.arange(self.sizes[place])
        for code, text in enumerate(texts):
            yield text, Chosen(place=place, codes=codes == code)

    def _shown_texts(self, place: int) -> list[str]:
        """Return the texts of the codes of an attribute that may be asked for: not of one that noise alone may be in."""
        texts = self.texts(place)
        return texts[:-1] if self.ignores(self.configuration.attributes[place]) else texts

    def about(self, of: Literal["table", "population"], places: Iterable[int]) -> About:
        """Return what an answer that looks at these attributes is about.

        A table that was resized, some rows of each person, or some values of each cell are others than the table.
        """
        if self.configuration.resize is not None:
            return About(Counted.RESIZED)
        columns = {self.configuration.attributes[place].column for place in places}
        if of == "population":
            return About(self._population())
        part = self.configuration.counted_among(columns)
        return About(Counted.PART, part) if part else About(Counted.TABLE)

    def _population(self) -> Counted:
        """Return which population the counted records are a sample of, if the rows, or the persons, are a sample of one."""
        privacy = self.configuration.privacy
        if privacy.joins:
            return Counted.JOINED_POPULATION
        if privacy.subject is not None and self.configuration.stability.records == 1:
            return Counted.ONE_ROW_POPULATION
        return Counted.POPULATION

    def not_a_sample(self, places: Iterable[int]) -> str | None:
        """Return why what was counted of these attributes is no simple sample of a population; None where it may be one."""
        attributes = self.configuration.attributes
        return self.configuration.not_a_sample({attributes[place].column for place in places})

    def note(self, about: About) -> str | None:
        """Return a sentence on the part of the table that an answer is about; None for all of it, or the population."""
        words: str | None = about.part
        if about.kind == Counted.RESIZED:
            words = self.configuration.counted_among(())
        return f"counts are of {words}; {self.configuration.uncounted_words}" if words else None

    def reading_words(self, question: Question) -> Iterator[str]:
        """Yield what became of cells of a question's columns before they were counted: public facts.

        Numbers were rounded to declared decimals, and moments of a zone count in UTC.
        """
        names = [name for name, _ in question.where]
        names += question.by
        if question.column:
            names.append(question.column)
        for name in dict.fromkeys(names):
            column_name = self.configuration.attributes[self._place(name, by=True)].column
            words = self.configuration.rounding_words(column_name)
            if words:
                yield f"numbers of {column_name} were rounded to {words} before they were counted"
            column = self.configuration.columns[column_name]
            if isinstance(column, DateColumn) and column.type == "datetime" and not column.format:
                yield f"a moment of {column_name} that has a zone was counted in UTC"

    def texts(self, place: int) -> list[str]:
        """Return the text that readers see for each code of an attribute that has no values of a set."""
        attribute = self.configuration.attributes[place]
        gaps = (NOT_RELEASED,) if attribute.private else attribute.gaps or (MISSING,)
        texts = [*self.domain.labels[place], *gaps]
        return texts[: self.sizes[place]]

    @property
    def lowered(self) -> dict[int, int]:
        """By place, by how many records the low end of a count of cells that are not as declared is lower."""
        lowered = {cells.name: cells.lowered for cells in self.domain.undeclared}
        return {
            place: lowered.get(attribute.name, 0)
            for place, attribute in enumerate(self.configuration.attributes)
            if attribute.undeclared
        }

    def ignores(self, attribute: Attribute) -> bool:
        """Return whether noise alone may be in the code of cells that are not as declared, so that nobody is shown it."""
        names_with_cells = {cells.name for cells in self.domain.undeclared if cells.found}
        return attribute.undeclared and attribute.name not in names_with_cells

    def _column(self, name: str) -> ColumnBase:
        """Return a column as it is declared; one of a private domain with the values that were released.

        Raises:
            InputError: no value was released.
        """
        column = self.configuration.columns[name]
        if not column.private:
            return column
        values = self.domain.labels[self._place(name)]
        if not values:
            raise InputError(
                f"no value of column {name!r} was released, so that nothing is known of any; leave it out"
            )
        return Category(type="category", values=values)

    def _place(self, name: str, *, by: bool = False) -> int:
        """Return the place of the attribute of this column; `by` also finds values of a set by their names.

        Raises:
            InputError: nothing of this name was counted.
        """
        for place, attribute in enumerate(self.configuration.attributes):
            is_column = attribute.column == name and not (by and attribute.of_set)
            if is_column or (by and attribute.name == name):
                return place
        raise InputError(self._not_counted(name))

    def _not_counted(self, name: str) -> str:
        """Return a message that says why a name is no counted column, and which names there are."""
        set_names = [a.name for a in self.configuration.attributes if a.of_set and a.column == name]
        names = [*self.configuration.names]
        if set_names:
            return f"{name!r} holds several values, each counted by itself: name one or some of {listed(set_names)}"
        parts = [part.strip() for part in name.split(",")]
        if len(parts) > 1 and set(parts) <= set(names):
            ways = f"query --by {' --by '.join(parts)}, table {' '.join(parts)}, or in a file by: [{', '.join(parts)}]"
            return f"{name!r} are several columns, which are named one by one: {ways}"
        if name in self.configuration.columns:
            rule = (
                self.configuration.structure.rule_of(name) if self.configuration.structure else None
            )
            why = (
                f"is computed from {listed(rule.sources)}: ask for that" if rule else "is left out"
            )
            return f"{name!r} was not counted, as it {why}; there are {listed(names)}"
        names_by_letters = {counted.casefold(): counted for counted in names}
        matches = difflib.get_close_matches(name.casefold(), names_by_letters, n=1)
        meant = f"; did you mean {names_by_letters[matches[0]]}? There" if matches else "; there"
        return f"{name!r} is no column that was counted{meant} are {listed(names)}"


def _is_decided(end: ClampedEnd, condition: Condition | tuple[str, ...], codes: Flags) -> bool:
    """Return whether a condition that has these codes holds for a bound alone, or for the values beyond it alone."""
    if end.code is None:
        return True
    holds_beyond = isinstance(condition, Condition) and condition.reaches(up=end.is_upper)
    return bool(codes[end.code]) != holds_beyond
