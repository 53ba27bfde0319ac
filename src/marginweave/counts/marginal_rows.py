"""What the tasks of marginals share: rows over the released domain, earlier draws, and a draw that measures marginals."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from marginweave.base.arrays import Counts, Integers
from marginweave.base.digests import counts_digest, fractions_digest, text_digest
from marginweave.checkpoints.codecs import pack_codes, unpack_codes
from marginweave.configuration.marginals import MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.counts import discovery as domain
from marginweave.counts import payloads
from marginweave.counts.discovery import Compression
from marginweave.counts.marginals import measure_marginals, split_noise
from marginweave.counts.noise import MARGINALS, marginal_noise
from marginweave.counts.undeclared import declared_compression, ignored_attributes, measured_undeclared
from marginweave.domain.zeros import domain_sizes, one_way_sizes, structural_masks
from marginweave.draws.draw import draw_once
from marginweave.draws.protocol import PreparedDraw
from marginweave.draws.references import RunReference, StageResult
from marginweave.measurements.combinations import Domain
from marginweave.measurements.plan import DrawKind, PlannedDraw
from marginweave.measurements.tables import Clique, Measurement, StructuralZeros
from marginweave.mechanisms.randomness import DrawBits
from marginweave.prepare.codes import Codes, EncodedBlocks, code_type

Level = tuple[int, Integers]
"""An attribute, and the coarser code of each of its codes."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Encoded rows over the released domain, block by block; the missing value is the last code where there is one. Private.

    Behind the attributes are the indicators of sets. With a compression there are none: rare values are merged, and behind the
    attributes are their `levels`, each a function of the merged code of one. A pass over the blocks can be repeated.
    """

    encoded: EncodedBlocks
    private: Mapping[int, tuple[str, ...]]
    sizes: tuple[int, ...]
    compression: Compression | None = None
    levels: Sequence[Level] = ()

    def __iter__(self) -> Iterator[tuple[Codes, ...]]:
        for table in self.encoded:
            codes = domain.recode(table, self.private).codes
            attributes = codes if self.compression is None else codes[: len(self.compression.codes)]
            merged = codes if self.compression is None else domain.compress_codes(attributes, self.compression)
            yield (*merged, *(coarse.astype(code_type(len(coarse)))[merged[a]] for a, coarse in self.levels))


def released_rows(reference: RunReference, encoded: StageResult) -> Rows:
    """The rows over the released domain."""
    labels = released_labels(reference)
    private = {j: labels[j] for j, attribute in enumerate(reference.configuration.attributes) if attribute.private}
    sizes = one_way_sizes(reference.counted, labels)
    return Rows(encoded=open_encoded(reference, encoded), private=private, sizes=sizes)


def compressed_rows(reference: RunReference, encoded: StageResult, drawn: OneWay) -> Rows:
    """The rows with rare values merged, and at their levels."""
    rows = released_rows(reference, encoded)
    return replace(rows, compression=drawn.compression, sizes=drawn.sizes, levels=drawn.levels)


def by_level(
    drawn: Sequence[Measurement], levels: Sequence[Level], attributes: int
) -> tuple[tuple[Measurement, ...], tuple[Measurement, ...]]:
    """Drawn marginals of attributes alone, and those with levels, in the order and with the codes of their attributes."""
    coarse = []
    for m in (m for m in drawn if m.attributes[-1] >= attributes):
        of = [levels[a - attributes] if a >= attributes else (a, None) for a in m.attributes]
        order = sorted(range(len(of)), key=lambda axis: of[axis][0])
        coarse.append(
            replace(
                m,
                attributes=tuple(of[axis][0] for axis in order),
                counts=np.ascontiguousarray(m.counts.transpose(order), np.int64),
                levels=tuple(of[axis][1] for axis in order),
            )
        )
    return tuple(m for m in drawn if m.attributes[-1] < attributes), tuple(coarse)


@dataclass(frozen=True, kw_only=True, eq=False)
class OneWay:
    """The committed marginals of single attributes, the released domain, and what follows from both. DP: post-processing.

    `counted` is the configuration of tables, `configuration` that of estimates: the last code of attributes that are
    `ignored` is in tables and not in estimates (`UndeclaredCells`). Larger tables decide anew, once they are drawn.
    `of_sets` are the marginals of `indicated_sets`.
    """

    measured: tuple[Measurement, ...]
    of_sets: tuple[Measurement, ...]
    domain: Domain
    counted: Configuration
    configuration: Configuration
    ignored: frozenset[int]

    @property
    def settings(self) -> MarginalSettings:
        """The settings of marginals."""
        return self.counted.marginal_settings

    @cached_property
    def estimated(self) -> tuple[Measurement, ...]:
        """The marginals without codes that are not kept."""
        return tuple(m.without_last(self.ignored) for m in self.measured)

    @cached_property
    def masks(self) -> tuple[StructuralZeros, ...]:
        """Structural zeros over the released domain as it is estimated."""
        return structural_masks(self.configuration, self.domain.labels)

    @cached_property
    def estimated_compression(self) -> Compression:
        """Which rare values are merged, without codes that are not kept."""
        return self._declared.with_last(self._last_counts(self._coded - self.ignored))

    @cached_property
    def compression(self) -> Compression:
        """Which rare values are merged as larger tables are counted."""
        return self._declared.with_last(self._last_counts(self._coded))

    @cached_property
    def _declared(self) -> Compression:
        return declared_compression(self.counted, self.domain.labels, self.measured)

    @cached_property
    def _coded(self) -> frozenset[int]:
        """The attributes with a code for cells that are not as declared."""
        return ignored_attributes(self.counted.with_undeclared(()), self.domain.labels, self.measured)

    def _last_counts(self, attributes: Collection[int]) -> dict[int, float]:
        return {a: float(self.measured[a].counts[-1]) for a in attributes}

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The levels that larger marginals are counted at (`BinLevels`), over merged codes."""
        attributes = self.counted.attributes
        levels = self.settings.levels(domain_sizes(attributes, self.domain.labels), attributes)
        return levels.codes(self.compression.codes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Codes of each attribute with rare values merged, and of each level."""
        return (*self.compression.sizes, *(int(coarse.max()) + 1 for _, coarse in self.levels))

    @property
    def declared_sizes(self) -> tuple[int, ...]:
        """The same without codes of cells that are not as declared: what is planned, chosen and shared goes by these."""
        return self._sizes_without(self._coded)

    @property
    def estimated_sizes(self) -> tuple[int, ...]:
        """The same without codes that are not kept."""
        return self._sizes_without(self.ignored)

    def _sizes_without(self, attributes: Collection[int]) -> tuple[int, ...]:
        places = (*range(len(self.measured)), *(a for a, _ in self.levels))
        return tuple(size - (a in attributes) for a, size in zip(places, self.sizes, strict=True))


def drawn_one_way(reference: RunReference) -> OneWay:
    """The draw of single attributes, and what it says of cells that are not as declared. DP: post-processing."""
    drawn = payloads.unpack_measurements(draw_once(reference, reference.plan.draw(DrawKind.ONE_WAY))[0])
    resolved, labels = reference.resolved, released_labels(reference)
    measured, of_sets = drawn[: len(labels)], drawn[len(labels) :]
    found = Domain(
        names=tuple(attribute.name for attribute in resolved.attributes),
        labels=labels,
        undeclared=measured_undeclared(resolved, drawn),
    )
    estimated = resolved.with_undeclared(found.with_undeclared)
    return OneWay(
        measured=measured,
        of_sets=of_sets,
        domain=found,
        counted=reference.counted,
        configuration=estimated,
        ignored=ignored_attributes(estimated, labels, measured),
    )


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
    """A draw that measures these marginals, with `exact` counts; all that can fail without noise is done before the charge.

    They share its noise by the cells that they have with `sizes` codes of each attribute.
    """
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
        size=payloads.measurement_bytes(exact),
        unkeyed=(lambda: pack_codes(noise.presample([t.size for t in exact], parts))) if noise.takes_no_key else None,
    )


def open_encoded(reference: RunReference, encoded: StageResult) -> EncodedBlocks:
    """The encoded table, block by block. Private."""
    return EncodedBlocks(reference.load_blocks(encoded))
