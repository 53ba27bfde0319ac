"""Opens a release to calibrate its fitted model to its measured tables: for regressions, and for sets of records."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from marginweave.answers.answer import About, Counted
from marginweave.answers.codes import ValueRange
from marginweave.answers.least_squares import LeastSquares, NotMeasuredError
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import FEWEST, Part
from marginweave.base.arrays import Floats, Integers, Records
from marginweave.base.errors import InputError
from marginweave.configuration.release import Configuration
from marginweave.configuration.values import listed
from marginweave.domain.masks import Clique
from marginweave.domain.zeros import synthetic_only
from marginweave.estimate.marginals import compression_of
from marginweave.estimate.mixture.model import Mixture
from marginweave.inference.answers import read_answers
from marginweave.inference.model_answers import ignored_records
from marginweave.publish.reader import FittedRelease
from marginweave.records.mixture import sample_mixture
from marginweave.texts.sentences import Sentence, regression_sentence

UNCLAIMED = "no coverage"
"""The flag of a coefficient whose interval is not claimed to cover a population."""
_SHOWN = 3
RECORDS = 20_000
"""Number of records of the model that are weighted; with 4,000 the intervals of the benchmark were the same within 2 %."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Modelled:
    """Measured tables and the fitted model of a release.

    `merged` has, for each attribute, the model's code of each of its codes. A subject has up to `rows_a_subject` rows. `drawn`
    are the tables as they were drawn: axes of which `ignored` many records have a cell that is not as declared
    (`ignored_records`) have one more code there, the last. For the `recorded` sets of attributes the model lacks cells that
    were counted (`synthetic_only`).
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
        """Return records of the model, in its codes, shape (records, attributes)."""
        return sample_mixture(self.model.conditioned(), RECORDS, generator)  # post-processing

    @property
    def columns(self) -> dict[str, int]:
        """Columns that were counted by themselves, each with the place of its attribute."""
        attributes = self.answers.codes.configuration.attributes
        places: dict[str, int] = {}
        for place, attribute in enumerate(attributes):
            if not (attribute.is_set or attribute.of_set):
                places[attribute.column] = place
        return places

    def places(self, columns: Sequence[str]) -> list[int]:
        """Return the places of the attributes of columns that were counted by themselves.

        Raises:
            InputError: there is no such column, one is there twice, or the model lacks what was counted of them.
        """
        place_of = self.columns
        lacking = [column for column in columns if column not in list(place_of)]
        if lacking:
            raise InputError(
                f"{lacking[0]!r} is no column that was counted by itself; there are {listed([*place_of])}"
            )
        places = [place_of[column] for column in columns]
        if len(set(places)) < len(places):
            raise InputError("a column is named twice; name each once")
        for recorded_set in self.recorded:
            if set(recorded_set) <= set(places):
                raise InputError(self._recorded_words(recorded_set))
        return places

    def _recorded_words(self, recorded_set: Clique) -> str:
        names = [
            self.answers.codes.configuration.attributes[place].column for place in recorded_set
        ]
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
        """Return the part that divides the codes of an attribute as the model does."""
        return Part(axis=place, blocks=self.merged[place])

    def counts(self, place: int) -> Floats:
        """Return the measured records of each code of an attribute, at least `FEWEST` of each."""
        return np.maximum(self.squares.counts(place), FEWEST)

    def merged_share(self, place: int, scores: Floats) -> float:
        """Return the share of the variance of scores of codes, shape (scores, codes), between values that the model merges."""
        merged = self.merged[place]
        counts = self.counts(place)
        sums = np.stack([np.bincount(merged, counts * row) for row in scores])
        means = sums / np.bincount(merged, counts)
        center = (scores @ counts / counts.sum())[:, None]
        within = (counts * (scores - means[:, merged]) ** 2).sum()
        around = (counts * (scores - center) ** 2).sum()
        return float(within / around) if around else 0.0

    def gap_share(self, place: int) -> float:
        """Return the measured share of records without a value of an attribute."""
        counts = self.counts(place)
        return float(counts[len(self.answers.codes.domain.labels[place]) :].sum() / counts.sum())

    def labels(self, place: int) -> list[str]:
        """Return the text of each code of an attribute."""
        return self.answers.codes.texts(place)

    def numbers(self, column: str) -> ValueRange | None:
        """Return the ends of each bin of a column, or the number that a category's text is; None for texts."""
        try:
            return self.answers.codes.numbers(column)
        except InputError:
            return None

    def not_together(self, columns: Sequence[str]) -> InputError:
        """Return the error for columns of which two are in no measured set, or in sets that divide them otherwise."""
        place_of = dict(zip(columns, self.places(columns), strict=True))
        pairs: list[str] = []
        for first, second in itertools.combinations(columns, 2):
            try:
                self.squares.finest_parts({place_of[first], place_of[second]})
            except NotMeasuredError:
                pairs.append(f"{first!r} and {second!r}")
        if not pairs:
            return InputError(
                f"some of {listed([*columns])} were measured together over other values than alone; leave one out"
            )

        def rank(names: Sequence[str]) -> tuple[int, int]:
            """Return a rank that is least for sets with most of the columns, and then for small sets."""
            return -len(set(columns) & set(names)), len(names)

        nearest = sorted(self.answers.measured_together, key=rank)[:_SHOWN]
        sets = "; ".join(", ".join(names) for names in nearest)
        words = ", ".join(pairs[:_SHOWN])
        hidden = len(pairs) - _SHOWN
        if hidden > 0:
            words += f", and {hidden} pairs more"
        return InputError(
            f"in no measured set together: {words}; leave columns out. Nearest sets: {sets}"
        )


