"""What is sealed of draws: the bytes of their results, and the digest of what their mechanisms are given.

A digest is SHA-256 of an encoding that tells every input apart: lengths stand before or after what they count, numbers are
little-endian. How inputs are cut into pieces, how much memory and how many cores there are changes nothing. So a draw that is
repeated is given the same numbers, or is refused. Private: a digest is stored under a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Counts, Floats
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain, UndeclaredCells
from marginweave.domain.masks import Clique
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.tables import ChosenMisfit, Marginals, Observation
from marginweave.observations.uncounted import unpack_uncounted

Labels = Mapping[int, tuple[str, ...]]
Table = NDArray[np.int64]
_HEAD_BYTES = 1 << 14
_MARGINAL_BYTES = 1 << 10
_LEVEL_PARTS = ("columns", "values", "counts")
_MARGINAL_PARTS = ("one_way", "larger", "consistent", "pooled", "coarse")


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
    arrays = {
        f"{level.length:03d}-{part}": getattr(level, part) for level in aggregates.levels for part in _LEVEL_PARTS
    }
    meta = {
        **asdict(aggregates.domain),
        "record_count": aggregates.record_count,
        "record_deviation": aggregates.record_deviation,
        "noise": [asdict(noise) for noise in aggregates.noise],
    }
    return pack_arrays(arrays, meta)


def unpack_aggregates(payload: bytes) -> Aggregates:
    """The aggregates that `pack_aggregates` packed."""
    arrays, meta = unpack_arrays(payload)
    noise = tuple(LevelNoise(**item) for item in meta["noise"])
    return Aggregates(
        domain=_domain(meta),
        record_count=meta["record_count"],
        record_deviation=meta["record_deviation"],
        levels=tuple(
            Level(length=n.length, **{part: arrays[f"{n.length:03d}-{part}"] for part in _LEVEL_PARTS}) for n in noise
        ),
        noise=noise,
    )


def pack_observations(measurements: Sequence[Observation]) -> bytes:
    """Marginals of one draw."""
    return pack_arrays(*_parts({"drawn": measurements}))


def unpack_observations(payload: bytes) -> tuple[Observation, ...]:
    """The marginals that `pack_observations` packed."""
    arrays, meta = unpack_arrays(payload)
    return _measurements(arrays, meta, "drawn")


def observation_bytes(tables: Sequence[Counts | Floats]) -> int:
    """At least as many bytes as `pack_observations` makes of marginals of these shapes."""
    return _HEAD_BYTES + sum(_MARGINAL_BYTES + 8 * (table.size + table.ndim) for table in tables)


def pack_labels(labels: Labels) -> bytes:
    """Discovered values by attribute."""
    return pack_arrays({}, {"released": {str(j): values for j, values in labels.items()}})


def unpack_labels(payload: bytes) -> dict[int, tuple[str, ...]]:
    """The values that `pack_labels` packed."""
    return {int(j): tuple(values) for j, values in unpack_arrays(payload)[1]["released"].items()}


def pack_marginals(marginals: Marginals) -> bytes:
    """Bytes of a set of marginals."""
    arrays, meta = _parts({name.replace("_", "-"): getattr(marginals, name) for name in _MARGINAL_PARTS})
    return pack_arrays(arrays, {**meta, **asdict(marginals.domain), "misfit": marginals.misfit})


def unpack_marginals(payload: bytes) -> Marginals:
    """The marginals that `pack_marginals` packed."""
    arrays, meta = unpack_arrays(payload)
    parts = {name: _measurements(arrays, meta, name.replace("_", "-")) for name in _MARGINAL_PARTS}
    misfit = meta["misfit"] and ChosenMisfit(*meta["misfit"])
    return Marginals(domain=_domain(meta), misfit=misfit, **parts)


def _domain(meta: Mapping[str, Any]) -> Domain:
    return Domain(
        names=tuple(meta["names"]),
        labels=tuple(tuple(values) for values in meta["labels"]),
        undeclared=tuple(UndeclaredCells(**cells) for cells in meta["undeclared"]),
        uncounted=None if meta["uncounted"] is None else unpack_uncounted(meta["uncounted"]),
    )


def _parts(groups: Mapping[str, Sequence[Observation]]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays by group and number, the levels of an attribute behind its number, and beside them what else a marginal has."""
    numbered = [(f"{name}-{i:06d}", m) for name, group in groups.items() for i, m in enumerate(group)]
    arrays = {name: m.counts for name, m in numbered}
    arrays |= {f"{name}-level-{a}": level for name, m in numbered for a, level in m.coarser.items()}
    return arrays, {
        name: [[m.attributes, m.deviation, m.complete, m.noise] for m in group] for name, group in groups.items()
    }


def _measurements(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], name: str) -> tuple[Observation, ...]:
    return tuple(
        Observation(
            attributes=tuple(attributes),
            counts=arrays[f"{name}-{i:06d}"],
            deviation=deviation,
            complete=complete,
            noise=noise,
            levels=levels if any(level is not None for level in levels) else (),
        )
        for i, (attributes, deviation, complete, noise) in enumerate(meta[name])
        for levels in [tuple(arrays.get(f"{name}-{i:06d}-level-{a}") for a in attributes)]
    )


def pack_pick(clique: Clique, pace: int) -> bytes:
    """A chosen marginal, and the pace of its round, by which the round goes on after a crash."""
    return pack_arrays({}, {"clique": clique, "pace": pace})


def unpack_pick(payload: bytes) -> tuple[Clique, int]:
    """What `pack_pick` packed."""
    meta = unpack_arrays(payload)[1]
    return tuple(meta["clique"]), int(meta["pace"])


def pack_tables(tables: Mapping[Clique, Table]) -> bytes:
    """Exact marginals. Private."""
    arrays = {f"{i:06d}": table for i, table in enumerate(tables.values())}
    return pack_arrays(arrays, {"cliques": list(tables)})


def unpack_tables(payload: bytes) -> Iterator[tuple[Clique, Table]]:
    """The exact marginals that `pack_tables` packed, in their order. Private."""
    arrays, meta = unpack_arrays(payload)
    yield from ((tuple(clique), arrays[f"{i:06d}"]) for i, clique in enumerate(meta["cliques"]))
