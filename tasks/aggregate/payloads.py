"""Bytes of draws and of whole sets of aggregates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from marginweave.schemas.aggregates import Aggregates, Domain, Level, LevelNoise
from marginweave.tasks.aggregate.bounded_counts import BoundedCounts
from marginweave.tasks.aggregate.candidates import CandidateSet
from marginweave.tasks.aggregate.level import LevelMechanism
from marginweave.tasks.budget.zero_cells import most_passing
from marginweave.tasks.checkpoint.codecs import pack_arrays, unpack_arrays

_HEAD_BYTES = 1 << 14


@dataclass(frozen=True, kw_only=True)
class DrawnLevel:
    """A released level: its combinations, its noise, and at length 1 the released values of private columns by number."""

    level: Level
    noise: LevelNoise
    released: Mapping[int, tuple[str, ...]]


def pack_level(drawn: DrawnLevel) -> bytes:
    """Bytes of a released level."""
    level = drawn.level
    return pack_arrays(
        {"columns": level.columns, "values": level.values, "counts": level.counts},
        {"noise": asdict(drawn.noise), "released": {str(j): labels for j, labels in drawn.released.items()}},
    )


def level_bytes(
    bounded: BoundedCounts,
    candidates: CandidateSet,
    mechanism: LevelMechanism,
    most: int | None,
    discovered: Sequence[Sequence[str]],
) -> int:
    """As many bytes as `pack_level` makes of a level drawn for these candidates and these labels, or more. Private.

    At most `most` combinations are kept, or, without it: all cells that occur may survive, and as many that do not as are
    exceeded with probability 2^-60 (`most_passing`). What is larger all the same is written if the disk has room for it, and
    lost, with its charge, if it has not.
    """
    cells = candidates.total if most is None else min(candidates.total, most)
    if mechanism.occurring_only:
        cells = min(cells, bounded.occurring)
    elif mechanism.threshold >= 1:
        passing = most_passing(candidates.superset, mechanism.threshold, mechanism.deviation)
        cells = min(cells, passing + bounded.occurring)
    return _HEAD_BYTES + cells * 8 * (2 * candidates.length + 1) + len(json.dumps(discovered))


def unpack_level(payload: bytes) -> DrawnLevel:
    """The level that `pack_level` packed."""
    arrays, meta = unpack_arrays(payload)
    noise = LevelNoise(**meta["noise"])
    return DrawnLevel(
        level=Level(length=noise.length, **arrays),
        noise=noise,
        released={int(j): tuple(labels) for j, labels in meta["released"].items()},
    )


def pack_aggregates(aggregates: Aggregates) -> bytes:
    """Bytes of a set of aggregates."""
    arrays = {}
    for level in aggregates.levels:
        for name in ("columns", "values", "counts"):
            arrays[f"{level.length:03d}-{name}"] = getattr(level, name)
    return pack_arrays(
        arrays,
        {
            "names": aggregates.domain.names,
            "labels": aggregates.domain.labels,
            "record_count": aggregates.record_count,
            "record_deviation": aggregates.record_deviation,
            "noise": [asdict(noise) for noise in aggregates.noise],
        },
    )


def unpack_aggregates(payload: bytes) -> Aggregates:
    """The aggregates that `pack_aggregates` packed."""
    arrays, meta = unpack_arrays(payload)
    noise = tuple(LevelNoise(**item) for item in meta["noise"])
    parts = ("columns", "values", "counts")
    return Aggregates(
        domain=Domain(names=tuple(meta["names"]), labels=tuple(tuple(values) for values in meta["labels"])),
        record_count=meta["record_count"],
        record_deviation=meta["record_deviation"],
        levels=tuple(
            Level(length=n.length, **{part: arrays[f"{n.length:03d}-{part}"] for part in parts}) for n in noise
        ),
        noise=noise,
    )
