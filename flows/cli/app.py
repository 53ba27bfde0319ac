"""Application of all commands; a command imports its modules when it runs, so that help and refusals are quick."""

from __future__ import annotations

import atexit
import os
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from marginweave.base.interruption import INTERRUPTION
from marginweave.runs.process_hardening import protect_process

from . import audit, check, example, init, ledger, plan, query, released, run, scheduled
from .console import Commands, LocalCommand, out, tell

app = typer.Typer(
    name="marginweave",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=Commands,
    rich_markup_mode="markdown",
)
_TOP_LEVEL: tuple[Callable[..., None], ...] = (
    *(
        run.run,
        run.resume,
        scheduled.serve,
        scheduled.supervise,
        scheduled.alert,
        example.example,
        init.init,
        check.check,
        plan.plan,
    ),
    *(released.synthesize, released.evaluate, released.report, released.approve, released.reject),
    *(
        query.query,
        query.table,
        released.publish,
        released.handover,
        run.runs,
        run.purge,
        audit.overview,
    ),
)
for _command in _TOP_LEVEL:
    app.command(cls=LocalCommand)(_command)
# These commands belong to `ledger` but have a module of their own; added here, neither module imports the other.
for _command in (audit.verify, audit.anchor, audit.export, audit.expire, audit.reconcile):
    ledger.app.command(cls=LocalCommand)(_command)
app.add_typer(ledger.app, name="ledger")


def _show_version(wanted: bool) -> None:
    if wanted:
        from marginweave.draws.program import program_identity

        out.print(f"marginweave {program_identity()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    """Differentially private counts of attribute combinations, and synthetic records made from them."""


_CLICK_APP = typer.main.get_command(app)


def main() -> None:
    """Run `marginweave`, in a process that leaves no core dump and no file that others can write.

    Warnings of libraries are not shown: they may quote a value.

    The process ends without the finalizers of the C++ libraries that it has loaded: sometimes one of them aborts, and a
    scheduler would take a refusal (3) for a crash.
    """
    protect_process()
    # Its idle threads would spin for a fifth of a CPU second before they sleep.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    INTERRUPTION.owns_process = True
    warnings.simplefilter("ignore")
    code = _invoke()
    atexit._run_exitfuncs()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - there is no public way to run them and stop there
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a broken pipe
            stream.flush()
    os._exit(code)


def _invoke() -> int:
    """Run the command that was typed and return its exit code; a mistyped command gets one line, like every refusal."""
    try:
        returned = _CLICK_APP(standalone_mode=False)
    except typer.TyperException as slip:
        text = slip.format_message().rstrip(".")
        if text:  # empty for a group without a command, which has shown its help
            missing = re.match(r"Missing (?:option|argument) '([^']*)'", text)
            context = getattr(slip, "ctx", None)
            place = "marginweave" if context is None else context.command_path
            sentence = f"{missing[1]} is required" if missing else f"{text[0].lower()}{text[1:]}"
            full_stop = "" if sentence.endswith("?") else "."
            tell(f"{sentence}{full_stop} See: {place} --help")
        return slip.exit_code
    except SystemExit as end:  # a broken pipe; refusals end by typer.Exit
        return end.code if isinstance(end.code, int) else 1
    return returned if isinstance(returned, int) else 0
