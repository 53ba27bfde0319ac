"""Settings of evaluation, expectations and publication: checks before a release is published, and files that are kept."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from marginweave.base.errors import MustError
from marginweave.configuration.columns import Texts
from marginweave.configuration.number_texts import DecimalMark
from marginweave.configuration.values import FrozenModel, Words


class EvaluationSettings(FrozenModel):
    """Settings of the evaluation. `internal` also compares with the sensitive table; the result never leaves `internal/`.

    `ordered` are categories whose values are declared in their order: rank correlations include them, as numbers and dates.
    """

    internal: bool = False
    ordered: Texts | None = None


class ExpectationSettings(FrozenModel):
    """Great Expectations suites (files, relative to the configuration) for the raw input and the synthetic output."""

    input: str | None = None
    output: str | None = None


class CsvSettings(FrozenModel):
    """How the CSV files of a release are written, such that the spreadsheet of its readers opens them.

    `delimiter` is between cells. `decimal` is the mark before decimals, in numbers of the records as the source has it where it
    is None. `bom` begins a file with the byte order mark by which some programs know UTF-8.
    """

    delimiter: Literal["comma", "semicolon", "tab"] = "comma"
    decimal: DecimalMark | None = None
    bom: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.delimiter == self.decimal:
            raise MustError("have another delimiter than decimal, such as semicolon")
        return self


class PublishSettings(FrozenModel):
    """Settings of publication. `keep_private` keeps the sensitive checkpoints of a finished run instead of purging them.

    Where `approval` is required, a person must approve the release before it is published. `publisher`, `contact` and
    `license` are for readers of the release: report.html and croissant.json have them. `csv` is how CSV files are written.
    """

    keep_private: bool = False
    approval: Literal["required"] | None = None
    publisher: Words | None = None
    contact: Words | None = None
    license: Words | None = None
    csv: CsvSettings = CsvSettings()
