"""Softmax parameters of a mixture, and how they go down the slope."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marginweave.tasks.estimate.mixture.objective import Objective
from marginweave.tasks.estimate.mixture.settings import MixtureSettings
from marginweave.tasks.estimate.mixture.targets import F32, Floats, Layout

Array = NDArray[np.float64]

_MOMENTS = (0.9, 0.999)
_LEAST = 1e-8
_SLACK = 4.0


@dataclass(kw_only=True, eq=False)
class Adam:
    """Running means of slopes and of their squares (Kingma and Ba 2015, algorithm 1)."""

    mean: Floats
    square: Floats

    @classmethod
    def of(cls, values: Floats) -> Adam:
        """Before the first step of such values."""
        return cls(mean=np.zeros_like(values), square=np.zeros_like(values))

    def step(self, slope: Floats, rate: float, number: int) -> Floats:
        """How far step `number` (from 1) goes against the slope."""
        first, second = _MOMENTS
        self.mean += F32(1 - first) * (slope - self.mean)
        self.square += F32(1 - second) * (slope * slope - self.square)
        correction = F32(1 / math.sqrt(1 - second**number))
        length: Floats = F32(rate / (1 - first**number)) * self.mean / (np.sqrt(self.square) * correction + F32(_LEAST))
        return length


class Parameters:
    """Logits of the shares of every block and component, shape (components, cells of all blocks), and of the weights."""

    def __init__(self, layout: Layout, logits: Floats, mixing: Floats) -> None:
        self.logits, self.mixing, self._layout = logits, mixing, layout
        widths = [len(block.cells) for block in layout.blocks]
        self._starts = np.cumsum([0, *widths[:-1]])
        self._owner = np.repeat(np.arange(len(widths)), widths)
        ends = np.cumsum([0, *widths])
        self._blocks = [slice(a, b) for a, b in pairwise(ends)]

    def shares(self) -> tuple[Floats, Floats]:
        """Softmax of the logits, block by block, and of the weights' logits."""
        shares = np.exp(self.logits - np.maximum.reduceat(self.logits, self._starts, axis=1)[:, self._owner])
        shares /= np.add.reduceat(shares, self._starts, axis=1)[:, self._owner]
        weights = np.exp(self.mixing - self.mixing.max())
        return shares, weights / weights.sum()

    def doubled(self) -> tuple[Array, Array]:
        """The shares in double precision, and the weights, adding up to 1."""
        shares, weights = self.shares()
        return shares.astype(np.float64), normal(weights.astype(np.float64))

    def gradient(self, objective: Objective) -> tuple[Array, Floats, Floats]:
        """chi^2 by the number of features, and the derivatives of half of it by the logits."""
        shares, weights = self.shares()
        chi, by_columns, by_weights = objective.gradient(self._columns(shares), weights)
        by_shares = self._back(by_columns)
        by_logits = shares * by_shares
        by_logits -= shares * np.add.reduceat(by_logits, self._starts, axis=1)[:, self._owner]
        return chi, by_logits, weights * (by_weights - weights @ by_weights)

    def descend(self, objective: Objective, settings: MixtureSettings) -> None:
        """Adam with a rate that falls as a cosine, until the noise is reached or the iterations are over."""
        by_logits, by_mixing = Adam.of(self.logits), Adam.of(self.mixing)
        for step in range(1, settings.iterations + 1):
            chi, logits, mixing = self.gradient(objective)
            if _is_near(chi, settings.noise * objective.expected):
                break
            rate = settings.rate * 0.5 * (1 + math.cos(math.pi * step / settings.iterations))
            self.logits -= by_logits.step(logits, rate, step)
            self.mixing -= by_mixing.step(mixing, rate, step)

    def _columns(self, shares: Floats) -> Floats:
        columns = np.zeros((len(shares), self._layout.width), F32)
        for feature in self._layout.features:
            mine = shares[:, self._blocks[feature.block]]
            if _is_whole(feature.places, feature.width):
                columns[:, feature.columns] = mine
            else:
                np.add.at(columns.T, feature.start + feature.places, mine.T)
        return columns

    def _back(self, by_columns: Floats) -> Floats:
        by_shares = np.zeros(self.logits.shape, F32)
        for feature in self._layout.features:
            by_shares[:, self._blocks[feature.block]] += by_columns[:, feature.start + feature.places]
        return by_shares


def normal(shares: Array) -> Array:
    """Shares that add up to 1 along the last axis."""
    added: Array = shares / shares.sum(axis=-1, keepdims=True)
    return added


def _is_near(chi: Array, expected: Array) -> bool:
    """Whether chi^2 is down to its expectation in all, and by the number of features within four deviations of it."""
    return float(chi.sum()) <= float(expected.sum()) and bool((chi <= expected + _SLACK * np.sqrt(2 * expected)).all())


def _is_whole(places: NDArray[np.int64], width: int) -> bool:
    return len(places) == width and bool((places == np.arange(width)).all())
