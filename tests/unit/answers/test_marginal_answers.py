"""Answers to questions, from measurements with next to no noise: what is asked is what is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marginweave.answers.answer import About, Counted
from marginweave.answers.codes import Codes
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.model import ModelAnswers, ModelSpread, Stack
from marginweave.answers.rules import AnswerRules
from marginweave.answers.tables import part_tables
from marginweave.base.errors import InputError
from marginweave.base.progress import LISTENER
from marginweave.configuration.question import read_condition, read_question
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain, UndeclaredCells
from marginweave.domain.masks import NeverTogether
from marginweave.domain.zeros import domain_sizes, structural_masks
from marginweave.estimate.marginals import drawn_compression_of
from marginweave.estimate.mixture.model import Mixture
from marginweave.flows.cli.query import query
from marginweave.inference.independence_tests import answer_independence, subject_of_test
from marginweave.inference.opened import Release
from marginweave.observations.tables import Marginals, Observation
from tests.support.configurations import PRIVATE, configuration
from tests.support.noisy_marginals import measure_merged

CLIQUES = (("sex", "region"), ("region", "age", "grade"))
EXTRA: dict[str, Any] = {
    "columns__signs": {"type": "set", "values": ["cough", "fever"], "max_values": 2},
}


def opened(
    changes: dict[str, Any],
    cliques: Any,
    sd: float = 1e-3,
    sampled: str | None = None,
    undeclared: Sequence[UndeclaredCells] = (),
) -> tuple[Any, ...]:
    """Answers of a made-up table, its rows as codes, and its attributes by name."""
    config: Configuration = configuration(
        aggregate={"method": "marginals", "cliques": [list(c) for c in cliques]}, **changes
    )
    labels = tuple(a.labels for a in config.attributes)
    whole = config.with_undeclared([cells.name for cells in undeclared])
    sizes, rng = domain_sizes(whole.attributes, labels), np.random.default_rng(3)
    rows = [np.minimum(rng.geometric(0.3, 2000) - 1, n - 1) for n in sizes]
    places = {a.name: j for j, a in enumerate(config.attributes)}
    if "structure" in changes and "forbidden" in changes["structure"]:  # WARD
        north, age, sex = rows[places["region"]] == 0, rows[places["age"]], rows[places["sex"]]
        rows[places["age"]], rows[places["sex"]] = (
            np.where(north & np.isin(age, (3, 4)), 0, age),
            np.where(north, 0, sex),
        )

    def counted(clique: tuple[int, ...]) -> Observation:
        counts = np.zeros([sizes[a] for a in clique], np.int64)
        np.add.at(counts, tuple(rows[a] for a in clique), 1)
        noise = rng.normal(0, sd, counts.shape).round().astype(np.int64)
        return Observation(attributes=clique, counts=counts + noise, deviation=sd)

    one_way = tuple(counted((a,)) for a in range(len(sizes)))
    domain = Domain(names=tuple(places), labels=labels, undeclared=tuple(undeclared))
    plain = Marginals(domain=domain, one_way=one_way, larger=())
    merged = drawn_compression_of(plain, config)
    larger = tuple(
        measure_merged(counted(tuple(sorted(places[n] for n in c))), merged) for c in cliques
    )
    drawn = Marginals(domain=domain, one_way=one_way, larger=larger)
    codes = Codes(configuration=whole, domain=domain, sizes=sizes)
    answers = MarginalAnswers(
        squares=LeastSquares(part_tables(drawn, config)),
        codes=codes,
        measured_together=cliques,
        sampled=sampled,
        rules=AnswerRules(rules=structural_masks(whole, labels), sizes=sizes),
        undeclared={
            cells.name: str(cells.sentence(2000, 0.0, cells.name))
            for cells in undeclared
            if cells.found
        },
        lowered=codes.lowered,
    )
    return answers, dict(zip(places, rows, strict=True))


def ask(answers: MarginalAnswers, *where: str, **content: Any) -> list[Any]:
    question = read_question({"where": [read_condition(text) for text in where], **content})
    return list(answers.ask(question))


@pytest.mark.parametrize(
    ("changes", "lacking"), [({}, True), ({"columns__region__missing": []}, False)]
)
def test_any_but_a_value_also_of_a_column_that_is_never_missing(
    changes: dict[str, Any], lacking: bool
) -> None:
    """`!=` counts a missing value where there is one, and asks for none elsewhere."""
    answers, rows = opened(changes, CLIQUES)
    assert (rows["region"].max() == 3) == lacking
    for condition, codes in (("region != north", (0,)), ("region not in north, south", (0, 1))):
        (found,) = ask(answers, condition)
        assert abs(found.estimate - (~np.isin(rows["region"], codes)).sum()) <= 1


UNREAD: dict[str, Any] = {
    "columns__region__missing": [],
    "columns__grade__missing": [],
    "columns__age__missing": [],
}
UNDECLARED = "(not as declared)"
BEYOND = "of age, numbers below 0 count as 0, and above 100 as 100"


@pytest.mark.parametrize(("found", "kept"), [(True, True), (True, False), (False, False)])
def test_cells_that_are_not_as_declared_are_asked_for_by_name(*, found: bool, kept: bool) -> None:
    """Where there are more than noise explains, also of known counts; all others are the rest, whatever was found."""
    cells = UndeclaredCells(
        name="region", count=700, deviation=20.0, low=600, high=800, found=found, kept=kept
    )
    answers, rows = opened(UNREAD, CLIQUES, undeclared=[cells])
    last = rows["region"] == 3
    assert last.any()
    groups = [one.group["region"] for one in ask(answers, by=["region"])]
    assert groups == ["north", "south", "west", *([UNDECLARED] if found else [])]
    (others,) = ask(answers, "region != north")
    assert abs(others.estimate - (rows["region"] != 0).sum()) <= 2
    if not found:
        with pytest.raises(InputError, match="noise explains all cells of column 'region'"):
            ask(answers, f"region = {UNDECLARED}")
        return
    for condition, truth in (
        (f"region = {UNDECLARED}", last),
        (f"region in north, {UNDECLARED}", last | (rows["region"] == 0)),
        (f"region != {UNDECLARED}", ~last),
    ):
        (asked,) = ask(answers, condition)
        assert abs(asked.estimate - truth.sum()) <= 2
    with pytest.raises(InputError, match="no value of column 'sex'"):
        ask(answers, f"sex = {UNDECLARED}")


def test_a_count_of_cells_that_are_listed_only_where_found_begins_where_the_verdict_says() -> None:
    """Such a count is known because it is large. Beside other columns its low end is lower by as many records."""
    cells = UndeclaredCells(
        name="region", count=100, deviation=20.0, low=25, high=139, found=True, kept=True
    )
    answers, _ = opened(UNREAD, CLIQUES, sd=20.0, undeclared=[cells])
    unaware = replace(answers, lowered={})
    assert answers.lowered == {answers.codes.domain.names.index("region"): 36}
    for where in ((f"region = {UNDECLARED}",), (f"region = {UNDECLARED}", "sex = f")):
        low, plain = (ask(one, *where)[0].low for one in (answers, unaware))
        assert low == max(plain - 36, 0)
        share, plain_share = (ask(one, *where, share=True)[0].low for one in (answers, unaware))
        assert share == max(plain_share - 36 / answers.records, 0)
    for where in (("region = north",), (f"region in north, {UNDECLARED}",)):
        assert ask(answers, *where)[0].low == ask(unaware, *where)[0].low


def test_a_refusal_names_all_that_may_be_asked() -> None:
    cells = UndeclaredCells(
        name="region", count=100, deviation=20.0, low=25, high=139, found=True, kept=True
    )
    answers, _ = opened({}, CLIQUES, undeclared=[cells])
    with pytest.raises(InputError, match=r"north, south, west, and \(missing\) and \(not as"):
        ask(answers, "region = nowhere")
    hidden, _ = opened({}, CLIQUES, undeclared=[replace(cells, found=False)])
    with pytest.raises(InputError, match=r"north, south, west, and \(missing\)$"):
        ask(hidden, "region = nowhere")


def test_a_share_that_may_be_nothing_says_so() -> None:
    answers, _ = opened({}, CLIQUES, sd=30.0)
    (share,) = ask(answers, "grade = 5", "region = west", share=True)
    assert share.low == 0
    assert share.flag.startswith("there may be none")


@pytest.mark.parametrize("found", [True, False])
def test_what_is_missing_and_what_is_not_as_declared_are_asked_for_by_themselves(
    *, found: bool
) -> None:
    """Where a column has both: each by its name, in groups, and both among all other records."""
    cells = UndeclaredCells(
        name="region", count=300, deviation=20.0, low=260, high=340, found=found, kept=found
    )
    answers, rows = opened({"columns__region__missing": ["n"]}, CLIQUES, undeclared=[cells])
    region = rows["region"]
    assert {3, 4} <= {*region.tolist()}
    groups = [one.group["region"] for one in ask(answers, by=["region"])]
    assert groups == ["north", "south", "west", "(missing)", *([UNDECLARED] if found else [])]
    asked = {"region = n": region == 3, "region != north": region != 0, "region != n": region != 3}
    if found:
        asked |= {f"region = {UNDECLARED}": region == 4, f"region in n, {UNDECLARED}": region >= 3}
    else:
        with pytest.raises(InputError, match="noise explains all cells of column 'region'"):
            ask(answers, f"region in n, {UNDECLARED}")
    for condition, truth in asked.items():
        (answer,) = ask(answers, condition)
        assert abs(answer.estimate - truth.sum()) <= 2, condition


@pytest.mark.parametrize(
    ("condition", "noted"),
    [
        ("region = refused", True),
        ("region != unknown", True),
        ("region = (missing)", False),
        ("region = north", False),
    ],
)
def test_one_text_for_no_value_stands_for_all_such_cells(condition: str, noted: bool) -> None:
    """Which of them a cell had was not counted: the answer to one is that of all, and says so."""
    answers, _ = opened({"columns__region__missing": ["refused", "unknown"]}, CLIQUES)
    (answer,) = ask(answers, condition)
    said = "all cells of region without a value were counted as one, whatever they hold"
    assert (said in answer.flag) is noted


@pytest.mark.parametrize("found", [True, False])
def test_a_test_of_independence_says_that_undeclared_cells_are_one_of_its_values(
    *, found: bool
) -> None:
    """Where they are more than noise; else they are left out. Values: f, m, missing; north, south, west, and these cells."""
    cells = UndeclaredCells(
        name="region", count=700, deviation=20.0, low=600, high=800, found=found, kept=found
    )
    answers, _ = opened(UNREAD, CLIQUES, undeclared=[cells])
    test = answer_independence(answers, ["sex", "region"], "population")
    sentence = "Cells that are not as declared count as one more value of region."
    assert (sentence in test.says, test.degrees_of_freedom) == (found, 6 if found else 4)


def test_an_answer_of_made_up_values_is_not_one_of_the_table() -> None:
    """Of a resized table, and of cells that hold draws; where no asked column has draws, it is one of the table."""
    imputed = {
        f"columns__{name}__impute": {"distribution": "uniform"}
        for name in ("sex", "region", "age", "grade")
    }
    resized, _ = opened({**imputed, "resize": {"records": 2000}}, CLIQUES)
    plain, _ = opened({"columns__sex__impute": {"distribution": "uniform"}}, CLIQUES)
    assert ask(resized, "sex = f")[0].of == "resized table"
    assert ask(plain, "sex = f")[0].of == "records with draws for cells of sex without a value"
    assert ask(plain, "region = north")[0].of == "table"


def test_nothing_is_said_of_a_population_by_draws() -> None:
    """Neither a share nor a test of a column whose empty cells hold draws; of other columns both."""
    answers, _ = opened(
        {"columns__sex__impute": {"distribution": "uniform"}},
        [("sex", "region"), ("region", "age", "grade")],
    )
    for where, content in (
        (["sex = f"], {"share": True}),
        (["region = north"], {"share": True, "by": ["sex"]}),
    ):
        with pytest.raises(InputError, match="cells of sex without a value hold draws"):
            ask(answers, *where, of="population", **content)
    with pytest.raises(InputError, match="cells of sex without a value hold draws"):
        answer_independence(answers, ["sex", "region"], "population")
    assert answer_independence(answers, ["sex", "region"], "table").of.startswith(
        "records with draws"
    )
    assert ask(answers, "region = north", share=True, of="population")[0].level == 0.95


@pytest.mark.parametrize("found", [True, False])
def test_an_answer_about_numbers_says_how_many_have_none(*, found: bool) -> None:
    """In its flag, as counts and shares of declared values do; not where noise explains them, nor of all records."""
    cells = UndeclaredCells(
        name="age", count=400, deviation=20.0, low=380, high=420, found=found, kept=found
    )
    answers, _ = opened(UNREAD, CLIQUES, undeclared=[cells])
    words = "in all that was counted about 20 % (19 to 21) of age were not among the declared values, and are left out"
    for asked in ({"mean": "age"}, {"sum": "age"}, {"quantile": "age:.9"}):
        (answer,) = ask(answers, **asked)
        beyond = "" if "quantile" in asked else BEYOND
        assert answer.flag == "; ".join(filter(None, (words if found else "", beyond)))
    for flag in (
        ask(answers, "age >= 30")[0].flag,
        ask(answers, "age >= 30", share=True)[0].flag,
        ask(answers, "region = north", by=["age"])[1].flag,
    ):
        assert flag == (words if found else "")
    assert not any("not among" in one.flag for one in ask(answers, "sex = f"))


def test_counts_shares_and_groups() -> None:
    answers, rows = opened({}, CLIQUES)
    inside = (rows["age"] >= 2) & (rows["age"] < 5) & np.isin(rows["region"], (0, 2))
    (found,) = ask(answers, "age >= 30", "region in north, west")
    assert found.low <= inside.sum() <= found.high
    assert found.high - found.low <= 30
    by = ask(answers, "age >= 30", by=["region"], share=True)
    assert [one.group["region"] for one in by] == ["north", "south", "west", "(missing)"]
    for code, one in enumerate(by):
        group = rows["region"] == code
        truth = ((rows["age"] >= 2) & (rows["age"] < 5) & group).sum() / max(group.sum(), 1)
        assert one.low is not None
        assert one.low <= truth <= one.high
        assert one.group["region"] != "north" or one.high - one.low < 0.05
    (missing,) = ask(answers, "age =")
    assert missing.low <= (rows["age"] == 5).sum() <= missing.high
    (total,) = ask(answers)
    assert total.low <= 2000 <= total.high


def test_a_listener_hears_how_many_groups_are_answered() -> None:
    answers, _ = opened({}, CLIQUES)
    heard = list[str]()
    token = LISTENER.set(heard.append)
    try:
        ask(answers, by=["region"])
    finally:
        LISTENER.reset(token)
    assert heard == [f"answer {number} of 4" for number in range(1, 5)]


def test_means_and_quantiles_hold_the_truth_wherever_in_its_bin_a_value_lies() -> None:
    answers, rows = opened({}, CLIQUES)
    known = rows["age"] < 5  # whole numbers: [0, 18) holds 0 to 17
    lower, upper = (
        np.array(ends)[rows["age"][known]]
        for ends in ([0, 18, 30, 50, 65.0], [17, 29, 49, 64, 100.0])
    )
    (mean,) = ask(answers, mean="age")
    assert mean.low <= lower.mean()
    assert upper.mean() <= mean.high
    assert mean.estimate == pytest.approx((lower + upper).mean() / 2, rel=0.01)
    for q in (0.1, 0.5, 0.9):
        (found,) = ask(answers, quantile=f"age:{q}")
        assert found.low <= np.quantile(lower, q, method="inverted_cdf") <= found.high
        assert found.low <= np.quantile(upper, q, method="inverted_cdf") <= found.high
        assert found.low <= found.estimate <= found.high
    grades = rows["grade"][rows["grade"] < 7] + 1.0
    (exact,) = ask(answers, mean="grade")
    assert exact.high - exact.low < 0.1
    assert exact.low <= grades.mean() <= exact.high
    (whole,) = ask(answers, mean="grade", of="population")
    error = grades.std() / len(grades) ** 0.5
    assert whole.high - whole.low > 2 * 1.9 * error > exact.high - exact.low


def test_a_coarser_column_is_asked_for_by_the_finer_one() -> None:
    """What is computed was not counted: the refusal names the column that it follows from."""
    coast = {
        "column": "area",
        "by": "region",
        "mapping": {"north": "coast", "west": "coast"},
        "default": "land",
    }
    area = {"type": "category", "values": ["coast", "land"]}
    answers, rows = opened({"columns__area": area, "structure": {"determined": [coast]}}, CLIQUES)
    with pytest.raises(
        InputError,
        match="'area' was not counted, as it is computed from region: ask for that; there",
    ):
        ask(answers, "area = coast")
    (found,) = ask(answers, "region in north, west", "sex = f")
    assert found.low <= (np.isin(rows["region"], (0, 2)) & (rows["sex"] == 0)).sum() <= found.high


def test_values_of_sets() -> None:
    answers, rows = opened(EXTRA, (("sex", "signs=fever"),))
    (fever,) = ask(answers, "signs = fever", "sex = m")
    assert fever.low <= ((rows["signs=fever"] == 0) & (rows["sex"] == 1)).sum() <= fever.high
    groups = [one.group["signs=fever"] for one in ask(answers, by=["signs=fever"])]
    assert groups == ["fever", "(not fever)"]
    with pytest.raises(InputError, match="a condition must name one"):
        ask(answers, "signs in cough, fever")
    with pytest.raises(
        InputError, match=r"'signs' holds several values, .*: name one or some of signs=.*, signs="
    ):
        ask(answers, by=["signs"])


def test_records_without_any_value_of_a_set() -> None:
    """They are asked for by name where a measured set has all of the values, and refused by name elsewhere."""
    apart, _ = opened(EXTRA, (("sex", "signs=fever"),))
    names = [name for name in apart.codes.domain.names if name.startswith("signs=")]
    assert len(names) > 1
    with pytest.raises(
        InputError,
        match=r"records without any value of column 'signs' were not counted: .*; name one of",
    ):
        ask(apart, "signs = (missing)")
    nobody = NeverTogether(
        attributes=tuple(apart.codes.domain.names.index(name) for name in names),
        codes=(1,) * len(names),
        sizes=(2,) * len(names),
    )
    filled = replace(apart, rules=AnswerRules(rules=(nobody,), sizes=apart.codes.sizes))
    (none,) = ask(filled, "signs = (missing)")
    assert (none.estimate, none.low, none.high, none.how) == (0, 0, 0, "rule")
    together, rows = opened(EXTRA, (("sex", *names),))
    without = np.all([rows[name] == 1 for name in names], axis=0)
    (none,) = ask(together, "signs = (missing)")
    assert none.low <= without.sum() <= none.high
    assert none.how == "measured"
    (of_women,) = ask(together, "signs = (missing)", "sex = f", share=True)
    assert of_women.low <= (without & (rows["sex"] == 0)).mean() <= of_women.high


def test_what_no_value_meets_is_a_zero_with_a_reason() -> None:
    """Contradictions are as good as typing errors; a count of 0 that was measured says nothing of the kind, and none is -0."""
    answers, _ = opened({}, CLIQUES)
    for where in (("sex = f", "sex = m"), ("region not in north, south, west", "region != ")):
        (found,) = ask(answers, *where)
        assert (found.estimate, found.low, found.high, found.flag) == (
            0,
            0,
            0,
            "no value meets the conditions",
        )
    for one in ask(answers, "sex = f", by=["sex"], share=True):
        assert one.flag == ("" if one.group["sex"] == "f" else "no value meets the conditions")
        assert not np.signbit(
            [end for end in (one.estimate, one.low, one.high) if end is not None]
        ).any()


def test_nothing_is_said_of_values_beyond_bounds_or_not_released() -> None:
    """Beyond the bounds numbers were counted as the nearest: a count of 0 would be untrue, as it would be of hidden values."""
    answers, _ = opened({}, CLIQUES)
    for where in ("age > 10000", "age < -1"):
        with pytest.raises(
            InputError, match="counted as the nearest bound, so that nothing is known of them"
        ):
            ask(answers, where)
    config = configuration(columns__region=PRIVATE)
    labels = tuple(() if a.private else a.labels for a in config.attributes)
    hidden = Codes.of(config, Domain(names=tuple(a.name for a in config.attributes), labels=labels))
    with pytest.raises(
        InputError,
        match="no value of column 'region' was released, so that nothing is known of any",
    ):
        hidden.conditions(read_question({"where": [read_condition("region = north")]}))


def test_what_is_not_measured_is_refused_by_name() -> None:
    answers, _ = opened({}, CLIQUES)
    (found,) = ask(answers, "sex = f", "grade = 1")
    assert (found.estimate, found.low) == (None, None)
    assert found.flag.startswith(
        "not measured: grade, sex are in no measured set together; nearest: sex, region"
    )
    for wrong, said in (
        ("salary > 3", "no column that was counted; there are"),
        ("Region = north", "did you mean region\\?"),
        (
            "age = 45",
            r'a range is --where "age >= FROM" --where "age < BELOW", or written \{from: FROM',
        ),
        ("age > 20", "inside a bin"),
        ("sex = x", "no value"),
    ):
        with pytest.raises(InputError, match=said):
            ask(answers, wrong)
    with pytest.raises(InputError, match="has no numbers"):
        ask(answers, mean="region")


def test_merged_values_have_wider_counts_and_a_mean_takes_their_range() -> None:
    """All 32 counts of a release at once, whose noise may miss one in twenty; what else asks for a part of them is refused."""
    answers, rows = opened({}, CLIQUES, sd=60.0)
    inside = [
        found.low
        <= ((rows["region"] == place // 8) & (rows["grade"] == place % 8)).sum()
        <= found.high
        for place, found in enumerate(ask(answers, by=["region", "grade"]))
    ]
    assert len(inside) == 32
    assert sum(inside) >= 26
    (share,) = ask(answers, "grade = 6", "region = north", share=True)
    (part,) = ask(answers, "grade = 6", by=["region"], share=True)[:1]
    assert share.low <= ((rows["region"] == 0) & (rows["grade"] == 5)).mean() <= share.high
    assert part.low <= (rows["grade"][rows["region"] == 0] == 5).mean() <= part.high
    (refused,) = ask(answers, "grade = 6", by=["region"], share=True, of="population")[:1]
    assert refused.estimate is None
    assert "ask for all of them at once" in refused.flag
    assert "grade: " in refused.flag
    wide = ask(answers, "region = north", mean="grade")
    truth = rows["grade"][(rows["region"] == 0) & (rows["grade"] < 7)].mean() + 1
    assert wide[0].estimate is None or wide[0].low <= truth <= wide[0].high


def test_counts_that_noise_may_have_made_are_flagged_and_a_population_may_be_refused() -> None:
    """There may be none where the interval begins with 0; of no use is one that single columns leave, where it is not small."""
    answers, _ = opened({}, CLIQUES, sd=40.0, sampled="a subject has several records")
    shown = ask(answers, by=["region", "sex"])
    total = ask(answers)[0].estimate
    assert any(one.flag.startswith("there may be none") for one in shown)
    assert all(
        (one.low == 0) == one.flag.startswith(("there may be none", "do not use")) for one in shown
    )
    assert all(one.high > 0.05 * total for one in shown if one.unusable)
    with pytest.raises(InputError, match="a subject has several records"):
        ask(answers, "sex = f", share=True, of="population")


WARD: dict[str, Any] = {
    "columns__region__missing": [],
    "structure": {
        "forbidden": [{"region": "north", "age": {"from": 50}}, {"region": "north", "sex": "m"}]
    },
}


def test_what_a_rule_forbids_is_0_exactly_and_nothing_else_is() -> None:
    """In the north are women below 50: counts and shares of others are 0 with no noise, and all of its sexes are known."""
    answers, rows = opened(WARD, CLIQUES, sd=20.0)
    for where in (("region = north", "age >= 50"), ("region = north", "sex = m")):
        (none,) = ask(answers, *where)
        assert (none.estimate, none.low, none.high, none.noise_sd, none.how, none.flag) == (
            0,
            0,
            0,
            0,
            "rule",
            "",
        )
    by = {one.group["region"]: one for one in ask(answers, "sex = m", by=["region"], share=True)}
    assert (by["north"].estimate, by["north"].high, by["north"].how) == (0, 0, "rule")
    assert by["south"].how == "measured"
    assert by["south"].low > 0
    (young,) = ask(answers, "age < 50", by=["region"], share=True)[:1]
    assert young.how == "measured"  # the age may be missing
    assert young.flag.endswith("all, but for cells that are missing or not as declared")
    assert "all, but" not in by["south"].flag
    (old,) = ask(answers, "region != north", "age >= 0", by=["age"], share=True)[3:4]
    assert (old.estimate, old.low, old.how) == (1, 1, "rule")
    (mean,) = ask(answers, "region = north", mean="age")
    assert 0 <= mean.low <= mean.high <= 50
    for asked in (
        {"quantile": "age:.5"},
        {"mean": "age"},
        {"share": True, "by": ["region", "age"]},
    ):
        where = ["sex = f"] if "by" in asked else ["region = north", "age >= 50"]
        none = next(
            one
            for one in ask(answers, *where, **asked)
            if one.how == "rule" and one.estimate is None
        )
        assert (none.estimate, none.low, none.high, none.level) == (None,) * 4
        assert none.flag == "a rule allows no such record"
    (total,) = ask(answers, "region = north", "age >= 50", sum="age")
    assert (total.estimate, total.low, total.high, total.how) == (0, 0, 0, "rule")
    for one in ask(answers, by=["region", "age"]):
        place = ["north", "south", "west"].index(one.group["region"])
        assert (one.how == "rule") == (
            place == 0 and one.group["age"] in {"[50, 65)", "[65, 100]"}
        ), one
        assert one.how == "measured" or one.estimate == 0
    assert not ((rows["region"] == 0) & np.isin(rows["age"], (3, 4))).any()


def test_a_mean_of_nobody_is_an_empty_line_and_no_refusal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Python and on the command line."""
    answers, _ = opened(WARD, CLIQUES)
    release = Release(Path("release"))
    monkeypatch.setattr(Release, "_answers", answers)
    frame = release.query(where={"region": ["north"], "age": {"from": 50}}, mean="age")
    assert frame[["estimate", "low", "high", "level"]].isna().all(axis=None)
    assert (frame["how"].tolist(), frame["estimate"].dtype) == (["rule"], np.dtype(float))
    monkeypatch.setattr("marginweave.inference.answers.open_answers", lambda *_: answers)
    query("release", where=["region = north", "age >= 50"], mean="age", as_csv=True)
    assert (
        capsys.readouterr().out.splitlines()[1]
        == 'mean age,,,,,,"records of which those that broke the rules of region, age were changed",rule,'
        "a rule allows no such record"
    )


