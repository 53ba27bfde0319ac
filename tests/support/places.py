"""Where the repository is, its examples, the installed program, and the test tables that are not part of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLED = Path(sys.executable).parent / "marginweave"
EXAMPLES = REPOSITORY / "deployments" / "examples"
DATA = Path(os.environ.get("MARGINWEAVE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
