"""The report says what has to be said, leaves out what has no numbers, and is the same page for the same release."""

from __future__ import annotations

import copy
import itertools
import re
from dataclasses import replace
from functools import cache
from html import unescape
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from marginweave.configuration.question import read_question
from marginweave.domain.labels import Domain
from marginweave.estimate.intervals import release_intervals
from marginweave.evaluate.verdict import verdict
from marginweave.measurements.split import plan_budget
from marginweave.observations.combinations import LevelNoise
from marginweave.publish import pages
from marginweave.publish.best import (
    MOST_ORDERED,
    MOST_VALUES,
    Distribution,
    ValueCounts,
    distributions,
)
from marginweave.publish.conclusions import conclusions
from marginweave.publish.figures import (
    association_figure,
    distribution_figure,
    strongest_pairs,
    worst_marginals_figure,
)
from marginweave.publish.pages import release_pages, render_explorer, render_report
from marginweave.publish.reader import PublishedRelease, record_codes
from marginweave.released.evaluation import BrokenRule, Evaluation, LengthMetrics, MarginalDistance
from marginweave.released.verdict import (
    Publication,
    SetVerdict,
    UnlistedPairs,
    Unmeasured,
    VerdictSummary,
    grade,
)
from tests.support.configurations import configuration
from tests.support.published import (
    COLUMNS,
    EVALUATION,
    FULL,
    HOSTILE,
    MORE,
    Codes,
    internal_evaluation,
    measured_release,
    published,
    shown,
    stated,
    table_of,
)

NEVER = re.compile(r"anonym|no risk|risk-free|accurate", re.IGNORECASE)


