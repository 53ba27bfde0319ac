"""Every public name, command and option has an example that a test runs."""

from __future__ import annotations

import re

import pytest

import marginweave
import marginweave.inference
from tests.support.examples import COMMANDS, Command, Uses, public_names, shell_uses, shown_options
from tests.support.pages_run import MARKED_PAGES, RUN_PAGES, marked_blocks, page_blocks
from tests.support.places import REPOSITORY

API = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
COMMANDS_PAGE = (REPOSITORY / "docs" / "commands.md").read_text(encoding="utf-8")
(_MEMBERS,) = re.findall(
    r"automodule:: marginweave.base.errors\n   :members: (.*)$", API, re.MULTILINE
)
ERRORS = _MEMBERS.split(", ")
PUBLIC = public_names(ERRORS)


def names_used() -> set[str]:
    """Return the public names that the executed blocks of Python use."""
    used: set[str] = set()
    for page in RUN_PAGES:
        uses = Uses(PUBLIC)
        for block in page_blocks(page):
            if block.language == "python":
                uses.read(block.text)
        used |= uses.used
    return used


def commands_used() -> set[tuple[Command, str]]:
    """Return the commands, and each with its options, that the executed blocks of shell run."""
    texts = [text for page in MARKED_PAGES for text in marked_blocks(page)]
    texts += [
        block.text for page in RUN_PAGES for block in page_blocks(page) if block.language == "sh"
    ]
    return {use for text in texts for use in shell_uses(text)}


def test_every_public_name_has_an_executed_example() -> None:
    """Names of the package and of `inference`, errors of the reference, methods, properties and fields of the classes."""
    assert len(PUBLIC) > 60
    assert {*PUBLIC} - names_used() == set()


def test_every_command_and_every_option_shown_has_an_executed_example() -> None:
    """Those of the page of commands, which has every command that there is."""
    shown = shown_options(COMMANDS_PAGE)
    assert {command for command, _ in shown} == {*COMMANDS}
    assert len(shown) > 90
    assert shown - commands_used() == set()


def test_the_reference_has_every_public_name() -> None:
    """Of a class or function by itself; `errors` is the heading of its classes."""
    documented = {
        *re.findall(r"^\.\. auto(?:class|function):: marginweave\.([\w.]+)$", API, re.MULTILINE)
    }
    names = {*marginweave.__all__} - {"__version__", "errors"}
    assert documented == names | {f"inference.{name}" for name in marginweave.inference.__all__}


USES = {
    "# mw.Release.open\n'mw.Release.open'": set(),
    "model.plan()": set(),  # of whom?
    "import pandas as pd\npd.Release.open('x')": set(),
    "mw.Release.open('x').table('a')": {"Release", "Release.open", "Release.table"},
    "a, b = 1, mw.Ledger.open()\nb.table()\nb.fits()": {"Ledger", "Ledger.open", "Ledger.fits"},
    # the configuration of a synthesizer is another class of the same name
    "mw.Synthesizer('x').fit('y').configuration.digest": {
        "Synthesizer",
        "Synthesizer.fit",
        "Synthesizer.configuration",
    },
    "x = mw.Configuration() | {}\nx.digest": {"Configuration", "Configuration.digest"},
    "x = mw.Configuration() | {}\nx = 1\nx.digest": {"Configuration"},
    "from marginweave.inference import regression as r\nr('x').table": {
        "inference.regression",
        "inference.Coefficients.table",
    },
    "try:\n    1\nexcept mw.errors.InputError:\n    2": {"errors", "errors.InputError"},
}


@pytest.mark.parametrize("block", USES)
def test_a_use_is_seen_by_its_syntax(block: str) -> None:
    """An attribute is the public one only of an object of the public class: one of the same name is another."""
    uses = Uses(PUBLIC)
    uses.read("import marginweave as mw")
    uses.read(block)
    assert uses.used == USES[block]


def test_a_command_is_seen_by_its_syntax() -> None:
    """Not in a comment, in quotes or as another word; with its options, before and after other programs."""
    assert (
        shell_uses(
            "# marginweave runs\necho 'marginweave runs; marginweave runs'\nmarginweaver runs"
        )
        == set()
    )
    assert shell_uses("echo marginweave runs") == set()
    block = "A=1 marginweave ledger show x --json | sed s/a/b/  # it's --all\nmarginweave table \\\n  r '--json' && true --csv"
    assert shell_uses(block) == {
        (("ledger", "show"), ""),
        (("ledger", "show"), "--json"),
        (("table",), ""),
        (("table",), "--json"),
    }


def test_an_option_is_shown_for_its_command() -> None:
    """In its row, below the heading of a group, below its own heading, and over the end of a line."""
    rows = "`runs` and `check X` have `[--x\n--json]`\n## Ledger\n| `marginweave ledger list`, `show X`, both `[--json]` |\n"
    assert shown_options(f"{rows}### Check\n`--no`, or `--show-values`\n") == {
        (("runs",), ""),
        (("runs",), "--json"),
        (("ledger", "list"), ""),
        (("ledger", "list"), "--json"),
        (("ledger", "show"), ""),
        (("ledger", "show"), "--json"),
        (("check",), ""),
        (("check",), "--show-values"),
    }
