"""The benchmark of accuracy: its tables, measures, registry, figures and page; nothing is measured here."""

from __future__ import annotations

import itertools
import math
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy import __main__ as program
from benchmarks.accuracy import forecast, methods
from benchmarks.accuracy.environments import PLACE, pinned
from benchmarks.accuracy.figures import Cell, Figure, append, current, read
from benchmarks.accuracy.measures import ALL, mean_l1, measure
from benchmarks.accuracy.methods import DEFAULT, OURS, PEERS, configuration, refusal, settings
from benchmarks.accuracy.page import render
from benchmarks.accuracy.runs import Runner
from benchmarks.accuracy.summaries import Spread, verdict
from benchmarks.accuracy.tables import Table, fair, table
from benchmarks.scale.page import NOT_YET
from marginweave.configuration.load import parse_configuration
from marginweave.forecast.expected import COLUMNS, EPSILONS, LAWS, NOISE, ROWS, VALUES, by_law
from tests.support.configurations import configuration as small_configuration
from tests.support.places import DATA

SIZES = (2, 3, 5, 4)
SMALL = Table(
    header=("a", "b"),
    rows=[["x", "1"], ["x", ""], ["y", "2"], ["y", "2"]],
    domain={"a": ["x", "y"], "b": ["", "1", "2"]},
)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_the_distance_is_that_of_relative_frequencies(seed: int, length: int) -> None:
    """Against counting by hand, for tables of unequal length and domains of unequal size."""
    rng = np.random.default_rng(seed)
    real, made = (np.stack([rng.integers(0, s, n) for s in SIZES], axis=1) for n in (7, 11))
    total = 0.0
    cliques = list(itertools.combinations(range(len(SIZES)), length))
    for clique in cliques:
        one, other = (Counter(map(tuple, rows[:, clique].tolist())) for rows in (real, made))
        total += sum(abs(one[cell] / 7 - other[cell] / 11) for cell in one | other)
    assert mean_l1(real, made, SIZES, length, ALL) == pytest.approx(total / len(cliques))


def test_a_sample_of_marginals_is_some_of_them() -> None:
    rng = np.random.default_rng(0)
    real, made = (np.stack([rng.integers(0, s, 50) for s in SIZES], axis=1) for _ in range(2))
    each = [
        mean_l1(real[:, c], made[:, c], tuple(SIZES[i] for i in c), 3, 1)
        for c in itertools.combinations(range(4), 3)
    ]
    sampled = mean_l1(real, made, SIZES, 3, 2)
    assert any(sampled == pytest.approx((x + y) / 2) for x, y in itertools.combinations(each, 2))


def test_a_value_that_is_left_out_counts() -> None:
    """ "" is a value where it is declared, and where a peer leaves a value out that cannot be missing."""
    three = Table(
        header=("a", "b", "c"),
        rows=[[*row, "u"] for row in SMALL.rows],
        domain={**SMALL.domain, "c": ["u", "v"]},
    )
    same = measure(three, three.rows)
    assert set(same.values()) == {0.0}
    without = measure(three, [[a, b, ""] for a, b, _ in three.rows])
    assert without["tvd1"] == pytest.approx(1 / 3)
    assert without["l1_2"] == pytest.approx(4 / 3)
    assert without["tvd3"] == without["l1_3"] / 2 == 1.0


def test_the_survey_is_binned_by_its_public_edges() -> None:
    """Every text is in the public domain; the last bin has its upper end."""
    survey = fair()
    assert (len(survey.rows), survey.sizes) == (6366, (5, 6, 7, 6, 4, 6, 6, 6, 6))
    codes = survey.codes(survey.rows)
    assert (codes >= 0).all()
    assert (codes < survey.sizes).all()
    none = survey.domain["affairs"][0]
    assert 0.6 < sum(row[8] == none for row in survey.rows) / 6366 < 0.7


