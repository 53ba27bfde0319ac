"""`marginweave audit`: what the mechanisms lose, measured on made-up tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from marginweave.flows.cli.console import command, out
from marginweave.schemas.errors import EXIT_FAILED, InputError

if TYPE_CHECKING:
    from marginweave.tasks.empirical.findings import Finding

# Numbers are not folded where there is no terminal, or a narrow one.
_WIDE = Console(highlight=False, markup=False, width=160)


@command
def audit(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[CONFIG]", help="Whose parameters are audited [default: examples with power]."),
    ] = None,
    to: Annotated[Path, typer.Option("--to", help="The page to write, with a plot.")] = Path("audit.html"),
) -> None:
    """Measure what every mechanism and the pipelines lose, on made-up tables; exit 1 where a claim is exceeded.

    Reads no data, writes to no ledger and needs no key. With CONFIG, noise and shares are those of that release; where
    epsilon is small, little can be measured, and the intervals say so.

    Example: `marginweave audit`, or `marginweave audit census.yaml --to census-audit.html`
    """
    from marginweave.flows.audit.examples import examples
    from marginweave.flows.audit.suite import audit as audit_configuration
    from marginweave.tasks.accounting.plan.resolve import load_configuration
    from marginweave.tasks.checkpoint.files import at_place, replace_file
    from marginweave.tasks.empirical.findings import refuted
    from marginweave.tasks.publish.audit import ABOUT, render_audit

    if to.is_dir() or not to.parent.is_dir():
        raise InputError(f"--to ({to}) must be a file in a folder that exists")
    audited = examples()
    if config is not None:
        loaded = load_configuration(config)
        audited = {loaded.dataset: loaded}
    out.print(ABOUT)
    findings: dict[str, list[Finding]] = {}
    for name, configuration in audited.items():
        findings[name] = list(audit_configuration(configuration))
        _show(name, findings[name])
    with at_place(to, "written"):
        replace_file(to, render_audit(findings))
    out.print(f"Written to {to}")
    if any(refuted(found) for found in findings.values()):
        raise typer.Exit(EXIT_FAILED)


def _show(name: str, findings: list[Finding]) -> None:
    from marginweave.tasks.publish.audit import VERDICTS

    table = Table(name, "of", "claim", "measured", "trials", "verdict", box=None, pad_edge=False)
    for finding in findings:
        interval = f"{finding.measured.low:.3f} to {finding.measured.high:.3f}"
        told = (finding.quantity, f"{finding.claim:.4g}", interval, f"{finding.trials:,}", VERDICTS[finding.verdict])
        table.add_row(finding.name, *told)
    _WIDE.print(table)
    out.print("")
