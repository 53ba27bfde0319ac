"""What a measurement is: one planned draw, which counts rows of a view and gets its noise in one place.

A measurement is planned, priced and written down before any row is read: it is a function of the configuration alone. It may
count private rows (`count`), and makes noise of their exact result (`draw`). The ledger knows no more of it than its `Charge`,
and all that is right of `aggregate` no more than the observations that its bytes hold.
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
    """Rows that measurements count: those that a stage leaves, `preprocess` or `encode`, or what is made of each of them.

    `grouped`: one unit is one row, however many it has.
    """

    name: str
    after: str
    grouped: bool = False

    def stability(self, configuration: Configuration) -> Stability:
        """How many rows of the view one unit moves, and how. DP: arithmetic on public numbers."""
        unit = configuration.privacy.stability if self.after == PREPROCESS else configuration.stability
        return replace(unit, records=1) if self.grouped else unit


PREPROCESS, ENCODE = "preprocess", "encode"
CLEAN = RowView("clean", PREPROCESS)
"""At most theta rows of a unit, before a table is resized."""
ENCODED = RowView("encoded", ENCODE)
"""What records are released from: imputed, and of the declared size."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Exact(Generic[Counted]):
    """The exact result of a measurement, as its mechanism is given it; private.

    `digest` is that of the canonical integers in `counts`, `used` are the mechanism's parameters as exact integers and
    fractions: both are bound to the noise. `size` is at least the number of bytes of the noisy result.
    """

    counts: Counted
    digest: str
    used: Mapping[str, str | int]
    size: int = SMALL


class PrivateRows(ABC):
    """What a measurement may read of a run, and room for counts that memory cannot hold. Private."""

    memory: MemoryBudget
    """What counting may take."""

    @property
    @abstractmethod
    def key(self) -> bytes:
        """The run's secret key for choices on private rows."""

    @abstractmethod
    def clean(self) -> CleanBlocks:
        """The rows of `CLEAN`, block by block."""

    @abstractmethod
    def encoded(self) -> EncodedBlocks:
        """The rows of `ENCODED`, block by block."""

    @abstractmethod
    def engine(self) -> AbstractContextManager[Engine]:
        """What counts in parallel. Raises StageError where its cluster cannot be used."""

    @abstractmethod
    def remember(self, name: str, compute: Callable[[], Value]) -> Value:
        """What was computed from the rows, as long as this attempt lives."""

    @abstractmethod
    def kept(
        self, name: str, follows: Sequence[Measurement[Any]], compute: Callable[[], Iterable[bytes]]
    ) -> Iterable[bytes]:
        """Blocks that are computed once, and read back by later measurements: from the rows, and draws that they follow."""


class Drawn(ABC):
    """The draws of a release that are committed, or were given back. Public.

    `configuration` is what was planned, `plan` its measurements.
    """

    def __init__(
        self, configuration: Configuration, plan: Measurements, remembered: dict[str, Any] | None = None
    ) -> None:
        """`remembered` may be shared by all that speak of the same release: what is committed never changes."""
        self.configuration, self.plan = configuration, plan
        self._remembered = {} if remembered is None else remembered

    @property
    @abstractmethod
    def resolved(self) -> Configuration:
        """The configuration with released bounds in the place of private ones. Raises StageError before they are drawn."""

    @property
    def counted(self) -> Configuration:
        """The same as tables are counted: every cell that is not as declared has a code."""
        return self.resolved.with_undeclared(self.configuration.undeclared)

    @abstractmethod
    def payload(self, measurement: Measurement[Any]) -> bytes:
        """The bytes of a committed draw, or what stands for one that was given back. Raises StageError where it is open."""

    @abstractmethod
    def is_committed(self, measurement: Measurement[Any]) -> bool:
        """Whether it is drawn."""

    @abstractmethod
    def derived(self, name: str, follows: Sequence[Measurement[Any]], compute: Callable[[], bytes]) -> bytes:
        """Bytes that follow from some committed draws: computed once. DP: post-processing."""

    def remember(self, name: str, compute: Callable[[], Value]) -> Value:
        """What follows from committed draws, as long as this object lives. DP: post-processing."""
        if name not in self._remembered:
            self._remembered[name] = compute()
        found: Value = self._remembered[name]
        return found


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """How noisy a measurement will be, from public facts.

    `sigmas` are the standard deviations of the noise of its queries, for words: of `unit`; of one alone where `is_shared` by a
    number that is not known yet, the largest there can be where it is `at_most` that. `threshold` is the least noisy count
    that is kept, `short` what a choice may fall short of with probability 0.95.
    """

    sigmas: Sequence[float] = ()
    unit: str = ""
    at_most: bool = False
    is_shared: bool = False
    threshold: str = ""
    short: str = ""


