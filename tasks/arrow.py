"""pyarrow's compute functions, which come into being when it is loaded: type checkers do not know their names."""

from __future__ import annotations

from typing import Any

import pyarrow.compute

compute: Any = pyarrow.compute
