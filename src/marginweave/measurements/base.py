"""Base class of measurements: a measurement is one planned draw, which counts rows of a view and adds noise in one place.

A measurement is planned, priced and written down before any row is read: it is a function of the configuration alone. It may
count private rows (`count`), and adds noise to the exact result (`draw`). The ledger sees only its `Charge`. Stages after
`aggregate` see only the observations that its bytes contain.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from marginweave.accounting.charges import Charge
from marginweave.base.budget import Cost, ParameterName, Stability, amount
from marginweave.base.errors import StageError
from marginweave.base.parallel import Engine
from marginweave.configuration.release import Configuration
from marginweave.draws.protocol import SMALL
from marginweave.mechanisms.base import DrawMechanism, Sensitivity
from marginweave.mechanisms.catalogue import MECHANISMS
from marginweave.released.statement import DrawNoise

if TYPE_CHECKING:
    from marginweave.counts.count_runs import MemoryBudget
    from marginweave.mechanisms.randomness import DrawBits
    from marginweave.observations.combinations import Aggregates
    from marginweave.prepare.clean import CleanBlocks
    from marginweave.prepare.codes import EncodedBlocks

Counted = TypeVar("Counted")
Value = TypeVar("Value")
AnyMeasurement = TypeVar("AnyMeasurement", bound="Measurement[Any]")
Terms = dict[str, Any]


@dataclass(frozen=True)
class RowView:
    """Rows that measurements count: those that the stage `preprocess` or `encode` returns, or something made of each of them.

    `grouped`: one unit is one row, however many rows it has in the table.
    """

    name: str
    after: str
    grouped: bool = False

    def stability(self, configuration: Configuration) -> Stability:
        """Return how many rows of the view one unit moves, and how. DP: arithmetic on public numbers."""
        unit = (
            configuration.privacy.stability if self.after == PREPROCESS else configuration.stability
        )
        return replace(unit, records=1) if self.grouped else unit


PREPROCESS = "preprocess"
ENCODE = "encode"
CLEAN = RowView("clean", PREPROCESS)
"""Rows before a table is resized, at most theta of a unit."""
ENCODED = RowView("encoded", ENCODE)
"""Rows that records are released from: imputed, and of the declared size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exact(Generic[Counted]):
    """The exact result of a measurement, in the form that its mechanism takes; private.

    `digest` is the digest of the canonical integers in `counts`, `used` has the mechanism's parameters as exact integers and
    fractions: both are bound to the noise. `size` is at least the number of bytes of the noisy result.
    """

    counts: Counted
    digest: str
    used: Mapping[str, str | int]
    size: int = SMALL


class PrivateRows(ABC):
    """The rows that a measurement may read in a run, and space for counts that do not fit into memory. Private."""

    memory: MemoryBudget
    """Memory and folder that counting may take."""

    @property
    @abstractmethod
    def key(self) -> bytes:
        """Secret key of the run, for choices on private rows."""

    @abstractmethod
    def clean(self) -> CleanBlocks:
        """Return the rows of `CLEAN`, block by block."""

    @abstractmethod
    def encoded(self) -> EncodedBlocks:
        """Return the rows of `ENCODED`, block by block."""

    @abstractmethod
    def engine(self) -> AbstractContextManager[Engine]:
        """Return the engine that counts in parallel. Raises StageError where its cluster cannot be used."""

    @abstractmethod
    def remember(self, name: str, compute: Callable[[], Value]) -> Value:
        """Return the result of `compute` on the rows, computed once in this attempt."""

    @abstractmethod
    def cached_blocks(
        self,
        name: str,
        follows: Sequence[Measurement[Any]],
        compute: Callable[[], Iterable[bytes]],
    ) -> Iterable[bytes]:
        """Return blocks that are computed once, from the rows and the draws `follows`, and read back by later measurements."""


