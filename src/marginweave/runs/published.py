"""Commands on a published release: copy it, compare it, make new records, and write its report again."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from marginweave.base.durable import at_place, read_file, replace_file, sync_folder
from marginweave.base.errors import InputError, StageError, VerdictError
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
    """Return the verdict of a release's evaluation.json; None where the file is missing. DP: post-processing."""
    content = read_file(release / "evaluation.json")
    return None if content is None else Evaluation.from_json(content).summary


@dataclass(frozen=True)
class OutcomeLine:
    """A line that a run prints at its end."""

    text: str
    is_verdict: bool = False
    """True for the line that says whether the release may be published."""


def outcome_lines(account: AccountSums, verdict: VerdictSummary | None) -> list[OutcomeLine]:
    """Return the lines that a run prints at its end: the account's spent budget, and the verdict on the release."""
    spent = (
        f"epsilon {account.epsilon:.4g} of {account.cap_epsilon:g} spent at delta {account.delta:g}"
    )
    lines = [
        OutcomeLine(f"Account {account.dataset}: {spent}, {account.releases} release(s)"),
        OutcomeLine("  This sum is no bound under adaptively chosen budgets; the cap is"),
    ]
    if verdict is not None:
        lines.append(OutcomeLine(str(verdict.line), is_verdict=True))
        lines += [OutcomeLine(f"  {text}") for text in (*verdict.says, *verdict.advice)]
    return lines


def is_published_as_it_is(verdict: VerdictSummary | None) -> bool:
    """Return whether `publish` copies a release without `--even-so`."""
    return verdict is None or verdict.publication != "not for publication"


def next_words(run: str, report: Path | str, verdict: VerdictSummary | None) -> str:
    """Return a sentence on what to do after a release: read it, and publish it where `publish` would not refuse."""
    if is_published_as_it_is(verdict):
        return f"Next: open {report}, then marginweave publish {run} --to FOLDER"
    return f"Next: open {report}; publish would refuse this release, for what the verdict says"


def copy_release(
    home: Path, run: str, to: Path, *, even_so: bool = False
) -> tuple[list[str], list[str], str | None]:
    """Copy the files of a published release to the new or empty folder `to`, each checked against its digest in the ledger.

    account.json has no digest, and is copied as it is. A release with the verdict "not for publication" is copied only with
    `even_so`.

    Returns the names that were copied, those that were not, and the run that corrects this one, if there is one. Other files in
    `release/`, such as records that were synthesized later, have no digest in the ledger and are not copied.

    Raises:
        InputError: no published run, or a target that is not empty, or that lies in the home or around it.
        StageError: a released file is missing or was changed; nothing is left at `to`.
    """
    folder, manifest = finished_run(home, run)
    verdict = released_verdict(folder.release)
    if verdict is not None and not is_published_as_it_is(verdict) and not even_so:
        raise VerdictError(
            f"run {run} is not for publication, for what its verdict says. Read {folder.release / 'report.html'}; to copy it "
            "nevertheless, add --even-so",
            verdict.says,
        )
    contents = {}
    for name, digest in manifest.outputs.items():
        content = read_file(folder.path / name)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise changed(folder.path / name)
        contents[Path(name).name] = content
    account = read_file(folder.release / ACCOUNT)  # `ledger verify` compares it with the rows
    if account is None:
        raise StageError(
            f"{folder.release / ACCOUNT} is missing: the same run again writes it, free of charge"
        )
    contents[ACCOUNT] = account
    write_folder(check_target(home, to), contents)
    with at_place(folder.release, "read"):
        present_names = {entry.name for entry in folder.release.iterdir()}
    not_copied = sorted(present_names - contents.keys())
    correcting_run = corrections(home).get(manifest.release)
    return sorted(contents), not_copied, correcting_run


def check_target(home: Path, to: Path) -> Path:
    """Return the place `to`, with links resolved, after checking that files may leave the home for it.

    Raises:
        InputError: it lies among the runs or around them, its folder is not there, or it is taken.
    """
    with at_place(to, "used"):
        place = to.expanduser().resolve()
        runs = (home / "runs").resolve()
        if place.is_relative_to(runs) or runs.is_relative_to(place):
            raise InputError(
                f"{to} must not be nested with {runs}: what leaves goes to another place"
            )
        if not place.parent.is_dir():
            raise InputError(f"{place.parent} is not a folder")
        if to.is_symlink() or not _is_free(place):
            raise InputError(f"{to} is not an empty folder; choose another place with --to")
    return place