def test_a_number_has_a_bin_for_each_of_its_values() -> None:
    """In the order of the domain; what is drawn in a bin is its whole number alone. Peers get the same texts."""
    counted = Table(
        header=("n", "b"), rows=[], domain={"n": ["0", "1", "2"], "b": ["x", "y"]}, numbers=("n",)
    )
    made = small_configuration(columns=counted.columns(), missing=[], aggregate={})
    number: Any = made.columns["n"]
    assert (made.attributes[0].bins, len(made.attributes[0].labels), number.decimals) == (3, 3, 0)
    assert np.searchsorted(number.edges, range(3)).tolist() == [1, 2, 3]
    assert made.attributes[1].labels == ("x", "y")
    assert counted.codes([["2", "x"], ["0", "y"]]).tolist() == [[2, 0], [0, 1]]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table is the small one; answers that were kept for others are forgotten, before and after."""
    monkeypatch.setattr(methods, "table", lambda _: SMALL)
    monkeypatch.setattr(methods, "is_known", lambda name: name == "t")
    monkeypatch.setattr(methods, "delta", lambda _: 1e-6)
    monkeypatch.setattr(methods, "_parsed", methods._parsed.__wrapped__)
    monkeypatch.setattr(methods, "refusal", methods.refusal.__wrapped__)
    monkeypatch.setattr(methods, "default_method", methods.default_method.__wrapped__)


@pytest.mark.usefixtures("small")
def test_configurations_are_those_of_the_registry() -> None:
    """Sections as declared, the public domain, "" as a missing value, and the repetition as seed."""
    made = parse_configuration(
        configuration(Cell(table="t", epsilon=0.3, method="independent", seed=2), "t.csv")
    )
    assert made.marginals is not None
    assert not made.marginals.has_larger(2)
    assert (made.privacy.epsilon, made.privacy.delta, made.synthesize.seed) == (0.3, 1e-6, 2)
    assert [a.labels for a in made.attributes] == [("x", "y"), ("1", "2")]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("method", OURS)
def test_a_method_is_accepted_or_refused_in_one_line(method: str) -> None:
    assert "\n" not in methods.refusal(method, "t", 1.0)


@pytest.mark.usefixtures("small")
def test_the_default_is_recognized(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the method that resolves to the same settings, however it is written; else one of its own."""
    usual = methods._resolved(DEFAULT, "t", 1.0)
    monkeypatch.setattr(
        methods,
        "OURS",
        {"independent": OURS["independent"], "bad": {"aggregate": {"method": "no"}}},
    )
    assert methods.default_method("t", 1.0) == DEFAULT
    assert settings(Cell(table="t", epsilon=1.0, method=DEFAULT, seed=0)) == usual
    named = {
        n: {key: s[key] for key in ("method", "cliques", "least_records") if key in s}
        for n, s in usual.items()
    }
    monkeypatch.setitem(methods.OURS, "explicit", named)
    assert methods.default_method("t", 1.0) == "explicit"


