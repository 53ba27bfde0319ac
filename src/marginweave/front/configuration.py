"""Configurations in Python: the mapping of the YAML file, made by hand, read from a file, or drafted from a table.

import marginweave as mw

config = mw.Configuration(
    dataset="visits",
    privacy=mw.Privacy(epsilon=1, delta=1e-6, unit=mw.person("patient_id", max_records=4)),
    columns={"sex": mw.category(["f", "m"]), "age": mw.number(0, 100, bins=10)},
)
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self
from warnings import warn

from pydantic import BaseModel, ValidationError

from marginweave.base.errors import InputError, must_be
from marginweave.base.places import FRAME
from marginweave.base.shown import Shown
from marginweave.configuration.code_lists import with_code_lists
from marginweave.configuration.columns import Category, DateColumn, NumberColumn
from marginweave.configuration.parse import broken_rules, join_messages, refusal
from marginweave.configuration.privacy import PrivacySettings, SubjectUnit
from marginweave.configuration.yaml_source import canonical_written, parse_yaml, read_text
from marginweave.runs.home import home_directory

if TYPE_CHECKING:
    import pyarrow as pa

    from marginweave.configuration.release import Configuration as Resolved
    from marginweave.drafts.drafted_configuration import ConfigurationDraft

_SECTIONS = ("source", "privacy", "rows")
_NOT_READ = ("identifier", "constant")


class Privacy(dict[str, Any]):
    """The section `privacy`: (epsilon, delta) of the whole release, and whose privacy it is, "row" or `person(…)`."""

    def __init__(
        self, *, epsilon: float, delta: float, unit: str | Mapping[str, Any] = "row", **keys: Any
    ) -> None:
        super().__init__(epsilon=epsilon, delta=delta, unit=unit, **keys)
        _checked(self, PrivacySettings)


def person(column: str, max_records: int | None = None, **keys: Any) -> dict[str, Any]:
    """Return a unit of privacy: a person with several rows, by `column`.

    At most `max_records` rows of a person are counted, or `join=True` makes one record of all. `keys` are further keys.
    """
    most = {} if max_records is None else {"max_records": max_records}
    return _checked({"column": column, **most, **keys}, SubjectUnit)


def category(
    values: Iterable[Any] | Mapping[str, str] | None = None, **keys: Any
) -> dict[str, Any]:
    """Return a column with the public `values`; without them the values are bought from the budget (a private domain).

    `values` may name a code list, as in `{"file": "codes.csv", "value": "code", "label": "title"}`.

    `keys` are further keys of the column, such as `missing` or `public`, as in the configuration reference.
    """
    if isinstance(values, Mapping):  # the file is checked when it is read
        return {"type": "category", "values": dict(values), **keys}
    domain = {"domain": "private"} if values is None else {"values": _native(values)}
    column = {"type": "category", **domain, **keys}
    return _checked(column, Category)


def number(
    low: float | None = None, high: float | None = None, *, bins: Any, **keys: Any
) -> dict[str, Any]:
    """Return a column of numbers from `low` to `high`, counted in `bins`.

    `bins` is their number, their edges, or another form of the configuration reference. `keys` are further keys.
    """
    bounds = {} if low is None or high is None else {"bounds": [_native(low), _native(high)]}
    column = {"type": "number", **bounds, "bins": _native(bins), **keys}
    return _checked(column, NumberColumn)


def date(
    first: str | datetime.date, last: str | datetime.date, *, bins: Any, **keys: Any
) -> dict[str, Any]:
    """Return a column of dates from `first` to `last`, counted in `bins`: year, quarter, month, week, weekday or edges.

    `keys` are further keys of the column.
    """
    bounds = [str(first), str(last)]
    column = {"type": "date", "bounds": bounds, "bins": _native(bins), **keys}
    return _checked(column, DateColumn)


def _checked(content: dict[str, Any], kind: type[BaseModel]) -> dict[str, Any]:
    """Return the content of a section or column after a check. Raises InputError for a rule that is broken."""
    try:
        kind.model_validate(content)
    except ValidationError as error:
        rules = broken_rules(map(dict, error.errors(include_url=False)), kind)
        raise InputError(join_messages(rules)) from None
    return content


def _native(value: Any) -> Any:
    """Return a value of numpy or pandas as a Python value; a date in ISO form. Raises InputError for a Series."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if type(value).__name__ == "Series":
        raise InputError(
            "values and edges must be public, and a Series holds those of a table; write the list that is published, or "
            "category() to buy values from the budget"
        )
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [_native(item) for item in value]
    return value


