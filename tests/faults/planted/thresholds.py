"""Faults of what is told: the threshold of private values, and noise on cells in which nobody is."""

from __future__ import annotations

from tests.faults.fault import Fault

_SMALLEST = "tests/laws/test_thresholds.py::test_private_threshold_is_the_smallest_that_keeps_delta"
_EXPOSED = "tests/laws/test_level_draw.py::test_private_values_of_one_record_are_published_with_probability_delta_at_most"
_EMPTY_VALUES = (
    "tests/laws/test_level_draw.py::test_empty_values_of_public_domains_survive_as_the_tail_says"
)
_EMPTY_PAIRS = (
    "tests/laws/test_level_draw.py::test_empty_pairs_of_survivors_survive_as_the_tail_says"
)
_JOINT = (
    "tests/laws/test_zero_cells.py::test_the_joint_distribution_is_the_exact_one[draw_unvisited]"
)
_MANY = "tests/laws/test_zero_cells.py::test_many_cells_pass_as_often_and_as_far_as_they_should"

FAULTS = (
    Fault(
        name='the "+ 1" of the threshold is missing',
        file="src/marginweave/measurements/thresholds.py",
        text="table.upper_tail(threshold - count)",
        instead="table.upper_tail(threshold)",
        killed_by=(_SMALLEST, _EXPOSED),
    ),
    Fault(
        name="the root of Delta_1 is missing in the threshold",
        file="src/marginweave/measurements/thresholds.py",
        text="max(of_single_rows, of_full_counts)",
        instead="max(exposed(threshold, 1, records), exposed(threshold, records, 1))",
        killed_by=(_SMALLEST, _EXPOSED),
    ),
    Fault(
        name="theta is ignored in the threshold",
        file="src/marginweave/measurements/thresholds.py",
        text="max(of_single_rows, of_full_counts)",
        instead="exposed(threshold, 1, contributions)",
        killed_by=(
            "tests/laws/test_units.py::test_no_way_to_hold_values_is_worse_than_the_two_extremes",
        ),
    ),
    Fault(
        name="a noisy count above the printed rho_1 is released, where it has to reach the integer T",
        file="src/marginweave/measurements/thresholds.py",
        text="    return 1 + bisect_left(range(1, table.largest + 1 + records), True, key=is_enough)\n",
        instead=(
            "    quantile = -ndtri(-math.expm1(math.log1p(-delta_threshold) / contributions))\n"
            "    return _above(1 + float(sigma) * float(quantile))\n"
        ),
        killed_by=(_SMALLEST, _EXPOSED),
    ),
    Fault(
        name="counts are suppressed by what they are exactly",
        file="src/marginweave/measurements/levels.py",
        text=(
            "        for cells, noised in _noised(counted, mechanism.sigma, bits, table):\n"
            "            reach = noised >= threshold\n"
        ),
        instead=(
            "        exact = list(counted)\n"
            "        noisy_pieces = _noised(exact, mechanism.sigma, bits, table)\n"
            "        for (_, counts), (cells, noised) in zip(exact, noisy_pieces, strict=True):\n"
            "            reach = counts >= threshold\n"
        ),
        killed_by=(
            "tests/laws/test_level_draw.py::test_noise_is_added_before_the_threshold",
            _EMPTY_VALUES,
        ),
    ),
    Fault(
        name="cells in which nobody is get no noise",
        file="src/marginweave/measurements/levels.py",
        text="if not private:",
        instead="if False:",
        killed_by=(_EMPTY_VALUES, _EMPTY_PAIRS),
    ),
    Fault(
        name="as many empty cells pass as are expected, always",
        file="src/marginweave/mechanisms/zero_cells.py",
        text="passing = binomial_table(size, probability).draw(stream)",
        instead="passing = round(size * probability)",
        killed_by=(_JOINT,),
    ),
    Fault(
        name="empty cells pass as often as those that exceed the threshold by one",
        file="src/marginweave/mechanisms/zero_cells.py",
        text="return noise_table(sigma).upper_tail(threshold)",
        instead="return noise_table(sigma).upper_tail(threshold + 1)",
        killed_by=(_MANY,),
    ),
    Fault(
        name="the noise of empty cells that passed is that of any count",
        file="src/marginweave/mechanisms/zero_cells.py",
        text="return draw_tail(tail_table(threshold, sigma), count,",
        instead="return threshold - 1 + draw_tail(tail_table(1, sigma), count,",
        killed_by=(_MANY,),
    ),
    Fault(
        name="a cell that occurs is released a second time, as an empty one",
        file="src/marginweave/measurements/levels.py",
        text="zeros = passing[are_zero]",
        instead="zeros = passing",
        killed_by=(_JOINT,),
    ),
    Fault(
        name="an adaptive threshold does not grow with the noise",
        file="src/marginweave/measurements/thresholds.py",
        text="return max(0.0, -float(sigma) * ndtri(probability))",
        instead="return max(0.0, -float(ndtri(probability)))",
        killed_by=(
            "tests/laws/test_thresholds.py::test_adaptive_rate_needs_this_lengths_contribution_bound",
        ),
    ),
)
