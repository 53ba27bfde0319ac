"""Mixtures of products: blocks of attributes, marginals and probabilities, and serialization."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Floats, Integers
from marginweave.base.compiled import kernel
from marginweave.base.errors import InputError
from marginweave.checkpoints.codecs import pack_arrays, unpack_arrays
from marginweave.domain.masks import Clique, Mask, NeverTogether, StructuralZeros, allowed_cells
from marginweave.estimate.mixture.blocks import Block, tie


@kernel
def mixed_points(
    weights: Floats,
    factors: Floats,
    places: Integers,
) -> Floats:  # pragma: no cover - compiled
    """Return sum_k weights[k] prod_j factors[places[i, j], k] for each i, shape (n,).

    The first factors that a combination shares with the previous one are not multiplied again: combinations in canonical order
    cost little more than one product of vectors each. DP: post-processing.

    Args:
        weights: shape (components,).
        factors: shape (rows, components).
        places: rows of the factors of each combination, at least one, shape (n, factors).
    """
    last = places.shape[1] - 1
    products = np.empty((last + 1, len(weights)))
    for k in range(len(weights)):
        products[0, k] = weights[k]
    points = np.empty(len(places))
    for i in range(len(places)):
        for j in range(shared_factors(places, i), last):
            for k in range(len(weights)):
                products[j + 1, k] = products[j, k] * factors[places[i, j], k]
        points[i] = np.dot(products[last], factors[places[i, last]])
    return points


@kernel
def shared_factors(places: NDArray[np.integer], i: int) -> int:  # pragma: no cover - compiled
    """Return how many first factors cell i has in common with the previous cell, without the last factor."""
    shared = 0
    while i > 0 and shared < places.shape[1] - 1 and places[i, shared] == places[i - 1, shared]:
        shared += 1
    return shared


_FOLDED = 1 << 22  # most entries of a folded table in memory


@dataclass(frozen=True, kw_only=True, eq=False)
class Mixture:
    """The model p(x) = sum_k weights[k] prod_b shares[b][k, x_b]: `components` products over `blocks` of attributes.

    Single attributes are blocks, and those that few combinations tie together. `shares[b]` has shape (components, cells of
    block b), each row adding up to 1; a component lies in one of the `boxes` (`Ties`). `total` is the number of records. Each
    of `fits` fits has as many of the components, one fit after the other.

    `masks` are structural zeros that neither blocks nor boxes keep: there p is a little off, and what is made of the model has
    to leave them out. Those `inside` hold; those of single `codes` hold after `conditioned`. `tied` are all of several
    attributes, in the order that decides which of them are kept.
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
    tied: tuple[StructuralZeros, ...] = ()
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
        """Return the model of these shares, one array for each block of `tie`, under all `masks` there are."""
        single = [mask for mask in masks if len(mask.attributes) == 1]
        wide = [mask for mask in masks if len(mask.attributes) > 1]
        ties = tie(sizes, wide)
        across = {id(mask) for mask in ties.across}
        return cls(
            weights=weights,
            shares=tuple(shares),
            blocks=ties.blocks,
            boxes=ties.boxes,
            sizes=tuple(sizes),
            total=float(total),
            masks=ties.across,
            inside=tuple(mask for mask in wide if id(mask) not in across),
            codes=tuple(mask for mask in single if isinstance(mask, Mask)),
            tied=tuple(wide),
        )

    @property
    def components(self) -> int:
        """Number of products that are mixed."""
        return len(self.weights)

    def block_of(self, attribute: int) -> tuple[int, Block]:
        """Return the number of the block of an attribute, and the block."""
        numbers = [b for b, block in enumerate(self.blocks) if attribute in block.attributes]
        return numbers[0], self.blocks[numbers[0]]

    def marginal(self, attributes: Sequence[int]) -> Floats:
        """Return expected counts over any distinct attributes, in their order: shape as `sizes` say, sum `total`.

        Cells that structural zeros of several attributes forbid are 0. DP: post-processing.

        Raises:
            InputError: an attribute twice, or one that is not there.
        """
        distinct = set(attributes)
        columns = set(range(len(self.sizes)))
        if len(distinct) < len(attributes) or not distinct <= columns:
            raise InputError(f"attributes {tuple(attributes)} must be distinct column numbers")
        parts = self._parts(attributes)
        order = [a for part_attributes, _ in parts for a in part_attributes]
        flat = _mixed(self.weights, [factor for _, factor in parts])
        table = flat.reshape([self.sizes[a] for a in order])
        table = np.transpose(table, [order.index(a) for a in attributes])
        allowed = self._allowed(table, attributes)
        return np.ascontiguousarray(allowed * (self.total / allowed.sum()))

    def marginals(self, cliques: Sequence[Clique]) -> Iterator[Floats]:
        """Yield the `marginal` of each clique, flat.

        Without ties, consecutive cliques that differ only in the last attribute are computed together. DP: post-processing.
        """
        longest = max(map(len, cliques), default=0)
        is_masked = any(len(mask.attributes) <= longest for mask in self.masks)
        if is_masked or len(self.blocks) < len(self.sizes):
            for clique in cliques:
                yield self.marginal(clique).ravel()
            return
        single = [block.attributes[0] for block in self.blocks]
        shares_of = dict(zip(single, self.shares, strict=True))
        for prefix, group in itertools.groupby(cliques, key=lambda clique: clique[:-1]):
            first = [shares_of[a] for a in prefix]
            last = [shares_of[clique[-1]] for clique in group]
            side_by_side = np.concatenate(last, axis=1)
            table = _mixed(self.weights, [*first, side_by_side])
            ends = np.cumsum([shares.shape[1] for shares in last])
            tables = np.split(
                table.reshape(-1, ends[-1]),
                ends[:-1],
                axis=1,
            )
            for counts in tables:
                yield counts.ravel() * (self.total / counts.sum())

    def probabilities(
        self,
        attributes: Sequence[int],
        codes: Sequence[Integers],
    ) -> Floats:
        """Return the probability p of each combination, shape (n,), without the table of all; fastest if they are in order.

        `codes` are those of each attribute, shape (n,). `masks` across blocks change nothing here: they are not in p. DP:
        post-processing.
        """
        codes_of = dict(zip(attributes, codes, strict=True))
        factors = []
        places = []
        begin = 0
        for part_attributes, factor in self._parts(attributes):
            part_codes = [codes_of[a] for a in part_attributes]
            shape = [self.sizes[a] for a in part_attributes]
            cells = np.ravel_multi_index(part_codes, shape)
            distinct, place = np.unique(cells, return_inverse=True)
            factors.append(factor.T[distinct])
            places.append(place + begin)
            begin += len(distinct)
        return mixed_points(
            self.weights,
            np.concatenate(factors),
            np.stack(places, axis=1),
        )

    def conditioned(self, conditions: Mapping[int, Floats] = MappingProxyType({})) -> Mixture:
        """Return the model given that no record has a code that a mask of one attribute forbids, and given `conditions`.

        Of the records with code c of attribute a, the share `conditions[a][c]` remains. In each component the records of an
        attribute are the remaining ones, in proportion, and components weigh as much as remains of them. The result is the
        model's distribution under these conditions, exactly. Where the model has no records of the codes that a mask allows,
        these codes get equal shares. DP: post-processing.

        Raises:
            InputError: such a mask leaves nothing that the others allow, or the conditions leave no record.
        """
        weights = self.weights
        shares = list(self.shares)
        masks = [(mask.attributes[0], mask.table()) for mask in self.codes]
        masked = {attribute for attribute, _ in masks} - conditions.keys()
        for attribute, code_shares in (*masks, *conditions.items()):
            b, block = self.block_of(attribute)
            place = block.attributes.index(attribute)
            cell_shares = code_shares[block.cells[:, place]]
            remaining = shares[b] * cell_shares
            # no records of these codes were counted: equal shares
            if attribute in masked and not remaining.any():
                remaining = np.broadcast_to(cell_shares.astype(np.float64), shares[b].shape)
            if not remaining.any() and not conditions:
                raise InputError(
                    f"mask of attribute {attribute} must leave something that the others allow"
                )
            sums = remaining.sum(axis=1, keepdims=True)
            weights = weights * sums[:, 0]
            shares[b] = np.divide(
                remaining,
                sums,
                out=remaining.copy(),
                where=sums > 0,
            )
        if not weights.any():
            raise InputError(
                "no record of the model meets these conditions: rules exclude them, or next to nobody was counted; "
                "ask for fewer at once"
            )
        return replace(
            self,
            weights=weights / weights.sum(),
            shares=tuple(shares),
            codes=(),
        )

    def _parts(self, attributes: Sequence[int]) -> list[tuple[list[int], Floats]]:
        """Return, for each block with some of these attributes, which ones and their shares, shape (components, cells)."""
        parts = []
        for block, shares in zip(self.blocks, self.shares, strict=True):
            part_attributes = [a for a in block.attributes if a in attributes]
            if part_attributes:
                width = math.prod(self.sizes[a] for a in part_attributes)
                places = block.places(part_attributes, self.sizes)
                parts.append((part_attributes, project(shares, places, width)))
        return parts

    def _allowed(
        self,
        table: Floats,
        attributes: Sequence[int],
    ) -> Floats:
        """Return the table with 0 in cells that `masks` forbid."""
        increasing = sorted(attributes)
        shape = [self.sizes[a] for a in increasing]
        allowed = allowed_cells(tuple(increasing), shape, self.masks)
        axes = [increasing.index(a) for a in attributes]
        return np.where(np.transpose(allowed, axes), table, 0.0)


