"""Whether cells that are not as declared are in a table, by noisy counts; and that estimates ignore a code that is not kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from marginweave.base.budget import NoiseName
from marginweave.configuration.release import Configuration
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain, UndeclaredCells
from marginweave.domain.shares import share_ends
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.intervals import marginal_intervals
from marginweave.estimate.marginals import (
    compression_of,
    drawn_compression_of,
    estimated_marginals,
    marginal_counts,
    normalize_marginals,
)
from marginweave.evaluate.undeclared import with_undeclared
from marginweave.forecast.noise import preparation_forecast
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.means import estimate_total
from marginweave.observations.tables import Marginals, Observation
from marginweave.observations.undeclared import (
    FALSE_ALARMS,
    counted_undeclared,
    measured_undeclared,
)
from marginweave.released.verdict import Publication, Verdict
from tests.support.configurations import configuration

RESIZED: dict[str, Any] = {
    "missing": [],
    "resize": {"records": 900},
    "aggregate": {"method": "marginals"},
}
SD, FALSE_ALARM = 20.0, 1e-6


def _plain() -> Configuration:
    return configuration(columns__grade__missing=[], **RESIZED)


def _domain(config: Configuration, **more: Any) -> Domain:
    labels = tuple(attribute.labels for attribute in config.attributes)
    return Domain(
        names=tuple(attribute.name for attribute in config.attributes), labels=labels, **more
    )


def _drawn(config: Configuration, records: dict[str, int], noise: float = SD) -> Marginals:
    """Tables of a few records with the code, of which `records` have it by attribute."""
    rng, counted = np.random.default_rng(5), config.with_undeclared(config.undeclared)
    sizes = domain_sizes(counted.attributes, [attribute.labels for attribute in config.attributes])
    rows = [rng.integers(0, size - 1, 900) for size in sizes]
    for name, number in records.items():
        place = config.undeclared.index(name)
        rows[place][:number] = sizes[place] - 1
    one_way = [
        np.bincount(r, minlength=n) + np.rint(rng.normal(0, noise, n))
        for r, n in zip(rows, sizes, strict=True)
    ]
    pair = np.zeros(sizes[:2])
    np.add.at(pair, (rows[0], rows[1]), 1)
    measured = tuple(
        Observation(attributes=(a,), counts=c.astype(np.int64), deviation=noise)
        for a, c in enumerate(one_way)
    )
    domain = _domain(config, undeclared=measured_undeclared(config, measured))
    larger = Observation(attributes=(0, 1), counts=pair.astype(np.int64), deviation=noise)
    return Marginals(domain=domain, one_way=measured, larger=(larger,))


def test_a_code_is_kept_where_noise_does_not_explain_its_count() -> None:
    """The test is of the planned size: the smallest count that is kept has the chance of 1/1,000 m, and no smaller one."""
    config = configuration(
        columns={n: {"type": "category", "values": ["x"]} for n in "abcd"}, missing=[]
    )
    limit = next(
        count
        for count in range(200)
        if measured_undeclared(
            config,
            [
                Observation(attributes=(a,), counts=np.array([5, count]), deviation=SD)
                for a in range(4)
            ],
        )[0].kept
    )
    chance = stats.norm.sf((limit - 0.5) / SD)  # of a count of 0, rounded
    assert chance <= FALSE_ALARMS / 4 / 2 < stats.norm.sf((limit - 2.5) / SD)


def _laplace(rng: np.random.Generator, sigma: float, size: int) -> np.ndarray:
    """Discrete Laplace noise: the difference of two geometric numbers, of which the variance is 2 p / (1 - p)^2."""
    p = math.exp(-2 * math.asinh(1 / (math.sqrt(2) * sigma)))
    return rng.geometric(1 - p, size) - rng.geometric(1 - p, size)


@pytest.mark.parametrize("noise", ["rounded-gaussian", "discrete-laplace"])
@pytest.mark.parametrize("records", [55, 75, 95, 200])
def test_an_interval_that_is_said_because_its_count_is_large_holds(
    noise: NoiseName, records: int
) -> None:
    """Given that cells are found, in at least 95 % of releases, also where few of them pass the test.

    False alarm 1e-7 a case: 5.2 standard deviations of a binomial number. The interval around the count alone fails where few
    counts pass.
    """
    config = configuration(columns={"a": {"type": "category", "values": ["x"]}}, missing=[])
    rng = np.random.default_rng(records)
    drawn = (
        np.rint(rng.normal(0, SD, 60_000))
        if noise == "rounded-gaussian"
        else _laplace(rng, SD, 60_000)
    )
    counts, times = np.unique(records + drawn.astype(np.int64), return_counts=True)
    passed = held = 0
    for count, number in zip(counts.tolist(), times.tolist(), strict=True):
        table = Observation(attributes=(0,), counts=np.array([5, count]), deviation=SD, noise=noise)
        (cells,) = measured_undeclared(config, [table])
        passed += number * cells.found
        held += number * (cells.found and cells.low <= records <= cells.high)
    assert passed > 100
    assert held >= 0.95 * passed - 5.2 * math.sqrt(0.05 * 0.95 * passed)


def test_larger_tables_decide_as_well() -> None:
    """One that knows better finds what the single attribute hides: the mean by precision, with the noise of both."""
    config = configuration(
        columns={n: {"type": "category", "values": ["x"]} for n in "ab"}, missing=[]
    )
    alone = [
        Observation(attributes=(a,), counts=np.array([900, 10]), deviation=300.0) for a in range(2)
    ]
    pair = Observation(attributes=(0, 1), counts=np.array([[800, 20], [90, 30]]), deviation=4.0)
    hidden = measured_undeclared(config, alone)[0]
    assert not hidden.found
    found = measured_undeclared(config, alone, [pair])[0]
    precision = 1 / 300**2 + 1 / 32
    assert (found.found, found.kept) == (True, True)
    assert found.count == round((10 / 300**2 + 120 / 32) / precision)
    assert found.deviation == pytest.approx(precision**-0.5)


@given(st.integers(0, 2**32 - 1), st.floats(0, 0.2), st.floats(5, 200))
@settings(max_examples=60)
def test_no_table_of_a_release_hides_what_others_count(
    seed: int, share: float, noise: float
) -> None:
    """The count of all tables is within six of its deviations of the truth: false alarms 2e-9 of each of 120."""
    config = configuration(
        columns={n: {"type": "category", "values": ["x", "y"]} for n in "ab"}, missing=[]
    )
    rng = np.random.default_rng(seed)
    rows = [np.where(rng.random(2000) < share, 2, rng.integers(0, 2, 2000)) for _ in range(2)]
    exact = [np.bincount(r, minlength=3) for r in rows] + [
        np.histogram2d(*rows, bins=(range(4), range(4)))[0]
    ]
    drawn = [
        Observation(
            attributes=a,
            counts=c + np.rint(rng.normal(0, d, c.shape)).astype(np.int64),
            deviation=d,
        )
        for a, c, d in zip([(0,), (1,), (0, 1)], exact, [noise, noise, 10.0], strict=True)
    ]
    for cells, row in zip(measured_undeclared(config, drawn[:2], drawn[2:]), rows, strict=True):
        assert abs(cells.count - max((row == 2).sum(), 0)) <= 6 * cells.deviation + 1
        assert cells.deviation < min(noise, 10.0 * 3**0.5)


def test_what_was_counted_is_said_with_its_interval() -> None:
    """A count that is kept, one that noise explains, and one below 0."""
    config = _plain()
    found = {one.name: one for one in _drawn(config, {"region": 300}).domain.undeclared}
    assert (
        [name for name, one in found.items() if one.kept]
        == ["region"]
        == [n for n, one in found.items() if one.found]
    )
    assert found["region"].low <= 300 <= found["region"].high
    assert all(
        one.low == 0 <= one.count <= one.high for name, one in found.items() if name != "region"
    )


def test_a_clean_table_has_the_estimates_that_it_had() -> None:
    """Bit for bit, whatever noise stands in cells of a code that is not kept; but intervals sum these cells, too."""
    config = _plain()
    drawn = _drawn(config, {})
    without = estimated_marginals(drawn, config)
    assert [m.counts.size + 1 for m in without.one_way] == [m.counts.size for m in drawn.one_way]
    plain = replace(without, domain=_domain(config))
    one, other = normalize_marginals(drawn, config), normalize_marginals(plain, config)
    for a, b in zip(one.consistent, other.consistent, strict=True):
        assert np.array_equal(a.counts, b.counts)
    merged, whole = compression_of(drawn, config)[1], drawn_compression_of(drawn, config)
    assert [size + 1 for size in merged.sizes] == list(whole.sizes)
    assert all(np.array_equal(a, b[:-1]) for a, b in zip(merged.codes, whole.codes, strict=True))


def test_a_code_that_is_kept_is_a_code_of_estimates() -> None:
    """Its records stay where they are, and none is given to a value; the other columns have no such code."""
    config = _plain()
    drawn = _drawn(config, {"region": 300})
    kept = config.with_undeclared(drawn.domain.with_undeclared)
    counts = normalize_marginals(drawn, kept)
    sizes = [
        len(attribute.labels) + (attribute.name == "region") for attribute in config.attributes
    ]
    assert [m.counts.size for m in counts.consistent[: len(sizes)]] == sizes
    assert abs(counts.consistent[1].counts[-1] - 300) < 6 * SD
    listed = marginal_counts(counts, kept)
    inside = marginal_intervals(listed, counts, kept)[0]
    assert ((inside.low <= inside.measured) & (inside.measured <= inside.high)).all()


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_the_share_of_such_cells_is_as_near_as_it_says(share: float) -> None:
    """Count and number of records are noisy, from the same tables: 600 draws each, of which 95 % cover; false alarms 1e-6."""
    names, rng, draws = "ab", np.random.default_rng(6), 600
    config = configuration(
        columns={n: {"type": "category", "values": [*"xyz"]} for n in names}, missing=[]
    )
    exact, hits, wide = np.array([300, 300, 400]) * (1 - share), 0, 0.0
    truth = np.append(exact, 1000 * share).astype(np.int64)
    for _ in range(draws):
        drawn = [
            Observation(
                attributes=(a,),
                counts=truth + np.rint(rng.normal(0, 20, 4)).astype(np.int64),
                deviation=20.0,
            )
            for a in range(2)
        ]
        precision = sum(1 / (m.counts.size * m.deviation**2) for m in drawn)
        (cells, _) = measured_undeclared(config, drawn)
        low, high = cells.share_ends(estimate_total(drawn), precision**-0.5)
        hits += low <= share <= high
        wide += high - low
    assert hits >= stats.binom.ppf(FALSE_ALARM, draws, 0.95)
    # no wider than noise of both, one upon the other
    assert wide / draws < 2 * 1.96 * 20 / 1000 * (1 + share * 2**0.5) * 1.1


def test_the_share_of_no_records_is_anything() -> None:
    assert share_ends(10.0, 5.0, 30.0, 31.0) == share_ends(10.0, 5.0, 0.0, 0.0) == (0.0, 1.0)
    assert share_ends(-10.0, 5.0, 100.0, 0.0) == pytest.approx((0.0, 0.05))
    assert share_ends(120.0, 5.0, 100.0, 0.0) == pytest.approx((0.95, 1.0))


def test_what_is_known_of_a_column_is_not_overruled() -> None:
    """A known table says that all of its records have values: what was counted is told, and records follow the table."""
    table = [["f", 500], ["m", 400]]
    known = {
        "table": table,
        "columns": ["sex"],
        "from": "other-source",
        "public": "census",
        "sd": 5,
    }
    config = configuration(columns__grade__missing=[], known=[known], **RESIZED)
    found = {one.name: one for one in _drawn(config, {"sex": 400}).domain.undeclared}
    assert (found["sex"].found, found["sex"].kept) == (True, False)


@pytest.mark.parametrize(("cut", "kept"), [(0, True), (200, False)])
def test_of_k_tuples_it_is_what_counts_leave_of_the_record_count(cut: int, kept: bool) -> None:
    """Less what the threshold and bounding may have taken."""
    config = configuration(
        columns={"x": {"type": "category", "values": ["a", "b", "c"]}}, missing=[]
    )
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=5.0,
        threshold=20,
        private_threshold=0,
        candidates=3,
    )
    level = Level(
        length=1,
        columns=np.zeros((2, 1), int),
        values=np.array([[0], [1]]),
        counts=np.array([500, 300]),
    )
    counts = Aggregates(
        domain=_domain(config),
        record_count=1000,
        record_deviation=5.0,
        levels=(level,),
        noise=(noise,),
    )
    (found,) = counted_undeclared(config, counts, cut)
    assert (found.count, found.kept) == (200, kept)
    assert found.low <= 200 - 20 - cut + 5 or found.low == 0


CELLS = UndeclaredCells(
    name="region", count=1200, deviation=20.0, low=1160, high=1240, found=True, kept=True
)


@pytest.mark.parametrize(
    ("low", "before", "after"),
    [
        (39, "good", "good"),
        (40, "good", "with care"),
        (40, "with care", "not for publication"),
        (399, "good", "with care"),
        (400, "good", "not for publication"),
    ],
)
def test_the_verdict_follows_the_lower_end(
    low: int, before: Publication, after: Publication
) -> None:
    """Of 4,000 records one grade from 40 on, not for publication from 400; and says what share it was."""
    domain = Domain(names=("region",), labels=(("north",),), undeclared=(replace(CELLS, low=low),))
    counts = Aggregates(domain=domain, record_count=4000, record_deviation=0.0, levels=(), noise=())
    verdict = Verdict(publication=before, says=("Good for: x.",), advice=(), lengths=(), sets=())
    found = with_undeclared(verdict, counts, {"region": "region (Where)"}, configuration())
    assert (found.publication, found.says[1:]) == (after, ("Good for: x.",))
    assert found.says[0].startswith("About 30 % (")
    assert found.says[0].endswith(" to 31) of region (Where) were not among the declared values.")
    (advice,) = found.advice
    assert advice.startswith("What was not among the declared values is known to you alone")
    if low in (40, 400):  # of a number with noise it may be less
        noisy = with_undeclared(
            verdict, replace(counts, record_deviation=100.0), {}, configuration()
        )
        assert noisy.publication != after
    told = Domain(
        names=("region",),
        labels=(("north",),),
        undeclared=(replace(CELLS, found=False, kept=False),),
    )
    assert with_undeclared(verdict, replace(counts, domain=told), {}, configuration()) == verdict


def test_where_counts_are_known_nobody_is_told_to_declare_what_they_deny() -> None:
    """Known counts have no missing value: whoever declares one contradicts them, so one of the two is wrong."""
    cells = (CELLS, replace(CELLS, name="sex", kept=False))
    domain = Domain(names=("region", "sex"), labels=(("north",), ("f", "m")), undeclared=cells)
    counts = Aggregates(domain=domain, record_count=4000, record_deviation=1.0, levels=(), noise=())
    verdict = Verdict(publication="good", says=(), advice=("More rows.",), lengths=(), sets=())
    declare, look, rows = with_undeclared(verdict, counts, {}, configuration()).advice
    assert declare.startswith("What was not among the declared values")
    assert look.startswith("The known counts of sex have no cell")
    of_set = Domain(
        names=("region",),
        labels=(("north",),),
        undeclared=(replace(CELLS, kept=False, of_set=True),),
    )
    bare, counted = verdict.model_copy(update={"advice": ()}), replace(counts, domain=of_set)
    (declare,) = with_undeclared(bare, counted, {}, configuration()).advice
    assert declare.startswith("What was not among the declared values")
    assert rows == "More rows."
    alone = replace(domain, undeclared=cells[1:])
    assert with_undeclared(verdict, replace(counts, domain=alone), {}, configuration()).advice == (
        look,
        "More rows.",
    )


def test_what_k_tuples_do_not_count_of_sets_is_said_before_and_after() -> None:
    """Of a set in marginals it is counted, and of one that declares what such a value is there is nothing to say."""
    free = {"type": "set", "values": ["cough", "fever"], "max_values": 2}
    columns = {
        "signs": free,
        "drugs": free | {"outside": "other"},
        "sex": {"type": "category", "values": ["f", "m"]},
    }
    counts = Aggregates(
        domain=Domain(names=(), labels=()),
        record_count=4000,
        record_deviation=1.0,
        levels=(),
        noise=(),
    )
    verdict = Verdict(publication="good", says=(), advice=(), lengths=(), sets=())
    for method, uncounted in (("k-tuples", ("signs",)), ("marginals", ())):
        declared = configuration(columns=columns, aggregate={"method": method})
        assert declared.uncounted_sets == uncounted
        found = with_undeclared(verdict, counts, {"signs": "signs (Symptoms)"}, declared)
        assert [says.split(" that is")[0] for says in found.says] == [
            "Nobody counted how many records hold a value of signs (Symptoms)" for _ in uncounted
        ]
        assert found.publication == "good"
        assert len(
            [line for line in preparation_forecast(declared) if "Values of signs" in str(line)]
        ) == len(uncounted)


GRADE: dict[str, Any] = {"columns__grade__missing": ["9"], "missing": []}
ALWAYS: dict[str, Any] = {"forbidden": [{"grade": "9", "sex": "f"}]}


def _applies(*columns: str) -> dict[str, Any]:
    return {
        "applies": [
            {
                "columns": ["grade"],
                "where": {name: configuration().columns[name].labels[0] for name in columns},
            }
        ]
    }


@pytest.mark.parametrize(
    ("method", "rules", "uncounted"),
    [
        ("marginals", ALWAYS, ()),
        ("k-tuples", ALWAYS, ("grade",)),
        ("k-tuples", _applies("sex", "region"), ()),
        ("k-tuples", _applies("sex", "region", "age"), ("grade",)),
    ],
)
def test_what_k_tuples_do_not_count_of_gaps_is_said_before_and_after(
    method: str, rules: dict[str, Any], uncounted: tuple[str, ...]
) -> None:
    """Where more columns decide than are counted together, or a missing value is forbidden."""
    length = {"reporting_length": 2} if method == "k-tuples" else {}
    config = configuration(**GRADE, structure=rules, aggregate={"method": method, **length})
    assert config.uncounted_gaps == uncounted
    assert ("grade" in config.undeclared) == (not uncounted)
    counts = Aggregates(
        domain=_domain(config), record_count=400, record_deviation=1.0, levels=(), noise=()
    )
    verdict = Verdict(publication="good", says=(), advice=(), lengths=(), sets=())
    found = with_undeclared(verdict, counts, {}, config)
    assert [says.split(" where")[0] for says in found.says] == [
        "Nobody counted how many records lack a value of grade" for _ in uncounted
    ]
    assert len(
        [line for line in preparation_forecast(config) if "wants a value of grade" in str(line)]
    ) == len(uncounted)


@pytest.mark.parametrize("where", [("sex",), ("region", "sex")])
def test_k_tuples_count_what_is_left_of_the_records_that_a_column_applies_to(
    where: tuple[str, ...],
) -> None:
    """All records have values of other columns; 300 of those that it applies to have none of grade."""
    config = configuration(
        **GRADE, structure=_applies(*where), aggregate={"method": "k-tuples", "reporting_length": 2}
    )
    places = {attribute.name: place for place, attribute in enumerate(config.attributes)}
    first = [((a,), np.array([[0], [1]]), np.array([700, 300])) for a in range(3)]
    first.append(((3,), np.array([[0], [1]]), np.array([250, 150])))
    pair = Level.join(
        2,
        [
            (
                tuple(sorted((places["sex"], places["region"]))),
                np.array([[0, 0], [0, 1]]),
                np.array([700, 50]),
            )
        ],
    )
    noise = tuple(
        LevelNoise(
            length=k,
            contribution_bound=4,
            deviation=5.0,
            threshold=1,
            private_threshold=0,
            candidates=9,
        )
        for k in (1, 2)
    )
    counts = Aggregates(
        domain=_domain(config),
        record_count=1000,
        record_deviation=5.0,
        levels=(Level.join(1, first), pair),
        noise=noise,
    )
    found = {one.name: one for one in counted_undeclared(config, counts, 0)}
    assert (found["grade"].count, found["grade"].found) == (300, True)
    assert (found["sex"].count, found["sex"].found) == (0, False)
    assert found["grade"].deviation == pytest.approx(5.0 * np.sqrt(7 + 1))


@pytest.mark.parametrize(
    ("count", "low", "high", "said"),
    [
        (795, 785, 805, "20 % (19 to 21)"),
        (396, 390, 406, "9.9 % (9.7 to 10.2)"),
        (4001, 3961, 4041, "100 % (99 to 100)"),
    ],
)
def test_ends_are_rounded_outwards(count: int, low: int, high: int, said: str) -> None:
    """Of 4,000 records: what the exact ends cover the printed ones do."""
    assert str(
        replace(CELLS, count=count, low=low, high=high).sentence(4000, 0.0, "region")
    ).startswith(f"About {said} of region")
