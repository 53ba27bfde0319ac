"""Faults of noise: how much there is, where it comes from, and whether it is new."""

from __future__ import annotations

from tests.faults.fault import Fault

_DEVIATION = "tests/unit/mechanisms/test_gaussian.py::test_deviation_is_the_next_multiple_above_the_sensitivity"
_MOVE = "tests/laws/test_units.py::test_counts_move_by_no_more_than_the_noise_is_made_for"
_EXACT = "tests/laws/test_noise.py::test_noise_has_the_exact_distribution"
_TWICE = "tests/laws/test_noise.py::test_two_releases_differ_by_twice_the_variance"
_FORKS = "tests/laws/test_noise.py::test_forked_workers_never_share_noise"
_INDEPENDENT = "tests/laws/test_noise.py::test_cells_and_calls_are_independent"
_BITS = "tests/unit/mechanisms/test_gaussian.py::test_noise_does_not_depend_on_the_counts"
_SCAN = (
    "tests/unit/mechanisms/test_gaussian.py::test_the_guided_search_finds_what_a_plain_search_does"
)

_KEYED = "tests/laws/test_keyed_noise.py::"
_CHUNKS = _KEYED + "test_noise_does_not_depend_on_chunks"
_OTHERS = _KEYED + "test_words_of_other_addresses_are_independent"

_DRAWN = "draw_signed(distribution, bits, table, start + first, len(chunk))"
_SQUARED_NORM = (
    'stability.records**2 * contribution_bound * (2 if stability.neighbors == "replace-one" else 1)'
)