class Outline(HTMLParser):
    """Ids, references to ids, and the elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: set[str] = set()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.figures: list[dict[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        named = dict(attrs)
        if tag == "svg":
            self.figures.append(named)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "xlink:href", "src"}:
                self.addresses.append(value or "")
            self.references.update(re.findall(r"url\(#(.*?)\)", value or ""))
            if name == "aria-labelledby":
                self.references.update((value or "").split())


def page_of(release: PublishedRelease, codes: Codes, evaluation: Evaluation = EVALUATION) -> str:
    """The report with the cells of its tables as plain as can be: `<td>1</td>`."""
    page = render_report(release, shown(release, codes), evaluation)
    return re.sub(r"<(t[dh]) [^>]*>", r"<\1>", page)


def report(**changes: Any) -> str:
    return page_of(*published(**changes))


@cache
def usual(*, full: bool = False) -> str:
    """The report that several tests read, made once: the same release gives the same page."""
    return page_of(*published(), FULL if full else EVALUATION)


@pytest.mark.parametrize(
    ("publication", "words"),
    [("with care", "Verdict: with care"), ("not for publication", "Verdict: not for publication")],
)
def test_both_pages_say_what_the_verdict_is(publication: Publication, words: str) -> None:
    """A reader who has the explorer alone is told it, too."""
    release, codes = published()
    judged = VerdictSummary(publication=publication, says=(), advice=())
    told = replace(release, statement=release.statement.model_copy(update={"verdict": judged}))
    for page in release_pages(told, shown(told, codes), FULL).values():
        assert words in page.decode()
    assert words not in render_explorer(release, shown(release, codes))


def test_both_pages_say_how_many_rows_of_a_person_count() -> None:
    """In the title, beside totals, and where an example speaks of a true count: it is that of the counted rows."""
    unit = {"epsilon": 1.0, "delta": 1e-6, "unit": {"column": "patient", "max_records": 4}}
    bounded, codes = published(privacy=unit, columns__age__missing=["999"])
    rows, values = "at most 4 rows for each patient", "at most 2 values of signs in each cell"
    page, counted = (
        page_of(bounded, codes),
        f"{rows} and {values} and only some combinations of records that hold many",
    )
    assert f"(counts {counted})</span></h1>" in page
    assert re.search(
        rf"records were counted \([^)]*\), {rows} and {values}: the table may have more\. Of records that hold",
        page,
    )
    assert f"the true count of {rows} is between" in page
    explorer = render_explorer(bounded, shown(bounded, codes))
    assert f"(counts {counted})</span></h1>" in explorer
    assert (
        'Records<span id="counted-a"></span>: <span' in explorer
    )  # by the columns of the selection
    whole = usual(full=True)
    assert "at most 4 rows" not in whole
    assert "and the true count is between" in whole


def test_pages_follow_from_the_release_alone() -> None:
    """The same bytes a second time, and from records that were written and read."""
    release, codes = published()
    first = release_pages(release, shown(release, codes), FULL)
    assert first == release_pages(release, shown(release, codes), FULL)
    assert set(first) == {"report.html", "explore.html"}
    assert first["report.html"].decode() == render_report(release, shown(release, codes), FULL)
    other = published(codes=[code[::-1][:200] for code in codes])
    assert render_explorer(other[0], shown(*other)) != render_explorer(
        release, shown(release, codes)
    )


def test_records_have_the_codes_that_they_were_made_from() -> None:
    release, codes = published()
    found = record_codes(table_of(release, codes), release.aggregates.domain, release.configuration)
    for one, other in zip(found, codes, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_set_has_the_slots_that_are_declared_whatever_a_block_holds() -> None:
    """Of blocks with no, one and two values a cell: they can be joined."""
    columns = {
        "signs": {"type": "set", "values": ["a", "b", "c"], "max_values": 2},
        "sex": {"type": "category", "values": ["f"]},
    }
    config = configuration(columns=columns)
    domain = Domain(names=("signs", "sex"), labels=(("a", "b", "c"), ("f",)))
    for texts in ((), ("",), ("b",), ("b", "a;c")):
        block = pa.table(
            {
                "signs": pa.array(texts, pa.string()),
                "sex": pa.array(["f"] * len(texts), pa.string()),
            }
        )
        signs, _ = record_codes(block, domain, config)
        assert signs.tolist() == [{"": [3, 3], "b": [1, 3], "a;c": [0, 2]}[text] for text in texts]
        assert signs.shape == (len(texts), 2)


def test_values_of_a_private_domain_are_numbered_as_released() -> None:
    """The records hold two of three released values: their codes are those of the release, not their order among themselves."""
    columns = {
        "town": {"type": "category", "domain": "private"},
        "sex": {"type": "category", "values": ["f", "m"]},
    }
    public = {**columns, "town": {"type": "category", "values": ["A", "B", "C"]}}
    release, _ = published(columns=public)
    private, _ = published(columns=columns, codes=[np.zeros(3, np.uint8), np.zeros(3, np.uint8)])
    codes = [np.array([2, 1, 3, 2], np.uint8), np.array([0, 1, 2, 0], np.uint8)]
    found = record_codes(table_of(release, codes), release.aggregates.domain, private.configuration)
    for one, other in zip(found, codes, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_always_said() -> None:
    """Whose privacy, against what, how much; never a word that promises more."""
    release, codes = published()
    for page in (usual(full=True), render_explorer(release, shown(release, codes))):
        text = re.sub(r"\s+", " ", unescape(page))
        assert "A count below two standard deviations of its noise cannot be told from zero" in text
        assert "some listed combinations may not exist in the data" in text
        assert not NEVER.search(
            re.sub(r"<script.*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
        )
    text = re.sub(r"\s+", " ", unescape(re.sub("</?span[^>]*>", "", usual())))
    assert "One row of the table: the release hides whether it is in the table." in text
    assert (
        "At epsilon 1, delta 1e-06, an observer's best guess whether a person is in the data is right at most 55 % of the time"
        in text
    )
    assert "This release costs epsilon 1 at delta 1e-06, for one row" in text
    assert "share one account, people, and its cap is the bound" in text
    # no release knows what others will cost
    assert "all releases about these people together" not in text
    replaced = unescape(report(privacy__neighbors="replace-one"))
    assert "which of two given records a person has in the data" in replaced
    assert "whether a person is in the data" not in replaced


def test_nothing_of_a_page_leads_elsewhere() -> None:
    """No script in the report, no address but the other page and places on this one; every id once, every reference met."""
    release, codes = published()
    page = Outline(render_report(release, shown(release, codes), FULL, internal_evaluation()))
    assert not {"script", "img", "link", "iframe", "object", "style-src"} & set(page.tags)
    assert len(page.ids) == len(set(page.ids))
    assert page.references <= set(page.ids)
    assert {address.lstrip("#") for address in page.addresses} - set(page.ids) == {
        "../release/explore.html"
    }
    outside = {address for address in Outline(usual()).addresses if not address.startswith("#")}
    assert outside == {"explore.html"}  # a file beside it
    assert {figure["role"] for figure in page.figures} == {"img"}
    assert len(page.figures) == 4 + 2 * 4
    explorer = Outline(render_explorer(release, shown(release, codes)))
    assert set(explorer.addresses) == {"report.html"}
    assert explorer.tags.count("script") == 2


def test_a_label_is_never_markup() -> None:
    release, codes = published()
    for page in (usual(), render_explorer(release, shown(release, codes))):
        assert "<script>alert" not in page
    assert HOSTILE in unescape(usual())


def test_pages_show_what_columns_are_called() -> None:
    """Label and description, and never as markup; nothing where none is declared."""
    columns = copy.deepcopy(COLUMNS)
    columns["sex"] |= {"label": HOSTILE, "description": "As told"}
    columns["region"] |= {"values": ["north", "west"], "description": "Of residence"}
    release, codes = published(columns=columns, label=HOSTILE, description="A survey")
    page, explorer = (
        render_report(release, shown(release, codes), EVALUATION),
        render_explorer(release, shown(release, codes)),
    )
    assert "<script>alert" not in page + explorer
    text = re.sub(r"\s+", " ", unescape(re.sub("</?[bp]>", "", page)))
    assert f"{HOSTILE} As told" in text
    assert "Of residence" in text
    assert "<p>A survey</p>" in page
    assert f"<h1>{HOSTILE} <span" in unescape(explorer)
    alone, records = published(
        columns={**COLUMNS, "age": {**COLUMNS["age"], "label": "Age in years"}}
    )
    assert [*alone.configuration.titled_names.values()] == [
        "sex",
        "region",
        "signs",
        "age (Age in years)",
    ]
    judged, measure = (
        verdict({("sex",): 0.02, ("sex", "age"): 0.11}, {2: [4.0]}, 600),
        MORE["association"].cramers_v,
    )
    pairs = MORE["association"].model_copy(
        update={"cramers_v": measure.model_copy(update={"names": ("sex", "age")})}
    )
    page = page_of(
        alone, records, EVALUATION.model_copy(update={"verdict": judged, "association": pairs})
    )
    assert "<b>Age in years</b>" in page
    assert "<td>sex x age (Age in years)</td>" in page
    assert "<li>sex and age (Age in years) 0.25</li>" in page
    assert page.count(">age (Age in years)</text>") == 4


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("model", "<td>0.125</td><td>0.062</td><td>0.031</td>"),
        ("by_count", "Error by the size"),
        ("marginals", "kept worst"),
        ("association", "Of 1 pair the noisy counts do not tell"),
        ("rules", "structural zeros"),
    ],
)
def test_a_section_without_numbers_is_left_out(key: str, said: str) -> None:
    release, codes = published()
    assert said in page_of(release, codes, EVALUATION.model_copy(update={key: MORE[key]}))
    assert said not in usual()


def test_what_is_concluded_follows_from_the_numbers() -> None:
    """What is said to be apart is, what is said to overlap does, and what may be nobody may be."""
    release, codes = published()
    columns = distributions(release, shown(release, codes), 1.0)
    ranges = {
        (value.reported, value.low, value.high)
        for column in columns for value in column.values if value.reported is not None
    }  # fmt: skip
    judged = verdict({("sex",): 0.01}, {1: [5.0]}, 600)
    found = conclusions(release, columns, judged)
    said = {}
    for sentence in map(str, (*found.may, *found.may_not)):
        said[sentence.split(":")[0]] = numbers(sentence)
    count, low, high = said["Give a count with its range"][0]
    assert (count, low, high) in ranges
    (_, low, _), (_, _, high) = said["Compare what is further apart than noise reaches"]
    assert low > high
    (_, low, _), (_, _, high) = said["Rank what overlaps"]
    assert low <= high
    assert {
        *said["Compare what is further apart than noise reaches"],
        *said["Rank what overlaps"],
    } <= ranges
    assert said["Take a small number for a fact"][0][1] == 0
    assert any("below 20 records by 1 column," in str(sentence) for sentence in found.may_not)
    may_not = conclusions(release, columns, EVALUATION.verdict).may_not
    assert not any("Quote small groups" in str(sentence) for sentence in may_not)


@pytest.mark.parametrize(("error", "allowed"), [(0.01, True), (0.4, False)])
def test_the_conclusions_agree_with_the_verdict(error: float, allowed: bool) -> None:
    """Where a release is not for publication nothing may be quoted; its verdict is the first thing that forbids it."""
    release, codes = published()
    judged = verdict({("sex",): error}, {1: [5.0]}, 600)
    assert (judged.publication == "not for publication") is not allowed
    found = conclusions(release, distributions(release, shown(release, codes), 1.0), judged)
    assert any(re.search(r"\d|[Qq]uote", str(sentence)) for sentence in found.may) is allowed
    assert ("not for publication" in str(found.may_not[0])) is not allowed


def test_a_count_that_rules_may_change_is_of_the_rows_as_they_changed_them() -> None:
    for forbidden, said in (([], False), ([{"sex": "f", "region": "west"}], True)):
        rules: dict[str, Any] = {"structure__forbidden": forbidden} if forbidden else {}
        release, codes = published(**rules)
        columns = [
            column
            for column in distributions(release, shown(release, codes), 1.0)
            if column.name == "region"
        ]
        found = conclusions(release, columns, verdict({("sex",): 0.01}, {1: [5.0]}, 600))
        assert ("those that broke the rules of region were changed" in str(found.may[0])) is said


def test_the_report_says_of_which_rows_known_counts_are_and_that_a_cap_may_be_raised() -> None:
    table = {"columns": ["sex"], "table": [["f", 500], ["m", 500]], "others": 0, "public": "a page"}
    missing: dict[str, Any] = {"missing": []}
    for origin, said in (
        ("these-rows", "from counts that were made from these rows outside this release (sex"),
        ("other-source", "from tables of other sources (sex"),
    ):
        page = report(known=[{**table, "from": origin}], **missing)
        assert said in page
    assert "as long as it is not raised" in page
    assert "by at most 5 of 100 records of the table as it was prepared" in page


def test_what_a_verdict_counts_is_named() -> None:
    """It leads to the pairs of each grade, every one by name."""
    release, codes = published()
    errors = {
        ("sex", "region"): 0.02,
        ("sex", "age"): 0.31,
        ("region", "age"): None,
        ("sex", "region", "age"): 0.4,
    }
    judged = verdict(errors, {2: [4.0]}, 600)
    release = replace(
        release, statement=release.statement.model_copy(update={"verdict": judged.summary})
    )
    page = page_of(release, codes, EVALUATION.model_copy(update={"verdict": judged}))
    summary = page[page.index('aria-labelledby="verdict"') : page.index("</section>")]
    assert '<a href="#pairs">' in summary
    assert "of triples only the number is given" in summary
    pairs = page[page.index('<h2 id="pairs">') : page.index('<h2 id="quality">')]
    assert all(" x ".join(one.attributes) in pairs for one in judged.sets)


def test_numbers_have_marks_between_thousands() -> None:
    """Each that a reader sees, and each that a reader hears; not those of names, and of values as they are declared."""
    release, codes = published(privacy__delta=1e-6)
    large, noisy = 40_000, release.aggregates
    levels = tuple(replace(level, counts=level.counts * large) for level in noisy.levels)
    noise = tuple(
        replace(one, candidates=123_456, threshold=2_345, deviation=4_567.0) for one in noisy.noise
    )
    aggregates = replace(noisy, record_count=noisy.record_count * large, levels=levels, noise=noise)
    intervals, plan = (
        release_intervals(aggregates, aggregates, release.configuration),
        plan_budget(release.configuration),
    )
    statement = stated(release.configuration, plan, aggregates)
    great = replace(release, aggregates=aggregates, intervals=intervals, statement=statement)
    lengths = tuple(
        one.model_copy(update={"combinations": 54_321, "mean_error": 7654.3})
        for one in FULL.lengths
    )
    changes: dict[str, Any] = {"lengths": lengths}
    for key, of in {"at_most": "by_count", "records": "rules"}.items():
        changes[of] = tuple(one.model_copy(update={key: 98_765}) for one in MORE[of])
    page = render_report(
        great, shown(great, codes), FULL.model_copy(update=changes), internal_evaluation(76_543)
    )
    text = unescape(re.sub(r"<style.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL))
    for known in (great.statement.release, great.statement.run):
        text = text.replace(known, "")
    assert re.findall(r".{20}(?<![\d.,])\d{4,}.{20}", text) == []
    for number in ("24,000,000", "54,321", "7,654.3", "98,765", "76,543", "4,567.0", "2,345"):
        assert number in text


def numbers(sentence: str) -> list[tuple[int, int, int]]:
    """Every count of a sentence with its range."""
    stated = r"\((\d+), range (\d+) to (\d+)\)|about (\d+) of .* between (\d+) and (\d+) in"
    return [
        (int(a), int(b), int(c))
        for a, b, c in ([x for x in one if x] for one in re.findall(stated, sentence))
    ]


def test_why_a_pair_was_not_measured_is_said_where_its_grade_is() -> None:
    """One star where others were chosen, two where nothing measured it; of those without a number, how many are too large."""
    release, codes = published()
    each: list[tuple[tuple[str, str], float | None, Unmeasured | None]] = [
        (("sex", "region"), 0.01, None),
        (("sex", "age"), 0.02, "not chosen"),
        (("region", "age"), 0.3, "too many cells"),
        (("region", "signs"), None, "too many cells"),
        (("age", "signs"), None, "not asked for"),
    ]
    sets = tuple(
        SetVerdict(attributes=names, error=error, grade=grade(error), unmeasured=why)
        for names, error, why in each
    )
    lengths = verdict({one.attributes: one.error for one in sets}, {}, 300.0).lengths
    given = EVALUATION.verdict.model_copy(update={"sets": sets, "lengths": lengths})
    judged = EVALUATION.model_copy(update={"verdict": given})
    page = render_report(release, shown(release, codes), judged)
    assert "sex x age *<" in page
    assert "region x age **<" in page
    assert "A star (*) marks a pair that was not measured, as it was not chosen" in page
    assert "Two stars (**) mark one of which there is no count" in page
    assert "Too many cells to be measured: 1 of them." in page
    page = render_report(release, shown(release, codes), EVALUATION)
    assert "stars" not in page


def test_pairs_that_are_not_listed_count_in_their_grade() -> None:
    release, codes = published()
    unlisted = (
        UnlistedPairs(
            pairs=7000, grade="good", unmeasured="not chosen", least_error=0.01, largest_error=0.04
        ),
        UnlistedPairs(
            pairs=5000,
            grade="with care",
            unmeasured="too many cells",
            least_error=None,
            largest_error=None,
        ),
    )
    lengths = verdict({("sex", "age"): 0.01}, {}, 300.0).lengths
    changes = {"sets": (), "unlisted": unlisted, "lengths": lengths}
    given = EVALUATION.verdict.model_copy(update=changes)
    judged = EVALUATION.model_copy(update={"verdict": given})
    page = render_report(release, shown(release, codes), judged)
    assert "Good: 7,000 of 12,000" in page
    assert "7,000 pairs that were not measured are too many to be listed: 1.0 to 4.0 of 100" in page
    assert "Not measured: 5,000 of 12,000" in page
    assert "Too many cells to be measured: 5,000 of them." in page


def test_of_many_columns_those_that_are_farthest_off_are_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report of 1,000 columns would be opened by nobody; the explorer has each of them."""
    assert (
        "expected to be farthest from" not in usual()
    )  # kept for other tests: made before the change below
    monkeypatch.setattr(pages, "MOST_FIGURES", 2)
    release, codes = published()
    errors = {"sex": 0.1, "region": 0.02, "age": 0.2}
    sets = [SetVerdict(attributes=(name,), error=errors[name], grade="good") for name in errors]
    given = EVALUATION.verdict.model_copy(update={"sets": tuple(sets)})
    page = page_of(release, codes, EVALUATION.model_copy(update={"verdict": given}))
    assert re.findall(r"<h3>(\w+) <span", page) == ["sex", "age"]
    assert "Of 4 columns these 2 are expected to be farthest from the table" in page


