"""Releases from marginals: every way to choose them, every kind of draw killed and resumed, every command afterwards."""

from __future__ import annotations

import itertools
import json
import math
import shlex
import signal
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marginweave.accounting.records import State
from marginweave.base.budget import Cost
from marginweave.configuration.load import load_configuration
from marginweave.measurements.split import plan_budget
from marginweave.publish.reader import PublishedRelease
from tests.support.command_line import CommandLine
from tests.support.configurations import PRIVATE
from tests.support.forked_runs import ForkedRuns
from tests.support.people_table import people
from tests.support.release_checks import RELEASED, opened
from tests.support.samples import every
from tests.support.shapes import NewVictim, configured_victims

pytestmark = pytest.mark.system
IMPUTED = {"distribution": "uniform"}
ROUNDS = {"adaptive": 2, "rounds": 2, "batch": 1}
MARGINALS = {"aggregate__method": "marginals"}


@pytest.fixture
def new_victim(tmp_path: Path) -> NewVictim:
    return configured_victims(tmp_path, **MARGINALS)


VARIANTS: dict[str, tuple[dict[str, object], list[str], int]] = {
    # settings, planned draws, marginals beyond the four of single attributes (-1: chosen by noise)
    "selected": ({}, ["one-way", "selection", "marginals"], -1),
    "adaptive": (
        {"aggregate__cliques": {"adaptive": 3, "rounds": 3, "batch": 2}},
        [
            "one-way",
            *itertools.chain.from_iterable(
                (f"select-{n}-1", f"select-{n}-2", f"measure-{n}") for n in (1, 2, 3)
            ),
        ],
        -1,
    ),
    "paper": (
        {"aggregate__preset": "paper", "synthesize__method": "gum", "synthesize__preset": "paper"},
        ["one-way", "selection", "marginals"],
        -1,
    ),
    "all pairs, equally": (
        {"aggregate__cliques": {"all": 2}, "aggregate__allocation": "equal"},
        ["one-way", "marginals"],
        6,
    ),
    "all triples with a limit, nothing merged": (
        {"aggregate__cliques": {"all": 3, "max_cells": 150}, "aggregate__compress": "none"},
        ["one-way", "marginals"],
        3,
    ),
    "single attributes": ({"aggregate__cliques": {"all": 1}}, ["one-way"], 0),
    "a list": (
        {
            "aggregate__cliques": [["region", "sex"], ["age", "sex", "grade"]],
            "privacy__neighbors": "add-remove",
        },
        ["one-way", "marginals"],
        2,
    ),
    "all four together, which tell of no triple": (
        {"aggregate__cliques": {"all": 4}, "aggregate__compress": "none"},
        ["one-way", "marginals"],
        1,
    ),
    "records of every pair": (
        {"aggregate__cliques": [["region", "sex"]], "synthesize__method": "aggregate-seeded"},
        ["one-way", "marginals"],
        1,
    ),
    "records as SDS prints it, incomplete where no value is left": (
        {
            "aggregate__cliques": {"all": 2},
            **{f"columns__{name}__impute": IMPUTED for name in ("sex", "age")},
            "synthesize": {
                "method": "aggregate-seeded",
                "records": "exhaust",
                "sample_missing": False,
                "relax": False,
            },
        },
        ["one-way", "marginals"],
        6,
    ),
    "a set": (
        {
            "columns__region": {
                "type": "set",
                "values": ["north", "south", "west"],
                "max_values": 2,
            },
            "structure": {"forbidden": [{"sex": "f", "region": "west"}]},
        },
        ["one-way", "selection", "marginals"],
        -1,
    ),
    "a private domain": (
        {"columns__region": PRIVATE},
        ["values", "one-way", "selection", "marginals"],
        -1,
    ),
    "a private domain that is never missing": (
        {"columns__region": {**PRIVATE, "impute": {"weights": {"north": 1, "east": 1}}}},
        ["values", "one-way", "selection", "marginals"],
        -1,
    ),
    "what auto has of a set beside a private domain": (
        {
            "aggregate": {"method": "auto"},
            "columns__region": {
                "type": "set",
                "values": ["north", "south", "west"],
                "max_values": 2,
            },
            "columns__sex": PRIVATE,
        },
        ["values", "one-way", "selection", "marginals"],
        -1,
    ),
    "structural zeros": (
        {
            "structure": {
                "forbidden": [{"age": "[0, 18)", "grade": [6, 7]}],
            },
            "aggregate__cliques": {"all": 2},
        },
        ["one-way", "marginals"],
        6,
    ),
    "private bounds": (
        {
            "columns__age": {
                "type": "number",
                "bounds": "private",
                "within": [0, 200],
                "bins": 4,
                "decimals": 0,
            }
        },
        ["bounds-3-low", "bounds-3-high", "one-way", "selection", "marginals"],
        -1,
    ),
    "resized": (
        {
            **{f"columns__{name}__impute": IMPUTED for name in ("sex", "region", "age", "grade")},
            "resize": {"records": 250},
        },
        ["one-way", "selection", "marginals"],
        -1,
    ),
}


