"""What can be done with a run that exists: synthesize, evaluate and report again, list, purge."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marginweave.flows.bookkeeping import in_progress, run_lock
from marginweave.flows.continuity import check_outputs
from marginweave.flows.request import begun_with, ledger_file_of, ledger_of
from marginweave.schemas.errors import InputError, StageError
from marginweave.schemas.ledger import State
from marginweave.schemas.manifest import Manifest, RunState
from marginweave.tasks.budget.ledger import Ledger
from marginweave.tasks.checkpoint.files import at_place, replace_file
from marginweave.tasks.checkpoint.run_folder import RunFolder
from marginweave.tasks.references import RunReference


def finished_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """A run whose release is published.

    Raises:
        InputError: there is no such run, or it is not finished.
        StageError: its released files were changed.
    """
    folder, manifest = existing_run(home, run)
    if manifest.state != RunState.FINISHED:
        raise InputError(f"run {run} is not finished; go on with it: marginweave resume {run}")
    check_outputs(folder, manifest)
    return folder, manifest


def existing_run(home: Path, run: str) -> tuple[RunFolder, Manifest]:
    """A run with a manifest.

    Raises:
        InputError: there is no such run.
    """
    folder = RunFolder.at(home, run)
    manifest = folder.read_manifest()
    if manifest is None:
        raise InputError(f"run {run} does not exist in {home / 'runs'}; `marginweave runs` lists the runs")
    return folder, manifest


def synthesize_again(home: Path, run: str, *, records: int | None, seed: int | None, to: Path | None) -> Path:
    """Write new synthetic records of a finished release, with a privacy statement of their own. DP: post-processing.

    Raises:
        InputError: no finished run, or the folder holds something already.
    """
    from marginweave.tasks.publish.reader import PublishedRelease
    from marginweave.tasks.publish.synthetic import write_synthetic

    folder, manifest = finished_run(home, run)
    published = PublishedRelease.read(folder.release)
    settings = published.configuration.synthesize
    changes = {key: value for key, value in (("records", records), ("seed", seed)) if value is not None}
    settings = settings.model_copy(update=changes)
    place = to or folder.release / f"synthesis-{settings.seed}"
    _check_empty(place, "choose another folder with --to, or another --seed")
    looked = Ledger.open(ledger_of(folder, home)).internally_evaluated(manifest.dataset, None)
    selected = looked or bool(published.statement["selected_after_internal_evaluation"])
    statement = {
        **published.statement,
        "synthesis": settings.model_dump(mode="json"),
        "selected_after_internal_evaluation": selected,
    }
    with at_place(place, "created"):
        place.mkdir(parents=True, exist_ok=True)
    write_synthetic(place, published.synthesize(settings))
    replace_file(place / "privacy.json", (json.dumps(statement, indent=2, ensure_ascii=False) + "\n").encode())
    return place


def report_again(home: Path, run: str, to: Path | None) -> Path:
    """The report of a finished release, or the pages of the release written anew to the folder `to`: the same bytes.

    Raises:
        InputError: no finished run, or the folder holds something already.
    """
    folder, _ = finished_run(home, run)
    if to is None:
        return folder.release / "report.html"
    from marginweave.tasks.publish.pages import read_pages

    _check_empty(to, "choose another folder with --to")
    pages = read_pages(folder.release)
    with at_place(to, "created"):
        to.mkdir(parents=True, exist_ok=True)
    for name, page in pages.items():
        replace_file(to / name, page)
    return to / "report.html"


def _check_empty(place: Path, advice: str) -> None:
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise InputError(f"{place} is not an empty folder; {advice}")


def releasable_evaluation(home: Path, run: str) -> dict[str, Any]:
    """The published comparison of a run's records with its counts.

    Raises:
        InputError: no finished run.
    """
    folder, _ = finished_run(home, run)
    evaluation: dict[str, Any] = json.loads((folder.release / "evaluation.json").read_text(encoding="utf-8"))
    return evaluation


def evaluate_internally(home: Path, run: str, source: str | None) -> Path:
    """Compare a finished release with the sensitive table; returns the path of the report on it, never a number of it.

    Raises:
        InputError: no finished run, or another source than the release was made from.
    """
    from marginweave.tasks.evaluate.internal import compare_internally
    from marginweave.tasks.publish.internal import report_internally

    folder, _ = finished_run(home, run)
    named = begun_with(home, run)[1] if source is None else str(Path(source).resolve())
    reference = RunReference(
        folder=folder, source=named, ledger_file=ledger_file_of(folder, home), lease=uuid.uuid4().hex
    )
    compare_internally.fn(reference)
    report_internally.fn(reference)
    return folder.internal_report


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of `marginweave runs`."""

    name: str
    dataset: str
    state: str
    begun: str
    holds_private: bool


def list_runs(home: Path) -> list[RunSummary]:
    """Every run below `home`, by name; one that is damaged is listed as such."""
    place = home / "runs"
    with at_place(place, "listed"):
        paths = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
    return [_summary(RunFolder(path)) for path in paths]


def _summary(folder: RunFolder) -> RunSummary:
    dataset, begun = "", ""
    try:
        manifest = folder.read_manifest()
    except StageError:
        state = "damaged"
    else:
        if manifest is None:
            state = "not begun"
        else:
            dataset, begun = manifest.dataset, f"{manifest.created:%Y-%m-%d %H:%M}"
            state = {RunState.FINISHED: "finished", RunState.FAILED: "purged"}.get(manifest.state, "unfinished")
    if state != "finished" and in_progress(folder):
        state = "in progress"
    return RunSummary(name=folder.run, dataset=dataset, state=state, begun=begun, holds_private=folder.private.exists())


def purge_run(home: Path, run: str, *, unfinished: bool) -> None:
    """Remove what is private in a run; of an unfinished one, give back what was not drawn.

    Raises:
        InputError: no such run, or an unfinished one without `unfinished`.
        StageError: the run is in progress.
    """
    folder = RunFolder.at(home, run)
    if _summary(folder).state == "damaged" and unfinished:
        with run_lock(folder):
            folder.remove_private()
        return
    folder, manifest = existing_run(home, run)
    with run_lock(folder):
        if manifest.state != RunState.FINISHED:
            if not unfinished:
                raise InputError(
                    f"run {run} is not finished: purged, it can never be resumed, and what was drawn stays charged. "
                    f"If that is meant: marginweave purge {run} --unfinished"
                )
            _give_up(Ledger.open(ledger_of(folder, home)), manifest.release)
            folder.write_manifest(manifest.with_state(RunState.FAILED))
        folder.purge_private()


def _give_up(ledger: Ledger, release_id: str) -> None:
    """Shut out every attempt at a release, give back what was never begun, and book what was begun as lost."""
    if ledger.release(release_id) is None:
        return
    lease = uuid.uuid4().hex
    ledger.take_lease(release_id, lease)
    record = ledger.release(release_id)  # as it stands now that no other attempt can move it
    if record is None:
        return
    for draw in record.draws:
        if draw.state == State.DRAWN:
            ledger.lose_draw(release_id, draw.name, lease)
    ledger.give_back(release_id, [draw.name for draw in record.draws if draw.state == State.RESERVED])
