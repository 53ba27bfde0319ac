"""What a steward makes of a draft."""

from __future__ import annotations

import re


def answered(draft: str, public: str) -> str:
    """The draft with its unit confirmed, without the number of rows, and every column published there."""
    text = re.sub(r"^(  confirm: true|rows:).*\n", "", draft, flags=re.MULTILINE)
    return text.replace("confirm: true", f"public: {public}")
