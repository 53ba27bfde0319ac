"""Faults of rules between columns: what they exclude, what becomes of records that break them, and what is decoded."""

from __future__ import annotations

from tests.faults.fault import Fault

_RULES = "tests/laws/test_rules_between_columns.py"
_ITSELF = f"{_RULES}::test_every_record_becomes_an_allowed_one_by_itself"
_NEIGHBOR = "tests/laws/test_sensitivity.py::test_every_neighbor_of_every_small_table"

FAULTS = (
    Fault(
        name="what a record that breaks a rule becomes depends on the others that break one",
        file="src/marginweave/prepare/repair.py",
        text="boxes_with_code > 0)\n                    words_of_dead = words.words_of(block_rows[dead], j)",
        instead="boxes_with_code > 0)\n                    words_of_dead = words.words_of(np.arange(len(dead)), j)",
        killed_by=(_ITSELF, _NEIGHBOR),
    ),
    Fault(
        name="records that break a rule are counted as they are",
        file="src/marginweave/prepare/repair.py",
        text="if len(broken):",
        instead="if not len(broken):",
        killed_by=(_ITSELF, _NEIGHBOR),
    ),
    Fault(
        name="the last column of a rule wins",
        file="src/marginweave/configuration/rules/repairs.py",
        text="before[later].add(name)",
        instead="before[name].add(later)",
        killed_by=(f"{_RULES}::test_the_first_column_of_a_rule_wins",),
    ),
    Fault(
        name="where a column does not apply it can have any value",
        file="src/marginweave/configuration/attributes.py",
        text="                yield self._complement(part), self._complement(elsewhere)\n",
        instead="                pass\n",
        killed_by=(f"{_RULES}::test_exactly_what_breaks_a_rule_is_excluded",),
    ),
    Fault(
        name="a value that is too large for a later one is not lowered",
        file="src/marginweave/records/order.py",
        text="np.where(is_too_large, most[name], values[name])",
        instead="values[name]",
        killed_by=(f"{_RULES}::test_three_dates_stand_in_order_through_each_other",),
    ),
    Fault(
        name="boxes of rules begin with equally many records",
        file="src/marginweave/estimate/mixture/fit.py",
        text="return normal(np.maximum(mass, _LEAST_MASS))",
        instead="return normal(np.ones_like(mass))",
        killed_by=(
            "tests/laws/test_box_masses.py::test_single_columns_are_met_whatever_the_boxes",
        ),
    ),
    Fault(
        name="columns that apply together are taken for functions of each other",
        file="src/marginweave/estimate/mixture/blocks.py",
        text="(mask.allowed @ second <= 1)[first > 0].all()",
        instead="(mask.allowed.sum(axis=1) <= 1)[first > 0].all()",
        killed_by=(
            "tests/laws/test_box_masses.py::test_boxes_keep_what_applies_together_however_rules_are_written",
        ),
    ),
    Fault(
        name="a private domain of which nothing was released must have a value",
        file="src/marginweave/domain/zeros.py",
        text="has_no_value = attribute.private and not values",
        instead="has_no_value = attribute.private and values is None",
        killed_by=(
            "tests/laws/test_extreme_draws.py::test_a_column_of_which_no_value_is_released_is_empty",
        ),
    ),
    Fault(
        name="rules leave no record of the values that were released, and no release",
        file="src/marginweave/domain/zeros.py",
        text="    if not lost.any():\n",
        instead="    if lost.any() or not lost.any():\n",
        killed_by=(
            "tests/laws/test_extreme_draws.py::test_rules_that_leave_no_record_of_released_values_leave_gaps",
        ),
    ),
    Fault(
        name="a mixture is fitted to no table of a column of which nothing was released",
        file="src/marginweave/estimate/tuples.py",
        text="            observations += drawn\n",
        instead="            observations += [table for table in drawn if (table.released | table.hidden).any()]\n",
        killed_by=(
            "tests/laws/test_extreme_draws.py::test_a_column_of_which_no_value_is_released_is_empty",
        ),
    ),
)
