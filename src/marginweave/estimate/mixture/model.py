"""A mixture of products: its blocks of attributes, its marginals and probabilities, and its bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numba import njit
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.domain.masks import Clique, Mask, NeverTogether, StructuralZeros, allowed_cells
from marginweave.estimate.mixture.blocks import Block, tie


@njit(cache=True, nogil=True)
def mixed_points(weights: Floats, factors: Floats, places: Integers) -> Floats:  # pragma: no cover - compiled
    """sum_k weights[k] prod_j factors[places[i, j], k] for each i, shape (n,).

    What a combination has in common with the one before it, from the first factor on, is not multiplied again: combinations in
    canonical order cost little more than one product of vectors each. DP: post-processing.

    Args:
        weights: shape (components,).
        factors: shape (rows, components).
        places: rows of the factors of each combination, at least one, shape (n, factors).
    """
    last = places.shape[1] - 1
    products = np.empty((last + 1, len(weights)))
    products[0] = weights
    found = np.empty(len(places))
    for i in range(len(places)):
        for j in range(shared_factors(places, i), last):
            for k in range(len(weights)):
                products[j + 1, k] = products[j, k] * factors[places[i, j], k]
        found[i] = np.dot(products[last], factors[places[i, last]])
    return found


@njit(cache=True, nogil=True)
def shared_factors(places: NDArray[np.integer], i: int) -> int:  # pragma: no cover - compiled
    """How many factors from the first on cell i has in common with the one before it, the last one not counted."""
    first = 0
    while i > 0 and first < places.shape[1] - 1 and places[i, first] == places[i - 1, first]:
        first += 1
    return first


_FOLDED = 1 << 22


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """p(x) = sum_k weights[k] prod_b shares[b][k, x_b]: `components` products over `blocks` of attributes.

    Single attributes are blocks, and those that few combinations tie together. `shares[b]` has shape (components, cells of
    block b), each row adding up to 1; a component lies in one of the `boxes` (`Ties`). `masks` are structural zeros that none
    of these keeps: there p is a little off, and what is made of the model has to leave them out; those `inside` hold, those
    of single `codes` hold after `conditioned`. `total` is the number of records. Each of `fits` fits has as many
    of the components, one fit after the other.
    """

    weights: Floats
    shares: tuple[Floats, ...]
    blocks: tuple[Block, ...]
    boxes: Flags
    sizes: tuple[int, ...]
    total: float
    masks: tuple[StructuralZeros, ...] = ()
    inside: tuple[StructuralZeros, ...] = ()
    codes: tuple[Mask, ...] = ()
    fits: int = 1

    @classmethod
    def of(
        cls,
        weights: Floats,
        shares: Sequence[Floats],
        sizes: Sequence[int],
        total: float,
        masks: Sequence[StructuralZeros],
    ) -> Mixture:
        """The model of these shares, one array for each block of `tie`, under all `masks` there are."""
        together = [mask for mask in masks if len(mask.attributes) > 1]
        ties = tie(sizes, together)
        return cls(
            weights=weights,
            shares=tuple(shares),
            blocks=ties.blocks,
            boxes=ties.boxes,
            sizes=tuple(sizes),
            total=float(total),
            masks=ties.across,
            inside=tuple(mask for mask in together if not any(mask is other for other in ties.across)),
            codes=tuple(mask for mask in masks if isinstance(mask, Mask) and len(mask.attributes) == 1),
        )

    @property
    def components(self) -> int:
        """How many products are mixed."""
        return len(self.weights)

    def marginal(self, attributes: Sequence[int]) -> Floats:
        """Expected counts over any distinct attributes, in their order: shape as `sizes` say, sum `total`.

        Cells that structural zeros of several attributes forbid are 0. DP: post-processing.

        Raises:
            InputError: an attribute twice, or one that is not there.
        """
        if len(set(attributes)) < len(attributes) or not set(attributes) <= set(range(len(self.sizes))):
            raise InputError(f"attributes {tuple(attributes)} must be distinct column numbers")
        parts = self._parts(attributes)
        order = [a for mine, _ in parts for a in mine]
        table = _mixed(self.weights, [factor for _, factor in parts]).reshape([self.sizes[a] for a in order])
        found = self._allowed(np.transpose(table, [order.index(a) for a in attributes]), attributes)
        return np.ascontiguousarray(found * (self.total / found.sum()))

    def marginals(self, cliques: Sequence[Clique]) -> Iterator[Floats]:
        """`marginal` of each, flat; without ties those in a row that differ in the last attribute alone are computed together.

        DP: post-processing.
        """
        longest = max(map(len, cliques), default=0)
        if any(len(mask.attributes) <= longest for mask in self.masks) or len(self.blocks) < len(self.sizes):
            yield from (self.marginal(clique).ravel() for clique in cliques)
            return
        of = {block.attributes[0]: shares for block, shares in zip(self.blocks, self.shares, strict=True)}
        for first, group in itertools.groupby(cliques, key=lambda clique: clique[:-1]):
            last = [of[clique[-1]] for clique in group]
            table = _mixed(self.weights, [*(of[a] for a in first), np.concatenate(last, axis=1)])
            ends = np.cumsum([shares.shape[1] for shares in last])
            for found in np.split(table.reshape(-1, ends[-1]), ends[:-1], axis=1):
                yield found.ravel() * (self.total / found.sum())

    def probabilities(self, attributes: Sequence[int], codes: Sequence[Integers]) -> Floats:
        """Probability p of each of some combinations, shape (n,), without the table of all; fastest where they are in order.

        `codes` are those of each attribute, shape (n,). `masks` across blocks change nothing here: they are not in p. DP:
        post-processing.
        """
        of = dict(zip(attributes, codes, strict=True))
        factors, places, begin = [], [], 0
        for mine, factor in self._parts(attributes):
            cells = np.ravel_multi_index([of[a] for a in mine], [self.sizes[a] for a in mine])
            there, place = np.unique(cells, return_inverse=True)
            factors.append(factor.T[there])
            places.append(place + begin)
            begin += len(there)
        return mixed_points(self.weights, np.concatenate(factors), np.stack(places, axis=1))

    def conditioned(self, given: Mapping[int, Floats] = MappingProxyType({})) -> Mixture:
        """The model given that no record has a code that a mask of one attribute forbids, and what else is `given`.

        Of the records with code c of attribute a those are kept that have a share `given[a][c]`. In each component its
        records go to the other codes, in proportion, and components weigh as much as is kept of them: what is left is the
        model's distribution under these conditions, exactly. Where it has nothing that a mask leaves, all that is left has the
        same share. DP: post-processing.

        Raises:
            InputError: such a mask leaves nothing that the others allow, or the conditions leave no record.
        """
        weights, shares = self.weights, list(self.shares)
        masks = [(mask.attributes[0], mask.table()) for mask in self.codes]
        masked = {attribute for attribute, _ in masks} - given.keys()
        for attribute, share in (*masks, *given.items()):
            b = next(i for i, block in enumerate(self.blocks) if attribute in block.attributes)
            place = self.blocks[b].attributes.index(attribute)
            kept = shares[b] * share[self.blocks[b].cells[:, place]]
            if attribute in masked and not kept.any():  # nothing was counted of what is left: each of it alike
                kept = np.broadcast_to(share[self.blocks[b].cells[:, place]].astype(np.float64), shares[b].shape)
            if not kept.any() and not given:
                raise InputError(f"mask of attribute {attribute} must leave something that the others allow")
            sums = kept.sum(axis=1, keepdims=True)
            weights = weights * sums[:, 0]
            shares[b] = np.divide(kept, sums, out=kept.copy(), where=sums > 0)
        if not weights.any():
            raise InputError("the conditions must leave some records of the model; ask for fewer at once")
        return replace(self, weights=weights / weights.sum(), shares=tuple(shares), codes=())

    def _parts(self, attributes: Sequence[int]) -> list[tuple[list[int], Floats]]:
        """The attributes of each block that are among these, and what it says of them, shape (components, cells)."""
        parts = []
        for block, shares in zip(self.blocks, self.shares, strict=True):
            if mine := [a for a in block.attributes if a in attributes]:
                width = math.prod(self.sizes[a] for a in mine)
                parts.append((mine, project(shares, block.places(mine, self.sizes), width)))
        return parts

    def _allowed(self, table: Floats, attributes: Sequence[int]) -> Floats:
        kept = np.transpose(
            allowed_cells(tuple(sorted(attributes)), [self.sizes[a] for a in sorted(attributes)], self.masks),
            [sorted(attributes).index(a) for a in attributes],
        )
        return np.where(kept, table, 0.0)


def is_whole(places: Integers, width: int) -> bool:
    """Whether the places are all there are, in order."""
    return len(places) == width and bool((places == np.arange(width)).all())


def project(shares: Floats, places: Integers, width: int) -> Floats:
    """Sums of the shares that fall into the same place, shape (components, width)."""
    if is_whole(places, width):
        return shares
    summed = np.zeros((len(shares), width))
    _add_up(shares, places, summed)
    return summed


@njit(cache=True, nogil=True)
def _add_up(shares: Floats, places: Integers, summed: Floats) -> None:  # pragma: no cover - compiled
    """Add the shares of each component, in a row, to those that have the same place."""
    for k in range(len(shares)):
        for c in range(len(places)):
            summed[k, places[c]] += shares[k, c]


def _mixed(weights: Floats, factors: Sequence[Floats]) -> Floats:
    """sum_k w_k f_1[k] x f_2[k] x …, flat; in parts of the components, so that memory is bounded."""
    if not factors:
        return np.ones(1)
    *first, last = factors
    if not first:
        return weights @ last
    cells = math.prod(factor.shape[1] for factor in first)
    step = max(1, _FOLDED // cells)
    found = np.zeros((cells, last.shape[1]))
    for k in range(0, len(weights), step):
        found += fold([weights[k : k + step, None], *(factor[k : k + step] for factor in first)]).T @ last[k : k + step]
    return found.ravel()


def fold(factors: Sequence[Floats]) -> Floats:
    """Products of the columns of all factors, component by component: shape (components, product of the widths)."""
    folded = factors[0]
    for factor in factors[1:]:
        folded = (folded[:, :, None] * factor[:, None, :]).reshape(len(folded), -1)
    return folded


def pack_mixture(model: Mixture) -> bytes:
    """Weights and shares in float64, as they were fitted, with all masks: the model again, bit for bit."""
    masks = [*model.masks, *model.inside, *model.codes]
    shares = {f"shares-{b:05d}": shares for b, shares in enumerate(model.shares)}
    zeros: dict[str, np.ndarray] = {}
    for m, mask in enumerate(masks):
        if isinstance(mask, Mask):
            zeros[f"mask-{m:05d}"] = mask.allowed
            zeros |= {f"kinds-{m:05d}-{axis:05d}": own for axis, own in enumerate(mask.kinds)}
        else:
            zeros[f"never-{m:05d}"] = np.array([mask.codes, mask.sizes], np.int64)
    return pack_arrays(
        {"weights": model.weights, **shares, **zeros},
        {
            "sizes": model.sizes,
            "total": model.total,
            "masks": [mask.attributes for mask in masks],
            "fits": model.fits,
        },
    )


def unpack_mixture(payload: bytes) -> Mixture:
    """The model that `pack_mixture` packed."""
    arrays, meta = unpack_arrays(payload)
    masks = [_unpacked_mask(arrays, m, tuple(attributes)) for m, attributes in enumerate(meta["masks"])]
    shares = [arrays[name] for name in sorted(arrays) if name.startswith("shares-")]
    model = Mixture.of(arrays["weights"], shares, meta["sizes"], meta["total"], masks)
    return replace(model, fits=meta.get("fits", 1))


def _unpacked_mask(arrays: Mapping[str, np.ndarray], number: int, attributes: Clique) -> StructuralZeros:
    never = arrays.get(f"never-{number:05d}")
    if never is not None:
        codes, sizes = never.tolist()
        return NeverTogether(attributes=attributes, codes=tuple(codes), sizes=tuple(sizes))
    kinds = tuple(arrays[name] for name in sorted(arrays) if name.startswith(f"kinds-{number:05d}-"))
    return Mask(attributes=attributes, allowed=arrays[f"mask-{number:05d}"], kinds=kinds)