def test_where_a_rule_leaves_no_number_there_is_no_mean() -> None:
    """Men have no age here: the sum of their ages is 0, and they have no mean."""
    rule = {"applies": [{"columns": ["age"], "where": {"sex": "f"}}]}
    answers, _ = opened({"structure": rule}, CLIQUES)
    (mean,), (total,) = (ask(answers, "sex = m", **{asked: "age"}) for asked in ("mean", "sum"))
    assert (mean.estimate, mean.how) == (None, "rule")
    assert (total.estimate, total.low, total.high) == (0, 0, 0)


def test_values_that_no_rule_allows_beside_others_bring_no_noise() -> None:
    """Of 30 and more in the north only those below 50 are counted: the same number, with less noise."""
    apart = {"aggregate__compress": "none"}
    free, _ = opened({"columns__region__missing": [], **apart}, CLIQUES, sd=20.0)
    ruled, rows = opened({**WARD, **apart}, CLIQUES, sd=20.0)
    (less,), (more,) = (ask(answers, "region = north", "age >= 30") for answers in (ruled, free))
    assert less.noise_sd < 0.8 * more.noise_sd
    assert (
        abs(less.estimate - ((rows["region"] == 0) & (rows["age"] == 2)).sum()) < 5 * less.noise_sd
    )