def is_identity(places: Integers, width: int) -> bool:
    """Return whether the places are 0 to `width` - 1, in order."""
    if len(places) != width:
        return False
    return bool((places == np.arange(width)).all())


def project(
    shares: Floats,
    places: Integers,
    width: int,
) -> Floats:
    """Sum the shares that fall into the same place, shape (components, width)."""
    if is_identity(places, width):
        return shares
    summed = np.zeros((len(shares), width))
    _add_up(shares, places, summed)
    return summed


@kernel
def _add_up(
    shares: Floats,
    places: Integers,
    summed: Floats,
) -> None:  # pragma: no cover - compiled
    """Add the shares of each component, a row, to the cells at their places."""
    for k in range(len(shares)):
        for c in range(len(places)):
            summed[k, places[c]] += shares[k, c]


def _mixed(weights: Floats, factors: Sequence[Floats]) -> Floats:
    """Return sum_k w_k f_1[k] x f_2[k] x …, flat; computed for some components at a time, so that memory is bounded."""
    if not factors:
        return np.ones(1)
    *first, last = factors
    if not first:
        return weights @ last
    cells = math.prod(factor.shape[1] for factor in first)
    step = max(1, _FOLDED // cells)
    table = np.zeros((cells, last.shape[1]))
    for begin in range(0, len(weights), step):
        components = slice(begin, begin + step)
        factors_of_components = [factor[components] for factor in first]
        products = fold([weights[components, None], *factors_of_components])
        table += products.T @ last[components]
    return table.ravel()


def fold(factors: Sequence[Floats]) -> Floats:
    """Multiply the columns of all factors, component by component: shape (components, product of the widths)."""
    folded = factors[0]
    for factor in factors[1:]:
        products = folded[:, :, None] * factor[:, None, :]
        folded = products.reshape(len(folded), -1)
    return folded


def pack_mixture(model: Mixture) -> bytes:
    """Return weights and shares in float64, as they were fitted, and all masks, as bytes that restore the model bit for bit."""
    masks = [*model.tied, *model.codes]
    arrays: dict[str, np.ndarray] = {"weights": model.weights}
    for b, shares in enumerate(model.shares):
        arrays[f"shares-{b:05d}"] = shares
    for m, mask in enumerate(masks):
        if isinstance(mask, Mask):
            arrays[f"mask-{m:05d}"] = mask.allowed
            for axis, kinds in enumerate(mask.kinds):
                arrays[f"kinds-{m:05d}-{axis:05d}"] = kinds
        else:
            arrays[f"never-{m:05d}"] = np.array([mask.codes, mask.sizes], np.int64)
    return pack_arrays(
        arrays,
        {
            "sizes": model.sizes,
            "total": model.total,
            "masks": [mask.attributes for mask in masks],
            "fits": model.fits,
        },
    )


def unpack_mixture(payload: bytes) -> Mixture:
    """Restore the model that `pack_mixture` packed."""
    arrays, meta = unpack_arrays(payload)
    masks = []
    for m, attributes in enumerate(meta["masks"]):
        masks.append(_unpacked_mask(arrays, m, tuple(attributes)))
    names = [name for name in sorted(arrays) if name.startswith("shares-")]
    shares = [arrays[name] for name in names]
    model = Mixture.of(
        arrays["weights"],
        shares,
        meta["sizes"],
        meta["total"],
        masks,
    )
    return replace(model, fits=meta.get("fits", 1))


def _unpacked_mask(
    arrays: Mapping[str, np.ndarray],
    number: int,
    attributes: Clique,
) -> StructuralZeros:
    """Restore mask `number` from the arrays of `pack_mixture`."""
    never = arrays.get(f"never-{number:05d}")
    if never is not None:
        codes, sizes = never.tolist()
        return NeverTogether(
            attributes=attributes,
            codes=tuple(codes),
            sizes=tuple(sizes),
        )
    prefix = f"kinds-{number:05d}-"
    names = [name for name in sorted(arrays) if name.startswith(prefix)]
    kinds = tuple(arrays[name] for name in names)
    return Mask(attributes=attributes, allowed=arrays[f"mask-{number:05d}"], kinds=kinds)
