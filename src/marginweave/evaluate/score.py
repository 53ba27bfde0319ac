"""Quality of a release as one number from 0 to 100, by what its records keep of pairs of columns. DP: post-processing.

Of a pair, e is the expected distance (TVD) of the records from the table, and D how far its counts are from independent
columns: what there is to keep. Over all pairs

    score = 100 (1 - sum e / sum max(e, D, .05)).

It is 0 where records have lost all of a dependence, as independent columns have, and 100 without any distance. Where columns
hardly depend on each other, distances are compared with .05, the largest that is good: a pair counts by what it could lose.
A pair of which nothing is known counts as lost, and as much as the others do on average: a release that measures one pair is
not good for all. More noise makes e larger, and never the score better by that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from marginweave.evaluate.distances import Names, sorted_names
from marginweave.released.evaluation import Association, MarginalBound
from marginweave.released.verdict import GOOD


def dependences(
    association: Association, bounds: Iterable[MarginalBound], records: float
) -> dict[Names, float]:
    """Return how far each pair that was counted is from independent columns (TVD), by its sorted names.

    Noise makes counts depend. Of a distance d in records (L1), with noise of norm z, sqrt(d^2 - z^2) is the table's. A pair
    that noise explains has no number in `from_independence`, and is left out.

    Args:
        association: It has the distances of the released counts, as shares of the records.
        bounds: They have the noise of each pair, in records.
        records: The noisy number of records.
    """
    twice_records = 2 * max(records, 1.0)
    noise_of = {
        sorted_names(bound.attributes): (bound.noise or 0.0) / twice_records for bound in bounds
    }
    distances: dict[Names, float] = {}
    measure = association.from_independence
    names = measure.names
    for place, row in enumerate(measure.reference):
        for other_place, distance in enumerate(row[:place]):
            if distance is not None:
                pair = sorted_names((names[place], names[other_place]))
                noise = noise_of.get(pair, 0.0)
                distances[pair] = math.sqrt(max(0.0, distance**2 - noise**2))
    return distances


def quality_score(
    errors: Mapping[Names, float | None], dependence: Mapping[Names, float]
) -> int | None:
    """Return the score, rounded down; None without a pair.

    Args:
        errors: e of each set of columns, None where nothing is known; those of other lengths than 2 are left out.
        dependence: D by sorted names. A pair without one is taken to have what it may have lost.
    """
    lost = 0.0
    scales: list[float] = []
    pairs = {names: error for names, error in errors.items() if len(names) == 2}
    for names, error in pairs.items():
        if error is not None:
            scales.append(max(error, dependence.get(sorted_names(names), 0.0), GOOD))
            lost += error
    if not pairs:
        return None
    # a pair of which nothing is known adds as much to what is at stake as the mean of the others, and nothing to what is kept
    kept_share = 1 - lost / math.fsum(scales) if scales else 0.0
    return math.floor(100 * max(0.0, kept_share) * len(scales) / len(pairs))


def has_little_to_keep(
    errors: Mapping[Names, float | None], dependence: Mapping[Names, float]
) -> bool:
    """Return whether pairs are so near to independent columns, on average, that records without them would be good for most.

    Then a low score says more of the table, or of noise that hides what columns have in common, than of the records.
    """
    distances = [
        dependence.get(sorted_names(names), 0.0)
        for names, error in errors.items()
        if len(names) == 2 and error is not None
    ]
    return bool(distances) and math.fsum(distances) <= GOOD * len(distances)