class Drawn(ABC):
    """The draws of a release that are committed, or were given back. Public.

    `configuration` is what was planned, `plan` its measurements.
    """

    def __init__(
        self,
        configuration: Configuration,
        plan: Measurements,
        remembered: dict[str, Any] | None = None,
    ) -> None:
        """Set up; all objects about one release may share `remembered`, because what is committed never changes."""
        self.configuration = configuration
        self.plan = plan
        self._remembered = {} if remembered is None else remembered

    @property
    @abstractmethod
    def resolved(self) -> Configuration:
        """Configuration with released bounds in place of private ones. Raises StageError before they are drawn."""

    @property
    def counted(self) -> Configuration:
        """Configuration `resolved` that tables are counted by: every cell that is not as declared has a code."""
        return self.resolved.with_undeclared(self.configuration.undeclared)

    @abstractmethod
    def payload(self, measurement: Measurement[Any]) -> bytes:
        """Return the bytes of a committed draw, or their substitute if it was given back.

        Raises StageError where it is open.
        """

    @abstractmethod
    def is_committed(self, measurement: Measurement[Any]) -> bool:
        """Return whether the measurement is drawn."""

    @abstractmethod
    def derived(
        self,
        name: str,
        follows: Sequence[Measurement[Any]],
        compute: Callable[[], bytes],
    ) -> bytes:
        """Return bytes that follow from the committed draws `follows`; they are computed once. DP: post-processing."""

    def remember(self, name: str, compute: Callable[[], Value]) -> Value:
        """Return what `compute` derives from committed draws, computed once for this object. DP: post-processing."""
        if name not in self._remembered:
            self._remembered[name] = compute()
        value: Value = self._remembered[name]
        return value


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The noise that a measurement will have, from public facts.

    `sigmas` are the standard deviations of the noise of its queries, and `unit` is the word for a query. With `is_shared` they
    hold for one query that has the draw alone: how many share it is not known yet. With `at_most` they are upper limits.
    `threshold` is the least noisy count that is released, `private_threshold` that of a value of a private domain, where it is
    another one. With probability 0.95 a choice misses the best by at most `short`.
    """

    sigmas: Sequence[float] = ()
    unit: str = ""
    at_most: bool = False
    is_shared: bool = False
    threshold: str = ""
    private_threshold: str = ""
    short: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurement(ABC, Generic[Counted]):
    """A planned draw: what is counted, over which rows, with which noise.

    `place` holds the numbers in its name; nothing parses them. `mechanism` says how it draws, with one `parameter`. For
    Gaussian noise that is the multiplier, sigma over L2 sensitivity; else it is epsilon. If a draw has several tables, the
    parameter is the joint one.
    """

    template: ClassVar[str]
    """Name, with a placeholder for each of the numbers that tell draws of a kind apart."""
    title: ClassVar[str]
    """Purpose in words."""
    share_key: ClassVar[str | None] = None
    """Key of the budget share that all draws of the kind have; None where they take what the other shares leave."""
    view: ClassVar[RowView] = ENCODED
    heading: ClassVar[str | None] = None
    """Heading under which an account adds up these draws; None where it lists them by length, or each by its name."""
    is_repeated: ClassVar[bool] = False
    """Whether a plan has many draws of this kind that differ only in their numbers, and that `plan` shows in one line."""

    place: tuple[int, ...] = ()
    mechanism: type[DrawMechanism]
    parameter: float
    cost: Cost

    @classmethod
    def priced(
        cls,
        mechanism: type[DrawMechanism],
        parameter: float,
        *place: int,
        delta: float = 0.0,
        **fields: Any,
    ) -> Self:
        """Return a measurement at the price of its mechanism, with an additive `delta` for a threshold.

        `fields` are those that only this kind has. DP: arithmetic on public numbers.
        """
        cost = mechanism.price(parameter)
        if delta:
            cost = replace(cost, delta=amount(delta))
        return cls(
            place=place,
            mechanism=mechanism,
            parameter=parameter,
            cost=cost,
            **fields,
        )

    @property
    def name(self) -> str:
        """Name in rows of the ledger and in released files."""
        return self.template.format(*self.place)

    def __str__(self) -> str:
        return self.name

    @property
    def length(self) -> int:
        """Number of attributes of the combinations that a draw of k-tuples is about; else 0."""
        return 0

    @property
    def noise_multiplier(self) -> float:
        """Parameter of noise that is a multiple of the sensitivity. Raises TypeError for a draw with an epsilon."""
        return self._parameter("noise_multiplier")

    @property
    def epsilon(self) -> float:
        """Parameter of a draw with an epsilon. Raises TypeError for one with a noise multiplier."""
        return self._parameter("epsilon")

    def _parameter(self, name: ParameterName) -> float:
        if name != self.mechanism.parameter:
            raise TypeError(f"draw {self.name} has no {name}")
        return self.parameter

    @property
    def price(self) -> Charge:
        """Price of the draw, without its terms."""
        return Charge(
            name=self.name,
            mechanism=self.mechanism.name,
            length=self.length,
            parameter=self.parameter,
            cost=self.cost,
        )

    def charge(self, configuration: Configuration) -> Charge:
        """Return all that the ledger records of it: its price, and the public facts that it draws by."""
        unit = self.view.stability(configuration)
        common = {"records": unit.records, "neighbors": unit.neighbors}
        return replace(self.price, terms={**common, **self.terms(configuration)})

    def charged(self, charge: Charge) -> Self:
        """Return this measurement with the numbers of `charge`, which was reserved for it."""
        return replace(
            self,
            parameter=charge.parameter,
            cost=charge.cost,
            mechanism=MECHANISMS[charge.mechanism],
        )

    @abstractmethod
    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """Return how far one unit moves the exact result, at the public cap of its contributions.

        DP: arithmetic on public numbers.
        """

    @abstractmethod
    def terms(self, configuration: Configuration) -> Terms:
        """Return the public facts that are reserved with it and compared before it is drawn.

        A number that follows from an earlier draw is no term; the facts that it follows from are.
        DP: a function of the configuration.
        """

    @abstractmethod
    def forecast(self, configuration: Configuration) -> Forecast:
        """Return how noisy it will be. DP: arithmetic on public numbers."""

    def shares(self, configuration: Configuration) -> Sequence[float] | None:  # noqa: ARG002 - for counts of records
        """Return the share of all records that is in a mean cell, for each table that `forecast` has a sigma of.

        None for draws that count no tables. Empty where the number of cells is not public. DP: arithmetic on public numbers.
        """
        return None

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - for those that have one
        """Return what privacy.json says about the noise that it had; empty where it has no single sigma."""
        return DrawNoise()

    def is_due(self, drawn: Drawn) -> bool:  # noqa: ARG002 - most always are
        """Return whether its turn has come. DP: post-processing of `drawn`."""
        return True

    def is_needed(self, drawn: Drawn) -> bool:  # noqa: ARG002 - most always are
        """Return whether there is anything to draw when it is due; else its share goes back.

        DP: post-processing of `drawn`.
        """
        return True

    def unreached(self, drawn: Drawn) -> bytes:  # noqa: ARG002 - most always are drawn
        """Return the substitute for its bytes where its share went back. DP: post-processing of `drawn`."""
        raise StageError(f"draw {self.name} was given back")

    @abstractmethod
    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[Counted]:
        """Return the exact result; all that can fail without noise is done here. Private."""

    @abstractmethod
    def draw(
        self,
        exact: Exact[Counted],
        bits: DrawBits,
        sealed: bytes,
    ) -> bytes:
        """Return the exact result with noise, a function of the bits: the only place where noise is added.

        `sealed` is the result of `seal`. DP: the price of the measurement.
        """

    def seal(self, exact: Exact[Counted]) -> Callable[[], bytes] | None:  # noqa: ARG002 - for noise that takes no key
        """Return the function that makes a library's noise before the charge, as that library takes no key.

        None where the mechanism takes a key.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The measurements of a release, in the order of their draws."""

    draws: tuple[Measurement[Any], ...]

    @cached_property
    def by_name(self) -> dict[str, Measurement[Any]]:
        """Measurements by the names of their draws."""
        return {measurement.name: measurement for measurement in self.draws}

    def after(self, stage: str) -> tuple[Measurement[Any], ...]:
        """Return the measurements that count rows of this stage."""
        return tuple(measurement for measurement in self.draws if measurement.view.after == stage)

    def of(self, kind: type[AnyMeasurement]) -> tuple[AnyMeasurement, ...]:
        """Return the measurements of a kind."""
        return tuple(measurement for measurement in self.draws if isinstance(measurement, kind))

    def draw(self, kind: type[AnyMeasurement], *place: int) -> AnyMeasurement:
        """Return the measurement of this kind at this place. Raises KeyError where the plan has none."""
        measurement = self.by_name[kind.template.format(*place)]
        assert isinstance(measurement, kind)
        return measurement
