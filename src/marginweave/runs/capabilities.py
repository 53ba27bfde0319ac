"""References to the inputs of a stage. Stages after `aggregate` get a reference that names no private file."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from marginweave.base.durable import file_digest, read_file
from marginweave.base.errors import BudgetError, StageError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.checkpoints.store import BlockFile, Store, address
from marginweave.configuration.execution import Execution
from marginweave.configuration.release import Configuration
from marginweave.draws.files import DrawSecrets, DrawStore
from marginweave.draws.program import program_identity
from marginweave.draws.protocol import Attempt
from marginweave.ledger import Ledger, Witness, ledger_location
from marginweave.ledger.keys import SourceDigest
from marginweave.ledger.plans import reserved_plan
from marginweave.linked.places import TablePlaces
from marginweave.measurements.plan import Plan
from marginweave.released.manifest import Manifest

if TYPE_CHECKING:
    from marginweave.domain.labels import Domain  # numpy


BOUNDS = "bounds"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """The result of a stage, an input of the next stages: the stage's checkpoint and the draws that it was charged for.

    `digest` is keyed where the bytes are private, a SHA-256 where released counts determine them. `is_reread` says that an
    earlier attempt was charged for the draws, and that this one reads its files.
    """

    stage: str
    address: str
    file: str
    digest: str
    charged: tuple[str, ...] = ()
    is_reread: bool = False


class CheckpointReference(ABC):
    """Base of all references: computes the checkpoints of stages where they are missing, and loads them."""

    @cached_property
    @abstractmethod
    def store(self) -> Store:
        """Store of the checkpoints."""

    @abstractmethod
    def _slice(self) -> dict[str, Any]:
        """Return the part of the configuration that the stages depend on; JSON values."""

    def checkpoint(
        self, stage: str, inputs: Sequence[StageResult | str], compute: Callable[[], bytes]
    ) -> StageResult:
        """Return the checkpoint of a deterministic stage, computed if it is missing.

        Its address has the code version, the part of the configuration that the stage depends on, and the digests of its
        `inputs`, keyed where they are private.
        """
        store = self.store
        key = self._address(stage, inputs)
        store.discard_damaged(stage, key, blocks=False)
        payload = store.get(stage, key)
        if payload is None:
            payload = compute()
        digest = store.put(stage, key, payload)
        return _result(store, stage, key, digest)

    def checkpoint_blocks(
        self,
        stage: str,
        inputs: Sequence[StageResult | str],
        compute: Callable[[], Iterable[bytes]],
        files: Sequence[Path] = (),
    ) -> StageResult:
        """Return the checkpoint of a stage that yields blocks, one in memory at a time. It may read public `files`."""
        store = self.store
        key = self._address(stage, inputs, files)
        store.discard_damaged(stage, key, blocks=True)
        blocks = store.blocks(stage, key) or store.put_blocks(stage, key, compute())
        return _result(store, stage, key, blocks.digest)

    def load(self, result: StageResult) -> bytes:
        """Return the bytes of an earlier stage's checkpoint; raises StageError where it is missing."""
        return _present(self.store.get(result.stage, result.address), result)

    def load_blocks(self, result: StageResult) -> BlockFile:
        """Return the blocks of an earlier stage's checkpoint; raises StageError where it is missing."""
        return _present(self.store.blocks(result.stage, result.address), result)

    def _address(
        self, stage: str, inputs: Sequence[StageResult | str], files: Sequence[Path] = ()
    ) -> str:
        file_digests = [_file_digest(file) for file in files]
        declared = {**self._slice(), "files": file_digests}
        input_digests = [source if isinstance(source, str) else source.digest for source in inputs]
        return address(stage, program_identity().digest, declared, input_digests)


@dataclass(frozen=True, kw_only=True)
class DerivedReference(CheckpointReference):
    """A reference for post-processing: the folder of checkpoints computed from released counts, and the configuration."""

    place: Path
    canonical: str
    execution: Execution = field(default_factory=Execution)
    types: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def configuration(self) -> Configuration:
        """Configuration of the release."""
        return Configuration.from_canonical(self.canonical, self.execution)

    @cached_property
    def resolved(self) -> Configuration:
        """Configuration with released bounds in the place of private ones: for `encode` and all stages after it.

        Raises:
            StageError: bounds that were not released yet.
        """
        return self.configuration.with_bounds(self.released_bounds)

    def estimated(self, domain: Domain) -> Configuration:
        """Return the resolved configuration for estimates: with a code for undeclared cells in columns that have such cells."""
        return self.resolved.with_undeclared(domain.with_undeclared)

    @property
    def released_bounds(self) -> dict[str, tuple[float, float]]:
        """Bounds that a draw has measured, by column; empty where all are public. Raises StageError before they are drawn."""
        if not self.configuration.private_bounds:
            return {}
        payload = self.store.get(BOUNDS, self._address(BOUNDS, []))
        if payload is None:
            raise StageError(f"the {BOUNDS} of the release are not drawn yet")
        bounds: dict[str, Any] = json.loads(payload)
        return {name: (low, high) for name, (low, high) in bounds.items()}

    def read_kept(self, name: str) -> bytes | None:
        """Return a file of an earlier release that was copied when the run was begun, or None."""
        return read_file(self.place / name)

    @cached_property
    def store(self) -> Store:
        """Store of derived checkpoints; its seal guards against damage, so a public key is enough."""
        return Store(self.place, hashlib.sha256(self.canonical.encode()).digest())

    def _slice(self) -> dict[str, Any]:
        return {"configuration": self.configuration.digest}


