"""Settings of the synthesis, which makes records from released counts."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, Tag

from marginweave.base.errors import MustError
from marginweave.configuration.values import (
    FrozenModel,
    Number,
    PaperPreset,
    Positive,
    PositiveWhole,
    Whole,
    to_whole,
)

MAX_RECORDS = 10**8
MAX_ROUNDS = 10_000
MAX_MODEL_BYTES = 4 * 10**9


_TIMES = re.compile("([1-9][0-9]{0,2})x")


def _records(*words: str) -> BeforeValidator:
    """Return the check of a number of records; the word 4x stands for any number of times."""
    rule = f"be {', '.join(words)} or a whole number"

    def check(value: Any) -> int | str:
        if isinstance(value, str) and (
            value in words or ("4x" in words and _TIMES.fullmatch(value))
        ):
            return value
        try:
            records = to_whole(value)
        except ValueError:
            raise MustError(rule) from None
        if not 0 <= records <= MAX_RECORDS:
            raise MustError(f"lie in [0, {MAX_RECORDS}]")
        return records

    return BeforeValidator(check)


Seed = Annotated[Whole, Field(ge=0, lt=2**63)]
UpTo10000 = Annotated[PositiveWhole, Field(le=MAX_ROUNDS)]


class RecordSettings(FrozenModel):
    """Settings of every synthesizer: at most `max_records` records are kept, at random; `seed` makes the draws repeatable."""

    max_records: PositiveWhole | None = None
    seed: Seed = 0

    @property
    def times(self) -> int:
        """How many records are made for each that was counted: 1, but where `records` has a word such as 4x."""
        return 1


class SynthesisSettings(RecordSettings):
    """Settings of records from k-tuples, value by value; post-processing, so nothing here costs privacy.

    `records`: `count` makes as many as the protected record count, `exhaust` makes records until the counts are used up (as SDS
    prints it), a number makes that many; at most `max_records` of them are kept, at random. `sample_missing` lets a missing
    value be drawn like any other, in columns that can be missing. `relax`: a record to which no value can be added resumes
    with shorter combinations instead of staying incomplete. `use_synthetic_counts`: what was synthesized already counts less.
    `weight_percentile`: which of a record's counts guides the next choice. `scale`: the factor on all counts.
    """

    method: Literal["aggregate-seeded"] = "aggregate-seeded"
    records: Annotated[int | Literal["count", "exhaust"], _records("count", "exhaust")] = "count"
    use_synthetic_counts: bool = True
    sample_missing: bool = True
    relax: bool = True
    weight_percentile: Annotated[Positive, Field(le=100)] = 95
    scale: Annotated[Positive, Field(le=100)] = 1.0

    @property
    def complete(self) -> bool:
        """Return whether records lack values only where these can be missing."""
        return self.relax


class CompleteSynthesis(RecordSettings):
    """A synthesizer that gives every attribute a value.

    `records` as in `SynthesisSettings`, but for `exhaust`; `4x` makes four times as many as the protected record count.
    """

    records: Annotated[int | str, _records("count", "4x")] = "count"

    @property
    def times(self) -> int:
        """How many records are made for each that was counted: 1, but where `records` has a word such as 4x."""
        repeated = _TIMES.fullmatch(str(self.records))
        return 1 if repeated is None else int(repeated[1])

    def number(self, counted: float) -> int:
        """Return the number of records that are made where so many were counted: at most `MAX_RECORDS` by `times`."""
        if isinstance(self.records, int):
            return self.records
        return min(round(counted) * self.times, max(MAX_RECORDS, round(counted)))

    @property
    def complete(self) -> bool:
        """Return whether records lack values only where these can be missing: always."""
        return True


class GumSynthesis(CompleteSynthesis, PaperPreset):
    """Records from marginals, or from k-tuples, by the gradually updating method; post-processing.

    `records` and `max_records` as in `SynthesisSettings`. `start`: first rows from a spanning tree of pairs, or each
    attribute by itself. `rounds`: the most passes over all marginals. `schedule`: how the update rate falls. `tolerance`: a
    cell whose error is within this many standard deviations of its noise is not updated. `duplicate`: the share of copies of
    whole records, by round. `preset: paper` sets the constants of PrivSyn for all keys that are not written.
    """

    # PrivSyn, section 5.2, appendices I and J: each attribute by itself, about a hundred rounds, every count followed.
    paper: ClassVar[dict[str, Any]] = {"start": "one-way", "rounds": 100, "tolerance": 0.0}
    method: Literal["gum"] = "gum"
    start: Literal["tree", "one-way"] = "tree"
    rounds: Annotated[Whole, Field(ge=0, le=MAX_ROUNDS)] = 30
    schedule: Literal["step", "exponential", "linear", "root"] = "step"
    tolerance: Annotated[Number, Field(ge=0)] = 1.0
    duplicate: Annotated[tuple[Annotated[Number, Field(ge=0, le=1)], ...], Field(min_length=1)] = (
        0.5,
        1.0,
    )


class MixtureSynthesis(CompleteSynthesis):
    """Records from marginals, or from k-tuples, by a mixture of products of independent columns; post-processing.

    `records` and `max_records` as in `SynthesisSettings`. `components`: the number of products that one fit mixes; `fits`: the
    number of fits that are averaged. The defaults, 300 and 8, become 800 and 2 where counts are many times their noise.
    `iterations`: the most passes of a fit, which ends earlier where the counts are as close as their noise.
    """

    method: Literal["mixture"] = "mixture"
    components: UpTo10000 = 300
    fits: UpTo10000 = 8
    iterations: UpTo10000 = 1000


DenseSynthesis = Annotated[GumSynthesis, Tag("gum")] | Annotated[MixtureSynthesis, Tag("mixture")]
AnySynthesis = Annotated[SynthesisSettings, Tag("aggregate-seeded")] | DenseSynthesis
SYNTHESES: tuple[type[BaseModel], ...] = tuple(
    get_args(method)[0] for method in get_args(AnySynthesis)
)
