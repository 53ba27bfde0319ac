"""Faults of noise: how much there is, where it comes from, and whether it is new."""

from __future__ import annotations

from tests.mutations.fault import Fault

_DEVIATION = "tests/unit/budget/test_mechanisms.py::test_deviation_is_the_next_multiple_above_the_sensitivity"
_MOVE = "tests/laws/test_units.py::test_counts_move_by_no_more_than_the_noise_is_made_for"
_EXACT = "tests/laws/test_noise.py::test_noise_has_the_exact_distribution"
_TWICE = "tests/laws/test_noise.py::test_two_releases_differ_by_twice_the_variance"
_FORKS = "tests/laws/test_noise.py::test_forked_workers_never_share_noise"
_INDEPENDENT = "tests/laws/test_noise.py::test_cells_and_calls_are_independent"
_BITS = "tests/unit/budget/test_mechanisms.py::test_noise_does_not_depend_on_the_counts"
_SCAN = "tests/unit/budget/test_mechanisms.py::test_the_guided_search_finds_what_a_plain_search_does"

_SQUARED_NORM = 'stability.records**2 * contribution_bound * (2 if stability.neighbors == "replace-one" else 1)'

FAULTS = (
    Fault(
        name="the root of Delta_k is missing in the noise",
        file="tasks/budget/mechanisms.py",
        text=_SQUARED_NORM,
        instead=_SQUARED_NORM.replace(" * contribution_bound", ""),
        killed_by=(_DEVIATION, _MOVE),
    ),
    Fault(
        name="theta is ignored in the noise",
        file="tasks/budget/mechanisms.py",
        text=_SQUARED_NORM,
        instead=_SQUARED_NORM.replace("stability.records**2 * ", ""),
        killed_by=(_DEVIATION, _MOVE),
    ),
    Fault(
        name="a replaced record is noised as one that comes",
        file="tasks/budget/mechanisms.py",
        text=_SQUARED_NORM,
        instead="stability.records**2 * contribution_bound",
        killed_by=(_DEVIATION, _MOVE),
    ),
    Fault(
        name="sigma is halved",
        file="tasks/budget/mechanisms.py",
        text="    table = noise_table(deviation)\n",
        instead="    table = noise_table(deviation / 2)\n",
        killed_by=(_EXACT, _TWICE),
    ),
    Fault(
        name="noise only ever adds",
        file="tasks/budget/sampler.py",
        text="return np.where(words & np.uint64(1), -magnitude, magnitude)",
        instead="return magnitude",
        killed_by=(_EXACT, _SCAN),
    ),
    Fault(
        name="a tie of the first 63 bits is not settled by the rest",
        file="tasks/budget/sampler.py",
        text="found[tie] = self._table.magnitude(int(wanted[tie]) << _REST_BITS | self._rest())",
        instead="found[tie] += 0 * self._rest()",
        killed_by=("tests/unit/budget/test_mechanisms.py::test_draws_compare_all_128_bits",),
    ),
    Fault(
        name="noise is a float that is rounded",
        file="tasks/budget/mechanisms.py",
        text="flat[start:stop] + sampler.draw(stop - start)",
        instead="np.rint(flat[start:stop] + np.random.default_rng().normal(0, float(deviation), stop - start))",
        killed_by=(_BITS, _SCAN),
    ),
    Fault(
        name="a seed was left in",
        file="tasks/budget/mechanisms.py",
        text="source = OsBits() if bits is None else bits",
        instead=(
            "from hashlib import shake_256\n"
            "    from types import SimpleNamespace\n"
            "    source = bits or SimpleNamespace(take=lambda n: shake_256(b'42').digest(n), tainted=False)"
        ),
        killed_by=(_TWICE, _FORKS),
    ),
    Fault(
        name="randomness has a state that forks inherit",
        file="tasks/budget/randomness.py",
        text="return os.urandom(nbytes)",
        instead="return vars(np).setdefault('_left_in', np.random.default_rng()).bytes(nbytes)",
        killed_by=(_FORKS,),
    ),
    Fault(
        name="noise is used again at a retry",
        file="tasks/budget/mechanisms.py",
        text="flat[start:stop] + sampler.draw(stop - start)",
        instead="flat[start:stop] + vars(table).setdefault((start, stop), sampler.draw(stop - start))",
        killed_by=(_TWICE, _INDEPENDENT),
    ),
    Fault(
        name="noise is repeated from chunk to chunk of cells",
        file="tasks/budget/mechanisms.py",
        text="flat[start:stop] + sampler.draw(stop - start)",
        instead="flat[start:stop] + (first := first if start else sampler.draw(stop))[: stop - start]",
        killed_by=(_INDEPENDENT,),
    ),
    Fault(
        name="Laplace noise has the scale of a record that comes, where records are replaced",
        file="tasks/budget/laplace.py",
        text='return stability.records * (2 if stability.neighbors == "replace-one" else 1)',
        instead="return stability.records",
        killed_by=("tests/laws/test_laplace.py::test_the_sensitivity_is_the_largest_move_of_one_subject",),
    ),
    Fault(
        name="Laplace noise has half its scale, and the check against OpenDP is gone",
        file="tasks/budget/mechanisms.py",
        text=(
            "    mechanism = _discrete_laplace(float(laplace_scale(epsilon, stability)))\n"
            "    if Fraction(mechanism.map(l1_sensitivity(stability))) > epsilon:"
        ),
        instead=(
            "    mechanism = _discrete_laplace(float(laplace_scale(epsilon, stability)) / 2)\n"
            "    if Fraction(mechanism.map(l1_sensitivity(stability))) < 0:"
        ),
        killed_by=("tests/laws/test_laplace.py::test_the_noise_has_its_exact_distribution",),
    ),
    Fault(
        name="cells of a marginal in which nobody is get no noise",
        file="tasks/aggregate/marginals.py",
        text="counts=add_noise(counts, sd, bits), deviation=float(sd))",
        instead="counts=np.where(counts > 0, add_noise(counts, sd, bits), 0), deviation=float(sd))",
        killed_by=("tests/laws/test_marginals.py::test_the_noise_of_a_marginal_has_the_deviation_it_claims",),
    ),
    Fault(
        name="theta is ignored in the noise of the record count",
        file="tasks/budget/mechanisms.py",
        text='return deviation(multiplier, 1, replace(stability, neighbors="add-remove"))',
        instead='return deviation(multiplier, 1, replace(stability, records=1, neighbors="add-remove"))',
        killed_by=(
            "tests/unit/budget/test_preparation_plans.py::test_the_record_count_is_noised_for_the_whole_unit",
            "tests/laws/test_units.py::test_alike_rows_of_a_subject_attain_every_sensitivity",
        ),
    ),
    Fault(
        name="a percentile is chosen as if the table had not been resized",
        file="tasks/aggregate/task.py",
        text="select_percentile(histogram, percentile, epsilon, configuration.stability)",
        instead="select_percentile(histogram, percentile, epsilon, configuration.privacy.stability)",
        killed_by=("tests/unit/budget/test_preparation_plans.py::test_the_percentile_is_chosen_for_the_whole_unit",),
    ),
    Fault(
        name="a percentile is drawn at twice the epsilon that is charged",
        file="tasks/aggregate/task.py",
        text="select_percentile(histogram, percentile, epsilon, configuration.stability)",
        instead="select_percentile(histogram, percentile, 2 * epsilon, configuration.stability)",
        killed_by=("tests/laws/test_doors_draw.py::test_a_percentile_has_the_planned_epsilon",),
    ),
    Fault(
        name="a private bound is drawn at twice the epsilon that is charged",
        file="tasks/preprocess/task.py",
        text="select_percentile(histogram, percentile, epsilon, configuration.privacy.stability)",
        instead="select_percentile(histogram, percentile, 2 * epsilon, configuration.privacy.stability)",
        killed_by=("tests/laws/test_doors_draw.py::test_private_bounds_have_the_planned_epsilon",),
    ),
    Fault(
        name="scores of pairs are noised as if there were one pair",
        file="tasks/aggregate/selection/indif.py",
        text="(indif_sensitivity(steps, stability) + 1) ** 2 * pairs",
        instead="(indif_sensitivity(steps, stability) + 1) ** 2",
        killed_by=("tests/laws/test_marginals.py::test_the_noise_of_the_scores_covers_their_joint_sensitivity",),
    ),
    Fault(
        name="a score of InDif moves half as far",
        file="tasks/aggregate/selection/indif.py",
        text='(8 if stability.neighbors == "replace-one" else 4)',
        instead='(4 if stability.neighbors == "replace-one" else 2)',
        killed_by=("tests/laws/test_marginals.py::test_indif_moves_by_at_most_its_sensitivity",),
    ),
    Fault(
        name="a bought comparison is noised for a record that comes, where records are replaced",
        file="tasks/budget/mechanisms.py",
        text='return stability.records * (2 if stability.neighbors == "replace-one" else 1)',
        instead="return stability.records",
        killed_by=(
            "tests/laws/test_paid_evaluation.py::test_no_neighbor_moves_it_by_more_than_its_sensitivity_and_one_does",
        ),
    ),
    Fault(
        name="the score of the percentile is that of SDS",
        file="tasks/budget/percentile.py",
        text="    return -np.maximum(0, np.maximum(wanted - upto[1:], upto[:-1] - wanted))",
        instead=(
            "    held = upto // fraction.denominator\n"
            "    at = int(np.searchsorted(held, wanted / fraction.denominator))\n"
            "    scores = np.where(histogram > 0, np.abs(held - held[at]), held[at])\n"
            "    scores[np.flatnonzero(histogram)[-1:]] = held[-1] - wanted // fraction.denominator\n"
            "    scores[at] = 0\n"
            "    return -scores[1:] * fraction.denominator"
        ),
        killed_by=(
            "tests/laws/test_percentile.py::test_choice_is_private_on_all_small_tables",
            "tests/laws/test_percentile.py::test_known_bad_pair_of_the_reference_stays_within_epsilon",
        ),
    ),
    Fault(
        name="a percentile is chosen from the range of the data",
        file="tasks/budget/mechanisms.py",
        text="select_candidate(rank_scores(histogram, percentile),",
        instead="select_candidate(rank_scores(histogram[: np.flatnonzero(histogram).max(initial=1) + 1], percentile),",
        killed_by=("tests/laws/test_percentile.py::test_candidates_are_public_whatever_occurs",),
    ),
    Fault(
        name="theta is ignored in the score of the percentile",
        file="tasks/budget/percentile.py",
        text="return stability.records * one",
        instead="return one",
        killed_by=(
            "tests/laws/test_percentile.py::test_choice_is_private_on_all_small_tables",
            "tests/laws/test_units.py::test_alike_rows_of_a_subject_attain_the_sensitivity_of_the_percentile",
        ),
    ),
)