def test_who_published_it_is_said_or_said_to_be_unknown() -> None:
    """Publisher, contact and license as text, the day of the run, and how to cite it."""
    said = {
        "publisher": f"Office {HOSTILE}",
        "contact": "data@office.example",
        "license": "CC BY 4.0",
    }
    release, codes = published(publish=said, label="A census")
    page = re.sub(r"\s+", " ", unescape(page_of(release, codes)))
    assert f"<dd>Office {HOSTILE}; contact: data@office.example</dd>" in page
    assert "<dt>Made on</dt><dd>2026-03-01</dd> <dt>License</dt><dd>CC BY 4.0</dd>" in page
    assert (
        f"<dd>Office {HOSTILE} (2026). A census. Differentially private release people-1 (epsilon 1,"
        in page
    )
    assert "<dt>Published by</dt><dd>not stated</dd> <dt>Made on</dt>" in re.sub(
        r"\s+", " ", usual()
    )


def test_nothing_looks_like_nothing() -> None:
    """An association below .1 has no ink, one above has, a column beside itself has none of its colour."""
    figure = str(
        association_figure(
            ["a", "b", "c"], [[1, 0.04, 0.6], [0.04, 1, None], [0.6, None, 1]], "t", "f"
        )
    )
    cells = figure[figure.index('class="frame"') : figure.index("<text")]
    inked = {float(x) for x in re.findall(r'class="cells" fill-opacity="([\d.]+)"', cells)}
    assert inked == {0.0, 0.65}
    assert cells.count('class="same"') == 1
    assert "url(#f-none)" in cells
    pairs = strongest_pairs(["a", "b", "c"], [[1, 0.04, 0.6], [0.04, 1, None], [0.6, None, 1]])
    assert [*map(str, pairs)] == [
        "a and c 0.60",
        "a and b 0.04",
    ]
    assert figure.count(">1.00<") == 0