# What is put together of others, or told by the accountant alone.
COMBINED = {
    "all triples with a limit, nothing merged",
    "single attributes",
    "all four together, which tell of no triple",
    "a private domain that is never missing",
    "what auto has of a set beside a private domain",
}


@pytest.mark.parametrize(
    ("changes", "draws", "larger"),
    [
        pytest.param(*variant, id=name, marks=pytest.mark.long if name in COMBINED else ())
        for name, variant in VARIANTS.items()
    ],
)
def test_every_kind_of_marginals_is_released(
    forks: ForkedRuns,
    new_victim: NewVictim,
    changes: dict[str, object],
    draws: list[str],
    larger: int,
) -> None:
    """All stages; the draws are the planned ones; what is published follows from them, and can be read back."""
    victim = new_victim(**changes)
    answer = forks.ask(victim.order())
    assert answer.code == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert [draw.name for draw in record.draws] == draws
    if not draws[0].startswith("bounds"):  # the harness computes no bounds anew
        assert forks.ask(victim.order(recompute=True)).code == 0
    release = victim.folder.release
    published = PublishedRelease.read(release)
    without = set() if published.configuration.synthesize.method == "mixture" else {"model.parquet"}
    assert {file.name for file in release.iterdir()} == {
        *RELEASED,
        "measurements.parquet",
    } - without
    marginals = published.marginals
    assert marginals is not None
    assert len(marginals.one_way) == len(published.configuration.attributes)
    assert larger in (-1, len(marginals.larger))
    table = pq.read_table(release / "measurements.parquet")
    assert table.num_rows == sum(m.counts.size for m in (*marginals.one_way, *marginals.larger))
    records = pq.read_table(release / "synthetic.parquet")
    if "exhaust" not in str(changes):
        assert records.num_rows == published.aggregates.record_count
    assert pa.concat_tables(published.synthesize(published.configuration.synthesize)).equals(
        records
    )
    if "resize" in changes:
        assert records.num_rows == 250
    if "columns__region" in changes and "structure" in changes:
        cells = records.to_pandas()[["sex", "region"]].fillna("")
        assert not ((cells["sex"] == "f") & cells["region"].str.contains("west")).any()
        assert cells["region"].str.count(";").max() <= 1
    elif "structure" in changes:
        frame = records.to_pandas()
        assert not ((frame["age"] < 18) & frame["grade"].astype(str).isin(["6", "7"])).any()
    if "impute" in str(changes.get("columns__region")):
        assert records.column("region").null_count == 0


@pytest.mark.parametrize(
    ("number", "transition", "side"),
    every(5, itertools.product([1, 2, 3, 4], ["begin_draw", "commit_draw"], ["before", "after"])),
)
def test_a_run_killed_at_any_draw_goes_on(
    forks: ForkedRuns, new_victim: NewVictim, transition: str, side: str, number: int
) -> None:
    """Values, single attributes, scores, marginals: nothing is lost, uncharged or drawn twice.

    At this budget a pair is always worth its noise: the sampling error of 2,000 rows alone is ten times what it costs.
    """
    victim = new_victim(2000, columns__region=PRIVATE, privacy__epsilon=20.0)
    assert forks.ask(victim.order(point=[transition, side, number])).code == -signal.SIGKILL
    victim.check()
    answer = forks.ask(victim.order())
    assert answer.code == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    planned = ["values", "one-way", "selection", "marginals"]
    assert [draw.name for draw in record.draws if draw.state == State.COMMITTED] == planned
    assert forks.ask(victim.order(recompute=True)).code == 0


