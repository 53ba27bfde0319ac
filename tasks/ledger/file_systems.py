"""Network file systems, on which SQLite's locks and shared write-ahead log do not hold."""

from __future__ import annotations

import re
from pathlib import Path

from marginweave.schemas.errors import BudgetError

MOUNTS = Path("/proc/self/mounts")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
    }
    | {"ocfs2", "orangefs", "prl_fs", "smb3", "smbfs", "vboxsf"}
)
# A program serves these, most often over a network; the two are local disks.
_FUSE = re.compile(r"fuse\.(?!fuse-overlayfs$|ntfs)")


def check_local(file: Path) -> None:
    """Refuse a database file that would lie on a network file system. Where the system lists no mounts, nothing is known.

    Raises:
        BudgetError: names the kind of file system and the way out.
    """
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    kind = file_system(file.parent.resolve(), mounts)
    if kind in _NETWORK or _FUSE.match(kind):
        raise BudgetError(
            f"the ledger {file} would lie on a network file system ({kind}), where SQLite's locks and write-ahead log do not "
            "hold; choose a local disk, or PostgreSQL: MARGINWEAVE_LEDGER=postgresql://…"
        )


def file_system(folder: Path, mounts: str) -> str:
    """Type of the file system that the absolute `folder` is on, from the lines of /proc/self/mounts; the newest mount wins."""
    kind, depth = "", -1
    for line in mounts.splitlines():
        _, place, name, *_ = line.split(" ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place))
        if folder.is_relative_to(point) and len(point.parts) >= depth:
            kind, depth = name, len(point.parts)
    return kind
