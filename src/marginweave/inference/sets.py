"""Several synthetic tables of some columns of a release, so that analyses of them show how far they may be from the truth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from marginweave.answers.least_squares import NotMeasuredError
from marginweave.base.arrays import Integers
from marginweave.base.errors import must_be
from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.values import listed
from marginweave.estimate.rounding import apportion
from marginweave.inference.margins import Column
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
from marginweave.texts.sentences import Share, regression_sentence

FEWEST_SETS = 5
"""With fewer, Student's t makes intervals endless."""
MOST_SETS = 1000
_MOST_MERGED = 0.02
"""Share of the variance of a number between values that were measured together: about as much of a slope may be lost."""
_MOST_GAPS = 0.05
"""Share of records without a value above which an analysis that leaves them out is one of three columns."""


@dataclass(frozen=True, kw_only=True)
class SyntheticSets:
    """Synthetic tables of some columns of a release that is open; a draw of each is made when it is asked for.

    Options of a command have the `prefix` --. See `marginweave.inference.synthetic_sets`. DP: post-processing.
    """

    opened: Modelled
    columns: Sequence[str]
    of: str
    tables: DrawnTables
    seed: int
    prefix: str = ""

    @classmethod
    def of_release(
        cls,
        place: Path,
        columns: Sequence[str],
        of: str,
        seed: int | None = None,
        prefix: str = "",
    ) -> SyntheticSets:
        """Open the release in a folder for tables of these columns, or of all that were counted by themselves.

        Raises:
            InputError: as `marginweave.inference.synthetic_sets`.
        """
        seed = whole_number("seed", seed, 0, 2**63 - 1)
        opened = open_modelled(place, of, "sets of records need", prefix)
        must_be("columns", columns, (list, tuple), '["age", "cost"]')
        columns = [*columns] or [*opened.columns]
        places = opened.places(columns)
        check_sample(opened.answers.codes.configuration, columns, of, prefix)
        own_seed = opened.seed if seed is None else seed
        generator = np.random.default_rng([own_seed, 0])  # post-processing
        records = opened.records(generator)[:, places]
        scored = [
            _column(opened, place, column) for place, column in zip(places, columns, strict=True)
        ]
        sampling = opened.rows_a_subject if of == "population" else 0.0
        try:
            tables = DrawnTables.of(opened.squares, records, scored, sampling=sampling)
        except NotMeasuredError:
            raise opened.not_together(columns) from None
        return cls(
            opened=opened, columns=columns, of=of, tables=tables, seed=own_seed, prefix=prefix
        )

    def draw(self, sets: int) -> Iterator[pd.DataFrame]:
        """Yield so many tables. Raises InputError for a number out of range."""
        number = whole_number("sets", sets, FEWEST_SETS, MOST_SETS) or 20
        generator = np.random.default_rng([self.seed, 1])  # post-processing
        drawn = self.tables.draw(number, generator)
        return _frames(self.opened, drawn, self.columns, self.places, generator)

    @cached_property
    def places(self) -> list[int]:
        """Places of the attributes of the columns."""
        return self.opened.places(self.columns)

    @cached_property
    def unclaimed(self) -> str:
        """Why analyses of the tables are claimed to cover nothing; empty where they are claimed to cover."""
        opened = self.opened
        pairs = ""
        if self.of == "population":
            pairs = chosen_pairs(opened.answers, self.columns, self.places)
        if pairs:
            return str(no_coverage(pairs, self.prefix))
        reasons = [self._merged_words(), self._gap_words()]
        generator = np.random.default_rng([self.seed, 2])  # post-processing
        if not any(reasons) and not self.tables.carries(generator):
            reasons.append(str(regression_sentence("interval.noise")))
        return next(filter(None, reasons), "")

    @cached_property
    def rare_values(self) -> dict[str, list[str]]:
        """Values of each text that are so rare that noise hides what they have in common with a number among the columns."""
        codes = sorted({code for margin in self.tables.margins for code in margin.hidden})
        rare: dict[str, list[str]] = {}
        for position, code in codes:
            place = self.places[position]
            column = self.columns[position]
            of_code = _values(self.opened, place, column)[self.opened.merged[place] == code]
            values = [str(value) for value in of_code if pd.notna(value)]
            if values:
                rare.setdefault(column, []).extend(values)
        return rare

    @property
    def cautions(self) -> str:
        """What is not claimed of analyses of the tables, in sentences: of all, or of values that are rare; may be empty."""
        if self.unclaimed or not self.rare_values:
            return self.unclaimed
        named = [f"{column} = {listed(values, 5)}" for column, values in self.rare_values.items()]
        return str(regression_sentence("interval.rare", values="; ".join(named)))

    def _merged_words(self) -> str:
        """Return why nothing is claimed where much of a number lies between values that were measured together."""
        for column, place in zip(self.columns, self.places, strict=True):
            values = _values(self.opened, place, column, merge=False)
            if values.dtype == object:
                continue
            numbers = np.where(np.isfinite(values), values, np.nanmean(values))
            share = self.opened.merged_share(place, numbers[None])
            if share > _MOST_MERGED:
                words = regression_sentence("interval.merged", share=Share(share), column=column)
                return str(words)
        return ""

    def _gap_words(self) -> str:
        """Return why nothing is claimed where many records lack a value.

        The sets agree with the counts in every pair of columns. Most analyses leave out records without a value, which is a
        condition on one more column: of two columns that is their pair, of three and more it is no longer one.
        """
        with_gaps = [
            column
            for column, place in zip(self.columns, self.places, strict=True)
            if len(self.columns) > 2 and self.opened.gap_share(place) > _MOST_GAPS
        ]
        if not with_gaps:
            return ""
        return str(regression_sentence("interval.gaps", columns=listed(with_gaps)))


