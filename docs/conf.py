"""The documentation site: `make docs` writes it to build/site, and index.html there needs no network."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

import marginweave

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import page_of
from terms import with_terms

REPOSITORY = Path(__file__).resolve().parents[1]
if not Path(marginweave.__file__).is_relative_to(REPOSITORY / "build" / "tree"):
    sys.exit("autodoc must see the product in one tree: make docs")

project, author = "Marginweave", "the Marginweave authors"
version = release = installed("marginweave")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme, html_title, html_copy_source, html_show_sourcelink = (
    "furo",
    f"Marginweave {version}",
    False,
    False,
)
html_theme_options = {"top_of_page_buttons": []}
html_search_scorer = str(Path(__file__).parent / "search.js")

# Pages are those of the repository, README first: their links are the same there and here.
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}
exclude_patterns = ["docs/pictures", "docs/*.py"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
autodoc_member_order, add_module_names, python_use_unqualified_type_names = "bysource", False, True
default_role = "literal"  # docstrings have names in single backticks

PARTS = {
    "Start": ["docs/tutorials/README", "docs/guide", "docs/python", "docs/glossary"],
    "Look up": [
        "docs/commands",
        "docs/configuration",
        "docs/pages",
        "docs/verdict",
        "docs/inference",
        "docs/api",
    ],
    "The guarantee": [
        "docs/guarantee",
        "docs/accounting",
        "docs/ledger",
        "docs/over-time",
        "docs/privacy",
        "docs/threat-model",
    ],
    "What it reaches": [
        "docs/methods",
        "docs/accuracy",
        "docs/small-tables",
        "docs/sdnist",
        "docs/traps",
        "docs/benchmarks",
    ],
    "Operate": ["docs/production", "docs/operations", "docs/scale", "docs/soak"],
    "Change it": [
        "CONTRIBUTING",
        "docs/architecture",
        "docs/style",
        "docs/decisions/README",
        "docs/sources/README",
    ],
    "Check it": ["docs/leaks", "docs/faults", "docs/nist", "SECURITY", "CHANGELOG"],
}
INSIDE = {"docs/tutorials/README": "*", "docs/decisions/README": "*", "docs/sources/README": "*"}


def _contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Make Markdown of a notebook and terms of the glossary, and put contents under pages that are read without them."""
    if app.env.doc2path(name).suffix == ".ipynb":
        source[0] = page_of(app.env.doc2path(name))
    if name == "docs/glossary":
        source[0] = with_terms(source[0])
    if name == root_doc:
        for caption, pages in PARTS.items():
            source[0] += _tree(["/" + page for page in pages], f":caption: {caption}\n")
    elif name in INSIDE:
        source[0] += _tree([INSIDE[name]], ":glob:\n")


def _tree(pages: list[str], options: str) -> str:
    return f"\n\n```{{toctree}}\n:hidden:\n{options}\n" + "\n".join(pages) + "\n```\n"


def _index(app: Sphinx, error: Exception | None) -> None:
    """The first page, under the name that a browser looks for."""
    if error is None and app.builder.format == "html":
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _contents)
    app.connect("build-finished", _index)
