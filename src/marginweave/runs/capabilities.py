"""What a stage is given: where its inputs lie. Stages right of `aggregate` get a reference that names no private file."""

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
from marginweave.measurements.plan import Plan
from marginweave.released.manifest import Manifest
from marginweave.sources.content import content_of

if TYPE_CHECKING:
    from marginweave.domain.labels import Domain  # numpy


BOUNDS = "bounds"
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """What a stage returns, and the next stages are given: the stage's checkpoint and the draws that it was charged for.

    `digest` is keyed where the bytes are private, a SHA-256 where released counts determine them. `is_reread` says that an
    earlier attempt has charged them, and that this one reads what it left.
    """

    stage: str
    address: str
    file: str
    digest: str
    charged: tuple[str, ...] = ()
    is_reread: bool = False


class CheckpointReference(ABC):
    """What every reference does with the checkpoints of stages: they are computed where they are not there, and loaded."""

    @cached_property
    @abstractmethod
    def store(self) -> Store:
        """Where the checkpoints are."""

    @abstractmethod
    def _slice(self) -> dict[str, Any]:
        """The part of the configuration that the stages depend on; JSON values."""

    def checkpoint(self, stage: str, inputs: Sequence[StageResult | str], compute: Callable[[], bytes]) -> StageResult:
        """The checkpoint of a deterministic stage, computed if it is not there.

        Its address has the code version, the part of the configuration that the stage depends on, and the digests of its
        `inputs`, keyed where they are private.
        """
        store, key = self.store, self._address(stage, inputs)
        store.discard_damaged(stage, key, blocks=False)
        payload = store.get(stage, key)
        return _result(store, stage, key, store.put(stage, key, compute() if payload is None else payload))

    def checkpoint_blocks(
        self,
        stage: str,
        inputs: Sequence[StageResult | str],
        compute: Callable[[], Iterable[bytes]],
        files: Sequence[Path] = (),
    ) -> StageResult:
        """The same for a stage whose result is a sequence of blocks, one at a time in memory; it may read public `files`."""
        store, key = self.store, self._address(stage, inputs, files)
        store.discard_damaged(stage, key, blocks=True)
        blocks = store.blocks(stage, key) or store.put_blocks(stage, key, compute())
        return _result(store, stage, key, blocks.digest)

    def load(self, result: StageResult) -> bytes:
        """The bytes of an earlier stage's checkpoint; raises StageError where it is missing."""
        return _present(self.store.get(result.stage, result.address), result)

    def load_blocks(self, result: StageResult) -> BlockFile:
        """The blocks of an earlier stage's checkpoint; raises StageError where it is missing."""
        return _present(self.store.blocks(result.stage, result.address), result)

    def _address(self, stage: str, inputs: Sequence[StageResult | str], files: Sequence[Path] = ()) -> str:
        slice_ = {**self._slice(), "files": [_file_digest(file) for file in files]}
        digests = [given if isinstance(given, str) else given.digest for given in inputs]
        return address(stage, program_identity().digest, slice_, digests)


