"""Whether two columns of a release depend on each other, by a test that knows the noise of their counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marginweave.answers.least_squares import LeastSquares, NotMeasuredError
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import Part
from marginweave.base.arrays import Floats
from marginweave.base.errors import InputError
from marginweave.configuration.attributes import forbidden_codes
from marginweave.configuration.values import listed
from marginweave.domain.zeros import kept_rules
from marginweave.evaluate.association_noise import Dependence, dependence
from marginweave.inference.answers import Answers
from marginweave.inference.modelled import setting
from marginweave.mechanisms.catalogue import count_noise

NAIVE = (
    "A usual chi-square test of synthetic records or of these counts takes their noise for association: its p is "
    "too small, often by many powers of ten."
)


@dataclass(frozen=True, kw_only=True)
class Independence:
    """A test of independence of two columns.

    `p` is how often independent columns are as far apart as these, or farther, by noise and (of a population) by sampling.
    `chi_square` has `degrees_of_freedom` where they are independent. `says` is this in sentences.
    """

    columns: tuple[str, str]
    of: str
    chi_square: float
    degrees_of_freedom: int
    p: float
    says: str


def answer_independence(answers: Answers, columns: Sequence[str], of: str, prefix: str = "") -> Independence:
    """The test of two columns; options of a command have a prefix. DP: post-processing.

    Raises:
        InputError: as `marginweave.inference.independence`.
    """
    if of not in ("population", "table"):
        raise InputError(f"{prefix}of ({of}) must be population or table")
    if not isinstance(answers, MarginalAnswers) or not isinstance(answers.squares, LeastSquares):
        raise InputError(
            "combinations were published where they reached a threshold, which no test of independence takes: release marginals"
        )
    configuration = answers.codes.configuration
    if of == "population" and configuration.resize is not None:
        asked, instead = (setting("of", one, prefix) for one in ("population", "table"))
        raise InputError(f"{asked} is not possible: the rows were resampled (resize); ask {instead}")
    places = _places(answers, columns)
    try:
        parts, counts, variance = _counted_together(answers, answers.squares, places)
    except NotMeasuredError:
        raise InputError(f"{listed([*columns])} are in no measured set together") from None
    rows = configuration.stability.records
    first, second = np.indices(counts.shape).reshape(2, -1)
    found = dependence(
        first,
        second,
        counts.ravel(),
        math.sqrt(variance),
        signed=True,
        sampling=rows if of == "population" else 0.0,
        kurtosis=max([3.0, *(count_noise(name).kurtosis for name in answers.squares.measured.tails)]),
    )
    if not found.freedom:
        raise InputError(f"{listed([*columns])} were measured with less than two values each, or with no record")
    merged = any(part.size < len(part.blocks) for part in parts)
    of_rules = _excluded(answers, places)
    about = answers.codes.about("population" if of == "population" else "table", places)
    return Independence(
        columns=(columns[0], columns[1]),
        of=about,
        chi_square=found.distance,
        degrees_of_freedom=found.freedom,
        p=found.p,
        says=" ".join(_sentences(found, about, rows, merged=merged, of_rules=of_rules)),
    )


def _counted_together(
    answers: MarginalAnswers, squares: LeastSquares, places: Sequence[int]
) -> tuple[list[Part], Floats, float]:
    """How the pair of columns was divided, its counts without codes that noise alone is in, and the variance of a count."""
    parts, counts, variance = squares.pooled(places)
    for axis, place in enumerate(places):
        if answers.codes.ignores(answers.codes.configuration.attributes[place]):
            counts = np.delete(counts, parts[axis].blocks[-1], axis)
    return parts, counts, variance


def _places(answers: MarginalAnswers, columns: Sequence[str]) -> list[int]:
    """The attributes of two columns that were counted by themselves. Raises InputError."""
    attributes = answers.codes.configuration.attributes
    known = {a.name: place for place, a in enumerate(attributes)}
    if lacking := [column for column in columns if column not in known]:
        raise InputError(f"{lacking[0]!r} was not counted by itself; there are {listed([*known])}")
    if len(columns) != 2 or columns[0] == columns[1]:
        raise InputError("it takes two columns")
    return [known[column] for column in columns]


def _excluded(answers: MarginalAnswers, places: Sequence[int]) -> bool:
    """Whether rules exclude some combinations of the values of both in what was counted."""
    codes = answers.codes
    boxes = forbidden_codes(kept_rules(codes.configuration), codes.domain.labels)
    return any({place for place, _ in box} == {*places} for box in boxes)


def _sentences(found: Dependence, of: str, rows: int, *, merged: bool, of_rules: bool) -> list[str]:
    p = f"p = {found.p:.2g}" if found.p >= 1e-4 else "p is below 0.0001"
    exact = f"chi-square {found.distance:.1f}, {found.freedom} degrees of freedom"
    said = f"Test of independence that knows the noise: {p} ({exact})"
    if of == "table":
        sentences = [f"{said}, of the rows themselves: whether their association is more than noise."]
    elif of == "resized table":
        sentences = [f"{said}, of the records of the resized table: whether their association is more than noise."]
    elif of != "population":
        sentences = [f"{said}, of {of}: whether their association is more than noise."]
    elif rows == 1:
        sentences = [f"{said}, of the population that the rows are a simple random sample of."]
    else:
        sentences = [
            f"{said}, of the population that the persons are a simple random sample of, with at most {rows} rows each.",
            "Rows of one person are kept together: p is no smaller than it should be, and weak associations are missed.",
        ]
    if merged:
        sentences.append("Values that were measured together count as one.")
    if of_rules:
        sentences.append("Rules exclude some combinations of these columns, so they depend by the rules alone.")
    return [*sentences, NAIVE]
