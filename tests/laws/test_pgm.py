"""The graphical model of marginals, fitted by the extra `pgm`: exact where that is possible, allowed, and the same again.

Skipped where the extra is not there; `tests/system/test_pgm.py` makes an environment that has it and runs this file there.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ByteSize

from marginweave.base.errors import InputError
from marginweave.base.progress import LISTENER
from marginweave.configuration.synthesis import PgmSynthesis
from marginweave.counts.graphical import fit_tree, model_cells
from marginweave.domain.zeros import broken_records
from marginweave.measurements.tables import Measurement
from tests.support.graphical_tables import MASKS, PAIRS, SIZES, decomposable, marginal, mask, measurements_of
from tests.support.released_tuples import WITH_MISSING, four_columns, random_rows, released
from tests.support.released_tuples import marginal as cell_counts
from tests.support.ruled_table import check_method
from tests.support.synthesized import every_record, graphical_sampler, synthesize_codes

mbi = pytest.importorskip("mbi")

EVERY = [clique for k in (1, 2, 3) for clique in itertools.combinations(range(len(SIZES)), k)]


def test_a_decomposable_table_comes_back_from_its_own_marginals() -> None:
    """All marginals of up to three attributes, measured or not: 10,000 records are within sampling of the table's.

    Measured pairs are dealt by systematic rounding, so within a few records. Of the others the distance to a multinomial
    sample is at most sum_c sqrt(2 m_c / pi) in the mean, with a deviation below sqrt(n): 6 of them are a false alarm of 1e-9.
    """
    table = decomposable()
    made = every_record(
        graphical_sampler(measurements_of(table), SIZES, 10_000, 10_000.0, PgmSynthesis(iterations=3000))
    )
    for clique in EVERY:
        exact = marginal(table, clique)
        distance = np.abs(cell_counts(made, clique, SIZES) - exact).sum()
        assert distance < np.sqrt(2 * exact / np.pi).sum() + 6 * np.sqrt(10_000), clique
        assert clique not in PAIRS or distance < 2 * exact.size + 20, clique


def test_noise_is_averaged_by_precision() -> None:
    """Two measurements of a pair, one of them far off and told to be: the exact one is followed."""
    table = decomposable()
    off = Measurement(attributes=(0, 1), counts=np.full((3, 4), 10_000 / 12), deviation=2000.0)
    made = every_record(
        graphical_sampler([*measurements_of(table), off], SIZES, 10_000, 10_000.0, PgmSynthesis(iterations=3000))
    )
    assert np.abs(cell_counts(made, (0, 1), SIZES) - marginal(table, (0, 1))).sum() < 60


def test_a_fit_says_how_far_it_is() -> None:
    heard: list[str] = []
    asked = LISTENER.set(heard.append)
    try:
        fit_tree(measurements_of(decomposable(300.0), noise=9.0), SIZES, 300.0, (), 120)
    finally:
        LISTENER.reset(asked)
    assert heard[:2] == ["step 50 (120 at most)", "step 100 (120 at most)"]


def test_an_incomplete_marginal_is_scaled_up() -> None:
    table = decomposable()
    half = Measurement(attributes=(0, 1), counts=marginal(table, (0, 1)) / 2, deviation=1.0, complete=False)
    singles = measurements_of(table, ())
    made = every_record(graphical_sampler([*singles, half], SIZES, 10_000, 10_000.0, PgmSynthesis(iterations=3000)))
    assert np.abs(cell_counts(made, (0, 1), SIZES) - marginal(table, (0, 1))).sum() < 60


@pytest.mark.parametrize("name", MASKS)
def test_no_record_is_forbidden(name: str) -> None:
    """Of any noise, in every shard; each shard has its share of the records."""
    maker = graphical_sampler(
        measurements_of(decomposable(300.0), noise=9.0),
        SIZES,
        1000,
        300.0,
        PgmSynthesis(iterations=300),
        MASKS[name],
        most=130,
    )
    made = every_record(maker)
    assert maker.plan.shards == 8
    assert made.shape == (1000, len(SIZES))
    assert (made >= 0).all()
    assert (made < SIZES).all()
    assert not broken_records(tuple(made.T), MASKS[name]).any()


def test_what_a_model_has_no_room_for_is_left_out() -> None:
    """Room for three pairs of ten: those that hang together are kept, and come out as where only they were measured."""
    table = decomposable()
    pairs = tuple(itertools.combinations(range(len(SIZES)), 2))
    room = PgmSynthesis(iterations=3000, model_size=ByteSize(8 * model_cells(SIZES, PAIRS)))
    made = every_record(graphical_sampler(measurements_of(table, pairs), SIZES, 10_000, 10_000.0, room))
    for clique in PAIRS:
        exact = marginal(table, clique)
        assert np.abs(cell_counts(made, clique, SIZES) - exact).sum() < 2 * exact.size + 20, clique


def test_records_of_k_tuples_have_their_pairs() -> None:
    """4000 records, noise of 5: of the dependent pair independent columns would have 1000 records elsewhere."""
    table, config = random_rows(4, 4000), four_columns("pgm")
    made = np.stack(synthesize_codes(released(table, sd=5.0), config, config.synthesize), axis=1)
    for pair in itertools.combinations(range(4), 2):
        moved = np.abs(cell_counts(made, pair, WITH_MISSING) - cell_counts(table, pair, WITH_MISSING)).sum() / 2
        assert moved <= 350, pair


def test_masks_that_leave_nothing_are_refused() -> None:
    nothing = [mask((0, 1), *[(0, b) for b in range(4)]), mask((0,), (1,), (2,))]
    with pytest.raises(InputError, match="masks must allow at least one record"):
        graphical_sampler(measurements_of(decomposable(50.0)), SIZES, 5, 50.0, PgmSynthesis(iterations=50), nothing)


def test_an_attribute_that_was_not_measured_gets_every_value() -> None:
    table = decomposable()
    some = [m for m in measurements_of(table) if 3 not in m.attributes]
    made = every_record(graphical_sampler(some, SIZES, 1000, 10_000.0, PgmSynthesis(iterations=100)))
    assert (cell_counts(made, (3,), SIZES) == 200).all()


@settings(max_examples=25)
@given(st.data())
def test_the_size_is_the_one_of_mbi(data: st.DataObject) -> None:
    """Of any graph, trees and forests among them; sizes differ, as the order of elimination depends on them."""
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=8))
    some = st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True).map(lambda c: tuple(sorted(c)))
    cliques = data.draw(st.lists(some, max_size=9))
    size = mbi.junction_tree.hypothetical_model_size(mbi.Domain(range(len(sizes)), sizes), cliques)
    assert model_cells(sizes, cliques) == round(size * 2**20 / 8)


PROGRAM = """
import hashlib
from tests.support.graphical_tables import MASKS, SIZES, decomposable, measurements_of
from marginweave.configuration.synthesis import PgmSynthesis
from tests.support.synthesized import every_record, graphical_sampler
measured = measurements_of(decomposable(), noise=5.0)
maker = graphical_sampler(measured, SIZES, 3000, 1e4, PgmSynthesis(seed=7), MASKS["across"], most=900)
print(hashlib.sha256(every_record(maker).tobytes()).hexdigest())
"""


def test_the_same_seed_makes_the_same_records_on_any_number_of_cores() -> None:
    """In processes of their own, on one core and on all; another seed makes others."""
    core = str(min(os.sched_getaffinity(0)))
    found = {
        subprocess.run(
            [*start, sys.executable, "-c", PROGRAM.replace("seed=7", seed)], check=True, capture_output=True
        ).stdout
        for start, seed in (([], "seed=7"), (["taskset", "-c", core], "seed=7"), ([], "seed=8"))
    }
    assert len(found) == 2


def test_nothing_is_imported_before_a_fit() -> None:
    """`marginweave --help`, plans and every other method work without the extra, and do not wait for it."""
    modules = "marginweave.records.release, marginweave.runs.request"
    code = f"import sys, {modules}; print({{'jax', 'mbi'}} & {{*sys.modules}})"
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


def test_a_fit_of_no_steps_is_uniform_where_it_is_allowed() -> None:
    tree = fit_tree(measurements_of(decomposable()), SIZES, 1e4, MASKS["inside"], 0)
    made = tree.sample(1000, np.random.default_rng(1))
    assert cell_counts(made, (0, 1), SIZES).max() - np.partition(cell_counts(made, (0, 1), SIZES).ravel(), 2)[2] <= 1


@pytest.mark.parametrize("sd", [0.5, 30.0])
def test_every_rule_holds(sd: float) -> None:
    """As by the other methods (`test_rules_between_columns.py`): universes, order, zeros, differences, sums and mappings."""
    check_method(PgmSynthesis(records=60, iterations=50, seed=3), 3, sd)