def test_pairs_stand_below_their_grade() -> None:
    release, codes = published()
    errors = {("sex", "region"): 0.02, ("sex", "age"): 0.31, ("region", "age"): None}
    judged = EVALUATION.model_copy(update={"verdict": verdict(errors, {2: [4.0]}, 600)})
    text = re.sub(r"<[^>]*>|\s+", " ", page_of(release, codes, judged))
    part = re.sub(
        r" +",
        " ",
        text[
            text.index("How far the two columns") : text.index(
                "How well the synthetic records keep the"
            )
        ],
    )
    assert "Good: 1 of 3 Pair of 100 records sex x region 2.0" in part
    assert "Not measured: 1 of 3 region x age The records" in part
    assert "With care" not in part
    assert "Do not use: 1 of 3 Pair of 100 records sex x age 31.0" in part


def test_the_error_by_count_is_drawn_where_it_is_known() -> None:
    """A bin without combinations is left out, and the figure where there is no other."""
    release, codes = published()
    assert "up to 10: 62 %</desc>" in usual(full=True)
    page = render_report(
        release,
        shown(release, codes),
        EVALUATION.model_copy(update={"by_count": FULL.by_count[1:]}),
    )
    assert "Error by the size of the count" not in page


def test_the_bound_of_a_bad_marginal_stands_beside_it() -> None:
    """That of the same attributes, in records; without bounds the table has no column for them."""
    release, codes = published()
    page = usual(full=True)
    assert "<td>0.250</td><td>0.125</td><td>34</td><td>78</td></tr>" in page
    assert "with confidence 95 % each: sum of |count - synthetic count|." in unescape(page)
    assert "at most, without noise" not in render_report(
        release,
        shown(release, codes),
        EVALUATION.model_copy(update={"marginals": MORE["marginals"]}),
    )


