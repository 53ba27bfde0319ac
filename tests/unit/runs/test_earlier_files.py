"""What is said of an earlier release whose files cannot be used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.earlier import EARLIER_FILES, KnownRelease, ReleaseFiles
from marginweave.runs.earlier import earlier_releases


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "has no privacy.json"), (b"{}", "has a privacy.json of another version")],
)
def test_a_file_that_is_gone_is_not_called_another_version(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    """The folder was there when the configuration was read."""
    if content is not None:
        (tmp_path / "privacy.json").write_bytes(content)
    files = ReleaseFiles(
        id="1", run="first", files=dict.fromkeys(EARLIER_FILES, ""), folder=str(tmp_path)
    )
    entry = KnownRelease(release=files, same_rows="the same file")
    configuration = cast("Any", SimpleNamespace(earlier=(entry,)))
    with pytest.raises(InputError, match=words):
        earlier_releases((entry,), configuration)
