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
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from marginweave.answers.least_squares import Estimates, LeastSquares, NotMeasuredError, Weights
from marginweave.answers.tables import FEWEST, Part, PartTables
from marginweave.base.arrays import Floats, Integers
from marginweave.base.progress import progress_as
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.masks import Clique
from marginweave.estimate.mixture.blocks import Block
from marginweave.estimate.mixture.draws import expected_counts
from marginweave.estimate.mixture.fit import fit_mixture
from marginweave.estimate.mixture.model import Mixture
from marginweave.estimate.mixture.targets import F32, Float32s
from marginweave.mechanisms.normal import log_ndtr
from marginweave.observations.means import beyond_noise
from marginweave.observations.tables import Observation

DRAWS = 20
WIDER = 1.25 * 1.1
"""Refitted from the model, answers vary by .8 to 1 of what they do from new starts (docs/inference.md).

A deviation from 20 draws is off itself: of a level of .99 Student's t reaches 1.1 times as far as the normal distribution.
"""
_FOLDS = 4
_SETS = 60
"""Largest number of tables that contrasts are taken of."""
_CONTRASTS = 20
"""Contrasts of each set of columns of a table."""
_PRODUCTS = 1 << 22
"""Most products of components in memory at the same time: 16 MB, a few times."""
_TURNS = 20
_LEAST = 1e-12


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """A model, and others of the same blocks that are drawn around it, in arrays of all.

    `weights` has shape (models, components), `shares` for each block (cells, models * components).
    """

    blocks: tuple[Block, ...]
    weights: Float32s
    shares: tuple[Float32s, ...]

    @classmethod
    def of(cls, model: Mixture, drawn: Iterable[Mixture], number: int | None = None) -> Stack:
        """Return the arrays of a model and of those drawn around it, in single precision.

        These are taken one by one. `number` says how many there are, where they have no length.
        """
        if number is None:
            drawn = [*drawn]
            number = len(drawn)
        models = 1 + number
        components = model.components
        weights = np.empty((models, components), F32)
        shares = [np.empty((len(block.cells), models * components), F32) for block in model.blocks]
        for place, m in enumerate(itertools.chain([model], drawn)):
            weights[place] = m.weights * m.total
            first = place * components
            for stacked, of_model in zip(shares, m.shares, strict=True):
                stacked[:, first : first + components] = of_model.T
        return cls(blocks=model.blocks, weights=weights, shares=tuple(shares))

    def solve(self, weights: Weights) -> Estimates:
        """Return the model's answers to queries, and their covariance from the noise of what it was fitted to."""
        expected = self.expected(weights)
        around = expected[1:] - expected[0]
        covariance = WIDER**2 * (around.T @ around) / len(around)
        return Estimates(values=expected[0], covariance=covariance)

    def expected(self, weights: Weights) -> Floats:
        """Return each model's answers to queries, shape (models, queries)."""
        queries = max((len(vectors) for vectors in weights.values()), default=1)
        step = max(1, _PRODUCTS // self.weights.size)
        few: list[Floats] = []
        for first in range(0, queries, step):
            next_weights = {
                axis: vectors[first : first + step] for axis, vectors in weights.items()
            }
            few.append(self._expected_of_few(next_weights))
        return np.concatenate(few, axis=1)

    def _expected_of_few(self, weights: Weights) -> Floats:
        """Return the same of queries that are few enough for a product of all their blocks in memory."""
        product = self.weights.reshape(1, -1)
        for block, shares in zip(self.blocks, self.shares, strict=True):
            factors = []
            for place, axis in enumerate(block.attributes):
                if axis in weights:
                    codes = block.cells[:, place]
                    factors.append(weights[axis][:, codes])
            if factors:
                of_cells = np.prod(factors, axis=0)
                is_weighed = of_cells.any(axis=0)
                cells = np.flatnonzero(is_weighed)
                of_block = of_cells[:, cells].astype(F32) @ shares[cells]
                product = product * of_block
        components = product.reshape(-1, *self.weights.shape)
        expected: Floats = components.sum(axis=2, dtype=np.float64).T
        return expected


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelSpread:
    """The error that a model may have: models of a `stack` drawn around it, and `misfit`, tau^2 as that function has it."""

    stack: Stack
    misfit: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True, eq=False)
