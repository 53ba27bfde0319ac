"""Settings of marginals and of GUM: defaults, presets, and every combination that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.marginals import AdaptiveCliques, AllCliques, MarginalSettings
from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import GumSynthesis, MixtureSynthesis, SynthesisSettings
from tests.support.configurations import configuration

MARGINALS = {"aggregate__method": "marginals"}
SEEDED = {**MARGINALS, "synthesize__method": "aggregate-seeded"}
GUM = {**MARGINALS, "synthesize__method": "gum"}
SET = {"type": "set", "values": ["a", "b"], "max_values": 2}


def test_records_are_made_by_the_method_that_goes_with_the_counts() -> None:
    assert isinstance(
        configuration(synthesize__method="aggregate-seeded").synthesize, SynthesisSettings
    )
    assert isinstance(configuration(**GUM).synthesize, GumSynthesis)
    assert isinstance(configuration(**SEEDED).synthesize, SynthesisSettings)
    assert isinstance(
        configuration(**MARGINALS, synthesize__method="mixture").synthesize, MixtureSynthesis
    )
    assert configuration(**GUM, synthesize__seed=4).synthesize.seed == 4


def test_the_presets_are_those_of_the_arithmetic() -> None:
    """The constants of PrivSyn, section 5.2 and appendix I; what is named beside `preset: paper` counts."""
    gum = GumSynthesis(preset="paper")
    assert (gum.start, gum.rounds, gum.tolerance, gum.schedule) == ("one-way", 100, 0.0, "step")
    paper = MarginalSettings.model_validate({"preset": "paper"})
    assert (paper.one_way_share, paper.selection_share, paper.merge_cells) == (0.1, 0.1, 5000)
    assert MarginalSettings.model_validate({"preset": "paper", "merge_cells": 40}).merge_cells == 40
    assert GumSynthesis.model_validate({"preset": "paper", "rounds": 5}).rounds == 5


@pytest.mark.parametrize(
    "cliques",
    [
        "selected",
        "adaptive",
        {
            "adaptive": 2,
            "rounds": 5,
            "batch": 3,
            "max_cells": 400,
            "annealing": False,
            "weights": "equal",
        },
        {"all": 2},
        {"all": 3, "max_cells": 90},
        [["sex", "age"], ["age", "grade"]],
    ],
)
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_the_canonical_form_is_read_back(cliques: Any, preset: str) -> None:
    """The same digest, and the same settings, whatever was left out."""
    before = configuration(
        **GUM, aggregate__cliques=cliques, aggregate__preset=preset, synthesize__preset=preset
    )
    after = Configuration.from_canonical(before.canonical())
    assert after.digest == before.digest
    assert (after.aggregate, after.synthesize) == (before.aggregate, before.synthesize)


def test_what_is_measured() -> None:
    """Nothing larger than single attributes where there is one attribute, or where only single ones are asked for."""
    chosen, single = MarginalSettings(), MarginalSettings(cliques=AllCliques(all=1))
    pairs = MarginalSettings(cliques=AllCliques(all=2))
    assert [s.has_larger(4) for s in (chosen, single, pairs)] == [True, False, True]
    assert [s.selects(4) for s in (chosen, single, pairs)] == [True, False, False]
    assert not chosen.has_larger(1)
    assert not chosen.selects(1)
    rounds = MarginalSettings(cliques=AdaptiveCliques())
    assert (rounds.has_larger(4), rounds.selects(4), rounds.has_larger(1), rounds.selects(1)) == (
        True,
        True,
        False,
        False,
    )
    assert MarginalSettings.model_validate({"cliques": "adaptive"}) == rounds
    some = MarginalSettings.model_validate({"cliques": {"rounds": 5}})
    assert some.adaptive == AdaptiveCliques(rounds=5)


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"synthesize__method": "gum", "columns__sex": SET},
        r"^synthesize\.method \(gum\) cannot make records of column 'sex'",
    ),
    (
        {**SEEDED, "columns__sex": {"type": "category", "domain": "private"}},
        r"^synthesize\.method \(aggregate-seeded\) cannot make records of marginals with the private domain 'sex'",
    ),
    (
        {
            **SEEDED,
            "columns__sex__values": list(range(2000)),
            "columns__region__values": list(range(2500)),
        },
        r"^synthesize\.method \(aggregate-seeded\) .* with 5054035 pairs of values, more than 5000000",
    ),
    ({"aggregate__method": "views"}, r"must have method auto, k-tuples or marginals$"),
    ({"synthesize__method": "magic"}, r"must have method auto, aggregate-seeded, gum or mixture$"),
    (
        {**MARGINALS, "columns__sex": {**SET, "values": None, "domain": "private"}},
        r"'sex', a set with a private domain",
    ),
    (
        {**MARGINALS, "columns__sex": SET, "aggregate__cliques": [["sex", "age"]]},
        r"names 'sex', a set that .* as 'sex=a'$",
    ),
    ({**MARGINALS, "columns": {"sex": SET, "sex=b": {"type": "boolean"}}}, r"has 'sex=b' twice"),
    ({**MARGINALS, "aggregate__percentile": 99}, r"^unknown key aggregate\.percentile"),
    ({"aggregate__cliques": "selected"}, r"^unknown key aggregate\.cliques"),
    (
        {**MARGINALS, "aggregate__clique": "selected"},
        r"^unknown key aggregate\.clique; did you mean cliques\?",
    ),
    (
        {**MARGINALS, "aggregate__cliques": "some"},
        r"^aggregate\.cliques \(some\) must be selected, adaptive, \{adaptive: k",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"all": 5}},
        r"^aggregate\.cliques\.all \(5\) must be at most the number",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"all": 0}},
        r"^aggregate\.cliques\.all \(0\) must be at least 1",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"adaptive": 5}},
        r"^aggregate\.cliques\.adaptive \(5\) must be at most 4",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"adaptive": 3, "rounds": 0}},
        r"^aggregate\.cliques\.rounds \(0\) must be at least 1",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"adaptive": 3, "rounds": 100, "batch": 5}},
        r"rounds \(100\) times batch \(5\) above 400",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"adaptive": 3, "max_cells": 3}},
        r"max_cells \(3\) must be at least 4",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"adaptive": 2, "all": 2}},
        r"^unknown key aggregate\.cliques\.all$",
    ),
    (
        {**MARGINALS, "aggregate__cliques": {"all": 2, "max_cell": 9}},
        r"^unknown key aggregate\.cliques\.max_cell; did you mean max_cells\?$",
    ),
    (
        {**MARGINALS, "aggregate__cliques": "adaptive", "aggregate__noise": "laplace"},
        r"aggregate\.noise \(laplace\) must be gaussian with adaptive cliques",
    ),
    (
        {
            **MARGINALS,
            "aggregate__cliques": "adaptive",
            "aggregate__noise": "auto",
            "privacy__delta": 0,
        },
        r"privacy\.delta \(0\) must be positive where marginals are selected",
    ),
    ({**MARGINALS, "aggregate__cliques": [["sex"]]}, r"must have two and more attributes each"),
    (
        {**MARGINALS, "aggregate__cliques": [["sex", "shoe"]]},
        r"names 'shoe', which is no attribute that is counted",
    ),
    (
        {**MARGINALS, "aggregate__cliques": [["sex", "sex"]]},
        r"has an attribute twice in \[sex, sex\]",
    ),
    (
        {**MARGINALS, "aggregate__cliques": [["sex", "age"], ["age", "sex"]]},
        r"has a marginal twice",
    ),
    ({**MARGINALS, "aggregate__cliques": []}, r"^aggregate\.cliques must not be empty"),
    (
        {**MARGINALS, "aggregate__compress": 0},
        r"^aggregate\.compress \(0\) must be positive, or none",
    ),
    (
        {**MARGINALS, "aggregate__merge_cells": 0},
        r"^aggregate\.merge_cells \(0\) must be at least 1 and at most 67108864",
    ),
    (
        {**MARGINALS, "aggregate__merge_cells": 10**12},
        r"^aggregate\.merge_cells \(1000000000000\) must be .* at most 67108864",
    ),
    (
        {**MARGINALS, "aggregate__cliques": "adaptive", "aggregate__merge_cells": 40},
        r"^aggregate\.merge_cells \(40\) needs aggregate\.cliques: selected, whose pairs it merges$",
    ),
    (
        {**MARGINALS, "synthesize__records": "exhaust"},
        r"^synthesize\.records \(exhaust\) must be count, 4x or a whole",
    ),
    ({**GUM, "synthesize__rounds": -1}, r"^synthesize\.rounds \(-1\) must be at least 0"),
    ({**GUM, "synthesize__tolerance": -1}, r"^synthesize\.tolerance \(-1\) must be at least 0"),
    (
        {**GUM, "synthesize__duplicate": [2]},
        r"^synthesize\.duplicate, entry 1 \(2\) must be at most 1",
    ),
    ({**GUM, "synthesize__duplicate": []}, r"^synthesize\.duplicate must not be empty"),
    ({**GUM, "synthesize__relax": True}, r"^unknown key synthesize\.relax"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        configuration(**changes)
