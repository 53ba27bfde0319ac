"""Which estimator makes records of dense marginals: the one that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marginweave.schemas.configuration.synthesis import DenseSynthesis, GumSynthesis, PgmSynthesis
from marginweave.schemas.configuration.synthesis import MixtureSynthesis as MixtureOptions
from marginweave.schemas.released.measurements import CensoredMeasurement, Mask, Measurement
from marginweave.tasks.estimate.mixture.fit import MixtureSettings, fit_mixture
from marginweave.tasks.estimate.mixture.model import Mixture
from marginweave.tasks.synthesize.gum.settings import GumSettings
from marginweave.tasks.synthesize.gum.synthesize import Gum
from marginweave.tasks.synthesize.mixture import MixtureSynthesis
from marginweave.tasks.synthesize.pgm import Pgm, PgmSettings
from marginweave.tasks.synthesize.shards import Estimator


@dataclass(frozen=True, kw_only=True, eq=False)
class Told:
    """What is known of a table: marginals over attributes of `sizes` codes, its number of records, and structural zeros.

    `measurements` are as they were drawn, each with its noise, `consistent` gives them in agreement. `noise` is how far a
    model is to be from them, as `MixtureSettings` has it.
    """

    measurements: Sequence[Measurement]
    consistent: Callable[[], Sequence[Measurement]]
    sizes: Sequence[int]
    total: float
    masks: Sequence[Mask]
    noise: float = 1.0


def estimator(told: Told, settings: DenseSynthesis, model: Mixture | None = None) -> Estimator:
    """The estimator of a method, ready to make records.

    GUM takes consistent counts, the others those that were drawn, a graphical model as many as its size allows.
    `model` is what `fit_model` makes of the same, where it is there already. DP: post-processing. Raises InputError as
    `Gum.of`, `fit_model`, `MixtureSynthesis.of` and `Pgm.of`.
    """
    records = round(told.total) if settings.records == "count" else settings.records
    if isinstance(settings, GumSynthesis):
        return Gum.of(told.consistent(), told.sizes, records, _gum(settings), told.masks)
    if isinstance(settings, PgmSynthesis):
        fitting = PgmSettings(iterations=settings.iterations, model_size=settings.model_size, seed=settings.seed)
        return Pgm.of(_whole(told), told.sizes, records, told.total, fitting, told.masks)
    return MixtureSynthesis.of(model or fit_model(told, settings), records, settings.seed)


def _whole(told: Told) -> Sequence[Measurement]:
    """Measurements without unknown cells: as they were drawn, or what k-tuples stand for, suppressed ones included."""
    if any(isinstance(m, CensoredMeasurement) for m in told.measurements):
        return told.consistent()
    return told.measurements


def fit_model(told: Told, settings: MixtureOptions) -> Mixture:
    """The mixture of what was drawn. DP: post-processing. Raises InputError as `fit_mixture`."""
    steering = MixtureSettings(
        components=settings.components,
        fits=settings.fits,
        iterations=settings.iterations,
        noise=told.noise,
        seed=settings.seed,
    )
    return fit_mixture(told.measurements, told.sizes, max(told.total, 1.0), told.masks, steering)


def _gum(settings: GumSynthesis) -> GumSettings:
    return GumSettings(
        start=settings.start,
        rounds=settings.rounds,
        schedule=settings.schedule,
        tolerance=settings.tolerance,
        duplicate=settings.duplicate,
        seed=settings.seed,
    )