class _AxisMoments:
    """Moments of the weights of queries on an axis, by the shares p of its codes in the model.

    `means` has shape (queries,); `covariance`, of the centered weights, has shape (queries, queries). `roots` is the sum of the
    sqrt(p) of `codes` codes.
    """

    means: Floats
    covariance: Floats
    codes: int
    roots: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelAnswers:
    """Estimates of queries from a model, a stand-in for `LeastSquares` where that has none.

    `model` is conditioned, and so are those of the `spread`, which takes long and is made when it is first needed. `codes` has
    the model's code of each code of an attribute; the last one may be that of cells that estimates ignore, of which the model
    has no records. `recorded` are the sets of attributes of structural zeros that hold in records alone: the model has other
    cells there than were counted, and how many is not known. `inside` are the sets of attributes that were measured; they are
    `chosen` where the release has looked for those that depend most. `ignored` has, by axis, how many records have a cell that
    estimates ignore, as a root mean square. `follows` names known tables of another source, or of other rows, empty without
    any: the model agrees with these and not with the counted table, and nothing measured tells how far it is from that.
    """

    measured: PartTables
    model: Mixture
    codes: Sequence[Integers]
    inside: Sequence[frozenset[int]]
    chosen: bool
    spread: Callable[[], ModelSpread]
    ignored: Mapping[int, float] = field(default_factory=dict)
    recorded: Collection[Clique] = ()
    follows: str = ""

    def solve(self, weights: Weights) -> Estimates:
        """Return estimates of queries, at least one, and their covariance.

        Raises:
            NotMeasuredError: the model does not tell values apart that weigh differently.
        """
        model_weights = self._merged_weights(weights)
        solved = self.spread().stack.solve(model_weights)
        covariance = solved.covariance + self._misfit(model_weights, len(solved.values))
        ignored_axes = self.ignored.keys() & weights.keys()
        for axis in sorted(ignored_axes):
            weight_of_ignored = weights[axis][:, -1]
            shift = self._shift_by_ignored(model_weights, axis, weight_of_ignored)
            covariance += np.outer(shift, shift)
        return replace(solved, covariance=covariance)

    def _shift_by_ignored(
        self,
        weights: Weights,
        axis: int,
        weight_of_ignored: Floats,
    ) -> Floats:
        """Return how far queries are off because an axis has no code for some records, whose code has these weights."""
        everybody = np.ones_like(weights[axis])
        unconditional = {**weights, axis: everybody}
        records_unconditional = {**_weighed(weights), axis: everybody}
        answers = self._fitted.expected(weights)[0]
        without_condition = self._fitted.expected(unconditional)[0]
        records = self._fitted.expected(records_unconditional)[0]
        # U sqrt(M / n) records, as a share of the M that the query weighs
        records_times_total = np.maximum(records, FEWEST) * max(self.model.total, FEWEST)
        ignored_share = self.ignored[axis] / np.sqrt(records_times_total)
        difference = answers - weight_of_ignored * without_condition
        shift: Floats = np.minimum(ignored_share, 1.0) * difference
        return shift

    def expected(self, weights: Weights) -> Floats:
        """Return the estimates alone, which takes little time.

        Values that the model has together share its count by their measured counts.
        """
        model_weights = dict[int, Floats]()
        for axis, vectors in weights.items():
            part = Part(axis=axis, blocks=self.codes[axis])
            counts = np.maximum(self.single_axes.counts(axis), FEWEST)
            of_blocks = part.sums(vectors * counts) / part.sums(counts)
            model_weights[axis] = of_blocks[:, : self.model.sizes[axis]]
        expected: Floats = self._fitted.expected(model_weights)[0]
        return expected

    def knows(self, axes: Collection[int]) -> bool:
        """Return whether it is known how far the model may be off on these axes.

        It is known where each subset of them, of two axes or more, was measured, or left-out sets of its length say how far
        off the model is.
        """
        if not self.fits(axes):
            return False
        # long sets first: these often decide without drawn models, which take long
        for length in range(len(axes), 1, -1):
            for subset in itertools.combinations(axes, length):
                is_measured = self.is_inside(frozenset(subset))
                if not is_measured and not self.knows_length(length):
                    return False
        return True

    def tells_of_part(self, axes: Collection[int]) -> bool:
        """Return whether left-out sets say how far off the model is on some of these axes that were not measured together."""
        if self.follows:
            return False
        for length in range(2, len(axes) + 1):
            subsets = map(frozenset, itertools.combinations(axes, length))
            is_measured = all(map(self.is_inside, subsets))
            if not is_measured and self.knows_length(length):
                return True
        return False

    def is_inside(self, axes: frozenset[int]) -> bool:
        """Return whether a measured table has these axes. It is kept for the next question."""
        if axes not in self._is_inside:
            self._is_inside[axes] = any(map(axes.issubset, self.inside))
        return self._is_inside[axes]

    @cached_property
    def _is_inside(self) -> dict[frozenset[int], bool]:
        """What `is_inside` has found, by axes."""
        return {}

    def fits(self, axes: Collection[int]) -> bool:
        """Return whether the model may have of these axes all that was counted."""
        return not self.follows and all(
            set(recorded_axes).isdisjoint(axes) for recorded_axes in self.recorded
        )

    def knows_length(self, length: int) -> bool:
        """Return whether left-out sets of `length` axes say how far off the model is on sets that were not measured.

        They do where sets were chosen by how much they depend: those that were not chosen depend less. No table says anything
        of more axes than it has.
        """
        if not self.chosen or length > self._longest:
            return False
        return f"{length}" in self.spread().misfit["outside"]

    @cached_property
    def _longest(self) -> int:
        """Axes of the largest measured table."""
        return max(len(table.parts) for table in self.measured.tables)

    @cached_property
    def _fitted(self) -> Stack:
        return Stack.of(self.model, [])

    @cached_property
    def single_axes(self) -> LeastSquares:
        """Estimates of queries of single axes, by their measured tables."""
        return LeastSquares(self.measured)

    def finest_parts(self, axes: Iterable[int]) -> list[Part]:
        """Return the values of these axes that the model tells apart."""
        return [Part(axis=axis, blocks=self.codes[axis]) for axis in axes]

    def _merged_weights(self, weights: Weights) -> dict[int, Floats]:
        """Return the weights of the model's codes. Raises NotMeasuredError where values that it has together differ."""
        merged_weights = dict[int, Floats]()
        for axis, vectors in weights.items():
            part = Part(axis=axis, blocks=self.codes[axis])
            values = part.values(vectors)
            if not np.array_equal(values[:, part.blocks], vectors):
                raise NotMeasuredError(merged=True)
            merged_weights[axis] = values[:, : self.model.sizes[axis]]
        return merged_weights

    def _misfit(self, weights: Weights, queries: int) -> Floats:
        """Return the covariance of queries by misfit: n^2 tau^2 product of V_a, summed over sets of columns."""
        moments = dict[int, _AxisMoments]()
        for axis, vectors in weights.items():
            moments[axis] = self._moments(axis, vectors)
        misfits = self.spread().misfit
        covariance = np.zeros((queries, queries))
        for length in range(2, len(weights) + 1):
            for columns in itertools.combinations(sorted(weights), length):
                column_moments = [moments[axis] for axis in columns]
                tau_squared = self._tau_squared(columns, column_moments, misfits)
                start = self.model.total**2 * tau_squared
                of_columns = np.full((queries, queries), start)
                for axis, axis_moments in moments.items():
                    if axis in columns:
                        of_columns *= axis_moments.covariance
                    else:
                        of_columns *= np.outer(axis_moments.means, axis_moments.means)
                covariance += of_columns
        return covariance

    def _moments(self, axis: int, vectors: Floats) -> _AxisMoments:
        """Return the moments of weights of the codes of an axis, shape (queries, codes)."""
        shares = self.model.marginal((axis,)) / self.model.total
        means = vectors @ shares
        centered = vectors - means[:, None]
        roots = np.sqrt(np.maximum(shares, 0))
        return _AxisMoments(
            means=means,
            covariance=(centered * shares) @ centered.T,
            codes=len(shares),
            roots=float(roots.sum()),
        )

    def _tau_squared(
        self,
        columns: tuple[int, ...],
        moments: Sequence[_AxisMoments],
        misfits: Mapping[str, Mapping[str, float]],
    ) -> float:
        """Return tau^2 of a set of columns with these moments, by the `misfit` of the spread."""
        is_measured = self.is_inside(frozenset(columns))
        tau_squared = _of_length(misfits["inside" if is_measured else "outside"], len(columns))
        if not is_measured and "last" in misfits:
            tau_squared = max(tau_squared, _of_distance(misfits["last"], moments))
        return tau_squared


