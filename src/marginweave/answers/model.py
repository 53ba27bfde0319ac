"""Answers from the fitted mixture, for what no measured set holds: with the spread of drawn models and a misfit.

Of a query with weights w_a of the codes of its columns, p_a the shares of these codes in the model, the part that is left when
all weights are centered, (w_a - mean w_a), is what a set of columns has in common beyond its parts. A table whose cells deviate
from the model by n sqrt(product of p_a) times noise of variance tau^2 changes that part by a variance of n^2 tau^2 product of
V_a, V_a = sum p_a (w_a - mean w_a)^2; so misfit adds it for each set of columns that no measured set holds, and parts of
different sets are added as if independent. tau^2 is found from measured sets that a fit did not see (`misfit`).

Sets that a release has chosen by how much they depend were farther from a model than those that it has not chosen, so that
left-out ones say as much of these, or too much. Rounds (AIM: McKenna, Mullins, Sheldon and Miklau 2022) choose by the distance
D of a set from the model less the noise N of measuring it, sqrt(2/pi) sigma for each of its cells, both times its number of
columns k. A set that was not chosen has D k <= N k + (D' - N') k' with the last chosen one, so that it is no farther than its
own noise and what those that were chosen last were beyond theirs. These are left out of a fit, all together, as they were
chosen by one model, and D' is found beside it. With S_a the sum of sqrt(p_a), a table with misfit tau is n tau sqrt(2/pi)
times the product of S_a away, which makes tau of D. What random contrasts of these sets say is taken where it is more.

A model gives values to records whose cells are not as declared, where that code is ignored: of a column to U records, of
which the root mean square is known. A query weighs some of the M records, of n, that meet its conditions without that on the
column. How many of the U are among these is U M / n where they are spread over the table. Where they are all in one place, it
has that place in a share M / n of questions, and none of them in the others: U sqrt(M / n) as a root mean square over
questions. With A the answer, B that without the condition, and w the weight of the code, the model is off by A - w B times the
part of M that these records are, if they are spread over what is left as other records are. The square of that is added as a
variance: an interval covers as often as it says on average over questions, as it does of misfit, where the records are so many
or fewer.
DP: post-processing of released counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError, Weights
from marginweave.answers.tables import FEWEST, Part, PartTables
from marginweave.base.arrays import Floats, Integers
from marginweave.base.progress import told_as
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.mixture.draws import expected_counts
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.mixture.targets import F32, Float32s
from marginweave.observations.means import beyond_noise
from marginweave.observations.tables import Observation

WIDER = 1.25
"""Refitted from the model, answers vary by .8 to 1 of what they do from new starts (docs/inference.md)."""
DRAWS = 50
_FOLDS = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """A model, and others of the same blocks that are drawn around it, in arrays of all.

    `weights` has shape (models, components), `shares` for each block (cells, models * components).
    """

    blocks: tuple[Block, ...]
    weights: Float32s
    shares: tuple[Float32s, ...]

    @classmethod
    def of(cls, model: Mixture, drawn: Sequence[Mixture]) -> Stack:
        """Those of all, in half the digits."""
        models = [model, *drawn]
        return cls(
            blocks=model.blocks,
            weights=np.stack([one.weights * one.total for one in models]).astype(F32),
            shares=tuple(
                np.concatenate([s.T for s in own], axis=1, dtype=F32)
                for own in zip(*(m.shares for m in models), strict=True)
            ),
        )

    def solve(self, weights: Weights) -> Estimates:
        """What the model answers to queries, and the covariance of that from the noise of what it was fitted to."""
        found = self.expected(weights)
        around = found[1:] - found[0]
        return Estimates(values=found[0], covariance=WIDER**2 * (around.T @ around) / len(around))

    def expected(self, weights: Weights) -> Floats:
        """What each model answers to queries, shape (models, queries)."""
        product = self.weights.reshape(1, -1)
        for block, shares in zip(self.blocks, self.shares, strict=True):
            mine = [(place, a) for place, a in enumerate(block.attributes) if a in weights]
            if mine:
                of_cells = np.prod([weights[a][:, block.cells[:, place]] for place, a in mine], axis=0)
                some = np.flatnonzero(of_cells.any(axis=0))
                product = product * (of_cells[:, some].astype(F32) @ shares[some])
        found: Floats = product.reshape(-1, *self.weights.shape).sum(axis=2, dtype=np.float64).T
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSpread:
    """How far a model may be off: models of a `stack` drawn around it, and `misfit`, tau^2 as the function has it."""

    stack: Stack
    misfit: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelAnswers:
    """Estimates of queries from a model, a stand-in for `LeastSquares` where that has none.

    `model` is conditioned, and so are those of the `spread`, which takes long and is found when it is asked for. `codes` has
    the model's code of each code of an attribute; the last one may stand for cells that estimates ignore, of which the model
    has no records. `recorded` are the sets of attributes of structural zeros that hold in records alone: the model has other
    cells there than were counted, and how many is not known. `inside` are the sets of attributes that were measured; they are
    `chosen` where the release has looked for those that depend most. `ignored` has, by axis, how many records have a cell that
    estimates ignore, as a root mean square.
    """

    measured: PartTables
    model: Mixture
    codes: Sequence[Integers]
    inside: Sequence[frozenset[int]]
    chosen: bool
    spread: Callable[[], ModelSpread]
    ignored: Mapping[int, float] = field(default_factory=dict)
    recorded: Collection[Clique] = ()

    def solve(self, weights: Weights) -> Estimates:
        """Estimates of queries, at least one, and their covariance. Raises NotMeasuredError where merged values differ."""
        own = self._merged_weights(weights)
        found = self.spread().stack.solve(own)
        covariance = found.covariance + self._misfit(own, len(found.values))
        for axis in sorted(self.ignored.keys() & weights.keys()):
            moved = self._moved(own, axis, weights[axis][:, -1])
            covariance += np.outer(moved, moved)
        return replace(found, covariance=covariance)

    def _moved(self, weights: Weights, axis: int, of_code: Floats) -> Floats:
        """By how much queries are off because an axis has no code for some records, which they weigh by `of_code`."""
        everybody = np.ones_like(weights[axis])
        asked = self._fitted.expected(weights)[0]
        beside = self._fitted.expected({**weights, axis: everybody})[0]
        records = self._fitted.expected({**_weighed(weights), axis: everybody})[0]
        lost = self.ignored[axis] / np.sqrt(np.maximum(records, FEWEST) * max(self.model.total, FEWEST))
        found: Floats = np.minimum(lost, 1.0) * (asked - of_code * beside)
        return found

    def expected(self, weights: Weights) -> Floats:
        """The estimates alone, at once; of values that the model has together each has its share of their measured count."""
        own = dict[int, Floats]()
        for axis, vectors in weights.items():
            part = Part(axis=axis, blocks=self.codes[axis])
            counts = np.maximum(self.single_axes.counts(axis), FEWEST)
            own[axis] = (part.sums(vectors * counts) / part.sums(counts))[:, : self.model.sizes[axis]]
        found: Floats = self._fitted.expected(own)[0]
        return found

    def knows(self, axes: Collection[int]) -> bool:
        """Whether it is known how far the model may be off on these axes: each set of some was measured, or is told of."""
        if not self.fits(axes):
            return False
        lengths = range(len(axes), 1, -1)  # of the longest it is often known without drawn models that nothing tells
        some = (frozenset(s) for length in lengths for s in itertools.combinations(axes, length))
        return all(self.is_inside(one) or self.knows_length(len(one)) for one in some)

    def is_inside(self, axes: frozenset[int]) -> bool:
        """Whether a measured table has these axes."""
        return any(one.issuperset(axes) for one in self.inside)

    def fits(self, axes: Collection[int]) -> bool:
        """Whether the model may have of these axes all that was counted."""
        return all(set(own).isdisjoint(axes) for own in self.recorded)

    def knows_length(self, length: int) -> bool:
        """Whether sets of so many axes that were left out of a fit tell how far off it is on those that were not measured.

        They do where sets were chosen by how much they depend: those that were not chosen depend less. No table tells of more
        axes than it has.
        """
        longest = max(len(table.parts) for table in self.measured.tables)
        return self.chosen and length <= longest and f"{length}" in self.spread().misfit["outside"]

    @cached_property
    def _fitted(self) -> Stack:
        return Stack.of(self.model, [])

    @cached_property
    def single_axes(self) -> LeastSquares:
        """What answers of single axes: their measured tables."""
        return LeastSquares(self.measured)

    def finest_parts(self, axes: Iterable[int]) -> list[Part]:
        """The values of these axes that the model tells apart."""
        return [Part(axis=axis, blocks=self.codes[axis]) for axis in axes]

    def _merged_weights(self, weights: Weights) -> dict[int, Floats]:
        found = dict[int, Floats]()
        for axis, vectors in weights.items():
            part = Part(axis=axis, blocks=self.codes[axis])
            values = part.values(vectors)
            if not np.array_equal(values[:, part.blocks], vectors):
                raise NotMeasuredError(merged=True)
            found[axis] = values[:, : self.model.sizes[axis]]
        return found

    def _misfit(self, weights: Weights, queries: int) -> Floats:
        means, spreads, roots = dict[int, Floats](), dict[int, Floats](), dict[int, tuple[int, float]]()
        for axis, vectors in weights.items():
            shares = self.model.marginal((axis,)) / self.model.total
            means[axis] = vectors @ shares
            centered = vectors - means[axis][:, None]
            spreads[axis] = (centered * shares) @ centered.T
            roots[axis] = len(shares), float(np.sqrt(np.maximum(shares, 0)).sum())
        found, misfits = np.zeros((queries, queries)), self.spread().misfit
        for length in range(2, len(weights) + 1):
            for columns in itertools.combinations(sorted(weights), length):
                known = self.is_inside(frozenset(columns))
                tau = _of_order(misfits["inside" if known else "outside"], length)
                if not known and "last" in misfits:
                    tau = max(tau, _of_distance(misfits["last"], [roots[a] for a in columns]))
                part = np.full((queries, queries), self.model.total**2 * tau)
                for axis in weights:
                    part *= spreads[axis] if axis in columns else np.outer(means[axis], means[axis])
                found += part
        return found


def _weighed(weights: Weights) -> dict[int, Floats]:
    """The codes that queries weigh; of an axis with numbers those that any of them does, as a number may be 0."""
    found = dict[int, Floats]()
    for axis, vectors in weights.items():
        chosen = vectors != 0
        has_numbers = bool((vectors[chosen] != 1).any())
        found[axis] = (chosen | chosen.any(axis=0) if has_numbers else chosen).astype(np.float64)
    return found


def _of_order(misfit: Mapping[str, float], length: int) -> float:
    """tau^2 of so many columns, or of the nearest number of them that was measured."""
    return misfit[min(misfit, key=lambda own: abs(int(own) - length))] if misfit else 0.0


def _of_distance(last: Mapping[str, float], columns: Sequence[tuple[int, float]]) -> float:
    """tau^2 of a set that rounds did not choose, by the number of values and the sum of roots of shares of its columns."""
    cells, product = math.prod(values for values, _ in columns), math.prod(roots for _, roots in columns)
    beyond = last["beyond"] / len(columns)
    return ((last["sigma"] * cells + beyond) / product) ** 2


def misfit(
    measurements: Sequence[Observation],
    model: Mixture,
    stack: Stack,
    settings: MixtureSynthesis,
    generator: np.random.Generator,  # post-processing
    last: Collection[Clique] = (),
) -> dict[str, dict[str, float]]:
    """tau^2 by the number of columns, of sets of columns that were not measured (`outside`), and of those that were (`inside`).

    Outside: larger tables are left out of a fit, those of `last`, or without any a quarter of all at a time, and random
    contrasts of the left-out tables, less the model, are taken of each set of columns that a left-out table alone holds.
    Inside: the same of measured tables less the `model`, which follows their noise. `_tau` makes of them one number. Of those
    of `last` there is as well how far they were, as `_of_distance` takes it. DP: post-processing.
    """
    masks, large = [*model.masks, *model.inside, *model.codes], [m for m in measurements if len(m.attributes) > 1]
    distances = dict[str, dict[str, float]]()
    order, outside = generator.permutation(len(large)), dict[int, list[Floats]]()
    folds = [[large[i] for i in order[fold::_FOLDS]] for fold in range(min(_FOLDS, len(large)))]
    folds = [[m for m in large if m.attributes in last]] if last else folds
    for number, left_out in enumerate(folds, 1):
        kept = [m for m in measurements if not any(m is other for other in left_out)]
        if not set(range(len(model.sizes))) <= {a for m in kept for a in m.attributes}:
            continue
        with told_as(f"fit {number} of {len(folds)} without a part of the tables"):
            fitted = fit_mixture(kept, model.sizes, model.total, masks, settings)
        if last and _whole(left_out):
            distances["last"] = _distance(_whole(left_out), fitted)
        for m in _whole(left_out)[: _SETS // len(folds)]:
            for length, contrasts in _contrasts(m, fitted, kept, stack, generator):
                outside.setdefault(length, []).append(contrasts)
    inside = dict[int, list[Floats]]()
    for m in _whole([large[i] for i in order])[:_SETS]:
        for length, contrasts in _contrasts(m, model, (), stack, generator):
            inside.setdefault(length, []).append(contrasts)
    return {
        "outside": {f"{length}": _tau(own) for length, own in outside.items()},
        "inside": {f"{length}": _tau(own) for length, own in inside.items()},
        **distances,
    }


def _distance(chosen: Sequence[Observation], fitted: Mixture) -> dict[str, float]:
    """The noise of a cell of chosen sets, and the mean of (D - N) k over sqrt(2/pi), both as shares of the records."""
    expected = [expected_counts(m, fitted.marginal(m.attributes), fitted.total) for m in chosen]
    beyond = [len(m.attributes) * beyond_noise(m, one) for m, one in zip(chosen, expected, strict=True)]
    return {
        "sigma": float(np.median([m.deviation for m in chosen])) / fitted.total,
        "beyond": float(np.mean(beyond)) / math.sqrt(2 / math.pi) / fitted.total,
    }


_SETS = 60
"""Of so many tables contrasts are taken, of twenty each."""


def _whole(measurements: Iterable[Observation]) -> list[Observation]:
    """Those with every cell and value, whose noise is as stated."""
    return [m for m in measurements if m.complete and not m.levels and type(m) is Observation]


def _tau(tables: Sequence[Floats]) -> float:
    """tau^2 of contrasts, an array of each table, shape (3, contrasts): squares above noise, their variance but for it, scale.

    A square over its scale has the mean tau^2 and, with v the variance of the contrast over the scale, a variance of about
    2 (v + tau^2)^2. So the mean is weighted by (v + tau^2)^-2: small tables say most, large ones hardly anything. Its error is
    that between tables, or that of these variances where it is larger. What is returned is the mean of a normal
    distribution around it with this error, cut off at 0: of noise alone a little is left, as less cannot be excluded.
    """
    found = [table[:, table[2] > 0] for table in tables]
    squares, variances = np.concatenate([table[:2] / table[2] for table in found], axis=1)
    if not squares.size:
        return 0.0
    mean, weights = 0.0, variances
    for _ in range(_TURNS):
        weights = (variances + max(mean, _LEAST)) ** -2.0
        mean = float(weights @ squares / weights.sum())
    ends = np.cumsum([0, *(table.shape[1] for table in found)])
    own = [float(weights[i:j] @ (squares[i:j] - mean)) for i, j in itertools.pairwise(ends)]
    total = float(weights.sum())
    error = max(math.hypot(*own) / total, math.sqrt(2 / total))
    z = mean / error
    return mean + error * math.exp(-(z**2) / 2 - float(log_ndtr(z))) / math.sqrt(2 * math.pi)


_TURNS = 20
_LEAST = 1e-12


_CONTRASTS = 20


def _contrasts(
    m: Observation,
    fitted: Mixture,
    kept: Sequence[Observation],
    stack: Stack,
    generator: np.random.Generator,  # post-processing
) -> list[tuple[int, Floats]]:
    """Of each set of columns that none of the `kept` tables has, random contrasts as `_tau` takes them.

    Squares are above the noise of the table and that of the fit, for which the spread of the `stack` stands; where none was
    kept, all were, the model follows their noise, and its own is added. The scale is n^2 times the product of V_a.
    """
    residual = np.asarray(m.counts - expected_counts(m, fitted.marginal(m.attributes), fitted.total), np.float64)
    shares = [np.asarray(fitted.marginal((a,)) / fitted.total, np.float64) for a in m.attributes]
    found = list[tuple[int, Floats]]()
    for length in range(2, len(m.attributes) + 1):
        for places in itertools.combinations(range(len(m.attributes)), length):
            columns = {m.attributes[place] for place in places}
            if any(columns <= {*one.attributes} for one in kept):
                continue
            asked, scale, weights = np.ones((_CONTRASTS, 1)), np.full(_CONTRASTS, fitted.total**2), dict[int, Floats]()
            for place, own in enumerate(shares):
                vectors = np.ones((_CONTRASTS, len(own)))
                if place in places:
                    chosen = (generator.random(vectors.shape) < 0.5).astype(np.float64)
                    vectors = weights[m.attributes[place]] = chosen - (chosen @ own)[:, None]
                    scale *= vectors**2 @ own
                asked = (asked[:, :, None] * vectors[:, None]).reshape(_CONTRASTS, -1)
            noise, of_fit = m.deviation**2 * (asked**2).sum(axis=1), np.diagonal(stack.solve(weights).covariance)
            squares = (asked @ residual.ravel()) ** 2 - noise + (-of_fit if kept else of_fit)
            found.append((length, np.stack([squares, noise + of_fit, scale])))
    return found
