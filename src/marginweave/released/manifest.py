"""Fields of the manifest of a run: its configuration, finished stages, charges, and released files.

The manifest holds public knowledge and keyed digests only: no value, size, count or duration of anything private.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AwareDatetime, Field, model_validator

from marginweave.base.errors import MustError, refuse_older
from marginweave.base.formats import MANIFEST_FORMAT
from marginweave.configuration.execution import Execution
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import check_name
from marginweave.configuration.yaml_source import digest_of
from marginweave.released.contract import Described, contract
from marginweave.released.program import Program

_PURGED = ("private/", "derived/")


class RunState(StrEnum):
    """How far a run is."""

    RUNNING = "running"
    AWAITING = "awaiting approval"
    REJECTED = "rejected"
    FINISHED = "finished"
    FAILED = "failed"


def _relative(text: str) -> str:
    has_odd_part = not {"", ".", ".."}.isdisjoint(text.split("/"))
    if text.startswith("/") or "\\" in text or has_odd_part:
        raise MustError("be a relative path inside the run")
    return text


Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RelativePath = Annotated[str, AfterValidator(_relative)]
Name = Annotated[str, AfterValidator(check_name)]


class StageEntry(Described):
    """A finished stage."""

    file: RelativePath = Field(description="Its checkpoint, a path inside the run.")
    digest: Digest = Field(description="Keyed digest of its content, hex.")
    address: str = Field(default="", description="What the checkpoint is sealed for.")
    charged: tuple[str, ...] = Field(default=(), description="Names of the draws that it charged.")
    finished: AwareDatetime = Field(description="When it was finished.")
    purged: AwareDatetime | None = Field(
        default=None, description="When the file was deleted; null if it was not."
    )


class Correction(Described):
    """The run whose release another one corrects."""

    run: Name = Field(description="Its name.")
    release: Annotated[str, Field(min_length=1)] = Field(description="Its release in the ledger.")


class Manifest(Described):
    """One run. The ledger knows it by the digest of `written`; the run keeps `configuration` as it was first resolved."""

    schema_: Literal["urn:marginweave:manifest:3"] = contract("urn:marginweave:manifest:3")
    version: Literal[3] = Field(default=MANIFEST_FORMAT, description="Version of this contract.")
    run: Name = Field(description="Name of the run.")
    dataset: Name = Field(description="Name of the account.")
    release: Annotated[str, Field(min_length=1)] = Field(
        description="Identifier of the release in the ledger."
    )
    written: str = Field(
        description="The configuration as the user wrote it, canonical JSON in a text."
    )
    configuration: str = Field(
        description="The same as the version that began the run resolved it."
    )
    configuration_digest: Digest = Field(description="SHA-256 of `configuration`, hex.")
    execution: Execution = Field(default=Execution(), description="How the last attempt computes.")
    source: str = Field(description="The source as the configuration names it.")
    source_digest: Digest = Field(
        description="Keyed digest of the source, another one for each release."
    )
    types: dict[str, str] = Field(
        default={}, description="By column, its type in the source's schema, as privacy.json."
    )
    programs: tuple[Program, ...] = Field(
        default=(), description="Programs that worked on it, oldest first."
    )
    created: AwareDatetime = Field(description="When the run was begun.")
    state: RunState = Field(default=RunState.RUNNING, description="How far the run is.")
    supersedes: Correction | None = Field(
        default=None, description="The release that this one corrects; null if none."
    )
    stages: dict[str, StageEntry] = Field(
        default={}, description="Finished stages in the order of completion."
    )
    outputs: dict[RelativePath, Digest] = Field(
        default={}, description="Released files with their SHA-256, hex."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_older(cls, content: Any) -> Any:
        """Refuse the manifest of an older version, by an InputError."""
        if isinstance(content, dict):
            refuse_older(
                f"run {content.get('run')}",
                content.get("version", MANIFEST_FORMAT),
                MANIFEST_FORMAT,
            )
        return content

    @model_validator(mode="after")
    def _check(self) -> Self:
        if digest_of(self.configuration) != self.configuration_digest:
            raise ValueError("configuration_digest must be the SHA-256 of configuration")
        return self

    @property
    def charged(self) -> frozenset[str]:
        """Names of the draws that were charged."""
        return frozenset(name for entry in self.stages.values() for name in entry.charged)

    @property
    def plan_digest(self) -> str:
        """Digest of the configuration in the ledger: SHA-256 of `written`, hex."""
        return digest_of(self.written)

    def is_of(self, configuration: Configuration) -> bool:
        """Return whether the run was begun with `configuration`."""
        return self.plan_digest == configuration.written_digest

    def with_release(self, release: str, source_digest: str) -> Manifest:
        """Return the manifest of a run whose release is reserved again, as nothing was drawn for the old one."""
        return self.model_copy(update={"release": release, "source_digest": source_digest})

    def with_stage(self, name: str, entry: StageEntry) -> Manifest:
        """Return the manifest with a stage added at the end, or replaced in its place."""
        return self.model_copy(update={"stages": {**self.stages, name: entry}})

    def with_execution(self, execution: Execution) -> Manifest:
        """Return the manifest of a run that resumes with other machines, memory or partitions."""
        return self.model_copy(update={"execution": execution})

    def with_program(self, program: Program) -> Manifest:
        """Return the manifest of a run that resumes with this program."""
        if program in self.programs:
            return self
        return self.model_copy(update={"programs": (*self.programs, program)})

    def with_state(self, state: RunState) -> Manifest:
        """Return the manifest in another state."""
        return self.model_copy(update={"state": state})

    def with_outputs(self, outputs: dict[str, str]) -> Manifest:
        """Return the manifest with these released files and no others."""
        return Manifest.model_validate({**dict(self), "outputs": outputs})

    def purged(self, time: datetime) -> Manifest:
        """Return the manifest after `private/` and `derived/` were removed at `time`; files purged before keep their time."""
        stages = dict(self.stages)
        for name, entry in self.stages.items():
            if entry.file.startswith(_PURGED) and entry.purged is None:
                stages[name] = entry.model_copy(update={"purged": time})
        return self.model_copy(update={"stages": stages})

    def to_json(self) -> str:
        """Return the manifest as indented JSON; `from_json` reads it back."""
        return self.model_dump_json(indent=2, by_alias=True) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> Manifest:
        """Return the manifest that `to_json` wrote.

        Raises:
            InputError: an older version wrote it.
            ValueError: `text` is no manifest of a known format.
        """
        return cls.model_validate_json(text)
