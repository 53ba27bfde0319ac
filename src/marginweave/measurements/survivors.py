"""Results of the draws of shorter combinations: released levels, the next candidates, and rows over their domain."""

from __future__ import annotations

from marginweave.configuration.attributes import combinations_of
from marginweave.counts.candidates import CandidateSet
from marginweave.counts.released_rows import ReleasedBlocks
from marginweave.domain.zeros import excluded_codes
from marginweave.measurements.base import Drawn, PrivateRows
from marginweave.observations.payloads import DrawnLevel, unpack_level


def levels_below(drawn: Drawn, length: int) -> list[DrawnLevel]:
    """Return the released levels shorter than `length`, or the substitutes of those not reached. DP: post-processing."""

    def read(below: int) -> DrawnLevel:
        return unpack_level(drawn.payload(drawn.plan.by_name[f"level-{below}"]))

    return [
        drawn.remember(f"level-{below}", lambda below=below: read(below))
        for below in range(1, length)
    ]


def candidates_above(drawn: Drawn, length: int) -> CandidateSet:
    """Return the candidates of a length from 2 on. DP: post-processing of the released levels."""
    below = levels_below(drawn, length)
    attributes = drawn.resolved.attributes
    released = below[0].released
    labels = [released.get(j, attribute.labels) for j, attribute in enumerate(attributes)]
    sizes = [len(values) for values in labels]
    excluded = combinations_of(excluded_codes(drawn.resolved, labels))
    return CandidateSet.above(below[-1].level, sizes, excluded)


def has_candidates(drawn: Drawn, length: int) -> bool:
    """Return whether there is any combination of this length to count. DP: post-processing."""
    return length == 1 or _remembered(drawn, length).any()


def candidates_of(
    drawn: Drawn,
    blocks: ReleasedBlocks,
    length: int,
) -> CandidateSet:
    """Return the candidates of a length; private where length 1 has values of private domains, which only the rows tell."""
    return CandidateSet(length=1, sizes=blocks.sizes) if length == 1 else _remembered(drawn, length)


def released_blocks(
    rows: PrivateRows,
    drawn: Drawn,
    length: int,
) -> ReleasedBlocks:
    """Return the rows over the domain that length 1 released; at length 1 as they are. Private."""
    below = levels_below(drawn, min(length, 2))
    return ReleasedBlocks(rows.encoded(), below[0].released if below else {})


def _remembered(drawn: Drawn, length: int) -> CandidateSet:
    return drawn.remember(f"candidates-{length}", lambda: candidates_above(drawn, length))
