"""The code of a page, run from top to bottom: ```python blocks in one namespace, ```sh blocks in one folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.notebooks import page_of
from tests.support.places import INSTALLED

_BLOCK = re.compile(r"^```(python|sh)(?: exit (\d))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
Namespace = dict[str, Any]


def page_blocks(page: Path) -> list[tuple[str, int, str]]:
    """Language, expected exit code and text of each block that is run; a block without a language is only shown."""
    return [(m[1], int(m[2] or 0), m[3]) for m in _BLOCK.finditer(page_of(page))]


def shell_blocks(text: str) -> list[str]:
    """The ```sh blocks of a text."""
    return [m[3] for m in _BLOCK.finditer(text) if m[1] == "sh"]


def enter(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python blocks see the home, the ledger and the server that `cli` sees."""
    for name, value in cli.variables.items():
        if name.startswith(("PREFECT_", "MARGINWEAVE_")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.home)


def run_shell(cli: CommandLine, text: str, code: int = 0) -> str:
    """What commands print; the first that fails ends them."""
    programs = os.pathsep.join([str(INSTALLED.parent), os.environ["PATH"]])
    environment = cli.variables | {"PATH": programs}
    command = ["bash", "-eu", "-o", "pipefail", "-c", text]
    done = subprocess.run(
        command,
        env=environment,
        cwd=cli.home,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, f"{text}\n{done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def run_page(page: Path, cli: CommandLine, names: Namespace | None = None) -> Namespace:
    """Run all blocks and return what the Python ones have defined."""
    defined: Namespace = {} if names is None else names
    for language, code, text in page_blocks(page):
        if language == "sh":
            run_shell(cli, text, code)
        else:
            exec(compile(text, str(page), "exec"), defined)
    return defined