def test_a_median_beside_merged_values_lies_between_bounds() -> None:
    """Grades were measured together beside a region: the median is one of those that their counts leave."""
    answers, rows = opened({}, CLIQUES, sd=60.0)
    for code, one in enumerate(ask(answers, by=["region"], median="grade")[:3]):
        truth = np.quantile(
            rows["grade"][(rows["region"] == code) & (rows["grade"] < 7)] + 1,
            0.5,
            method="inverted_cdf",
        )
        assert one.low is not None, one.flag
        assert one.low <= truth <= one.high
        assert one.how == "measured"


def test_an_answer_that_may_be_anything_says_so() -> None:
    answers, _ = opened({"aggregate__compress": "none"}, CLIQUES, sd=400.0)
    told = [
        *ask(answers, "sex = f", by=["region"], share=True),
        *ask(answers, by=["region"], mean="age"),
    ]
    empty = [one for one in told if one.high - one.low >= (0.9 if one.question == "share" else 90)]
    assert empty
    assert all(one.unusable for one in empty)


@pytest.mark.parametrize("sd", [20.0, 40.0, 60.0])
def test_a_mean_and_a_sum_beside_merged_values_lie_between_bounds(sd: float) -> None:
    """Rare grades were measured together beside an age: the mean age of one is answered, wherever in their bins ages are."""
    answers, rows = opened({}, CLIQUES, sd=sd)
    edges = np.array(answers.codes.configuration.columns["age"].edges)
    covered, answered = [], 0
    for code in range(7):
        ages = rows["age"][(rows["grade"] == code) & (rows["age"] < len(edges) - 1)]
        for asked, truths in (("mean", np.mean), ("sum", np.sum)):
            (found,) = ask(answers, f"grade = {code + 1}", **{asked: "age"})
            assert found.low is not None, found.flag
            covered.append(
                found.low <= truths(edges[ages]) and truths(edges[ages + 1]) <= found.high
            )
            answered += found.estimate is not None and not found.unusable
    assert sum(covered) >= 12
    assert answered >= 4


