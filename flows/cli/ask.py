"""The questions that a draft leaves to its steward, asked one by one in a terminal.

What was drafted is shown with each question and is the default. An answer is checked as the configuration would be, and asked
for again where it breaks a rule; nothing is made up in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.prompt import Prompt
from rich.text import Text

from marginweave.flows.cli.console import out
from marginweave.schemas.configuration.code_lists import with_code_lists
from marginweave.schemas.configuration.yaml_source import parse_yaml
from marginweave.schemas.errors import InputError
from marginweave.tasks.accounting.plan.resolve import parse_configuration
from marginweave.tasks.validate.draft import Draft, column_line, flow
from marginweave.tasks.validate.draft_columns import ColumnDraft, look_at
from marginweave.tasks.validate.draft_unit import subject_in

_ASKED = {
    "values": "Every value that can be, in order",
    "bounds": "The lowest and highest that can be",
    "bins": "How many bins, or their edges",
    "decimals": "Decimals",
    "max_values": "The most values that a cell has",
    "missing": 'Texts that mean "no value"',
    "within": "A range in which the bounds surely lie",
    "max_records": "The most rows of one person that are counted",
    "rows": "About how many",
}
_LISTS = frozenset({"values", "bounds", "missing", "within"})
_WORDS = frozenset({"label", "description"})
_KINDS: Mapping[str, tuple[str, ...]] = {
    "category": ("values",),
    "boolean": (),
    "number": ("bounds", "bins", "decimals"),
    "date": ("bounds", "bins", "format"),
    "identifier": (),
}
_PRIVATE: Mapping[str, dict[str, Any]] = {
    "category": {"domain": "private"},
    "number": {"bounds": "private", "within": [], "bins": 10},
}
_OTHER = {"type": "category", "values": ["x"]}
_BASE: Mapping[str, Any] = {
    "dataset": "draft",
    "source": "draft.csv",
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
    "columns": {"x": _OTHER},
}


class _Question(Prompt):
    illegal_choice_message = "That is none of the choices."


def _ask(question: str, default: str = "", choices: Sequence[str] = (), *, shown: bool = True) -> str:
    given = list(choices) or None
    asked = Text(question)
    found = _Question.ask(
        asked, console=out, default=default, choices=given, show_default=bool(default), show_choices=shown
    )
    return found.strip()


def _parsed(key: str, answer: str) -> Any:
    """What the answer would be below `key` of a configuration; the brackets of a list can be left out."""
    if key in _LISTS and not answer.startswith(("[", "{")):
        answer = f"[{answer}]"
    text = flow(key, answer) if answer.startswith("%") else answer
    return parse_yaml(f"{key}: {text}", "the answer")[key]


@dataclass(frozen=True)
class Questions:
    """Questions about a draft that lies in the folder `below`, where the files are that an answer names."""

    below: Path

    def answered(self, draft: Draft) -> Iterator[Draft]:
        """The draft after each answer; the last one waits for nothing.

        Raises:
            KeyboardInterrupt, EOFError: the steward stopped.
        """
        draft = self._with_unit(draft)
        yield draft
        waiting, published = [name for name in draft.columns if name not in draft.marks], ""
        for place, name in enumerate(waiting, 1):
            out.print(f"\nColumn {place} of {len(waiting)}:\n{column_line(name, draft.columns[name], {})}", end="")
            column = self._column(name, draft.columns[name])
            if column is None:
                draft = replace(draft, columns={key: draft.columns[key] for key in draft.columns if key != name})
            else:
                bought = column.type == "identifier" or "private" in column.facts.values()
                published = published if bought else _where(published)
                mark = {} if bought else {"public": published}
                draft = replace(draft, columns={**draft.columns, name: column}, marks={**draft.marks, name: mark})
            yield draft

    def _with_unit(self, draft: Draft) -> Draft:
        """The draft with the unit, and the number of rows where it is published, as the steward says them."""
        out.print("Whose privacy is it? Answer row where a row is a person, else the column that tells whose row it is.")
        drafted, columns, marks, subject = draft.subject, dict(draft.columns), dict(draft.marks), None
        names = draft.table.column_names
        unit = _ask("Unit", "row" if drafted is None else drafted.column, ["row", *names], shown=False)
        if drafted is not None and unit != drafted.column:
            columns[drafted.column] = look_at(drafted.column, draft.table.column(drafted.column), draft.form.numbers)
        if unit != "row":
            subject = subject_in(draft.table, unit)
            out.print(f"{subject.mean:.1f} rows each; 95 % have at most {subject.most}.")
            given = {"column": unit, "max_records": subject.most}
            facts = self._facts(given, ["max_records"], lambda facts: {"privacy": {**_BASE["privacy"], "unit": facts}})
            subject = replace(subject, most=facts["max_records"])
            columns[unit], marks[unit] = ColumnDraft("identifier"), {}
        sized = _ask("Is the number of rows published?", "no", ["yes", "no"]) == "yes"
        rows = self._facts({}, ["rows"], lambda facts: facts).get("rows") if sized else None
        return replace(draft, subject=subject, rows=rows, columns=columns, marks=marks, answered=True)

    def _column(self, name: str, drafted: ColumnDraft) -> ColumnDraft | None:
        """The column as the steward wants it; None where it is not released."""
        private = _PRIVATE.get(drafted.type) if not drafted.is_private else None
        choices = ["yes", "change", *(["private"] if private else []), "drop"]
        question = "Release it with values that are bought?" if drafted.is_private else "Is it public as it stands?"
        answer = _ask(question, "yes", choices)
        if answer in {"yes", "drop"}:
            return drafted if answer == "yes" else None
        kind, facts, words = drafted.type, {}, {key: drafted.facts[key] for key in _WORDS & drafted.facts.keys()}
        if answer == "private" and private is not None:
            facts, keys = private, [key for key in private if key == "within"]
        else:
            kind = _ask("Kind", kind, [*dict.fromkeys([kind, *_KINDS])])
            if kind == drafted.type and not drafted.is_private:
                facts = {key: value for key, value in drafted.facts.items() if key not in _WORDS}
            keys = [*dict.fromkeys([*(facts or _KINDS.get(kind, ())), *([] if kind == "identifier" else ["missing"])])]
        facts = self._facts(facts, keys, lambda facts: {"columns": {name: {"type": kind, **facts}, f"not {name}": _OTHER}})
        return ColumnDraft(kind, {**facts, **words})

    def _facts(
        self, facts: Mapping[str, Any], keys: Iterable[str], written: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """The facts with answers for the keys, asked until a configuration may say what is `written` of them."""
        found = dict(facts)
        while True:
            try:
                for key in keys:
                    given = _ask(_ASKED.get(key, key), flow(key, found[key]) if key in found else "")
                    found[key] = _parsed(key, given)
                found = {key: value for key, value in found.items() if value not in ([], None)}
                parse_configuration(with_code_lists({**_BASE, **written(found)}, self.below))
                return found
            except InputError as error:
                out.print(str(error))


def _where(before: str) -> str:
    """Where the facts of a column are published: what was said of the one before, where nothing else is."""
    found = ""
    while not found:
        found = _ask("Where is that published (a questionnaire, a code list, a law)?", before)
    return found
