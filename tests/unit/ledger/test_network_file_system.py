"""A ledger file is refused where the locks of SQLite cannot be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.base.errors import BudgetError
from marginweave.ledger import Ledger
from marginweave.ledger import location as places
from marginweave.ledger.location import file_system

MOUNTS = """\
tmpfs /run tmpfs rw 0 0
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
server:/homes /home nfs4 rw,vers=4.2 0 0
/dev/vdb /home/local xfs rw 0 0
//server/share /mnt/a\\040share cifs rw 0 0
tmpfs /over tmpfs rw 0 0
me@host: /over fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv", "ext4"),
        ("/run/ledgers", "tmpfs"),  # mounted before the root, as an initial RAM disk does
        ("/home", "nfs4"),
        ("/home/someone/ledgers", "nfs4"),
        ("/home/local/ledgers", "xfs"),
        ("/homes/x", "ext4"),
        ("/mnt/a share/x", "cifs"),
        ("/over/x", "fuse.sshfs"),
    ],
)
def test_the_deepest_and_newest_mount_decides(folder: str, kind: str) -> None:
    """A mount covers what is below it, by whole names, until another is mounted deeper or over it."""
    assert file_system(Path(folder), MOUNTS) == kind


def _mounted(place: Path, kind: str, monkeypatch: pytest.MonkeyPatch, list_: Path) -> None:
    escaped = str(place.resolve()).replace(" ", "\\040")
    list_.write_text(f"/dev/vda / ext4 rw 0 0\nsomewhere {escaped} {kind} rw 0 0\n")
    monkeypatch.setattr(places, "MOUNTS", list_)


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "fuse.sshfs",
        "fuse.gcsfuse",
        "afs",
        "glusterfs",
        "lustre",
        "ceph",
    ],
)
def test_network_file_systems_are_refused_with_the_reason(
    location, tmp_path, monkeypatch, kind
) -> None:
    """Neither made nor opened there, even through a link; the message says why and what to do instead."""
    Ledger.create(location)
    link = tmp_path / "link"
    link.symlink_to(location.parent)
    _mounted(location.parent, kind, monkeypatch, tmp_path / "mounts")
    fresh = location.parent / "deeper" / "new.sqlite"
    for call in (
        lambda: Ledger.open(location),
        lambda: Ledger.open(link / location.name),
        lambda: Ledger.create(fresh),
    ):
        with pytest.raises(
            BudgetError, match=rf"network file system \({kind}\).*locks.*PostgreSQL"
        ):
            call()
    assert not fresh.parent.exists()


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "fuseblk", "fuse.fuse-overlayfs"]
)
def test_local_file_systems_are_accepted(location, tmp_path, monkeypatch, kind) -> None:
    """What a disk or a container offers is good enough."""
    location.parent.mkdir(parents=True)
    _mounted(location.parent, kind, monkeypatch, tmp_path / "mounts")
    assert Ledger.create(location).verify() == 1


def test_without_a_list_of_mounts_nothing_is_refused(location, tmp_path, monkeypatch) -> None:
    """A system that cannot say where a folder lies does not stop the ledger."""
    monkeypatch.setattr(places, "MOUNTS", tmp_path / "missing")
    assert Ledger.create(location).verify() == 1