def test_rules_that_every_record_keeps_are_one_sentence() -> None:
    release, codes = published()
    kept = BrokenRule(rule="never missing", subject="sex", records=0, share=0.0)
    page = page_of(
        release, codes, EVALUATION.model_copy(update={"rules": (*FULL.rules, kept, kept)})
    )
    assert "2 of 3 rules of the configuration are kept by every synthetic record." in page
    assert "<td>17</td>" in page
    assert "never missing" not in page


def test_names_and_values_are_whole_and_have_room() -> None:
    """Each word of a label is in the figure, and its count beside it; a line of 8 points takes 9.2."""
    long = ("the first of the names", "another name, which is longer than a line", "a third")
    rows = [MarginalDistance(attributes=long, tvd=0.5, noise=None)] * 10
    one = ValueCounts(
        label="Codes of the International Classification",
        synthetic=7,
        reported=1234,
        low=1,
        high=1300,
    )
    columns = Distribution(name="c", kind="category", values=(one, one), left_out=0, missing=0)
    matrix = [[1.0, 0.5], [0.5, 1.0]]
    for figure, label, number in (
        (worst_marginals_figure(rows, "f"), ", ".join(long), "0.500"),
        (distribution_figure(columns, "f"), one.label, "1,234"),
        (association_figure([one.label, "b"], matrix, "t", "f"), one.label, "0.50"),
    ):
        texts = re.findall(
            r"<text (?!.*rotate)([^>]*)>(.*?)</text>", str(figure).replace("><", ">\n<")
        )
        assert label in " ".join(text for _, text in texts)
        assert number in [text for _, text in texts]
        lines = sorted(
            float(y)
            for said, text in texts
            if text in label
            for y in re.findall(r' y="(\S+)"', said)
        )
        assert len(lines) > 1
        assert min(after - before for before, after in itertools.pairwise(lines)) > 9.2