FAULTS = (
    Fault(
        name="the root of Delta_k is missing in the noise",
        file="src/marginweave/mechanisms/gaussian.py",
        text="Sensitivity.of_rows(stability, l1=contribution_bound, l2_squared=contribution_bound)",
        instead="Sensitivity.of_rows(stability)",
        killed_by=(_DEVIATION, _MOVE),
    ),
    Fault(
        name="theta is ignored in the noise",
        file="src/marginweave/mechanisms/base.py",
        text="l2_squared=sides * theta**2 * l2_squared",
        instead="l2_squared=sides * l2_squared",
        killed_by=(_DEVIATION, _MOVE),
    ),
    Fault(
        name="a replaced record is noised as one that comes",
        file="src/marginweave/mechanisms/base.py",
        text="l2_squared=sides * theta**2 * l2_squared",
        instead="l2_squared=theta**2 * l2_squared",
        killed_by=(_DEVIATION, _MOVE),
    ),
    Fault(
        name="sigma is halved",
        file="src/marginweave/mechanisms/gaussian.py",
        text="distribution = noise_table(sigma)",
        instead="distribution = noise_table(sigma / 2)",
        killed_by=(_EXACT, _TWICE),
    ),
    Fault(
        name="noise only ever adds",
        file="src/marginweave/mechanisms/noise_table.py",
        text="return np.where(words & np.uint64(1), -magnitude, magnitude)",
        instead="return magnitude",
        killed_by=(_EXACT, _SCAN),
    ),
    Fault(
        name="a tie of the first 63 bits is not settled by the rest",
        file="src/marginweave/mechanisms/noise_table.py",
        text="entries[tie] = table.reached(int(top_bits[tie]) << REST_BITS | low)",
        instead="entries[tie] += 0 * low",
        killed_by=("tests/unit/mechanisms/test_gaussian.py::test_draws_compare_all_128_bits",),
    ),
    Fault(
        name="noise is a float that is rounded",
        file="src/marginweave/mechanisms/gaussian.py",
        text=_DRAWN,
        instead="np.rint(np.random.default_rng().normal(0, float(sigma), len(chunk))).astype(np.int64)",
        killed_by=(_BITS, _SCAN),
    ),
    Fault(
        name="a seed was left in",
        file="src/marginweave/mechanisms/randomness.py",
        text='hmac.digest(bytes(_KEY), self.seed, "sha256")',
        instead='hmac.digest(bytes(_KEY), b"42", "sha256")',
        killed_by=(_TWICE, _FORKS, _OTHERS),
    ),
    Fault(
        name="fresh seeds have a state that forks inherit",
        file="src/marginweave/mechanisms/randomness.py",
        text="os.urandom(_KEY)",
        instead="vars(np).setdefault('_left_in', np.random.default_rng()).bytes(_KEY)",
        killed_by=(_FORKS,),
    ),
    Fault(
        name="noise is used again at a retry",
        file="src/marginweave/mechanisms/gaussian.py",
        text=_DRAWN,
        instead=f"vars(distribution).setdefault((start + first, len(chunk)), {_DRAWN})",
        killed_by=(_TWICE, _INDEPENDENT),
    ),
    Fault(
        name="noise is repeated from chunk to chunk of cells",
        file="src/marginweave/mechanisms/gaussian.py",
        text=_DRAWN,
        instead=_DRAWN.replace("start + first", "start"),
        killed_by=(_INDEPENDENT, _CHUNKS),
    ),
    Fault(
        name="Laplace noise of another marginal is stretched over this one",
        file="src/marginweave/mechanisms/laplace.py",
        text="    if noise.dtype != np.int64 or noise.shape != (counts.size,):\n",
        instead="    noise = np.resize(noise, counts.size).astype(np.int64)\n    if noise.shape != (counts.size,):\n",
        killed_by=(
            "tests/laws/test_laplace.py::test_noise_that_was_drawn_for_another_marginal_is_refused",
        ),
    ),
    Fault(
        name="Laplace noise is for a record that comes, where records are replaced",
        file="src/marginweave/mechanisms/base.py",
        text="return cls(l1=sides * theta * l1",
        instead="return cls(l1=theta * l1",
        killed_by=(
            "tests/laws/test_laplace.py::test_the_sensitivity_is_the_largest_move_of_one_subject",
        ),
    ),
    Fault(
        name="Laplace noise has half its scale, and the check against OpenDP is gone",
        file="src/marginweave/mechanisms/laplace.py",
        text="    mechanism = _discrete_laplace(scale)\n"
        "    if Fraction(mechanism.map(l1_sensitivity(stability))) > epsilon:",
        instead="    mechanism = _discrete_laplace(scale / 2)\n"
        "    if Fraction(mechanism.map(l1_sensitivity(stability))) < 0:",
        killed_by=("tests/laws/test_laplace.py::test_the_noise_has_its_exact_distribution",),
    ),
    Fault(
        name="cells of a marginal in which nobody is get no noise",
        file="src/marginweave/measurements/marginals.py",
        text="        yield Observation(\n",
        instead="        noisy = np.where(counts > 0, noisy, 0)\n        yield Observation(\n",
        killed_by=(
            "tests/laws/test_marginals.py::test_the_noise_of_a_marginal_has_the_deviation_it_claims",
        ),
    ),
    Fault(
        name="theta is ignored in the noise of the record count",
        file="src/marginweave/mechanisms/gaussian.py",
        text='return noise_sigma(multiplier, 1, replace(stability, neighbors="add-remove"))',
        instead='return noise_sigma(multiplier, 1, replace(stability, records=1, neighbors="add-remove"))',
        killed_by=(
            "tests/unit/measurements/test_preparation_plans.py::test_the_record_count_is_noised_for_the_whole_unit",
            "tests/laws/test_units.py::test_alike_rows_of_a_subject_attain_every_sensitivity",
        ),
    ),
    Fault(
        name="a subject with many rows moves the number of rows that are left out by all of them",
        file="src/marginweave/measurements/rows_beyond_cap.py",
        text="beyond = np.minimum(block.rows_of_unit - cap, most)",
        instead="beyond = block.rows_of_unit - cap",
        killed_by=(
            "tests/laws/test_units.py::test_a_subject_moves_what_is_left_out_by_at_most_its_bound",
        ),
    ),
    Fault(
        name="rows that are left out are noised as if their subjects were not counted with them",
        file="src/marginweave/measurements/rows_beyond_cap.py",
        text="return Sensitivity(l1=2 * most, l2_squared=2 * most**2)",
        instead="return Sensitivity(l1=most, l2_squared=most**2)",
        killed_by=(
            "tests/laws/test_units.py::test_a_subject_with_many_rows_moves_what_is_left_out_as_far_as_is_stated",
        ),
    ),
    Fault(
        name="a percentile is chosen as if the table had not been resized",
        file="src/marginweave/measurements/contribution_bound.py",
        text="counts=(histogram, self.percentile(configuration), self.view.stability(configuration)),",
        instead="counts=(histogram, self.percentile(configuration), configuration.privacy.stability),",
        killed_by=(
            "tests/unit/measurements/test_preparation_plans.py::test_the_percentile_is_chosen_for_the_whole_unit",
        ),
    ),
    Fault(
        name="a percentile is drawn at twice the epsilon that is charged",
        file="src/marginweave/measurements/contribution_bound.py",
        text="select_percentile(histogram, percentile, self.epsilon, unit, bits)",
        instead="select_percentile(histogram, percentile, 2 * self.epsilon, unit, bits)",
        killed_by=("tests/laws/test_stages_draw.py::test_a_percentile_has_the_planned_epsilon",),
    ),
    Fault(
        name="a private bound is drawn at twice the epsilon that is charged",
        file="src/marginweave/measurements/quantile_bounds.py",
        text="select_percentile(histogram, self.percentile, self.epsilon, unit, bits)",
        instead="select_percentile(histogram, self.percentile, 2 * self.epsilon, unit, bits)",
        killed_by=("tests/laws/test_stages_draw.py::test_private_bounds_have_the_planned_epsilon",),
    ),
    Fault(
        name="scores of pairs are noised as if there were one pair",
        file="src/marginweave/measurements/pair_scores.py",
        text="moved**2 * pairs",
        instead="moved**2",
        killed_by=(
            "tests/laws/test_marginals.py::test_the_noise_of_the_scores_covers_their_joint_sensitivity",
        ),
    ),
    Fault(
        name="scores of few records are noised as if there were one pair",
        file="src/marginweave/measurements/few_records.py",
        text="l2_squared=pairs * moved**2",
        instead="l2_squared=moved**2",
        killed_by=(
            "tests/laws/test_few_records.py::test_the_noise_of_scores_covers_all_of_them",
            "tests/laws/test_few_records.py::test_all_noise_of_the_draw_costs_what_the_draw_does",
        ),
    ),
    Fault(
        name="single columns of few records take what pairs and scores have cost",
        file="src/marginweave/measurements/few_records.py",
        text="part_left = 1 - AGAIN - scored - of_pairs",
        instead="part_left = 1 - AGAIN",
        killed_by=(
            "tests/laws/test_few_records.py::test_all_noise_of_the_draw_costs_what_the_draw_does",
        ),
    ),
    Fault(
        name="a score of InDif moves half as far",
        file="src/marginweave/measurements/pair_scores.py",
        text='moved_by_record = 8 if stability.neighbors == "replace-one" else 4',
        instead='moved_by_record = 4 if stability.neighbors == "replace-one" else 2',
        killed_by=("tests/laws/test_marginals.py::test_indif_moves_by_at_most_its_sensitivity",),
    ),
    Fault(
        name="the score of the percentile is that of SDS",
        file="src/marginweave/mechanisms/percentile.py",
        text="    return -np.maximum(0, distances)",
        instead=(
            "    held = up_to // fraction.denominator\n"
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
        file="src/marginweave/mechanisms/gaussian.py",
        text="scores = rank_scores(histogram, percentile)",
        instead="scores = rank_scores(histogram[: np.flatnonzero(histogram).max(initial=1) + 1], percentile)",
        killed_by=("tests/laws/test_percentile.py::test_candidates_are_public_whatever_occurs",),
    ),
    Fault(
        name="theta is ignored in the score of the percentile",
        file="src/marginweave/mechanisms/percentile.py",
        text="return stability.records * moved",
        instead="return moved",
        killed_by=(
            "tests/laws/test_percentile.py::test_choice_is_private_on_all_small_tables",
            "tests/laws/test_units.py::test_alike_rows_of_a_subject_attain_the_sensitivity_of_the_percentile",
        ),
    ),
)
