"""Runs below a home that were charged, as their manifests say."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from marginweave.flows.run.request import source_of
from marginweave.schemas.configuration.source import EXAMPLE_PREFIX
from marginweave.schemas.errors import StageError
from marginweave.schemas.released.manifest import Manifest
from marginweave.tasks.checkpoint.run_folder import RunFolder


def unknown_charges(home: Path, dataset: str, known: frozenset[str]) -> str | None:
    """The first run below `home` that was charged to `dataset` under a release that is not `known`, or None."""
    place = home / "runs"
    for path in sorted(place.iterdir()) if place.is_dir() else ():
        manifest = None
        with suppress(StageError):  # a manifest that cannot be read is found by `audit_files`
            manifest = RunFolder(path).read_manifest()
        if manifest is None or manifest.dataset != dataset or manifest.release in known:
            continue
        if was_charged(manifest) and not is_example(RunFolder(path)):
            return manifest.run
    return None


def was_charged(manifest: Manifest) -> bool:
    """Whether a draw of the run was charged."""
    return bool(manifest.outputs or manifest.charged)


def is_example(folder: RunFolder) -> bool:
    """Whether the run was begun with public example data, which has a ledger of its own."""
    return source_of(folder).startswith(EXAMPLE_PREFIX)
