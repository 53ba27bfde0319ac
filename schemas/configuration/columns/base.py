"""What all kinds of column share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from marginweave.schemas.configuration.columns.confirmation import Confirmation
from marginweave.schemas.configuration.numbers import FROZEN
from marginweave.schemas.configuration.preparation import Imputation

OTHER = "other"


def _texts(value: Any) -> Any:
    if not isinstance(value, list | tuple) or any(isinstance(item, dict | list | tuple) for item in value):
        raise ValueError("must be a list of texts")
    return tuple(str(item) for item in value)


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class ColumnBase(Confirmation):
    """One column of the table."""

    model_config = FROZEN
    measured: ClassVar[bool] = False
    """Whether the column is read and counted; one that is not never enters the release."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the values that are counted: none."""
        return ()


class MeasuredColumn(ColumnBase):
    """A column that is counted.

    `missing` lists the texts that mean "no value" here, instead of the configuration's list. What is neither missing nor a
    value of the column is outside and follows `outside`: it becomes missing (`null`) or stops the run (`error`). With
    `impute` a missing value becomes a draw of a public distribution, and the column is never missing.
    """

    measured: ClassVar[bool] = True
    missing: Texts | None = None
    impute: Imputation | None = None
    outside: Literal["null", "error"] | Literal["other"] = "null"

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the values that are counted, in canonical order; empty for a private domain."""

    @abstractmethod
    def accepts(self, text: str) -> bool:
        """Whether a trimmed text that is not missing is a value of this column: the rule of `outside: error`."""

    @property
    def explicit(self) -> tuple[str, ...]:
        """The texts that the configuration itself spells as values; none of them may also mean "no value"."""
        return ()
