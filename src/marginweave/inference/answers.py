"""Opens a release for answers, from its folder alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from marginweave.answers.codes import Codes
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.rules import AnswerRules
from marginweave.answers.tables import released_tables
from marginweave.answers.tuples import TupleAnswers
from marginweave.base.durable import read_file
from marginweave.base.errors import InputError
from marginweave.base.places import refuse_long
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import counted_masks, never_counted, uncounted_codes
from marginweave.estimate.earlier import CELL_COLUMNS, read_measurements
from marginweave.observations.combinations import LevelNoise
from marginweave.observations.tables import Observation
from marginweave.publish.tables import read_columns, read_counts, read_record_count
from marginweave.released.statement import PrivacyStatement

if TYPE_CHECKING:
    from marginweave.answers.model import ModelAnswers  # numba

Answers = MarginalAnswers | TupleAnswers


def open_answers(home: Path, named: str, say: Callable[[str], None] = lambda _: None) -> Answers:
    """Return the object that answers questions about the release in `release_folder`; `say` gets notes for the user.

    Raises:
        InputError, StageError: as `release_folder` and `read_answers`.
    """
    return read_answers(find_release(home, named), say)


def find_release(home: Path, named: str) -> Path:
    """Return the folder of a release: `named` itself, or that of the run of this name.

    Raises:
        InputError, StageError: as `release_folder`.
    """
    refuse_long("the release", named)
    if (Path(named) / "privacy.json").is_file():
        return Path(named)
    from marginweave.runs.lookup import release_folder  # the ledger, which a folder does without

    return release_folder(home, named)


def read_answers(
    place: Path, say: Callable[[str], None] = lambda _: None, *, as_drawn: bool = True
) -> Answers:
    """Return the object that answers questions about the release in the folder `place`. DP: post-processing.

    `say` gets notes for the user, such as on long computations. With `as_drawn` tables are as they were drawn, so that sums
    over a column have all records. Else they lack the cells that are not as declared and that noise alone explains, as the
    model does.

    Raises:
        InputError: the folder has no complete release.
        StageError: a file of an earlier release is missing or was changed.
    """
    try:
        statement = PrivacyStatement.from_json((place / "privacy.json").read_bytes())
        declared = Configuration.from_canonical(statement.configuration)
        configuration = declared.with_bounds(statement.bounds)
        if statement.uncounted is not None:
            say(statement.uncounted.words)
        domain = statement.released_domain
        # Tables as drawn have a code for cells that are not as declared wherever there may be some; the model's tables, and
        # k-tuples, only where estimates have such cells (`UndeclaredCells.kept`).
        are_as_drawn = declared.marginals is not None and as_drawn
        undeclared = declared.undeclared if are_as_drawn else domain.with_undeclared
        counted = configuration.with_undeclared(undeclared)
        codes = Codes.of(counted, domain)
        if configuration.marginals is None:
            return _tuple_answers(read_columns(place / "aggregates.parquet"), statement, codes)
        cells = read_columns(place / "measurements.parquet", CELL_COLUMNS)
        drawn = read_measurements(cells, statement.marginals or (), domain, configuration)
        shares = _undeclared_shares(place, domain)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowInvalid):
        raise InputError(
            f"{place} does not hold a complete release (privacy.json and aggregates.parquet or measurements.parquet)"
        ) from None
    measured, earlier = released_tables(
        drawn, declared, configuration, lambda name: read_file(place / name), as_drawn=as_drawn
    )

    @cache
    def model() -> ModelAnswers | None:
        from marginweave.inference.model_answers import open_model  # numba

        return open_model(place, measured, say)

    return MarginalAnswers(
        squares=LeastSquares(measured),
        codes=codes,
        measured_together=_names_of_sets([*drawn.larger, *earlier], configuration),
        sampled=not_a_sample(configuration),
        model=model,
        rules=AnswerRules(rules=counted_masks(counted, domain.labels), sizes=codes.sizes),
        undeclared=shares,
        lowered=codes.lowered,
    )


def _undeclared_shares(place: Path, domain: Domain) -> dict[str, str]:
    """Return by attribute, in words, the share of records with a cell that is not as declared, where there are some."""
    undeclared = [cells for cells in domain.undeclared if cells.found]
    if not undeclared:
        return {}
    records, deviation = read_record_count(read_columns(place / "aggregates.parquet"))
    return {cells.name: str(cells.sentence(records, deviation, cells.name)) for cells in undeclared}


def _tuple_answers(counts: pa.Table, statement: PrivacyStatement, codes: Codes) -> TupleAnswers:
    noise = tuple(LevelNoise(**dict(item)) for item in statement.noise)
    aggregates, intervals = read_counts(counts, codes.domain, noise)
    left_out = uncounted_codes(codes.configuration, codes.domain.labels)
    never = never_counted(codes.configuration, codes.domain.labels)
    biases = {bias.length: bias.words for bias in statement.confidence.bounding if bias.records}
    return TupleAnswers(
        aggregates=aggregates,
        intervals=intervals,
        codes=codes,
        excluded=never,
        left_out=left_out,
        cut=biases,
    )


def _names_of_sets(
    measured: Iterable[Observation], configuration: Configuration
) -> list[tuple[str, ...]]:
    """Return the names of the attributes of each measured set."""
    names = [attribute.name for attribute in configuration.attributes]
    return [tuple(map(names.__getitem__, table.attributes)) for table in measured]


def not_a_sample(configuration: Configuration) -> str | None:
    """Why the table is no simple sample of a population, as far as the configuration tells."""
    if configuration.stability.records > 1:
        return "a subject has several records, which are no independent draws"
    return None
