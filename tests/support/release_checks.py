"""What a release by the command line left in its home, and whether any of its processes is alive."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.command_line import CommandLine

RELEASED = {
    *(f"{table}.{kind}" for table in ("aggregates", "synthetic") for kind in ("csv", "parquet")),
    *(
        "evaluation.json",
        "privacy.json",
        "account.json",
        "report.html",
        "explore.html",
        "model.parquet",
        "croissant.json",
    ),
}
"""What a release of k-tuples with a mixture has."""


def opened(cli: CommandLine, epsilon: float = 1.0) -> CommandLine:
    assert (
        cli("ledger", "open", "people", "--epsilon", str(epsilon), "--delta", "1e-6").returncode
        == 0
    )
    return cli


def only_run(cli: CommandLine) -> Path:
    (run,) = (cli.home / "runs").iterdir()
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def processes_of(cli: CommandLine) -> list[int]:
    """Living processes whose environment names the home of this command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (
                    f"MARGINWEAVE_HOME={cli.home}\0".encode()
                    in (entry / "environ").read_bytes() + b"\0"
                ):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def released(cli: CommandLine, dataset: str = "people") -> tuple[Path, dict[str, Any]]:
    """The release of the only run of `dataset`, and its statement."""
    (run,) = (cli.home / "runs").glob(f"{dataset}-*")
    return run / "release", json.loads((run / "release" / "privacy.json").read_text())


def unpacked(name: str, content: bytes) -> bytes:
    """A file's bytes, and what is packed in them: of a table of Parquet its cells, of the explorer its data."""
    if name.endswith(".parquet"):
        return (
            content
            + json.dumps(pq.read_table(io.BytesIO(content)).to_pydict(), default=str).encode()
        )
    if packed := re.search(rb'id="data">([^<]+)<', content):
        return content + gzip.decompress(base64.b64decode(packed[1]))
    return content