def chosen_pairs(answers: MarginalAnswers, columns: Sequence[str], places: Sequence[int]) -> str:
    """Return the pairs of columns that only tables have together that the rows have chosen, in words; empty without any."""
    measured = answers.squares.measured
    placed = list(zip(columns, places, strict=True))
    pairs: list[str] = []
    for (first, first_place), (second, second_place) in itertools.combinations(placed, 2):
        if measured.is_chosen((first_place, second_place)):
            pairs.append(f"{first!r} and {second!r}")
    hidden = len(pairs) - _SHOWN
    words = ", ".join(pairs[:_SHOWN])
    return f"{words}, and {hidden} pairs more" if hidden > 0 else words


def no_coverage(pairs: str, prefix: str = "") -> Sentence:
    """Return the sentence for an interval about the population where the rows have chosen pairs of columns."""
    table = setting("of", "table", prefix)
    return regression_sentence("interval.unclaimed", pairs=pairs, table=table)


def subject_key(about: About, rows: int) -> str:
    """Return the key of the words for what an answer is about, where a person has at most so many `rows`."""
    keys = {
        Counted.TABLE: "table",
        Counted.RESIZED: "resized",
        Counted.PART: "part",
        Counted.JOINED_POPULATION: "joined-population",
        Counted.ONE_ROW_POPULATION: "one-row-population",
    }
    of_population = "population-of-rows" if rows == 1 else "population-of-persons"
    return keys.get(about.kind, of_population)


def setting(name: str, value: str, prefix: str) -> str:
    """Return a setting as a user writes it: an option where it has a prefix, else an argument in Python."""
    return f"{prefix}{name} {value}" if prefix else f'{name}="{value}"'


def check_sample(
    configuration: Configuration, columns: Collection[str], of: str, prefix: str
) -> None:
    """Refuse a question about the population where what was counted of these columns is no simple sample of one."""
    reason = configuration.not_a_sample(columns) if of == "population" else None
    if reason:
        population = setting("of", "population", prefix)
        table = setting("of", "table", prefix)
        raise InputError(f"{population} is not possible: {reason}; ask {table}")


def open_modelled(place: Path, of: str, purpose: str, prefix: str = "") -> Modelled:
    """Open the release in the folder `place`; options of a command have a prefix. DP: post-processing.

    `purpose` ends the sentence "it has no model.parquet, which", such as "a regression needs".

    Raises:
        InputError: the folder has no complete release or no model, or its rows are no sample of a population.
    """
    if of not in ("population", "table"):
        raise InputError(f"{prefix}of ({of}) must be population or table")
    answers = read_answers(place, as_drawn=False)
    released = FittedRelease.read(place)
    if released is None or not isinstance(answers, MarginalAnswers):
        raise InputError(
            f"{place} has no model.parquet, which {purpose}: release marginals with method mixture"
        )
    configuration = released.configuration
    check_sample(configuration, (), of, prefix)
    ignored = ignored_records(released.domain, configuration)
    drawn = read_answers(place) if ignored else answers
    assert isinstance(drawn, MarginalAnswers)  # as above
    assert isinstance(answers.squares, LeastSquares)  # as `read_answers` makes them
    assert isinstance(drawn.squares, LeastSquares)
    _, compression = compression_of(released.marginals, configuration)
    return Modelled(
        answers=answers,
        squares=answers.squares,
        drawn=drawn.squares,
        model=released.mixture,
        merged=compression.codes,
        rows_a_subject=configuration.stability.records,
        ignored=ignored,
        recorded=synthetic_only(answers.codes.configuration, answers.codes.domain.labels),
        seed=configuration.synthesize.seed,
    )