def test_intervals_and_bounding_are_explained() -> None:
    """As privacy.json says it; lengths of which the same is said stand together."""
    text = unescape(usual())
    assert "The interval from low to high covers the true count" in text
    assert (
        "Counts of length 1, 2, 3: not known: values of a cell beyond max_values were left out"
        in text
    )


def test_suppressed_is_told_where_the_candidates_are_public() -> None:
    """Candidates less what was released; where a private domain is counted, nothing."""
    release, codes = published()
    assert "<td>7</td>" in usual()
    first, *others = release.statement.noise
    noise = (first.model_copy(update={"candidates": None}), *others)
    hidden = replace(release, statement=release.statement.model_copy(update={"noise": noise}))
    page = page_of(hidden, codes)
    assert page.count("not published") == 1


def test_the_twin_is_marked_and_the_report_is_not() -> None:
    """In title, head and foot; the sensitive numbers stand in the twin alone."""
    release, codes = published()
    twin = render_report(release, shown(release, codes), EVALUATION, internal_evaluation(298))
    assert re.search(r"<title>NOT FOR RELEASE", twin)
    assert twin.count("NOT FOR RELEASE") == 3
    assert "298 sensitive ones" in twin
    assert "NOT FOR RELEASE" not in usual()


def test_distributions_are_the_released_counts_beside_scaled_records() -> None:
    """Each value, in declared order; a value without a released count has none; missing ones are counted apart."""
    release, codes = published()
    level = release.aggregates.levels[0]
    # the first value of the first attribute was not released
    without = replace(
        level, columns=level.columns[1:], values=level.values[1:], counts=level.counts[1:]
    )
    aggregates = replace(release.aggregates, levels=(without, *release.aggregates.levels[1:]))
    intervals = release_intervals(aggregates, aggregates, release.configuration)
    found = distributions(
        replace(release, aggregates=aggregates, intervals=intervals), shown(release, codes), 2.0
    )
    assert [d.kind for d in found] == ["category", "category", "set", "number"]
    for j, d in enumerate(found):
        slots = codes[j].reshape(300, -1)
        assert [v.label for v in d.values] == list(release.aggregates.domain.labels[j])
        assert [v.synthetic for v in d.values] == [
            2 * int((slots == v).sum()) for v in range(len(d.values))
        ]
        assert d.missing == int((slots == len(d.values)).all(axis=1).sum())
    assert found[0].values[0].reported is None
    assert found[0].values[1].reported == int(level.counts[1])