def _draft_of_file(source: str) -> ConfigurationDraft:
    """Return the draft for a file, whose form is recognised; raises InputError."""
    from marginweave.configuration.execution import SourceFile
    from marginweave.drafts.draft import draft_configuration
    from marginweave.drafts.recognise import recognise
    from marginweave.drafts.recognise_layout import guesses
    from marginweave.sources.sheet import workbooks_in_memory

    try:
        form = SourceFile(file=source)
    except ValidationError as error:
        raise refusal(error) from None
    with workbooks_in_memory():
        recognised = recognise(source, form, encoding=True)
        return draft_configuration(source, recognised, guesses=guesses(form, recognised))


def _draft_of_frames(data: Mapping[str, Any], dataset: str) -> tuple[ConfigurationDraft, str]:
    """Return the draft for frames of linked tables, and the name of the one that is the source; raises InputError."""
    from marginweave.configuration.execution import SourceFile
    from marginweave.drafts.draft import draft_tables
    from marginweave.drafts.table_facts import TableFacts

    tables = {}
    for name, frame in data.items():
        table = _table_of(frame, name)
        tables[name] = TableFacts(table, table.column_names)
    forms = {name: SourceFile(file=f"{name}.parquet") for name in tables}
    draft, family = draft_tables(dataset, forms, tables)
    for name, link in family.below.items():
        warn(
            f"{name} is left out: its rows belong to rows of {link.parent}; add the column {family.key} to it, and draft again",
            stacklevel=3,
        )
    return replace(draft, source=SourceFile(file=FRAME)), family.root


def _table_of(frame: Any, name: str) -> pa.Table:
    """Return the columns of a frame, with a warning if it has an index, which is left out."""
    from marginweave.runs.frames import as_table

    index = getattr(frame, "index", None)
    index_names = [str(each) for each in getattr(index, "names", ()) if each is not None]
    if index_names:
        left_out = ", ".join(index_names)
        warn(
            f"the index ({left_out}) is left out; draft({name}.reset_index()) keeps it",
            stacklevel=3,
        )
    return as_table(frame)


def _remarks_of(draft: ConfigurationDraft) -> dict[str, str]:
    """Return what a draft says of each fact that waits, by the name under which it waits."""
    remarks = {name: column.remark for name, column in draft.columns.items()}
    for table in draft.tables:
        place = f"tables.{table.name}"
        remarks[place] = f"does by ({table.link.by}) name the id of the unit?"
        for name, column in table.columns.items():
            remarks[f"{place}.columns.{name}"] = column.remark
        for derived in table.derived:
            remarks[f"{place}.derive.{derived.name}"] = derived.remark
    remarks |= {relation.name: relation.finding for relation in draft.relations}
    return {**remarks, "source": ". ".join(draft.guesses)}