@pytest.mark.parametrize(
    ("transition", "side", "number"),
    every(
        3,
        [
            ("begin_draw", "after", 2),
            ("commit_draw", "before", 2),
            ("begin_draw", "after", 3),
            ("commit_draw", "before", 3),
            ("begin_draw", "before", 5),
        ],
    ),
)
def test_a_run_killed_in_a_round_goes_on(
    forks: ForkedRuns, new_victim: NewVictim, transition: str, side: str, number: int
) -> None:
    """A choice, a share, the choice of a later round: what a round has drawn stands, and the rest of it follows."""
    victim = new_victim(aggregate__cliques=ROUNDS)
    assert forks.ask(victim.order(point=[transition, side, number])).code == -signal.SIGKILL
    victim.check()
    answer = forks.ask(victim.order())
    assert answer.code == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    assert {draw.state for draw in record.draws} <= {State.COMMITTED, State.RETURNED}
    assert forks.ask(victim.order(recompute=True)).code == 0


def test_rounds_are_planned_and_told(forks: ForkedRuns, new_victim: NewVictim) -> None:
    """What the ledger holds is the plan, share by share; what was not chosen goes back; privacy.json and report say so."""
    victim = new_victim(aggregate__cliques={"adaptive": 3, "rounds": 5, "batch": 2})
    assert forks.ask(victim.order()).code == 0
    victim.check_finished()
    record = victim.record()
    assert record is not None
    plan = plan_budget(load_configuration(victim.config))
    assert [(d.name, d.cost, d.parameter) for d in record.draws] == [
        (d.name, d.cost, d.parameter) for d in plan.draws
    ]
    states = {draw.name: draw.state for draw in record.draws}
    assert {states[f"measure-{share}"] for share in range(1, 6)} == {State.COMMITTED}
    returned = [name for name, state in states.items() if state == State.RETURNED]
    assert all(name.startswith("select-") for name in returned)
    spent = sum((d.cost for d in plan.draws if d.name not in returned), Cost())
    assert record.charged == spent
    statement = json.loads((victim.folder.release / "privacy.json").read_text())
    rows = {row["draw"]: row for row in statement["mechanisms"]}
    assert [name for name, row in rows.items() if row["state"] == "returned"] == returned
    sigma = rows["measure-1"]["sigma"]
    assert sigma == pytest.approx(math.sqrt(2) * plan.by_name["measure-1"].parameter, abs=1 / 1024)
    assert "follows from earlier draws" in statement["composition"]
    larger = [m for m in statement["marginals"] if m["draw"] == "rounds"]
    assert larger
    measured = sum(m["deviation"] ** -2 for m in larger)
    # rounding of a mean of shares counts as noise
    assert 0.95 * 10 * sigma**-2 < measured <= 10 * sigma**-2 * (1 + 1e-3)


def test_where_no_pair_is_worth_its_noise_the_draw_goes_back(
    forks: ForkedRuns, new_victim: NewVictim
) -> None:
    """An empty table, whose scores are noise of 10.4 / mu, where 12 cells, the fewest, cost 67 / mu: false alarm 1e-9."""
    shares = {
        "aggregate__one_way_share": 0.1,
        "aggregate__selection_share": 0.88,
        "aggregate__compress": "none",
    }
    victim = new_victim(rows=0, **shares)
    for _ in range(2):
        answer = forks.ask(victim.order())
        assert answer.code == 0, answer
    victim.check_finished()
    record = victim.record()
    assert record is not None
    states = {draw.name: draw.state for draw in record.draws}
    assert states == {
        "one-way": State.COMMITTED,
        "selection": State.COMMITTED,
        "marginals": State.RETURNED,
    }
    statement = json.loads((victim.folder.release / "privacy.json").read_text())
    assert [row["state"] for row in statement["mechanisms"]] == ["drawn", "drawn", "returned"]
    verdict = json.loads((victim.folder.release / "evaluation.json").read_text())["verdict"]
    pairs = [one for one in verdict["sets"] if len(one["attributes"]) == 2]
    assert {one["unmeasured"] for one in pairs} == {"not chosen"}
    assert all(one["error"] is not None for one in pairs)
    assert verdict["says"][0].startswith(
        "No pair of columns was measured, as none was worth its noise"
    )


