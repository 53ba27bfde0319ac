"""Noise is independent wherever two draws could share it: lengths, marginals, releases, threads, forks, pools of processes.

Correlations are over N pairs and compared with z / sqrt(N), z the quantile at which all comparisons of a test together have a
false alarm rate of 1e-6. First draws are 12 numbers of deviation 300, and 12 of Laplace noise of scale 1000: two workers have
the same by chance with probability (2 sqrt(pi) 300)^-12 < 1e-36, or 4000^-12. Each law is seen to fail on a source with a
state of its own, which forks copy.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtri

from marginweave.base.arrays import Words
from marginweave.base.budget import Stability
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.marginals import all_cliques
from marginweave.measurements.levels import LevelMechanism, draw_level
from marginweave.measurements.marginals import measure_marginals
from marginweave.mechanisms.gaussian import add_noise
from marginweave.mechanisms.laplace import draw_laplace_noise
from marginweave.mechanisms.noise_table import noise_table
from marginweave.mechanisms.randomness import DrawBits, fresh_bits
from tests.support.draws import GAUSSIAN
from tests.support.level_draws import bounded, surviving_values, table_of
from tests.support.samples import every
from tests.support.seeded_bits import SeededBits

FALSE_ALARM = 1e-6
WIDE = Fraction(300)
SIZES = (130, 170)
PAIRS = math.prod(SIZES)
FIRST = 12
Draws = tuple[int, ...]


def assert_uncorrelated(series: Sequence[NDArray[np.int64] | NDArray[np.float64]]) -> None:
    """All pairs of series, their values and their magnitudes, in place and shifted by one."""
    pairs = list(itertools.combinations([s.astype(float) for s in series], 2))
    pairs += [(np.abs(left), np.abs(right)) for left, right in pairs]
    pairs += [(left[1:], right[:-1]) for left, right in pairs]
    z = -ndtri(FALSE_ALARM / (2 * len(pairs)))
    for left, right in pairs:
        assert abs(np.corrcoef(left, right)[0, 1]) < z / math.sqrt(len(left))


def level_noise_of(length: int) -> NDArray[np.int64]:
    """The noise of as many empty candidates of length 1 as there are of length 2, in order."""
    sizes = (PAIRS,) if length == 1 else SIZES
    candidates = (
        CandidateSet(length=1, sizes=sizes)
        if length == 1
        else CandidateSet.above(surviving_values(sizes), sizes)
    )
    mechanism = LevelMechanism(length=length, contribution_bound=1, sigma=WIDE, threshold=-(10**6))
    nothing = table_of([[]] * len(sizes), sizes)
    return draw_level(bounded(nothing, candidates, 1), candidates, mechanism, fresh_bits()).counts


def test_lengths_of_one_release() -> None:
    """22,100 values against as many pairs: no noise of a length tells of that of another. False alarm 1e-6."""
    assert_uncorrelated([level_noise_of(1), level_noise_of(2)])


def test_releases_of_one_table() -> None:
    """Two releases of the same table, and one of another: uncorrelated, and equal no more often than chance has it.

    22,100 pairs of cells; equal ones are Binomial(22,100, 1/(2 sqrt(pi) 300)), mean 21: more than 60 has probability 1e-10.
    """
    candidates = CandidateSet.above(surviving_values(SIZES), SIZES)
    other = table_of([[3], [5]], SIZES)
    mechanism = LevelMechanism(length=2, contribution_bound=1, sigma=WIDE, threshold=-(10**6))
    drawn = [level_noise_of(2), level_noise_of(2)]
    drawn.append(
        draw_level(bounded(other, candidates, 1), candidates, mechanism, fresh_bits()).counts
    )
    assert_uncorrelated(drawn)
    for left, right in itertools.combinations(drawn, 2):
        assert (left == right).sum() <= 60
        assert len(np.unique(left - right)) > 1000


def test_cells_that_are_visited_and_those_that_are_not() -> None:
    """The noise of cells that occur and of zero cells that pass, of one draw, and of marginals that share cells."""
    exact = [
        np.zeros((40, 50), np.int64),
        np.zeros((50, 40), np.int64),
        np.zeros((2000,), np.int64),
    ]
    cliques = [(0, 1), (1, 2), (3,)]
    measured = [
        m.counts.ravel()
        for m in measure_marginals(
            GAUSSIAN, exact, cliques, [WIDE, Fraction(20), WIDE], fresh_bits()
        )
    ]
    assert_uncorrelated(measured)
    mechanism = LevelMechanism(length=2, contribution_bound=1, sigma=WIDE, threshold=1)
    candidates = CandidateSet.above(surviving_values(SIZES), SIZES)
    table = table_of([list(range(130)) * 20, list(range(130)) * 20], SIZES)
    level = draw_level(
        bounded(table, candidates, 1),
        candidates,
        replace(mechanism, threshold=-(10**6)),
        fresh_bits(),
    )
    occurs = level.values[:, 0] == level.values[:, 1]
    zeros = level.counts[~occurs][: occurs.sum()]
    assert_uncorrelated([level.counts[occurs] - 20, zeros])


def test_laplace_draws_of_two_calls() -> None:
    """OpenDP's noise, from a generator of its own: two calls, 20,000 cells each."""
    unit = Stability(records=1, neighbors="add-remove")
    assert_uncorrelated([draw_laplace_noise(20_000, Fraction(1, 50), unit) for _ in range(2)])


