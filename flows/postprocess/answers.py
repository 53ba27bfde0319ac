"""Opens what a release has for answers: the measurements as they were drawn, from its folder alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from marginweave.flows.run.lookup import finished_run
from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.errors import InputError
from marginweave.schemas.released.aggregates import Domain, LevelNoise
from marginweave.schemas.released.statement import PrivacyStatement
from marginweave.tasks.answers.codes import Codes
from marginweave.tasks.answers.least_squares import LeastSquares
from marginweave.tasks.answers.marginals import MarginalAnswers
from marginweave.tasks.answers.tables import axes_of, released_tables
from marginweave.tasks.answers.tuples import TupleAnswers
from marginweave.tasks.checkpoint.files import read_file
from marginweave.tasks.normalize.earlier import read_measurements
from marginweave.tasks.publish.tables import read_counts

if TYPE_CHECKING:
    from marginweave.tasks.answers.model import ModelAnswers  # numba

Answers = MarginalAnswers | TupleAnswers


def open_answers(home: Path, named: str, say: Callable[[str], None] = lambda _: None) -> Answers:
    """What answers questions to the release in `release_folder`; `say` hears of what takes long.

    Raises:
        InputError, StageError: as `release_folder` and `read_answers`.
    """
    return read_answers(release_folder(home, named), say)


def release_folder(home: Path, named: str) -> Path:
    """The folder of the release of a finished run of this name, or the folder `named` that has a release.

    Raises:
        InputError: there is neither.
    """
    folder = Path(named)
    if (folder / "privacy.json").is_file():
        return folder
    if folder.name != named or (folder.exists() and not (home / "runs" / named).exists()):
        raise InputError(f"{named} {_no_release(folder)}")
    return finished_run(home, named)[0].release


def _no_release(folder: Path) -> str:
    """Why the answers cannot be had from `folder`, and where its release is: in `release/` below it, or around it."""
    if not folder.exists():
        return "does not exist: give the folder of a release, or the name of a run; `marginweave runs` lists the runs"
    around = folder.absolute(), *folder.absolute().parents[:2]
    near = [place for up in around for place in (up, up / "release")]
    near = [place for place in near if (place / "privacy.json").is_file()]
    return "is not the folder of a release, which has a file privacy.json" + (f"; {near[0]} is one" if near else "")


def read_answers(place: Path, say: Callable[[str], None] = lambda _: None) -> Answers:
    """What answers questions to the release in the folder `place`; `say` hears of what takes long. DP: post-processing.

    Raises:
        InputError: the folder has no complete release.
        StageError: a file of an earlier release is missing or was changed.
    """
    try:
        statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
        declared = Configuration.from_canonical(statement.configuration)
        configuration = declared.with_bounds(statement.bounds, statement.bought_bins)
        domain = Domain(names=tuple(statement.domain), labels=tuple(statement.domain.values()))
        codes = Codes.of(configuration, domain)
        if configuration.marginals is None:
            noise = tuple(LevelNoise(**dict(item)) for item in statement.noise)
            aggregates, intervals = read_counts(pq.read_table(place / "aggregates.parquet"), domain, noise)
            return TupleAnswers(aggregates=aggregates, intervals=intervals, codes=codes)
        cells = pq.read_table(place / "measurements.parquet")
        drawn = read_measurements(cells, statement.marginals or (), domain, configuration)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
        raise InputError(
            f"{place} does not hold a complete release (privacy.json and aggregates.parquet or measurements.parquet)"
        ) from None
    names = configuration.attributes
    measured, earlier = released_tables(drawn, declared, configuration, lambda name: read_file(place / name))

    @cache
    def model() -> ModelAnswers | None:
        from marginweave.flows.postprocess.model_answers import open_model  # numba

        return open_model(place, measured, say)

    return MarginalAnswers(
        squares=LeastSquares(measured),
        codes=codes,
        axes=axes_of(configuration, codes.sizes),
        sets=[
            tuple(names[a].name for a in m.attributes) for m in (*drawn.larger, *(one.measurement for one in earlier))
        ],
        sampled=not_a_sample(configuration),
        model=model,
    )


def not_a_sample(configuration: Configuration) -> str | None:
    """Why the table is no simple sample of a population, as far as the configuration tells."""
    if configuration.resize is not None:
        return "the rows were resampled (resize)"
    if configuration.stability.records > 1:
        return "a subject has several records, which are no independent draws"
    return None
