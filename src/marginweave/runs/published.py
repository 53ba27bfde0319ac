"""What can be done with a published release: copy it, synthesize, evaluate and report once more."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from marginweave.base.durable import at_place, read_file, replace_file, sync_folder
from marginweave.base.errors import InputError, StageError
from marginweave.ledger import Ledger
from marginweave.released.account import ACCOUNT, AccountSums
from marginweave.released.evaluation import Evaluation
from marginweave.released.manifest import RunState
from marginweave.released.verdict import VerdictSummary
from marginweave.runs.continuity import changed
from marginweave.runs.lookup import apply_decision, corrections, existing_run, finished_run
from marginweave.runs.progress import reporter
from marginweave.runs.request import ledger_of

if TYPE_CHECKING:
    from marginweave.publish.comparison import ReleaseComparison
    from marginweave.publish.reader import PublishedRelease


def released_verdict(release: Path) -> VerdictSummary | None:
    """What evaluation.json says a release is good for; None where the file is missing. DP: post-processing."""
    content = read_file(release / "evaluation.json")
    return None if content is None else Evaluation.from_json(content).summary


def outcome_words(account: AccountSums, verdict: VerdictSummary | None) -> list[str]:
    """What a run says at its end: what the account has spent, and what the release is good for."""
    spent = f"epsilon {account.epsilon:.4g} of {account.cap_epsilon:g} spent at delta {account.delta:g}"
    said = [
        f"Account {account.dataset}: {spent}, {account.releases} release(s)",
        "  This sum is no bound under adaptively chosen budgets; the cap is",
    ]
    if verdict is not None:
        said += [f"Verdict: {verdict.publication}", *(f"  {each}" for each in (*verdict.says, *verdict.advice))]
    return said


def is_published_as_it_is(verdict: VerdictSummary | None) -> bool:
    """Whether `publish` copies a release without being told to do so even so."""
    return verdict is None or verdict.publication != "not for publication"


def next_words(run: str, report: Path | str, verdict: VerdictSummary | None) -> str:
    """What to do after a release: read it, and publish it where `publish` would not refuse."""
    if is_published_as_it_is(verdict):
        return f"Next: open {report}, then marginweave publish {run} --to FOLDER"
    return f"Next: open {report}; publish would refuse this release, for what the verdict says"


def copy_release(home: Path, run: str, to: Path, *, even_so: bool = False) -> tuple[list[str], list[str], str | None]:
    """Copy the files of a published release to the new or empty folder `to`, each checked against its digest in the ledger.

    account.json has none, and is copied as it is.

    One whose verdict is "not for publication" is copied `even_so` alone.

    Returns what was copied, what stayed, and the run that corrects this one, if there is one. What else is in `release/`, such
    as records that were synthesized later, has no digest in the ledger and is not copied.

    Raises:
        InputError: no published run, or a target that is not empty, or that lies in the home or around it.
        StageError: a released file is missing or was changed; nothing is left at `to`.
    """
    folder, manifest = finished_run(home, run)
    judged = released_verdict(folder.release)
    if judged is not None and not is_published_as_it_is(judged) and not even_so:
        raise InputError(
            f"run {run} is not for publication: {' '.join(judged.says)} Read {folder.release / 'report.html'}; to copy it "
            "nevertheless, add --even-so"
        )
    contents = {}
    for name, digest in manifest.outputs.items():
        content = read_file(folder.path / name)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise changed(folder.path / name)
        contents[Path(name).name] = content
    account = read_file(folder.release / ACCOUNT)  # `ledger verify` compares it with the rows
    if account is None:
        raise StageError(f"{folder.release / ACCOUNT} is missing: the same run again writes it, free of charge")
    contents[ACCOUNT] = account
    write_folder(check_target(home, to), contents)
    with at_place(folder.release, "read"):
        present = {entry.name for entry in folder.release.iterdir()}
    return sorted(contents), sorted(present - contents.keys()), corrections(home).get(manifest.release)


def check_target(home: Path, to: Path) -> Path:
    """The place `to`, with links resolved, where something that leaves the home may be put.

    Raises:
        InputError: it lies among the runs or around them, its folder is not there, or it is taken.
    """
    with at_place(to, "used"):
        place, runs = to.expanduser().resolve(), (home / "runs").resolve()
        if place.is_relative_to(runs) or runs.is_relative_to(place):
            raise InputError(f"{to} must not be nested with {runs}: what leaves goes to another place")
        if not place.parent.is_dir():
            raise InputError(f"{place.parent} is not a folder")
        if to.is_symlink() or (place.exists() and not (place.is_dir() and not any(place.iterdir()))):
            raise InputError(f"{to} is not an empty folder; choose another place with --to")
    return place


def write_folder(place: Path, contents: Mapping[str, bytes]) -> None:
    """Make `place`, new or empty, a folder with these files, in one step: after a crash it is whole or not there.

    Raises:
        MachineError: the disk refuses.
    """
    staged = place.with_name(f".{place.name}.{secrets.token_hex(8)}.tmp")
    with at_place(place, "written"):
        staged.mkdir(parents=True)
    try:
        for name, content in contents.items():
            replace_file(staged / name, content)
        with at_place(place, "written"):
            staged.replace(place)  # an empty folder gives way, a filled one does not
            sync_folder(place.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def regenerate_records(home: Path, run: str, *, records: int | None, seed: int | None, to: Path | None) -> Path:
    """Write new synthetic records of a finished release, with a privacy statement of their own. DP: post-processing.

    Raises:
        InputError: no finished run, or the folder holds something already.
    """
    from marginweave.publish.reader import PublishedRelease
    from marginweave.publish.synthetic import write_synthetic

    folder, manifest = finished_run(home, run)
    published = PublishedRelease.read(folder.release)
    settings = published.settings(records, seed)
    if published.refitted:
        reporter().note(f"{folder.release} {published.refitted}")
    place = to or folder.release / f"synthesis-{settings.seed}"
    _check_empty(place, "choose another folder with --to, or another --seed")
    looked = Ledger.open(ledger_of(folder, home)).evaluations.precede(manifest.dataset, None)
    selected = looked or bool(published.statement.selected_after_internal_evaluation)
    statement = published.statement.model_copy(
        update={"synthesis": settings.model_dump(mode="json"), "selected_after_internal_evaluation": selected}
    )
    with at_place(place, "created"):
        place.mkdir(parents=True, exist_ok=True)
    write_synthetic(place, published.synthesize(settings), published.configuration, published.statement.types or {})
    replace_file(place / "privacy.json", statement.to_json())
    return place


def rewrite_report(home: Path, run: str, to: Path | None) -> Path:
    """The report of a release, or the pages of a finished one written anew to the folder `to`: the same bytes.

    Where a release awaits approval, its report is what the decision is made on.

    Raises:
        InputError: no finished run, or the folder holds something already.
        StageError: the files are not those that were booked.
    """
    folder, manifest = existing_run(home, run)
    if to is None and apply_decision(folder, manifest).state == RunState.AWAITING and folder.proposed.exists():
        return folder.proposed / "report.html"
    folder, _ = finished_run(home, run)
    if to is None:
        return folder.release / "report.html"
    from marginweave.publish.pages import read_pages

    _check_empty(to, "choose another folder with --to")
    write_folder(to.resolve(), read_pages(folder.release))
    return to / "report.html"


def compare_with(home: Path, run: str, against: str, to: Path | None) -> ReleaseComparison:
    """What changed from the release `against` to that of `run`, beyond noise; the page goes to the new folder `to`.

    Each is the name of a run, or the folder of a release. DP: post-processing.

    Raises:
        InputError: one is not there, they are of different datasets or the same, or the folder holds something already.
    """
    from marginweave.publish.comparison import compare_releases, render_comparison

    before, after = (_with_time(home, named) for named in (against, run))
    found = compare_releases(before, after)
    if to is not None:
        _check_empty(to, "choose another folder with --to")
        write_folder(to.resolve(), {"comparison.html": render_comparison(found, before, after)})
    return found


def _with_time(home: Path, named: str) -> PublishedRelease:
    """The release; of a run its statement has the time at which it was begun, where the published one has the day alone."""
    from marginweave.publish.reader import PublishedRelease
    from marginweave.runs.lookup import release_folder

    place = release_folder(home, named)
    release = PublishedRelease.read(place)
    if place == Path(named):
        return release
    begun = f"{existing_run(home, named)[1].created.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    return replace(release, statement=release.statement.model_copy(update={"begun": begun}))


def _check_empty(place: Path, advice: str) -> None:
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise InputError(f"{place} is not an empty folder; {advice}")


def releasable_evaluation(home: Path, run: str) -> Evaluation:
    """The published comparison of a run's records with its counts.

    Raises:
        InputError: no finished run.
    """
    folder, _ = finished_run(home, run)
    return Evaluation.from_json((folder.release / "evaluation.json").read_bytes())