def test_a_count_that_may_be_nothing_or_all_is_flagged() -> None:
    """Of rare values measured together, and of ratios of few records, the answer may be anything: it is said, in every row."""
    answers, _ = opened({}, CLIQUES, sd=60.0)
    total = ask(answers)[0].estimate
    for content in (
        {"by": ["grade", "region"]},
        {"by": ["grade"], "share": True},
        {"by": ["grade"], "mean": "age"},
    ):
        for one in ask(answers, "age < 50", **content):
            most = {"count": total, "share": 1.0}.get(one.question.partition(" ")[0], 100.0)
            assert one.high is None or one.high - one.low < 0.9 * most or one.unusable, one


def test_what_a_rule_excludes_is_0_by_rule_and_an_empty_answer_claims_nothing() -> None:
    """A combination that no record can have is no contradiction of the question; and no number has neither source nor level."""
    excluded = [["f", "west"], ["m", "north"], ["m", "south"]]
    forbidden = [{"sex": "f", "region": "west"}, {"sex": "m", "region": ["north", "south"]}]
    answers, rows = opened(
        {"structure": {"forbidden": forbidden}}, [("sex", "region"), ("age", "grade")]
    )
    for one in ask(answers, by=["sex", "region"]):
        place = [one.group["sex"], one.group["region"]]
        if "(missing)" in place:
            continue
        if place in excluded:
            assert (one.how, one.flag, one.estimate, one.low, one.high) == ("rule", "", 0, 0, 0)
            continue
        sex, region = ["f", "m"].index(place[0]), ["north", "south", "west"].index(place[1])
        assert (one.how, one.flag) == ("measured", "")
        assert one.low <= ((rows["sex"] == sex) & (rows["region"] == region)).sum() <= one.high
    (contradicts,) = ask(answers, "sex = m", "region = north")
    assert (contradicts.estimate, contradicts.how) == (0, "rule")
    for one in (
        *ask(answers, by=["sex", "grade"]),
        *ask(answers, "grade = 1", by=["sex"], mean="age"),
    ):
        assert (one.low, one.level, one.how) == (None, None, None)
        assert one.flag.startswith("not measured: ")