def write_folder(place: Path, contents: Mapping[str, bytes]) -> None:
    """Make `place`, new or empty, a folder with these files, in one step: after a crash it is complete or not there.

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


def regenerate_records(
    home: Path, run: str, *, records: int | None, seed: int | None, to: Path | None
) -> Path:
    """Write new synthetic records of a finished release, with their privacy statement. DP: post-processing.

    Returns the folder of the records.

    Raises:
        InputError: no finished run, or the folder holds something already.
    """
    from marginweave.publish.reader import PublishedRelease
    from marginweave.publish.synthetic import write_records

    folder, manifest = finished_run(home, run)
    published = PublishedRelease.read(folder.release)
    settings = published.settings(records, seed)
    if published.refitted:
        reporter().note(f"{folder.release} {published.refitted}")
    place = to or folder.release / f"synthesis-{settings.seed}"
    _check_empty(place, "choose another folder with --to, or another --seed")
    was_evaluated = Ledger.open(ledger_of(folder, home)).evaluations.precede(manifest.dataset, None)
    selected = was_evaluated or bool(published.statement.selected_after_internal_evaluation)
    statement = published.statement.model_copy(
        update={
            "synthesis": settings.model_dump(mode="json"),
            "selected_after_internal_evaluation": selected,
        }
    )
    with at_place(place, "created"):
        place.mkdir(parents=True, exist_ok=True)
    write_records(
        place,
        lambda: published.synthesize(settings),
        published.configuration,
        published.statement.types or {},
        published.row_gaps,
    )
    replace_file(place / "privacy.json", statement.to_json())
    return place


def rewrite_report(home: Path, run: str, to: Path | None) -> Path:
    """Return the path of a release's report; with `to`, write the pages of a finished release again there: the same bytes.

    `run` may be the folder of a release, too. For a release that awaits approval, it is the report that the decision is based
    on.

    Raises:
        InputError: no finished run and no such folder, or the folder `to` holds something already.
        StageError: the files are not those that were booked.
    """
    from marginweave.runs.lookup import release_folder

    is_name = Path(run).name == run and not (Path(run) / "privacy.json").is_file()
    if to is None and is_name:
        folder, manifest = existing_run(home, run)
        state = apply_decision(folder, manifest).state
        if state == RunState.AWAITING and folder.proposed.exists():
            return folder.proposed / "report.html"
    place = release_folder(home, run)
    if to is None:
        return place / "report.html"
    from marginweave.publish.pages import read_pages

    _check_empty(to, "choose another folder with --to")
    write_folder(to.resolve(), read_pages(place))
    return to / "report.html"


def compare_with(home: Path, run: str, against: str, to: Path | None) -> ReleaseComparison:
    """Compare the release `against` with that of `run`: changes beyond noise. Write the page to the new folder `to`.

    Each is the name of a run, or the folder of a release. DP: post-processing.

    Raises:
        InputError: one is not there, they are of different datasets or the same, or the folder holds something already.
    """
    from marginweave.publish.comparison import compare_releases, render_comparison

    before = _with_time(home, against)
    after = _with_time(home, run)
    comparison = compare_releases(before, after)
    if to is not None:
        _check_empty(to, "choose another folder with --to")
        page = render_comparison(comparison, before, after)
        write_folder(to.resolve(), {"comparison.html": page})
    return comparison


def _with_time(home: Path, named: str) -> PublishedRelease:
    """Return a release. For a run its statement has the time of its begin, where the published statement has only the day."""
    from marginweave.publish.reader import PublishedRelease
    from marginweave.runs.lookup import release_folder

    place = release_folder(home, named)
    release = PublishedRelease.read(place)
    if place == Path(named):
        return release
    _, manifest = existing_run(home, named)
    begun = f"{manifest.created.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    statement = release.statement.model_copy(update={"begun": begun})
    return replace(release, statement=statement)


def _check_empty(place: Path, advice: str) -> None:
    if not _is_free(place):
        raise InputError(f"{place} is not an empty folder; {advice}")


def _is_free(place: Path) -> bool:
    """Return whether nothing is at `place`, or an empty folder."""
    if not place.exists():
        return True
    return place.is_dir() and not any(place.iterdir())


def releasable_evaluation(home: Path, run: str) -> Evaluation:
    """Return the published comparison of records with their counts, of a run or of the folder of a release.

    Raises:
        InputError: neither a finished run nor such a folder.
    """
    from marginweave.runs.lookup import release_folder

    return Evaluation.from_json((release_folder(home, run) / "evaluation.json").read_bytes())
