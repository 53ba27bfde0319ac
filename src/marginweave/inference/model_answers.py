"""Opens the fitted model of a release for answers outside measured sets, and keeps beside the release what that takes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
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
from marginweave.base.progress import told_as
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import recorded_alone
from marginweave.estimate.intervals import LEVEL
from marginweave.estimate.marginals import drawn_compression_of
from marginweave.estimate.mixture.draws import PASSES, draw_models
from marginweave.estimate.mixture.fit import normal
from marginweave.estimate.mixture.model import Mixture
from marginweave.publish.reader import PublishedRelease
from marginweave.records.release import EstimationInput, estimation_input


def open_model(place: Path, measured: PartTables, say: Callable[[str], None]) -> ModelAnswers | None:
    """What answers from the model of the release in the folder `place`; None where it has none. DP: post-processing.

    The first time that their spread is asked for, models are drawn, and kept in a folder beside the release, where that can
    be written.

    Raises:
        InputError: the release is not complete.
    """
    published = PublishedRelease.read(place)
    settings, model = published.configuration.synthesize, published.mixture
    if model is None or not isinstance(settings, MixtureSynthesis):
        return None
    assert published.marginals is not None
    known, _ = estimation_input(published.counts, published.configuration)
    sections = published.configuration.marginals
    chosen = sections is not None and sections.selects(len(published.configuration.attributes))
    counted = published.configuration.with_undeclared(published.aggregates.domain.with_undeclared)
    sets = [[measured.parts[number] for number in table.parts] for table in measured.tables]

    @cache
    def spread() -> ModelSpread:
        drawn, tau = _drawn(place, published, known, settings, say)
        return ModelSpread(stack=Stack.of(model.conditioned(), [one.conditioned() for one in drawn]), misfit=tau)

    return ModelAnswers(
        measured=measured,
        model=model.conditioned(),
        codes=drawn_compression_of(published.marginals, published.configuration).codes,
        inside=[frozenset(p.axis for p in own) for own in sets if all(p.size >= model.sizes[p.axis] for p in own)],
        chosen=chosen,
        spread=spread,
        ignored=ignored_records(published),
        recorded=recorded_alone(counted, published.aggregates.domain.labels),
    )


def ignored_records(published: PublishedRelease) -> dict[int, float]:
    """By axis the root mean square of the records whose cells are not as declared, where estimates have no code for them.

    That of a count with its noise: both are told in privacy.json, the noise by the upper end.
    """
    found = dict[int, float]()
    cells = {one.name: one for one in published.aggregates.domain.undeclared if not one.kept}
    for place, attribute in enumerate(published.configuration.attributes):
        if attribute.name in cells:
            own = cells[attribute.name]
            found[place] = math.hypot(own.count, (own.high - own.count) / Reach(level=LEVEL).of(1.0))
    return found


def last_chosen(published: PublishedRelease) -> tuple[Clique, ...]:
    """The sets that rounds chose last: a round at least, and a quarter of all; none where there were no rounds."""
    rounds = published.configuration.rounds
    if rounds is None or published.marginals is None:
        return ()
    sets = [m.attributes for m in published.marginals.larger]
    return tuple(sets[-max(rounds.batch, math.ceil(len(sets) / 4)) :])


def _drawn(
    place: Path,
    published: PublishedRelease,
    known: EstimationInput,
    settings: MixtureSynthesis,
    say: Callable[[str], None],
) -> tuple[list[Mixture], dict[str, dict[str, float]]]:
    """Models drawn from noise alone, and misfit: those that are kept, if they are of these files, or new ones."""
    model = published.mixture
    assert model is not None
    contents = [read_file(place / name) or b"" for name in ("model.parquet", "measurements.parquet")]
    of = hashlib.sha256(b"".join([*contents, f"{DRAWS} {PASSES} {last_chosen(published)}".encode()])).hexdigest()
    kept = place.resolve().with_name(f"{place.resolve().name}-answers") / "models.npz"
    content = read_file(kept)
    if content is not None:
        arrays, meta = unpack_arrays(content)
        if meta["of"] == of:
            return list(_unpacked(model, arrays)), meta["misfit"]
    say(f"drawing {DRAWS} models for what was not measured: once, then they are kept in {kept.parent}")
    generator = np.random.default_rng(settings.seed)  # post-processing
    measurements, _ = known.measured()
    models = draw_models(model, measurements, DRAWS, generator)
    drawn = list[Mixture]()
    for number in range(1, DRAWS + 1):
        with told_as(f"model {number} of {DRAWS}"):
            drawn.append(next(models))
    tau = misfit(measurements, model, Stack.of(model, drawn), settings, generator, last_chosen(published))
    found: dict[str, np.ndarray] = {"weights": np.stack([one.weights for one in drawn]).astype(np.float32)}
    for b in range(len(model.blocks)):  # 16 bits are enough for a spread
        found[f"shares-{b:05d}"] = np.stack([one.shares[b] for one in drawn]).astype(np.float16)
    with suppress(MachineError):
        with at_place(kept.parent, "created"):
            kept.parent.mkdir(0o700, exist_ok=True)
        replace_file(kept, pack_arrays(found, {"of": of, "misfit": tau}))
    return list(_unpacked(model, found)), tau


def _unpacked(model: Mixture, arrays: dict[str, np.ndarray]) -> Iterator[Mixture]:
    for i, weights in enumerate(arrays["weights"]):
        shares = (arrays[f"shares-{b:05d}"][i].astype(np.float64) for b in range(len(model.blocks)))
        yield replace(model, weights=normal(weights.astype(np.float64)), shares=tuple(map(normal, shares)))
