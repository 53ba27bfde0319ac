"""A small release as it is read back, without a run: counts of a made-up table, some of them left out, and its records."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from typing import Any

import numpy as np
import pyarrow as pa

from marginweave.answers.codes import Codes as AnswerCodes
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import part_tables
from marginweave.configuration.release import Configuration
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.intervals import marginal_intervals, release_intervals
from marginweave.estimate.marginals import listed_counts, marginal_counts, normalize_marginals
from marginweave.measurements.plan import Plan
from marginweave.measurements.split import plan_budget
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.publish.reader import PublishedRelease, ShownRecords, show_records
from marginweave.publish.statement import privacy_statement
from marginweave.records.decode import decode_table
from marginweave.released.evaluation import (
    Association,
    BrokenRule,
    BucketMeans,
    CountBucket,
    DistanceBounds,
    ErrorParts,
    Evaluation,
    InternalEvaluation,
    LengthMetrics,
    MarginalBound,
    MarginalDistance,
    Measure,
    RecordAgreement,
)
from marginweave.released.statement import PrivacyStatement, Programs, ReleaseFacts, ReleaseIdentity
from marginweave.released.verdict import Verdict
from tests.support import noisy_marginals
from tests.support.configurations import configuration
from tests.support.releases import PROGRAM

HOSTILE = "<script>alert('x')</script> & $\\frac{1}{"
COLUMNS = {
    "sex": {"type": "category", "values": ["f", "m"]},
    "region": {"type": "category", "values": ["north", HOSTILE, "west"]},
    "signs": {"type": "set", "values": ["cough", "fever", "rash", "ache", "itch"], "max_values": 2},
    "age": {
        "type": "number",
        "bounds": [0, 100],
        "bins": [0, 18, 30, 50, 65, 80, 90, 100],
        "decimals": 0,
    },
}
IDENTITY = ReleaseIdentity(
    dataset="people",
    run="people-1",
    release="11111111-1111-4111-8111-111111111111",
    begun="2026-03-01",
    programs=Programs(reserved=PROGRAM, drew=()),
    selected_after_internal_evaluation=False,
)
FACTS = ReleaseFacts(identity=IDENTITY)
_METRICS = dict.fromkeys(LengthMetrics.model_fields) | {
    "preservation": 0.9, "suppressed": 1.0, "fabricated": 2.0, "mean_error": 3.5, "tvd": 0.125,
}  # fmt: skip
_NO_PAIRS = Measure(names=(), reference=(), synthetic=(), mean_difference=None)
EVALUATION = Evaluation(
    records=300,
    reference_records=300,
    expansion=0.0,
    lengths=tuple(
        LengthMetrics.model_validate(_METRICS | {"length": k, "combinations": 10 * k})
        for k in (1, 2, 3)
    ),
    by_count=(),
    by_count_means=BucketMeans(sds_combination_loss=0.0, sds_proportional_error=0.0),
    marginals=(),
    association=Association(
        cramers_v=_NO_PAIRS,
        mutual_information=_NO_PAIRS,
        spearman=_NO_PAIRS,
        from_independence=_NO_PAIRS,
    ),
    rules=(),
    verdict=Verdict(publication="good", says=(), advice=(), lengths=(), sets=()),
    bounds=DistanceBounds(level=0.95, about="sum of |count - synthetic count|", marginals=()),
)
"""What every evaluation has; no section of the report has a number but the lengths."""
MORE: dict[str, Any] = {
    "model": tuple(
        ErrorParts(length=k, model_error=0.0625, sampling_error=0.03125) for k in (1, 2, 3)
    ),
    "by_count": (
        CountBucket(
            at_most=10,
            combinations=3,
            mean_count=4.5,
            mean_length=2.0,
            preservation=0.5,
            proportional_error=0.625,
        ),
        CountBucket(
            at_most=20,
            combinations=0,
            mean_count=None,
            mean_length=None,
            preservation=None,
            proportional_error=None,
        ),
    ),
    "marginals": (MarginalDistance(attributes=("sex", "signs"), tvd=0.25, noise=0.125),),
    "association": Association(
        cramers_v=Measure(
            names=("sex", "region"),
            synthetic=((1, 0.25), (0.25, 1)),
            reference=((1, None), (None, 1)),
            mean_difference=None,
        ),
        mutual_information=_NO_PAIRS,
        spearman=_NO_PAIRS,
        from_independence=_NO_PAIRS,
        within_noise=1,
    ),
    "bounds": DistanceBounds(
        level=0.95,
        about="sum of |count - synthetic count|",
        marginals=(
            MarginalBound(attributes=("sex", "region"), distance=21.5, bound=None),
            MarginalBound(attributes=("sex", "signs"), distance=34.25, bound=77.75),
        ),
    ),
    "rules": (BrokenRule(rule="structural zeros", subject="", records=17, share=0.1),),
}
FULL = EVALUATION.model_copy(update=MORE)
"""An evaluation of which every section has numbers."""


def internal_evaluation(sensitive_records: int = 300) -> InternalEvaluation:
    """A comparison with the sensitive table, of the same numbers."""
    shared: dict[str, Any] = {
        name: value for name, value in FULL if name in RecordAgreement.model_fields
    }
    shared["reference_records"] = sensitive_records
    return InternalEvaluation(
        **shared,
        distances=(),
        k_marginal_score=None,
        score=None,
        sensitive_rules=(),
    )


Codes = list[np.ndarray[Any, Any]]


def made_records(config: Configuration, count: int = 300, seed: int = 1) -> Codes:
    """Codes of `count` records, some values missing; a set has as many slots as it has values at most."""
    rng = np.random.default_rng(seed)
    codes: Codes = []
    for attribute in config.attributes:
        size = len(attribute.labels)
        if not attribute.is_set:
            codes.append(np.minimum(rng.geometric(0.4, count) - 1, size).astype(np.uint8))
            continue
        held = np.array([rng.permutation(size)[: attribute.width] for _ in range(count)])
        held[rng.random(held.shape) < 0.4] = size
        codes.append(np.sort(held, axis=1).astype(np.uint8))
    return codes


def counted(
    codes: Codes, config: Configuration, length: int
) -> Counter[tuple[tuple[int, int], ...]]:
    """How many records hold each combination of `length` values of different attributes."""
    sizes = [len(attribute.labels) for attribute in config.attributes]
    counter: Counter[tuple[tuple[int, int], ...]] = Counter()
    for row in range(len(codes[0])):
        held = [
            [(j, int(v)) for v in np.atleast_1d(c[row]) if v < size]
            for j, (c, size) in enumerate(zip(codes, sizes, strict=True))
        ]
        for chosen in combinations(held, length):
            counter.update(product(*chosen))
    return counter


def published(
    codes: Codes | None = None, drop: int = 5, **changes: Any
) -> tuple[PublishedRelease, Codes]:
    """A release of the counts of `codes`, every `drop`-th of a length above 1 left out, and the codes."""
    tuples = {"aggregate__method": "k-tuples"}
    config = configuration(columns=changes.pop("columns", COLUMNS), **tuples | changes)
    codes = made_records(config) if codes is None else codes
    levels = []
    for k in range(1, config.reporting_length + 1):
        rows = sorted(
            (tuple(a for a, _ in t), tuple(v for _, v in t), n)
            for t, n in counted(codes, config, k).items()
        )
        kept = [row for i, row in enumerate(rows) if k == 1 or i % drop]
        columns, values = (
            np.array([row[i] for row in kept], np.int64).reshape(-1, k) for i in (0, 1)
        )
        levels.append(
            Level(
                length=k, columns=columns, values=values, counts=np.array([row[2] for row in kept])
            )
        )
    noise = tuple(
        LevelNoise(
            length=k + 1,
            contribution_bound=1,
            deviation=4.0 + k,
            threshold=1,
            private_threshold=0,
            candidates=len(level) + 7,
        )
        for k, level in enumerate(levels)
    )
    aggregates = Aggregates(
        domain=Domain(
            names=tuple(a.name for a in config.attributes),
            labels=tuple(a.labels for a in config.attributes),
        ),
        record_count=2 * len(codes[0]),
        record_deviation=10.0,
        levels=tuple(levels),
        noise=noise,
    )
    return PublishedRelease(
        configuration=config,
        aggregates=aggregates,
        intervals=release_intervals(aggregates, aggregates, config),
        statement=stated(config, plan_budget(config), aggregates),
    ), codes


def measured_release(**changes: Any) -> tuple[PublishedRelease, Codes, MarginalAnswers]:
    """A release of marginals with made-up noise, records, and what answers questions to it."""
    config = noisy_marginals.config(**changes)
    drawn = noisy_marginals.marginals(config)
    normalized, measured = normalize_marginals(drawn, config), part_tables(drawn, config)
    aggregates, _ = listed_counts(marginal_counts(normalized, config), 1)
    sizes = domain_sizes(config.attributes, drawn.domain.labels)
    answers = MarginalAnswers(
        squares=LeastSquares(measured),
        codes=AnswerCodes(configuration=config, domain=drawn.domain, sizes=sizes),
        measured_together=(),
    )
    release = PublishedRelease(
        configuration=config,
        aggregates=aggregates,
        intervals=marginal_intervals(aggregates, normalized, config),
        statement=published()[0].statement,
        marginals=normalized,
        measured=measured,
    )
    return release, made_records(config), answers


def stated(
    config: Configuration, plan: Plan, aggregates: Aggregates, facts: ReleaseFacts = FACTS
) -> PrivacyStatement:
    """The privacy statement of these counts."""
    return privacy_statement(config, plan, aggregates, facts, {}, EVALUATION.summary)


def table_of(release: PublishedRelease, codes: Codes) -> pa.Table:
    """The records as a table."""
    return decode_table(codes, release.aggregates.domain, release.configuration, seed=0)


def shown(release: PublishedRelease, codes: Codes) -> ShownRecords:
    """What the pages show of the records."""
    return show_records(
        [tuple(codes)], len(codes[0]), release.aggregates.domain, release.configuration
    )
