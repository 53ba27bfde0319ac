"""`marginweave approve` and `marginweave reject`: the decision on a release that awaits it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from marginweave.flows.cli.console import Home, RunName, command, out
from marginweave.schemas.errors import InputError

_By = Annotated[str, typer.Option("--by", help="Who decides; it stays in the ledger.")]
_Reason = Annotated[str, typer.Option("--reason", help="Why; it stays in the ledger.")]


@command
def approve(run_name: RunName, by: _By, reason: _Reason, home: Home = None) -> None:
    """Publish a release that awaits approval, as it was submitted, byte for byte. Read its report first: `marginweave report`.

    Nothing is looked at but what may leave. A file that was changed since is refused.

    Example: `marginweave approve census-2026 --by "A. Meier" --reason "checked against the plan"`
    """
    _decide(run_name, by, reason, home, approved=True)


@command
def reject(run_name: RunName, by: _By, reason: _Reason, home: Home = None) -> None:
    """Do not publish a release that awaits approval: for good. What it was charged stays charged.

    Example: `marginweave reject census-2026 --by "A. Meier" --reason "wrong reference date"`
    """
    _decide(run_name, by, reason, home, approved=False)


def _decide(run: str, by: str, reason: str, home: Path | None, *, approved: bool) -> None:
    from marginweave.flows.orchestration.environment import home_directory
    from marginweave.flows.run.lookup import decide

    folder, decision = decide(home_directory(home, os.environ), run, approved=approved, by=by, reason=reason)
    word = "approved" if decision.approved else "rejected"
    if decision.approved != approved:
        raise InputError(f"run {run} was {word} by {decision.by} on {decision.created:%Y-%m-%d %H:%M} UTC: that stands")
    what = f"Released: {folder.release}" if approved else "Nothing is published, and the charge stays"
    out.print(f"Run {run} was {word} by {decision.by} on {decision.created:%Y-%m-%d %H:%M} UTC. {what}")