WORKERS_ASKED = 16
"""Two of them that share a source draw the same, each time: more find nothing more."""


# --- workers -------------------------------------------------------------------------------------------------------


def first_draws(_: int = 0) -> Draws:
    """What a worker draws first: of Gaussian noise, and of OpenDP's Laplace noise at epsilon 1/1000."""
    unit = Stability(records=1, neighbors="add-remove")
    gaussian = add_noise(np.zeros(FIRST, np.int64), WIDE, fresh_bits())
    return (*gaussian.tolist(), *draw_laplace_noise(FIRST, Fraction(1, 1000), unit).tolist())


def by_threads() -> Iterator[Draws]:
    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(first_draws, range(WORKERS_ASKED))


def by_forks() -> Iterator[Draws]:
    """Forks, one after the other, of a parent that has drawn before, and the parent between them."""
    for _ in range(WORKERS_ASKED):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, struct.pack(f"{2 * FIRST}q", *first_draws()))
            os._exit(0)
        os.close(writing)
        yield struct.unpack(f"{2 * FIRST}q", os.read(reading, 16 * FIRST))
        os.close(reading)
        assert os.waitpid(child, 0)[1] == 0
    yield first_draws()


def by_fresh_forks() -> Iterator[Draws]:
    """A worker for every task."""
    with multiprocessing.get_context("fork").Pool(4, maxtasksperchild=1) as pool:
        yield from pool.map(first_draws, range(WORKERS_ASKED), chunksize=1)


def by_spawned_processes() -> Iterator[Draws]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(first_draws, range(WORKERS_ASKED))


def by_forks_of_a_server() -> Iterator[Draws]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        yield from pool.map(first_draws, range(WORKERS_ASKED))


WORKERS = {
    "threads": by_threads,
    "forks": by_forks,
    "pool with a fork for each task": by_fresh_forks,
    "pool of a fork server": by_forks_of_a_server,
    "pool of spawned processes": by_spawned_processes,
}
# They share nothing that could be copied; each of the others is a fork of the parent that has drawn, as "forks" are.
SLOW = {"pool of spawned processes", "pool with a fork for each task"}


def kinds_of_noise(seen: Sequence[Draws]) -> list[list[Draws]]:
    """The Gaussian draws and the Laplace draws of all workers."""
    return [[draws[:FIRST] for draws in seen], [draws[FIRST:] for draws in seen]]


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param(make, id=name, marks=pytest.mark.long if name in SLOW else ())
        for name, make in WORKERS.items()
    ],
)
def test_no_two_workers_draw_the_same(workers: Callable[[], Iterator[Draws]]) -> None:
    """All first draws are pairwise distinct, whoever makes them, after the parent has drawn."""
    seen = [first_draws(), *workers()]
    assert len(seen) > WORKERS_ASKED
    for drawn in kinds_of_noise(seen):
        assert len(set(drawn)) == len(drawn)


STATE = itertools.count()


def stateful() -> SeededBits:
    """Seeds from a generator of the process's own."""
    return SeededBits(1, next(STATE))


@pytest.mark.parametrize("workers", every(2, [by_forks, by_fresh_forks]), ids=["forks", "pool"])
def test_a_source_with_a_state_would_be_found(
    workers: Callable[[], Iterator[Draws]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forks that inherit a generator draw the same, and the law above says so."""
    noise_table(WIDE)
    monkeypatch.setattr(sys.modules[__name__], "fresh_bits", stateful)
    gaussian, _ = kinds_of_noise(list(workers()))
    assert len(set(gaussian)) < WORKERS_ASKED


def test_noise_that_is_used_twice_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A seed of two draws, and an address without the table, are correlated from length to length, and between marginals."""
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "fresh_bits", lambda: SeededBits(1))
        with pytest.raises(AssertionError):
            test_lengths_of_one_release()
        with pytest.raises(AssertionError):
            test_releases_of_one_table()
    words = DrawBits.words

    def of_any_table(bits: DrawBits, _: int, start: int, count: int) -> Words:
        return words(bits, 0, start, count)

    monkeypatch.setattr(DrawBits, "words", of_any_table)
    with pytest.raises(AssertionError):
        test_cells_that_are_visited_and_those_that_are_not()


def test_marginals_that_share_attributes() -> None:
    """All pairs of three attributes in one draw, 600 cells of each: the noise of a marginal tells nothing of another's."""
    sizes = (20, 30, 40)
    cliques = all_cliques(sizes, 2)
    exact = [np.zeros([sizes[a] for a in clique], np.int64) for clique in cliques]
    assert_uncorrelated(
        [
            m.counts.ravel()[:600]
            for m in measure_marginals(
                GAUSSIAN, exact, cliques, [WIDE] * len(cliques), fresh_bits()
            )
        ]
    )
