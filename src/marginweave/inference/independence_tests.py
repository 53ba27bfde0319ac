"""A test whether two columns of a release depend on each other, which knows the noise of their counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from marginweave.answers.answer import About
from marginweave.answers.least_squares import LeastSquares, NotMeasuredError
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import Part
from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import forbidden_codes
from marginweave.configuration.values import listed
from marginweave.evaluate.association_noise import Dependence, dependence
from marginweave.inference.answers import Answers
from marginweave.inference.modelled import check_sample, setting, subject_key
from marginweave.mechanisms.catalogue import count_noise
from marginweave.texts.sentences import Sentence, independence_sentence

_NEAREST = 3  # measured sets that a refusal names


@dataclass(frozen=True, kw_only=True)
class Independence:
    """A test of independence of two columns.

    `p` is the probability that independent columns have this distance, or more, by noise and (for a population) by sampling.
    `chi_square` has `degrees_of_freedom` where they are independent. `says` is this in sentences.
    """

    columns: tuple[str, str]
    of: str
    chi_square: float
    degrees_of_freedom: int
    p: float
    says: str


def answer_independence(
    answers: Answers, columns: Sequence[str], of: str, prefix: str = ""
) -> Independence:
    """Return the test of two columns; options of a command have a prefix. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.independence`.
    """
    squares = _squares_of(answers, columns, of, prefix)
    places = _places(answers, columns)
    if of == "population" and squares.measured.is_chosen(places):
        raise _chosen_error(columns, prefix)
    try:
        parts, counts, variance = _pair_counts(answers, squares, places)
    except NotMeasuredError:
        raise InputError(_not_together(answers, columns)) from None
    rows = answers.codes.configuration.stability.records
    first, second = np.indices(counts.shape).reshape(2, -1)
    kurtoses = [count_noise(name).kurtosis for name in squares.measured.tails]
    sampling = rows if of == "population" else 0.0
    kurtosis = max([3.0, *kurtoses])
    sigma = math.sqrt(variance)
    test = dependence(
        first, second, counts.ravel(), sigma, signed=True, sampling=sampling, kurtosis=kurtosis
    )
    if not test.freedom:
        raise InputError(
            f"{listed([*columns])} were measured with less than two values each, or with no record"
        )
    about = answers.codes.about("population" if of == "population" else "table", places)
    sentences = [
        _result(test, about, rows),
        *_notes(answers, places, parts),
        independence_sentence("note.naive"),
    ]
    return Independence(
        columns=(columns[0], columns[1]),
        of=str(about),
        chi_square=test.distance,
        degrees_of_freedom=test.freedom,
        p=test.p,
        says=" ".join(map(str, sentences)),
    )


def subject_of_test(answers: Answers, columns: Sequence[str]) -> Literal["population", "table"]:
    """Return what a test of two columns may be about: the population, or the table where no more can be said.

    Raises:
        InputError: as `answer_independence`.
    """
    squares = _squares_of(answers, columns, "table", "")
    is_sample = answers.codes.not_a_sample(_places(answers, columns)) is None
    is_chosen = squares.measured.is_chosen(_places(answers, columns))
    return "population" if is_sample and not is_chosen else "table"


def _not_together(answers: Answers, columns: Sequence[str]) -> str:
    """Return that two columns were not measured together, and the smallest sets that have one of them."""
    measured = answers.measured_together if isinstance(answers, MarginalAnswers) else ()
    of_one = [names for names in measured if not set(columns).isdisjoint(names)]
    nearest = sorted(of_one, key=len)[:_NEAREST]
    shown = "; ".join(", ".join(names) for names in nearest) or "single columns"
    return f"{listed([*columns])} are in no measured set together; nearest: {shown}"


def _chosen_error(columns: Sequence[str], prefix: str) -> InputError:
    """Return the error for a test about the population of columns that the rows have chosen."""
    population = setting("of", "population", prefix)
    table = setting("of", "table", prefix)
    return InputError(
        f"{population} is not possible: {listed([*columns])} were measured together because they depend in these rows, as "
        f"some columns do by chance, so that p would be too small; ask {table}, or name them in aggregate.cliques before "
        "anybody looks"
    )


def _squares_of(answers: Answers, columns: Sequence[str], of: str, prefix: str) -> LeastSquares:
    """Return the measured counts that a test may be of.

    Raises:
        InputError: the release has none, or what was counted of these columns is no sample of a population.
    """
    if of not in ("population", "table"):
        raise InputError(f"{prefix}of ({of}) must be population or table")
    if not isinstance(answers, MarginalAnswers) or not isinstance(answers.squares, LeastSquares):
        raise InputError(
            "combinations were published where they reached a threshold, which no test of independence takes: release marginals"
        )
    check_sample(answers.codes.configuration, _columns(answers, columns), of, prefix)
    return answers.squares


def _notes(answers: Answers, places: Sequence[int], parts: Sequence[Part]) -> Iterator[Sentence]:
    """Yield the sentences about what the categories of this test are, where they are not just the columns' values."""
    codes = answers.codes
    if codes.configuration.privacy.joins:
        yield independence_sentence("note.joined")
    attributes = [codes.configuration.attributes[place] for place in places]
    undeclared = [
        attribute.name
        for attribute in attributes
        if attribute.undeclared and not codes.ignores(attribute)
    ]
    if undeclared:
        yield independence_sentence("note.undeclared", columns=listed(undeclared))
    if any(part.size < len(part.blocks) for part in parts):
        yield independence_sentence("note.merged")
    if _are_excluded(answers, places):
        yield independence_sentence("note.ruled")


def _pair_counts(
    answers: Answers, squares: LeastSquares, places: Sequence[int]
) -> tuple[list[Part], Floats, float]:
    """Return the parts of a pair of columns, their counts without codes that hold noise alone, and the variance of a count."""
    parts, counts, variance = squares.pooled(places)
    for axis, place in enumerate(places):
        if answers.codes.ignores(answers.codes.configuration.attributes[place]):
            counts = np.delete(counts, parts[axis].blocks[-1], axis)
    return parts, counts, variance


def _places(answers: Answers, columns: Sequence[str]) -> list[int]:
    """Return the attributes of two columns that were counted by themselves. Raises InputError."""
    attributes = answers.codes.configuration.attributes
    place_of = {attribute.name: place for place, attribute in enumerate(attributes)}
    lacking = [column for column in columns if column not in place_of]
    if lacking:
        raise InputError(
            f"{lacking[0]!r} was not counted by itself; there are {listed([*place_of])}"
        )
    if len(columns) != 2 or columns[0] == columns[1]:
        raise InputError("it takes two columns")
    return [place_of[column] for column in columns]


def _columns(answers: Answers, names: Sequence[str]) -> list[str]:
    """Return the columns of two attributes, of which each may be a value of a set. Raises InputError, as `_places`."""
    attributes = answers.codes.configuration.attributes
    return [attributes[place].column for place in _places(answers, names)]


def _are_excluded(answers: Answers, places: Sequence[int]) -> bool:
    """Return whether rules exclude some combinations of the values of both columns in what was counted."""
    codes = answers.codes
    for box in forbidden_codes(codes.configuration.enforced_rules, codes.domain.labels):
        if {place for place, _ in box} == set(places):
            return True
    return False


def _result(test: Dependence, about: About, rows: int) -> Sentence:
    """Return the sentence on a test; `about` is what it is of, `rows` the most rows of a person."""
    return independence_sentence(
        f"result.{subject_key(about, rows)}",
        p=independence_sentence("p.value" if test.p >= 1e-4 else "p.small", p=test.p),
        distance=test.distance,
        freedom=test.freedom,
        about=str(about),
        rows=rows,
    )
