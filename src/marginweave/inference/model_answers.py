"""Opens the fitted model of a release for answers outside measured sets, and stores draws of it next to the release."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from marginweave.answers.intervals import Reach
from marginweave.answers.model import DRAWS, ModelAnswers, ModelSpread, Stack, misfit
from marginweave.answers.tables import PartTables
from marginweave.base.durable import at_place, read_file, replace_file
from marginweave.base.errors import MachineError
from marginweave.base.progress import progress_as
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.configuration.values import listed
from marginweave.domain.labels import Domain
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import synthetic_only
from marginweave.estimate.intervals import LEVEL
from marginweave.estimate.known import contradicted_tables
from marginweave.estimate.marginals import drawn_compression_of
from marginweave.estimate.mixture.draws import PASSES, draw_models
from marginweave.estimate.mixture.fit import normal
from marginweave.estimate.mixture.model import Mixture
from marginweave.observations.tables import Observation
from marginweave.publish.reader import FittedRelease
from marginweave.records.release import estimation_input

Arrays = dict[str, np.ndarray]


def open_model(
    place: Path, measured: PartTables, say: Callable[[str], None]
) -> ModelAnswers | None:
    """Return the object that answers from the model of the release in the folder `place`; None without a model.

    The first time that their spread is needed, models are drawn. They are stored in a folder next to the release, where that
    can be written. DP: post-processing.

    Raises:
        InputError: the release is not complete.
    """
    released = FittedRelease.read(place)
    if released is None:
        return None
    configuration = released.configuration
    model = released.mixture
    conditioned = model.conditioned()

    @cache
    def spread() -> ModelSpread:
        arrays, tau = _drawn(place, released, say)
        models = (draw.conditioned() for draw in _unpacked(model, arrays))
        stack = Stack.of(conditioned, models, DRAWS)
        return ModelSpread(stack=stack, misfit=tau)

    marginals = configuration.marginals
    return ModelAnswers(
        measured=measured,
        model=conditioned,
        codes=drawn_compression_of(released.marginals, configuration).codes,
        inside=list(_sets_of_model_values(measured, model)),
        chosen=released.marginals.is_combined
        or (marginals is not None and marginals.selects(len(configuration.attributes))),
        spread=spread,
        ignored=ignored_records(released.domain, configuration),
        recorded=synthetic_only(configuration, released.domain.labels),
        follows=followed_tables(configuration, released.marginals.one_way),
    )


def followed_tables(configuration: Configuration, one_way: Sequence[Observation]) -> str:
    """Return known tables that the model follows where it may be far from what was counted, in words; empty without any."""
    contradicted = contradicted_tables(configuration, one_way)
    parts = []
    if configuration.tables_of_others:
        parts.append(f"{configuration.tables_of_others}, from another source")
    if contradicted:
        names = listed([known.crossed_names for known in contradicted])
        parts.append(f"{names}, from which what was counted differs by more than noise")
    return "; and of ".join(parts)


def _sets_of_model_values(measured: PartTables, model: Mixture) -> Iterator[frozenset[int]]:
    """Yield the measured sets whose every attribute has at least as many values as in the model."""
    for table in measured.tables:
        parts = [measured.parts[number] for number in table.parts]
        if all(part.size >= model.sizes[part.axis] for part in parts):
            yield frozenset(part.axis for part in parts)


def ignored_records(domain: Domain, configuration: Configuration) -> dict[int, float]:
    """Return, by axis, the root mean square of the records whose cells are not as declared.

    These are the axes where estimates have no code for such cells. It is the root mean square of a count with its noise: both
    are in privacy.json, the noise by the upper end.
    """
    records: dict[int, float] = {}
    cells_of_name = {cells.name: cells for cells in domain.undeclared if not cells.kept}
    for place, attribute in enumerate(configuration.attributes):
        if attribute.name in cells_of_name:
            cells = cells_of_name[attribute.name]
            sigma = (cells.high - cells.count) / Reach(level=LEVEL).of(1.0)
            records[place] = math.hypot(cells.count, sigma)
    return records


def last_chosen(released: FittedRelease) -> tuple[Clique, ...]:
    """Return the sets that rounds chose last: a round at least, and a quarter of all; none where there were no rounds."""
    rounds = released.configuration.rounds
    if rounds is None:
        return ()
    sets = [marginal.attributes for marginal in released.marginals.larger]
    number = max(rounds.batch, math.ceil(len(sets) / 4))
    return tuple(sets[-number:])


def _drawn(
    place: Path,
    released: FittedRelease,
    say: Callable[[str], None],
) -> tuple[Arrays, dict[str, dict[str, float]]]:
    """Return models drawn from noise alone, packed, and misfit: the stored ones if they are of these files, or new ones."""
    model = released.mixture
    settings = released.configuration.synthesize
    assert isinstance(settings, MixtureSynthesis)  # as `FittedRelease` has it
    digest = _digest(place, last_chosen(released))
    release = place.resolve()
    store = release.with_name(f"{release.name}-answers") / "models.npz"
    content = read_file(store)
    if content is not None:
        arrays, meta = unpack_arrays(content)
        if meta["of"] == digest:
            return arrays, meta["misfit"]
    say(
        f"drawing {DRAWS} models for what was not measured: once, then they are kept in {store.parent}"
    )
    generator = np.random.default_rng(settings.seed)  # post-processing
    estimation, _ = estimation_input(released.marginals, released.configuration)
    measurements, _ = estimation.measured()
    arrays = _room(model)
    models = draw_models(model, measurements, DRAWS, generator)
    stack = Stack.of(model, _packing(models, arrays), DRAWS)
    tau = misfit(measurements, model, stack, settings, generator, last_chosen(released))
    del stack  # of what is not rounded: the first answers are made as later ones are
    with suppress(MachineError):
        with at_place(store.parent, "created"):
            store.parent.mkdir(0o700, exist_ok=True)
        replace_file(store, pack_arrays(arrays, {"of": digest, "misfit": tau}))
    return arrays, tau


def _digest(place: Path, chosen_last: tuple[Clique, ...]) -> str:
    """Return the SHA-256 of the files and constants that draws of the model depend on.

    The settings of the fit, with their seed, are not among them: they have made `model.parquet`, and others make another one.
    """
    model = read_file(place / "model.parquet") or b""
    measurements = read_file(place / "measurements.parquet") or b""
    settings = f"{DRAWS} {PASSES} {chosen_last}".encode()
    return hashlib.sha256(model + measurements + settings).hexdigest()


def _room(model: Mixture) -> Arrays:
    """Return arrays for all drawn models, which `_packing` fills and `_unpacked` reads."""
    arrays: Arrays = {"weights": np.empty((DRAWS, model.components), np.float32)}
    for block, shares in enumerate(model.shares):  # 16 bits are enough for a spread
        arrays[_name(block)] = np.empty((DRAWS, *shares.shape), np.float16)
    return arrays


def _name(block: int) -> str:
    return f"shares-{block:05d}"


def _packing(models: Iterator[Mixture], arrays: Arrays) -> Iterator[Mixture]:
    """Yield models as they are drawn, and report which; each is put into the arrays."""
    for number in range(DRAWS):
        with progress_as(f"model {number + 1} of {DRAWS}"):
            draw = next(models)
        arrays["weights"][number] = draw.weights
        for block, shares in enumerate(draw.shares):
            arrays[_name(block)][number] = shares
        yield draw


def _unpacked(model: Mixture, arrays: Arrays) -> Iterator[Mixture]:
    """Yield the models that are in the arrays."""
    for number, weights in enumerate(arrays["weights"]):
        shares = []
        for block in range(len(model.blocks)):
            of_block = arrays[_name(block)][number].astype(np.float64)
            shares.append(normal(of_block))
        yield replace(model, weights=normal(weights.astype(np.float64)), shares=tuple(shares))
