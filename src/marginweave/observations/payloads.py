"""Bytes, to be sealed, of draws, a round's choice and exact marginals, and of what is computed from draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Counts, Floats, Integers
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain, UndeclaredCells
from marginweave.domain.masks import Clique
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.linked import linked_fields, linked_of_fields
from marginweave.observations.tables import ChosenMisfit, Marginals, Observation
from marginweave.observations.uncounted import unpack_uncounted

Labels = Mapping[int, tuple[str, ...]]
Table = Integers
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
    """Return the bytes of a released level."""
    level = drawn.level
    arrays = {"columns": level.columns, "values": level.values, "counts": level.counts}
    released = {str(j): labels for j, labels in drawn.released.items()}
    return pack_arrays(arrays, {"noise": asdict(drawn.noise), "released": released})


def unpack_level(payload: bytes) -> DrawnLevel:
    """Return the level that `pack_level` packed."""
    arrays, meta = unpack_arrays(payload)
    noise = LevelNoise(**meta["noise"])
    return DrawnLevel(
        level=Level(length=noise.length, **arrays),
        noise=noise,
        released={int(j): tuple(labels) for j, labels in meta["released"].items()},
    )


def pack_aggregates(aggregates: Aggregates) -> bytes:
    """Return the bytes of a set of aggregates."""
    arrays = {}
    for level in aggregates.levels:
        for part in _LEVEL_PARTS:
            arrays[f"{level.length:03d}-{part}"] = getattr(level, part)
    meta = {
        **asdict(aggregates.domain),
        "record_count": aggregates.record_count,
        "record_deviation": aggregates.record_deviation,
        "noise": [asdict(noise) for noise in aggregates.noise],
    }
    return pack_arrays(arrays, meta)


def unpack_aggregates(payload: bytes) -> Aggregates:
    """Return the aggregates that `pack_aggregates` packed."""
    arrays, meta = unpack_arrays(payload)
    noise = tuple(LevelNoise(**item) for item in meta["noise"])

    def level(length: int) -> Level:
        parts = {part: arrays[f"{length:03d}-{part}"] for part in _LEVEL_PARTS}
        return Level(length=length, **parts)

    return Aggregates(
        domain=_domain(meta),
        record_count=meta["record_count"],
        record_deviation=meta["record_deviation"],
        levels=tuple(level(level_noise.length) for level_noise in noise),
        noise=noise,
    )


def pack_observations(observations: Sequence[Observation]) -> bytes:
    """Return the bytes of the marginals of one draw."""
    return pack_arrays(*_arrays_and_fields({"drawn": observations}))


def unpack_observations(payload: bytes) -> tuple[Observation, ...]:
    """Return the marginals that `pack_observations` packed."""
    arrays, meta = unpack_arrays(payload)
    return _observations(arrays, meta, "drawn")


def observation_bytes(tables: Sequence[Counts | Floats]) -> int:
    """Return at least as many bytes as `pack_observations` returns for marginals of these shapes."""
    most = _HEAD_BYTES
    for table in tables:
        numbers = table.size + table.ndim
        most += _MARGINAL_BYTES + 8 * numbers
    return most


def pack_labels(labels: Labels) -> bytes:
    """Return the bytes of discovered values, by attribute."""
    released = {str(j): values for j, values in labels.items()}
    return pack_arrays({}, {"released": released})


def unpack_labels(payload: bytes) -> dict[int, tuple[str, ...]]:
    """Return the values that `pack_labels` packed."""
    _, meta = unpack_arrays(payload)
    released = meta["released"]
    return {int(j): tuple(values) for j, values in released.items()}


def pack_marginals(marginals: Marginals) -> bytes:
    """Return the bytes of a set of marginals."""
    groups = {name.replace("_", "-"): getattr(marginals, name) for name in _MARGINAL_PARTS}
    arrays, fields = _arrays_and_fields(groups)
    meta = {**fields, **asdict(marginals.domain), "misfit": marginals.misfit}
    meta["is_combined"] = marginals.is_combined
    if marginals.linked:
        histograms, meta["linked"] = linked_fields(marginals.linked)
        arrays |= histograms
    return pack_arrays(arrays, meta)


def unpack_marginals(payload: bytes) -> Marginals:
    """Return the marginals that `pack_marginals` packed."""
    arrays, meta = unpack_arrays(payload)
    parts = {}
    for name in _MARGINAL_PARTS:
        parts[name] = _observations(arrays, meta, name.replace("_", "-"))
    misfit = meta["misfit"] and ChosenMisfit(*meta["misfit"])
    return Marginals(
        domain=_domain(meta),
        misfit=misfit,
        is_combined=meta["is_combined"],
        linked=linked_of_fields(arrays, meta.get("linked", ())),
        **parts,
    )


def _domain(meta: Mapping[str, Any]) -> Domain:
    """Return the domain among the packed fields."""
    uncounted = meta["uncounted"]
    undeclared = [UndeclaredCells(**cells) for cells in meta["undeclared"]]
    return Domain(
        names=tuple(meta["names"]),
        labels=tuple(tuple(values) for values in meta["labels"]),
        undeclared=tuple(undeclared),
        uncounted=None if uncounted is None else unpack_uncounted(uncounted),
    )


def _arrays_and_fields(
    groups: Mapping[str, Sequence[Observation]],
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return arrays by group and number of the marginal, and the other fields of each marginal.

    `coarse-000003` has the counts of marginal 3 of group `coarse`. `coarse-000003-level-5` has its coarsening of
    attribute 5: the code by which each of its codes is counted.
    """
    arrays: dict[str, NDArray[Any]] = {}
    coarsenings: dict[str, NDArray[Any]] = {}
    fields: dict[str, Any] = {}
    for name, group in groups.items():
        fields[name] = [[m.attributes, m.deviation, m.complete, m.noise] for m in group]
        for i, observation in enumerate(group):
            key = f"{name}-{i:06d}"
            arrays[key] = observation.counts
            for a, coarsening in observation.coarser.items():
                coarsenings[f"{key}-level-{a}"] = coarsening
    return arrays | coarsenings, fields