def test_of_many_values_the_most_frequent_are_drawn() -> None:
    columns = {"code": {"type": "category", "values": list(range(MOST_VALUES + 5))}}
    counts = np.repeat(np.arange(MOST_VALUES + 5), np.arange(1, MOST_VALUES + 6))
    release, codes = published([counts.astype(np.uint8)], columns=columns)
    (found,) = distributions(release, shown(release, codes), 1.0)
    assert found.left_out == 5
    assert [v.label for v in found.values] == [str(v) for v in range(MOST_VALUES + 4, 4, -1)]


@pytest.mark.parametrize(
    ("bins", "first", "left_out"), [(MOST_VALUES + 5, 0, 0), (MOST_ORDERED + 5, 5, 5)]
)
def test_no_bin_is_left_out_between_others(bins: int, first: int, left_out: int) -> None:
    """However few records it has; where there are too many, those side by side that have most records are drawn."""
    columns = {
        "age": {"type": "number", "bounds": [0, bins], "bins": list(range(bins + 1)), "decimals": 0}
    }
    values = np.repeat(np.array([0, bins - 1], np.uint8), [10, 200])
    release, codes = published([values], columns=columns)
    (found,) = distributions(release, shown(release, codes), 1.0)
    assert [v.label for v in found.values] == list(release.aggregates.domain.labels[0][first:])
    assert found.left_out == left_out