@dataclass(frozen=True, kw_only=True)
class RunReference(CheckpointReference):
    """A reference for the stages that see private rows: the run, the source, the ledger, and this attempt's lease.

    `ledger_file` is None where the environment says where the ledger is: a reference carries no password.
    """

    folder: RunFolder
    source: str
    ledger_file: Path | None
    lease: str
    linked: Mapping[str, str] = field(default_factory=dict)
    """Places of linked tables, by their names."""
    suites: tuple[Path | None, Path | None] = (None, None)
    certificates: tuple[Path, ...] = ()
    stops: bool = False
    """Whether a table that is not usable as declared stops the run: because a person has started it, or by `check: stop`."""
    planned: Plan | None = None
    """The plan of the configuration; None where nothing is drawn any more."""

    def keep(
        self,
        *,
        manifest: Manifest,
        ledger: Ledger,
        source_digest: SourceDigest,
        read_digest: SourceDigest,
    ) -> None:
        """Take what was read, opened and digested when the run was prepared, so that it is not done a second time.

        `read_digest` is the digest of the bytes that are read: of the source itself, or of the file made from a data frame.
        """
        vars(self).update(
            manifest=manifest, ledger=ledger, source_digest=source_digest, read_digest=read_digest
        )

    @cached_property
    def manifest(self) -> Manifest:
        """Manifest as it was at the start of the attempt."""
        return self.folder.present_manifest()

    @cached_property
    def configuration(self) -> Configuration:
        """Configuration of the release."""
        return Configuration.from_canonical(self.manifest.configuration, self.manifest.execution)

    @property
    def resolved(self) -> Configuration:
        """Configuration with the released bounds in the place of private ones (`DerivedReference.resolved`)."""
        return self.configuration.with_bounds(self.derived.released_bounds)

    @property
    def counted(self) -> Configuration:
        """Resolved configuration for counting tables: every cell that is not as declared has a code."""
        return self.resolved.with_undeclared(self.configuration.undeclared)

    @cached_property
    def plan(self) -> Plan:
        """Split of the budget as the ledger has reserved it: every draw takes its parameters from here.

        Raises:
            BudgetError: nothing is reserved yet.
        """
        from marginweave.measurements.split import plan_budget

        record = self.ledger.releases.find(self.manifest.release)
        if record is None:
            raise BudgetError(f"release {self.manifest.release} is not reserved in the ledger")
        plan = self.planned or plan_budget(self.configuration)
        return plan.reserved(reserved_plan(record, plan.prices))

    @cached_property
    def remembered(self) -> dict[str, Any]:
        """Values that were computed from committed draws and private rows, by name, in memory alone."""
        return {}

    @property
    def attempt(self) -> Attempt:
        """Identity of this attempt for its draws: the release, the lease and the program."""
        return Attempt(release=self.manifest.release, lease=self.lease, program=program_identity())

    @cached_property
    def ledger(self) -> Ledger:
        """Ledger that the release is charged in."""
        witness = Witness(self.folder.home, self.folder.path, self.manifest.release)
        return Ledger.open(self.ledger_file or ledger_location(os.environ), witness=witness)

    @property
    def places(self) -> TablePlaces:
        """Places of all tables."""
        return TablePlaces(self.source, self.linked)

    @cached_property
    def source_digest(self) -> SourceDigest:
        """Digest of the source and its linked tables, in memory alone."""
        return self.ledger.keys.source_digest(self.places.contents())

    @cached_property
    def read_digest(self) -> SourceDigest | None:
        """Digest of the bytes that are read, in memory alone; None where only the manifest has one, that of the source."""
        return None

    @cached_property
    def store(self) -> Store:
        """Store of sensitive checkpoints."""
        return Store(self.folder.private, self.ledger.keys.checkpoint_key)

    @cached_property
    def draws(self) -> DrawStore:
        """Store of the draws."""
        return DrawStore(self.folder, self.ledger.keys.checkpoint_key)

    @cached_property
    def secrets(self) -> DrawSecrets:
        """Secrets of draws that are not committed yet."""
        return DrawSecrets(self.folder, self.ledger.keys.checkpoint_key)

    def _slice(self) -> dict[str, Any]:
        # The sections that decide how rows are read and prepared.
        sections = {
            "missing": True,
            "columns": True,
            "structure": True,
            "tables": True,
            "resize": True,
            "expectations": True,
            "privacy": {"unit", "neighbors"},
            "aggregate": {"method"},
        }
        return self.configuration.model_dump(mode="json", include=sections)

    def is_source(self, contents: Mapping[str, Iterable[bytes]]) -> bool:
        """Return whether these are the bytes of the tables, by their names, that the run was begun with."""
        manifest = self.manifest
        digest = self.ledger.keys.source_digest(contents)
        if self.read_digest is not None:
            return digest == self.read_digest
        return digest.matches(manifest.release, manifest.source_digest)

    @cached_property
    def derived(self) -> DerivedReference:
        """Reference for post-processing, without any private file."""
        manifest = self.manifest
        canonical = manifest.configuration
        execution = manifest.execution
        types = manifest.types
        derived = DerivedReference(
            place=self.folder.derived, canonical=canonical, execution=execution, types=types
        )
        vars(derived).update(configuration=self.configuration)  # it is public, and parsed already
        return derived

    @property
    def key_file(self) -> Path:
        """File of the run's secret key for choices on private rows; destroyed with `private/`."""
        return self.folder.private / "key"


def _result(store: Store, stage: str, key: str, digest: str) -> StageResult:
    place = store.place(stage, key)
    return StageResult(
        stage=stage, address=key, file=f"{place.parent.name}/{place.name}", digest=digest
    )


def _present(content: T | None, result: StageResult) -> T:
    if content is None:
        raise StageError(f"the checkpoint of stage {result.stage} is missing: {result.file}")
    return content


def _file_digest(file: Path) -> str:
    digest = file_digest(file)
    if digest is None:
        raise StageError(f"{file} does not exist any more")
    return digest
