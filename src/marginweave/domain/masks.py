"""Cells that no record can be in: structural zeros, over the codes of a few attributes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.errors import InputError

Clique = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    """Which combinations of a few attributes a record may have: structural zeros are False. Public.

    `allowed` has one axis for each of `attributes` (which increase), over the kinds of their codes: `kinds` gives each code its
    kind; without it, each code is one. Raises InputError where these do not fit together or nothing is allowed.
    """

    attributes: Clique
    allowed: NDArray[np.bool_]
    kinds: tuple[NDArray[np.int64], ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many codes each attribute has."""
        return tuple(map(len, self.kinds)) or self.allowed.shape

    def kinds_of(self, codes: Sequence[Any]) -> tuple[Any, ...]:
        """The kinds of codes of each attribute."""
        return tuple(own[code] for own, code in zip(self.kinds, codes, strict=True)) if self.kinds else tuple(codes)

    def kinds_along(self, attribute: int) -> NDArray[np.int64]:
        """The kind of each code of an attribute."""
        axis = self.attributes.index(attribute)
        return self.kinds[axis] if self.kinds else np.arange(self.allowed.shape[axis])

    def table(self, codes: Sequence[NDArray[np.integer]] | None = None) -> NDArray[np.bool_]:
        """What is allowed over these codes of each attribute, one axis each; over all without them."""
        chosen = [np.arange(size) for size in self.sizes] if codes is None else codes
        return self.allowed[np.ix_(*self.kinds_of(chosen))]

    def forbidden(self, codes: Sequence[NDArray[np.integer]]) -> Iterator[tuple[int, ...]]:
        """The combinations of these codes of each attribute that no record has."""
        places = zip(codes, np.nonzero(~self.table(codes)), strict=True)
        return zip(*(own[place].tolist() for own, place in places), strict=True)

    def allow(self, codes: Sequence[Any]) -> NDArray[np.bool_]:
        """Whether a record may have these codes, an array of each attribute or one code for all."""
        return np.asarray(self.allowed[self.kinds_of(codes)])

    def project(self, attributes: Clique) -> NDArray[np.bool_]:
        """Which kinds of codes of some of its attributes it allows beside some kinds of its others."""
        others = tuple(axis for axis, a in enumerate(self.attributes) if a not in attributes)
        return np.asarray(self.allowed.any(axis=others))

    def patterns(self, attribute: int) -> list[bytes]:
        """What it allows beside each code of an attribute: the same where it tells codes not apart."""
        rows = [row.tobytes() for row in np.moveaxis(self.allowed, self.attributes.index(attribute), 0)]
        return [rows[kind] for kind in self.kinds_along(attribute).tolist()]

    def over(self, codes: Sequence[NDArray[np.integer]]) -> Mask:
        """The same over some codes of each attribute, one for each new code."""
        return replace(self, kinds=self.kinds_of(codes))

    def __post_init__(self) -> None:
        check_attributes(self.attributes, self.allowed.shape)
        if not self.attributes or not self.allowed.any():
            raise InputError(f"mask of attributes {self.attributes} must allow something")


@dataclass(frozen=True, kw_only=True, eq=False)
class NeverTogether:
    """Codes of many attributes, one each, that no record has all together; `sizes` are their numbers of codes. Public.

    A `Mask` of the same would have too many cells.
    """

    attributes: Clique
    codes: tuple[int, ...]
    sizes: tuple[int, ...]

    def table(self) -> NDArray[np.bool_]:
        """What is allowed over all codes of each attribute, one axis each."""
        allowed = np.ones(self.sizes, np.bool_)
        allowed[self.codes] = False
        return allowed

    def forbidden(self, codes: Sequence[NDArray[np.integer]]) -> Iterator[tuple[int, ...]]:
        """As `Mask.forbidden`."""
        if all(never in own for never, own in zip(self.codes, codes, strict=True)):
            yield self.codes

    def allow(self, codes: Sequence[Any]) -> NDArray[np.bool_]:
        """As `Mask.allow`."""
        found = np.zeros((), np.bool_)
        for code, never in zip(codes, self.codes, strict=True):
            found = found | (code != never)
        return np.asarray(found)

    def kinds_along(self, attribute: int) -> NDArray[np.int64]:
        """The kind of each code of an attribute: 1 of the one that is never beside those of the others, else 0."""
        axis = self.attributes.index(attribute)
        return (np.arange(self.sizes[axis]) == self.codes[axis]).astype(np.int64)

    def project(self, attributes: Clique) -> NDArray[np.bool_]:
        """As `Mask.project`."""
        allowed = np.ones((2,) * len(attributes), np.bool_)
        allowed[(1,) * len(attributes)] = len(attributes) < len(self.attributes)
        return allowed

    def patterns(self, attribute: int) -> list[bytes]:
        """As `Mask.patterns`."""
        return [kind.tobytes() for kind in self.kinds_along(attribute)]

    def over(self, codes: Sequence[NDArray[np.integer]]) -> NeverTogether:
        """As `Mask.over`, where its codes are among them."""
        places = zip(codes, self.codes, strict=True)
        kept = tuple(int(np.flatnonzero(old == never)[0]) for old, never in places)
        return replace(self, codes=kept, sizes=tuple(map(len, codes)))


StructuralZeros = Mask | NeverTogether


def check_attributes(attributes: Clique, shape: tuple[int, ...]) -> None:
    """Raise InputError unless `attributes` increase and are as many as the axes of `shape`."""
    if list(attributes) != sorted(set(attributes)) or min(attributes, default=0) < 0:
        raise InputError(f"attributes {attributes} must be increasing column numbers")
    if len(shape) != len(attributes):
        raise InputError(f"counts of shape {shape} must have one axis for each of the attributes {attributes}")


def allowed_cells(attributes: Clique, shape: Sequence[int], masks: Sequence[StructuralZeros]) -> NDArray[np.bool_]:
    """The cells of a marginal that no mask inside its attributes forbids. DP: arithmetic on public masks."""
    allowed = np.ones(shape, np.bool_)
    for mask in masks:
        if set(mask.attributes) <= set(attributes):
            kept = zip(attributes, shape, strict=True)
            allowed &= mask.table().reshape([size if a in mask.attributes else 1 for a, size in kept])
    return allowed


def alike(attribute: int, size: int, masks: Sequence[StructuralZeros]) -> NDArray[np.int64]:
    """A number for each code of an attribute, the same for codes that no mask tells apart; shape (size,)."""
    patterns = [mask.patterns(attribute) for mask in masks if attribute in mask.attributes]
    numbers: defaultdict[tuple[bytes, ...], int] = defaultdict(lambda: len(numbers))
    return np.array([numbers[tuple(p[value] for p in patterns)] for value in range(size)], np.int64)
