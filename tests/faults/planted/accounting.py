"""Faults of the budget: what (epsilon, delta) buys, how it is split, what is charged."""

from __future__ import annotations

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        name="the sum in sigma_k runs to k, not to R",
        file="src/marginweave/measurements/split.py",
        text="multipliers = tuple(p / least * scale for p in proportions)",
        instead=(
            "multipliers = tuple(\n"
            "        p * math.sqrt(sum(q**-2 for q in proportions[: k + 1]) / budget) for k, p in enumerate(proportions)\n"
            "    )"
        ),
        killed_by=(
            "tests/unit/measurements/test_k_tuple_plans.py::test_sigma_sum_must_run_to_the_last_length",
        ),
    ),
    Fault(
        name="delta is used twice, for the threshold and whole for the noise",
        file="src/marginweave/measurements/split.py",
        text="epsilon=epsilon, delta=delta - delta_threshold,",
        instead="epsilon=epsilon, delta=delta,",
        killed_by=(
            "tests/unit/measurements/test_k_tuple_plans.py::test_shares_are_shares_of_the_budget[True]",
        ),
    ),
    Fault(
        name="the delta of the threshold is not charged",
        file="src/marginweave/measurements/base.py",
        text="cost = replace(cost, delta=amount(delta))",
        instead="cost = replace(cost)",
        killed_by=(
            "tests/unit/measurements/test_k_tuple_plans.py::test_only_private_domains_pay_for_a_threshold",
        ),
    ),
    Fault(
        name="a selection is charged half its epsilon",
        file="src/marginweave/mechanisms/exponential.py",
        text="return Cost(mu2=amount(selection_mu(parameter) ** 2), rho=amount(parameter**2 / 8))",
        instead="return Cost(mu2=amount(selection_mu(parameter / 2) ** 2), rho=amount(parameter**2 / 32))",
        killed_by=(
            "tests/unit/measurements/test_k_tuple_plans.py::test_every_draw_is_priced_in_both_currencies",
        ),
    ),
    Fault(
        name="releases of an account do not add up",
        file="src/marginweave/accounting/accounts.py",
        text="cost = self.cost + record.charged",
        instead="cost = record.charged",
        killed_by=("tests/laws/test_filter.py::test_no_history_leaves_its_box",),
    ),
    Fault(
        name="the sum of group privacy begins at 1",
        file="src/marginweave/accounting/amplification.py",
        text="share = _expm1_ratio(functional, copies * functional) / s",
        instead="share = 1 / (s * max(1, sum(math.exp(i * functional) for i in range(1, copies))))",
        killed_by=(
            "tests/unit/accounting/test_amplification.py::test_the_sum_begins_at_zero_and_has_the_functional_exponent",
        ),
    ),
    Fault(
        name="the shares of DPSyn's marginals are relative to the largest, not to their sum",
        file="src/marginweave/measurements/marginals.py",
        text="= weighed / weighed.sum()",
        instead="= weighed / weighed.max()",
        killed_by=(
            "tests/unit/measurements/test_marginal_plans.py::test_the_deviations_of_a_draw_cost_what_its_multiplier_does",
        ),
    ),
    Fault(
        name="the marginals beside the table of a target share the whole budget, not what that table leaves",
        file="src/marginweave/measurements/marginals.py",
        text="of_shared = 1 - sum(reserved.values()) if shared else 1.0",
        instead="of_shared = 1.0",
        killed_by=(
            "tests/laws/test_target.py::test_all_marginals_cost_together_what_the_draw_does",
        ),
    ),
    Fault(
        name="a release is compared with the cap as if it cost nothing",
        file="src/marginweave/ledger/boxes.py",
        text="if account.box.holds(spent.cost + cost):",
        instead="if account.box.holds(spent.cost):",
        killed_by=(
            "tests/unit/ledger/test_accounts_and_reservations.py::test_cap_below_the_printed_one_still_refuses",
            "tests/laws/test_filter.py::test_no_strategy_gets_past_the_box",
        ),
    ),
    Fault(
        name="one coordinate of the box pays for another",
        file="src/marginweave/accounting/accounts.py",
        text=(
            "return (\n"
            "            cost.mu2 <= self.mu2\n"
            "            and cost.delta <= self.delta_add\n"
            "            and cost.plain.within(self.allowance)\n"
            "        )"
        ),
        instead=(
            "whole = BasicAmount(epsilon=self.mu2, delta=self.delta_add) + self.allowance\n"
            "        return cost.mu2 / (whole.epsilon or 1) + cost.delta / (whole.delta or 1) <= 2"
        ),
        killed_by=("tests/laws/test_filter.py::test_no_strategy_gets_past_the_box",),
    ),
    Fault(
        name="the delta of thresholds is not taken off the delta that mu^2 is converted at",
        file="src/marginweave/ledger/boxes.py",
        text="delta = rounded(EXACT.subtract(cap.delta, delta_set_aside), up=False)",
        instead="delta = rounded(cap.delta, up=False)",
        killed_by=("tests/laws/test_filter.py::test_no_strategy_gets_past_the_box",),
    ),
    Fault(
        name="an account that is closed admits again after a refund",
        file="src/marginweave/accounting/accounts.py",
        text="cost_by_statement=record.reserved if record.by_statement else self.cost_by_statement,",
        instead="cost_by_statement=record.charged if record.by_statement else self.cost_by_statement,",
        killed_by=(
            "tests/unit/ledger/test_boxes.py::test_a_closed_account_stays_closed_after_a_refund",
        ),
    ),
    Fault(
        name="the second release of an account is admitted by its statement, too",
        file="src/marginweave/ledger/boxes.py",
        text="if spent.ever_reserved == 0 and statement.within(account.cap):",
        instead="if statement.within(account.cap):",
        killed_by=(
            "tests/unit/ledger/test_boxes.py::test_only_the_first_release_is_admitted_by_its_statement",
        ),
    ),
    Fault(
        name="the verifiers do not compare the deviation of a length with its row",
        file="src/marginweave/verify/bundle_statement.py",
        text=(
            'compare(\n        f"noise.{name}", level, {"deviation": '
            '_sigma(draw["parameter"], bound, records, replaced)}\n    )'
        ),
        instead="pass",
        killed_by=("tests/unit/verify/test_statement_verifiers.py::test_every_other_lie_is_found",),
    ),
    Fault(
        name="the verifiers believe any epsilon",
        file="src/marginweave/verify/bundle_accounting.py",
        text="    return mixed_total_delta(draws, epsilon) <= allowed",
        instead="    return True",
        killed_by=(
            "tests/laws/test_verifier_accounting.py::test_what_the_program_plans_holds_and_no_less_does",
        ),
    ),
)