def _column(opened: Modelled, place: int, column: str) -> Column:
    """Return a column with scores of its codes: a number in standard deviations, and whether it is missing, or indicators."""
    merged = opened.merged[place]
    counts = opened.counts(place)
    model_counts = np.bincount(merged, counts)
    values = _values(opened, place, column)
    is_number = values.dtype != object
    if not is_number:
        most = int(model_counts.argmax())
        scores = np.delete(np.eye(len(model_counts)), most, axis=0)
        return Column(part=opened.part(place), scores=scores, is_number=False)
    has_number = np.isfinite(values)
    with_number = np.bincount(merged, counts * has_number)
    sums = np.bincount(merged, counts * np.where(has_number, values, 0.0))
    mean = sums.sum() / with_number.sum()
    distances = (sums - mean * with_number) / model_counts
    deviation = np.sqrt((model_counts * distances**2).sum() / model_counts.sum())
    rows = [distances / (deviation or 1.0)]
    if not has_number.all():
        rows.append(1 - with_number / model_counts)
    return Column(part=opened.part(place), scores=np.stack(rows), is_number=True)


def _frames(
    opened: Modelled,
    drawn: Iterator[np.ndarray],
    columns: Sequence[str],
    places: Sequence[int],
    generator: np.random.Generator,  # post-processing
) -> Iterator[pd.DataFrame]:
    """Yield the frame of each table of records, which have codes of the model."""
    # pandas chooses the type of each column once, and not for each table
    values_of_columns = [
        pd.Series(_values(opened, place, column))
        for place, column in zip(places, columns, strict=True)
    ]
    for records in drawn:
        frame: dict[str, Any] = {}
        for j, (place, column) in enumerate(zip(places, columns, strict=True)):
            codes = _draw_codes(opened, place, records[:, j], generator)
            frame[column] = values_of_columns[j].array.take(codes)
        yield pd.DataFrame(frame)


def _values(
    opened: Modelled,
    place: int,
    column: str,
    *,
    merge: bool = True,
) -> np.ndarray:
    """Return the value of each code of an attribute: a number, or a text; NaN or None for the missing one.

    A code of a number column that means no number, such as 9999 for a refusal, is missing. A column with an open bin, which has
    no middle, and a category with a value that is no number, are texts. To `merge`, numbers that were measured together are
    their mean, because a draw among them would be unrelated to other columns.
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
    if not merge:
        return numbers
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
    _, first_codes, sizes = np.unique(merged, return_index=True, return_counts=True)
    codes: Integers = first_codes[model_codes]
    for model_code in np.flatnonzero(sizes > 1).tolist():
        group = np.flatnonzero(merged == model_code)
        rows = np.flatnonzero(model_codes == model_code)
        times = apportion(counts[group], len(rows), rng)
        codes[rows] = rng.permutation(np.repeat(group, times))
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
