"""Opens a release for analysts: its files as frames and typed values, and answers with intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import warn

from marginweave.base.errors import InputError, must_be
from marginweave.base.places import refuse_long
from marginweave.configuration.synthesis import MAX_RECORDS
from marginweave.runs.home import home_directory

if TYPE_CHECKING:
    import pandas as pd

    from marginweave.inference.answers import Answers
    from marginweave.inference.linked_answers import LinkedAnswers
    from marginweave.publish.reader import PublishedRelease
    from marginweave.released.evaluation import Evaluation
    from marginweave.released.statement import Guarantee, PrivacyStatement

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Report:
    """The report of a release; a notebook shows it."""

    path: Path

    def _repr_html_(self) -> str:
        from html import escape

        page = escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" sandbox width="100%" height="600" title="Report of the release"></iframe>'


@dataclass(frozen=True, repr=False)
class Release:
    """A release that is finished, read from the files in the folder `place` alone: no ledger, no table, free of charge."""

    place: Path

    def __post_init__(self) -> None:
        """Refuse a text, which may be the name of a run: `open` tells them apart. Raises InputError."""
        must_be("place", self.place, (Path,), 'Release.open("release")')

    @classmethod
    def open(cls, named: Release | str | Path, home: str | Path | None = None) -> Release:
        """Open the release in a folder (`release/` of a run, or a copy of it), or that of the run of this name.

        Args:
            named: a folder with privacy.json, or the name of a run in the home; a release is returned as it is.
            home: the folder of `runs/`: MARGINWEAVE_HOME or the working directory by default.

        Raises:
            InputError: there is neither.
            StageError: the files of the run were changed.
        """
        if isinstance(named, Release):
            return named
        must_be("release", named, (Release, str, Path), 'Release.open("release")')
        refuse_long("the release", named)
        if (Path(named) / "privacy.json").is_file():
            return cls(Path(named))
        from marginweave.runs.lookup import release_folder

        return cls(release_folder(home_directory(home), str(named)))

    @cached_property
    def statement(self) -> PrivacyStatement:
        """Content of privacy.json: mechanisms, assumptions, limits of the guarantee."""
        from marginweave.released.statement import PrivacyStatement

        return self._read("privacy.json", PrivacyStatement.from_json)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release: epsilon, delta, whose data it protects."""
        return self.statement.guarantee

    @cached_property
    def evaluation(self) -> Evaluation:
        """Distances of the synthetic records from the released counts, and the verdict."""
        from marginweave.released.evaluation import Evaluation

        return self._read("evaluation.json", Evaluation.from_json)

    @property
    def counts(self) -> pd.DataFrame:
        """Released counts of combinations of values, each with its interval."""
        return self._frame("aggregates.parquet")

    @property
    def measurements(self) -> pd.DataFrame:
        """Noisy cells of the measured marginals, as they were drawn; for k-tuples, `counts` has the drawn ones."""
        return self._frame("measurements.parquet")

    @property
    def linked(self) -> pd.DataFrame:
        """Noisy cells of the histograms of linked tables, as they were drawn, each with its interval."""
        return self._frame("linked.parquet")

    @property
    def synthetic(self) -> pd.DataFrame:
        """Published synthetic records."""
        return self._frame("synthetic.parquet")

    def sample(
        self,
        n: int | None = None,
        seed: int | None = None,
        where: Mapping[str, Any] | None = None,
        table: str | None = None,
        **unknown: object,
    ) -> pd.DataFrame:
        """Return `n` synthetic records, in the types of the source: post-processing, free of charge.

        No dtype depends on the drawn values: a column of int64 or bool that can be missing is Int64 or boolean. A copy without
        model.parquet gives other records, with a warning.

        Args:
            n: number of records; the protected number of records by default.
            seed: for public draws; that of the configuration by default. Each call without one returns the same records.
            where: conditions by column, such as `{"sex": "f", "age": {"from": 65}}`. Each record meets all of them, and records
                have the fitted mixture's distribution under these conditions. A text that the column declares as `missing`,
                often `""`, asks for the missing value.
            table: of a linked table with synthetic rows, all rows of these records; its ids are numbers of the records that the
                same call without `table` returns.
            unknown: none; a name of another package, such as `num_rows`, is refused.

        Raises:
            InputError: `n` is no whole number, out of range, or missing with `where`, or a condition does not go with its
                column, leaves no record, or the release has no fitted mixture.
        """
        if unknown:
            raise InputError(
                f"sample takes n, seed, where and table, and no {min(unknown)}; write sample(1000, seed=7)"
            )
        if where is not None and not where:
            raise InputError("where has no condition; leave it out for records of the whole table")
        if n is None and where:
            raise InputError(
                "n must be given with where: how many records are to meet the conditions?"
            )
        records = whole_number("n", n, 0, MAX_RECORDS)
        public_seed = whole_number("seed", seed, 0, 2**63 - 1)
        import pyarrow as pa

        warning = self.published.refitted
        if warning:
            warn(f"{self.place} {warning}", stacklevel=2)
        settings = self.published.settings(records, public_seed)
        blocks = self.published.tables(settings, where, table)
        frame: pd.DataFrame = pa.concat_tables(blocks).to_pandas()
        return frame

    def query(self, **question: Any) -> pd.DataFrame:
        """Return the answers to a question, a line for each group, with the interval of each.

        The question has the keys of `marginweave query --file`: `where` (conditions by column), `by` (one column or several),
        the number to answer (`count`, `share`, `mean`, `sum`, `median` or `quantile`), `of` (table or population) and `level`.
        With `table` it is about the rows of this linked table, and `each` is row or unit: which of them counts one.

        In the frame `how` is the source of an answer, and `level` the probability that its interval covers the truth, NaN where
        that is not known. A column of the table that is called as one of these, such as level, is `level (column)`.

        Example: `release.query(where={"age": {"from": 30}}, by="region", share=True)`

        Raises:
            InputError: the question breaks a rule, or has no answer.
        """
        import numpy as np
        import pandas as pd

        from marginweave.answers.answer import group_columns
        from marginweave.configuration.question import read_question
        from marginweave.runs.progress import shown_late

        with shown_late("answers"):
            read = read_question(question)
            source = self._answers if read.table is None else self._linked(read.table)
            answers = list(source.ask(read))
        if all(answer.how is None for answer in answers):
            raise InputError(answers[0].flag)
        rows: list[dict[str, Any]] = []
        for answer in answers:
            row = answer.row()
            group = row.pop("group")
            rows.append({**group_columns(group), **row})
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        for name in ("estimate", "low", "high", "level"):
            columns[name] = np.array(columns[name], np.float64)
        return pd.DataFrame(columns)

    def table(self, *columns: str, level: float = 0.95) -> pd.DataFrame:
        """Return the counts of all combinations of one to three columns, with the ends of their intervals.

        The frame has a line for each value of the first column, or of first and third; for each value of the second a count,
        low and high. Where not every count was measured, each also has its `how`: measured, rule, bounds or model. `attrs` of
        the frame have `of`, the records that the counts are of, and each `flag` that `query` has for some of them, such as by
        how much they may be too low.

        Raises:
            InputError: no column or more than three, or there is no answer for them.
        """
        for column in columns:
            must_be("a column", column, (str,), 'table("age", "region")')
        if not 1 <= len(columns) <= 3:
            raise InputError(
                f"table shows one to three columns, and not {len(columns)}; use query with by for more"
            )
        import pandas as pd

        from marginweave.answers.answer import group_columns

        answers = self.query(by=columns, level=level)
        answers = answers.set_index(list(group_columns(dict.fromkeys(columns, "")))).rename_axis(
            list(columns)
        )
        attributes: dict[Hashable | None, Any] = {}
        for name in ("of", "flag"):
            attributes[name] = list(dict.fromkeys(filter(None, answers[name])))
        shown = ["estimate", "low", "high"]
        if not (answers["how"] == "measured").all():
            shown.append("how")
        counts = answers[shown].rename(columns={"estimate": "count"})
        if len(columns) == 1:
            counts.attrs = attributes
            return counts
        values_of_columns = [
            list(dict.fromkeys(values)) for values in zip(*counts.index, strict=True)
        ]
        parts: dict[tuple[str, str], pd.Series[Any]] = {}
        for value in values_of_columns[1]:
            counts_of_value = counts.xs(value, level=columns[1])
            for part in counts.columns:
                parts[value, part] = counts_of_value[part]
        wide = pd.DataFrame(parts).rename_axis(columns=[columns[1], ""])
        if len(columns) == 2:
            lines = values_of_columns[0]
        else:
            lines = [
                (first, third) for third in values_of_columns[2] for first in values_of_columns[0]
            ]
        wide = wide.reindex(lines)
        wide.attrs = attributes
        return wide

    def report(self) -> Report:
        """Return the report of the release, which a notebook shows. Raises InputError if it is missing."""
        self._read("report.html", bytes)
        return Report(self.place / "report.html")

    @cached_property
    def published(self) -> PublishedRelease:
        """Configuration, counts and model as values of the pipeline."""
        from marginweave.publish.reader import PublishedRelease  # numba

        return PublishedRelease.read(self.place)

    @cached_property
    def _answers(self) -> Answers:
        from marginweave.inference.answers import read_answers  # numba

        return read_answers(self.place)

    def _linked(self, table: str) -> LinkedAnswers:
        from marginweave.inference.linked_answers import open_linked

        return open_linked(self.place, table)

    def _read(self, name: str, parse: Callable[[bytes], _Value]) -> _Value:
        try:
            return parse((self.place / name).read_bytes())
        except (OSError, ValueError):
            raise InputError(
                f"{self.place} has no readable {name}; is it the whole folder of a release?"
            ) from None

    def _frame(self, name: str) -> pd.DataFrame:
        import pyarrow as pa
        import pyarrow.parquet as pq

        def parse(content: bytes) -> pd.DataFrame:
            frame: pd.DataFrame = pq.read_table(pa.BufferReader(content)).to_pandas()
            return frame

        return self._read(name, parse)

    @property
    def _facts(self) -> dict[str, str]:
        statement = self.statement
        guarantee = self.guarantee
        verdict = statement.verdict
        return {
            "run": statement.run,
            "guarantee": f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}, {guarantee.neighbors}",
            "protects": f"one {guarantee.unit}",
            "columns": ", ".join(statement.domain),
            "verdict": f"{verdict.publication}. {verdict.says[0]}",
        }

    def __repr__(self) -> str:
        lines = (f"  {name}: {text}" for name, text in self._facts.items())
        return "\n".join([f"Release of {self.statement.dataset}", *lines])

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in self._facts.items()
        )
        return (
            f"<table><caption>Release of {escape(self.statement.dataset)}</caption>{rows}</table>"
        )


def whole_number(name: str, value: Any, least: int, most: int) -> int | None:
    """Return a whole number, also from one like 5.0 or numpy's. Raises InputError for anything else; a table is not quoted."""
    if value is None:
        return None
    is_whole = isinstance(value, Integral) or (isinstance(value, float) and value.is_integer())
    number = int(value) if is_whole else -1
    if not least <= number <= most:
        shown = value if isinstance(value, Real) else type(value).__name__
        raise InputError(f"{name} ({shown}) must be a whole number in [{least}, {most}]")
    return number
