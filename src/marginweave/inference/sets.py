"""Several synthetic tables of some columns of a release, so that analyses of them show how far they may be from the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from marginweave.answers.least_squares import NotMeasuredError
from marginweave.base.arrays import Integers
from marginweave.base.errors import must_be
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.values import listed
from marginweave.inference.modelled import (
    Modelled,
    check_sample,
    chosen_pairs,
    no_coverage,
    open_modelled,
)
from marginweave.inference.opened import whole_number
from marginweave.inference.several_sets import DrawnTables
from marginweave.runs.published import check_target, write_folder
from marginweave.texts.sentences import regression_sentence

FEWEST_SETS = 5
"""With fewer, Student's t makes intervals endless."""
MOST_SETS = 1000
_MOST_GAPS = 0.05
"""Share of records without a value above which an analysis that leaves them out is one of three columns."""


def draw_sets(
    place: Path,
    columns: Sequence[str],
    sets: int,
    of: str,
    seed: int | None = None,
    prefix: str = "",
) -> Iterator[pd.DataFrame]:
    """Yield `sets` tables with these columns; see `marginweave.inference.synthetic_sets`. DP: post-processing.

    Options of a command have the `prefix` --.

    Raises:
        InputError: as `synthetic_sets`.
    """
    number = whole_number("sets", sets, FEWEST_SETS, MOST_SETS) or 20
    seed = whole_number("seed", seed, 0, 2**63 - 1)
    opened = open_modelled(place, of, "sets of records need", prefix)
    must_be("columns", columns, (list, tuple), '["age", "cost"]')
    columns = [*columns] or [*opened.columns]
    places = opened.places(columns)
    check_sample(opened.answers.codes.configuration, columns, of, prefix)
    generator = np.random.default_rng(opened.seed if seed is None else seed)  # post-processing
    records = opened.records(generator)[:, places]
    try:
        tables = DrawnTables.of(opened.squares, records, [opened.part(place) for place in places])
    except NotMeasuredError:
        raise opened.not_together(columns) from None
    sampling = opened.rows_a_subject if of == "population" else 0.0
    drawn = tables.draw(number, generator, sampling=sampling)
    return _frames(opened, drawn, columns, places, generator)


def unclaimed(place: Path, columns: Sequence[str], of: str, prefix: str = "") -> str:
    """Return why analyses of sets of these columns are claimed to cover nothing; empty where they are claimed to cover.

    The sets agree with the counts in every pair of columns. Most analyses leave out records without a value, which is a
    condition on one more column: of two columns that is their pair, of three and more it is no longer one.

    Raises:
        InputError: as `draw_sets`.
    """
    opened = open_modelled(place, of, "sets of records need", prefix)
    columns = [*columns] or [*opened.columns]
    places = opened.places(columns)
    pairs = chosen_pairs(opened.answers, columns, places) if of == "population" else ""
    if pairs:
        return str(no_coverage(pairs, prefix))
    with_gaps = [
        column
        for column, place_of_column in zip(columns, places, strict=True)
        if len(columns) > 2 and opened.gap_share(place_of_column) > _MOST_GAPS
    ]
    return str(regression_sentence("interval.gaps", columns=listed(with_gaps))) if with_gaps else ""


def _frames(
    opened: Modelled,
    drawn: Iterator[np.ndarray],
    columns: Sequence[str],
    places: Sequence[int],
    generator: np.random.Generator,  # post-processing
) -> Iterator[pd.DataFrame]:
    """Yield the frame of each table of records, which have codes of the model."""
    values_of_columns = [
        _values(opened, place, column) for place, column in zip(places, columns, strict=True)
    ]
    for records in drawn:
        frame: dict[str, np.ndarray] = {}
        for j, (place, column) in enumerate(zip(places, columns, strict=True)):
            codes = _draw_codes(opened, place, records[:, j], generator)
            frame[column] = values_of_columns[j][codes]
        yield pd.DataFrame(frame)


def _values(opened: Modelled, place: int, column: str) -> np.ndarray:
    """Return the value of each code of an attribute: a number, or a text; NaN or None for the missing one.

    A code of a number column that means no number, such as 9999 for a refusal, is missing. A column with an open bin, which has
    no middle, and a category with a value that is no number, are texts. Numbers that were measured together are their mean,
    because a draw among them would be unrelated to other columns.
    """
    ranges = opened.numbers(column)
    codes = opened.answers.codes
    labels = codes.domain.labels[place]
    texts = [*labels, *[None] * (codes.sizes[place] - len(labels))]
    if ranges is None:
        return np.array(texts, object)
    numbers = ranges.middle
    is_number_column = isinstance(codes.configuration.columns[column], NumberColumn)
    has_no_middle = np.isnan(numbers[: len(labels)])
    if is_number_column:
        has_no_middle &= ranges.is_number[: len(labels)]  # open bins
    if has_no_middle.any():
        return np.array(texts, object)
    merged = opened.merged[place]
    counts = opened.counts(place)
    for model_code in range(merged.max() + 1):
        group = np.flatnonzero((merged == model_code) & np.isfinite(numbers))
        if len(group) > 1:
            numbers[group] = np.average(numbers[group], weights=counts[group])
    return numbers


def _draw_codes(
    opened: Modelled,
    place: int,
    model_codes: Integers,
    rng: np.random.Generator,
) -> Integers:  # post-processing
    """Return codes of an attribute for those of the model: merged values are drawn in proportion to their counts."""
    merged = opened.merged[place]
    counts = opened.counts(place)
    codes = np.empty(len(model_codes), np.int64)
    for model_code in np.unique(model_codes).tolist():
        group = np.flatnonzero(merged == model_code)
        is_code = model_codes == model_code
        shares = counts[group] / counts[group].sum()
        codes[is_code] = rng.choice(group, int(is_code.sum()), p=shares)
    return codes


def write_sets(home: Path, to: Path, drawn: Iterator[pd.DataFrame]) -> Path:
    """Write tables as set-01.csv and so on into the new folder `to`.

    Raises:
        InputError: the folder is not empty, or lies in the home.
    """
    folder = check_target(home, to)
    files: dict[str, bytes] = {}
    for number, table in enumerate(drawn, start=1):
        files[f"set-{number:02}.csv"] = table.to_csv(index=False).encode()
    write_folder(folder, files)
    return folder