class Configuration(Shown, dict[str, Any]):
    """The configuration of a release, with the keys of its YAML file: a dictionary that can be changed like one.

    A draft lists the facts that were read from the table and that nobody has confirmed. `Synthesizer` refuses it until
    `confirm` was called for each of them, as `marginweave run` refuses the file. Until then it is as sensitive as the table.
    """

    _remarks: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def draft(
        cls, data: Any, dataset: str | None = None, home: str | Path | None = None
    ) -> Configuration:
        """Return a draft from a look at a table, as `marginweave init` makes it, and record the look in the home.

        Args:
            data: a frame of pandas or Polars, an Arrow table, or the path of a table; of linked tables a mapping of names to
                frames.
            dataset: name of the account; by default the name of the file, where `data` is a path.
            home: the folder of `runs/`; by default MARGINWEAVE_HOME or the working directory.

        DP: none; it is as sensitive as the table until each fact is confirmed.

        Raises:
            InputError: the table cannot be read, a frame has no name for its account, or a column a dtype that `fit` refuses.
        """
        from marginweave.configuration.execution import SourceFile
        from marginweave.drafts.draft import draft_table
        from marginweave.drafts.draft_text import write_draft
        from marginweave.runs.looks import record_look

        must_be("dataset", dataset, (str, type(None)), 'draft(frame, dataset="visits")')
        frames: dict[str, Any] = {}
        if isinstance(data, str | Path):
            source = str(data)
            draft = _draft_of_file(source)
        elif dataset is None:
            raise InputError(
                'a frame has no name; give the name of its account, as in draft(frame, dataset="visits")'
            )
        elif isinstance(data, Mapping):
            source = dataset
            draft, root = _draft_of_frames(data, dataset)
            frames = {table.name: data[table.name] for table in draft.tables} | {"": data[root]}
        else:
            source = dataset
            frames = {"": data}
            table = _table_of(data, "frame")
            draft = draft_table(table, dataset, SourceFile(file=FRAME), table.column_names)
        drafted = cls(parse_yaml(write_draft(draft)))
        if dataset is not None:
            drafted["dataset"] = dataset
        for name, frame in frames.items():
            drafted._refuse_types(frame, name)
        drafted._remarks = _remarks_of(draft)
        record_look(
            home_directory(home), "init", drafted["dataset"], source, canonical_written(drafted)
        )
        return drafted

    def _refuse_types(self, frame: Any, table: str) -> None:
        """Refuse a drafted column of a dtype, or with a cell, that `fit` refuses, with the same message; raises InputError.

        `table` is the name of the frame's linked table, empty for the source.
        """
        from marginweave.runs.frames import refuse_spellings, refuse_types

        tables = self.get("tables", {})
        section = tables[table] if table else self
        columns = section.get("columns", {})
        derived = {name for each in tables.values() for name in each["derive"]}
        unit = self["privacy"]["unit"]
        kinds = {
            name: column["type"]
            for name, column in columns.items()
            if column["type"] not in _NOT_READ and (table or name not in derived)
        }
        spelled = {name for name in kinds if columns[name].get("domain") == "private"}
        if isinstance(unit, Mapping):
            ids = section["by"] if table else unit["column"]
            kinds[ids] = "identifier"
            spelled.add(ids)
        refuse_types(frame, kinds, spelled)
        refuse_spellings(frame, spelled)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """Return the configuration in a file, with the code lists that it names.

        Raises:
            InputError: the file, or a code list, is not there or cannot be parsed.
        """
        must_be("path", path, (str, Path), 'from_yaml("visits.yaml")')
        text = read_text(Path(path), "configuration")
        return cls(with_code_lists(parse_yaml(text, str(path)), Path(path).resolve().parent))

    def to_yaml(self, path: str | Path | None = None) -> str:
        """Return the YAML text, a line for each column; with `path`, also write it to that new file, which only you can read.

        Where no `source` was named, it is frame.parquet: write the frame there, `frame.to_parquet("frame.parquet")`, for
        `marginweave check` and `run`, or name another place with their `--source`.

        Raises:
            InputError: the file exists.
        """
        from marginweave.base.durable import write_once
        from marginweave.configuration.load import with_frames
        from marginweave.configuration.yaml_lines import yaml_line

        must_be("path", path, (str, Path, type(None)), 'to_yaml("visits.yaml")')
        lines = []
        for key, value in with_frames(self).items():
            if key == "columns" and isinstance(value, Mapping):
                lines.append("columns:")
                lines += [
                    f"  {yaml_line(name)}: {yaml_line(column)}" for name, column in value.items()
                ]
            else:
                lines.append(f"{key}: {yaml_line(value, below=key)}")
        text = "\n".join(lines) + "\n"
        if path is not None and not write_once(Path(path), text.encode()):
            raise InputError(
                f"{path} exists already and is not overwritten; name another file, or delete this one before: "
                f"pathlib.Path({str(path)!r}).unlink()"
            )
        return text

    def copy(self) -> Self:
        """Return a configuration that shares the sections of this one, like a shallow copy of a dictionary."""
        return copy(self)

    def __or__(self, changes: Mapping[str, Any]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return a configuration in which the keys of `changes` replace those of this one."""
        changed = self.copy()
        changed.update(changes)
        return changed

    @property
    def unconfirmed(self) -> dict[str, str]:
        """Facts that were read from a table and wait for `confirm`, by name, each with advice on what to check."""
        advice = {
            "source": self._remarks.get("source", ""),
            "privacy": "whose privacy is it? Look at unit, and at max_records where it has one",
            "rows": "of the table (people with join: true). Delete it unless the size is published",
        }
        facts = {}
        for key in _SECTIONS:
            if isinstance(self.get(key), dict) and self[key].get("confirm"):
                facts[key] = advice[key]
        for name, column in self.get("columns", {}).items():
            if column.get("confirm"):
                facts[f"columns.{name}"] = self._remarks.get(name, "")
        for name in (*self._drafted_rules(), *self._drafted_in_tables()):
            facts[name] = self._remarks.get(name, "")
        return facts

    def _drafted_in_tables(self) -> dict[str, dict[str, Any]]:
        """Return what waits to be confirmed in linked tables, by name: ids, sources, columns, and derived columns."""
        waiting: dict[str, dict[str, Any]] = {}
        for name, table in (self.get("tables") or {}).items():
            sections = {"": table, ".source": table.get("source")}
            for key in ("columns", "derive"):
                for column, section in table.get(key, {}).items():
                    sections[f".{key}.{column}"] = section
            for place, section in sections.items():
                if isinstance(section, dict) and section.get("confirm") in (True, "true"):
                    waiting[f"tables.{name}{place}"] = section
        return waiting

    def _drafted_rules(self) -> dict[str, dict[str, Any]]:
        """Return the rules of `structure` that wait to be confirmed, by name."""
        from marginweave.drafts.relations import rule_name

        rules: dict[str, dict[str, Any]] = {}
        for key, entries in (self.get("structure") or {}).items():
            for rule in entries or ():
                if rule.get("confirm") in (True, "true"):
                    rules[rule_name(key, rule)] = rule
        return rules

    def confirm(self, name: str, public: str = "") -> Self:
        """Say that a drafted fact is public knowledge, and of a column where it is published; privacy.json prints that.

        Args:
            name: a column, `source`, `privacy`, `rows`, a rule, or a part of `tables`, as `unconfirmed` names it. `source` says
                that the table begins and ends where it says, `privacy` that its unit is right, and `rows` that the number of
                rows is published: those of the table, also where a person has several; with `join: true`, of people. To
                decline a rule, delete it from `structure`; a derived column, from `derive` and `columns`.
            public: where the facts of the column are published, such as "questionnaire 2019, p. 4".

        Raises:
            InputError: nothing of this name waits, or it is not said where it is published.
        """
        for key, value in {"name": name, "public": public}.items():
            must_be(key, value, (str,), 'confirm("age", "questionnaire 2019, p. 4")')
        key = name if name in self.unconfirmed else f"columns.{name}"
        if key not in self.unconfirmed:
            waiting = ", ".join(self.unconfirmed) or "nothing"
            raise InputError(f"{name} is not waiting to be confirmed; waiting are: {waiting}")
        if key == "rows":
            self["rows"] = self["rows"]["about"]
        elif key in {"source", "privacy"}:
            del self[key]["confirm"]
        elif key.startswith("structure."):
            del self._drafted_rules()[key]["confirm"]
        elif key.startswith("tables.") and ".columns." not in key:
            del self._drafted_in_tables()[key]["confirm"]
        elif not public.strip():
            raise InputError(
                f'{key} needs a place where it is published; call confirm("{name}", "questionnaire 2019, p. 4")'
            )
        else:
            column = self._drafted_in_tables().get(key)
            if column is None:
                column = self["columns"][key.removeprefix("columns.")]
            del column["confirm"]
            column["public"] = public.strip()
        return self

    @property
    def resolved(self) -> Resolved:
        """Configuration as it is released, with all defaults; raises InputError for a broken rule or an unconfirmed fact."""
        from marginweave.configuration.load import configuration_of

        return configuration_of(self)

    @property
    def digest(self) -> str:
        """Digest that the ledger and the names of runs have; the same as for the YAML file with the same content."""
        return self.resolved.written_digest

    def __repr__(self) -> str:
        lines = [self.to_yaml().rstrip()]
        facts = self.unconfirmed
        if facts:
            lines += ["", f"{len(facts)} facts wait for confirm:"]
        for name, remark in facts.items():
            lines.append(f"  {name}: {remark}" if remark else f"  {name}")
        return "\n".join(lines)