OPEN_AGES = {
    "columns__age": {"type": "number", "bins": [0, 18, 30, 50], "outer": "open", "decimals": 0}
}


def test_no_mean_or_sum_of_open_bins_is_known() -> None:
    """What lies beyond the bins may be any number; between them there is a mean, and with bounds beyond them, too."""
    answers, rows = opened(OPEN_AGES | {"aggregate__compress": "none"}, [("sex", "age")])
    for asked in ("mean", "sum"):
        for where in ((), ("sex = f",), ("age >= 0",), ("age < 50",)):
            (refused,) = ask(answers, *where, **{asked: "age"})
            assert (refused.how, refused.level, refused.low, refused.estimate) == (
                None,
                None,
                None,
                None,
            )
            assert "Ask for records with age >= 0 and age < 50, or release it with" in refused.flag
        (between,) = ask(answers, "age >= 0", "age < 50", **{asked: "age"})
        inside = np.isin(rows["age"], (1, 2, 3))
        edges = np.array([-1, 0, 18, 30])
        assert between.low <= getattr(edges[rows["age"][inside]], asked)() <= between.high
    bounded = {"columns__age": OPEN_AGES["columns__age"] | {"bounds": [-10, 900]}}
    (clamped,) = ask(opened(bounded, [("sex", "age")])[0], mean="age")
    assert clamped.high > 50
    upwards = {"columns__age": OPEN_AGES["columns__age"] | {"bounds": [0, 900]}}
    assert ask(opened(upwards, [("sex", "age")])[0], mean="age")[0].how is None


