"""`marginweave query` and `table`: numbers with intervals from a release alone."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from marginweave.base.errors import InputError, printable

from .console import Home, Json, Released, out, print_json, table_of, tell

if TYPE_CHECKING:
    from marginweave.answers.answer import Answer
    from marginweave.inference.answers import Answers
    from marginweave.inference.independence_tests import Independence
    from marginweave.inference.linked_answers import ReleaseAnswers

WIDTH = 100
_MODELLED = ("bounds", "model")
_Where = Annotated[
    list[str] | None, typer.Option(metavar="CONDITION", help="Records that meet it: 'age >= 60'.")
]
_By = Annotated[
    list[str] | None, typer.Option(metavar="COLUMN", help="An answer for each value of it.")
]
_Level = Annotated[str, typer.Option(help="How often an interval covers the truth.")]
_Csv = Annotated[bool, typer.Option("--csv", help="Print the answers as CSV.")]


def _no_weight(column: str | None) -> None:
    if column is not None:
        raise InputError(
            f"--weight is not possible: of survey weights, --sum {column} answers the weighted count alone"
        )


def query(  # noqa: PLR0913, PLR0917 - one option for each key of a question
    released: Released,
    where: _Where = None,
    by: _By = None,
    count: Annotated[bool, typer.Option("--count", help="How many records [default].")] = False,
    share: Annotated[
        bool, typer.Option("--share", help="The share of each group that meets --where.")
    ] = False,
    mean: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The mean of a number.")
    ] = None,
    total: Annotated[
        str | None, typer.Option("--sum", metavar="COLUMN", help="The sum of a number.")
    ] = None,
    median: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The median of a number.")
    ] = None,
    quantile: Annotated[
        str | None, typer.Option(metavar="COLUMN:Q", help="Another quantile: income:.9.")
    ] = None,
    _weight: Annotated[
        str | None, typer.Option("--weight", hidden=True, callback=_no_weight)
    ] = None,
    of: Annotated[
        str, typer.Option(metavar="table|population", help="What the answer is about.")
    ] = "table",
    table: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Of the rows of this linked table.")
    ] = None,
    each: Annotated[
        str, typer.Option(metavar="row|unit", help="What counts one there, with --table.")
    ] = "row",
    level: _Level = ".95",
    questions: Annotated[
        Path | None, typer.Option("--file", help="A YAML file with a list `questions`.")
    ] = None,
    as_json: Json = False,
    as_csv: _Csv = False,
    home: Home = Path(),
) -> None:
    """Ask a release for a number and how far the truth may be from it: post-processing, free of charge.

    Example: `marginweave query affairs-1a2b3c4d --where "age >= 30" --by religious --share`
    """
    from marginweave.configuration.question import read_condition, read_questions
    from marginweave.inference.answers import open_answers
    from marginweave.inference.linked_answers import ReleaseAnswers

    options: dict[str, Any] = {"of": of, "level": level}
    options |= {"table": table, "each": each} if table or each != "row" else {}
    statistics = {
        "count": count,
        "share": share,
        "mean": mean,
        "sum": total,
        "median": median,
        "quantile": quantile,
    }
    chosen = {name: value for name, value in {"by": by, **statistics}.items() if value}
    if questions is not None and (where or chosen):
        raise InputError("--file has the questions: leave out --where, --by and what is asked for")
    opened = ReleaseAnswers(home=home, named=released, source=open_answers(home, released, tell))
    contents: Mapping[str, Mapping[str, Any]]
    if questions is not None:
        contents = read_questions(questions, options)
        group = ""
    else:
        names = opened.columns(table)
        conditions = [read_condition(text, names) for text in where or ()]
        contents = {"": {**options, **chosen, "where": conditions}}
        group = " and ".join(where or ["all records" if table is None else "all"])
    answers = _answers(opened, contents)
    _show(answers, as_json=as_json, as_csv=as_csv, group_of_all=group)
    if not (as_json or as_csv) and any(content.get("share") for content in contents.values()):
        _explain_share("its group" if by or questions else "all records", where)


def _explain_share(part: str, where: Sequence[str] | None) -> None:
    """Print of which records a share is the part, and the condition."""
    condition = " and ".join(where or ["the question's `where`"])
    out.print(printable(f"A share is the part of {part} that meets: {condition}."))


def table(
    released: Released,
    columns: Annotated[
        list[str], typer.Argument(metavar="COLUMN [COLUMN [COLUMN]]", help="One to three columns.")
    ],
    level: _Level = ".95",
    as_json: Json = False,
    as_csv: _Csv = False,
    home: Home = Path(),
) -> None:
    """Show the counts of all combinations of one to three columns with their intervals: post-processing, free of charge.

    A count that says nothing is marked with *. Below two columns is a test of independence that knows the noise.

    Example: `marginweave table affairs-1a2b3c4d age children`
    """
    if len(columns) > 3:
        raise InputError("table shows one to three columns; use query --by for more")
    if as_json and as_csv:
        raise InputError("--json and --csv are two ways to print the same; use one")
    from marginweave.inference.answers import open_answers
    from marginweave.inference.linked_answers import ReleaseAnswers

    opened = open_answers(home, released, tell)
    questions = ReleaseAnswers(home=home, named=released, source=opened)
    answers = _answers(questions, {"": {"by": columns, "level": level}})
    if as_json:
        test, sentence = _independence(opened, columns)
        independence = {"says": sentence} if test is None else asdict(test)
        print_json({"counts": [answer.row() for answer in answers], "independence": independence})
    elif as_csv or len(columns) == 1:
        _show(answers, as_json=False, as_csv=as_csv)
    else:
        _cross(answers, columns)
        _, sentence = _independence(opened, columns)
        out.print(printable(sentence))


def _independence(opened: Answers, columns: Sequence[str]) -> tuple[Independence | None, str]:
    """Return the test of independence of two columns, and its sentence; None and the reason where there is no test.

    The test is about the population, unless what was counted of the columns is no sample of one, or the rows have chosen them.
    """
    from marginweave.inference.independence_tests import answer_independence, subject_of_test
    from marginweave.texts.sentences import independence_sentence

    try:
        test = answer_independence(opened, columns, subject_of_test(opened, columns), "--")
    except InputError as error:
        reason = independence_sentence("result.none", reason=str(error))
        return None, f"{reason} {independence_sentence('note.naive')}"
    return test, test.says


def _answers(opened: ReleaseAnswers, questions: Mapping[str, Mapping[str, Any]]) -> list[Answer]:
    """Return all answers to `questions`, which are by name; the question of the command's options has the name "".

    Prints why a question is refused, of which part of the table answers are, and how cells of their columns were read.

    Raises:
        InputError: one is refused, or a release has none of the answers.
    """
    from marginweave.configuration.question import read_question
    from marginweave.runs.progress import shown_late

    answers: list[Answer] = []
    read: dict[str, None] = {}
    refused = 0
    for name, content in questions.items():
        try:
            with shown_late("answers"):
                question = read_question(content, "" if name else "--")
                answers += opened.ask(question)
                read |= dict.fromkeys(opened.codes(question).reading_words(question))
        except InputError as error:
            if not name:
                raise
            refused += 1
            tell(f"{name}: {error}")
    if refused:
        raise InputError(
            f"{refused} of {len(questions)} questions were refused, and none is answered: correct them"
        )
    if all(answer.how is None for answer in answers):
        raise InputError(answers[0].flag)
    for about in dict.fromkeys(answer.about for answer in answers):
        note = opened.source.codes.note(about)
        if note is not None:
            tell(note)
    for words in read:
        tell(words)
    return answers


def _show(
    answers: Sequence[Answer], *, as_json: bool, as_csv: bool, group_of_all: str = ""
) -> None:
    """Print answers as a table, JSON or CSV; an answer without a group has the group `group_of_all`."""
    if as_json and as_csv:
        raise InputError("--json and --csv are two ways to print the same; use one")
    if as_json:
        print_json([answer.row() for answer in answers])
        return
    if as_csv:
        _print_csv(answers)
        return
    _print_table(answers, group_of_all)
    if any(answer.level is None and answer.low is not None for answer in answers):
        out.print(
            "Of a row whose note says that nothing tells how often it covers, low to high is a guess: no coverage is claimed."
        )
    if any(answer.asked not in ("count", "share") for answer in answers):
        out.print(
            "Of a column with bins it reaches from the least to the largest number they hold, wherever values lie inside."
        )


def _print_table(answers: Sequence[Answer], group_of_all: str) -> None:
    """Print a line for each answer, and a sentence on its interval; with the questions only if there are several."""
    levels = {answer.level for answer in answers if answer.level is not None}
    questions = {(answer.question, answer.of) for answer in answers}
    has_several = len(questions) > 1 or len(levels) > 1
    heads = ["group", "estimate", "low", "high", "how", "note"]
    table = table_of(*(["question", *heads] if has_several else heads))
    for answer in answers:
        group = ", ".join(f"{name} {label}" for name, label in answer.group.items()) or group_of_all
        numbers = [_number(value) for value in (answer.estimate, answer.low, answer.high)]
        row = [printable(group), *numbers, answer.how or "", printable(answer.flag)]
        table.add_row(*([_question(answer), *row] if has_several else row))
    _print(table)
    if has_several and levels:
        out.print(
            "low to high covers the truth with the probability beside the question, each row by itself."
        )
    elif levels:
        first = answers[0]
        question = f"{first.question[0].upper()}{first.question[1:]} {_of(first)}"
        covers = (
            f"low to high covers the truth with probability {min(levels):.15g}, each row by itself."
        )
        out.print(f"{printable(question)}: {covers}")


def _print_csv(answers: Sequence[Answer]) -> None:
    """Print a line for each answer: its question, its group by the names that have a column, and its fields."""
    from marginweave.answers.answer import COLUMNS, group_columns

    groups = [group_columns(answer.group) for answer in answers]
    group_names = list(dict.fromkeys(name for group in groups for name in group))
    answer_names = [name for name in COLUMNS if name not in ("question", "group")]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["question", *group_names, *answer_names])
    for answer, group in zip(answers, groups, strict=True):
        labels = [group.get(name, "") for name in group_names]
        values = [getattr(answer, name) for name in answer_names]
        writer.writerow([answer.question, *labels, *values])


def _of(answer: Answer) -> str:
    return f"of {answer.of}" if answer.about.part else f"of the {answer.of}"


def _question(answer: Answer) -> str:
    covers = "no coverage claimed" if answer.level is None else f"{answer.level:.0%}"
    return printable(f"{answer.question}, {answer.of}, {covers}")


def _cross(answers: Sequence[Answer], columns: Sequence[str]) -> None:
    """Print a cross-table for each value of a third column, in parts where it is wider than a terminal."""
    first, second, *_ = columns
    heads = list(dict.fromkeys(answer.group[second] for answer in answers))
    cells = {tuple(answer.group.values()): _cell(answer) for answer in answers}
    corner = f"{first} / {second}"
    first_width = max(len(corner), *(len(key[0]) for key in cells))
    parts: list[list[str]] = [[]]
    for head in heads:
        room = WIDTH - first_width
        for column in (*parts[-1], head):
            widths = [len(text) for key, text in cells.items() if key[1] == column]
            room -= 2 + max(len(column), *widths)
        if room < 0 and parts[-1]:
            parts.append([])
        parts[-1].append(head)
    for third in dict.fromkeys(key[2:] for key in cells):
        if third:
            out.print(f"{columns[2]} {printable(third[0])}")
        for part in parts:
            table = table_of(corner, *map(printable, part))
            for label in dict.fromkeys(key[0] for key in cells):
                row = [cells[label, head, *third] for head in part]
                table.add_row(printable(label), *row)
            _print(table)
    unused = any(answer.unusable for answer in answers)
    marked = (
        " * do not use: it may be anything, or there are too few records for the noise."
        if unused
        else ""
    )
    is_modelled = any(answer.how in _MODELLED for answer in answers)
    modelled = " ~ was not measured: the estimate rests on the model." if is_modelled else ""
    level = max(answer.level or 0.0 for answer in answers)
    counted = "" if answers[0].about.is_table else f" {_of(answers[0])}"
    out.print(f"Each count{counted} with its {level:.0%} interval.{marked}{modelled}")
    facts = [note.words for answer in answers for note in answer.notes if note.of_column]
    for words in dict.fromkeys(facts):
        out.print(printable(f"{words[0].upper()}{words[1:]}."))


def _cell(answer: Answer) -> str:
    if answer.low is None:
        return "not measured"
    if answer.estimate is None:
        return f"at most {_number(answer.high)}"
    mark = "~" if answer.how in _MODELLED else ""
    if answer.unusable:
        mark += "*"
    return f"{_number(answer.estimate)}{mark} ({_number(answer.low)}–{_number(answer.high)})"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if float(value).is_integer() and abs(value) >= 2:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _print(table: Table) -> None:
    from rich.console import Console

    Console(highlight=False, markup=False, width=WIDTH).print(table)