@pytest.mark.usefixtures("small")
def test_a_length_counts_however_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns have no longer combinations than 2, declared or not."""
    lengths: dict[str, dict[str, int]] = {
        "usual": {},
        "two": {"reporting_length": 2},
        "one": {"reporting_length": 1},
    }
    made = {name: {"aggregate": {"method": "k-tuples", **said}} for name, said in lengths.items()}
    monkeypatch.setattr(methods, "OURS", made)
    usual, two, one = (methods._resolved(name, "t", 1.0) for name in made)
    assert usual == two != one


def test_today_s_methods_are_accepted() -> None:
    """What exists is not skipped for a slip of the registry."""
    for method in ("independent", "marginals-gum", "tuples-3", "tuples-2", "tuples-3-gum", DEFAULT):
        assert refusal(method, "affairs", 1.0) == ""
    assert methods.delta("affairs") == 1 / (6366 * math.log(6366))
    assert len(table("affairs").rows) == 6366


def test_peers_are_pinned_and_have_programs() -> None:
    for peer in PEERS.values():
        assert (PLACE / "programs" / peer.program).is_file()
        assert pinned(peer.package)
    for path in (PLACE / "requirements").iterdir():
        assert all("==" in line for line in path.read_text().splitlines())


def made(
    method: str, tvd: float = 0.1, ended: str = "", tvd3: float | None = None, **cell: Any
) -> Figure:
    place = Cell(**{"table": "affairs", "epsilon": 1.0, "method": method, "seed": 0} | cell)
    errors = (
        {}
        if ended
        else {"tvd1": 0.01, "tvd2": tvd, "tvd3": tvd3 or 2 * tvd, "l1_2": 2 * tvd, "l1_3": 4 * tvd}
    )
    numbers = {
        "wall": 20.0,
        "cpu": 9.0,
        "peak": 400.0,
        "records": 0 if ended else 10,
        "ended": ended,
    }
    under = PEERS[method].options if method in PEERS else OURS[method]
    return Figure(
        cell=place, settings=dict(under), system="of " + method, version="1.2.3", delta=1e-6, rows=6366, columns=9,
        date="2026-11-21", load=0.5, machine={"processor": "two cores"}, numbers=numbers | errors,
    )  # fmt: skip


def test_figures_are_kept_and_the_last_one_counts(tmp_path: Path) -> None:
    """A line cut short is no figure, and what is appended after it is one."""
    path = tmp_path / "figures.jsonl"
    assert read(path) == {}
    for tvd in (0.3, 0.2):
        append(path, made("tuples-3", tvd))
    path.write_bytes(path.read_bytes() + b'{"cell": {"table"')
    assert len(read(path)) == 1
    append(path, made("tuples-2"))
    kept = read(path)
    assert [figure["tvd2"] for figure in kept.values()] == [0.2, 0.1]
    assert kept == {figure.cell: figure for figure in (made("tuples-3", 0.2), made("tuples-2"))}


def test_figures_of_other_settings_do_not_count() -> None:
    figures = {f.cell: f for f in (made("tuples-3"), made("tuples-2"))}
    changed: Callable[[Cell], Any] = lambda _: OURS["tuples-3"]  # noqa: E731
    assert [cell.method for cell in current(figures, changed)] == ["tuples-3"]
    known = Cell(table="affairs", epsilon=1.0, method="tuples-3", seed=0)
    assert settings(known) == OURS["tuples-3"]
    assert settings(replace(known, method="gone")) is None
    assert settings(replace(known, table="gone")) is None


def test_a_benchmark_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What is there is not run again, nor what was stopped at its limit once; what broke down is, and what is asked for."""
    path = tmp_path / "figures.jsonl"
    named = ("tuples-2", "tuples-3", "dpmm-aim", "dpmm-mst")
    cells = [Cell(table="affairs", epsilon=1.0, method=m, seed=s) for s in (0, 1) for m in named]
    endings = {"dpmm-aim": "stopped after 60 s", "dpmm-mst": "exit code 1: no room"}
    run = []
    for number, cell in itertools.islice(program.missing(cells, path, ()), 5):
        run.append(number)
        append(path, made(cell.method, ended=endings.get(cell.method, ""), seed=cell.seed))
    assert run == [1, 2, 3, 4, 5]
    assert [number for number, _ in program.missing(cells, path, ())] == [4, 6, 8]
    assert [number for number, _ in program.missing(cells, path, ("tuples-2",))] == [1, 4, 5, 6, 8]


class NoPeers:
    def peer(self, _: str) -> None:
        return None


