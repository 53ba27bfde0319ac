"""The sections of a configuration, and what follows from them: attributes, lengths, shares, sensitivity."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field

from marginweave.base.budget import Stability
from marginweave.configuration.attributes import (
    Attribute,
    Forbidden,
    forbidden_labels,
    most_combinations,
    without_gaps,
)
from marginweave.configuration.columns import (
    Columns,
    ConstantColumn,
    IdentifierColumn,
    MeasuredColumn,
    SetColumn,
    Texts,
)
from marginweave.configuration.evaluation import EvaluationSettings, ExpectationSettings, PublishSettings
from marginweave.configuration.execution import Execution, Source
from marginweave.configuration.k_tuples import DEFAULT_BOUNDS_SHARE, AggregateSettings
from marginweave.configuration.known import Known
from marginweave.configuration.marginals import AdaptiveCliques, MarginalSettings
from marginweave.configuration.methods import Aggregation, Synthesis
from marginweave.configuration.preparation import ResizeSettings
from marginweave.configuration.privacy import PrivacySettings
from marginweave.configuration.rules.conditions import Condition, labels_of
from marginweave.configuration.rules.structure import AppliesRule, Structure
from marginweave.configuration.values import PositiveWhole, Words, check_name, confirmed

# A block is there as read, as cleaned and as encoded, each with room to convert it, and the allocator keeps what is freed.
_BYTES_A_CELL = 64
INDICATOR = ("as declared",)
"""The label of a record of which no value of a set is left out; the code of others is one past it, as of a missing value."""
_SHARE = 8
_LEAST_ROWS, _MOST_ROWS = 1 << 10, 1 << 18


COMBINATIONS_CUT = "only some combinations of records that hold many"
"""What counts of k-tuples are of where contributions were bounded, after "counts"."""


class Sections(Execution):
    """Everything that a release depends on; the order of `columns` is the order of everything that is written.

    `rows`: about how many records are counted, where that is public: rows of the table, or people where `join: true` makes
    one record of each. `auto` chooses by it, and `plan` and the report use it.
    `label` and `description` are what people call the data and what they are, for the pages of a release.
    """

    dataset: Annotated[str, AfterValidator(check_name)]
    label: Words | None = None
    description: Words | None = None
    source: Source
    privacy: PrivacySettings
    missing: Texts = ()
    columns: Columns
    rows: Annotated[PositiveWhole | None, BeforeValidator(confirmed)] = None
    structure: Structure | None = None
    known: Annotated[tuple[Known, ...], Field(min_length=1)] | None = None
    resize: ResizeSettings | None = None
    evaluate: EvaluationSettings = EvaluationSettings()
    aggregate: Annotated[Aggregation, Field(validate_default=True, default_factory=dict)]
    synthesize: Annotated[Synthesis, Field(validate_default=True, default_factory=dict)]
    expectations: ExpectationSettings = ExpectationSettings()
    publish: PublishSettings = PublishSettings()
    check: Annotated[
        Literal["stop", "tell"] | None, AfterValidator(lambda value: None if value == "tell" else value)
    ] = None

    @property
    def marginals(self) -> MarginalSettings | None:
        """The settings of marginals, or None where k-tuples are counted."""
        return self.aggregate if isinstance(self.aggregate, MarginalSettings) else None

    @property
    def marginal_settings(self) -> MarginalSettings:
        """The same; only where marginals are counted."""
        assert isinstance(self.aggregate, MarginalSettings)
        return self.aggregate

    @property
    def rounds(self) -> AdaptiveCliques | None:
        """How marginals are chosen in rounds; None where they are not, or where one attribute leaves nothing to choose."""
        settings = self.marginals
        return settings.adaptive if settings is not None and settings.selects(len(self.attributes)) else None

    @property
    def tuples(self) -> AggregateSettings:
        """The settings of k-tuples; only where these are counted."""
        assert isinstance(self.aggregate, AggregateSettings)
        return self.aggregate

    def missing_texts(self, column: str) -> tuple[str, ...]:
        """The texts that mean "no value" in `column`."""
        declared = self.columns[column]
        own = () if isinstance(declared, ConstantColumn) else declared.missing
        return self.missing if own is None else own

    def lacks_values(self, column: str) -> bool:
        """Whether a cell of a measured column can have no value as it is declared, from public facts alone."""
        declared = self.columns[column]
        if isinstance(declared, SetColumn):
            return declared.min_values is None  # the cell without a single value
        if isinstance(declared, MeasuredColumn) and declared.impute is not None:
            return False
        if self._joins:
            return True  # rows of one subject that disagree
        return any(map(self._has_gaps, self._cells_of(column)))

    @property
    def _joins(self) -> bool:
        return self.privacy.subject is not None and self.privacy.subject.join

    def _cells_of(self, column: str) -> tuple[str, ...]:
        """The columns of the source whose cells decide whether a cell of a measured column has a value."""
        rule = self.structure.difference_of(column) if self.structure else None
        return (column,) if rule is None else (rule.of, rule.since)

    def _has_gaps(self, column: str) -> bool:
        """Whether a cell of the source may have no value; a column that is not declared is refused elsewhere."""
        declared = self.columns.get(column)
        if not isinstance(declared, MeasuredColumn):
            return False
        return declared.private or declared.outside == "null" or bool(self.missing_texts(column))

    def may_be_undeclared(self, column: str) -> bool:
        """Whether a cell of a measured column without a value is not as declared: nothing says what such a cell is.

        So it is also where the column can be missing, but not beside every value of others (`missing_by_rule`).

        Not of sets, whose cell without a value is a value; nor of private domains, which have a level for what is not released,
        nor where rows of one subject can disagree.
        """
        if column in self.missing_by_rule:
            return True
        declared = self.columns[column]
        if not isinstance(declared, MeasuredColumn) or declared.impute is not None or self.lacks_values(column):
            return False
        read = [self.columns.get(name) for name in (column, *self._cells_of(column))]
        return any(isinstance(one, MeasuredColumn) and one.outside is None for one in read)

    @cached_property
    def missing_by_rule(self) -> tuple[str, ...]:
        """The columns that can be missing, but not beside some values of others, as `applies` or `forbidden` say.

        K-tuples have no count of a missing value, so that there they are those of which counts of other columns tell where they
        apply.
        """
        rules = self.structure or Structure()
        if self.marginals:
            return self._missing_by(rules)
        counted = [rule for rule in rules.applies or () if len(rule.where) <= self.reporting_length]
        return self._missing_by(Structure(applies=tuple(counted)))

    @property
    def uncounted_gaps(self) -> tuple[str, ...]:
        """Such columns of which nobody counts the cells that are missing against a rule: those of k-tuples."""
        return tuple(
            name for name in self._missing_by(self.structure or Structure()) if name not in self.missing_by_rule
        )

    def _missing_by(self, rules: Structure) -> tuple[str, ...]:
        named = [name for rule in rules.applies or () if self._is_missing_elsewhere(rule) for name in rule.columns]
        for entry in rules.forbidden:
            named += [name for name, what in entry.items() if None in self._labels_of(name, what)]
        return tuple(a.name for a in self.attributes if a.name in named and a.optional and not (a.is_set or a.private))

    def _is_missing_elsewhere(self, rule: AppliesRule) -> bool:
        """Whether the columns are missing where they do not apply."""
        otherwise = rule.otherwise
        return otherwise is None or all(None in self._labels_of(name, (otherwise,)) for name in rule.columns)

    def codes_of(self, where: Mapping[str, Condition | Texts]) -> dict[int, list[int]]:
        """By place of an attribute, the codes of values that meet conditions on columns with one public value a cell."""
        places = {attribute.name: place for place, attribute in enumerate(self.attributes)}
        found = dict[int, list[int]]()
        for name, what in where.items():
            held = self._labels_of(name, what)
            labels = self.attributes[places[name]].labels
            found[places[name]] = [code for code, label in enumerate(labels) if label in held]
        return found

    def _labels_of(self, name: str, asked: Condition | Texts) -> tuple[str | None, ...]:
        return labels_of(name, self.columns[name], asked, self.missing_texts(name))

    @cached_property
    def undeclared(self) -> tuple[str, ...]:
        """The attributes a cell of which may be found not to be as declared."""
        return tuple(
            attribute.name
            for attribute in self.attributes
            if not (attribute.of_set or attribute.is_set or attribute.private)
            and self.may_be_undeclared(attribute.name)
        )

    @cached_property
    def indicated_sets(self) -> tuple[str, ...]:
        """The sets of which it is counted how many records hold a value that is not declared.

        Each has one table more among those of single attributes (`indicators`), and no code in any other table: such values
        are left out of records.
        """
        return self._sets_with_more if self.marginals else ()

    @property
    def uncounted_sets(self) -> tuple[str, ...]:
        """The sets of which nobody counts how many records hold a value that is not declared: those of k-tuples."""
        return () if self.marginals else self._sets_with_more

    @property
    def _sets_with_more(self) -> tuple[str, ...]:
        """The sets of which nothing declares what a value outside the domain is."""
        return tuple(name for name, one in self.columns.items() if isinstance(one, SetColumn) and one.marks_undeclared)

    @property
    def indicators(self) -> tuple[Attribute, ...]:
        """What is counted of `indicated_sets`, behind the attributes: the missing code has records that hold such a value."""
        return tuple(Attribute(name=name, column=name, labels=INDICATOR) for name in self.indicated_sets)

    @cached_property
    def counted_undeclared(self) -> Collection[str]:
        """Those of `undeclared` whose cells that are not as declared have a code; none but by `with_undeclared`."""
        return ()

    def with_undeclared(self, names: Collection[str]) -> Self:
        """The same, in which the missing code of these attributes stands for cells that are not as declared.

        While tables are counted all have it (`undeclared`), then those in which such cells were found.
        """
        return self if set(names) == set(self.counted_undeclared) else self._with(counted_undeclared=tuple(names))

    def _with(self, **kept: object) -> Self:
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        found = self.model_construct(_fields_set=self.model_fields_set, **fields)
        vars(found).update(kept)  # where cached properties are kept
        return found

    @cached_property
    def has_one_gap(self) -> bool:
        """Whether an empty cell does not say if it is missing or not as declared: in k-tuples, and in records.

        Then rules say nothing of empty cells in columns of `counted_undeclared`.
        """
        return self.marginals is None

    @property
    def as_recorded(self) -> Self:
        """The same as records have it: an empty cell is missing or not as declared."""
        return self._with(counted_undeclared=self.counted_undeclared, has_one_gap=True)

    @property
    def imputed_columns(self) -> tuple[str, ...]:
        """The columns in which a draw may have taken the place of a cell without a value, as `impute` says."""
        found = list[str]()
        for name, column in self.columns.items():
            if isinstance(column, MeasuredColumn) and column.impute is not None:
                has_outside = column.private or column.outside in (None, "null")
                if has_outside or self._joins or self.missing_texts(name):
                    found.append(name)
        return tuple(found)

    def can_be_missing(self, column: str) -> bool:
        """Whether the output can lack a value of `column`, from public facts alone."""
        if rule := self.structure.rule_of(column) if self.structure else None:
            return rule.leaves_gaps or any(map(self.can_be_missing, rule.sources))
        declared = isinstance(self.columns[column], MeasuredColumn)
        return declared and (self.lacks_values(column) or column in self.counted_undeclared)

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """What is counted, in the order of the columns.

        In marginals each declared value of a set is a separate attribute.
        """
        structure = self.structure or Structure()
        found: dict[str, tuple[Attribute, ...]] = {}
        for name, column in self.columns.items():
            if isinstance(column, MeasuredColumn) and structure.rule_of(name) is None:
                found[name] = self._of_column(name, column)
        return tuple(itertools.chain.from_iterable(found.values()))

    def _of_column(self, name: str, column: MeasuredColumn) -> tuple[Attribute, ...]:
        """The attribute of a column; of a set in marginals one for each value, which a record has or lacks."""
        if self.marginals and column.is_set and not column.private:
            values = column.labels
            return tuple(Attribute(name=f"{name}={v}", column=name, labels=(v,), of_set=True) for v in values)
        attribute = Attribute(
            name=name,
            column=name,
            labels=column.labels,
            private=column.private,
            optional=self.lacks_values(name),
            imputed=column.impute is not None,
            undeclared=name in self.counted_undeclared and not (self.has_one_gap and self.lacks_values(name)),
            width=column.width,
            is_set=column.is_set,
            bins=column.bin_count if self.synthesize.method == "mixture" else 0,
        )
        return (attribute,)

    @cached_property
    def forbidden(self) -> tuple[Forbidden, ...]:
        """Combinations that cannot be."""
        return (*self.excluded_by(self.structure or Structure()), *self.empty_sets)

    @property
    def empty_sets(self) -> tuple[Forbidden, ...]:
        """Of each set that is never empty the combination in which a record lacks all of its values."""
        filled = [name for name, column in self.columns.items() if isinstance(column, SetColumn) and column.min_values]
        counted = {name: [j for j, a in enumerate(self.attributes) if a.of_set and a.column == name] for name in filled}
        return tuple(tuple((place, (None,)) for place in places) for places in counted.values() if places)

    def excluded_by(self, rules: Structure) -> tuple[Forbidden, ...]:
        """The combinations that cannot be by some of the rules. Raises ValueError for a value that a column does not have."""
        found = forbidden_labels(rules, self.columns, self.attributes, self.missing_texts)
        if not self.has_one_gap:
            return found
        open_gaps = {j for j, a in enumerate(self.attributes) if a.name in self.counted_undeclared}
        return without_gaps(found, open_gaps)

    def contribution_cap(self, length: int) -> int:
        """The public cap of Delta_k: how many combinations of `length` one record can hold."""
        return most_combinations((attribute.width for attribute in self.attributes), length)

    @cached_property
    def optional(self) -> tuple[bool, ...]:
        """For each attribute, whether a record can lack its value."""
        return tuple(attribute.optional for attribute in self.attributes)

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """Places of the attributes whose labels stand in the order of their values: numbers, dates, and what is declared so."""
        declared = self.evaluate.ordered or ()
        ordered = {*declared, *(name for name, column in self.columns.items() if column.ordered)}
        return tuple(place for place, attribute in enumerate(self.attributes) if attribute.name in ordered)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are counted, in declared order."""
        counted = {attribute.column for attribute in self.attributes}
        return tuple(name for name in self.columns if name in counted)

    @cached_property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the columns whose cells are read: those that count, or make up what does; in declared order."""
        structure = self.structure or Structure()
        differences = structure.difference or ()
        read = {*self.names, *(rule.of for rule in differences)} - {rule.column for rule in differences}
        return tuple(name for name in self.columns if name in read)

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Names of the columns that are read from the source: those that count, and the one of the privacy unit."""
        subject = self.privacy.subject
        return self.raw_names if subject is None else (*self.raw_names, subject.column)

    @cached_property
    def spelled_names(self) -> tuple[str, ...]:
        """Names of the columns whose cells are known by their texts: of private domains, and the one of the privacy unit.

        Their texts are released or tell persons apart, so they need a type in which a cell has one faithful text.
        """
        subject = self.privacy.subject
        private = {name for name in self.raw_names if isinstance(c := self.columns[name], MeasuredColumn) and c.private}
        return tuple(n for n in self.source_names if n in private or (subject is not None and n == subject.column))

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the synthetic table, in declared order: all but identifiers."""
        return tuple(name for name, column in self.columns.items() if not isinstance(column, IdentifierColumn))

    @cached_property
    def reporting_length(self) -> int:
        """R, the longest combination of k-tuples: declared, or min(3, number of attributes)."""
        return self.tuples.reporting_length or min(3, len(self.attributes))

    @cached_property
    def longest(self) -> int:
        """The most attributes of a released combination: the files have columns for so many, whatever was drawn."""
        return self.reporting_length if self.marginals is None else self.marginals.longest(len(self.attributes))

    @cached_property
    def percentile(self) -> float | None:
        """The percentile of the contribution bound of k-tuples, or None where it is its public cap."""
        declared = self.tuples.percentile
        if declared is None:
            return 99.0 if any(self.optional) else None
        return None if declared == "none" else declared

    @cached_property
    def private_columns(self) -> tuple[str, ...]:
        """Attributes whose values are discovered under the budget."""
        return tuple(attribute.name for attribute in self.attributes if attribute.private)

    @cached_property
    def private_values(self) -> int:
        """The most values of private domains that one record can hold."""
        return sum(attribute.width for attribute in self.attributes if attribute.private)

    @cached_property
    def private_bounds(self) -> tuple[str, ...]:
        """Number columns whose bounds are bought from the budget."""
        return tuple(name for name, column in self.columns.items() if column.buys_bounds)

    @property
    def block_rows(self) -> int:
        """Rows that a stage holds at a time: memory / (8 x 64 bytes x columns), 1024 to 262144. DP: from public numbers."""
        fitting = self.memory // (_SHARE * _BYTES_A_CELL * max(1, len(self.source_names)))
        return min(max(fitting, _LEAST_ROWS), _MOST_ROWS)

    @property
    def bounds_share(self) -> float:
        """The share of the budget that all private bounds together get."""
        return DEFAULT_BOUNDS_SHARE if self.aggregate.bounds_share is None else self.aggregate.bounds_share

    @cached_property
    def cut_sets(self) -> Mapping[str, str]:
        """At most how many values of a cell are counted, for a reader, by column; of sets whose cells may hold more."""
        sets = ((name, column) for name, column in self.columns.items() if isinstance(column, SetColumn))
        cut = ((name, one.max_values) for name, one in sets if one.private or one.max_values < len(one.labels))
        return {name: f"at most {most} value{'' if most == 1 else 's'} of {name} in each cell" for name, most in cut}

    @property
    def counted_words(self) -> str | None:
        """What every number is of, for a reader, after "counts"; None where that is the whole table."""
        return self.counted_among(self.cut_sets)

    def counted_with(self, bounds: Mapping[int, int]) -> str | None:
        """`counted_words`, with a word on combinations where a record may hold more of a length than `bounds` has counted."""
        cut = COMBINATIONS_CUT if self.cuts_any(bounds) else None
        return " and ".join(filter(None, (self.counted_words, cut))) or None

    def count_note(self, bounds: Mapping[int, int]) -> str | None:
        """Return a sentence on what counts are of, by `counted_with`, and what that leaves open of the table."""
        counted = self.counted_with(bounds)
        return f"counts are of {counted}; {self.uncounted_words}" if counted else None

    def cuts_any(self, bounds: Mapping[int, int]) -> bool:
        """Return whether k-tuples counted, of some length, fewer combinations than a record may hold; no record is left out."""
        return any(map(self.is_cut, bounds, bounds.values()))

    def is_cut(self, length: int, bound: int) -> bool:
        """Whether a record may hold more combinations of a length than the `bound` that k-tuples counted of each."""
        return self.marginals is None and bound < self.contribution_cap(length)

    def counted_among(self, columns: Collection[str]) -> str | None:
        """What a number is of that looks at some columns alone, as `counted_words`."""
        cut = (words for name, words in self.cut_sets.items() if name in columns)
        bounded = " and ".join(filter(None, (self.privacy.counted_words, *cut))) or None
        if self.resize is None:
            return bounded
        rows = f" ({bounded})" if bounded else ""
        return f"a resized table of {self.resize.records:,} records{rows}, some of which may be made up"

    @property
    def uncounted_words(self) -> str:
        """What such numbers leave open of the table."""
        return f"the table may have more{' or fewer' if self.resize else ''}"

    @cached_property
    def stability(self) -> Stability:
        """How far one unit moves the encoded table, resize included."""
        unit = self.privacy.stability
        return unit if self.resize is None else self.resize.stability(unit)