def test_a_release_without_any_record_or_combination_has_its_pages() -> None:
    """The smallest table: no figure fails for want of numbers."""
    empty = [
        np.zeros(0, np.uint8),
        np.zeros(0, np.uint8),
        np.zeros((0, 2), np.uint8),
        np.zeros(0, np.uint8),
    ]
    release, codes = published(empty)
    noise = tuple(
        LevelNoise(
            length=n.length,
            contribution_bound=1,
            deviation=4.0,
            threshold=1,
            private_threshold=0,
            candidates=None,
        )
        for n in release.aggregates.noise
    )
    bare = replace(release, aggregates=replace(release.aggregates, noise=noise))
    nothing_found = dict.fromkeys(LengthMetrics.model_fields) | {"combinations": 0}
    lengths = tuple(
        LengthMetrics.model_validate(nothing_found | {"length": row.length})
        for row in EVALUATION.lengths
    )
    page = render_report(
        bare, shown(bare, codes), EVALUATION.model_copy(update={"lengths": lengths})
    )
    assert "No combination was released" in page
    assert render_explorer(bare, shown(bare, codes))
    # no value of a private domain was found
    nothing = replace(bare.aggregates.domain, labels=tuple(() for _ in empty))
    unknown = replace(bare, aggregates=replace(bare.aggregates, domain=nothing))
    page = render_report(
        unknown, shown(unknown, codes), EVALUATION.model_copy(update={"lengths": lengths})
    )
    assert page.count("No value of this column is frequent enough to be released.") == len(empty)
    assert "No value of this column is frequent enough" not in usual(full=True)


def test_of_marginals_every_number_is_that_of_query() -> None:
    """Each value, the number of records, and what they are said to mean: one estimate, one interval, on every page."""
    release, codes, answers = measured_release()
    (whole,) = answers.ask(read_question({}))
    page = re.sub(r"\s+", " ", unescape(page_of(release, codes)))
    assert (
        f"About {whole.estimate:,} records were counted (range {whole.low:,} to {whole.high:,})"
        in page
    )
    assert f"of about {whole.estimate:,} counted records" in page
    found = distributions(release, shown(release, codes), 1.0)
    for attribute, section in zip(release.configuration.attributes, found, strict=True):
        asked = answers.ask(read_question({"by": [attribute.name]}))
        numbers = [(answer.estimate, answer.low, answer.high) for answer in asked][
            : len(attribute.labels)
        ]
        assert [(value.reported, value.low, value.high) for value in section.values] == numbers
        for value, (estimate, low, high) in zip(section.values, numbers, strict=True):
            line = f"<td>{value.label}</td><td>{estimate}</td><td>{low} to {high}</td>"
            assert line in page or not value.label.isalnum(), line
