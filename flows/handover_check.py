"""Checks a handed-over release without marginweave: this file is in every bundle, and needs nothing but Python's own library.

Usage: python verify.py [FOLDER], beside ledger.jsonl, chain.jsonl, anchor.json and privacy.json. FOLDER is where the release
was published; without it, privacy.json alone is compared with the ledger. It ends with 0 if everything fits, and with 1 at
the first fault.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

# As in the ledger: what is no part of a row's hash, and what is no part of it where it is empty.
_SEALS = frozenset({"row_hash", "mac", "prev_hash"})
_ADDED = frozenset({"plain_epsilon", "plain_delta"})


class Fault(Exception):
    """What does not fit."""


def verify(bundle: Path, published: Path | None = None) -> list[str]:
    """What was checked, in sentences.

    SHA-256 of every row's content and of the hash before it; the place of every row in the chain of hashes up to the anchor;
    SHA-256 of the released files against the row that published them.

    Raises:
        Fault: the first thing that does not fit.
        OSError, ValueError, KeyError: a file is missing, or is not what a bundle has.
    """
    rows = _lines(bundle / "ledger.jsonl")
    chain = {row["seq"]: row["row_hash"] for row in _lines(bundle / "chain.jsonl")}
    anchor = json.loads((bundle / "anchor.json").read_bytes())
    if sorted(chain) != list(range(1, anchor["seq"] + 1)) or chain[anchor["seq"]] != anchor["hash"]:
        raise Fault("the chain of hashes does not lead from the first row to the anchor")
    for row in rows:
        before = chain.get(row["seq"] - 1, "0" * 64)
        if row["row_hash"] != _row_hash(row) or row["prev_hash"] != before or chain.get(row["seq"]) != row["row_hash"]:
            raise Fault(f"row {row['seq']} was changed, or is not at its place in the chain")
    outputs = [row["body"]["outputs"] for row in rows if row["kind"] == "PUBLISHED"][-1]
    told = published or bundle
    names = [name for name in outputs if published is not None or name == "release/privacy.json"]
    for name in names:
        content = (told / name.removeprefix("release/")).read_bytes()
        if hashlib.sha256(content).hexdigest() != outputs[name]:
            raise Fault(f"{name} is not the file that was published")
    return [
        f"{len(rows)} rows of the ledger are unchanged and stand at their places in a chain of {len(chain)} rows",
        f"the chain ends at the anchor: row {anchor['seq']}, {anchor['hash']}",
        f"{len(names)} of {len(outputs)} released file(s) compared with the row that published them",
    ]


def _lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]


def _row_hash(row: dict[str, Any]) -> str:
    columns = {name: value for name, value in row.items() if name not in _SEALS}
    columns = {name: value for name, value in columns.items() if not (name in _ADDED and value is None)}
    columns["body"] = _canonical(row["body"])
    return hashlib.sha256(f"{row['prev_hash']}{_canonical(columns)}".encode()).hexdigest()


def _canonical(content: object) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def main(arguments: list[str]) -> int:
    """Check the bundle beside this file, and tell."""
    try:
        said = verify(Path(__file__).resolve().parent, Path(arguments[0]) if arguments else None)
    except (Fault, OSError, ValueError, KeyError, IndexError, TypeError) as fault:
        sys.stderr.write(f"does not fit: {fault}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for line in said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
