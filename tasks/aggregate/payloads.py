"""Bytes of draws and of whole sets of aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from marginweave.schemas.released.aggregates import Aggregates, Domain, Level, LevelNoise
from marginweave.tasks.checkpoint.codecs import pack_arrays, unpack_arrays


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
