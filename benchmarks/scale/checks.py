"""`marginweave check` from outside, as a command: the time and the memory of all of it, imports included."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.scale.figures import Figure, figure
from benchmarks.scale.releases import MILLION, Case
from benchmarks.scale.tables import adult, seeded
from benchmarks.scale.watch import watch
from tests.support.command_line import CommandLine

CHECKS = {
    "check": Case(table=adult, length=3, rows=(20 * MILLION,), most=20 * MILLION),
    "check-csv": Case(table=adult, length=3, rows=(MILLION,), most=20 * MILLION, is_csv=True),
}


def checked(names: Sequence[str], rows: tuple[int, ...] | None, folder: Path) -> Iterator[Figure]:
    """The checks that are named, at `rows` or at their own numbers of rows; each in a home of its own, without a ledger."""
    for name in names:
        case, table = CHECKS[name], CHECKS[name].table()
        for number in rows or case.rows:
            if number <= case.most:
                made = table.configuration(case.source(folder, number), number, seeded(case.length))
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    home, cli = Path(place), CommandLine(Path(place))
                    (home / "scale.yaml").write_text(json.dumps(made), "utf-8")
                    seen = watch(cli.command("check", home / "scale.yaml"), cli.variables, home)
                yield figure(name, number, len(table.labels), case.length, **seen.facts())