def test_a_quantile_in_an_open_bin_has_one_end() -> None:
    """Seven in ten are in the two lower bins: the first decile lies below all edges, and the median in a bin."""
    answers, rows = opened(OPEN_AGES | {"aggregate__compress": "none"}, [("sex", "age")])
    shares = np.cumsum(np.bincount(rows["age"])) / len(rows["age"])
    assert shares[0] > 0.2
    assert shares[0] < 0.4 < shares[1]
    (below,) = ask(answers, quantile="age:.1")
    assert (below.estimate, below.low, below.high, below.how, below.level) == (
        None,
        None,
        -1,
        "measured",
        0.95,
    )
    assert below.flag == "at most -1: it may lie in an open bin, which has no end"
    (inside,) = ask(answers, quantile="age:.4")
    assert (inside.low, inside.high, inside.flag) == (0, 17, "")
    (above,) = ask(answers, "age >= 50", median="age")
    assert (above.estimate, above.low, above.high) == (None, 50, None)
    assert above.flag.startswith("at least 50")
    noisy, _ = opened(OPEN_AGES | {"aggregate__compress": "none"}, [("sex", "age")], sd=4000.0)
    (anything,) = ask(noisy, median="age")
    assert (anything.low, anything.high) == (None, None)
    assert anything.flag.startswith("do not use")


