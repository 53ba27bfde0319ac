"""What the tasks of marginals read: rows over the released domain, rare values merged or not, and earlier draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from marginweave.schemas.draws import DrawKind
from marginweave.schemas.released.measurements import Mask
from marginweave.tasks.aggregate.domain import (
    Compression,
    compress_codes,
    domain_sizes,
    recode,
    released_compression,
    structural_masks,
)
from marginweave.tasks.aggregate.payloads import unpack_labels, unpack_measurements
from marginweave.tasks.draw import draw_once
from marginweave.tasks.encode.codes import Codes, EncodedBlocks
from marginweave.tasks.encode.task import open_encoded
from marginweave.tasks.references import RunReference, StageResult


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded rows over the released domain, block by block; the missing value is the last code where there is one. Private.

    With a compression rare values are merged. A pass over the blocks can be repeated.
    """

    encoded: EncodedBlocks
    private: Mapping[int, tuple[str, ...]]
    sizes: tuple[int, ...]
    compression: Compression | None = None

    def __iter__(self) -> Iterator[tuple[Codes, ...]]:
        for table in self.encoded:
            codes = recode(table, self.private).codes
            yield codes if self.compression is None else compress_codes(codes, self.compression)


def released_rows(reference: RunReference, encoded: StageResult) -> Rows:
    """The rows over the released domain."""
    labels = released_labels(reference)
    private = {j: labels[j] for j, attribute in enumerate(reference.configuration.attributes) if attribute.private}
    sizes = domain_sizes(reference.configuration.attributes, labels)
    return Rows(encoded=open_encoded(reference, encoded), private=private, sizes=sizes)


def compressed_rows(reference: RunReference, encoded: StageResult) -> Rows:
    """The rows with rare values merged."""
    compression = drawn_compression(reference)
    return replace(released_rows(reference, encoded), compression=compression, sizes=compression.sizes)


def drawn_compression(reference: RunReference) -> Compression:
    """Which rare values are merged, by the committed single attributes. DP: post-processing."""
    one_way = unpack_measurements(draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[0])
    return released_compression(one_way, reference.configuration.marginal_settings, drawn_masks(reference))


def drawn_masks(reference: RunReference) -> tuple[Mask, ...]:
    """Structural zeros over the released domain. DP: arithmetic on public and released labels."""
    return structural_masks(reference.resolved, released_labels(reference))


def released_labels(reference: RunReference) -> tuple[tuple[str, ...], ...]:
    """The released domain: public labels, and the discovered ones."""
    configuration = reference.resolved
    found: dict[int, tuple[str, ...]] = {}
    if configuration.private_columns:
        found = unpack_labels(draw_once(reference, reference.plan.draw(DrawKind.VALUES))[0])
    return tuple(found.get(j, attribute.labels) for j, attribute in enumerate(configuration.attributes))
