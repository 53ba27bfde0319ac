"""A table from `init` to its release, as a steward takes it who says yes to every question of the draft."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from marginweave.configuration.yaml_source import parse_yaml
from marginweave.flows.cli.app import app
from tests.support.command_line import CommandLine
from tests.support.configurations import quick
from tests.support.plain_runs import commands_without_prefect

NOTHING_COUNTED = "No column of this table is counted"
RUN = "draft"


@dataclass(frozen=True, kw_only=True)
class DraftedRelease:
    """How far a table came: the last command, its exit code, and all that the commands printed."""

    home: Path
    command: str
    code: int
    printed: str

    @property
    def draft(self) -> str:
        """The draft as `init` wrote it."""
        return (self.home / "drafted.yaml").read_text(encoding="utf-8")

    @property
    def counts_nothing(self) -> bool:
        """Whether the draft says that it cannot be released: each column is an identifier or a constant."""
        return NOTHING_COUNTED in self.draft

    @property
    def release(self) -> Path:
        """The folder of the release."""
        return self.home / "runs" / RUN / "release"


def answered_yes(draft: str, **privacy: Any) -> dict[str, Any]:
    """The draft with each question answered yes, and with changes in its section `privacy`."""
    configuration = parse_yaml(draft)
    tables = configuration.get("tables", {}).values()
    sections = [configuration["source"], configuration["privacy"]]
    for table in tables:
        sections += [table, table["source"], *table["derive"].values()]
    for section in sections:
        if isinstance(section, dict):
            section.pop("confirm", None)
    configuration["privacy"] |= privacy
    configuration["rows"] = configuration["rows"]["about"]
    for section in (configuration, *tables):
        for column in section.get("columns", {}).values():
            if column.pop("confirm", None) is not None:
                column["public"] = "the code book"
    for rules in configuration.get("structure", {}).values():
        for rule in rules:
            rule.pop("confirm", None)
    return configuration


def release_by_draft(
    home: Path, *tables: Path, is_quick: bool = True, **privacy: Any
) -> DraftedRelease:
    """Draft tables, answer yes, look, open an account, plan and run, in this process; stops where a command fails."""
    draft, config = home / "drafted.yaml", home / "confirmed.yaml"
    with _in_home(home) as printed:
        command, code = "init", _call("init", *tables, "--output", draft)
        if code == 0:
            answered = answered_yes(draft.read_text(encoding="utf-8"), **privacy)
            written = quick(answered) if is_quick else answered
            config.write_text(json.dumps(written, ensure_ascii=False), encoding="utf-8")
            dataset = answered["dataset"]
            for arguments in (
                ("check", config),
                ("ledger", "open", dataset, "--for", config),
                ("plan", config),
                ("run", config, "--run", RUN),
            ):
                command, code = arguments[0], _call(*arguments)
                if code:
                    break
    return DraftedRelease(home=home, command=command, code=code, printed=printed.getvalue())


@contextmanager
def _in_home(home: Path) -> Iterator[io.StringIO]:
    """Inside, commands have a home and a ledger of their own; what they print is collected."""
    printed = io.StringIO()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, CommandLine(home).variables, clear=True))
        stack.enter_context(commands_without_prefect())
        stack.enter_context(redirect_stdout(printed))
        stack.enter_context(redirect_stderr(printed))
        yield printed


def _call(*arguments: str | Path) -> int:
    """Run a command, and return its exit code."""
    try:
        return int(app([str(argument) for argument in arguments], standalone_mode=False) or 0)
    except SystemExit as ended:
        return int(ended.code or 0)
