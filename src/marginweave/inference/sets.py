"""Several synthetic tables of some columns of a release, so that an analysis of them tells how far it may be from the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from marginweave.answers.least_squares import NotMeasuredError
from marginweave.base.arrays import Integers
from marginweave.base.errors import must_be
from marginweave.inference.modelled import Modelled, open_modelled
from marginweave.inference.opened import whole_number
from marginweave.inference.several_sets import DrawnTables
from marginweave.runs.published import check_target, write_folder

FEWEST_SETS, MOST_SETS = 5, 1000
"""With fewer, Student's t makes intervals endless."""


def draw_sets(
    place: Path, columns: Sequence[str], sets: int, of: str, seed: int | None = None, prefix: str = ""
) -> Iterator[pd.DataFrame]:
    """So many tables with these columns; see `marginweave.inference.synthetic_sets`. DP: post-processing.

    Options of a command have the `prefix` --.

    Raises:
        InputError: as there.
    """
    number, seed = whole_number("sets", sets, FEWEST_SETS, MOST_SETS) or 20, whole_number("seed", seed, 0, 2**63 - 1)
    opened = open_modelled(place, of, "sets of records need", prefix)
    must_be("columns", columns, (list, tuple), '["age", "cost"]')
    columns = [*columns] or [*opened.columns]
    places = opened.places(columns)
    generator = np.random.default_rng(opened.seed if seed is None else seed)  # post-processing
    records = opened.records(generator)[:, places]
    try:
        tables = DrawnTables.of(opened.squares, records, [opened.part(place) for place in places])
    except NotMeasuredError:
        raise opened.not_together(columns) from None
    drawn = tables.draw(number, generator, sampling=opened.rows_a_subject if of == "population" else 0.0)
    return _frames(opened, drawn, columns, places, generator)


def _frames(
    opened: Modelled,
    drawn: Iterator[np.ndarray],
    columns: Sequence[str],
    places: Sequence[int],
    generator: np.random.Generator,  # post-processing
) -> Iterator[pd.DataFrame]:
    values = [_values(opened, place, column) for place, column in zip(places, columns, strict=True)]
    for records in drawn:
        codes = [_apart(opened, place, records[:, j], generator) for j, place in enumerate(places)]
        yield pd.DataFrame({name: own[code] for name, own, code in zip(columns, values, codes, strict=True)})


def _values(opened: Modelled, place: int, column: str) -> np.ndarray:
    """What stands for each code of an attribute: a number, or a text; NaN or None for the missing one.

    Numbers that were measured together are their mean, as one drawn among them would say less of other columns.
    """
    numbers, codes = opened.numbers(column), opened.answers.codes
    texts = [*codes.domain.labels[place], *[None] * (codes.sizes[place] - len(codes.domain.labels[place]))]
    if numbers is None or any(
        np.isnan(n) and text is not None for n, text in zip(numbers.tolist(), texts, strict=True)
    ):
        return np.array(texts, object)
    merged, counts = opened.merged[place], opened.counts(place)
    for code in range(merged.max() + 1):
        own = np.flatnonzero((merged == code) & np.isfinite(numbers))
        if len(own) > 1:
            numbers[own] = np.average(numbers[own], weights=counts[own])
    return numbers


def _apart(opened: Modelled, place: int, codes: Integers, rng: np.random.Generator) -> Integers:  # post-processing
    """Of codes of the model those of the attribute: of values that were measured together, each in proportion to its count."""
    merged, counts = opened.merged[place], opened.counts(place)
    found = np.empty(len(codes), np.int64)
    for code in np.unique(codes).tolist():
        own, mine = np.flatnonzero(merged == code), codes == code
        found[mine] = rng.choice(own, int(mine.sum()), p=counts[own] / counts[own].sum())
    return found


def write_sets(home: Path, to: Path, drawn: Iterator[pd.DataFrame]) -> Path:
    """Write tables as set-01.csv and so on into the new folder `to`.

    Raises:
        InputError: the folder holds something already, or lies in the home.
    """
    folder = check_target(home, to)
    write_folder(folder, {f"set-{n:02}.csv": one.to_csv(index=False).encode() for n, one in enumerate(drawn, start=1)})
    return folder
