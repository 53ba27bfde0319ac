"""Lines of commands: one line for programs; in a terminal they end between words."""

from __future__ import annotations

import io

import pytest

from marginweave.flows.cli import console

TEXT = "Nothing was charged for cross-sectional/files, and [square] brackets stay, as " + 9 * (
    "words like anticonstitutionally have many letters "
)


def printed(*, is_terminal: bool) -> list[str]:
    stream = io.StringIO()
    console._LineConsole(
        file=stream,
        width=60,
        force_terminal=is_terminal,
        highlight=False,
        markup=False,
        color_system=None,
    ).print(TEXT)
    return stream.getvalue().splitlines()


def test_a_terminal_breaks_lines_between_words() -> None:
    lines = printed(is_terminal=True)
    assert max(map(len, lines)) <= 60
    assert " ".join(line.strip() for line in lines) == TEXT.strip()
    assert printed(is_terminal=False) == [TEXT]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_so_does_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    console.tell(TEXT)
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines) > 1) == is_terminal
    assert not is_terminal or max(map(len, lines)) <= 60
    assert " ".join(lines) == f"marginweave: {TEXT}".strip() or not is_terminal