@dataclass(frozen=True, kw_only=True)
class Measurement(ABC, Generic[Counted]):
    """One planned draw: what is counted, over which rows, with which noise.

    `place` are the numbers in its name, which nothing parses. `mechanism` says how it draws, with a `parameter`: of Gaussian
    noise the multiplier, by which its sigma is larger than the L2 sensitivity, or epsilon; of several tables that of all
    together.
    """

    template: ClassVar[str]
    """Its name, with the numbers that tell draws of a kind apart left open."""
    title: ClassVar[str]
    """What it is for, in words."""
    share_key: ClassVar[str | None] = None
    """The key of the share of the budget that all of its kind have; None where they have what the others leave."""
    view: ClassVar[RowView] = ENCODED
    heading: ClassVar[str | None] = None
    """What its draws are added up under, where an account is shown; None where by their length, or each by its name."""
    is_repeated: ClassVar[bool] = False
    """Whether a plan has many of its kind that differ in their numbers alone, and are one line of `plan`."""

    place: tuple[int, ...] = ()
    mechanism: type[DrawMechanism]
    parameter: float
    cost: Cost

    @classmethod
    def priced(
        cls, mechanism: type[DrawMechanism], parameter: float, *place: int, delta: float = 0.0, **more: Any
    ) -> Self:
        """One at the price of its mechanism, with an additive `delta` for a threshold. DP: arithmetic on public numbers."""
        cost = mechanism.price(parameter)
        if delta:
            cost = replace(cost, delta=amount(delta))
        return cls(place=place, mechanism=mechanism, parameter=parameter, cost=cost, **more)

    @property
    def name(self) -> str:
        """Its name, as rows of the ledger and released files have it."""
        return self.template.format(*self.place)

    def __str__(self) -> str:
        return self.name

    @property
    def length(self) -> int:
        """Attributes of the combinations that it is about, of k-tuples; else 0."""
        return 0

    @property
    def noise_multiplier(self) -> float:
        """The parameter of noise that is a multiple of the sensitivity. Raises TypeError for a draw with an epsilon."""
        return self._parameter("noise_multiplier")

    @property
    def epsilon(self) -> float:
        """The parameter of a draw with an epsilon. Raises TypeError for one with a noise multiplier."""
        return self._parameter("epsilon")

    def _parameter(self, name: ParameterName) -> float:
        if name != self.mechanism.parameter:
            raise TypeError(f"draw {self.name} has no {name}")
        return self.parameter

    @property
    def price(self) -> Charge:
        """What it costs, without its terms."""
        return Charge(
            name=self.name,
            mechanism=self.mechanism.name,
            length=self.length,
            parameter=self.parameter,
            cost=self.cost,
        )

    def charge(self, configuration: Configuration) -> Charge:
        """All that the ledger knows of it: its price, and the public facts that it draws by."""
        unit = self.view.stability(configuration)
        common = {"records": unit.records, "neighbors": unit.neighbors}
        return replace(self.price, terms={**common, **self.terms(configuration)})

    def charged(self, charge: Charge) -> Self:
        """The same with the numbers of `charge`, which was reserved for it."""
        return replace(self, parameter=charge.parameter, cost=charge.cost, mechanism=MECHANISMS[charge.mechanism])

    @abstractmethod
    def sensitivity(self, configuration: Configuration) -> Sensitivity:
        """How far one unit moves the exact result, at the public cap of its contributions. DP: arithmetic on public numbers."""

    @abstractmethod
    def terms(self, configuration: Configuration) -> Terms:
        """The public facts that are reserved with it and compared before it is drawn. DP: a function of the configuration.

        A number that follows from an earlier draw is none; what it follows from is.
        """

    @abstractmethod
    def forecast(self, configuration: Configuration) -> Forecast:
        """How noisy it will be. DP: arithmetic on public numbers."""

    def shares(self, configuration: Configuration) -> Sequence[float] | None:  # noqa: ARG002 - for counts of records
        """Of each table that `forecast` has a sigma of, the share of all records that is in a mean cell; None of other draws.

        Empty where the number of cells is not public. DP: arithmetic on public numbers.
        """
        return None

    def noise(self, configuration: Configuration, observed: Aggregates) -> DrawNoise:  # noqa: ARG002 - for those that have one
        """What privacy.json says of the noise that it had; nothing where it has no single sigma."""
        return DrawNoise()

    def is_due(self, drawn: Drawn) -> bool:  # noqa: ARG002 - most always are
        """Whether it can be drawn next, as far as its turn is concerned. DP: post-processing of `drawn`."""
        return True

    def is_needed(self, drawn: Drawn) -> bool:  # noqa: ARG002 - most always are
        """Whether there is anything to draw, when it is due; else its share goes back. DP: post-processing of `drawn`."""
        return True

    def unreached(self, drawn: Drawn) -> bytes:  # noqa: ARG002 - most always are drawn
        """What stands for its bytes where its share went back. DP: post-processing of `drawn`."""
        raise StageError(f"draw {self.name} was given back")

    @abstractmethod
    def count(self, rows: PrivateRows, drawn: Drawn) -> Exact[Counted]:
        """The exact result; all that can fail without noise is done here. Private."""

    @abstractmethod
    def draw(self, exact: Exact[Counted], bits: DrawBits, sealed: bytes) -> bytes:
        """The exact result with its noise, a function of the bits: the one place where it gets any.

        `sealed` is what `seal` has made. DP: the price of the measurement.
        """

    def seal(self, exact: Exact[Counted]) -> Callable[[], bytes] | None:  # noqa: ARG002 - for noise that takes no key
        """What makes noise of a library that takes no key, before the charge; None where there is none."""
        return None


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """The measurements of a release, in the order of their draws."""

    draws: tuple[Measurement[Any], ...]

    @cached_property
    def by_name(self) -> dict[str, Measurement[Any]]:
        """The measurements by the names of their draws."""
        return {measurement.name: measurement for measurement in self.draws}

    def after(self, stage: str) -> tuple[Measurement[Any], ...]:
        """Those that count rows which this stage leaves."""
        return tuple(measurement for measurement in self.draws if measurement.view.after == stage)

    def of(self, kind: type[AnyMeasurement]) -> tuple[AnyMeasurement, ...]:
        """Those of a kind."""
        return tuple(measurement for measurement in self.draws if isinstance(measurement, kind))

    def draw(self, kind: type[AnyMeasurement], *place: int) -> AnyMeasurement:
        """The one of this kind at this place. Raises KeyError where the plan has none."""
        found = self.by_name[kind.template.format(*place)]
        assert isinstance(found, kind)
        return found
