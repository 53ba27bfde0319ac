"""Several synthetic tables of a release, each of a model drawn around the fitted one, for `marginweave.inference`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from marginweave.schemas.configuration.synthesis import MAX_RECORDS, AnySynthesis, MixtureSynthesis
from marginweave.schemas.errors import InputError
from marginweave.tasks.estimate.mixture.draws import draw_models
from marginweave.tasks.publish.reader import PublishedRelease
from marginweave.tasks.synthesize.release import estimation_input, fit_known

RECORDS = 5
"""Records of a set for each of the table: the variance between sets is then about six times that inside one."""


def synthetic_sets(
    published: PublishedRelease, settings: AnySynthesis, number: int, *, population: bool
) -> Iterator[Iterator[pa.Table]]:
    """So many sets of records, each in blocks. DP: post-processing.

    Their models differ as those of further releases of the same table would, or of other samples of the `population`.

    Raises:
        InputError: the records are not made by a mixture, or as `PublishedRelease.synthesize`.
    """
    if not isinstance(settings, MixtureSynthesis):
        raise InputError(
            f"--sets needs a model, and the records of this release are made by {settings.method}: set synthesize.method to "
            "mixture or auto in its configuration, and release again"
        )
    known, _ = estimation_input(published.counts, published.configuration)
    if settings.records == "count":
        settings = settings.model_copy(update={"records": min(RECORDS * round(known.total), MAX_RECORDS)})
    seeds = np.random.SeedSequence(settings.seed)  # post-processing
    models = draw_models(
        published.mixture or fit_known(known, settings),
        known.measurements,
        number,
        np.random.default_rng(seeds),  # post-processing
        round(max(known.total, 1.0)) if population else None,
    )
    for seed, model in zip(seeds.generate_state(number, np.uint64).tolist(), models, strict=True):
        yield published.synthesize(settings.model_copy(update={"seed": seed}), model, independent=True)
