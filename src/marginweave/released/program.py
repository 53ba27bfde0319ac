"""Identifies the program that made a file: its version, and a digest of its own code."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from marginweave.configuration.values import FrozenModel


class Program(FrozenModel):
    """The identity of a program: two installations with the same files have the same one."""

    version: Annotated[str, Field(min_length=1)]
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    def __str__(self) -> str:
        return f"{self.version} (code {self.digest[:12]})"
