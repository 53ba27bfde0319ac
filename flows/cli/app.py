"""All commands in one application; what a command needs is imported when it runs, so that help and refusals are quick."""

from __future__ import annotations

import resource

import typer

from marginweave.flows.cli import after, audit, budget, ledger, run

app = typer.Typer(
    name="marginweave",
    help="Differentially private counts of attribute combinations, and synthetic records made from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command()(run.run)
app.command()(run.resume)
app.command()(budget.plan)
app.command()(after.synthesize)
app.command()(after.evaluate)
app.command()(after.runs)
app.command()(after.purge)
for audited in (audit.verify, audit.anchor, audit.export, audit.alias):
    ledger.app.command()(audited)
ledger.app.add_typer(audit.keys, name="key")
app.add_typer(ledger.app, name="ledger")


def main() -> None:
    """Entry point of `marginweave`; a core dump would hold private rows, so there is none."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    app()
