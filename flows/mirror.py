"""What a run has spent, as a table in Prefect's pages: a mirror for people, never read by anything."""

from __future__ import annotations

from contextlib import suppress

from marginweave.tasks.references import RunReference


def show_in_prefect(reference: RunReference) -> None:
    """Make a table artifact of the draws of a release: public facts of the plan and the states in the ledger.

    The release is complete without it: a server that cannot take it changes nothing.
    """
    from prefect.artifacts import create_table_artifact

    record = reference.ledger.release(reference.manifest.release)
    if record is None:
        return
    rows = [
        {
            "draw": draw.name,
            "state": draw.state.value,
            "mu2": str(draw.cost.mu2),
            "rho": str(draw.cost.rho),
            "delta": str(draw.cost.delta),
        }
        for draw in record.draws
    ]
    with suppress(Exception):
        create_table_artifact(
            key=f"budget-of-{record.release}",
            table=rows,
            description=f"Budget of run {record.run}, account {record.dataset}: a copy, the ledger is what counts",
        )
