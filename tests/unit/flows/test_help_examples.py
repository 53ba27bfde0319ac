"""The examples that `--help` shows are commands: every one is read by the command that shows it, and ends nowhere else."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.examples import COMMANDS


def examples(help_text: str) -> list[list[str]]:
    shown = help_text.partition("Example:")[2]
    return [
        shlex.split(" ".join(text.split())) for text in re.findall(r"`(marginweave [^`]*)`", shown)
    ]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_example_is_a_command(path: tuple[str, ...]) -> None:
    """Options, arguments and their types are those of the command; `test_tutorials` runs the path of a release."""
    command = COMMANDS[path]
    found = examples(command.help)
    assert found
    for program, *words in found:
        assert (program, tuple(words[: len(path)])) == ("marginweave", path)
        command.make_context(" ".join(path), words[len(path) :])


def test_a_wrong_example_would_be_noticed() -> None:
    command = COMMANDS["ledger", "show"]
    with pytest.raises(Exception, match="--every"):
        command.make_context("show", ["census", "--every"])
    assert examples("Example: `marginweave a\n b`, or `marginweave c 'd e'`") == [
        ["marginweave", "a", "b"],
        ["marginweave", "c", "d e"],
    ]