def test_the_commands_know_marginals(marginweave: CommandLine) -> None:
    """plan, ledger open, run, ledger show, evaluate, synthesize, through the program; privacy.json and report say it all.

    Noise is published below zero, too: of more than 30 empty cells none is with probability 1e-9.
    """
    cli = opened(marginweave, epsilon=3.0)
    config = people(cli.home, 600, aggregate__method="marginals", aggregate__cliques={"all": 2})
    plan = cli("plan", config)
    assert plan.returncode == 0, plan.stderr
    assert all(word in plan.stdout for word in ("one-way", "marginals", "a cell"))
    result = cli("run", config, "--run", "m")
    assert result.returncode == 0, result.stderr
    release = cli.home / "runs" / "m" / "release"
    statement = json.loads((release / "privacy.json").read_text())
    assert [row["draw"] for row in statement["mechanisms"]] == ["one-way", "marginals"]
    assert len(statement["marginals"]) == 4 + 6
    drawn = {row["draw"]: row["noise_multiplier"] for row in statement["mechanisms"]}
    for name, multiplier in drawn.items():
        spent = sum(m["deviation"] ** -2 for m in statement["marginals"] if m["draw"] == name)
        assert spent == pytest.approx(multiplier**-2, rel=1e-3)
        assert spent <= multiplier**-2
    assert "below zero included" in (release / "report.html").read_text()
    assert cli("report", "m", "--to", cli.home / "pages").returncode == 0
    for page in ("report.html", "explore.html"):
        assert (cli.home / "pages" / page).read_bytes() == (release / page).read_bytes()
    shown = cli("ledger", "show", "people", "--all")
    assert "marginals" in shown.stdout, shown.stdout
    again = cli("synthesize", "m", "--records", "50", "--seed", "3", "--to", cli.home / "more")
    assert again.returncode == 0, again.stderr
    assert pq.read_table(cli.home / "more" / "synthetic.parquet").num_rows == 50
    assert cli("evaluate", "m").returncode == 0
    internal = cli("evaluate", "m", "--internal")
    assert internal.returncode == 0, internal.stderr
    counts = pq.read_table(release / "measurements.parquet").column("count").to_numpy()
    assert (counts < 0).any()


def test_laplace_noise_is_charged_to_the_allowance(marginweave: CommandLine) -> None:
    """Without an account refused with a command, which then works; after that ledger, privacy.json and report say it all."""
    cli = marginweave
    settings: dict[str, object] = {"aggregate__method": "marginals", "aggregate__noise": "laplace"}
    # so many that pairs are worth their noise: where none is chosen, their part of the allowance goes back
    config = people(cli.home, 20_000, dataset="people-2", **settings)
    first = cli("ledger", "open", "others", "--epsilon", "1", "--delta", "1e-6")
    assert first.returncode == 0, first.stderr
    refused = cli("run", config, "--run", "refused")
    assert (refused.returncode, "no account people-2" in refused.stderr) == (3, True), (
        refused.stderr
    )
    command = shlex.split(" ".join(refused.stderr.split()).rpartition(": ")[2])
    assert command[:5] == ["marginweave", "ledger", "open", "people-2", "--for"]
    assert cli(*command[1:]).returncode == 0
    plan = cli("plan", config)
    assert plan.returncode == 0, plan.stderr
    assert all(
        words in plan.stdout
        for words in ("Laplace, sd", "charged to the account's allowance", "it fits")
    ), plan.stdout
    result = cli("run", config, "--run", "l")
    assert result.returncode == 0, result.stderr
    release = cli.home / "runs" / "l" / "release"
    statement = json.loads((release / "privacy.json").read_text())
    rows = {row["draw"]: row for row in statement["mechanisms"]}
    assert {name: row["mechanism"] for name, row in rows.items()} == {
        "one-way": "discrete-laplace",
        "selection": "rounded-gaussian",
        "marginals": "discrete-laplace",
    }
    spent = sum(Decimal(row["plain_epsilon"]) for row in rows.values())
    charged = json.loads((release / "account.json").read_text())["total"]["charged"]
    assert (statement["guarantee"]["mu"], float(charged["plain_epsilon"])) == (None, float(spent))
    assert float(rows["selection"]["mu2"]) > 0 == float(rows["one-way"]["mu2"])
    assert (
        0
        < statement["guarantee"]["epsilon"] - statement["guarantee"]["epsilon_of_the_draws"]
        < 1e-6
    )
    for name in ("one-way", "marginals"):
        deviations = [m["deviation"] for m in statement["marginals"] if m["draw"] == name]
        joint = sum(math.sqrt(2) / sd for sd in deviations)
        assert joint == pytest.approx(rows[name]["epsilon"], rel=0.02)
    table = pq.read_table(release / "measurements.parquet")
    assert set(table.column("noise").to_pylist()) == {"discrete-laplace"}
    published = PublishedRelease.read(release)
    assert pa.concat_tables(published.synthesize(published.configuration.synthesize)).equals(
        pq.read_table(release / "synthetic.parquet")
    )
    assert "discrete-laplace" in (release / "report.html").read_text()
    shown = cli("ledger", "show", "people-2", "--all")
    assert f"allowance of epsilon {float(spent):.4g} of " in " ".join(shown.stdout.split()), (
        shown.stdout
    )
    assert "discrete-laplace" in shown.stdout
    verified = cli("ledger", "verify")
    assert verified.returncode == 0, verified.stderr
    again = cli("run", config, "--run", "more")
    assert (again.returncode, "does not hold this release" in " ".join(again.stderr.split())) == (
        3,
        True,
    ), again.stderr


