"""A hook that Python loads at its start: processes of ours write down, at their end, what the kernel protects them from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_HOOK = """
import atexit, ctypes, json, os, resource, sys

def testify():
    if "marginweave.runs.process_hardening" in sys.modules:
        before = os.umask(0)
        os.umask(before)
        seen = {"program": os.path.basename(sys.argv[0]), "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
                "core": resource.getrlimit(resource.RLIMIT_CORE), "umask": before}
        with open(%r, "a") as file:
            file.write(json.dumps(seen) + "\\n")

atexit.register(testify)
"""


def witness(folder: Path) -> dict[str, str]:
    """The environment under which processes testify; `heard` reads what they wrote to `folder`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_HOOK % str(folder / "testimonies.jsonl"))
    return {"PYTHONPATH": str(folder)}


def heard(folder: Path) -> list[dict[str, Any]]:
    """What each process said, in the order of their ends."""
    return [json.loads(line) for line in (folder / "testimonies.jsonl").read_text().splitlines()]
