"""Common parts of the stages: each has a name, and none of their exceptions quotes data.

A stage is a plain function. `flows/stages.py` has them in order, and `flows/release.py` makes Prefect tasks of them.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from marginweave.base.errors import (
    InputError,
    MachineError,
    MarginweaveError,
    OperatorError,
    StageError,
    place_of,
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The arguments of `@stage`: facts about a stage besides its function.

    Attributes:
        name: Name of the stage, of its Prefect task, and in its errors.
        run_name: Name of one run of it: `{length}` is replaced by the argument of that name.
        patient: Whether it may be tried again after a fault of the machine (`MachineError`): it draws nothing.
    """

    name: str
    run_name: str
    patient: bool


def stage(
    name: str, *, run_name: str | None = None, patient: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that makes a function the stage `name`: quiet (`quiet`), with its facts for `stage_of` (`Stage`)."""
    facts = Stage(name=name, run_name=run_name or name, patient=patient)
    silence = quiet(name)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        call = silence(function)
        vars(call)[_FACTS] = facts
        return call

    return decorate


_FACTS = "_marginweave_stage"


def stage_of(function: Callable[..., Any]) -> Stage:
    """Return the arguments of `@stage` for `function`. Raises KeyError for a function that is not a stage."""
    facts: Stage = vars(function)[_FACTS]
    return facts


class _Silence:
    """Hides warnings as long as any thread is inside a stage: the filters of warnings belong to the whole process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages = 0
        self._filters = warnings.catch_warnings()

    @contextmanager
    def ignore_warnings(self) -> Iterator[None]:
        """Ignore warnings inside; the thread that leaves last restores the filters from before the first entered."""
        with self._lock:
            if self._stages == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._stages += 1
        try:
            yield
        finally:
            with self._lock:
                self._stages -= 1
                if self._stages == 0:
                    self._filters.__exit__(None, None, None)


_SILENCE = _Silence()


def quiet(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that replaces exceptions whose text may depend on the data: Prefect stores and logs that text.

    An exception of a library becomes a StageError that names its type and place. A broken rule of the input becomes an
    OperatorError, whose reason only the operator sees. Warnings of libraries are not shown: their text may quote a value or a
    count, and standard error is in the logs of schedulers and of Prefect's workers.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                with _SILENCE.ignore_warnings():
                    return function(*args, **kwargs)
            except InputError as error:
                replacement: MarginweaveError = OperatorError.of(error)
            except MarginweaveError:
                raise
            except Exception as error:
                kind = MachineError if isinstance(error, OSError) else StageError
                replacement = kind(f"{name} failed: {type(error).__name__} at {place_of(error)}")
            # Outside the handler, so that the original is not the context of the error that Prefect stores and logs.
            raise replacement

        return call

    return decorate