TUPLE_VARIANTS: dict[str, dict[str, object]] = {
    "plain": {},
    "a private domain": {"columns__region": PRIVATE},
    "a private domain that is never missing": VARIANTS["a private domain that is never missing"][0],
    "structural zeros": {"structure": VARIANTS["structural zeros"][0]["structure"]},
    "a determined column": {
        "columns__half": {"type": "category", "values": ["upper", "lower"]},
        "structure": {
            "determined": [
                {
                    "column": "half",
                    "by": "region",
                    "mapping": {"north": "upper"},
                    "default": "lower",
                }
            ]
        },
    },
    "private bounds": VARIANTS["private bounds"][0],
    "resized": VARIANTS["resized"][0],
}


@pytest.mark.parametrize("changes", every(2, TUPLE_VARIANTS.values()), ids=TUPLE_VARIANTS.keys())
def test_gum_takes_k_tuples(
    forks: ForkedRuns, new_victim: NewVictim, changes: dict[str, object]
) -> None:
    """Every kind of column; the records follow from what is published, and a second synthesis makes the same."""
    victim = new_victim(600, aggregate__method="k-tuples", synthesize__method="gum", **changes)
    answer = forks.ask(victim.order())
    assert answer.code == 0, answer
    victim.check_finished()
    release = victim.folder.release
    assert {file.name for file in release.iterdir()} == RELEASED - {"model.parquet"}
    published = PublishedRelease.read(release)
    records = pq.read_table(release / "synthetic.parquet")
    assert records.num_rows == published.aggregates.record_count
    assert pa.concat_tables(published.synthesize(published.configuration.synthesize)).equals(
        records
    )
    frame = records.to_pandas()
    if "forbidden" in str(changes):
        assert not ((frame["age"] < 18) & frame["grade"].astype(str).isin(["6", "7"])).any()
    if "determined" in str(changes):
        present = frame["region"].notna()
        assert ((frame["half"] == "upper") == (frame["region"] == "north"))[present].all()
    if "impute" in str(changes.get("columns__region")):
        assert records.column("region").null_count == 0


def test_the_commands_know_gum_from_k_tuples(marginweave: CommandLine) -> None:
    """plan, run, evaluate and synthesize, through the program; the second synthesis costs nothing."""
    cli = opened(marginweave)
    config = people(cli.home, 600, synthesize__method="gum")
    assert cli("plan", config).returncode == 0
    result = cli("run", config, "--run", "t")
    assert result.returncode == 0, result.stderr
    before = cli("ledger", "show", "people", "--all").stdout
    again = cli("synthesize", "t", "--records", "50", "--seed", "3", "--to", cli.home / "more")
    assert again.returncode == 0, again.stderr
    assert pq.read_table(cli.home / "more" / "synthetic.parquet").num_rows == 50
    assert (
        json.loads((cli.home / "more" / "privacy.json").read_text())["synthesis"]["method"] == "gum"
    )
    assert cli("evaluate", "t").returncode == 0
    assert cli("evaluate", "t", "--internal").returncode == 0
    assert cli("ledger", "show", "people", "--all").stdout == before
