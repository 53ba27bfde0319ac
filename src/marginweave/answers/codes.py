"""What a question names, in codes of a released domain: records that meet conditions, groups, and values of a column."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import Attribute, forbidden_codes
from marginweave.configuration.columns import Category, NumberColumn
from marginweave.configuration.columns.base import MISSING, NOT_DECLARED, NOT_RELEASED, ColumnBase
from marginweave.configuration.columns.category import ValuedColumn
from marginweave.configuration.question import Question, read_question
from marginweave.configuration.release import Configuration
from marginweave.configuration.rules.conditions import Condition, labels_of
from marginweave.configuration.values import ValueMatcher, listed
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes

MOST_GROUPS = 10_000


@dataclass(frozen=True, kw_only=True, eq=False)
class Chosen:
    """Of an attribute, by its place, the codes that are meant; shape (codes,), the missing one last."""

    place: int
    codes: Flags


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """The records with one value of each column of `by`: labels by column, and codes."""

    labels: dict[str, str]
    chosen: tuple[Chosen, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueRange:
    """The least and the largest number that each code of an attribute stands for; NaN for one that is no number.

    The code of an open bin has no least, or no largest number: minus infinity, or infinity.
    """

    place: int
    low: Floats
    high: Floats

    @property
    def known(self) -> Flags:
        """Which codes stand for a number."""
        return ~np.isnan(self.low)

    @property
    def middle(self) -> Floats:
        """Halfway between the two; NaN where a code stands for no number, or its bin is open."""
        with np.errstate(invalid="ignore"):  # of an open bin at both sides
            middle = (self.low + self.high) / 2
        return np.where(np.isfinite(middle), middle, np.nan)

    @property
    def is_bounded(self) -> bool:
        """Whether each code has a least and a largest number."""
        return bool(np.isfinite(self.low[self.known]).all() and np.isfinite(self.high[self.known]).all())

    def together(self, blocks: Integers) -> ValueRange:
        """The ranges of codes of which those of a block cannot be told apart; NaN where one of them is no number."""
        low, high = np.full((2, int(blocks.max()) + 1), np.inf)
        with np.errstate(invalid="ignore"):  # of NaN and a number the minimum is NaN
            np.minimum.at(low, blocks, self.low)
            np.minimum.at(high, blocks, -self.high)
        return ValueRange(place=self.place, low=low[blocks], high=-high[blocks])


@dataclass(frozen=True, kw_only=True)
class Codes:
    """Finds codes in the domain of a release; `sizes` are the numbers of codes of its attributes."""

    configuration: Configuration
    domain: Domain
    sizes: Sequence[int]

    @classmethod
    def of(cls, configuration: Configuration, domain: Domain) -> Codes:
        """Those of a released domain."""
        return cls(
            configuration=configuration, domain=domain, sizes=domain_sizes(configuration.attributes, domain.labels)
        )

    def meeting(self, where: Mapping[str, Any]) -> dict[int, Flags]:
        """By attribute the codes that meet conditions by column, as a question has them.

        Raises:
            InputError: as `conditions`, or a column holds several values, of which records that have too many lose some.
        """
        found = dict[int, Flags]()
        for chosen in self.conditions(read_question({"where": where})):
            attribute = self.configuration.attributes[chosen.place]
            if attribute.is_set or attribute.of_set:
                raise InputError(f"where cannot ask for {attribute.column!r}, which holds several values; leave it out")
            found[chosen.place] = chosen.codes & found.get(chosen.place, np.True_)
            if not found[chosen.place].any():
                labels = listed(self.domain.labels[chosen.place])
                raise InputError(f"no value of column {attribute.column!r} meets where; its values: {labels}")
        return found

    def conditions(self, question: Question) -> tuple[Chosen, ...]:
        """The codes that each condition of a question asks for.

        Raises:
            InputError: a condition on what was not counted, or one that does not go with its column.
        """
        return tuple(self._condition(name, asked) for name, asked in question.where)

    def groups(self, question: Question) -> Iterator[Group]:
        """The groups of a question, in the order of the values; a single one of all records without `by`.

        Raises:
            InputError: too many groups, or `by` names what was not counted.
        """
        axes = [list(self._values(name)) for name in question.by]
        number = int(np.prod([len(axis) for axis in axes]))
        if number > MOST_GROUPS:
            raise InputError(f"by asks for {number} groups, which must be at most {MOST_GROUPS}; name fewer columns")
        for combination in itertools.product(*axes):
            labels = {name: label for name, (label, _) in zip(question.by, combination, strict=True)}
            yield Group(labels=labels, chosen=tuple(chosen for _, chosen in combination))

    def numbers(self, name: str) -> ValueRange:
        """The numbers that the codes of a column stand for: of a bin, the least and the largest it holds.

        Raises:
            InputError: the column has no numbers, or was not counted by itself.
        """
        place = self._place(name)
        column, low = self._column(name), np.full(self.sizes[place], np.nan)
        high = low.copy()
        if isinstance(column, NumberColumn):
            low[: len(column.held)], high[: len(column.held)] = np.array(column.held).T
        elif isinstance(column, ValuedColumn) and not column.is_set:
            for code, limits in enumerate(column.label_limits):
                if limits is not None:
                    low[code] = high[code] = float(limits[0])
        if np.isnan(low).all() or self.configuration.attributes[place].column != name:
            raise InputError(
                f"column {name!r} has no numbers; a mean or quantile needs a number, or values that are numbers"
            )
        return ValueRange(place=place, low=low, high=high)

    def _condition(self, name: str, asked: Condition | tuple[str, ...]) -> Chosen:
        place, column = self._place(name), self._column(name)
        attribute, flags = self.configuration.attributes[place], np.zeros(self.sizes[place], np.bool_)
        missing = (*self._missing(attribute), *attribute.gaps)
        try:
            labels = labels_of(name, column, asked, missing)
        except ValueError as error:
            said = (
                str(error)
                .removeprefix("structure ")
                .replace("a range is", f"a range is {name} >= FROM and {name} < BELOW, or")
            )
            raise InputError(f"a condition {said}") from None
        if attribute.of_set:
            return self._of_set(name, labels)
        gaps = self._gaps(place, asked)
        is_named = bool(gaps) and not isinstance(asked, Condition)  # "any but" has whatever is left
        if is_named and self.ignores(attribute) and len(flags) - 1 in gaps:
            raise InputError(
                f"noise explains all cells of column {name!r} that are not as declared; leave the condition out"
            )
        if isinstance(asked, Condition) and not labels and asked.is_beyond(name, column):
            raise InputError(
                f"no value of {name!r} between its bounds meets the condition; values beyond them were counted as the nearest "
                f"bound, so that nothing is known of them. Its values: {listed(column.labels)}"
            )
        values = tuple(label for label in labels if label is not None)
        codes = [code for box in forbidden_codes([((place, values),)], self.domain.labels) for code in box[0][1]]
        if is_named and len(flags) in gaps:
            raise InputError(
                f"a condition names the missing value of column {name!r}, which is never missing; leave it out"
            )
        flags[[code for code in (*codes, *gaps) if code < len(flags)]] = True
        return Chosen(place=place, codes=flags)

    def _missing(self, attribute: Attribute) -> tuple[str, ...]:
        """How a condition names the missing value: what was not released as records have it, or as tables show it."""
        declared = self.configuration.missing_texts(attribute.column)
        return (*declared, "", NOT_RELEASED) if attribute.private else declared

    def _gaps(self, place: int, asked: Condition | tuple[str, ...]) -> set[int]:
        """The codes behind those of values that a condition asks for: missing, not as declared, or both."""
        if isinstance(asked, Condition) and not asked.but:
            return set()
        attribute = self.configuration.attributes[place]
        first = len(self.domain.labels[place])
        missing = ValueMatcher((*self._missing(attribute), MISSING))
        named = set[int]()
        for text in asked.but if isinstance(asked, Condition) else asked:
            if attribute.undeclared and text.strip() == NOT_DECLARED:
                named.add(self.sizes[place] - 1)
            elif missing.index(text) >= 0:
                named.add(first)
        return set(range(first, self.sizes[place])) - named if isinstance(asked, Condition) else named

    def _of_set(self, name: str, labels: Sequence[str | None]) -> Chosen:
        if len(labels) != 1 or labels[0] is None:
            raise InputError(
                f"column {name!r} holds several values, each counted by itself: a condition must name one; give one for each"
            )
        place = next(
            j for j, a in enumerate(self.configuration.attributes) if a.column == name and a.labels == (labels[0],)
        )
        return Chosen(place=place, codes=np.array([True, False]))

    def _values(self, name: str) -> Iterator[tuple[str, Chosen]]:
        """The values of a column, or of what is counted under this name, each by itself."""
        place = self._place(name, by=True)
        attribute, codes = self.configuration.attributes[place], np.arange(self.sizes[place])
        labels = self.domain.labels[place]
        texts = [*labels, f"(not {labels[0]})"] if attribute.of_set else self.texts(place)
        for code in np.unique(codes[:-1] if self.ignores(attribute) else codes).tolist():
            yield texts[code], Chosen(place=place, codes=codes == code)

    def about(self, of: Literal["table", "population"], places: Iterable[int]) -> str:
        """What an answer that looks at these attributes is about.

        A table that was resized, some rows of each person, or some values of each cell are others than the table.
        """
        if self.configuration.resize is not None:
            return "resized table"
        columns = {self.configuration.attributes[place].column for place in places}
        return of if of == "population" else self.configuration.counted_among(columns) or of

    def texts(self, place: int) -> list[str]:
        """What readers are shown of each code of an attribute that has no values of a set."""
        attribute = self.configuration.attributes[place]
        gaps = (NOT_RELEASED,) if attribute.private else attribute.gaps or (MISSING,)
        return [*self.domain.labels[place], *gaps][: self.sizes[place]]

    def ignores(self, attribute: Attribute) -> bool:
        """Whether noise alone may be in the code of cells that are not as declared, so that nobody is shown it."""
        found = {cells.name for cells in self.domain.undeclared if cells.found}
        return attribute.undeclared and attribute.name not in found

    def _column(self, name: str) -> ColumnBase:
        """Return a column as it is declared; one of a private domain with the values that were released.

        Raises:
            InputError: none was.
        """
        column = self.configuration.columns[name]
        if not column.private:
            return column
        values = self.domain.labels[self._place(name)]
        if not values:
            raise InputError(f"no value of column {name!r} was released, so that nothing is known of any; leave it out")
        return Category(type="category", values=values)

    def _place(self, name: str, *, by: bool = False) -> int:
        attributes = self.configuration.attributes
        for place, attribute in enumerate(attributes):
            if (by and attribute.name == name) or (attribute.column == name and not (by and attribute.of_set)):
                return place
        of_set = [a.name for a in attributes if a.of_set and a.column == name]
        names = of_set or [*self.configuration.names]
        parts = [part.strip() for part in name.split(",")]
        if len(parts) > 1 and set(parts) <= set(names):
            ways = f"query --by {' --by '.join(parts)}, table {' '.join(parts)}, or in a file by: [{', '.join(parts)}]"
            raise InputError(f"{name!r} are several columns, which are named one by one: {ways}")
        if name in self.configuration.columns and not of_set:
            rule = self.configuration.structure.rule_of(name) if self.configuration.structure else None
            why = f"is computed from {listed(rule.sources)}: ask for that" if rule else "is left out"
            raise InputError(f"{name!r} was not counted, as it {why}; there are {listed(names)}")
        by_letters = {own.casefold(): own for own in names}
        close = [by_letters[own] for own in difflib.get_close_matches(name.casefold(), by_letters, n=1)]
        meant = f"; did you mean {close[0]}? There" if close else "; there"
        raise InputError(f"{name!r} is no column that was counted{meant} are {listed(names)}")
