"""What the tasks of marginals share: rows over the released domain, earlier draws, and a draw that measures marginals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from marginweave.schemas.arrays import Counts
from marginweave.schemas.draws import DrawKind, PlannedDraw
from marginweave.schemas.released.measurements import Clique, Mask
from marginweave.tasks.aggregate import domain, payloads
from marginweave.tasks.aggregate.domain import Compression
from marginweave.tasks.aggregate.marginals import measure_marginals, split_noise
from marginweave.tasks.aggregate.noise import MARGINALS, marginal_noise
from marginweave.tasks.checkpoint.codecs import pack_codes, unpack_codes
from marginweave.tasks.checkpoint.draws import PreparedDraw
from marginweave.tasks.digests import counts_digest, fractions_digest, text_digest
from marginweave.tasks.draw import draw_once
from marginweave.tasks.encode.codes import Codes, EncodedBlocks
from marginweave.tasks.encode.task import open_encoded
from marginweave.tasks.mechanisms.randomness import DrawBits
from marginweave.tasks.references import RunReference, StageResult
from marginweave.tasks.structure.zeros import domain_sizes, structural_masks


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
            codes = domain.recode(table, self.private).codes
            yield codes if self.compression is None else domain.compress_codes(codes, self.compression)


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
    one_way = payloads.unpack_measurements(draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[0])
    return domain.released_compression(one_way, reference.configuration.marginal_settings, drawn_masks(reference))


def drawn_masks(reference: RunReference) -> tuple[Mask, ...]:
    """Structural zeros over the released domain. DP: arithmetic on public and released labels."""
    return structural_masks(reference.resolved, released_labels(reference))


def released_labels(reference: RunReference) -> tuple[tuple[str, ...], ...]:
    """The released domain: public labels, and the discovered ones."""
    configuration = reference.resolved
    found: dict[int, tuple[str, ...]] = {}
    if configuration.private_columns:
        found = payloads.unpack_labels(draw_once(reference, reference.plan.draw(DrawKind.VALUES))[0])
    return tuple(found.get(j, attribute.labels) for j, attribute in enumerate(configuration.attributes))


def prepared_marginals(
    reference: RunReference, draw: PlannedDraw, cliques: Sequence[Clique], sizes: Sequence[int], exact: Sequence[Counts]
) -> PreparedDraw:
    """A draw that measures these marginals, with `exact` counts; all that can fail without noise is done before the charge."""
    allocation = reference.configuration.marginal_settings.allocation
    noise = marginal_noise(draw, reference.configuration.stability)
    parts = split_noise(noise, draw.parameter, cliques, sizes, allocation)
    used = dict(noise.terms(parts))
    if draw.kind in MARGINALS:  # the marginals of a round are no term of its draws: they follow from earlier ones
        used["noise"] = fractions_digest(parts)

    def make(bits: DrawBits, sealed: bytes) -> bytes:
        presampled = unpack_codes(sealed) if noise.takes_no_key else None
        return payloads.pack_measurements(list(measure_marginals(noise, exact, cliques, parts, bits, presampled)))

    return PreparedDraw(
        inputs=text_digest([str(cliques), counts_digest(exact)]),
        used=used,
        make=make,
        size=payloads.measurement_bytes(cliques, sizes),
        unkeyed=(lambda: pack_codes(noise.presample([t.size for t in exact], parts))) if noise.takes_no_key else None,
    )