def _weighed(weights: Weights) -> dict[int, Floats]:
    """Return 1 for the codes that queries weigh, else 0.

    Of an axis with numbers these are the codes that any of the queries weighs, as a number may be 0.
    """
    weighed = dict[int, Floats]()
    for axis, vectors in weights.items():
        is_weighed = vectors != 0
        has_numbers = bool((vectors[is_weighed] != 1).any())
        if has_numbers:
            is_weighed = is_weighed | is_weighed.any(axis=0)
        weighed[axis] = is_weighed.astype(np.float64)
    return weighed


def _of_length(misfit_of_length: Mapping[str, float], length: int) -> float:
    """Return tau^2 of `length` columns, or of the measured number of columns closest to it."""
    if not misfit_of_length:
        return 0.0
    closest = min(misfit_of_length, key=lambda measured: abs(int(measured) - length))
    return misfit_of_length[closest]


def _of_distance(last: Mapping[str, float], columns: Sequence[_AxisMoments]) -> float:
    """Return tau^2 of a set that rounds did not choose, by the number of values and the sum of roots of its columns."""
    cells = math.prod(column.codes for column in columns)
    roots = math.prod(column.roots for column in columns)
    beyond = last["beyond"] / len(columns)
    return ((last["sigma"] * cells + beyond) / roots) ** 2


