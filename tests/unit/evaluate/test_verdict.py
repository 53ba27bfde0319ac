"""The verdict follows the noise: what is drowned in it is never called good, and what is not is not doubted."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marginweave.configuration.columns import NumberColumn
from marginweave.configuration.defaults import is_automatic
from marginweave.configuration.release import Configuration
from marginweave.domain.combinations import Level
from marginweave.domain.labels import Domain
from marginweave.evaluate.advice import BeyondNoise, known_apart, missed_sentences
from marginweave.evaluate.distances import (
    expected_errors,
    merged_shares,
    pairs_of_chance,
    set_errors,
    unchosen_errors,
    worse_triples,
)
from marginweave.evaluate.doubts import ColumnFacts, column_facts, doubts, mean_doubt, questions
from marginweave.evaluate.undeclared import with_uncounted
from marginweave.evaluate.verdict import (
    DrawFacts,
    _changed_row_sentences,
    release_verdict,
    verdict,
)
from marginweave.observations.combinations import Aggregates, LevelNoise
from marginweave.observations.compression import Compression
from marginweave.observations.tables import ChosenMisfit
from marginweave.observations.uncounted import uncounted_rows
from marginweave.released.evaluation import Association, MarginalBound, Measure
from marginweave.released.verdict import CARE, GOOD, Verdict, grade
from marginweave.texts.sentences import verdict_sentence
from tests.support.configurations import configuration
from tests.support.linked_counts import counted_hospital
from tests.support.linked_tables import hospital
from tests.support.published import EVALUATION

NAMES = ("sex", "region", "age", "grade")
CELLS = {"sex": 2, "region": 3, "age": 7, "grade": 5}


def bounds(
    deviation: float, records: float, *, beyond: float = 0.0, length: int = 2
) -> list[MarginalBound]:
    """Every set up to a length, measured with noise of one sigma, and records that are `beyond` (TVD) what noise explains."""
    found = []
    for size in range(1, length + 1):
        for names in itertools.combinations(NAMES, size):
            noise = math.sqrt(2 / math.pi) * deviation * math.prod(CELLS[name] for name in names)
            distance = math.hypot(noise, 2 * records * beyond)
            found.append(
                MarginalBound(
                    attributes=names,
                    distance=distance,
                    bound=None,
                    noise=noise,
                    deviation=deviation,
                )
            )
    return found


def errors_of(
    found: Sequence[MarginalBound],
    records: float,
    merged: Mapping[str, float] | None = None,
    names: Sequence[str] = NAMES,
    *,
    is_smoothed: bool = True,
) -> Mapping[tuple[str, ...], float | None]:
    """The expected distances of all sets of these columns, of which those of `found` have counts."""
    return expected_errors(set_errors(found, records, merged, is_smoothed=is_smoothed), names)


@given(
    deviation=st.floats(0.1, 1e4),
    records=st.integers(1, 10**7),
    beyond=st.floats(0, 1),
)
def test_the_error_of_k_tuples_is_the_larger_of_noise_and_distance(
    deviation: float, records: int, beyond: float
) -> None:
    errors = errors_of(bounds(deviation, records, beyond=beyond), records, is_smoothed=False)
    assert len(errors) == 4 + 6
    for names, error in errors.items():
        wanted = min(1, max(noise_of(names, deviation, records), beyond))
        assert error == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@given(beyond=st.floats(0.01, 1))
def test_records_far_beyond_the_noise_are_as_far_as_that(beyond: float) -> None:
    """Where noise is a hundredth of the distance, it does not count; without noise nothing does."""
    errors = errors_of(bounds(0.01 * beyond, 100, beyond=beyond), 100)
    for names, error in errors.items():
        if len(names) < 3:
            assert error == pytest.approx(beyond, rel=0.01)
    without_noise = errors_of(bounds(0.0, 100), 100)
    assert {error for names, error in without_noise.items() if len(names) < 3} == {0.0}


def test_good_pairs_say_nothing_of_a_triple() -> None:
    """Of c = a xor b every pair can be right, and half of the triples wrong: of one that was not measured nothing is known."""
    errors = errors_of(bounds(0.0, 100), 100)
    assert worse_triples(errors) == 0
    measured = MarginalBound(
        attributes=NAMES[:3], distance=0.0, bound=None, noise=0.0, deviation=0.0
    )
    assert errors_of([*bounds(0.0, 100), measured], 100)[tuple(NAMES[:3])] == 0
    found = verdict(errors, {1: [1.0], 2: [1.0]}, 100.0)
    assert [(row.length, row.good, row.unknown) for row in found.lengths] == [
        (1, 4, 0),
        (2, 6, 0),
        (3, 0, 4),
    ]
    assert "Nothing is known about triples of columns (4 of 4)." in found.says


@given(data=st.data())
def test_triples_without_counts_are_graded_by_their_pairs(data: st.DataObject) -> None:
    """By the definition, one by one: a triple is no better than a pair of it, whatever is known of its other pairs."""
    columns = [f"c{i}" for i in range(6)]
    distances = st.sampled_from([0.0, CARE, 1.01 * CARE, None])
    errors: dict[tuple[str, ...], float | None] = {(name,): 0.0 for name in columns}
    errors |= {pair: data.draw(distances) for pair in itertools.combinations(columns, 2)}
    triples = list(itertools.combinations(columns, 3))
    measured = data.draw(st.sets(st.sampled_from(triples)))
    errors |= dict.fromkeys(measured, 0.0)
    empty = data.draw(st.sets(st.sampled_from(columns), max_size=2))
    worse = 0
    for triple in triples:
        distances_of_pairs = [errors[pair] or 0.0 for pair in itertools.combinations(triple, 2)]
        if triple not in measured:
            worse += max(distances_of_pairs) > CARE or not empty.isdisjoint(triple)
    assert worse_triples(errors, empty) == worse


def noise_of(names: Sequence[str], deviation: float, records: int) -> float:
    """The expected distance that noise alone makes of a set."""
    return (
        math.sqrt(2 / math.pi)
        * deviation
        * math.prod(CELLS[name] for name in names)
        / (2 * records)
    )


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_records_that_take_over_a_part_of_the_noise_are_as_far_as_that(share: float) -> None:
    """Counts of 400 cells with noise, and records that are their projection on a share of the directions: within 10 %.

    The L1 norm of 400 normal numbers deviates by 4 % of its mean; a fixed seed.
    """
    rng = np.random.default_rng(3)
    cells, sigma, records = 400, 25.0, 100_000
    basis, _ = np.linalg.qr(rng.normal(size=(cells, round(share * cells))))
    noise = rng.normal(0, sigma, cells)
    taken = basis @ (basis.T @ noise)
    expected = math.sqrt(2 / math.pi) * sigma * cells
    away = float(np.abs(noise - taken).sum())
    bound = MarginalBound(
        attributes=("sex", "age"), distance=away, bound=None, noise=expected, deviation=sigma
    )
    (error,) = set_errors([bound], records).values()
    assert error == pytest.approx(float(np.abs(taken).sum()) / (2 * records), rel=0.1)


def test_the_share_of_noise_that_pairs_took_over_is_not_taken_from_triples() -> None:
    """Of the noise of each pair a fifth, and of each triple a fiftieth; right within 15 % on average.

    One of the pairs is as far by its model besides, and hides by it what it took over: alone it looks as if it were the table.
    A fixed seed; the median is of seven pairs.
    """
    rng = np.random.default_rng(11)
    cells, sigma, records = 400, 25.0, 100_000

    def drawn(
        names: str, share: float, *, is_smoothed: bool = False
    ) -> tuple[MarginalBound, float]:
        basis, _ = np.linalg.qr(rng.normal(size=(cells, round(share * cells))))
        noise = rng.normal(0, sigma, cells)
        taken = basis @ (basis.T @ noise)
        away = rng.normal(0, math.sqrt(share) * sigma, cells) if is_smoothed else np.zeros(cells)
        bound = MarginalBound(
            attributes=tuple(names),
            distance=float(np.abs(noise - taken - away).sum()),
            bound=None,
            noise=math.sqrt(2 / math.pi) * sigma * cells,
            deviation=sigma,
        )
        return bound, float(np.abs(taken + away).sum()) / (2 * records)

    pairs = [drawn(names, 0.2) for names in ("ab", "ac", "ad", "ae", "bd", "cd")]
    smoothed, true = drawn("bc", 0.2, is_smoothed=True)
    triples = [drawn("".join(names), 0.02) for names in itertools.combinations("abcdef", 3)]
    errors = set_errors([smoothed, *(bound for bound, _ in (*pairs, *triples))], records)
    stated = statistics.fmean(errors[bound.attributes] for bound, _ in pairs)
    assert stated == pytest.approx(statistics.fmean(distance for _, distance in pairs), rel=0.15)
    assert errors[smoothed.attributes] > 0.6 * true


def test_records_that_were_drawn_from_a_model_are_farther_than_it_by_what_is_known_of_that() -> (
    None
):
    """Records of a model that took over two fifths of the noise, each cell off by as much as noise besides: within 10 %.

    Without the distance of records from the model they would be taken for near: the one hides the other.
    """
    rng = np.random.default_rng(5)
    cells, sigma, records = 400, 25.0, 100_000
    basis, _ = np.linalg.qr(rng.normal(size=(cells, 160)))
    noise, by_chance = rng.normal(0, sigma, cells), rng.normal(0, 0.6 * sigma, cells)
    taken = basis @ (basis.T @ noise)
    bound = MarginalBound(
        attributes=("sex", "age"),
        distance=float(np.abs(noise - taken - by_chance).sum()),
        bound=None,
        noise=math.sqrt(2 / math.pi) * sigma * cells,
        deviation=sigma,
    )
    drawn = {2: float(np.abs(by_chance).sum()) / (2 * records)}
    true = float(np.abs(taken + by_chance).sum()) / (2 * records)
    (error,) = set_errors([bound], records, drawn=drawn).values()
    (without,) = set_errors([bound], records).values()
    assert error == pytest.approx(true, rel=0.1)
    assert without < 0.6 * true


def test_a_pair_that_was_not_chosen_is_as_far_as_noise_would_have_been_where_there_are_records() -> (
    None
):
    """Of 1,000 records x is a in 900, b in 100 and c in none; noise of 50 is more than there are in cells of b."""
    places = np.array([0, 0, 0, 1, 1])
    level = Level(
        length=1,
        columns=places[:, None],
        values=np.array([0, 1, 2, 0, 1])[:, None],
        counts=np.array([900, 100, 0, 800, 200]),
    )
    counts = Aggregates(
        domain=Domain(names=("x", "y"), labels=(("a", "b", "c"), ("u", "v"))),
        record_count=1000,
        record_deviation=1.0,
        levels=(level,),
        noise=(),
    )
    noise = math.sqrt(2 / math.pi) * 50 / 1000
    together = 0.55 * (2 * noise + noise + 0.02) / 2
    # in each of four cells
    chance = 2 * (2 / math.sqrt(math.pi) * math.sqrt(0.9 * 0.1 * 0.8 * 0.2 / 1000) * 2) / 2
    found = unchosen_errors({("x",): 0.02, ("y",): 0.01}, counts, 50.0)
    assert found == {
        ("x", "y"): pytest.approx(math.sqrt(together**2 + chance**2 + 0.02**2 + 0.01**2))
    }
    assert unchosen_errors({("x",): 0.02}, counts, 50.0) == {}  # of y nothing is known


def even_verdict(
    measured: Sequence[MarginalBound],
    cliques: Any,
    lone: float | None = None,
    misfit: ChosenMisfit | None = None,
    **changes: Any,
) -> Verdict:
    """The verdict on 10,000 even records of four columns, of which these sets were measured."""
    labels = (("f", "m"), ("north", "south", "west"), tuple("abcde"), tuple("1234567"))
    codes = np.array(
        [(place, code) for place, own in enumerate(labels) for code in range(len(own))]
    )
    sizes = np.array([*map(len, labels)])[codes[:, 0]]
    level = Level(length=1, columns=codes[:, :1], values=codes[:, 1:], counts=10_000 // sizes)
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=9,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )
    counts = Aggregates(
        domain=Domain(names=NAMES, labels=labels),
        record_count=10_000,
        record_deviation=1.0,
        levels=(level,),
        noise=(noise,),
    )
    made = configuration(
        aggregate={"method": "marginals", "cliques": cliques},
        synthesize={"method": "mixture"},
        **changes,
    )
    nothing = Measure(
        names=NAMES,
        reference=((None,) * 4,) * 4,
        synthetic=((None,) * 4,) * 4,
        mean_difference=None,
    )
    merged = Compression(
        codes=tuple(np.arange(len(own)) for own in labels),
        counts=tuple(np.ones(len(own)) for own in labels),
    )
    unknown = Association(
        cramers_v=nothing,
        mutual_information=nothing,
        spearman=nothing,
        from_independence=nothing,
    )
    facts = DrawFacts(lone=lone, misfit=misfit)
    return release_verdict(measured, counts, made, merged, unknown, facts=facts)


@pytest.mark.parametrize(("values", "error"), [(0, 0.2), (1, 0.08)])
def test_what_rounds_chose_first_is_no_measure_of_what_they_chose_last_beside_sets(
    values: int, error: float
) -> None:
    """The last sets were as far as the first. Of columns alone all others are, too; beside a set they are .4 times as far."""
    signs = {"type": "set", "values": ["a"], "max_values": 1}
    changes: dict[str, Any] = {"columns__signs": signs} if values else {}
    measured = [*bounds(10.0, 10_000, length=1), bounds(10.0, 10_000)[4]]
    found = even_verdict(
        measured,
        {"adaptive": 2},
        misfit=ChosenMisfit(0.2, 0.2),
        **changes,
    )
    errors = [one.error for one in found.sets if one.unmeasured == "not chosen"]
    assert errors == pytest.approx([error] * 5, rel=0.1)


@pytest.mark.parametrize(("deviation", "grade"), [(10.0, "good"), (1e5, "not")])
def test_where_no_pair_was_worth_its_noise_each_is_graded_by_the_noise_of_measuring_it(
    deviation: float, grade: str
) -> None:
    """What that means for the records, and what to do, is said before all else; nobody hears of others that were chosen."""
    found = even_verdict(bounds(10.0, 10_000, length=1), "selected", deviation)
    pairs = [one for one in found.sets if len(one.attributes) == 2]
    assert [(one.unmeasured, one.error is None, one.grade) for one in pairs] == [
        ("not chosen", False, grade)
    ] * 6
    assert found.says[0].startswith(
        "No pair of columns was measured, as none was worth its noise at epsilon 1: in the records"
    )
    assert found.advice[0].startswith(
        "For pairs in the records, name the few that matter, as aggregate: {method: marginals, cliques: [["
    )
    assert not any(
        "others were chosen" in sentence or "nothing measured" in sentence
        for sentence in (*found.says, *found.advice)
    )


@pytest.mark.parametrize(
    ("cliques", "why", "large"),
    [
        ("selected", "not chosen", set()),
        ({"adaptive": 2}, "not chosen", set()),
        ({"adaptive": 2, "max_cells": 20}, "not chosen", {("age", "grade"), ("region", "grade")}),
        ([["sex", "region"]], "not asked for", set()),
        (
            {"all": 2, "max_cells": 20},
            "not asked for",
            {*itertools.combinations(NAMES[1:], 2), ("sex", "grade")},
        ),
    ],
)
def test_pairs_that_were_not_chosen_have_a_distance_and_those_that_nothing_could_measure_have_none(
    cliques: Any, why: str, large: set[tuple[str, str]]
) -> None:
    """One pair was measured of 10,000 even records: others are near where scores or rounds passed over them.

    None passed over a pair of too many cells, of which the advice is another.
    """
    measured = [
        bound
        for bound in bounds(10.0, 10_000)
        if len(bound.attributes) == 1 or bound.attributes == NAMES[:2]
    ]
    found = even_verdict(measured, cliques)
    others = [one for one in found.sets if len(one.attributes) == 2 and one.attributes != NAMES[:2]]
    assert [one.unmeasured for one in others] == [
        "too many cells" if one.attributes in large else why for one in others
    ]
    for one in others:
        known = one.unmeasured == "not chosen"
        assert (one.error is not None, one.grade) == (known, "good" if known else "unknown")
    assert [one.unmeasured for one in found.sets if one not in others] == [None] * 5
    passed_over = (
        "1 pair was not measured"
        if len(large) == 4
        else f"{5 - len(large)} pairs were not measured"
    )
    assert any(
        f"{len(large)} pairs have too many cells" in advice for advice in found.advice
    ) is bool(large)
    assert any(passed_over in said for said in (*found.says, *found.advice))
    assert any("cliques: [[COLUMN" in advice for advice in found.advice)


def test_the_verdict_on_k_tuples_says_which_sets_lose_values_uncounted() -> None:
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "signs": {"type": "set", "values": ["a"], "max_values": 1},
    }
    made = configuration(columns=columns, aggregate={"method": "k-tuples"})
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=9,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )
    domain = Domain(names=("sex", "signs"), labels=(("f", "m"), ("a",)))
    counts = Aggregates(
        domain=domain, record_count=900, record_deviation=1.0, levels=(), noise=(noise,)
    )
    found = release_verdict([], counts, made, None, EVALUATION.association)
    assert {one.unmeasured for one in found.sets} == {"nothing released"}
    assert (
        sum(
            one.startswith(
                "Nobody counted how many records hold a value of signs that is not declared"
            )
            for one in found.says
        )
        == 1
    )


UNIFORM = {"distribution": "uniform"}
RESIZED: dict[str, Any] = {f"columns__{name}__impute": UNIFORM for name in ("sex", "age", "grade")}


@pytest.mark.parametrize(
    ("changes", "resized", "imputed"),
    [
        ({}, False, ""),
        ({"columns__sex__impute": UNIFORM}, False, "Cells of sex without a value"),
        (
            {**RESIZED, "columns__region__missing": [], "resize": {"records": 4000}},
            True,
            "Cells of sex, age, grade without a value",
        ),
        (
            {
                "columns__sex__impute": {"distribution": "uniform"},
                "columns__sex__outside": "error",
                "columns__sex__missing": [],
            },
            False,
            "",
        ),
    ],
)
def test_the_verdict_says_what_is_made_up(
    changes: dict[str, Any], resized: bool, imputed: str
) -> None:
    """Records of a resized table, and draws of `impute`, which no row of the table has: how many is known to nobody."""
    made = configuration(**changes)
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=9,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )
    domain = Domain(names=NAMES, labels=tuple(attribute.labels for attribute in made.attributes))
    counts = Aggregates(
        domain=domain, record_count=4000, record_deviation=1.0, levels=(), noise=(noise,)
    )
    found = release_verdict([], counts, made, None, EVALUATION.association)
    assert [
        one.startswith("Every number is of a resized table of 4,000 records")
        for one in found.says[:1]
    ] == [resized]
    says = [one for one in found.says if "draws of the declared distribution, and count" in one]
    assert [one[: len(imputed)] for one in says] == [imputed] * bool(imputed)


def _judged(records: int, **changes: Any) -> Verdict:
    """Return the verdict on a release of a noisy number of records, of deviation 1, with noise of 1 in each count."""
    made = configuration(**changes)
    domain = Domain(names=NAMES, labels=tuple(attribute.labels for attribute in made.attributes))
    counts = Aggregates(
        domain=domain, record_count=records, record_deviation=1.0, levels=(), noise=()
    )
    return release_verdict(bounds(1, records), counts, made, None, EVALUATION.association)


def test_known_counts_that_add_up_to_other_records_are_told_and_are_a_grade_worse() -> None:
    """60 standard deviations apart; one within noise or its own error, and one of a population, say nothing."""
    table: dict[str, Any] = {
        "columns": ["sex"],
        "table": [["f", 500], ["m", 500]],
        "others": 0,
        "from": "these-rows",
        "public": "a page",
    }
    found = _judged(1060, known=[table])
    assert found.publication == "with care"
    assert "add up to 1,000, and about 1,060 records were counted: 60 apart" in str(found.says)
    other = {**table, "from": "other-source"}
    for records, known in ((1003, table), (1060, {**table, "sd": 15}), (1060, other)):
        found = _judged(records, known=[known])
        assert found.publication == "good"
        assert not any("add up to" in sentence for sentence in found.says)


def test_columns_that_are_computed_are_said_to_be_in_no_grade() -> None:
    determined = [{"column": "grade", "by": "sex", "mapping": {"f": 1, "m": 2}}]
    found = _judged(1000, structure__determined=determined)
    assert any("Values of grade are computed" in sentence for sentence in found.says)
    assert any("`marginweave check` counts" in sentence for sentence in found.advice)


def test_a_table_of_noise_is_not_for_publication_and_one_without_is_good() -> None:
    """69 rows beside noise of 15 a count; a million beside the same."""
    for records, publication in ((69, "not for publication"), (1_000_000, "good")):
        found = verdict(errors_of(bounds(15, records), records), {1: [15.0]}, records)
        assert found.publication == publication
        assert found.lengths[0].least_group == 60
    assert any("60 records" in sentence for sentence in found.says)


@pytest.mark.parametrize(("epsilon", "more"), [(1.0, True), (9.0, False)])
def test_no_epsilon_that_protects_weakly_is_advised(epsilon: float, more: bool) -> None:
    """About three times as much: epsilon 3 is named beside more rows, 27 is not but for what it is."""
    (advice,) = verdict({("a",): 3 * GOOD}, {}, 1000.0, epsilon=epsilon).advice
    assert ("3.0 times the epsilon, or the rows," in advice) is more
    assert ("3.0 times the rows would" in advice) is not more
    assert ("an epsilon above 10, which would do as much, protects weakly." in advice) is not more


def test_no_noise_that_is_less_is_advised_where_most_pairs_were_not_measured() -> None:
    """Nor where rounds left most behind, which more rounds would measure."""
    far: dict[tuple[str, ...], float | None] = dict.fromkeys([("a", "b"), ("a", "c")], 3 * GOOD)
    unknown: dict[tuple[str, ...], float | None] = dict.fromkeys(
        [("b", "d"), ("c", "d"), ("a", "d")]
    )
    for errors, left in ((far | unknown, ()), (far, [*far])):
        advice = " ".join(verdict(errors, {}, 1000.0, beyond=BeyondNoise(passed_over=left)).advice)
        assert "times the" not in advice
        assert ("Rounds ended while" in advice) is bool(left)
    assert "3.0 times the" in " ".join(verdict(far, {}, 1000.0).advice)


@pytest.mark.parametrize("error", [{}, {"sd": 5}], ids=["exact", "with an error"])
def test_records_that_follow_other_known_counts_are_told_and_need_no_budget(
    error: dict[str, int],
) -> None:
    """By more than noise, which is as far as known ones where these are right; of other columns nothing is known."""
    counts_of_sex = [["f", 500], ["m", 500]]
    table = {
        "columns": ["sex"],
        "table": counts_of_sex,
        "from": "other-source",
        "public": "census",
        **error,
    }
    config = configuration(known=[table], missing=[])
    domain = Domain(names=NAMES, labels=tuple(a.labels for a in config.attributes))
    counts = Aggregates(domain=domain, record_count=1000, record_deviation=1.0, levels=(), noise=())
    assert known_apart(bounds(5, 1000, beyond=0.3), counts, config) == {
        ("sex",): pytest.approx(0.3)
    }
    assert known_apart(bounds(5, 1000), counts, config) == {}
    assert known_apart(bounds(5, 1000, beyond=0.3), counts, configuration()) == {}
    far: dict[tuple[str, ...], float | None] = dict.fromkeys([("a", "b"), ("a", "c")], 3 * GOOD)
    assert verdict(far, {}, 1000.0, beyond=BeyondNoise(known_columns={"a"})).advice == ()
    assert verdict(far, {}, 1000.0, beyond=BeyondNoise(known_columns={"d"})).advice != ()


@pytest.mark.parametrize(
    ("origin", "error", "deviation"),
    [("these-rows", {}, 0), ("these-rows", {"sd": 500}, 500), ("other-source", {}, None)],
)
def test_a_known_pair_is_not_one_that_nobody_asked_for(
    origin: str, error: dict[str, int], deviation: int | None
) -> None:
    """Its counts are there: of these rows with their own error; how far those of another source are nobody knows."""
    rows = [[sex, region, 1666] for sex in "fm" for region in ("north", "south", "west")]
    table = {"columns": ["sex", "region"], "table": rows, "others": 0, "from": origin, **error}
    found = even_verdict(
        bounds(10.0, 10_000, length=1),
        {"all": 1},
        known=[table | {"public": "table 12"}],
        missing=[],
    )
    pairs = {one.attributes: one for one in found.sets if len(one.attributes) == 2}
    known = pairs.pop(("sex", "region"))
    assert known.unmeasured == "known"
    assert {one.unmeasured for one in pairs.values()} == {"not asked for"}
    assert {one.grade for one in pairs.values()} == {"unknown"}
    if deviation is None:
        assert known.error is None
    else:
        of_columns = [one.error for one in found.sets if one.attributes in {("sex",), ("region",)}]
        of_cells = math.sqrt(2 / math.pi) * 6 * deviation / 20_000
        assert known.error == pytest.approx(max(*filter(None, of_columns), of_cells), abs=0.001)
    assert "5 pairs were not measured" in found.advice[0]


@pytest.mark.parametrize(("deviation", "pairs"), [(100.0, 0), (5_000.0, 6)])
def test_where_chance_alone_makes_a_pair_look_bad_its_grade_is_not_known(
    deviation: float, pairs: int
) -> None:
    """10,000 records: chance moves the distance of 6 to 35 cells by less than 6 %, or by more than 100 %."""
    measured = bounds(deviation, 10_000, length=2)
    assert pairs_of_chance(measured, 10_000) == pairs
    found = even_verdict(measured, {"all": 2})
    said = f"{pairs} measured pair(s) have so much noise that chance alone can make one look bad"
    assert any(text.startswith(said) for text in found.says) is bool(pairs)


def test_what_nothing_measured_is_never_good() -> None:
    errors = errors_of(bounds(1, 10**6, length=1), 10**6)
    assert {errors[pair] for pair in itertools.combinations(NAMES, 2)} == {None}
    found = verdict(errors, {}, 10**6)
    assert (found.lengths[1].good, found.lengths[1].unknown) == (0, 6)
    assert found.publication == "with care"
    assert "6 pairs were not measured" in found.advice[0]
    nothing = "Nothing is known about pairs of columns (6 of 6); triples of columns (4 of 4)."
    assert nothing in found.says


def test_declared_gaps_and_even_columns_are_said_and_are_no_reason_against_publication() -> None:
    """A cause of death is missing of the living, and a code list can be evenly used: nobody has to mend anything."""
    errors = errors_of(bounds(1, 10**6), 10**6)
    gaps = verdict(errors, {}, 10**6, [ColumnFacts(name="age", missing_share=0.9)])
    assert (gaps.publication, "age is missing in at least 90 %" in gaps.says[0]) == ("good", True)
    even = verdict(errors, {}, 10**6, [ColumnFacts(name=name, looks_drawn=True) for name in NAMES])
    assert (even.publication, "sex cannot be told from evenly spread" in even.says[0]) == (
        "good",
        True,
    )
    rare = verdict(
        errors, {}, 10**6, [ColumnFacts(name="age", hidden=0.05, hidden_ends=(0.04, 0.06))]
    )
    assert (rare.publication, "about 5 % (4 to 6) of age hold values" in rare.says[0]) == (
        "good",
        True,
    )


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (ColumnFacts(name="age", hidden=1.0, is_nothing=True), "age has no released value"),
        (
            ColumnFacts(name="age", hidden=0.6, hidden_ends=(0.588, 0.612)),
            "about 60 % (58 to 62) of age hold values that were not released",
        ),
        (
            ColumnFacts(name="age", hidden=0.12, hidden_ends=(0.11, 0.13)),
            "about 12 % (11 to 13) of age hold",
        ),
        (
            ColumnFacts(name="age", other_share=0.3),
            "age is “other” in at least 30 % of the records",
        ),
    ],
)
def test_what_a_better_release_would_keep_needs_care_and_can_be_published(
    facts: ColumnFacts, said: str
) -> None:
    errors = errors_of(bounds(1, 10**6), 10**6)
    found = verdict(errors, {}, 10**6, [facts])
    assert (found.publication, said in found.says[0]) == ("with care", True)


@pytest.mark.parametrize(
    ("outside", "share", "deviation", "seen"),
    [
        ("null", 0.44, 4.0, True),
        ("other", 0.44, 4.0, True),
        ("null", 0.2, 4.0, False),
        ("null", 0.44, 60.0, False),
    ],
)
def test_a_column_of_which_much_was_not_read_is_doubted(
    outside: str, share: float, deviation: float, seen: bool
) -> None:
    """Below the half that stops a run: from noisy counts alone, and only where noise cannot have made that many."""
    grade = {"type": "category", "values": ["1", "2", "3"], "outside": outside}
    tags = {"type": "set", "values": ["x", "y"], "max_values": 2}
    settings = configuration(
        columns={"grade": grade, "tags": tags},
        missing=[""],
        aggregate={"method": "marginals", "cliques": {"all": 1}},
    )
    read = round(1000 * (1 - share) / 3)
    grades = {(0, code): count for code, count in enumerate([read, read, read, 1000 - 3 * read])}
    first = [
        (0, code, count)
        for (_, code), count in grades.items()
        if code < len(settings.attributes[0].labels)
    ]
    first += [(1, 0, 100)]  # a value of a set that few have is none that is missing
    columns, values, numbers = (np.array(x) for x in zip(*first, strict=True))
    counts = Aggregates(
        domain=Domain(
            names=tuple(a.name for a in settings.attributes),
            labels=tuple(a.labels for a in settings.attributes),
        ),
        record_count=1000,
        record_deviation=deviation,
        levels=(Level(length=1, columns=columns[:, None], values=values[:, None], counts=numbers),),
        noise=(
            LevelNoise(
                length=1,
                contribution_bound=1,
                deviation=deviation,
                threshold=1,
                private_threshold=0,
                candidates=None,
            ),
        ),
        measured={(place,): deviation for place in range(3)},
    )
    facts = column_facts(counts, settings, deviation, (), ())
    assert [fact.name for fact in facts] == ["grade"]
    said = [
        str(sentence).split(" in at least")[0] for sentence in (*doubts(facts), *questions(facts))
    ]
    assert said == [f"grade is {'missing' if outside == 'null' else '“other”'}"] * seen
    errors, is_doubted = {("grade",): 0.01}, seen and outside == "other"
    assert verdict(errors, {1: [deviation]}, 1000, facts).publication == (
        "with care" if is_doubted else "good"
    )


@pytest.mark.parametrize("asked", [True, False])
def test_a_column_that_does_not_apply_is_not_doubted(asked: bool) -> None:
    """Who is not employed has no industry: nothing was lost there."""
    columns = {
        "employed": {"type": "category", "values": ["yes", "no"], "missing": []},
        "industry": {"type": "category", "values": ["a1", "a2", "b1"], "missing": [""]},
    }
    applies = [{"columns": ["industry"], "where": {"employed": "yes"}}]
    structure = {"applies": applies} if asked else {}
    cliques = {"method": "marginals", "cliques": {"all": 1}}
    settings = configuration(columns=columns, structure=structure, aggregate=cliques)
    cells = [[500, 500], [200, 200, 100]]
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=4,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )
    level = Level(
        length=1,
        columns=np.repeat([0, 1], [2, 3])[:, None],
        values=np.concatenate([np.arange(len(c)) for c in cells])[:, None],
        counts=np.concatenate(cells),
    )
    counts = Aggregates(
        domain=Domain(
            names=tuple(a.name for a in settings.attributes),
            labels=tuple(a.labels for a in settings.attributes),
        ),
        record_count=1000,
        record_deviation=4,
        levels=(level,),
        noise=(noise,),
        measured={(place,): 4 for place in range(2)},
    )
    said = map(str, questions(column_facts(counts, settings, 4, (), ())))
    assert [line.split(" is missing")[0] for line in said] == ([] if asked else ["industry"])


@pytest.mark.parametrize("even", ["date", "category"])
def test_months_may_be_even(even: str) -> None:
    """Visits come evenly through a year, so a date is looked at as a column of few values is; twelve towns need no other."""
    months = {
        "type": "date",
        "bounds": ["2024-01-01", "2024-12-31"],
        "bins": "month",
        "missing": [],
        "impute": {"distribution": "uniform"},
    }
    towns = {
        "type": "category",
        "values": [f"t{i}" for i in range(12)],
        "missing": [],
        "impute": {"distribution": "uniform"},
    }
    settings = configuration(columns={"x": months if even == "date" else towns, "y": towns})
    numbers = np.array([1000] * 12 + [100 * i for i in range(1, 13)])
    columns, values = np.repeat([0, 1], 12), np.tile(np.arange(12), 2)
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=9,
        threshold=1,
        private_threshold=0,
        candidates=None,
    )
    counts = Aggregates(
        domain=Domain(names=("x", "y"), labels=tuple(a.labels for a in settings.attributes)),
        record_count=12000,
        record_deviation=9,
        levels=(Level(length=1, columns=columns[:, None], values=values[:, None], counts=numbers),),
        noise=(noise,),
    )
    facts = column_facts(counts, settings, 9, {"x", "y"}, ())
    assert [fact.looks_drawn for fact in facts] == [True, False]
    alone = column_facts(counts, settings, 9, (), ())
    assert [fact.looks_drawn for fact in alone] == [even == "category", False]


def test_groups_are_no_smaller_for_more_columns_and_none_is_larger_than_the_table() -> None:
    """Pairs may be measured with less noise than columns; a group in a pair is part of one in a column all the same."""
    errors = {("age",): 0.01, ("age", "sex"): 0.01}
    found = verdict(errors, {1: [25.0], 2: [10.0]}, 900)
    assert [row.least_group for row in found.lengths] == [100, 100]
    assert (
        "groups of fewer than 100 records in single columns; groups of fewer than 100 records in pairs"
        in found.says[-2]
    )
    few = verdict(errors, {1: [10.0], 2: [25.0]}, 69)
    assert [row.least_group for row in few.lengths] == [40, 100]
    assert (
        "any group of this table (noise hides groups of fewer than 100 records) in pairs of columns"
        in few.says[-2]
    )


@given(st.floats(0, 1))
def test_grades_fall_with_the_error(error: float) -> None:
    assert grade(error) == ("good" if error <= GOOD else "with care" if error <= CARE else "not")


def test_twice_the_pairs_stand_for_triples_that_noise_drowns() -> None:
    """Single triples are noisier than what they share: their error is at most twice the mean of their pairs."""
    drawn = [row for row in bounds(2, 1000) if len(row.attributes) < 3]
    for names in itertools.combinations(NAMES, 3):
        noise = 900.0 * np.prod([CELLS[name] for name in names])
        drawn.append(
            MarginalBound(
                attributes=names, distance=noise, bound=None, noise=noise, deviation=900.0
            )
        )
    errors = errors_of(drawn, 1000)
    for names in itertools.combinations(NAMES, 3):
        pairs = [errors[pair] or 0 for pair in itertools.combinations(names, 2)]
        assert errors[names] == pytest.approx(max(*pairs, min(1, 2 * sum(pairs) / 3)))


def test_no_set_is_better_than_a_part_of_it() -> None:
    """Pairs are measured over merged values, and look better than a column over all of its own."""
    drawn = [
        row.model_copy(update={"distance": 1300.0}) if row.attributes == ("age",) else row
        for row in bounds(1, 1000)
    ]
    errors = errors_of(drawn, 1000)
    for names, error in errors.items():
        if "age" in names:
            assert error is not None
            assert error >= 0.64


def test_a_pair_that_nothing_measured_is_no_better_than_its_columns() -> None:
    """Where a column is noise, so is each of its pairs, measured or not; elsewhere such a pair is with care."""
    single = {("sex",): 0.01, ("age",): 0.4, ("grade",): 0.1}
    found = [
        MarginalBound(attributes=names, distance=2e3 * error, bound=None, noise=0.0, deviation=1.0)
        for names, error in single.items()
    ]
    errors = errors_of(found, 1000, names=["sex", "age", "grade"])
    assert errors["sex", "age"] == errors["age", "grade"] == pytest.approx(0.4)
    assert errors["sex", "grade"] is None


def test_what_was_merged_may_be_misplaced() -> None:
    """Of half of the records nothing measured with what their value of one column goes: an eighth of all more is astray."""
    compression = Compression(
        codes=(np.array([0, 1]), np.array([0, 1, 0])),
        counts=(np.array([60.0, 40.0]), np.array([40.0, 50.0, 10.0])),
    )
    merged = merged_shares(compression, ["sex", "age"])
    assert merged == pytest.approx({"sex": 0.0, "age": 0.5})
    before, after = (errors_of(bounds(1, 10**6), 10**6, shares) for shares in (None, merged))
    for names, error in after.items():
        was = before[names]
        if len(names) == 3:
            continue
        assert error is not None
        assert was is not None
        assert (
            error
            == pytest.approx(was + (0.125 if len(names) == 2 and "age" in names else 0), abs=1e-3)
            or len(names) == 3
        )


COST = NumberColumn.model_validate(
    {"type": "number", "bounds": [0, 1000], "bins": [0, 10, 100, 1000], "decimals": 0}
)
STAY = NumberColumn.model_validate({"type": "number", "bounds": [0, 90], "bins": 10, "decimals": 0})
OPEN = NumberColumn.model_validate(
    {"type": "number", "bins": [0, 50, 100], "outer": "open", "decimals": 0}
)
NOISE = verdict_sentence("mean.noise")
# middles 4.5, 54.5 and 550 (whole numbers, the last to 1000): mean 19.5, 1.96 * 10 * 531.8 / 1000 = 10.4
SKEWED = "noise can move it by 53 %"
VISITS = NumberColumn.model_validate(
    {"type": "number", "bounds": [0, 90], "bins": [0, 1, 3, 90], "decimals": 0}
)


@pytest.mark.parametrize(
    ("column", "counts", "deviation", "said"),
    [
        (COST, [500, 400, 100], 1.0, None),
        (COST, [500, 400, 100], 20.0, "noise can move it by 24 %"),
        (
            COST,
            [900, 100, 0],
            1e-6,
            "most records are in one bin, [0, 10), and where in it is not known",
        ),
        (
            STAY,
            [930, 50, 20],
            1.0,
            "most records are in one bin, [0, 9), and where in it is not known",
        ),
        (STAY, [400, 380, 220], 1.0, None),
        # noise took the last record of the bin that moves the mean more than the others together
        (COST, [700, 300, 0], 10.0, SKEWED),
        (VISITS, [700, 250, 50], 1e-6, None),  # a bin of one number hides nothing
        (COST, [0, 0, 0], 1.0, None),
        (
            OPEN,
            [100, 250, 250, 400],
            1.0,
            "50 % of the records are in < 0, ≥ 100, which have no end",
        ),
        (OPEN, [2, 250, 250, 0], 2.0, None),
    ],
)
def test_a_mean_that_noise_or_one_bin_decides_is_told(
    column: NumberColumn, counts: list[int], deviation: float, said: str | None
) -> None:
    doubt = mean_doubt(column, np.arange(len(counts)), np.array(counts, float), deviation)
    assert (doubt if doubt is None else str(doubt)) == said


def test_such_a_mean_is_in_the_verdict() -> None:
    """With the columns that are good or with care; of those that are noise more need not be said."""
    columns = [ColumnFacts(name=name, mean=NOISE) for name in ("age", "grade")]
    errors = {**errors_of(bounds(0.1, 1e6), 1e6), ("grade",): 0.5}
    found = verdict(errors, {1: [1.0]}, 1e6, columns)
    assert found.says[-2].endswith("; the mean of age (it is noise).")
    assert "of grade (it is noise)" not in found.says[-2]
    assert found.publication == "with care"


def test_sentences_have_the_labels_of_columns() -> None:
    """Of pairs that are not good, of a mean, and of a column in doubt; the sets have their names."""
    columns = [
        ColumnFacts(name="age", mean=NOISE),
        ColumnFacts(name="sex", missing_share=0.9),
    ]
    titled = {"age": "age (in years)", "sex": "sex (as told)", "grade": "grade"}
    found = verdict(
        {("age",): 0.01, ("age", "sex"): 0.1, ("sex", "grade"): 0.2},
        {1: [1.0]},
        1e6,
        columns,
        1.0,
        titled,
    )
    text = " ".join(found.says)
    for said in (
        "age (in years) x sex (as told)",
        "sex (as told) x grade",
        "mean of age (in years)",
        "sex (as told) is missing",
    ):
        assert said in text
    assert found.sets[1].attributes == ("age", "sex")


def test_what_was_not_released_of_an_imputed_private_domain_is_said() -> None:
    """Its records have released values alone, so that only the count as drawn knows how many hold others."""
    settings = configuration(
        columns={
            "town": {"type": "category", "domain": "private", "impute": {"weights": {"A": 1}}}
        },
        aggregate={"method": "marginals", "cliques": {"all": 1}},
    )
    noise = LevelNoise(
        length=1,
        contribution_bound=1,
        deviation=4,
        threshold=1,
        private_threshold=9,
        candidates=None,
    )
    level = Level(
        length=1, columns=np.array([[0]]), values=np.array([[0]]), counts=np.array([1000])
    )
    counts = Aggregates(
        domain=Domain(names=("town",), labels=(("A",),)),
        record_count=1000,
        record_deviation=4,
        levels=(level,),
        noise=(noise,),
        measured={(0,): 4.0},
    )
    facts = column_facts(counts, settings, 4.0, (), (), {"town": (620.0, 4.0)})
    assert [*map(str, doubts(facts))] == [
        "about 62 % (61 to 63) of town hold values that were not released"
    ]
    assert [*doubts(column_facts(counts, settings, 4.0, (), ()))] == []


def test_a_column_without_any_value_is_not_good() -> None:
    """Its one value, missing, is without error: neither it nor a pair with it is good for anything."""
    errors = errors_of(bounds(1, 10**6), 10**6)
    found = verdict(errors, {}, 10**6, [ColumnFacts(name="age", hidden=1.0, is_nothing=True)])
    assert {row.grade for row in found.sets if "age" in row.attributes} == {"not"}
    assert found.lengths[0].good == len(NAMES) - 1


def test_no_group_has_fewer_than_one_record() -> None:
    found = verdict(errors_of(bounds(0.1, 10**6), 10**6), {1: [0.1], 2: [0.2]}, 10**6)
    assert not any("groups of fewer" in line for line in found.says)


def test_records_that_miss_a_measured_table_are_told() -> None:
    """Of three columns and more, by more than twice its noise and by more than is good; the worst is named, others counted."""
    config = configuration(missing=[])
    domain = Domain(names=NAMES, labels=tuple(a.labels for a in config.attributes))
    counts = Aggregates(domain=domain, record_count=1000, record_deviation=1.0, levels=(), noise=())
    near, far, farther = (bounds(2, 1000, beyond=b, length=3)[-1] for b in (0.9 * GOOD, 0.3, 0.4))
    other = far.model_copy(update={"attributes": NAMES[:3]})
    noisy = bounds(60, 1000, beyond=0.5, length=3)[-1]
    pair = bounds(2, 1000, beyond=0.5)[-1]

    def said(*measured: MarginalBound, apart: tuple[tuple[str, ...], ...] = ()) -> list[str]:
        return [*map(str, missed_sentences(measured, counts, apart, {"age": "Age"}))]

    assert said(pair, near, noisy) == []
    (one,) = said(far, near)
    assert "region x Age x grade together: about 30 % of them" in one
    (two,) = said(other, farther)
    assert "2 tables of three columns and more. The worst is region x Age x grade" in two
    assert "about 40 %" in two
    assert said(far, apart=(far.attributes,)) == []


@pytest.mark.parametrize(
    ("subjects", "publication", "advised"), [(250, "with care", True), (80, "good", False)]
)
def test_a_release_that_counts_too_few_rows_of_persons_is_used_with_care(
    subjects: int, publication: str, advised: bool
) -> None:
    """From a tenth of the rows on, by the lower end: 3 rows of each person count, and others may have hundreds."""
    config = configuration(missing=[], privacy__unit={"column": "id", "max_records": 3})
    uncounted = uncounted_rows(3 * subjects, 3 * subjects, cap=3, most=3, sigma=20.0)
    domain = Domain(
        names=NAMES, labels=tuple(a.labels for a in config.attributes), uncounted=uncounted
    )
    counts = Aggregates(domain=domain, record_count=3000, record_deviation=9.0, levels=(), noise=())
    good = Verdict(publication="good", score=88, says=("A.",), advice=(), lengths=(), sets=())
    found = with_uncounted(good, counts, {"id": "person"}, config)
    assert found.publication == publication
    assert "of person have more than 3 rows" in found.says[0]
    assert any("max_records" in line for line in found.advice) is advised
    worst = good.model_copy(update={"publication": "not for publication"})
    assert with_uncounted(worst, counts, {}, config).publication == "not for publication"


@pytest.mark.parametrize(
    ("rows", "counted", "deviation", "is_told"),
    [
        (50_000, 514, 13.0, True),
        (200, 514, 13.0, True),
        (1_000, 514, 13.0, False),
        (50_000, 514, 20_000.0, False),
    ],
)
def test_a_wrong_number_of_rows_is_told(
    rows: int, counted: int, deviation: float, is_told: bool
) -> None:
    """Where it is twice or half of what was counted, beyond noise: what is measured was chosen by it."""
    config = configuration(
        missing=[], rows=rows, aggregate={"method": "marginals", "cliques": {"all": 2}}
    )
    domain = Domain(names=NAMES, labels=tuple(a.labels for a in config.attributes))
    counts = Aggregates(
        domain=domain, record_count=counted, record_deviation=deviation, levels=(), noise=()
    )
    found = release_verdict(bounds(9, 500), counts, config, None, EVALUATION.association)
    told = [line for line in found.advice if f"`rows: {rows}`, and about {counted}" in line]
    assert bool(told) is is_told


@pytest.mark.parametrize(
    ("aggregate", "said"),
    [
        (None, "say so (`rows:`): `method: auto` then chooses"),
        ({"method": "auto"}, "say so (`rows:`): `method: auto` then chooses"),
        (
            {"method": "marginals", "cliques": [["sex", "age"]]},
            "say so (`rows:`) and leave `aggregate` to `method: auto`",
        ),
    ],
)
def test_only_who_names_what_is_counted_is_advised_to_leave_it_to_auto(
    aggregate: dict[str, Any] | None, said: str
) -> None:
    """As the stage reads the configuration: from its canonical form."""
    made = Configuration.from_canonical(configuration(aggregate=aggregate).canonical())
    domain = Domain(names=NAMES, labels=tuple(attribute.labels for attribute in made.attributes))
    counts = Aggregates(domain=domain, record_count=500, record_deviation=9.0, levels=(), noise=())
    found = release_verdict(
        bounds(90, 500),
        counts,
        made,
        None,
        EVALUATION.association,
        is_automatic=is_automatic(made),
    )
    (advised,) = [line for line in found.advice if "(`rows:`)" in line]
    assert said in advised


def test_a_verdict_says_what_it_leaves_out_of_linked_tables() -> None:
    """Rows that belong to nobody, and counts of rows; of tables that columns are derived from alone only the former."""
    counted = " ".join(map(str, _changed_row_sentences(counted_hospital())))
    derived = " ".join(map(str, _changed_row_sentences(hospital())))
    for said in (counted, derived):
        assert (
            "Rows of stays without an id, or with the id of no row of the source, are in no number"
            in said
        )
    words = "Of stays at most 2 row(s) of each unit are in counts of rows"
    assert [words in said for said in (counted, derived)] == [True, False]
