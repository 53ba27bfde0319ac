"""Cells that no record can be in: structural zeros, over the codes of a few attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marginweave.base.arrays import Flags, Integers
from marginweave.base.errors import InputError

Clique = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Mask:
    """The combinations of a few attributes that a record may have: structural zeros are False. Public.

    `allowed` has one axis for each of `attributes` (which increase), over the kinds of their codes: `kinds` gives each code its
    kind; without it, each code is a kind. Raises InputError where these do not agree or nothing is allowed.
    """

    attributes: Clique
    allowed: Flags
    kinds: tuple[Integers, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of codes of each attribute."""
        return tuple(map(len, self.kinds)) or self.allowed.shape

    def kinds_of(self, codes: Sequence[Any]) -> tuple[Any, ...]:
        """Return the kinds of codes of each attribute."""
        if not self.kinds:
            return tuple(codes)
        pairs = zip(self.kinds, codes, strict=True)
        return tuple(kind_of_code[code] for kind_of_code, code in pairs)

    def kinds_along(self, attribute: int) -> Integers:
        """Return the kind of each code of an attribute."""
        axis = self.attributes.index(attribute)
        if self.kinds:
            return self.kinds[axis]
        return np.arange(self.allowed.shape[axis])

    def table(self, codes: Sequence[NDArray[np.integer]] | None = None) -> Flags:
        """Return what is allowed over these codes of each attribute, one axis each; over all without them."""
        if codes is None:
            codes = [np.arange(size) for size in self.sizes]
        kinds = self.kinds_of(codes)
        return self.allowed[np.ix_(*kinds)]

    def forbidden(self, codes: Sequence[NDArray[np.integer]]) -> Iterator[tuple[int, ...]]:
        """Return the combinations of these codes of each attribute that no record has."""
        is_forbidden = ~self.table(codes)
        columns = []
        for attribute_codes, places in zip(codes, np.nonzero(is_forbidden), strict=True):
            forbidden_codes = attribute_codes[places]
            columns.append(forbidden_codes.tolist())
        return zip(*columns, strict=True)

    def allow(self, codes: Sequence[Any]) -> Flags:
        """Return whether a record may have these codes, an array of each attribute or one code for all."""
        kinds = self.kinds_of(codes)
        return np.asarray(self.allowed[kinds])

    def project(self, attributes: Clique) -> Flags:
        """Return which kinds of codes of some attributes it allows with some kinds of its other attributes."""
        omitted = tuple(axis for axis, a in enumerate(self.attributes) if a not in attributes)
        return np.asarray(self.allowed.any(axis=omitted))

    def patterns(self, attribute: int) -> list[bytes]:
        """Return what it allows with each code of an attribute: equal bytes for codes that it does not tell apart."""
        axis = self.attributes.index(attribute)
        rows_of_kinds = np.moveaxis(self.allowed, axis, 0)
        pattern_of_kind = [row.tobytes() for row in rows_of_kinds]
        kinds = self.kinds_along(attribute)
        return [pattern_of_kind[kind] for kind in kinds.tolist()]

    def over(self, codes: Sequence[NDArray[np.integer]]) -> Mask:
        """Return the mask over some codes of each attribute, one for each new code."""
        return replace(self, kinds=self.kinds_of(codes))

    def __post_init__(self) -> None:
        check_attributes(self.attributes, self.allowed.shape)
        if not self.attributes or not self.allowed.any():
            raise InputError(f"mask of attributes {self.attributes} must allow something")


