"""The configuration of a release: everything in it is public knowledge, and its hash goes into the audit trail."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from marginweave.schemas.aggregation import AggregateSettings
from marginweave.schemas.columns import Category, Column, Texts
from marginweave.schemas.numbers import FROZEN, Number, OpenFraction, Positive, Whole, to_whole

NAME_RULE = "must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or a digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
EXAMPLE_PREFIX = "example:"
MAX_REDRAWS = 3
MAX_RECORDS = 10**8


def check_name(text: str) -> str:
    """A name that can stand in a path: of a dataset or a run."""
    if not _NAME.fullmatch(text):
        raise ValueError(NAME_RULE)
    return text


def _unit(value: Any) -> Any:
    if value != "row":
        raise ValueError("must be row: in this version a person may have one row only")
    return value


def _redraws(value: int) -> int:
    if not 0 <= value <= MAX_REDRAWS:
        raise ValueError(f"must be at least 0 and at most {MAX_REDRAWS}")
    return value


class PrivacySettings(BaseModel):
    """The guarantee that is asked for; (epsilon, delta) of the whole release, delta public.

    `redraws` lost draws may be drawn again, each under a charge of its own that the account keeps room for; what is not needed
    is given back. They do not change what a finished release guarantees.
    """

    model_config = FROZEN
    epsilon: Positive
    delta: OpenFraction
    unit: Annotated[Literal["row"], BeforeValidator(_unit)]
    neighbors: Literal["add-remove", "replace-one"] = "add-remove"
    accountant: Literal["gdp", "zcdp", "sds"] = "gdp"
    redraws: Annotated[Whole, AfterValidator(_redraws)] = 0


def _records(value: Any) -> int | str:
    if isinstance(value, str) and value in {"count", "exhaust"}:
        return value
    try:
        records = to_whole(value)
    except ValueError:
        raise ValueError("must be count, exhaust or a whole number") from None
    if not 0 <= records <= MAX_RECORDS:
        raise ValueError(f"must lie in [0, {MAX_RECORDS}]")
    return records


class SynthesisSettings(BaseModel):
    """How records are made from the counts; post-processing, so nothing here costs privacy.

    `records`: `count` makes as many as the protected record count, `exhaust` goes on until the counts are used up (as SDS
    prints it), a number makes that many. `sample_missing` lets a missing value be drawn like any other, in columns that can be
    missing. `relax` lets a record that no value fits any more go on with shorter combinations instead of staying incomplete.
    """

    model_config = FROZEN
    method: Literal["aggregate-seeded"] = "aggregate-seeded"
    records: Annotated[int | Literal["count", "exhaust"], BeforeValidator(_records)] = "count"
    use_synthetic_counts: bool = True
    sample_missing: bool = True
    relax: bool = True
    weight_percentile: Number = 95
    scale: Positive = 1.0
    seed: Whole = 0

    @field_validator("weight_percentile")
    @classmethod
    def _percentile(cls, value: float) -> float:
        if not 0 < value <= 100:
            raise ValueError("must lie in (0, 100]")
        return value

    @field_validator("scale")
    @classmethod
    def _scale(cls, value: float) -> float:
        if value > 100:
            raise ValueError("must lie in (0, 100]")
        return value

    @field_validator("seed")
    @classmethod
    def _seed(cls, value: int) -> int:
        if not 0 <= value < 2**63:
            raise ValueError("must lie in [0, 2^63)")
        return value


class ExpectationSettings(BaseModel):
    """Great Expectations suites (files, relative to the configuration) for the raw input and the synthetic output."""

    model_config = FROZEN
    input: str | None = None
    output: str | None = None


class EvaluationSettings(BaseModel):
    """`internal` also compares with the sensitive table; the result never leaves `internal/`."""

    model_config = FROZEN
    internal: bool = False


class PublishSettings(BaseModel):
    """`keep_private` keeps the sensitive checkpoints of a finished run instead of purging them."""

    model_config = FROZEN
    keep_private: bool = False


class Configuration(BaseModel):
    """One release. The order of `columns` is the order of everything that is written."""

    model_config = FROZEN
    dataset: Annotated[str, AfterValidator(check_name)]
    source: Annotated[str, Field(min_length=1)]
    privacy: PrivacySettings
    missing: Texts = ("",)
    columns: Annotated[dict[str, Column], Field(min_length=1)]
    aggregate: AggregateSettings = AggregateSettings()
    synthesize: SynthesisSettings = SynthesisSettings()
    expectations: ExpectationSettings = ExpectationSettings()
    evaluate: EvaluationSettings = EvaluationSettings()
    publish: PublishSettings = PublishSettings()

    @field_validator("columns")
    @classmethod
    def _column_names(cls, columns: dict[str, Column]) -> dict[str, Column]:
        for name in columns:
            if not name.strip() or name != name.strip() or "\x00" in name:
                raise ValueError(f"has a column named {name!r}; a name must not be empty or begin or end with a space")
        return columns

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.privacy.accountant == "sds" and self.aggregate.split == "shares":
            raise ValueError(
                "aggregate.split (shares) must be sds with privacy.accountant: sds, which prints its own split"
            )
        for name, column in self.columns.items():
            declared = {text.strip() for text in column.values or ()} if isinstance(column, Category) else set()
            for text in self.missing_texts(name):
                if text.strip() in declared:
                    raise ValueError(
                        f"columns.{name} declares {text!r} as a value and as missing; "
                        "to make it a value, give the column its own list, such as missing: []"
                    )
        self.aggregate.check_length(len(self.columns))
        return self

    def missing_texts(self, column: str) -> tuple[str, ...]:
        """The texts that mean "no value" in `column`."""
        own = self.columns[column].missing
        return self.missing if own is None else own

    def can_be_missing(self, column: str) -> bool:
        """Whether a record can lack a value of `column`, from public facts alone."""
        return bool(self.missing_texts(column)) or self.columns[column].outside == "null"

    @cached_property
    def optional(self) -> tuple[bool, ...]:
        """For each column, whether a record can lack its value."""
        return tuple(map(self.can_be_missing, self.columns))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names in declared order."""
        return tuple(self.columns)

    @cached_property
    def reporting_length(self) -> int:
        """R, the longest combination: declared, or min(3, number of columns)."""
        return self.aggregate.reporting_length or min(3, len(self.columns))

    @cached_property
    def percentile(self) -> float | None:
        """The percentile of the contribution bound, or None where it is its public cap."""
        declared = self.aggregate.percentile
        if declared is None:
            return 99.0 if any(self.optional) else None
        return None if declared == "none" else declared

    @cached_property
    def private_columns(self) -> tuple[str, ...]:
        """Columns whose values are discovered under the budget."""
        return tuple(n for n, c in self.columns.items() if isinstance(c, Category) and c.domain == "private")

    @cached_property
    def split(self) -> Literal["shares", "sds"]:
        """How the budget is divided: by shares unless SDS's printed split is asked for."""
        return self.aggregate.split or ("sds" if self.privacy.accountant == "sds" else "shares")

    @property
    def default_run(self) -> str:
        """Name of the run that this configuration stands for."""
        return f"{self.dataset}-{self.digest[:8]}"

    def canonical(self) -> str:
        """The whole configuration as canonical JSON: defaults filled in, keys sorted (except columns: their order counts)."""
        dumped: dict[str, Any] = self.model_dump(mode="json", exclude_none=True)
        dumped["columns"] = [[name, column] for name, column in dumped["columns"].items()]
        return json.dumps(dumped, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_canonical(cls, text: str) -> Configuration:
        """The configuration that `canonical` wrote."""
        dumped = json.loads(text)
        return cls.model_validate({**dumped, "columns": dict(dumped["columns"])})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hex."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()