def test_numbers_of_whole_numbers_are_not_half_a_unit_too_high() -> None:
    """Mean and sum count the numbers that bins hold, with next to no noise."""
    changes = {"columns__age": {"type": "number", "bins": [0, 10, 20, 29], "decimals": 0}}
    answers, rows = opened(changes, CLIQUES)
    numbers = answers.codes.numbers("age")
    assert numbers.low[:3].tolist() == [0, 10, 20]
    assert numbers.high[:3].tolist() == [9, 19, 29]
    assert numbers.middle[:3].tolist() == [4.5, 14.5, 24.5]
    counts = np.bincount(rows["age"])[:3]
    (mean,), (total,) = ask(answers, mean="age"), ask(answers, sum="age")
    assert mean.estimate == pytest.approx(counts @ [4.5, 14.5, 24.5] / counts.sum(), abs=0.01)
    assert total.estimate == pytest.approx(counts @ [4.5, 14.5, 24.5], abs=5)


def test_an_answer_of_some_rows_of_each_person_says_so() -> None:
    """A population is one of persons all the same."""
    config = configuration(privacy__unit={"column": "person", "max_records": 2})
    codes = Codes.of(
        config, Domain(names=tuple(a.name for a in config.attributes), labels=((),) * 4)
    )
    assert str(codes.about("table", [])) == "at most 2 rows for each person"
    assert codes.about("population", []) == About(Counted.POPULATION)


SIGNS: dict[str, Any] = {"type": "set", "values": ["x", "y", "z"]}


@pytest.mark.parametrize("method", ["marginals", "k-tuples"])
def test_an_answer_of_some_values_of_each_cell_says_so(method: str) -> None:
    """Where it looks at the set; where no cell can hold more, it is one of the table."""
    columns = {
        "sex": {"type": "category", "values": ["f", "m"]},
        "signs": {**SIGNS, "max_values": 2},
        "tests": {**SIGNS, "max_values": 3},
    }
    config = configuration(columns=columns, aggregate={"method": method})
    places = {a.column: j for j, a in enumerate(config.attributes)}
    domain = Domain(
        names=tuple(a.name for a in config.attributes),
        labels=tuple(a.labels for a in config.attributes),
    )
    codes = Codes.of(config, domain)
    assert (
        str(codes.about("table", [places["signs"], places["sex"]]))
        == "at most 2 values of signs in each cell"
    )
    assert all(codes.about("table", [places[name]]).is_table for name in ("sex", "tests"))
    assert config.counted_words == "at most 2 values of signs in each cell"


IMPUTED: dict[str, Any] = {
    "columns__age__impute": {"distribution": "gaussian", "mean": 40, "deviation": 5},
    "columns__grade__impute": {"distribution": "uniform"},
}
CUT: dict[str, Any] = {"columns__signs": {**SIGNS, "max_values": 2}}
RULED: dict[str, Any] = {"structure": {"forbidden": [{"sex": "m", "grade": 7}]}}


@pytest.mark.parametrize(
    ("changes", "question", "words"),
    [
        (IMPUTED, {"mean": "age"}, "records with draws for cells of age without a value"),
        (IMPUTED, {"median": "age"}, "records with draws for cells of age without a value"),
        (IMPUTED, {"by": ["grade"]}, "records with draws for cells of grade without a value"),
        (RULED, {"mean": "grade"}, "records of which those that broke the rules of grade were changed"),
        (RULED, {"where": {"grade": ["7"]}, "share": True},
         "records of which those that broke the rules of grade were changed"),
        (CUT, {"where": {"signs": ["x"]}, "share": True}, "at most 2 values of signs in each cell"),
    ],
)  # fmt: skip
def test_rows_that_were_changed_are_not_called_the_table_and_no_sample(
    changes: dict[str, Any], question: dict[str, Any], words: str
) -> None:
    """Whatever was drawn, mended or cut in a column that is asked for, also as the number, or as that of the groups."""
    answers, _ = opened(changes, CLIQUES)
    assert {one.of for one in ask(answers, **question)} == {words}
    assert all(one.about.is_table for one in ask(answers, "sex = m"))
    if "by" not in question:
        assert ask(answers, "sex = m", share=True, of="population")[0].level == 0.95
        with pytest.raises(InputError, match="no answer of the population is possible"):
            ask(answers, **question, of="population")


