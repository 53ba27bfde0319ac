"""Faults of what is known from elsewhere: where it reaches what is drawn, or is not kept, or not told."""

from __future__ import annotations

from tests.faults.fault import Fault

_EARLIER = "tests/system/test_earlier_releases.py"

FAULTS = (
    Fault(
        name="the published number of records follows an exact table of the rows",
        file="src/marginweave/estimate/marginals.py",
        text="    total, sigma = _total(marginals, configuration)\n    return Aggregates(",
        instead="    total, sigma = total_of_rows(configuration) or 0.0, 0.0\n    return Aggregates(",
        killed_by=(
            "tests/system/test_known_totals.py::test_no_draw_depends_on_what_is_known[marginals]",
        ),
    ),
    Fault(
        name="an invariant is stated as the table of another source",
        file="src/marginweave/publish/statement.py",
        text='if known_total.exact and known_total.table.origin == "these-rows"',
        instead='if known_total.exact and known_total.table.origin == "other-source"',
        killed_by=(
            "tests/unit/configuration/test_known.py::test_what_is_known_of_these_rows_is_told",
        ),
    ),
    Fault(
        name="each shard keeps a known table for itself, rounded down",
        file="src/marginweave/records/known.py",
        text="np.diff(dealt, prepend=0)",
        instead="self.counts // shards",
        killed_by=("tests/laws/test_known_totals.py::test_shards_add_up",),
    ),
    Fault(
        name="files of an earlier release are used that nobody has published",
        file="src/marginweave/runs/earlier.py",
        text='if record.outputs.get(f"release/{name}") != digest:',
        instead="if not record.outputs:",
        killed_by=(
            f"{_EARLIER}::test_what_is_not_in_the_ledger_is_refused[privacy.json]",
            f"{_EARLIER}::test_what_is_not_in_the_ledger_is_refused[measurements.parquet]",
        ),
    ),
    Fault(
        name="an earlier release counts as much as this one, whatever its noise",
        file="src/marginweave/estimate/earlier.py",
        text="counts = np.sum(weighted, axis=0) / precision",
        instead="counts = np.mean([cells.counts for cells in tables], axis=0)",
        killed_by=(
            "tests/laws/test_earlier_tables.py::test_two_measurements_have_the_noise_of_both_precisions[10.0-2.5]",
        ),
    ),
    Fault(
        name="an earlier release changes the published number of records",
        file="src/marginweave/estimate/marginals.py",
        text="return estimate_total(marginals.drawn), precision",
        instead="return estimate_total([*(marginals.pooled or marginals.one_way), *marginals.larger]), precision",
        killed_by=(f"{_EARLIER}::test_no_draw_depends_on_an_earlier_release",),
    ),
    Fault(
        name="merged values are distinguished by this release alone, where an earlier one counted them better",
        file="src/marginweave/estimate/marginals.py",
        text="estimated_marginals(marginals, configuration).measured[0]",
        instead="estimated_marginals(marginals, configuration).one_way",
        killed_by=(
            "tests/laws/test_earlier_tables.py::test_merged_values_of_records_have_the_shares_of_both_releases",
        ),
    ),
    Fault(
        name="single columns alone decide whether cells are not as declared",
        file="src/marginweave/observations/undeclared.py",
        text="m for m in larger if place in m.attributes and m.complete",
        instead="m for m in larger[:0]",
        killed_by=("tests/unit/counts/test_undeclared.py::test_larger_tables_decide_as_well",),
    ),
    Fault(
        name="the verdict takes the noise of this release for that of both",
        file="src/marginweave/evaluate/bounds.py",
        text="    one_way, wider = marginals.measured\n",
        instead="    one_way, wider = marginals.one_way, marginals.larger\n",
        killed_by=(
            "tests/unit/evaluate/test_bounds.py::test_groups_are_as_small_as_both_releases_can_tell",
        ),
    ),
)