def misfit(
    measurements: Sequence[Observation],
    model: Mixture,
    stack: Stack,
    settings: MixtureSynthesis,
    generator: np.random.Generator,  # post-processing
    last: Collection[Clique] = (),
) -> dict[str, dict[str, float]]:
    """Return tau^2 by number of columns, of sets of columns that were not measured (`outside`), and that were (`inside`).

    Outside: larger tables are left out of a fit, those of `last`, or without any a quarter of all at a time, and random
    contrasts of the left-out tables, less the model, are taken of each set of columns that a left-out table alone holds.
    Inside: the same of measured tables less the `model`, which follows their noise. `_tau` makes of them one number. Of those
    of `last` there is as well how far they were, as `_of_distance` takes it. DP: post-processing.
    """
    masks = [*model.masks, *model.inside, *model.codes]
    larger = [m for m in measurements if len(m.attributes) > 1]
    order = generator.permutation(len(larger))
    shuffled = [larger[i] for i in order]
    folds = _folds(shuffled, larger, last)
    outside: dict[int, list[Floats]] = defaultdict(list)
    distances = dict[str, dict[str, float]]()
    for number, left_out in enumerate(folds, 1):
        left_out_ids = {id(table) for table in left_out}
        fitted_tables = [m for m in measurements if id(m) not in left_out_ids]
        fitted_axes = {axis for m in fitted_tables for axis in m.attributes}
        if not set(range(len(model.sizes))) <= fitted_axes:
            continue
        with progress_as(f"fit {number} of {len(folds)} without a part of the tables"):
            fitted = fit_mixture(fitted_tables, model.sizes, model.total, masks, settings)
        complete = _complete(left_out)
        if last and complete:
            distances["last"] = _distance(complete, fitted)
        for m in complete[: _SETS // len(folds)]:
            for length, contrasts in _contrasts(m, fitted, fitted_tables, stack, generator):
                outside[length].append(contrasts)
    inside: dict[int, list[Floats]] = defaultdict(list)
    for m in _complete(shuffled)[:_SETS]:
        for length, contrasts in _contrasts(m, model, (), stack, generator):
            inside[length].append(contrasts)
    return {
        "outside": _tau_by_length(outside),
        "inside": _tau_by_length(inside),
        **distances,
    }


def _tau_by_length(contrasts: Mapping[int, Sequence[Floats]]) -> dict[str, float]:
    """Return tau^2 by number of columns, from the contrasts of tables by number of columns."""
    return {f"{length}": _tau(tables) for length, tables in contrasts.items()}


def _folds(
    shuffled: Sequence[Observation],
    larger: Sequence[Observation],
    last: Collection[Clique],
) -> list[Sequence[Observation]]:
    """Return the tables to leave out of each fit: those of `last` together, or without any a quarter of all at a time."""
    if last:
        return [[m for m in larger if m.attributes in last]]
    folds = min(_FOLDS, len(shuffled))
    return [shuffled[fold::_FOLDS] for fold in range(folds)]


def _distance(chosen: Sequence[Observation], fitted: Mixture) -> dict[str, float]:
    """Return the noise of a cell of chosen sets, and the mean of (D - N) k over sqrt(2/pi), both as shares of the records."""
    beyond = []
    for m in chosen:
        expected = expected_counts(m, fitted.marginal(m.attributes), fitted.total)
        beyond.append(len(m.attributes) * beyond_noise(m, expected))
    sigma = float(np.median([m.deviation for m in chosen]))
    mean_beyond = float(np.mean(beyond))
    return {
        "sigma": sigma / fitted.total,
        "beyond": mean_beyond / math.sqrt(2 / math.pi) / fitted.total,
    }


def _complete(measurements: Iterable[Observation]) -> list[Observation]:
    """Return the measurements with every cell and value, whose noise is as stated."""
    return [m for m in measurements if m.complete and not m.levels and type(m) is Observation]


def _tau(tables: Sequence[Floats]) -> float:
    """Return tau^2 of contrasts.

    Each table has an array of shape (3, contrasts): squares above noise, their variance but for it, scale.
    A square over its scale has the mean tau^2 and, with v the variance of the contrast over the scale, a variance of about
    2 (v + tau^2)^2. So the mean is weighted by (v + tau^2)^-2: small tables say most, large ones hardly anything. Its error is
    that between tables, or that of these variances where it is larger. What is returned is the mean of a normal
    distribution around it with this error, cut off at 0: of noise alone a little is left, as less cannot be excluded.
    """
    positive = [table[:, table[2] > 0] for table in tables]
    scaled = [table[:2] / table[2] for table in positive]
    squares, variances = np.concatenate(scaled, axis=1)
    if not squares.size:
        return 0.0
    mean = 0.0
    weights = variances
    for _ in range(_TURNS):
        weights = (variances + max(mean, _LEAST)) ** -2.0
        mean = float(weights @ squares / weights.sum())
    ends = np.cumsum([0, *(table.shape[1] for table in positive)])
    of_tables = []
    for start, end in itertools.pairwise(ends):
        deviations = squares[start:end] - mean
        of_tables.append(float(weights[start:end] @ deviations))
    total = float(weights.sum())
    error_between_tables = math.hypot(*of_tables) / total
    error_of_variances = math.sqrt(2 / total)
    error = max(error_between_tables, error_of_variances)
    # E[X | X > 0] of X ~ N(mean, error^2): mean + error phi(z) / Phi(z)
    z = mean / error
    log_ratio = -(z**2) / 2 - log_ndtr(z)
    return mean + error * math.exp(log_ratio) / math.sqrt(2 * math.pi)


def _contrasts(
    m: Observation,
    fitted: Mixture,
    fitted_tables: Sequence[Observation],
    stack: Stack,
    generator: np.random.Generator,  # post-processing
) -> list[tuple[int, Floats]]:
    """Return random contrasts, as `_tau` takes them, of each set of columns that none of the `fitted_tables` has.

    Squares are above the noise of the table and that of the fit, which the spread of the `stack` measures; where no table was
    left out, the model follows their noise, and its own is added. The scale is n^2 times the product of V_a.
    """
    expected = expected_counts(m, fitted.marginal(m.attributes), fitted.total)
    residual = np.asarray(m.counts - expected, np.float64)
    shares = []
    for axis in m.attributes:
        axis_shares = fitted.marginal((axis,)) / fitted.total
        shares.append(np.asarray(axis_shares, np.float64))
    contrasts: list[tuple[int, Floats]] = []
    for length in range(2, len(m.attributes) + 1):
        for places in itertools.combinations(range(len(m.attributes)), length):
            columns = {m.attributes[place] for place in places}
            if any(columns <= {*table.attributes} for table in fitted_tables):
                continue
            vectors = _random_vectors(shares, places, generator)
            weights = {m.attributes[place]: vectors[place] for place in places}
            scale = np.full(_CONTRASTS, fitted.total**2)
            for place in places:
                scale *= vectors[place] ** 2 @ shares[place]
            cell_weights = _products(vectors)
            noise = m.deviation**2 * (cell_weights**2).sum(axis=1)
            noise_of_fit = np.diagonal(stack.solve(weights).covariance)
            values = cell_weights @ residual.ravel()
            squares = values**2 - noise
            squares = squares + (-noise_of_fit if fitted_tables else noise_of_fit)
            of_set = np.stack([squares, noise + noise_of_fit, scale])
            contrasts.append((length, of_set))
    return contrasts


def _random_vectors(
    shares: Sequence[Floats],
    places: Sequence[int],
    generator: np.random.Generator,  # post-processing
) -> list[Floats]:
    """Return weights of the codes of each axis, shape (contrasts, codes): random centered ones at `places`, else 1."""
    vectors = []
    for place, code_shares in enumerate(shares):
        weights = np.ones((_CONTRASTS, len(code_shares)))
        if place in places:
            is_chosen = generator.random(weights.shape) < 0.5
            chosen = is_chosen.astype(np.float64)
            means = chosen @ code_shares
            weights = chosen - means[:, None]
        vectors.append(weights)
    return vectors


def _products(vectors: Sequence[Floats]) -> Floats:
    """Return the products of weights in every cell of a table, shape (contrasts, cells)."""
    product = np.ones((_CONTRASTS, 1))
    for weights in vectors:
        pairs = product[:, :, None] * weights[:, None]
        product = pairs.reshape(_CONTRASTS, -1)
    return product