@dataclass(frozen=True, kw_only=True)
class DerivedReference(CheckpointReference):
    """For post-processing: the folder of checkpoints that were computed from released counts, and the configuration."""

    place: Path
    canonical: str
    execution: Execution = field(default_factory=Execution)
    types: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration of the release."""
        return Configuration.from_canonical(self.canonical, self.execution)

    @cached_property
    def resolved(self) -> Configuration:
        """The configuration with released bounds in the place of private ones.

        It is what encode and all right of it follow.

        Raises:
            StageError: bounds that were not released yet.
        """
        return self.configuration.with_bounds(self.released_bounds)

    def estimated(self, domain: Domain) -> Configuration:
        """The same as estimates have it: cells that are not as declared have a code where such cells were found."""
        return self.resolved.with_undeclared(domain.with_undeclared)

    @property
    def released_bounds(self) -> dict[str, tuple[float, float]]:
        """The bounds that were bought, by column; empty where all are public. Raises StageError before they are drawn."""
        if not self.configuration.private_bounds:
            return {}
        return {name: (low, high) for name, (low, high) in self._bought(BOUNDS).items()}

    def _bought(self, what: str) -> dict[str, Any]:
        payload = self.store.get(what, self._address(what, []))
        if payload is None:
            raise StageError(f"the {what} of the release are not drawn yet")
        found: dict[str, Any] = json.loads(payload)
        return found

    def read_kept(self, name: str) -> bytes | None:
        """A released file of an earlier release that was kept when the run was begun, or None."""
        return read_file(self.place / name)

    @cached_property
    def store(self) -> Store:
        """The store of derived checkpoints; its seal guards against damage, so a public key will do."""
        return Store(self.place, hashlib.sha256(self.canonical.encode()).digest())

    def _slice(self) -> dict[str, Any]:
        return {"configuration": self.configuration.digest}


@dataclass(frozen=True, kw_only=True)
class RunReference(CheckpointReference):
    """For the stages that see private rows: the run, the source, the ledger, and this attempt's lease.

    `ledger_file` is None where the environment says where the ledger is: a reference carries no password.
    """

    folder: RunFolder
    source: str
    ledger_file: Path | None
    lease: str
    suites: tuple[Path | None, Path | None] = (None, None)
    certificates: tuple[Path, ...] = ()
    stops: bool = False
    """Whether a table that is not usable as declared stops the run: a person has started it, or `check: stop` asks for it."""
    planned: Plan | None = None
    """The plan of the configuration; None where nothing is drawn any more."""

    def keep(
        self, *, manifest: Manifest, ledger: Ledger, source_digest: SourceDigest, read_digest: SourceDigest
    ) -> None:
        """Take what was read, opened and digested when the run was prepared: nothing of it is done a second time.

        `read_digest` is that of the bytes that are read: of the source itself, or of what stands for a data frame.
        """
        vars(self).update(manifest=manifest, ledger=ledger, source_digest=source_digest, read_digest=read_digest)

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest as it was at the start of the attempt."""
        return self.folder.present_manifest()

    @cached_property
    def configuration(self) -> Configuration:
        """The configuration of the release."""
        return Configuration.from_canonical(self.manifest.configuration, self.manifest.execution)

    @property
    def resolved(self) -> Configuration:
        """The configuration with the released bounds in the place of private ones (`DerivedReference.resolved`)."""
        return self.configuration.with_bounds(self.derived.released_bounds)

    @property
    def counted(self) -> Configuration:
        """The same as tables are counted: every cell that is not as declared has a code."""
        return self.resolved.with_undeclared(self.configuration.undeclared)

    @cached_property
    def plan(self) -> Plan:
        """The split of the budget as the ledger has reserved it: every draw takes its parameters from here.

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
        """What was computed from committed draws and private rows, in memory alone."""
        return {}

    @property
    def attempt(self) -> Attempt:
        """Who draws."""
        return Attempt(release=self.manifest.release, lease=self.lease, program=program_identity())

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger that answers for the release."""
        witness = Witness(self.folder.home, self.folder.path, self.manifest.release)
        return Ledger.open(self.ledger_file or ledger_location(os.environ), witness=witness)

    @cached_property
    def source_digest(self) -> SourceDigest:
        """The digest of the source, in memory alone."""
        return self.ledger.keys.source_digest(content_of(self.source))

    @cached_property
    def read_digest(self) -> SourceDigest | None:
        """The digest of the bytes that are read, in memory alone; None where the manifest alone has it, of the source."""
        return None

    @cached_property
    def store(self) -> Store:
        """Sensitive checkpoints."""
        return Store(self.folder.private, self.ledger.keys.checkpoint_key)

    @cached_property
    def draws(self) -> DrawStore:
        """Draws of noise."""
        return DrawStore(self.folder, self.ledger.keys.checkpoint_key)

    @cached_property
    def secrets(self) -> DrawSecrets:
        """The secrets of draws that are not committed yet."""
        return DrawSecrets(self.folder, self.ledger.keys.checkpoint_key)

    def _slice(self) -> dict[str, Any]:
        return self.configuration.model_dump(  # what rows pass through
            mode="json",
            include={
                **dict.fromkeys(("missing", "columns", "structure", "resize", "expectations"), True),
                "privacy": {"unit", "neighbors"},
                "aggregate": {"method"},
            },
        )

    def is_source(self, chunks: Iterable[bytes]) -> bool:
        """Whether these are the bytes of the source that the run was begun with."""
        manifest, found = self.manifest, self.ledger.keys.source_digest(chunks)
        if self.read_digest is not None:
            return found == self.read_digest
        return found.matches(manifest.release, manifest.source_digest)

    @cached_property
    def derived(self) -> DerivedReference:
        """What post-processing is given."""
        canonical, execution, types = self.manifest.configuration, self.manifest.execution, self.manifest.types
        derived = DerivedReference(place=self.folder.derived, canonical=canonical, execution=execution, types=types)
        vars(derived).update(configuration=self.configuration)  # it is public, and parsed already
        return derived

    @property
    def key_file(self) -> Path:
        """The run's secret key for choices on private rows; destroyed with `private/`."""
        return self.folder.private / "key"


def _result(store: Store, stage: str, key: str, digest: str) -> StageResult:
    place = store.place(stage, key)
    return StageResult(stage=stage, address=key, file=f"{place.parent.name}/{place.name}", digest=digest)


def _present(found: T | None, result: StageResult) -> T:
    if found is None:
        raise StageError(f"the checkpoint of stage {result.stage} is missing: {result.file}")
    return found


def _file_digest(file: Path) -> str:
    digest = file_digest(file)
    if digest is None:
        raise StageError(f"{file} does not exist any more")
    return digest
