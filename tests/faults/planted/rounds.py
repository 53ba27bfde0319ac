"""Faults of marginals that are chosen in rounds: what a choice and a share cost, and what they draw."""

from __future__ import annotations

from tests.faults.fault import Fault

_PRICE = "tests/laws/test_rounds.py::test_every_share_is_measured_at_its_price"

FAULTS = (
    Fault(
        name="the score of a candidate moves half as far",
        file="src/marginweave/measurements/rounds.py",
        text="return STEPS * l1_sensitivity(stability)",
        instead="return STEPS // 2 * l1_sensitivity(stability)",
        killed_by=(
            "tests/laws/test_rounds.py::test_no_neighbor_moves_a_score_beyond_its_sensitivity",
            "tests/laws/test_rounds.py::test_a_choice_is_private_on_neighbors",
        ),
    ),
    Fault(
        name="the weight of a candidate is no part of the sensitivity",
        file="src/marginweave/measurements/rounds.py",
        text=" * largest_weight",
        instead="",
        killed_by=(
            "tests/laws/test_rounds.py::test_no_neighbor_moves_a_score_beyond_its_sensitivity",
        ),
    ),
    Fault(
        name="a record is in two cells of a table in coarser bins",
        file="src/marginweave/measurements/round_candidates.py",
        text="return merged_table(ordered, joined)",
        instead="return 2 * merged_table(ordered, joined)",
        killed_by=(
            "tests/laws/test_rounds.py::test_no_neighbor_moves_a_score_beyond_its_sensitivity",
            "tests/laws/test_rounds.py::test_a_set_in_coarser_bins_is_measured_as_the_sum_of_its_cells",
        ),
    ),
    Fault(
        name="a marginal is chosen at twice the epsilon that is charged",
        file="src/marginweave/measurements/round_draws.py",
        text="select_candidate(counts.scores, counts.sensitivity, self.epsilon, bits)",
        instead="select_candidate(counts.scores, counts.sensitivity, 2 * self.epsilon, bits)",
        killed_by=("tests/laws/test_rounds.py::test_the_choice_is_drawn_with_the_planned_epsilon",),
    ),
    Fault(
        name="of the choices of a round one is charged",
        file="src/marginweave/measurements/prices.py",
        text="RoundChoice.priced(Exponential, epsilon, number, pick) for pick in range(1, batch + 1)",
        instead="RoundChoice.priced(Exponential, epsilon, number, pick) for pick in range(1, 2)",
        killed_by=(
            "tests/unit/measurements/test_marginal_plans.py::test_rounds_have_equal_shares_and_spend_the_whole",
        ),
    ),
    Fault(
        name="an annealed round has half the noise for the price of one share",
        file="src/marginweave/measurements/whole_marginals.py",
        text="            self.parameter,\n            cliques,\n",
        instead="            self.parameter / 2,\n            cliques,\n",
        killed_by=(_PRICE,),
    ),
    Fault(
        name="all marginals of a round have the noise of one",
        file="src/marginweave/measurements/whole_marginals.py",
        text="""\
            cliques,
            sizes,
            settings.allocation,
            reserved=settings.reserved_shares(cliques),
            weights=settings.target_weights(cliques, levels),
        )
""",
        instead="""\
            cliques[:1],
            sizes,
            settings.allocation,
            reserved=settings.reserved_shares(cliques[:1]),
            weights=settings.target_weights(cliques[:1], levels),
        ) * len(cliques)
""",
        killed_by=(_PRICE,),
    ),
    Fault(
        name="what several shares have measured is stated with too little noise",
        file="src/marginweave/observations/means.py",
        text="deviation = float(weights.sum() ** -0.5)",
        instead="deviation = float(weights.sum() ** -0.5) / 2",
        killed_by=("tests/laws/test_rounds.py::test_shares_together_have_the_noise_that_is_told",),
    ),
)
