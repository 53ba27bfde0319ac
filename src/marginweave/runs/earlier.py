"""Earlier releases of the same rows: what a configuration can use of them, whether they were published so, and a copy."""

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

if TYPE_CHECKING:  # what a refusal, or a run that is found finished, need not wait for
    from marginweave.ledger import Ledger
    from marginweave.released.statement import MarginalStatement, PrivacyStatement


@dataclass(frozen=True, kw_only=True)
class EarlierRelease:
    """An earlier release: the folder of its files, what the configuration says of it, and the marginals that are used."""

    folder: Path
    known: KnownRelease
    marginals: tuple[MarginalStatement, ...]


def earlier_releases(named: Sequence[KnownRelease], configuration: Configuration) -> tuple[EarlierRelease, ...]:
    """The earlier releases of a configuration, which are `named` with the folders of their files.

    Raises:
        InputError: one whose files cannot be read, or that cannot be used here (`usable_marginals`, `_check_rules`).
    """
    if not named:
        return ()
    from marginweave.released.earlier import usable_marginals
    from marginweave.released.statement import PrivacyStatement

    found = []
    for where, known in zip(named, configuration.earlier, strict=True):
        if where.release.folder is None:
            raise InputError(
                "known.release has digests without the folder of the release; write the folder, as in release: runs/RUN/release"
            )
        folder = Path(where.release.folder)
        try:
            statement = PrivacyStatement.from_json(read_file(folder / "privacy.json") or b"")
        except ValueError:
            raise InputError(
                f"known.release ({folder}) has a privacy.json of another version; it cannot be used"
            ) from None
        marginals = usable_marginals(configuration, statement)
        _check_rules(configuration, statement, marginals)
        found.append(EarlierRelease(folder=folder, known=known, marginals=marginals))
    return tuple(found)


def _check_rules(
    configuration: Configuration, statement: PrivacyStatement, marginals: Sequence[MarginalStatement]
) -> None:
    """Refuse a release of columns in which rows that break a rule get a value by chance, another one in each release.

    Raises:
        InputError: there are such columns in these marginals.
    """
    from marginweave.prepare.chance import chance_before_counting

    earlier = Configuration.from_canonical(statement.configuration).with_bounds(statement.bounds)
    public = [attribute.labels for attribute in configuration.attributes]
    used, drawn = {name for m in marginals for name in m.attributes}, set[str]()
    for declared, labels in ((earlier, statement.released_domain.labels), (configuration, public)):
        chance = chance_before_counting(declared, labels, {})
        drawn |= {declared.attributes[j].name for j in chance.attributes}
    if tied := sorted(used & drawn):
        raise InputError(
            f"known.release: run {statement.run} counted {listed(tied)} with rows that break a rule, which get a value by "
            "chance, another one in each release: counts of both are not of one table; leave these columns, or the earlier "
            "release, out"
        )


def check_earlier(configuration: Configuration, ledger: Ledger) -> None:
    """Refuse earlier releases that the ledger does not have as they are.

    Raises:
        InputError: a release of another account, one that is not published, or a file that is not the published one.
    """
    for known in configuration.earlier:
        record, named = ledger.releases.find(known.release.id), f"known.release: run {known.release.run}"
        if record is None or record.dataset != configuration.dataset:
            raise InputError(
                f"{named} is not a release of account {configuration.dataset} in the ledger {ledger.location}; only what was "
                "charged to this account can be used again for nothing"
            )
        for name, digest in known.release.files.items():
            if record.outputs.get(f"release/{name}") != digest:
                raise InputError(
                    f"{named} was not published with this {name}: its digest is not the one in the ledger; name the folder of "
                    "a published release that was not changed"
                )


def keep_earlier(releases: Sequence[EarlierRelease], place: Path) -> None:
    """Copy the files of earlier releases to a run's derived folder, where `normalize` and `publish` find them.

    Whether they are the declared ones is checked wherever they are read.
    """
    for number, release in enumerate(releases, 1):
        for name in EARLIER_FILES:
            replace_file(place / earlier_name(number, name), read_file(release.folder / name) or b"")
