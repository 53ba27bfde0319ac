"""The code of a page, run from top to bottom: ```python blocks in one namespace, ```sh blocks in one folder.

A ```text block that follows one of these is what it prints. Numbers differ from release to release, and so does the width of a
column; every word is compared.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, ForkedCommandLine
from tests.support.notebooks import NOTEBOOKS, page_of
from tests.support.places import INSTALLED, REPOSITORY
from tests.support.terminal import on_terminal

_DOCS = REPOSITORY / "docs"
README = REPOSITORY / "README.md"
FROM_PYTHON = _DOCS / "python.md"
TUTORIALS = [_DOCS / "guide.md", *sorted((_DOCS / "tutorials").glob("[a-z]*.md"))]
REFERENCES = [_DOCS / name for name in ("api.md", "commands.md", "inference.md")]
RUN_PAGES = [README, FROM_PYTHON, *TUTORIALS, *REFERENCES, *NOTEBOOKS]
"""Every page all of whose blocks run: tests/system/test_tutorials.py and, of `FROM_PYTHON`, test_python_page.py."""
OPERATIONS, PRODUCTION = _DOCS / "operations.md", _DOCS / "production.md"
MARKED_PAGES = [OPERATIONS, PRODUCTION]
"""Pages whose blocks run that are marked `executed`: test_operations.py, test_production.py, test_serve.py."""

_BLOCK = re.compile(
    r"^```(?P<language>python|sh)(?P<terminal> terminal)?(?: exit (?P<code>\d))?\n(?P<text>.*?)^```\n"
    r"(?:\n```text\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\b[0-9a-f]{8}\b|[-+]?\d[\d.,]*(?:e[-+]\d+)?")
Namespace = dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A block that is run: python or sh, its exit code, its text, and what the page says that it prints."""

    language: str
    code: int
    text: str
    printed: str | None
    terminal: bool = False


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page's text that are run; a block without a language is only shown."""
    blocks = []
    for match in _BLOCK.finditer(f"{text}\n"):
        code, terminal = int(match["code"] or 0), bool(match["terminal"])
        blocks.append(Block(match["language"], code, match["text"], match["printed"], terminal))
    return blocks


def marked_blocks(page: Path) -> list[str]:
    """Return the texts of the blocks of shell of a page that are marked `executed`."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```sh executed[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def page_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, or of a notebook, that are run."""
    return blocks_of(page_of(page))


def enter(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python blocks see the home, the ledger and the server that `cli` sees."""
    for name, value in cli.variables.items():
        if name.startswith(("PREFECT_", "MARGINWEAVE_")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.home)


def run_shell(cli: CommandLine, text: str, code: int = 0) -> str:
    """Return what commands print; the first that fails ends them."""
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


def _run_commands(cli: CommandLine, block: Block) -> str:
    """Return what the lines of a block print that are commands of `marginweave` and nothing else."""
    printed = ""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        done = on_terminal(cli, *words[1:]) if block.terminal else cli(*words[1:])
        assert done.returncode == block.code, f"{line}\n{done.stdout}{done.stderr}"
        printed += done.stdout
    return printed


def _run_python(page: Path, text: str, names: Namespace) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(text, str(page), "exec"), names)
    return printed.getvalue()


def words_printed(text: str) -> str:
    """Return an output with every number as 0 and every gap as a space."""
    return " ".join(_NUMBER.sub("0", text).split())


def run_page(page: Path, cli: CommandLine, names: Namespace | None = None) -> Namespace:
    """Run all blocks, hold them to what the page says that they print, and return what the Python ones have defined.

    A forked command line runs blocks of its commands without a shell.
    """
    defined: Namespace = {} if names is None else names
    for block in page_blocks(page):
        commands = all(line.startswith(("marginweave ", " ")) for line in block.text.splitlines())
        if block.language == "python":
            printed = _run_python(page, block.text, defined)
        elif commands and isinstance(cli, ForkedCommandLine):
            printed = _run_commands(cli, block)
        else:
            printed = run_shell(cli, block.text, block.code)
        if block.printed is not None:
            assert words_printed(printed) == words_printed(block.printed), block.text
    return defined
