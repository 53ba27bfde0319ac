"""Faults of answers: an estimate that is not the best one, an interval that covers less than it says."""

from __future__ import annotations

from tests.faults.fault import Fault

_DENSE = "tests/laws/test_answers.py::test_estimate_and_variance_are_those_of_the_dense_system"

_MERGED = (
    "tests/laws/test_merging_by_noise.py::test_no_sum_of_counts_is_biased_by_what_noise_merged"
)

_REJECTED = (
    "tests/laws/test_independent_columns.py::test_independent_columns_are_rejected_as_often_as_said"
)

_CHOSEN = "tests/laws/test_chosen_sets.py::test_what_is_claimed_of_a_population_covers_it"

_SETS = "tests/laws/test_drawn_sets.py::test_sets_vary_around_what_was_measured_as_noise_and_sampling_do"

FAULTS = (
    Fault(
        name="a sum of many cells of a table counts for as exact as one cell",
        file="src/marginweave/answers/least_squares.py",
        text="weight = cells / (table.counts.size * table.variance)",
        instead="weight = 1 / table.variance",
        killed_by=(_DENSE,),
    ),
    Fault(
        name="answers forget that the number of records is noisy",
        file="src/marginweave/answers/least_squares.py",
        text="covariance=covariance + np.outer(slopes, slopes) * total_variance",
        instead="covariance=covariance",
        killed_by=(_DENSE,),
    ),
    Fault(
        name="answers that share a column are taken for independent",
        file="src/marginweave/answers/least_squares.py",
        text="covariance[np.ix_(rows, rows)] += scale_products * residual_covariance",
        instead="covariance[rows, rows] += scales * scales * np.diagonal(residual_covariance)",
        killed_by=(_DENSE,),
    ),
    Fault(
        name="a value takes from larger tables what they tell wherever its noise left it unmerged",
        file="src/marginweave/answers/tables.py",
        text="return replace(tables, merged_below=_merged_below(marginals, configuration, earlier))",
        instead="return tables",
        killed_by=(_MERGED,),
    ),
    Fault(
        name="weights that follow the noise of a count are taken for fixed ones",
        file="src/marginweave/answers/axes.py",
        text="means + corrections.sum(axis=1)",
        instead="means",
        killed_by=(_MERGED,),
    ),
    Fault(
        name="values that noise left unmerged are counted by this noise beside other columns",
        file="src/marginweave/answers/least_squares.py",
        text="any_joint_query = any(len(signature) > 1 for _, signature in readings)",
        instead="any_joint_query = False",
        killed_by=(
            "tests/laws/test_merging_by_noise.py::test_what_noise_left_unmerged_is_not_too_large_beside_other_columns",
        ),
    ),
    Fault(
        name="a sample has all values that a population may have",
        file="src/marginweave/answers/quantities.py",
        text="return -count * end * from_end, count * (end + from_end), -count",
        instead="return max(squares, count * mean**2), -2 * mean * count, count",
        killed_by=(
            "tests/laws/test_answers.py::test_means_of_a_population_are_covered_also_where_rare_values_decide",
        ),
    ),
    Fault(
        name="a share of cells that are not as declared takes the number of records for exact",
        file="src/marginweave/domain/labels.py",
        text="of_records = half * deviation / self.deviation if self.deviation else 0.0",
        instead="of_records = 0.0",
        killed_by=(
            "tests/unit/counts/test_undeclared.py::test_the_share_of_such_cells_is_as_near_as_it_says",
        ),
    ),
    Fault(
        name="an interval of a regression forgets half of the noise",
        file="src/marginweave/inference/normal_regression.py",
        text="spread = reaction @ self.sums.covariance @ reaction.T",
        instead="spread = reaction @ self.sums.covariance @ reaction.T / 4",
        killed_by=("tests/laws/test_regression.py::test_intervals_cover_as_often_as_they_say",),
    ),
    Fault(
        name="a regression ends where the model is",
        file="src/marginweave/inference/normal_regression.py",
        text="b = b + inverse @ self._score(b, kind)",
        instead="b = b + 0 * inverse @ self._score(b, kind)",
        killed_by=("tests/laws/test_regression.py::test_intervals_cover_as_often_as_they_say",),
    ),
    Fault(
        name="a regression depends on the units of its columns",
        file="src/marginweave/inference/normal_regression.py",
        text="scale = np.where(deviation > 0, deviation, 1.0)",
        instead="scale = np.ones_like(deviation)",
        killed_by=("tests/laws/test_regression.py::test_units_change_nothing",),
    ),
    Fault(
        name="rows of one person are taken for independent draws",
        file="src/marginweave/inference/normal_regression.py",
        text="spread += sampling * self.start * scores.T @ scores",
        instead="spread += min(sampling, 1.0) * self.start * scores.T @ scores",
        killed_by=(
            "tests/laws/test_regression.py::test_intervals_cover_where_all_rows_of_a_person_are_alike",
        ),
    ),
    Fault(
        name="a pair that the rows have chosen is taken for one that was named",
        file="src/marginweave/answers/tables.py",
        text="return bool(holding) and all(table.chosen for table in holding)",
        instead="return False",
        killed_by=(_CHOSEN,),
    ),
    Fault(
        name="a reader of a release does not see that the rows have chosen a pair",
        file="src/marginweave/estimate/earlier.py",
        text="chosen=selects and len(attributes) > 1",
        instead="chosen=False",
        killed_by=(_CHOSEN,),
    ),
    Fault(
        name="a coefficient does not move with places of numbers in the bins of columns",
        file="src/marginweave/inference/bin_places.py",
        text="x[:, self._binned] += self.x_half[:, self._binned] * np.sign(direction * x_change)",
        instead="x += 0.0",
        killed_by=(
            "tests/laws/test_bin_places.py::test_no_places_that_were_tried_move_a_coefficient_further",
        ),
    ),
    Fault(
        name="a test of independence forgets the noise of cells",
        file="src/marginweave/evaluate/association_noise.py",
        text="/ n + noise**2)",
        instead="/ n + 1)",
        killed_by=(_REJECTED,),
    ),
    Fault(
        name="a test of independence takes rows of one person for people",
        file="src/marginweave/evaluate/association_noise.py",
        text="weights = 1 / (sampling * records",
        instead="weights = 1 / (1.0 * records",
        killed_by=(_REJECTED,),
    ),
    Fault(
        name="what no round chose is taken to be as near the model as what was measured",
        file="src/marginweave/answers/model.py",
        text='if not is_measured and "last" in misfits:',
        instead='if is_measured and "last" in misfits:',
        killed_by=(
            "tests/laws/test_few_rounds.py::test_intervals_of_pairs_that_no_round_chose_cover",
        ),
    ),
    Fault(
        name="a pair that no round chose is graded by the noise alone",
        file="src/marginweave/evaluate/distances.py",
        text="pair_distance = max(by_noise, ",
        instead="pair_distance = min(by_noise, ",
        killed_by=(
            "tests/laws/test_few_rounds.py::test_pairs_that_no_round_chose_are_not_called_good",
        ),
    ),
    Fault(
        name="bounds of what was not measured forget their noise",
        file="src/marginweave/answers/bounds.py",
        text="return bound + reach.of(sd)",
        instead="return bound",
        killed_by=("tests/laws/test_bounds.py::test_a_truth_at_the_end_of_its_bounds_is_covered",),
    ),
    Fault(
        name="a guess of the model claims to cover",
        file="src/marginweave/answers/marginals.py",
        text="claimed=is_known and not choices",
        instead="claimed=not choices",
        killed_by=("tests/laws/test_bounds.py::test_what_nothing_tells_of_is_not_claimed",),
    ),
    Fault(
        name="a model that follows another source claims to cover",
        file="src/marginweave/answers/model.py",
        text="return not self.follows and all(",
        instead="return all(",
        killed_by=(
            "tests/laws/test_model_answers.py::test_of_a_model_that_follows_another_source_nothing_is_known",
        ),
    ),
    Fault(
        name="a share of a population by released values claims to cover",
        file="src/marginweave/answers/marginals.py",
        text='if question.asked == "share" and released:',
        instead="if False:",
        killed_by=(
            "tests/unit/answers/test_marginal_answers.py::test_a_share_of_a_population_by_released_values_claims_nothing",
        ),
    ),
    Fault(
        name="a group that a rule forbids is counted like any other",
        file="src/marginweave/answers/rules.py",
        text="return bool(rule.table(codes).any())",
        instead="return True",
        killed_by=(
            "tests/unit/answers/test_marginal_answers.py::test_what_a_rule_forbids_is_0_exactly_and_nothing_else_is",
        ),
    ),
    Fault(
        name="several synthetic tables are drawn around the model",
        file="src/marginweave/inference/several_sets.py",
        text="            counts = margin.estimates\n",
        instead="            counts = margin.estimates * (len(margin.places) == 1)\n",
        killed_by=(_SETS,),
    ),
    Fault(
        name="several synthetic tables do not vary by noise",
        file="src/marginweave/inference/several_sets.py",
        text="counts = self._counts(generator)",
        instead="counts = self._counts(None)",
        killed_by=(_SETS,),
    ),
    Fault(
        name="a model's values are taken for those of a table that has them in another order",
        file="src/marginweave/inference/margins.py",
        text="np.eye(part.size)[codes]",
        instead="np.eye(part.size)",
        killed_by=(
            "tests/laws/test_drawn_sets.py::test_codes_of_a_measured_table_in_another_order",
        ),
    ),
    Fault(
        name="what is cut of noisy cells pulls several synthetic tables towards independence",
        file="src/marginweave/inference/several_sets.py",
        text="fit = margin.with_sums if has_products else margin.with_counts",
        instead="fit = margin.with_counts",
        killed_by=(
            "tests/laws/test_drawn_sets.py::test_slopes_of_numbers_are_not_pulled_towards_independence",
        ),
    ),
    Fault(
        name="records of several synthetic tables are drawn independently",
        file="src/marginweave/inference/several_sets.py",
        text="times = apportion(weights[order], self.size, generator)",
        instead="times = generator.multinomial(self.size, weights[order])",
        killed_by=(
            "tests/laws/test_drawn_sets.py::test_records_are_as_often_in_a_set_as_their_weights_say",
        ),
    ),
    Fault(
        name="the mean of several synthetic tables is taken to be known better than the release",
        file="src/marginweave/inference/several_sets.py",
        text="np.cov(estimates.T)) * (1 + 1 / sets)",
        instead="np.cov(estimates.T)) * (1 - 1 / sets)",
        killed_by=(
            "tests/laws/test_drawn_sets.py::test_combined_intervals_cover_as_often_as_they_say",
        ),
    ),
    Fault(
        name="a share that noise took below 0 has an empty interval",
        file="src/marginweave/answers/intervals.py",
        text="n = _clipped(float(values[0]), limits[0] * d, limits[1] * d)",
        instead="n = float(values[0])",
        killed_by=(
            "tests/laws/test_answers.py::test_a_ratio_beyond_its_limits_has_the_interval_of_the_limit",
        ),
    ),
    Fault(
        name="the ends of a count in whole numbers do not move out",
        file="src/marginweave/answers/intervals.py",
        text="half_widths = [reach.of(sigma) + (0.5 if sigma else 0.0) for sigma in sigmas.tolist()]",
        instead="half_widths = [reach.of(sigma) for sigma in sigmas.tolist()]",
        killed_by=(
            "tests/laws/test_answers.py::test_a_count_from_one_cell_covers_what_the_exact_interval_does",
        ),
    ),
)
