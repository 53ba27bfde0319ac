"""Knowledge before a release, as a configuration declares it: tables published elsewhere, and earlier releases."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag

from marginweave.base.errors import MustError
from marginweave.configuration.columns import Texts
from marginweave.configuration.earlier import KnownRelease
from marginweave.configuration.values import FROZEN, FrozenModel, Positive, Words


class TotalsFile(FrozenModel):
    """A text file of a known table: it has the columns of the table, by their names, and the column `count` of counts."""

    file: str
    count: str


def _rows(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not all(
        isinstance(row, list | tuple) for row in value
    ):
        raise MustError(
            "be a list of rows, each a value of every column and a count, or {file: totals.csv, count: COLUMN}"
        )
    return tuple(tuple(map(str, row)) for row in value)


class KnownTable(FrozenModel):
    """Counts of the combinations of `columns`, published elsewhere (`public`); exact without an `sd`.

    A row of `table` has a value of each column, then the count. `others: 0`: a combination that is not listed has no record.
    `from` says whether they were counted in these rows: the guarantee does not cover counts that were.
    """

    model_config = FROZEN | ConfigDict(serialize_by_alias=True)
    columns: Annotated[Texts, Field(min_length=1)]
    table: Annotated[tuple[tuple[str, ...], ...], BeforeValidator(_rows), Field(min_length=1)]
    others: Literal[0] | None = None
    sd: Positive | None = None
    origin: Annotated[Literal["other-source", "these-rows"], Field(alias="from")]
    public: Words

    @property
    def name(self) -> str:
        """Name of the table in sentences."""
        return ", ".join(self.columns)

    @property
    def words(self) -> str:
        """Name of the table, with its precision and where it is published."""
        exact = "exact" if self.sd is None else f"standard deviation {self.sd:g}"
        return f"{self.name} ({exact}; {self.public})"


def _kind(value: Any) -> str:
    is_release = isinstance(value, KnownRelease) or (isinstance(value, dict) and "release" in value)
    return "earlier" if is_release else "published"


Known: TypeAlias = Annotated[
    Annotated[KnownTable, Tag("published")] | Annotated[KnownRelease, Tag("earlier")],
    Discriminator(_kind),
]
