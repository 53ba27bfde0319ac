"""Earlier releases of the same rows: which marginals a configuration can use, checks against the ledger, and a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from marginweave.base.durable import read_file, replace_file
from marginweave.base.errors import InputError
from marginweave.configuration.earlier import EARLIER_FILES, KnownRelease, earlier_name
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed

if TYPE_CHECKING:  # a refusal, or a run that is already finished, need not wait for these imports
    from marginweave.ledger import Ledger
    from marginweave.released.statement import MarginalStatement, PrivacyStatement


@dataclass(frozen=True, kw_only=True)
class EarlierRelease:
    """An earlier release: the folder of its files, its entry in the configuration, and the marginals that are used."""

    folder: Path
    entry: KnownRelease
    marginals: tuple[MarginalStatement, ...]


def earlier_releases(
    entries_with_folders: Sequence[KnownRelease], configuration: Configuration
) -> tuple[EarlierRelease, ...]:
    """Return the earlier releases of a configuration; `entries_with_folders` are its entries with the folders of their files.

    Raises:
        InputError: one whose files cannot be read, or that cannot be used here (`usable_marginals`, `_check_rules`).
    """
    if not entries_with_folders:
        return ()
    from marginweave.released.earlier import usable_marginals
    from marginweave.released.statement import PrivacyStatement

    releases = []
    for entry_with_folder, entry in zip(entries_with_folders, configuration.earlier, strict=True):
        if entry_with_folder.release.folder is None:
            raise InputError(
                "known.release has digests without the folder of the release; write the folder, as in release: runs/RUN/release"
            )
        folder = Path(entry_with_folder.release.folder)
        content = read_file(folder / "privacy.json")
        if content is None:
            raise InputError(
                f"known.release ({folder}) has no privacy.json; name the folder of a published release"
            )
        try:
            statement = PrivacyStatement.from_json(content)
        except ValueError:
            raise InputError(
                f"known.release ({folder}) has a privacy.json of another version; it cannot be used"
            ) from None
        marginals = usable_marginals(configuration, statement)
        _check_rules(configuration, statement, marginals)
        releases.append(EarlierRelease(folder=folder, entry=entry, marginals=marginals))
    return tuple(releases)


def _check_rules(
    configuration: Configuration,
    statement: PrivacyStatement,
    marginals: Sequence[MarginalStatement],
) -> None:
    """Refuse columns where broken rows are repaired at random: each release would count other values.

    Raises:
        InputError: there are such columns in these marginals.
    """
    from marginweave.prepare.chance import chance_before_counting

    earlier = Configuration.from_canonical(statement.configuration).with_bounds(statement.bounds)
    public_labels = [attribute.labels for attribute in configuration.attributes]
    used_columns: set[str] = set()
    for marginal in marginals:
        used_columns.update(marginal.attributes)
    random_columns: set[str] = set()
    for declared, labels in (
        (earlier, statement.released_domain.labels),
        (configuration, public_labels),
    ):
        chance = chance_before_counting(declared, labels, {})
        random_columns |= {declared.attributes[j].name for j in chance.attributes}
    refused_columns = sorted(used_columns & random_columns)
    if refused_columns:
        raise InputError(
            f"known.release: run {statement.run} counted {listed(refused_columns)} with rows that break a rule, which get a "
            "value by chance, another one in each release: counts of both are not of one table; leave these columns, or the "
            "earlier release, out"
        )


def check_earlier(configuration: Configuration, ledger: Ledger) -> None:
    """Refuse earlier releases that differ from their record in the ledger.

    Raises:
        InputError: a release of another account, one that is not published, or a file that is not the published one.
    """
    for entry in configuration.earlier:
        record = ledger.releases.find(entry.release.id)
        subject = f"known.release: run {entry.release.run}"
        if record is None or record.dataset != configuration.dataset:
            raise InputError(
                f"{subject} is not a release of account {configuration.dataset} in the ledger {ledger.location}; only what was "
                "charged to this account can be used again for nothing"
            )
        for name, digest in entry.release.files.items():
            if record.outputs.get(f"release/{name}") != digest:
                raise InputError(
                    f"{subject} was not published with this {name}: its digest is not the one in the ledger; name the folder "
                    "of a published release that was not changed"
                )


def keep_earlier(releases: Sequence[EarlierRelease], place: Path) -> None:
    """Copy the files of earlier releases to a run's derived folder, where `normalize` and `publish` find them.

    Every reader checks that they are the declared files.
    """
    for number, release in enumerate(releases, 1):
        for name in EARLIER_FILES:
            # A file that is missing becomes an empty one, which its readers refuse: it has not the declared digest.
            content = read_file(release.folder / name) or b""
            replace_file(place / earlier_name(number, name), content)
