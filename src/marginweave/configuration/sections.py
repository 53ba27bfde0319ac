"""Sections of a configuration, and values that follow from them: attributes, lengths, shares, sensitivity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

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
    Column,
    Columns,
    ConstantColumn,
    IdentifierColumn,
    MeasuredColumn,
    NumberColumn,
    SetColumn,
    Texts,
)
from marginweave.configuration.columns.binned import BinnedColumn, ClampedEnd
from marginweave.configuration.evaluation import (
    EvaluationSettings,
    ExpectationSettings,
    PublishSettings,
)
from marginweave.configuration.execution import Execution, Source
from marginweave.configuration.k_tuples import DEFAULT_BOUNDS_SHARE, AggregateSettings
from marginweave.configuration.known import Known
from marginweave.configuration.linked import Derivation, LinkedTables
from marginweave.configuration.marginals import AdaptiveCliques, MarginalSettings
from marginweave.configuration.methods import Aggregation, Synthesis
from marginweave.configuration.preparation import ResizeSettings
from marginweave.configuration.privacy import PrivacySettings
from marginweave.configuration.rules.conditions import Condition, labels_of
from marginweave.configuration.rules.repairs import (
    enforced_rules,
    repair_order,
    repaired_attributes,
)
from marginweave.configuration.rules.structure import AppliesRule, Structure
from marginweave.configuration.values import PositiveWhole, Words, check_name, confirmed, listed
from marginweave.texts.sentences import counts_sentence

# A block is in memory as read, as cleaned and as encoded, each with room to convert it; the allocator keeps freed memory.
_BYTES_A_CELL = 64
UNDECLARED = " undeclared "
"""Begins the name of a column that flags cells which are not as declared, a name that no configuration has."""
INDICATOR = ("as declared",)
"""The label of a record of which no value of a set is left out; other records have the code behind it, of a missing value."""
TABLES_SHARE = 0.4
"""Share of the budget that counted linked tables have together by default."""
NESTED = " linked "
"""Begins the name of a column with rows of a linked table, a name that no configuration has."""
_SHARE = 8
_LEAST_ROWS = 1 << 10
_MOST_ROWS = 1 << 18


"""Words for the counts of k-tuples where contributions were bounded, after "counts"."""


def _listed(value: Any) -> Any:
    """Return a single name as a list of names."""
    return [value] if isinstance(value, str) else value


Targets = Annotated[Texts, Field(min_length=1), BeforeValidator(_listed)]


class Sections(Execution):
    """Everything that a release depends on; the order of `columns` is the order of everything that is written.

    `rows`: about how many records are counted, where that is public: rows of the table, or people where `join: true` makes
    one record of each. `auto` chooses by it, and `plan` and the report use it.
    `target` are columns that a model is going to predict from the others: with `auto`, a part of the budget is for a table of
    these and all others, in few bins (`AllCliques`).
    `label` is a name of the data for people, and `description` says what they are, for the pages of a release.
    """

    dataset: Annotated[str, AfterValidator(check_name)]
    label: Words | None = None
    description: Words | None = None
    source: Source
    privacy: PrivacySettings
    missing: Texts = ()
    columns: Columns
    rows: Annotated[PositiveWhole | None, BeforeValidator(confirmed)] = None
    target: Targets | None = None
    structure: Annotated[
        Structure | None, BeforeValidator(lambda rules: None if rules == "" else rules)
    ] = None
    tables: LinkedTables | None = None
    known: Annotated[tuple[Known, ...], Field(min_length=1)] | None = None
    resize: ResizeSettings | None = None
    evaluate: EvaluationSettings = EvaluationSettings()
    aggregate: Annotated[Aggregation, Field(validate_default=True, default_factory=dict)]
    synthesize: Annotated[Synthesis, Field(validate_default=True, default_factory=dict)]
    expectations: ExpectationSettings = ExpectationSettings()
    publish: PublishSettings = PublishSettings()
    check: Annotated[
        Literal["stop", "tell"] | None,
        AfterValidator(lambda value: None if value == "tell" else value),
    ] = None
    unchanged: Annotated[
        Literal["release", "skip"] | None,
        AfterValidator(lambda value: None if value == "release" else value),
    ] = None

    @property
    def marginals(self) -> MarginalSettings | None:
        """Settings of marginals, or None where k-tuples are counted."""
        return self.aggregate if isinstance(self.aggregate, MarginalSettings) else None

    @property
    def marginal_settings(self) -> MarginalSettings:
        """Settings of marginals, for a caller who knows that marginals are counted."""
        assert isinstance(self.aggregate, MarginalSettings)
        return self.aggregate

    @property
    def rounds(self) -> AdaptiveCliques | None:
        """Settings of the choice of marginals in rounds; None without rounds, or with a single attribute."""
        settings = self.marginals
        if settings is None or not settings.selects(len(self.attributes)):
            return None
        return settings.adaptive

    @property
    def tuples(self) -> AggregateSettings:
        """Settings of k-tuples, for a caller who knows that k-tuples are counted."""
        assert isinstance(self.aggregate, AggregateSettings)
        return self.aggregate

    def missing_texts(self, column: str) -> tuple[str, ...]:
        """Return the texts that mean "no value" in `column`."""
        declared = self.columns[column]
        texts = () if isinstance(declared, ConstantColumn) else declared.missing
        return self.missing if texts is None else texts

    @property
    def missing_ids(self) -> tuple[str, ...]:
        """Texts that mean "no id" in the column of the privacy unit, which need not be declared; empty where there is none."""
        subject = self.privacy.subject
        if subject is None:
            return ()
        return (
            self.missing_texts(subject.column) if subject.column in self.columns else self.missing
        )

    def lacks_values(self, column: str) -> bool:
        """Return whether a cell of a measured column can have no value as it is declared, from public facts alone."""
        declared = self.columns[column]
        if isinstance(declared, SetColumn):
            return declared.min_values is None  # the cell without a single value
        if isinstance(declared, MeasuredColumn) and declared.impute is not None:
            return False
        if self._always_has_value(column):
            return False
        if self.privacy.joins:
            return True  # rows of one subject that disagree
        return any(map(self._has_gaps, self._cells_of(column)))

    def _always_has_value(self, column: str) -> bool:
        """Return whether no cell is missing: in a derived number of rows or answer, unless the declaration says otherwise.

        Rows of one unit agree in them.
        """
        if column not in self.derived or any(text.strip() for text in self.missing_texts(column)):
            return False
        becomes_missing = getattr(self.columns[column], "outside", None) == "null"
        if becomes_missing and column in self.undeclared_by_rows:
            return False
        return self.derived[column][1].always_has_value

    def _cells_of(self, column: str) -> tuple[str, ...]:
        """Return the columns of the source whose cells decide whether a cell of a measured column has a value."""
        rule = self.structure.difference_of(column) if self.structure else None
        return (column,) if rule is None else (rule.of, rule.since)

    def _has_gaps(self, column: str) -> bool:
        """Return whether a cell of the source may have no value; a column that is not declared is refused elsewhere."""
        declared = self.columns.get(column)
        if not isinstance(declared, MeasuredColumn):
            return False
        return declared.private or declared.outside == "null" or bool(self.missing_texts(column))

    def may_be_undeclared(self, column: str) -> bool:
        """Return whether a cell of a measured column without a value is not as declared: no declaration covers it.

        This includes columns that can be missing, but not together with every value of others (`missing_by_rule`), and derived
        columns that follow from cells which can be not as declared (`undeclared_by_rows`).

        It excludes sets, whose cell without a value is a value; private domains, which have a label for cells whose value is
        not released; and columns in which rows of one subject can disagree.
        """
        if column in self.missing_by_rule:
            return True
        declared = self.columns[column]
        if self._follows_from_undeclared(column):
            return True
        if (
            not isinstance(declared, MeasuredColumn)
            or declared.impute is not None
            or self.lacks_values(column)
            or self._always_has_value(column)
        ):
            return False
        sources = [self.columns.get(name) for name in (column, *self._cells_of(column))]
        return any(
            isinstance(source, MeasuredColumn) and source.outside is None for source in sources
        )

    @cached_property
    def undeclared_by_rows(self) -> tuple[str, ...]:
        """Derived columns that read a column of a linked table in which a cell can be not as declared.

        That is each whose `outside` is not declared: `missing` says which texts mean "no value", and of no other text.
        """
        names = list[str]()
        for name, (table, derivation) in self.derived.items():
            columns = (self.tables or {})[table].columns
            read = (columns.get(column) for column in derivation.columns)
            if any(isinstance(each, MeasuredColumn) and each.outside is None for each in read):
                names.append(name)
        return tuple(names)

    @property
    def undeclared_flags(self) -> tuple[str, ...]:
        """Names of the columns that say, for those of `undeclared_by_rows`, which cells are not as declared."""
        return tuple(UNDECLARED + name for name in self.undeclared_by_rows)

    def flags_of(self, column: str) -> tuple[str, ...]:
        """Return the names of the columns of `undeclared_flags` that decide whether a cell of a column is as declared."""
        names = (UNDECLARED + name for name in self._cells_of(column))
        return tuple(name for name in names if name in self.undeclared_flags)

    def linked_table_of(self, column: str) -> str:
        """Return the linked table whose cells that are not as declared make those of a column so; empty for any other one."""
        names = (name.removeprefix(UNDECLARED) for name in self.flags_of(column))
        return next((self.derived[name][0] for name in names), "")

    def _follows_from_undeclared(self, column: str) -> bool:
        """Return whether cells are not as declared where cells of linked tables are not, unless the column says otherwise."""
        declared = self.columns[column]
        if not isinstance(declared, MeasuredColumn) or not self.flags_of(column):
            return False
        return declared.impute is None and declared.outside is None

    @cached_property
    def missing_by_rule(self) -> tuple[str, ...]:
        """Columns that can be missing, but not together with some values of others, as `applies` or `forbidden` say.

        K-tuples have no count of a missing value: there they are the columns for which counts of other columns reveal where
        they apply.
        """
        rules = self.structure or Structure()
        if self.marginals:
            return self._missing_by(rules)
        counted = [rule for rule in rules.applies or () if len(rule.where) <= self.reporting_length]
        return self._missing_by(Structure(applies=tuple(counted)))

    @property
    def uncounted_gaps(self) -> tuple[str, ...]:
        """Columns that are missing by a rule, but whose cells that are missing against it are not counted: in k-tuples."""
        names = self._missing_by(self.structure or Structure())
        return tuple(name for name in names if name not in self.missing_by_rule)

    def _missing_by(self, rules: Structure) -> tuple[str, ...]:
        """Return the columns with one public value a cell that `rules` let be missing only with some values of others."""
        names = set[str]()
        for rule in rules.applies or ():
            if self._is_missing_elsewhere(rule):
                names.update(rule.columns)
        for entry in rules.forbidden:
            names.update(
                name for name, values in entry.items() if None in self._labels_of(name, values)
            )
        return tuple(
            a.name
            for a in self.attributes
            if a.name in names and a.optional and not (a.is_set or a.private)
        )

    def _is_missing_elsewhere(self, rule: AppliesRule) -> bool:
        """Return whether the columns are missing where they do not apply."""
        otherwise = rule.otherwise
        return otherwise is None or all(
            None in self._labels_of(name, (otherwise,)) for name in rule.columns
        )

    def codes_of(self, where: Mapping[str, Condition | Texts]) -> dict[int, list[int]]:
        """Return the codes that meet conditions, by place of the attribute; each column has one public value a cell."""
        places = {attribute.name: place for place, attribute in enumerate(self.attributes)}
        codes = dict[int, list[int]]()
        for name, values in where.items():
            place = places[name]
            allowed = self._labels_of(name, values)
            labels = self.attributes[place].labels
            codes[place] = [code for code, label in enumerate(labels) if label in allowed]
        return codes

    def _labels_of(self, name: str, values: Condition | Texts) -> tuple[str | None, ...]:
        return labels_of(name, self.columns[name], values, self.missing_texts(name))

    @cached_property
    def undeclared(self) -> tuple[str, ...]:
        """Names of the attributes that may have cells that are not as declared."""
        names = list[str]()
        for attribute in self.attributes:
            is_single = not (attribute.of_set or attribute.is_set or attribute.private)
            if is_single and self.may_be_undeclared(attribute.name):
                names.append(attribute.name)
        return tuple(names)

    @cached_property
    def indicated_sets(self) -> tuple[str, ...]:
        """Names of the sets for which the records that hold a value that is not declared are counted.

        Each has one more table among those of single attributes (`indicators`), and no code in any other table: such values
        are left out of records.
        """
        return self._open_sets if self.marginals else ()

    @property
    def uncounted_sets(self) -> tuple[str, ...]:
        """Names of the sets for which records that hold a value that is not declared are not counted: in k-tuples."""
        return () if self.marginals else self._open_sets

    @property
    def _open_sets(self) -> tuple[str, ...]:
        """Names of the sets that do not declare how to treat a value outside the domain."""
        columns = self.columns.items()
        return tuple(
            name
            for name, column in columns
            if isinstance(column, SetColumn) and column.marks_undeclared
        )

    @property
    def indicators(self) -> tuple[Attribute, ...]:
        """Tables of `indicated_sets`, as attributes behind the others: the missing code counts records with such a value."""
        return tuple(
            Attribute(name=name, column=name, labels=INDICATOR) for name in self.indicated_sets
        )

    @cached_property
    def counted_undeclared(self) -> Collection[str]:
        """Names of the attributes in which cells that are not as declared have a code; none unless `with_undeclared` set it."""
        return ()

    def with_undeclared(self, names: Collection[str]) -> Self:
        """Return the configuration in which the last code of these attributes means cells that are not as declared.

        While tables are counted all attributes of `undeclared` have it, and later those in which such cells were found.
        """
        if set(names) == set(self.counted_undeclared):
            return self
        return self._with_cached(counted_undeclared=tuple(names))

    def _with_cached(self, **values: object) -> Self:
        """Return a copy in which these cached properties have these values."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        copy = self.model_construct(_fields_set=self.model_fields_set, **fields)
        vars(copy).update(values)  # where cached properties are stored
        return copy

    def of_columns(self, columns: Mapping[str, Column], attributes: Sequence[Attribute]) -> Self:
        """Return the configuration of other records, which have these columns and attributes and no rules."""
        return self._with_cached(
            columns=dict(columns),
            attributes=tuple(attributes),
            structure=None,
            tables=None,
            known=None,
        )

    @cached_property
    def has_one_gap(self) -> bool:
        """Return whether an empty cell does not say if it is missing or not as declared: in k-tuples, and in records.

        Then rules do not apply to empty cells in columns of `counted_undeclared`.
        """
        return self.marginals is None

    @property
    def as_recorded(self) -> Self:
        """Configuration for records, in which an empty cell is missing or not as declared."""
        return self._with_cached(counted_undeclared=self.counted_undeclared, has_one_gap=True)

    @property
    def imputed_columns(self) -> tuple[str, ...]:
        """Names of the columns in which a draw may have replaced a cell without a value, as `impute` says."""
        names = list[str]()
        for name, column in self.columns.items():
            if isinstance(column, MeasuredColumn) and column.impute is not None:
                has_outside = column.private or column.outside in (None, "null")
                if has_outside or self.privacy.joins or self.missing_texts(name):
                    names.append(name)
        return tuple(names)

    @cached_property
    def repaired_columns(self) -> tuple[str, ...]:
        """Names of the columns in which a cell may have been changed because its row broke a rule of `structure`."""
        structure = self.structure
        if structure is None or not structure.can_be_broken:
            return ()  # a set that is never empty (`empty_sets`) is refused, and changes no row
        rules = enforced_rules(self.excluded_by(structure), self.attributes)
        changed = repaired_attributes(rules, self.repair_order, self.attributes, self.undeclared)
        return tuple(dict.fromkeys(self.attributes[j].column for j in sorted(changed)))

    @property
    def enforced_rules(self) -> tuple[Forbidden, ...]:
        """Rules that every row is changed to keep before it is counted: none on a private domain or a set of k-tuples."""
        return enforced_rules(self.forbidden, self.attributes)

    @property
    def repair_order(self) -> list[int]:
        """Attributes in the order in which a repair decides their codes."""
        return repair_order(self.structure, self.attributes)

    def can_be_missing(self, column: str) -> bool:
        """Return whether the output can lack a value of `column`, from public facts alone."""
        rule = self.structure.rule_of(column) if self.structure else None
        if rule is not None:
            return rule.leaves_gaps or any(map(self.can_be_missing, rule.sources))
        if not isinstance(self.columns[column], MeasuredColumn):
            return False
        return self.lacks_values(column) or column in self.counted_undeclared

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        """Attributes that are counted, in the order of the columns.

        In marginals each declared value of a set is a separate attribute.
        """
        structure = self.structure or Structure()
        attributes = list[Attribute]()
        for name, column in self.columns.items():
            if isinstance(column, MeasuredColumn) and structure.rule_of(name) is None:
                attributes += self._of_column(name, column)
        return tuple(attributes)

    def _of_column(self, name: str, column: MeasuredColumn) -> tuple[Attribute, ...]:
        """Return the attribute of a column; for a set in marginals, one for each value, which a record has or lacks."""
        if self.marginals and column.is_set and not column.private:
            values = column.labels
            return tuple(
                Attribute(name=f"{name}={v}", column=name, labels=(v,), of_set=True) for v in values
            )
        attribute = Attribute(
            name=name,
            column=name,
            labels=column.labels,
            private=column.private,
            optional=self.lacks_values(name),
            imputed=column.impute is not None,
            undeclared=name in self.counted_undeclared
            and not (self.has_one_gap and self.lacks_values(name)),
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
        """For each set that is never empty, the combination in which a record lacks all of its values."""
        boxes = list[Forbidden]()
        for name, column in self.columns.items():
            if isinstance(column, SetColumn) and column.min_values:
                places = [j for j, a in enumerate(self.attributes) if a.of_set and a.column == name]
                if places:
                    boxes.append(tuple((place, (None,)) for place in places))
        return tuple(boxes)

    def excluded_by(self, rules: Structure) -> tuple[Forbidden, ...]:
        """Return the combinations that cannot be by `rules`. Raises ValueError for a value that a column does not have."""
        combinations = forbidden_labels(rules, self.columns, self.attributes, self.missing_texts)
        if not self.has_one_gap:
            return combinations
        open_gaps = {
            place for place, a in enumerate(self.attributes) if a.name in self.counted_undeclared
        }
        return without_gaps(combinations, open_gaps)

    def contribution_cap(self, length: int) -> int:
        """Return the public cap of Delta_k: the most combinations of `length` that one record can hold."""
        return most_combinations((attribute.width for attribute in self.attributes), length)

    @cached_property
    def optional(self) -> tuple[bool, ...]:
        """For each attribute, whether a record can lack its value."""
        return tuple(attribute.optional for attribute in self.attributes)

    @cached_property
    def ordered(self) -> tuple[int, ...]:
        """Places of the attributes whose labels are in the order of their values: numbers, dates, and those declared so."""
        ordered = {name for name, column in self.columns.items() if column.ordered}
        ordered.update(self.evaluate.ordered or ())
        return tuple(
            place for place, attribute in enumerate(self.attributes) if attribute.name in ordered
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that are counted, in declared order."""
        counted = {attribute.column for attribute in self.attributes}
        return tuple(name for name in self.columns if name in counted)

    @cached_property
    def raw_names(self) -> tuple[str, ...]:
        """Names of the columns whose cells are read: counted ones, or those of counted differences; in declared order."""
        structure = self.structure or Structure()
        read = set(self.names)
        for rule in structure.difference or ():
            read.add(rule.of)
        for rule in structure.difference or ():
            read.discard(rule.column)
        return tuple(name for name in self.columns if name in read)

    @cached_property
    def source_names(self) -> tuple[str, ...]:
        """Names of the columns that are read from the source: `raw_names`, and the column of the privacy unit."""
        subject = self.privacy.subject
        return self.raw_names if subject is None else (*self.raw_names, subject.column)

    @cached_property
    def derived(self) -> Mapping[str, tuple[str, Derivation]]:
        """Columns that follow from rows of linked tables: the table and how they follow, by their names."""
        return {
            column: (name, derivation)
            for name, table in sorted((self.tables or {}).items())
            for column, derivation in table.derive.items()
        }

    @cached_property
    def counted_tables(self) -> tuple[str, ...]:
        """Names of the linked tables whose rows are counted, sorted."""
        tables = sorted((self.tables or {}).items())
        return tuple(name for name, table in tables if table.at_most is not None)

    @cached_property
    def recorded_tables(self) -> Mapping[str, str]:
        """Counted tables that get synthetic rows: by their names, the derived column that says how many rows a unit has.

        The rows of a unit follow from the mixture that its record is made of.
        """
        if self.synthesize.method != "mixture":
            return {}
        columns = {}
        for name in self.counted_tables:
            table = (self.tables or {})[name]
            counts = [column for column, rule in table.derive.items() if rule.count]
            if counts and self.key_of(name) not in table.columns:
                columns[name] = counts[0]
        return columns

    def key_of(self, table: str) -> str:
        """Return the column of a linked table with the id of the unit of each row."""
        subject = self.privacy.subject
        return (self.tables or {})[table].by or (subject.column if subject is not None else "")

    def of_rows(self, table: str, gaps: Collection[str] = ()) -> Self:
        """Return the configuration of the rows of a linked table, as if they were records.

        `gaps` are the columns in which rows can lack a value, for whatever reason: rules do not apply to an empty cell there.
        """
        linked = (self.tables or {})[table]
        columns: dict[str, Column] = {}
        attributes = []
        for name, column in linked.columns.items():
            assert isinstance(column, MeasuredColumn)
            missing = linked.missing_texts(name, self.missing)
            columns[name] = column.model_copy(update={"missing": missing})
            attributes.append(Attribute(name=name, column=name, labels=column.labels))
        return self._with_cached(
            source=linked.source,
            columns=columns,
            attributes=tuple(attributes),
            structure=linked.structure,
            tables=None,
            known=None,
            counted_undeclared=tuple(gaps),
            has_one_gap=True,
        )

    @property
    def unit_words(self) -> str:
        """Words for the unit, after "one", with the linked tables whose rows belong to it."""
        words = self.privacy.unit_words
        return f"{words}, with all rows of {listed(sorted(self.tables))}" if self.tables else words

    @property
    def table_shares(self) -> tuple[float, ...]:
        """Share of the budget of each of `counted_tables`: as declared, or an equal part of `TABLES_SHARE`."""
        tables = [(self.tables or {})[name] for name in self.counted_tables]
        return tuple(table.share or TABLES_SHARE / len(tables) for table in tables)

    @property
    def nested_names(self) -> tuple[str, ...]:
        """Names of the columns that hold, in each row of the source, the rows that its unit has in a counted table."""
        return tuple(NESTED + name for name in self.counted_tables)

    @property
    def beside_attributes(self) -> tuple[Attribute, ...]:
        """Attributes of the source that columns of linked tables can be counted beside: each cell is one public value."""
        attributes = list[Attribute]()
        for attribute in self.attributes:
            column = self.columns[attribute.column]
            if isinstance(column, MeasuredColumn) and column.public_cells and not column.is_set:
                attributes.append(attribute)
        return tuple(attributes)

    @property
    def stored_names(self) -> tuple[str, ...]:
        """Those of `source_names` that the source itself has: all but the derived ones."""
        return tuple(name for name in self.source_names if name not in self.derived)

    @cached_property
    def spelled_names(self) -> tuple[str, ...]:
        """Names of the columns whose texts matter: those of private domains, and the column of the privacy unit.

        Their texts are released or identify people, so they need a type in which a cell has one faithful text.
        """
        subject = self.privacy.subject
        spelled = set[str]() if subject is None else {subject.column}
        for name in self.raw_names:
            column = self.columns[name]
            if isinstance(column, MeasuredColumn) and column.private:
                spelled.add(name)
        return tuple(name for name in self.source_names if name in spelled)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the synthetic table, in declared order: all except identifiers."""
        return tuple(
            name
            for name, column in self.columns.items()
            if not isinstance(column, IdentifierColumn)
        )

    @cached_property
    def reporting_length(self) -> int:
        """Length R of the longest combination of k-tuples: declared, or min(3, number of attributes)."""
        return self.tuples.reporting_length or min(3, len(self.attributes))

    @cached_property
    def longest(self) -> int:
        """Most attributes of a released combination: the files have columns for this number, whatever was drawn."""
        return (
            self.reporting_length
            if self.marginals is None
            else self.marginals.longest(len(self.attributes))
        )

    @cached_property
    def percentile(self) -> float | None:
        """Percentile of the contribution bound of k-tuples, or None where the bound is its public cap."""
        declared = self.tuples.percentile
        if declared is None:
            return 99.0 if any(self.optional) else None
        return None if declared == "none" else declared

    @cached_property
    def private_columns(self) -> tuple[str, ...]:
        """Names of the attributes whose values are discovered under the budget."""
        return tuple(attribute.name for attribute in self.attributes if attribute.private)

    @cached_property
    def private_values(self) -> int:
        """Most values of private domains that one record can hold."""
        return sum(attribute.width for attribute in self.attributes if attribute.private)

    @cached_property
    def private_bounds(self) -> tuple[str, ...]:
        """Names of the number columns whose bounds are bought from the budget."""
        return tuple(name for name, column in self.columns.items() if column.buys_bounds)

    def clamped_ends(self, name: str) -> tuple[ClampedEnd, ...]:
        """Return the ends of a column's bounds beyond which values count as the bound; none of a column without bins."""
        column = self.columns[name]
        return column.clamped_ends if isinstance(column, BinnedColumn) else ()

    def clamped_words(self, name: str, ends: Collection[ClampedEnd] | None = None) -> str:
        """Return words for what values beyond some ends of a column's bounds count as, all by default; empty without ends."""
        column = self.columns[name]
        if not isinstance(column, BinnedColumn):
            return ""
        return column.clamped_words(column.clamped_ends if ends is None else ends)

    def rounding_words(self, name: str) -> str:
        """Return words for what the numbers of a column are rounded to; empty where they are not, or it has none."""
        column = self.columns[name]
        return column.rounding_words if isinstance(column, NumberColumn) else ""

    @property
    def block_rows(self) -> int:
        """Rows that a stage holds at a time: memory / (8 x 64 bytes x columns), 1024 to 262144. DP: from public numbers."""
        columns = max(1, len(self.source_names))
        fitting = self.memory // (_SHARE * _BYTES_A_CELL * columns)
        return min(max(fitting, _LEAST_ROWS), _MOST_ROWS)

    @property
    def bounds_share(self) -> float:
        """Share of the budget that all private bounds have in all."""
        return (
            DEFAULT_BOUNDS_SHARE
            if self.aggregate.bounds_share is None
            else self.aggregate.bounds_share
        )

    @cached_property
    def cut_sets(self) -> Mapping[str, str]:
        """Words for the number of values of a cell that are counted, by column: sets whose cells may hold more."""
        words = dict[str, str]()
        for name, column in self.columns.items():
            if isinstance(column, SetColumn) and (
                column.private or column.max_values < len(column.labels)
            ):
                key = "of.value" if column.max_values == 1 else "of.values"
                words[name] = str(counts_sentence(key, values=column.max_values, column=name))
        return words

    @property
    def counted_words(self) -> str | None:
        """Words for what numbers are of, after "counts", where that is not the whole table as it is; else None."""
        return self.counted_among((*self.cut_sets, *self.imputed_columns))

    def counted_with(self, bounds: Mapping[int, int]) -> str | None:
        """Return `counted_words`, and words for k-tuples of which fewer were counted (`bounds`) than a record may hold."""
        cut = str(counts_sentence("of.combinations")) if self.cuts_any(bounds) else None
        return _joined(self.counted_words, cut)

    def count_note(self, bounds: Mapping[int, int]) -> str | None:
        """Return a sentence on the part of the table that counts are of (`counted_with`), or None for the whole table."""
        counted = self.counted_with(bounds)
        if counted is None:
            return None
        return str(counts_sentence("of.note", part=counted, more=self.uncounted_words))

    @property
    def uncounted_words(self) -> str:
        """Words for the rest of the table, where numbers are of a part."""
        is_changed = self.resize is not None or self.imputed_columns or self.repaired_columns
        return str(counts_sentence("of.more-or-fewer" if is_changed else "of.more"))

    def cuts_any(self, bounds: Mapping[int, int]) -> bool:
        """Return whether k-tuples counted, of some length, fewer combinations than a record may hold; no record is left out."""
        return any(self.is_cut(length, bound) for length, bound in bounds.items())

    def is_cut(self, length: int, bound: int) -> bool:
        """Return whether a record may hold more combinations of a length than the `bound` that k-tuples counted of each."""
        return self.marginals is None and bound < self.contribution_cap(length)

    def counted_among(self, columns: Collection[str]) -> str | None:
        """Return words for what a number of some columns is of, as `counted_words`."""
        cut = [words for name, words in self.cut_sets.items() if name in columns]
        imputed = [name for name in self.imputed_columns if name in columns]
        filled = str(counts_sentence("of.filled", columns=", ".join(imputed))) if imputed else None
        changed = [name for name in self.repaired_columns if name in columns]
        mended = str(counts_sentence("of.mended", columns=", ".join(changed))) if changed else None
        bounded = _joined(self.privacy.counted_words, *cut, filled, mended)
        if self.resize is None:
            return bounded
        key = "of.resized-part" if bounded else "of.resized"
        return str(counts_sentence(key, records=self.resize.records, part=bounded or ""))

    def not_a_sample(self, columns: Collection[str]) -> str | None:
        """Return why what was counted of some columns is no simple sample of a population, by the configuration; else None."""
        if self.resize is not None:
            return "the rows were resampled (resize)"
        imputed = [name for name in self.imputed_columns if name in columns]
        if imputed:
            return f"cells of {', '.join(imputed)} without a value hold draws (impute)"
        changed = [name for name in self.repaired_columns if name in columns]
        if changed:
            return f"rows that broke the rules of {', '.join(changed)} were changed before they were counted (structure)"
        cut = [words for name, words in self.cut_sets.items() if name in columns]
        if cut:
            return f"{' and '.join(cut)} were counted (max_values)"
        return None

    @cached_property
    def stability(self) -> Stability:
        """Number of records of the encoded table that one unit changes, and whether they are replaced; after resize."""
        unit = self.privacy.stability
        return unit if self.resize is None else self.resize.stability(unit)


def _joined(*words: str | None) -> str | None:
    """Return the words that are not None or empty, joined by "and"; None for none."""
    joined: str | None = None
    for part in filter(None, words):
        joined = (
            part if joined is None else str(counts_sentence("of.and", first=joined, second=part))
        )
    return joined