def _observations(
    arrays: Mapping[str, NDArray[Any]],
    meta: Mapping[str, Any],
    name: str,
) -> tuple[Observation, ...]:
    """Return the marginals of one group, from arrays and fields as `_arrays_and_fields` returns them."""
    observations = []
    for i, (attributes, deviation, complete, noise) in enumerate(meta[name]):
        key = f"{name}-{i:06d}"
        coarsenings = tuple(arrays.get(f"{key}-level-{a}") for a in attributes)
        has_levels = any(coarsening is not None for coarsening in coarsenings)
        observation = Observation(
            attributes=tuple(attributes),
            counts=arrays[key],
            deviation=deviation,
            complete=complete,
            noise=noise,
            levels=coarsenings if has_levels else (),
        )
        observations.append(observation)
    return tuple(observations)


def pack_pick(clique: Clique, pace: int) -> bytes:
    """Return the bytes of a chosen marginal, and of the pace of its round, with which the round resumes after a crash."""
    return pack_arrays({}, {"clique": clique, "pace": pace})


def unpack_pick(payload: bytes) -> tuple[Clique, int]:
    """Return the marginal and the pace that `pack_pick` packed."""
    _, meta = unpack_arrays(payload)
    return tuple(meta["clique"]), int(meta["pace"])


def pack_tables(tables: Mapping[Clique, Table]) -> bytes:
    """Return the bytes of exact marginals: one array of all cells, and which attributes and widths each has. Private."""
    widths = [width for table in tables.values() for width in table.shape]
    flat = [table.ravel() for table in tables.values()]
    arrays = {
        "lengths": np.array([len(clique) for clique in tables], np.int64),
        "attributes": np.array(list(chain.from_iterable(tables)), np.int64),
        "widths": np.array(widths, np.int64),
        "cells": np.concatenate(flat) if flat else np.zeros(0, np.int64),
    }
    return pack_arrays(arrays, {})


def unpack_tables(payload: bytes) -> dict[Clique, Table]:
    """Return the exact marginals that `pack_tables` packed, in their order. Private."""
    arrays, _ = unpack_arrays(payload)
    attributes = arrays["attributes"].tolist()
    widths = arrays["widths"].tolist()
    tables: dict[Clique, Table] = {}
    place = 0
    first = 0
    for length in arrays["lengths"].tolist():
        shape = widths[place : place + length]
        end = first + math.prod(shape)
        tables[tuple(attributes[place : place + length])] = arrays["cells"][first:end].reshape(
            shape
        )
        place += length
        first = end
    return tables