def test_a_share_says_that_all_meet_it_only_where_gaps_alone_do_not() -> None:
    """Records without a value of a set have others; of a private domain they have values that were not released."""
    answers, _ = opened({"columns__signs": {**SIGNS, "max_values": 3}}, CLIQUES)
    for where in (["signs = x"], ["signs = x", "sex = f"]):
        assert "all, but" not in ask(answers, *where, share=True)[0].flag
    (grades,) = ask(answers, "grade >= 1", share=True)
    assert grades.flag == "all, but for cells that are missing or not as declared"
    place = answers.codes.domain.names.index("region")
    declared = list(answers.codes.configuration.attributes)
    declared[place] = replace(declared[place], private=True)
    config = answers.codes.configuration._with_cached(attributes=tuple(declared))
    hidden = replace(answers, codes=replace(answers.codes, configuration=config))
    chosen = (place, np.array([1.0, 1.0, 1.0, 0.0]))
    question = read_question({"where": {"sex": ["f"]}, "share": True})
    answer = hidden.answer_group(question, [chosen], [], None)
    assert [str(note) for note in answer.notes] == ["all, but for values that were not released"]


def test_a_share_of_a_population_by_released_values_claims_nothing() -> None:
    """The rows have decided which values are released; what is asked of the records of one of them is not decided by that."""
    answers, _ = opened({}, CLIQUES)
    place = answers.codes.domain.names.index("region")
    declared = list(answers.codes.configuration.attributes)
    declared[place] = replace(declared[place], private=True)
    config = answers.codes.configuration._with_cached(attributes=tuple(declared))
    private = replace(answers, codes=replace(answers.codes, configuration=config))
    for one, claims in ((answers, True), (private, False)):
        for where in ("region = north", "region = west"):
            (share,) = ask(one, where, share=True, of="population")
            assert (share.level is not None) is claims
            assert ("which values of region are released" in share.flag) is not claims
        assert ask(one, "region = north", share=True)[0].level == 0.95
        assert ask(one, "sex = f", share=True, by=["region"], of="population")[0].level == 0.95


def test_a_population_of_one_row_a_person_and_cut_sets_are_called_so() -> None:
    unit = {"column": "person", "max_records": 1}
    answers, _ = opened({"privacy__unit": unit, "columns__person": {"type": "identifier"}}, CLIQUES)
    (share,) = ask(answers, "sex = m", share=True, of="population")
    assert share.of == "population of persons, one row of each"
    assert "one row of each" in answer_independence(answers, ("sex", "region"), "population").says
    cut, _ = opened(CUT, CLIQUES)
    names = ("signs=x", "sex")
    with pytest.raises(
        InputError, match=r"at most 2 values of signs.* were counted \(max_values\)"
    ):
        answer_independence(cut, names, "population")
    assert subject_of_test(cut, names) == "table"


def test_a_mean_or_a_sum_that_is_wherever_bins_let_it_be_is_flagged() -> None:
    """Where nearly all records are in the first bin, from 0 on: no noise is in the way, and nothing else is known."""
    age = {"type": "number", "bounds": [0, 1000], "bins": [0, 900, 1000], "decimals": 0}
    answers, _ = opened({"columns__age": age}, CLIQUES)
    (mean,), (total,) = (ask(answers, "age < 900", **{asked: "age"}) for asked in ("mean", "sum"))
    assert (mean.low, total.low) == (0, 0)
    assert "it may be 0, the least that is possible" in mean.flag
    assert "do not use: it may be 0" in total.flag
    (mean,), (total,) = (ask(answers, **{asked: "age"}) for asked in ("mean", "sum"))
    assert min(mean.low, total.low) > 0
    assert mean.flag == total.flag == "of age, numbers below 0 count as 0, and above 1000 as 1000"


@pytest.mark.parametrize("text", ["(not released)", ""])
def test_missing_is_asked_of_a_private_domain_as_it_is_shown(text: str) -> None:
    """What was not released is missing in records, and a table says what it is: no gap that the table has."""
    config = configuration(columns__region={**PRIVATE, "missing": []})
    labels = tuple(("north", "west") if a.name == "region" else a.labels for a in config.attributes)
    codes = Codes.of(config, Domain(names=tuple(a.name for a in config.attributes), labels=labels))
    (chosen,) = codes.conditions(read_question({"where": {"region": [text]}}))
    assert chosen.codes.tolist() == [False, False, True]
    assert codes.texts(chosen.place) == ["north", "west", "(not released)"]


def test_values_that_the_model_has_together_are_named() -> None:
    """The mean age of a sex, which no measured set has, is refused by the ages that the model does not tell apart."""
    answers, _ = opened({}, CLIQUES)
    sizes = (3, 4, 5, 8)  # sex, region, grade as they are; ages from 18 to 50 as one
    model = Mixture.of(np.ones(1), [np.full((1, size), 1 / size) for size in sizes], sizes, 2e3, [])
    ages = np.array([0, 1, 1, 2, 3, 4])
    modelled = ModelAnswers(
        measured=answers.squares.measured,
        model=model,
        codes=[np.arange(3), np.arange(4), ages, np.arange(8)],
        inside=[],
        chosen=False,
        spread=lambda: ModelSpread(
            stack=Stack.of(model, [model]), misfit={"outside": {}, "inside": {}}
        ),
    )
    answers = replace(answers, model=lambda: modelled)
    flags = {one.flag for one in ask(answers, by=["sex"], mean="age", of="population")}
    assert len(flags) == 1
    assert "(age: [18, 30), [30, 50))" in flags.pop()
