"""What a steward makes of a draft."""

from __future__ import annotations

import re
from pathlib import Path

from marginweave.configuration.execution import SourceFile
from marginweave.drafts.draft import draft_configuration
from marginweave.drafts.draft_text import write_draft


def drafted_text(
    source: str, form: SourceFile, dictionary: str | None = None, below: Path = Path()
) -> str:
    """The draft of a configuration for a source, as YAML."""
    return write_draft(draft_configuration(source, form, dictionary, below))


def answered(draft: str, public: str) -> str:
    """The draft with its unit and its rules confirmed, without the number of rows, and every column published there."""
    text = re.sub(r"^( +confirm: true|rows:).*\n", "", draft, flags=re.MULTILINE)
    return text.replace("confirm: true", f"public: {public}")