def test_cells_are_all_tables_before_the_next_repetition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The default is measured once, as what it is; refused methods and absent peers are named, and left out."""
    options = Namespace(
        tables=("affairs",),
        methods=("independent", "refused", DEFAULT, "dpmm-mst"),
        epsilons=(1.0, 3.0),
        seeds=2,
    )
    usual = {epsilon: methods.default_method("affairs", epsilon) for epsilon in (1.0, 3.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OURS, "refused", {"synthesize": {"method": "guess"}})
        cells = program.possible(options, cast("Runner", NoPeers()))
    assert [(c.seed, c.epsilon, c.method) for c in cells] == [
        (seed, epsilon, method)
        for seed in (0, 1)
        for epsilon in (1.0, 3.0)
        for method in ("independent", usual[epsilon])
    ]
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("refused is left out: synthesize")
    assert said[1:] == [
        "dpmm-mst is left out: pip cannot install dpmm in an environment of its own"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tables", "census"], "(census) must be of affairs"),
        (["--epsilons", "1,-2"], "epsilons (1,-2) must be positive numbers"),
        (["--epsilons", "nan"], "epsilons (nan) must be positive numbers"),
        (["--seeds", "-1"], "seeds (-1) must be a whole number"),
    ],
)
def test_slips_are_refused(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["accuracy", *arguments])
    with pytest.raises(SystemExit, match="2"):
        program._options()
    assert message in capsys.readouterr().err


def test_a_difference_within_the_spread_decides_nothing() -> None:
    assert verdict(Spread(mean=0.10, deviation=0.02), Spread(mean=0.12, deviation=0.01)) == "even"
    assert (
        verdict(Spread(mean=0.09, deviation=None), Spread(mean=0.12, deviation=0.01))
        == "won by 25%"
    )
    assert (
        verdict(Spread(mean=0.15, deviation=0.01), Spread(mean=0.12, deviation=0.01))
        == "**lost** by 25%"
    )


def test_the_page_tells_wins_losses_and_gaps() -> None:
    """Nothing measured is said to be so; a loss is told as a loss, a stopped peer says why."""
    empty = render([], lambda *_: "tuples-3")
    assert empty.count(NOT_YET) + empty.count(NOT_YET.capitalize()) == 10
    figures = [
        *(made("independent", tvd, seed=s) for s, tvd in enumerate((0.20, 0.22, 0.24))),
        *(made("tuples-3", tvd, seed=s) for s, tvd in enumerate((0.30, 0.32, 0.34))),
        made("marginals-gum", 0.05),
        made("dpmm-mst", 0.10),
        made("dpmm-aim", ended="stopped after 60 s"),
        made("independent", 0.2, epsilon=3.0),
        made("tuples-3", 0.1, epsilon=3.0),
        made("independent", 0.2, epsilon=10.0),
        made("tuples-3", 0.1, epsilon=10.0, tvd3=0.41),
        made("marginals-gum", 0.015, table="adult_cat"),
        made("marginals-gum", 0.051, table="ma2019_cat"),
        made("pac-synth-2", 0.001, table="ma2019_cat"),
        made("tuples-3", 0.1, table="adult"),
        made("dpmm-mst", 0.2, table="adult"),
        made("dpmm-aim", ended="stopped after 60 s", table="adult"),
    ]
    page = render(reversed(figures), lambda *_: "tuples-3").splitlines()
    assert (
        "| affairs | 1 | tuples-3 | 0.3200 ± 0.0200 | 0.2200 ± 0.0200 | 0.6400 ± 0.0400 | 0.4400 ± 0.0400 | **no** |"
        in page
    )
    assert "| affairs | 3 | tuples-3 | 0.1000 | 0.2000 | 0.2000 | 0.4000 | yes |" in page
    assert "| affairs | 10 | tuples-3 | 0.1000 | 0.2000 | 0.4100 | 0.4000 | **no** |" in page
    assert "**1 of 3 cells are not worse.**" in page
    assert (
        "| affairs | 1 | 2 | marginals-gum | 0.0500 | dpmm-mst | 0.1000 | won by 50% | **lost** by 220% |"
        in page
    )
    assert "| 1 | dpmm-aim | 1 | stopped after 60 s | | | | | 9 | 400 |" in page
    assert (
        "| adult | 1 | dpmm-mst | 0.00 | 1 | 0.2000 | 0.1000 | 0.4000 | 0.2000 | won by 50%, won by 50% |"
        in page
    )
    stopped = "stopped after 60 s"
    assert (
        f"| adult | 1 | dpmm-aim | 0.00 | 1 | {stopped} | 0.1000 | {stopped} | 0.2000 | {NOT_YET} |"
        in page
    )
    assert "| adult_cat, epsilon 1: TVD 3-way | 0.032 | 0.0300 | marginals-gum | yes |" in page
    assert "| ma2019_cat, epsilon 1: TVD 3-way | 0.060 | 0.1020 | marginals-gum | **no** |" in page


@pytest.fixture
def tables() -> None:
    """What a default stands for depends on the domains of all tables."""
    if not DATA.is_dir():
        pytest.skip("the test tables are not here; MARGINWEAVE_TEST_DATA names their folder")


@pytest.mark.usefixtures("tables")
def test_the_page_is_made_of_the_figures() -> None:
    """docs/accuracy.md has what the figures beside the benchmark say, and nothing by hand.

    After a change of methods, of the default or of the page: python -m benchmarks.accuracy --seeds 0 --write
    """
    kept = current(read(program.FIGURES), settings)
    assert program.PAGE.read_text(encoding="utf-8") == render(
        kept.values(), methods.default_method, *program.SECTIONS
    )


@pytest.mark.usefixtures("tables")
def test_what_plan_expects_is_fitted_to_the_figures() -> None:
    """Laws, ranges and limits are those of all figures: at least twelve tables, which have every kind that `auto` counts."""
    for length in forecast.LENGTHS:
        assert tuple(LAWS[length]) == pytest.approx(forecast.fitted(length), abs=0.002)
    limits = {
        "ROWS": ROWS,
        "COLUMNS": COLUMNS,
        "VALUES": VALUES,
        "EPSILONS": EPSILONS,
        "NOISE": NOISE,
    }
    assert limits == {
        name: pytest.approx(ends, rel=0.01) for name, ends in forecast.limits().items()
    }
    measured = forecast.cells()
    assert len({cell.family for cell in measured}) >= 12
    for cell in measured:
        assert min(*cell.sizes, 2) > 0
        assert (
            forecast.expected(cell, 2).low
            < forecast.expected(cell, 2).error
            < forecast.expected(cell, 2).high
        )


@pytest.mark.usefixtures("tables")
def test_the_page_has_what_tables_had_that_the_law_did_not_see() -> None:
    """Its shares are of cells that no fit of these tables had a part in; ranges are judged so, too, and hold as said."""
    written = (
        forecast.PAGE.read_text(encoding="utf-8")
        .split(forecast.HEADING, maxsplit=1)[1]
        .splitlines()
    )
    for line in (*forecast.share_lines(), *forecast.family_lines()):
        assert line in written
    for length in forecast.LENGTHS:
        found = [judged for judged in forecast.judged() if judged.length == length]
        assert forecast.share([judged.side == 0 for judged in found]) >= 0.75


def test_a_table_that_is_judged_has_no_part_in_the_law() -> None:
    """Where tables follow a law, all but one, that one is as far from the law of the others as it is off."""
    law, rng = LAWS[2], np.random.default_rng(5)
    made = []
    for name, factor in (
        ("a", 1.0),
        ("b+5/100", 1.0),
        ("c_cat", 1.0),
        ("c/500", 1.0),
        ("odd", 3.0),
        ("odd+3", 3.0),
    ):
        for _ in range(6):
            sizes, rows = rng.integers(2, 20, 8).tolist(), int(rng.integers(500, 50_000))
            distance = float(np.exp(rng.uniform(-8, -1)))
            error = factor * by_law(law, distance, sizes, rows).error
            made.append(
                forecast.Measured(
                    name=name,
                    rows=rows,
                    epsilon=1.0,
                    is_told=True,
                    sizes=sizes,
                    distance=distance,
                    errors={2: error},
                )
            )
    assert [cell.family for cell in made[::6]] == ["a", "b", "c", "c", "odd", "odd"]
    logs = forecast.held_out(made, 2)
    assert logs[-12:] == pytest.approx(math.log(3))
    assert np.any(np.abs(logs[:-12]) > 0.01), "and has a part in the laws of the others"
