"""What can be done with a run that exists: synthesize, evaluate and report again."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from marginweave.flows.run.lookup import as_decided, existing_run, finished_run
from marginweave.flows.run.request import begun_with, ledger_file_of, ledger_of
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.manifest import RunState
from marginweave.tasks.checkpoint.files import at_place, replace_file
from marginweave.tasks.ledger import Ledger
from marginweave.tasks.references import RunReference


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
    """The report of a release, or the pages of a finished one written anew to the folder `to`: the same bytes.

    Where a release awaits approval, its report is what the decision is made on.

    Raises:
        InputError: no finished run, or the folder holds something already.
        StageError: the files are not those that were booked.
    """
    folder, manifest = existing_run(home, run)
    if to is None and manifest.state == RunState.AWAITING:
        manifest = as_decided(folder, manifest, home)
    if to is None and manifest.state == RunState.AWAITING and folder.proposed.exists():
        return folder.proposed / "report.html"
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


def attack_release(home: Path, run: str, source: str | None, holdout: Path) -> Path:
    """Attack a finished release's records; returns the path of the report on it, never a number of it.

    Raises:
        InputError: as `attack_internally`, or no finished run.
    """
    from marginweave.tasks.evaluate.internal import attack_internally

    return attack_internally(_reference(home, run, source), holdout)


def evaluate_internally(home: Path, run: str, source: str | None) -> Path:
    """Compare a finished release with the sensitive table; returns the path of the report on it, never a number of it.

    Raises:
        InputError: no finished run, or another source than the release was made from.
    """
    from marginweave.tasks.evaluate.internal import compare_internally
    from marginweave.tasks.publish.internal import report_internally

    reference = _reference(home, run, source)
    compare_internally.fn(reference)
    report_internally.fn(reference)
    return reference.folder.internal_report


def _reference(home: Path, run: str, source: str | None) -> RunReference:
    """A finished run beside its source, or another place of the same one."""
    folder, _ = finished_run(home, run)
    named = begun_with(home, run)[1] if source is None else str(Path(source).resolve())
    return RunReference(folder=folder, source=named, ledger_file=ledger_file_of(folder, home), lease=uuid.uuid4().hex)