@dataclass(frozen=True, kw_only=True, eq=False)
class NeverTogether:
    """Codes of many attributes, one each, that no record has all at once; `sizes` are their numbers of codes. Public.

    As a `Mask` it would have too many cells.
    """

    attributes: Clique
    codes: tuple[int, ...]
    sizes: tuple[int, ...]

    def table(self) -> Flags:
        """Return what is allowed over all codes of each attribute, one axis each."""
        allowed = np.ones(self.sizes, np.bool_)
        allowed[self.codes] = False
        return allowed

    def forbidden(self, codes: Sequence[NDArray[np.integer]]) -> Iterator[tuple[int, ...]]:
        """Yield the forbidden combination if it is among these codes of each attribute, as `Mask.forbidden` does."""
        pairs = zip(self.codes, codes, strict=True)
        if all(never in attribute_codes for never, attribute_codes in pairs):
            yield self.codes

    def allow(self, codes: Sequence[Any]) -> Flags:
        """Return whether a record may have these codes, as `Mask.allow` does."""
        allowed = np.zeros((), np.bool_)
        for code, never in zip(codes, self.codes, strict=True):
            is_other = code != never
            allowed = allowed | is_other
        return np.asarray(allowed)

    def kinds_along(self, attribute: int) -> Integers:
        """Return the kind of each code of an attribute: 1 for its forbidden code, else 0."""
        axis = self.attributes.index(attribute)
        codes = np.arange(self.sizes[axis])
        is_forbidden = codes == self.codes[axis]
        return is_forbidden.astype(np.int64)

    def project(self, attributes: Clique) -> Flags:
        """Return which kinds of codes of some attributes it allows, as `Mask.project` does."""
        kinds = len(attributes) * (2,)
        forbidden_kinds = len(attributes) * (1,)
        has_others = len(attributes) < len(self.attributes)
        allowed = np.ones(kinds, np.bool_)
        allowed[forbidden_kinds] = has_others
        return allowed

    def patterns(self, attribute: int) -> list[bytes]:
        """Return what it allows with each code of an attribute, as `Mask.patterns` does."""
        kinds = self.kinds_along(attribute)
        return [kind.tobytes() for kind in kinds]

    def over(self, codes: Sequence[NDArray[np.integer]]) -> NeverTogether:
        """Return it over some codes of each attribute, as `Mask.over` does; its codes must be among them."""
        new_codes = []
        sizes = []
        for attribute_codes, never in zip(codes, self.codes, strict=True):
            places = np.flatnonzero(attribute_codes == never)
            new_codes.append(int(places[0]))
            sizes.append(len(attribute_codes))
        return replace(self, codes=tuple(new_codes), sizes=tuple(sizes))


StructuralZeros = Mask | NeverTogether


def check_attributes(attributes: Clique, shape: tuple[int, ...]) -> None:
    """Raise InputError unless `attributes` increase and are as many as the axes of `shape`."""
    increasing = sorted(set(attributes))
    least = min(attributes, default=0)
    if list(attributes) != increasing or least < 0:
        raise InputError(f"attributes {attributes} must be increasing column numbers")
    if len(shape) != len(attributes):
        raise InputError(
            f"counts of shape {shape} must have one axis for each of the attributes {attributes}"
        )


def allowed_cells(
    attributes: Clique,
    shape: Sequence[int],
    masks: Sequence[StructuralZeros],
) -> Flags:
    """Return the cells of a marginal that no mask inside its attributes forbids. DP: arithmetic on public masks."""
    allowed = np.ones(shape, np.bool_)
    for mask in masks:
        is_inside = set(mask.attributes) <= set(attributes)
        if is_inside:
            axes = zip(attributes, shape, strict=True)
            mask_shape = [size if a in mask.attributes else 1 for a, size in axes]
            table = mask.table()
            allowed &= table.reshape(mask_shape)
    return allowed


def alike(
    attribute: int,
    size: int,
    masks: Sequence[StructuralZeros],
) -> Integers:
    """Return a number for each code of an attribute, the same for codes that no mask tells apart; shape (size,)."""
    patterns = [mask.patterns(attribute) for mask in masks if attribute in mask.attributes]
    numbers: dict[tuple[bytes, ...], int] = {}
    number_of_code = np.zeros(size, np.int64)
    for value in range(size):
        pattern = tuple(mask_patterns[value] for mask_patterns in patterns)
        number_of_code[value] = numbers.setdefault(pattern, len(numbers))
    return number_of_code
