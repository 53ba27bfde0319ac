"""Bytes of measured marginals, of discovered values, and of whole sets of marginals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.schemas.released.aggregates import Domain
from marginweave.schemas.released.measurements import Clique, Marginals, Measurement
from marginweave.tasks.aggregate.marginals import cells
from marginweave.tasks.checkpoint.codecs import pack_arrays, unpack_arrays

_HEAD_BYTES = 1 << 14
_MARGINAL_BYTES = 1 << 10

Labels = Mapping[int, tuple[str, ...]]


def pack_measurements(measurements: Sequence[Measurement]) -> bytes:
    """Marginals of one draw."""
    return pack_arrays(*_parts({"drawn": measurements}))


def unpack_measurements(payload: bytes) -> tuple[Measurement, ...]:
    """The marginals that `pack_measurements` packed."""
    arrays, meta = unpack_arrays(payload)
    return _measurements(arrays, meta, "drawn")


def measurement_bytes(cliques: Sequence[Clique], sizes: Sequence[int]) -> int:
    """At least as many bytes as `pack_measurements` makes of these marginals."""
    return _HEAD_BYTES + sum(_MARGINAL_BYTES + 8 * (cells(clique, sizes) + len(clique)) for clique in cliques)


def pack_labels(labels: Labels) -> bytes:
    """Discovered values by attribute."""
    return pack_arrays({}, {"released": {str(j): values for j, values in labels.items()}})


def unpack_labels(payload: bytes) -> dict[int, tuple[str, ...]]:
    """The values that `pack_labels` packed."""
    return {int(j): tuple(values) for j, values in unpack_arrays(payload)[1]["released"].items()}


def pack_scores(scores: NDArray[np.float64]) -> bytes:
    """Noisy scores of pairs."""
    return pack_arrays({"scores": scores}, {})


def unpack_scores(payload: bytes) -> NDArray[np.float64]:
    """The scores that `pack_scores` packed."""
    scores: NDArray[np.float64] = unpack_arrays(payload)[0]["scores"]
    return scores


def pack_noise(noises: Sequence[NDArray[np.int64]]) -> bytes:
    """Noise that was drawn before its marginals are told, one array a marginal."""
    return pack_arrays({f"{i:05d}": noise for i, noise in enumerate(noises)}, {})


def unpack_noise(payload: bytes) -> list[NDArray[np.int64]]:
    """The noise that `pack_noise` packed."""
    arrays = unpack_arrays(payload)[0]
    return [arrays[name] for name in sorted(arrays)]


def pack_marginals(marginals: Marginals) -> bytes:
    """Bytes of a set of marginals."""
    arrays, meta = _parts(
        {"one-way": marginals.one_way, "larger": marginals.larger, "consistent": marginals.consistent}
    )
    domain = {"names": marginals.domain.names, "labels": marginals.domain.labels}
    return pack_arrays(arrays, {**meta, **domain})


def unpack_marginals(payload: bytes) -> Marginals:
    """The marginals that `pack_marginals` packed."""
    arrays, meta = unpack_arrays(payload)
    return Marginals(
        domain=Domain(names=tuple(meta["names"]), labels=tuple(tuple(values) for values in meta["labels"])),
        one_way=_measurements(arrays, meta, "one-way"),
        larger=_measurements(arrays, meta, "larger"),
        consistent=_measurements(arrays, meta, "consistent"),
    )


def _parts(groups: Mapping[str, Sequence[Measurement]]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays by group and number, and beside them what else a marginal has."""
    arrays = {f"{name}-{i:06d}": m.counts for name, group in groups.items() for i, m in enumerate(group)}
    return arrays, {
        name: [[m.attributes, m.deviation, m.complete, m.noise] for m in group] for name, group in groups.items()
    }


def _measurements(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], name: str) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(
            attributes=tuple(attributes),
            counts=arrays[f"{name}-{i:06d}"],
            deviation=deviation,
            complete=complete,
            noise=noise,
        )
        for i, (attributes, deviation, complete, noise) in enumerate(meta[name])
    )
