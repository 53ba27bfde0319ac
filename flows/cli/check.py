"""`marginweave check`: where a table does not fit its configuration, for the operator's terminal alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from marginweave.base.errors import EXIT_FAILED, InputError, printable
from marginweave.texts.sentences import Share

from .console import Config, Home, Source, out, table_of

if TYPE_CHECKING:
    from ..check.table import CheckedRow

_ShowValues = Annotated[
    bool,
    typer.Option(
        "--show-values",
        help="Show a few values that do not fit, of each column; on a terminal alone.",
    ),
]
_WIDTH = 160  # where there is no terminal
_LONGEST = 40
_STYLES = ("bold red", "yellow", "default")


def check(
    config: Config, show_values: _ShowValues = False, source: Source = None, home: Home = Path()
) -> None:
    """Look at the table before anything is charged: what cannot be read, lies outside, repeats, or breaks a rule. Free.

    For its operator alone: what is shown is exact. Nothing of it is stored but that somebody looked. Ends with exit code 1
    where a run would stop.

    Example: `marginweave check visits.yaml`
    """
    if show_values and not out.is_terminal:
        raise InputError(
            "--show-values needs a terminal: values of the table are written to no file and no pipe"
        )
    from marginweave.runs.request import read_request

    from ..check.advice import Severity, check_sentence
    from ..check.table import check_table

    request = read_request(config, run=None, source=source, home=home)
    rows = check_table(request)
    faulty = [row for row in rows if row.findings]
    dataset = request.configuration.dataset
    columns = len(request.configuration.names)
    if not faulty:
        out.print(
            str(
                check_sentence(
                    "lines.as-declared", dataset=dataset, config=str(config), columns=columns
                )
            )
        )
    if rows:
        if faulty:
            out.print(f"{check_sentence('lines.look', dataset=dataset)}\n")
        _show(rows, values=show_values)
    if faulty:
        stops = any(
            finding.severity == Severity.STOPS for row in faulty for finding in row.findings
        )
        out.print(f"\n{check_sentence('lines.after')}")
        if stops:
            out.print(str(check_sentence("lines.stops")))
            raise typer.Exit(EXIT_FAILED)
        out.print(str(check_sentence("lines.next", config=str(config))))


def _show(rows: list[CheckedRow], *, values: bool) -> None:
    table = table_of("column", "missing", "found, and what to do")
    for row in rows:
        missing = f"{Share(row.missing)}" if row.missing else ""
        advice = Text("\n").join(_lines(row, values=values))
        table.add_row(_short(row.subject), missing, advice)
    width = None if out.is_terminal else _WIDTH
    Console(highlight=False, markup=False, width=width).print(table)


def _lines(row: CheckedRow, *, values: bool) -> list[Text]:
    from ..check.advice import Severity, check_sentence

    lines = []
    for finding in row.findings:
        stops = finding.severity == Severity.STOPS
        text = check_sentence("lines.mark", text=finding.text) if stops else finding.text
        lines += [
            Text(printable(str(text)), _STYLES[finding.severity]),
            Text(printable(f"→ {finding.advice}")),
        ]
        if values and finding.examples:
            shown = "  ".join(repr(_short(text)) for text in finding.examples)
            lines.append(Text(f"  {check_sentence('lines.example', values=shown)}", "dim"))
    return lines or [Text(str(check_sentence("lines.row-as-declared")), "dim")]


def _short(text: str) -> str:
    """Return the printable text, cut after 40 characters."""
    line = printable(text)
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
