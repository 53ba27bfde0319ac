"""Sets that the rows have chosen: what is claimed about a population covers it, and what is said of the rows covers them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom, chi2_contingency

from marginweave.answers.codes import Codes
from marginweave.answers.least_squares import LeastSquares
from marginweave.answers.marginals import MarginalAnswers
from marginweave.answers.tables import part_tables
from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.question import read_question
from marginweave.configuration.release import Configuration
from marginweave.domain.labels import Domain
from marginweave.domain.zeros import domain_sizes
from marginweave.estimate.earlier import read_measurements
from marginweave.inference.independence_tests import answer_independence, subject_of_test
from marginweave.observations.tables import Marginals
from marginweave.released.statement import MarginalStatement

FALSE_ALARM, RELEASES, ROWS, SIGMA, LEVEL = 1e-6, 300, 600, 5.0, 0.95
COLUMNS = tuple("abcdefgh")
VALUES = ("x", "y", "z")
CLIQUES: dict[str, Any] = {
    "scores": "selected",
    "rounds": {"adaptive": 2, "rounds": 1, "batch": 1},
    "the user": [["a", "b"]],
}


def _configuration(chooser: str) -> Configuration:
    column = {"type": "category", "values": list(VALUES), "missing": []}
    return parse_configuration(
        {
            "dataset": "people",
            "source": "people.csv",
            "rows": ROWS,
            "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": "row"},
            "columns": dict.fromkeys(COLUMNS, column),
            "aggregate": {
                "method": "marginals",
                "cliques": CLIQUES[chooser],
                "compress": "none",
            },
        }
    )


def _released(
    configuration: Configuration, rows: np.ndarray[Any, Any], rng: np.random.Generator
) -> tuple[Marginals, tuple[str, str]]:
    """The measurements of a release as its reader has them, and its pair: the most dependent one where the rows choose."""
    sets: list[tuple[int, ...]] = [(place,) for place in range(len(COLUMNS))]
    pairs = list(itertools.combinations(range(len(COLUMNS)), 2))
    if isinstance(configuration.marginal_settings.cliques, tuple):
        pair = (0, 1)
    else:
        pair = max(pairs, key=lambda two: chi2_contingency(_counts(rows, two)).statistic)
    numbers: list[int] = []
    counts: list[int] = []
    facts: list[MarginalStatement] = []
    for number, places in enumerate([*sets, pair], start=1):
        exact = _counts(rows, places).ravel()
        noisy = exact + np.rint(rng.normal(0, SIGMA, exact.size)).astype(int)
        numbers += [number] * exact.size
        counts += noisy.tolist()
        facts.append(
            MarginalStatement(
                draw="larger" if len(places) > 1 else "one-way",
                attributes=tuple(COLUMNS[place] for place in places),
                cells=exact.size,
                deviation=SIGMA,
                noise="rounded-gaussian",
            )
        )
    domain = Domain(names=COLUMNS, labels=(VALUES,) * len(COLUMNS))
    table = pa.table({"marginal": numbers, "count": counts})
    return read_measurements(table, facts, domain, configuration), (
        COLUMNS[pair[0]],
        COLUMNS[pair[1]],
    )


def _counts(rows: np.ndarray[Any, Any], places: tuple[int, ...]) -> np.ndarray[Any, Any]:
    counts = np.zeros([len(VALUES)] * len(places), np.int64)
    np.add.at(counts, tuple(rows[place] for place in places), 1)
    return counts


def _answers(configuration: Configuration, marginals: Marginals) -> MarginalAnswers:
    labels = marginals.domain.labels
    return MarginalAnswers(
        squares=LeastSquares(part_tables(marginals, configuration)),
        codes=Codes(
            configuration=configuration,
            domain=marginals.domain,
            sizes=domain_sizes(configuration.attributes, labels),
        ),
        measured_together=[],
    )


def _ask(answers: MarginalAnswers, **content: Any) -> Any:
    (answer,) = answers.ask(read_question({"level": LEVEL, **content}))
    return answer


@pytest.mark.parametrize("chooser", [*CLIQUES])
def test_what_is_claimed_of_a_population_covers_it(chooser: str) -> None:
    """Of independent columns: shares of 1/3, and tests at 5 %; and counts of the rows, whoever chose. False alarms 1e-6."""
    configuration, rng = _configuration(chooser), np.random.default_rng(12)
    missed = {"pair": [], "single": [], "rows": []}  # type: dict[str, list[bool]]
    rejected: list[bool] = []
    as_if_named: list[bool] = []
    for _ in range(RELEASES):
        rows = rng.integers(0, len(VALUES), (len(COLUMNS), ROWS))
        marginals, (first, second) = _released(configuration, rows, rng)
        answers = _answers(configuration, marginals)
        where = {first: "x", second: "x"}
        share = _ask(answers, where=where, share=True, of="population")
        if share.level is not None:
            missed["pair"].append(not share.low <= 1 / 9 <= share.high)
        single = _ask(answers, where={first: "x"}, share=True, of="population")
        assert single.level == LEVEL
        missed["single"].append(not single.low <= 1 / 3 <= single.high)
        count = _ask(answers, where=where)
        assert count.level == LEVEL
        places = COLUMNS.index(first), COLUMNS.index(second)
        missed["rows"].append(not count.low <= _counts(rows, places)[0, 0] <= count.high)
        if subject_of_test(answers, (first, second)) == "population":
            rejected.append(answer_independence(answers, (first, second), "population").p < 0.05)
        else:
            assert "nothing says how often" in share.flag
            with pytest.raises(InputError, match=r'ask of="table", or name them in aggregate'):
                answer_independence(answers, (first, second), "population")
            assert answer_independence(answers, (first, second), "table").of == "table"
            named = replace(
                marginals, larger=tuple(replace(m, chosen=False) for m in marginals.larger)
            )
            test = answer_independence(
                _answers(configuration, named), (first, second), "population"
            )
            as_if_named.append(test.p < 0.05)
    for misses in (*missed.values(), rejected):
        assert sum(misses) <= binom.isf(FALSE_ALARM, max(len(misses), 1), 1 - LEVEL)
    if chooser == "the user":
        assert len(missed["pair"]) == len(rejected) == RELEASES
    else:  # what a test would say that took the pair for a given one
        assert not missed["pair"]
        assert sum(as_if_named) > binom.isf(FALSE_ALARM, RELEASES, 0.05)


def test_a_pair_that_was_named_once_is_not_chosen() -> None:
    """A table that an earlier release was told to measure has the pair as well; single columns are never chosen."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, len(VALUES), (len(COLUMNS), ROWS))
    by_scores = _configuration("scores")
    marginals, pair = _released(by_scores, rows, rng)
    (chosen,) = marginals.larger
    assert [m.chosen for m in (*marginals.one_way, chosen)] == [False] * len(COLUMNS) + [True]
    earlier = replace(chosen, chosen=False)
    for tables, is_chosen in (((), True), ((earlier,), False)):
        measured = part_tables(marginals, by_scores, tables)
        assert measured.is_chosen(chosen.attributes) == is_chosen
        assert not measured.is_chosen(chosen.attributes[:1])
    assert len(pair) == 2
