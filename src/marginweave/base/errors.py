"""Errors that a user sees. A message names a key, a column and a rule; it never holds a value of the sensitive table."""

from __future__ import annotations

import traceback
from collections.abc import Set
from pathlib import Path

from marginweave.base.formats import older_fault

_FOR_OPERATOR = "a stage refused what it was given; only the operator sees the reason"
_IN_FILE = "a stage refused what it was given; only the operator sees the reason, in {}"

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_BUDGET = 3


class MarginweaveError(Exception):
    """Base of every error that is meant for the operator; `exit_code` is the exit code of the command line."""

    exit_code = EXIT_FAILED


class InputError(MarginweaveError):
    """A configuration, a command or a source that breaks a rule."""

    exit_code = EXIT_BAD_INPUT


class NotFittedError(InputError, ValueError, AttributeError):
    """`fit` was not called; a ValueError and an AttributeError, as users of scikit-learn expect."""


NEW_NAME = "give the new release a name with --run, in Python fit(…, run=NAME)"
"""Advice for a run that can never become the requested release."""


class VerdictError(InputError):
    """A release that its verdict keeps from publication; `points` are sentences of the verdict, for a line each."""

    def __init__(self, message: str, points: tuple[str, ...]) -> None:
        super().__init__(message)
        self.points = points

    def __reduce__(self) -> tuple[type[VerdictError], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.points)


class UnusableTableError(InputError):
    """A table that is unusable as declared; `in_python` is the message for callers from Python, where no command helps."""

    def __init__(self, message: str, in_python: str) -> None:
        super().__init__(message)
        self.in_python = in_python


class OperatorError(InputError):
    """A stop that depends on the data: the text that Prefect stores is constant, `detail` is for the operator alone.

    The text may name the file that has the `detail` (`is_in`). Callers from Python see `in_python` instead. Prefect pickles the
    error that a flow or task has raised into a file: there `detail` is the constant text as well.
    """

    def __init__(self, detail: str, in_python: str | None = None) -> None:
        super().__init__(_FOR_OPERATOR)
        self.detail = detail
        self.in_python = detail if in_python is None else in_python

    @classmethod
    def of(cls, error: InputError) -> OperatorError:
        """Return the stop by this error, with its text and its text for Python."""
        in_python = (
            error.in_python if isinstance(error, UnusableTableError | OperatorError) else None
        )
        return cls(error.detail if isinstance(error, OperatorError) else str(error), in_python)

    def is_in(self, file: Path) -> None:
        """Name the file that has the reason in the text that Prefect stores."""
        self.args = (_IN_FILE.format(file),)

    def __reduce__(self) -> tuple[type[OperatorError], tuple[str]]:
        return type(self), (_FOR_OPERATOR,)


class BudgetError(MarginweaveError):
    """The ledger refuses: no ledger, key or account, not enough budget, or a charge that was lost."""

    exit_code = EXIT_BUDGET


class UnreachableLedger(BudgetError):
    """The ledger cannot be reached (no server, no room): it has neither accepted nor refused."""


class DamagedLedger(BudgetError):
    """The bytes of the ledger's database are not what the database wrote."""


class FullDisk(UnreachableLedger):
    """The disk of the ledger has no room."""


class LostConnection(UnreachableLedger):
    """The database's server could not be reached, or stopped answering: the last command may have been executed or not."""


class StageError(MarginweaveError):
    """A stage failed on this machine; the message names the stage and the place in the code, never data."""


class AuditError(MarginweaveError):
    """The ledger, or a file whose digest it has, is not as it was written; the message names the row or file and the fault."""


class MachineError(StageError):
    """A fault of the machine (a full, read-only or broken disk): the same step may succeed later, whatever the data."""


class MustError(ValueError):
    """A value of a configuration or a question breaks a rule; `rule` is what it must, as in "be a number".

    The message that users see names the key, the value and the rule. Other ValueErrors say what a key has or lacks.
    """

    def __init__(self, rule: str) -> None:
        super().__init__(f"must {rule}")
        self.rule = rule


class UnconfirmedError(ValueError):
    """A part of a configuration was drafted from the data, and nobody has confirmed that it is public."""


def must_be(name: str, value: object, kinds: tuple[type, ...], instead: str) -> None:
    """Refuse an argument of another type; the message names its type and not its value. Raises InputError."""
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds if kind is not type(None))
        raise InputError(f"{name} ({type(value).__name__}) must be {wanted}; write {instead}")


def refuse_broken(
    stage: str, broken: Set[tuple[str, str]], error: type[MarginweaveError] = StageError
) -> None:
    """Refuse a table that breaks rules, pairs of column and rule; `error` names the stage, columns and rules, and no value."""
    if broken:
        rules = (f"column {column!r} breaks the rule '{rule}'" for column, rule in sorted(broken))
        raise error(f"{stage}: " + "; ".join(rules))


def refuse_older(thing: str, number: object, present: int) -> None:
    """Refuse a file of an older version, by the number of its format.

    Raises:
        InputError: the format is older than the `present` one; the message names the last version that reads it.
    """
    fault = older_fault(thing, number, present)
    if fault is not None:
        raise InputError(fault)


def printable(text: str) -> str:
    """Return the text as one line that moves no cursor: names and values can have characters that a terminal obeys."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def place_of(error: BaseException) -> str:
    """Return file and line of the innermost frame that is ours, which is shown in place of a text that may quote data.

    A frame is ours by the name of its module, as a checkout has the program in several folders: `prepare/clean.py:44`.
    """
    place = "unknown place"
    for frame, line in traceback.walk_tb(error.__traceback__):
        package, _, module = str(frame.f_globals.get("__name__")).partition(".")
        if package == "marginweave" and module:
            file = Path(frame.f_code.co_filename).stem
            package_file = "/__init__" if file == "__init__" else ""
            place = f"{module.replace('.', '/')}{package_file}.py:{line}"
    return place
