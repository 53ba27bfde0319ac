"""Faults of what is known from elsewhere: where it reaches what is drawn, or is not kept, or not told."""

from __future__ import annotations

from tests.mutations.fault import Fault

FAULTS = (
    Fault(
        name="the published number of records follows an exact table of the rows",
        file="tasks/normalize/marginals.py",
        text="    total, sigma = _total(marginals, configuration)\n    return Aggregates(",
        instead="    total, sigma = total_of_rows(configuration) or 0.0, 0.0\n    return Aggregates(",
        killed_by=("tests/system/test_known_totals.py::test_no_draw_depends_on_what_is_known[marginals]",),
    ),
    Fault(
        name="an invariant is told as the table of another source",
        file="tasks/publish/statement.py",
        text='if known.exact and known.table.origin == "these-rows"',
        instead='if known.exact and known.table.origin == "other-source"',
        killed_by=("tests/unit/schemas/test_known.py::test_what_is_known_of_these_rows_is_told",),
    ),
    Fault(
        name="each shard keeps a known table for itself, rounded down",
        file="tasks/synthesize/known.py",
        text="np.diff((np.cumsum(self.counts) + shard) // shards, prepend=0)",
        instead="self.counts // shards",
        killed_by=("tests/laws/test_known_totals.py::test_shards_add_up",),
    ),
)
