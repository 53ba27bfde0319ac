"""A notebook as a page of Markdown: its texts, its code, and the outputs that are stored in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def page_of(notebook: Path) -> str:
    """The notebook as MyST Markdown, in which outputs of HTML stay HTML."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(_output(output) for output in cell["outputs"])]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}```"
    data = output["data"]
    if "text/html" in data:
        return f"```{{raw}} html\n{''.join(data['text/html'])}\n```"
    return f"```text\n{''.join(data['text/plain'])}\n```"
