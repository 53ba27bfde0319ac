"""Opens a release whose fitted model is to be brought to its measured tables: for regressions, and for sets of records."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marginweave.answers.least_squares import LeastSquares, NotMeasuredError
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import FEWEST, Part
from marginweave.base.arrays import Floats, Integers, Records
from marginweave.base.errors import InputError
from marginweave.configuration.values import listed
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import recorded_alone
from marginweave.estimate.mixture.model import Mixture
from marginweave.inference.answers import read_answers
from marginweave.inference.model_answers import ignored_records
from marginweave.publish.reader import PublishedRelease
from marginweave.records.mixture import sample_mixture
from marginweave.records.release import estimation_input

_SHOWN = 3
RECORDS = 20_000
"""Records of the model that are weighted; with 4,000 the intervals of the benchmark were the same within 2 %."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Modelled:
    """Measured tables and the fitted model of a release; `merged` has the model's code of each code of an attribute.

    A subject has up to `rows_a_subject` rows. `drawn` are the tables as they were drawn: axes of which so many records as
    `ignored` says have a cell that is not as declared (`ignored_records`) have one code more there, the last. Of
    `recorded` sets of attributes the model lacks cells that were counted (`recorded_alone`).
    """

    answers: MarginalAnswers
    squares: LeastSquares
    drawn: LeastSquares
    model: Mixture
    merged: Sequence[Integers]
    rows_a_subject: int
    ignored: Mapping[int, float]
    recorded: Collection[Clique]
    seed: int

    def records(self, generator: np.random.Generator) -> Records:
        """Some of the model, in its codes, shape (records, attributes)."""
        return sample_mixture(self.model.conditioned(), RECORDS, generator)  # post-processing

    @property
    def columns(self) -> dict[str, int]:
        """The columns that were counted by themselves, each with the place of its attribute."""
        attributes = self.answers.codes.configuration.attributes
        return {a.column: place for place, a in enumerate(attributes) if not (a.is_set or a.of_set)}

    def places(self, columns: Sequence[str]) -> list[int]:
        """The attributes of columns that were counted by themselves.

        Raises:
            InputError: there is no such column, one is there twice, or the model lacks what was counted of them.
        """
        known = self.columns
        if lacking := [column for column in columns if column not in [*known]]:
            raise InputError(f"{lacking[0]!r} is no column that was counted by itself; there are {listed([*known])}")
        found = [known[column] for column in columns]
        if len(set(found)) < len(found):
            raise InputError("a column is named twice; name each once")
        for own in self.recorded:
            if set(own) <= set(found):
                raise InputError(self._recorded_words(own))
        return found

    def _recorded_words(self, own: Clique) -> str:
        names = [self.answers.codes.configuration.attributes[place].column for place in own]
        if len(names) == 1:
            return (
                f"{names[0]!r} was counted with values that were not released, and the model has none of them (impute); leave "
                "it out, or ask query, which knows them"
            )
        return (
            f"a rule on {listed(names)} changed no row, and the model keeps it; leave one of them out, or ask query, which has "
            "what was counted"
        )

    def part(self, place: int) -> Part:
        """How the model divides the codes of an attribute."""
        return Part(axis=place, blocks=self.merged[place])

    def counts(self, place: int) -> Floats:
        """Measured records of each code of an attribute, at least few of each."""
        return np.maximum(self.squares.counts(place), FEWEST)

    def labels(self, place: int) -> list[str]:
        """The text of each code of an attribute."""
        return self.answers.codes.texts(place)

    def numbers(self, column: str) -> Floats | None:
        """The middle of each bin of a column, or the number that a category's text is, NaN without; None of texts.

        A bin that is open has no middle.
        """
        try:
            return self.answers.codes.numbers(column).middle
        except InputError:
            return None

    def not_together(self, columns: Sequence[str]) -> InputError:
        """What to say where two of these columns are in no measured set, or are in sets that divide them otherwise."""
        places, apart = dict(zip(columns, self.places(columns), strict=True)), list[str]()
        for one, other in itertools.combinations(columns, 2):
            try:
                self.squares.finest_parts({places[one], places[other]})
            except NotMeasuredError:
                apart.append(f"{one!r} and {other!r}")
        if not apart:
            return InputError(
                f"some of {listed([*columns])} were measured together over other values than alone; leave one out"
            )
        near = sorted(self.answers.sets, key=lambda own: (-len({*columns} & {*own}), len(own)))[:_SHOWN]
        sets, more = "; ".join(", ".join(own) for own in near), len(apart) - _SHOWN
        said = ", ".join(apart[:_SHOWN]) + (f", and {more} pairs more" if more > 0 else "")
        return InputError(f"in no measured set together: {said}; leave columns out. Nearest sets: {sets}")


def setting(name: str, value: str, prefix: str) -> str:
    """How a user writes this: an option where it has a prefix, else an argument in Python."""
    return f"{prefix}{name} {value}" if prefix else f'{name}="{value}"'


def open_modelled(place: Path, of: str, what: str, prefix: str = "") -> Modelled:
    """The release in the folder `place`, for `what` is asked of it; options of a command have a prefix. DP: post-processing.

    Raises:
        InputError: the folder has no complete release or no model, or its rows are no sample of a population.
    """
    if of not in ("population", "table"):
        raise InputError(f"{prefix}of ({of}) must be population or table")
    answers, published = read_answers(place, as_drawn=False), PublishedRelease.read(place)
    if published.mixture is None or not isinstance(answers, MarginalAnswers):
        raise InputError(f"{place} has no model.parquet, which {what}: release marginals with method mixture")
    configuration = published.configuration
    if of == "population" and configuration.resize is not None:
        asked, instead = (setting("of", one, prefix) for one in ("population", "table"))
        raise InputError(f"{asked} is not possible: the rows were resampled (resize); ask {instead}")
    ignored = ignored_records(published)
    drawn = read_answers(place) if ignored else answers
    assert isinstance(drawn, MarginalAnswers)  # as above
    assert isinstance(answers.squares, LeastSquares)  # as `read_answers` makes them
    assert isinstance(drawn.squares, LeastSquares)
    _, compression = estimation_input(published.counts, configuration)
    assert compression is not None  # marginals have one
    return Modelled(
        answers=answers,
        squares=answers.squares,
        drawn=drawn.squares,
        model=published.mixture,
        merged=compression.codes,
        rows_a_subject=configuration.stability.records,
        ignored=ignored,
        recorded=recorded_alone(answers.codes.configuration, answers.codes.domain.labels),
        seed=configuration.synthesize.seed,
    )
