"""Bookkeeping around the stages of a run: its manifest, and what the ledger records about its release."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ParamSpec, Protocol, TypeVar

from marginweave.accounting.records import State
from marginweave.base.errors import StageError
from marginweave.checkpoints.run_folder import RunFolder, holds, staged_release
from marginweave.released.manifest import Manifest, StageEntry
from marginweave.released.program import Program
from marginweave.released.statement import Programs, ReleaseFacts, ReleaseIdentity
from marginweave.runs.capabilities import RunReference, StageResult
from marginweave.runs.continuity import sync_with_ledger
from marginweave.runs.looks import configured_after_look, is_drafted
from marginweave.runs.progress import reporter

P = ParamSpec("P")
R = TypeVar("R")


class Wrap(Protocol):
    """A function that wraps a stage, such as in a Prefect task."""

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return a function of the same parameters and result."""
        ...


@dataclass
class Bookkeeper:
    """Runs stages one after the other and writes each into the manifest. Nobody else writes it: the run is locked.

    Attributes:
        folder: The run's folder.
        manifest: The manifest as it is in the folder.
        stages: Number of stages that will be run.
        wrap: Wraps each stage, such as in a Prefect task; the wrapper is called in its place.
    """

    folder: RunFolder
    manifest: Manifest
    stages: int
    wrap: Wrap

    def __post_init__(self) -> None:
        reporter().begin(self.stages)

    def step(self, name: str, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a stage and report it; enter nothing in the manifest."""
        reporter().started(name)
        begun = time.monotonic()
        result = self.wrap(function)(*args, **kwargs)
        charged: tuple[str, ...] = ()
        if isinstance(result, StageResult) and not result.is_reread:
            charged = result.charged
        reporter().finished(name, charged, time.monotonic() - begun)
        return result

    def stage(
        self, name: str, function: Callable[P, StageResult], *args: P.args, **kwargs: P.kwargs
    ) -> StageResult:
        """Run a stage and enter its checkpoint into the manifest."""
        result = self.step(name, function, *args, **kwargs)
        entry = StageEntry(
            file=result.file,
            digest=result.digest,
            address=result.address,
            charged=result.charged,
            finished=datetime.now(UTC),
        )
        present = self.manifest.stages.get(name)
        if present is None or present.digest != entry.digest:
            self.manifest = self.manifest.with_stage(name, entry)
            self.folder.write_manifest(self.manifest)
        return result

    def finish(self, reference: RunReference, outputs: dict[str, str]) -> None:
        """Enter the files in the ledger, bring the run to that state, and purge private files.

        `sync_with_ledger` moves the files to their place and marks the run.

        The files are published. Where that has to be approved they are submitted, and the run ends at `awaiting approval`.

        Raises:
            StageError: the files are not those that were made.
        """
        settings = reference.configuration.publish
        release = reference.manifest.release
        staged = staged_release(self.folder, reference.lease)
        if not holds(staged, outputs):
            raise StageError(
                f"{staged} was changed since it was written; the same command makes it again"
            )
        if settings.approval is None:
            reference.ledger.releases.publish(release, reference.lease, outputs)
        else:
            reference.ledger.approvals.submit(release, reference.lease, outputs)
        self.manifest = sync_with_ledger(self.folder, self.manifest, reference.ledger)
        if not settings.keep_private:
            self.folder.purge_private(self.manifest)


def return_unused_draws(reference: RunReference) -> None:
    """Return draws that were never begun to the account, and destroy every remaining seed, before anything is published.

    Raises:
        BudgetError: another attempt has taken over: it publishes nothing.
    """
    release = reference.manifest.release
    reference.ledger.draws.check_lease(release, reference.lease)
    record = reference.ledger.releases.find(release)
    reserved = []
    if record is not None:
        reserved = [draw.name for draw in record.draws if draw.state == State.RESERVED]
    if reserved:
        reference.ledger.draws.return_unused(release, reserved)
    for name in reference.secrets.present():  # also where private files are kept
        reference.secrets.destroy(name)


def is_charged(reference: RunReference, lease: str | None) -> bool:
    """Return whether the attempt under `lease` has begun a draw of the release; another process may have begun others.

    The release is the one that the run has now: of other bytes, where the source was replaced before the first stage.
    """
    release = reference.folder.present_manifest().release
    record = reference.ledger.releases.find(release)
    return (
        lease is not None
        and record is not None
        and any(draw.lease == lease for draw in record.draws)
    )


def tell_of_other_bytes(reference: RunReference, say: Callable[[str], None]) -> None:
    """Say so where the run has another release than when `reference` was made: the source was replaced in between."""
    if reference.folder.present_manifest().release != reference.manifest.release:
        # warnings before it were of the rows before
        say("The source was replaced while the run began: what was released is what it holds now")


def release_facts(reference: RunReference) -> ReleaseFacts:
    """Return the release's identity and the draws that it returned, for privacy.json."""
    manifest = reference.manifest
    ledger = reference.ledger
    home = reference.folder.home
    record = ledger.releases.find(manifest.release)
    assert record is not None
    assert record.program is not None
    version_of_digest = {
        draw.facts["program"]: draw.facts["version"] for draw in record.draws if draw.facts
    }
    drawing_programs = [
        Program(version=version, digest=digest) for digest, version in version_of_digest.items()
    ]
    return ReleaseFacts(
        identity=ReleaseIdentity(
            dataset=manifest.dataset,
            run=manifest.run,
            release=manifest.release,
            begun=f"{manifest.created:%Y-%m-%d}",
            supersedes=manifest.supersedes,
            programs=Programs(reserved=record.program, drew=tuple(drawing_programs)),
            selected_after_internal_evaluation=ledger.evaluations.precede(
                manifest.dataset, manifest.release
            ),
            configured_after_check=configured_after_look(home, manifest, reference.source),
            drafted_from_table=is_drafted(home, manifest, reference.source),
        ),
        returned=tuple(draw.name for draw in record.draws if draw.state == State.RETURNED),
        evaluated_until_now=ledger.evaluations.precede(manifest.dataset, None),
    )
