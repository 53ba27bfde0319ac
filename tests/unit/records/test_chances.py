"""Drawing by weight column by column is drawing by weight."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from marginweave.configuration.synthesis import SynthesisSettings
from marginweave.estimate.normalize import normalize
from marginweave.records.growing_state import Chances, change, draw_free
from tests.support.noisy_counts import aggregates_of, noisy_counts
from tests.support.synthesized import synthesize_records

WEIGHTS = st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=4)


@given(WEIGHTS, st.data())
def test_every_point_finds_the_attribute_whose_weight_it_falls_in(
    weights: list[list[int]], data: st.DataObject
) -> None:
    """All points of the line of weights of the free columns, after weights were changed; -1 where there is none."""
    columns = np.repeat(np.arange(len(weights)), [len(own) for own in weights]).astype(np.int32)
    chances = Chances.of(columns, len(weights))
    used = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(weights), max_size=len(weights)))
    )
    flat = [weight for own in weights for weight in own]
    for attribute, column in enumerate(columns):
        change(chances, attribute, int(column), 7)
    for attribute, weight in enumerate(flat):
        change(chances, attribute, columns[attribute], weight - 5)
        change(chances, attribute, columns[attribute], -2)
    line = [
        attribute
        for attribute, weight in enumerate(flat)
        for _ in range(weight)
        if not used[columns[attribute]]
    ]
    found = [draw_free(chances, used, (point + 0.5) / len(line)) for point in range(len(line))]
    assert found == line
    assert line or draw_free(chances, used, 0.5) == -1


@given(
    noisy_counts(low=1, size=15),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["count", "exhaust"]),
)
def test_drawing_by_column_changes_no_record(
    counts: dict, subtract: bool, relax: bool, records: str
) -> None:
    """A rule that can never matter (two values of one column) has every candidate looked at instead."""
    aggregates = normalize(aggregates_of(counts, record_count=30))
    settings = SynthesisSettings.model_validate(
        {"records": records, "use_synthetic_counts": subtract, "relax": relax, "seed": 5}
    )
    rule = [((0, 0), (0, 1))]
    assert np.array_equal(
        synthesize_records(aggregates, settings),
        synthesize_records(aggregates, settings, None, rule),
    )
