"""The manifest of a run: what was configured, which stages are done, what was charged, what was released.

It holds public knowledge and keyed digests only: no value, size, count or duration of anything private.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, model_validator

from marginweave.schemas.configuration import check_name
from marginweave.schemas.execution import Execution
from marginweave.schemas.numbers import FROZEN
from marginweave.schemas.program import Program

_PURGED = ("private/", "derived/")


class RunState(StrEnum):
    """How far a run is."""

    RUNNING = "running"
    AWAITING = "awaiting approval"
    REJECTED = "rejected"
    FINISHED = "finished"
    FAILED = "failed"


def _relative(text: str) -> str:
    if text.startswith("/") or "\\" in text or any(part in {"", ".", ".."} for part in text.split("/")):
        raise ValueError("must be a relative path inside the run")
    return text


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RelativePath = Annotated[str, AfterValidator(_relative)]
Name = Annotated[str, AfterValidator(check_name)]


class StageEntry(BaseModel):
    """A finished stage: its file in the run and the address it is sealed at, the keyed digest, the draws it charged."""

    model_config = FROZEN
    file: RelativePath
    digest: Digest
    address: str = ""
    charged: tuple[str, ...] = ()
    finished: AwareDatetime
    purged: AwareDatetime | None = None


class Correction(BaseModel):
    """The run whose release another one corrects, and that release."""

    model_config = FROZEN
    run: Name
    release: Annotated[str, Field(min_length=1)]


class Manifest(BaseModel):
    """One run. `stages` are in order of completion; `outputs` are released files with their SHA-256.

    `configuration` is the canonical JSON of the configuration and `source` the source as it is named there;
    `source_digest` is keyed, and another one for each release (`SourceDigest.mark`). `programs` are the identities of the programs that worked on it, the one that began it first.
    `execution` is how the last attempt computes, of which `configuration` says nothing.
    """

    model_config = FROZEN
    version: Literal[1] = 1
    run: Name
    dataset: Name
    release: Annotated[str, Field(min_length=1)]
    configuration: str
    configuration_digest: Digest
    execution: Execution = Execution()
    source: str
    source_digest: Digest
    programs: tuple[Program, ...] = ()
    created: AwareDatetime
    state: RunState = RunState.RUNNING
    supersedes: Correction | None = None
    stages: dict[str, StageEntry] = {}
    outputs: dict[RelativePath, Digest] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if hashlib.sha256(self.configuration.encode()).hexdigest() != self.configuration_digest:
            raise ValueError("configuration_digest must be the SHA-256 of configuration")
        return self

    def with_stage(self, name: str, entry: StageEntry) -> Manifest:
        """The manifest with a stage added at the end, or replaced where it stands."""
        return self.model_copy(update={"stages": {**self.stages, name: entry}})

    def with_execution(self, execution: Execution) -> Manifest:
        """The manifest of a run that goes on with other machines, memory or partitions."""
        return self.model_copy(update={"execution": execution})

    def with_program(self, program: Program) -> Manifest:
        """The manifest of a run that goes on with this program."""
        return self if program in self.programs else self.model_copy(update={"programs": (*self.programs, program)})

    def with_state(self, state: RunState) -> Manifest:
        """The manifest in another state."""
        return self.model_copy(update={"state": state})

    def with_outputs(self, outputs: dict[str, str]) -> Manifest:
        """The manifest with these released files and no others."""
        return Manifest.model_validate({**dict(self), "outputs": outputs})

    def purged(self, time: datetime) -> Manifest:
        """The manifest after `private/` and `derived/` were removed at `time`; what was purged before keeps its time."""
        stages = {
            name: entry.model_copy(update={"purged": time})
            if entry.file.startswith(_PURGED) and entry.purged is None
            else entry
            for name, entry in self.stages.items()
        }
        return self.model_copy(update={"stages": stages})

    def to_json(self) -> str:
        """The manifest as indented JSON; `from_json` reads it back."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """The manifest that `to_json` wrote.

        Raises:
            ValueError: `text` is no manifest of this version.
        """
        return cls.model_validate_json(text)
