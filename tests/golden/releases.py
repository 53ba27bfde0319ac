"""The files of a golden release: made under noise that the number of its draw determines, without what changes by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml

from marginweave.configuration.load import parse_configuration
from marginweave.ledger import Ledger
from marginweave.mechanisms import randomness
from marginweave.mechanisms.laplace import DiscreteLaplace
from marginweave.mechanisms.randomness import DrawBits
from tests.golden.shapes import account_of, write_people
from tests.support.plain_runs import run_plainly
from tests.support.release_checks import unpacked

# What another commit or another moment changes: identifiers, digests, versions, times.
_CHANGING = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{64}\b|\b0\.\d\.\d(?:\.dev\d*)?\b"
    rb"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[0-9.,+:Z]*|\b2\d{3}-\d\d-\d\d\b|code [0-9a-f]{8,}"
)


def _bits(*, seed: bytes, context: tuple[str | int, ...], tainted: bool) -> DrawBits:
    """Return bits that are a function of the name of their draw alone."""
    return DrawBits(seed=bytes(len(seed)), context=context[1:2], tainted=tainted)


def _laplace(_noise: DiscreteLaplace, sizes: list[int], _epsilons: Any) -> list[Any]:
    return [np.arange(size, dtype=np.int64) % 7 - 3 for size in sizes]


@contextmanager
def known_secrets() -> Iterator[None]:
    """Noise and keys inside are the same in every run of every home."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(randomness, "DrawBits", _bits))
        stack.enter_context(mock.patch.object(DiscreteLaplace, "presample", _laplace))
        stack.enter_context(mock.patch("secrets.token_bytes", bytes))
        yield


def released_files(home: Path, shape: str) -> dict[str, bytes]:
    """Release `shape` in the empty folder `home`, and return its files by name, each without what changes by itself.

    What is packed in a file, such as the cells of a Parquet file, follows its bytes.
    """
    place = home / "ledger" / "ledger.sqlite"
    path = write_people(home, shape)
    configuration = parse_configuration(yaml.safe_load(path.read_text()))
    with mock.patch.dict("os.environ", {"MARGINWEAVE_LEDGER": str(place)}):
        Ledger.create(place).accounts.open(account_of(configuration), actor="steward")
        with known_secrets():
            folder = run_plainly(home, path, "r") / "release"
    return comparable_files(folder, home)


def comparable_files(folder: Path, home: Path) -> dict[str, bytes]:
    """The files of a release in `home` by name, each without what another moment or place changes."""
    files = {file.name: unpacked(file.name, file.read_bytes()) for file in folder.iterdir()}
    return {
        name: _CHANGING.sub(b"*", content.replace(str(home).encode(), b"HOME"))
        for name, content in sorted(files.items())
    }
