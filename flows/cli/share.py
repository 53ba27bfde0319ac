"""`marginweave publish` and `marginweave handover`: what leaves the home, for readers and for an auditor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from marginweave.flows.cli.console import Home, RunName, command, out


@command
def publish(
    run_name: RunName,
    to: Annotated[Path, typer.Option("--to", help="Folder to copy to; must be empty or new, and not among the runs.")],
    home: Home = None,
) -> None:
    """Copy what was released, and nothing else, to another place; each file is compared with the digest that was booked.

    Example: `marginweave publish affairs-1a2b3c4d --to /srv/open-data/affairs`
    """
    from marginweave.flows.orchestration.environment import home_directory
    from marginweave.flows.postprocess.published import copy_release

    copied = copy_release(home_directory(home, os.environ), run_name, to)
    out.print(f"{len(copied.files)} files copied to {to}, as they were booked")
    for name in copied.left_out:
        out.print(f"Not copied: {name}, which was made later and never booked")
    if copied.superseded_by is not None:
        out.print(f"Run {run_name} is superseded by run {copied.superseded_by}: readers should have that one")


@command
def handover(
    run_name: RunName,
    to: Annotated[Path, typer.Option("--to", help="A new file FILE.zip, or a folder that is empty or new.")],
    home: Home = None,
) -> None:
    """Bundle what an auditor needs: plan, privacy.json, the release's rows of the ledger, the anchor, and how to verify them.

    No private file is read, and the ledger is verified first. Of a rejected release it says what would have been promised, and
    has nothing that was computed from its draws.

    Example: `marginweave handover affairs-1a2b3c4d --to affairs-audit.zip`
    """
    from marginweave.flows.orchestration.environment import home_directory
    from marginweave.flows.verify.handover import hand_over

    names = hand_over(home_directory(home, os.environ), run_name, to)
    out.print(f"{', '.join(names)} written to {to}; README.md says how to verify them")
