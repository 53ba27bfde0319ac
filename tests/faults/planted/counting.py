"""Faults of counting: how many combinations a record gives, which ones, and that it is counted once."""

from __future__ import annotations

from tests.faults.fault import Fault

_MIDDLE = "tests/laws/test_counting_kernels.py::test_a_record_in_the_middle_changes_at_most_bound_counts_by_one"
_SUBSETS = "tests/laws/test_counting_kernels.py::test_every_subset_is_as_likely"
_BLOCKS = (
    "tests/laws/test_counting_kernels.py::test_blocks_tiles_threads_and_memory_change_no_count"
)
_SPANS = "tests/laws/test_counting_kernels.py::test_spans_hold_every_record_once"

FAULTS = (
    Fault(
        name="Delta_k is off by one",
        file="src/marginweave/counts/bounded_counts.py",
        text="needed=np.full(len(over), self.bound, np.int32)",
        instead="needed=np.full(len(over), self.bound + 1, np.int32)",
        killed_by=(_MIDDLE,),
    ),
    Fault(
        name="a coarser bin has other bins than its own",
        file="src/marginweave/configuration/bin_levels.py",
        text="fine < bins, fine // joined",
        instead="fine < bins, fine % -(-bins // joined)",
        killed_by=("tests/laws/test_bin_levels.py::test_a_level_joins_neighboring_bins_alone",),
    ),
    Fault(
        name="a record with one combination too many is not bounded",
        file="src/marginweave/counts/bounded_counts.py",
        text="np.flatnonzero(contributions > self.bound)",
        instead="np.flatnonzero(contributions > self.bound + 1)",
        killed_by=(_MIDDLE,),
    ),
    Fault(
        name="a record gives its first combinations, in the order of columns",
        file="src/marginweave/counts/kernels.py",
        text="is_kept = _below(_word(choice.seeds[i], remaining), remaining) < needed",
        instead="is_kept = needed > np.uint64(0)",
        killed_by=(_SUBSETS,),
    ),
    Fault(
        name="the last combinations of a record are kept too often",
        file="src/marginweave/counts/kernels.py",
        text="is_kept = _below(_word(choice.seeds[i], remaining), remaining) < needed",
        instead="is_kept = remaining <= needed or _below(_word(choice.seeds[i], remaining), remaining + np.uint64(1)) < needed",
        killed_by=(_SUBSETS,),
    ),
    Fault(
        name="what a record gives depends on which others are bounded",
        file="src/marginweave/counts/bounded_counts.py",
        text="seeds=self.words.words_at(first, len(contributions))[over]",
        instead="seeds=self.words.words_at(first, len(contributions))[: len(over)]",
        killed_by=(_MIDDLE,),
    ),
    Fault(
        name="all lengths choose by the same words",
        file="src/marginweave/mechanisms/randomness.py",
        text='info=b"marginweave/" + self.purpose.encode()',
        instead='info=b"marginweave/"',
        killed_by=(
            "tests/unit/mechanisms/test_randomness.py::test_keyed_streams_of_other_keys_or_purposes_share_nothing",
            "tests/laws/test_counting_kernels.py::test_choices_of_two_records_and_of_two_lengths_are_independent",
        ),
    ),
    Fault(
        name="every shard of a count chooses by the same words",
        file="src/marginweave/counts/bounded_counts.py",
        text="seeds=self.words.words_at(first, len(contributions))[over]",
        instead="seeds=self.words.words_at(0, len(contributions))[over]",
        killed_by=(_BLOCKS,),
    ),
    Fault(
        name="a record at the edge is counted in two shards",
        file="src/marginweave/counts/layout.py",
        text="return list(pairwise(records * part // parts for part in range(parts + 1)))",
        instead=(
            "cuts = pairwise(records * part // parts for part in range(parts + 1))\n"
            "    return [(start, min(stop + 1, records)) for start, stop in cuts]"
        ),
        killed_by=(_SPANS, _BLOCKS),
    ),
    Fault(
        name="a count that is taken back stays where it was the only one",
        file="src/marginweave/counts/kernels.py",
        text="                cells[place] -= 2\n",
        instead="                cells[place] -= 2 * (cells[place] > 3)\n",
        killed_by=(_MIDDLE,),
    ),
    Fault(
        name="a private domain is that of the rows, not of what bounding left of them",
        file="src/marginweave/counts/bounded_counts.py",
        text="cells = np.flatnonzero(counts[first : first + _STRETCH]) + first",
        instead=(
            "cells = np.flatnonzero(counts[first : first + _STRETCH]) + first\n"
            "            if len(columns) == 1:\n"
            "                cells = np.arange(first, min(first + _STRETCH, len(counts) - 1))"
        ),
        killed_by=("tests/laws/test_level_draw.py::test_the_domain_is_formed_after_bounding",),
    ),
)
