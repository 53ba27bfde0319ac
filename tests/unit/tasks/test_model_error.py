"""The distance from counts to records in two parts: by hand, and through the stages of a run, which fits its model once."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marginweave.configuration.release import Configuration
from marginweave.configuration.synthesis import MixtureSynthesis
from marginweave.domain.labels import Domain
from marginweave.estimate.marginals import Spread, normalize_marginals
from marginweave.estimate.mixture.model import Mixture
from marginweave.evaluate.agreement import error_parts, expected_shares
from marginweave.evaluate.cells import Records
from marginweave.evaluate.metrics import evaluate_release
from marginweave.observations.payloads import pack_aggregates, pack_marginals
from marginweave.records import release
from marginweave.released.evaluation import ErrorParts
from marginweave.runs.capabilities import DerivedReference, StageResult
from marginweave.tasks.decode import decode
from marginweave.tasks.evaluate import evaluate
from marginweave.tasks.synthesize import fit_model, synthesize
from tests.support.noisy_counts import aggregates_of, domain_of
from tests.support.noisy_marginals import config, marginals
from tests.support.released_tuples import four_columns, random_rows, released

SIZES = (2, 3)
MISSING = 3
# p of the pairs: (.15, .1, .15) and (.1, .1, .2), each .1 with a missing value
MODEL_OF_TWO = Mixture.of(
    np.array([0.25, 0.75]),
    [np.array([[1, 0], [1 / 3, 2 / 3]]), np.array([[0.4, 0.2, 0.2, 0.2], [0.2, 0.2, 0.4, 0.2]])],
    (2, 4),
    10.0,
    [],
)
COUNTS = {
    ((0, 0),): 6, ((0, 1),): 4, ((1, 0),): 3, ((1, 1),): 2, ((1, 2),): 4,
    ((0, 0), (1, 0)): 2, ((0, 0), (1, 2)): 2, ((0, 1), (1, 2)): 2,
}  # fmt: skip
ROWS = np.array([(0, 0), (0, MISSING), (1, 2), (1, 2), (1, 1)])


def test_the_two_parts_by_hand() -> None:
    """Ten records counted, five made. Shares of the counts, of the model, of the records, the rest of each in brackets.

    First attribute: .6 .4, .5 .5, .4 .6. Second: .3 .2 .4 (.1), .25 .2 .35 (.2), .2 .2 .4 (.2). Pairs that were released:
    .2 .2 .2 (.4), .15 .15 .2 (.5), .2 0 .4 (.4).
    """
    counts = aggregates_of(COUNTS, record_count=10, length=2, sizes=SIZES)
    records = Records([ROWS.T], domain_of(SIZES))
    parts = error_parts(records, counts, MODEL_OF_TWO, None)
    whole = [length.tvd for length in evaluate_release(records, counts).lengths]
    assert [part.length for part in parts] == [1, 2]
    assert [part.model_error for part in parts] == pytest.approx([(0.1 + 0.1) / 2, 0.1])
    assert [part.sampling_error for part in parts] == pytest.approx([(0.1 + 0.05) / 2, 0.25])
    assert whole == pytest.approx([(0.2 + 0.1) / 2, 0.2])


def test_a_length_without_sets_has_no_parts() -> None:
    counts = replace(aggregates_of(COUNTS, 10, 2, SIZES), measured={(0,): 1.0, (1,): 1.0})
    records = Records([ROWS.T], domain_of(SIZES))
    parts = error_parts(records, counts, MODEL_OF_TWO, None)
    assert [part.length for part in parts] == [1]


def test_columns_of_which_nothing_was_released_have_no_error() -> None:
    """Of the first attribute nothing, nor of a pair: the mean is that of the second, by hand as above."""
    counts = aggregates_of({key: n for key, n in COUNTS.items() if key[0][0] == 1}, 10, 2, SIZES)
    records = Records([ROWS.T], domain_of(SIZES))
    parts = error_parts(records, counts, MODEL_OF_TWO, None)
    assert parts[0].model_error == pytest.approx(0.1)
    assert parts[0].sampling_error == pytest.approx(0.05)
    assert parts[1] == ErrorParts(length=2, model_error=None, sampling_error=None)


def test_merged_values_share_what_the_model_says_of_them_together() -> None:
    """The second attribute's value 3 is merged with value 1, three to one."""
    model = replace(MODEL_OF_TWO, sizes=(2, 4))
    shares = (np.ones(2), np.array([1, 0.75, 1, 0.25, 1]))
    spread = Spread(codes=(np.arange(2), np.array([0, 1, 2, 1, 3])), shares=shares)
    found = expected_shares(model, spread, (0, 1), [np.array([0, 0, 1]), np.array([1, 3, 2])])
    assert found == pytest.approx([0.075, 0.025, 0.2])


@dataclass
class Run:
    """The stages right of the noise, in a folder of checkpoints."""

    reference: DerivedReference
    collected: StageResult
    normalized: StageResult

    @classmethod
    def of(
        cls, place: Path, configuration: Configuration, collected: bytes, normalized: bytes
    ) -> Run:
        place.mkdir(exist_ok=True)
        reference = DerivedReference(place=place, canonical=configuration.canonical())
        first = reference.checkpoint("collect", [], lambda: collected)
        return cls(reference, first, reference.checkpoint("normalize", [first], lambda: normalized))

    def synthesized(self) -> dict[str, StageResult]:
        parts = {"collect": self.collected, "normalize": self.normalized}
        if isinstance(self.reference.configuration.synthesize, MixtureSynthesis):
            parts["fit"] = fit_model(self.reference, self.normalized)
        return parts | {"synthesize": synthesize(self.reference, self.normalized, parts.get("fit"))}

    def evaluation(self) -> dict[str, Any]:
        parts = self.synthesized()
        parts["decode"] = decode(self.reference, parts, None)
        told = evaluate(self.reference, parts)
        found: dict[str, Any] = json.loads(self.reference.load(told))
        return found

    @property
    def models(self) -> list[Path]:
        return sorted(self.reference.place.glob("fit-*.ckpt"))


SMALL = {"components": 4, "fits": 2, "iterations": 20}


def run_of(place: Path, method: str, *, tuples: bool) -> Run:
    more = SMALL if method == "mixture" else {}
    if tuples:
        settings = four_columns(method, **more)
        labels = tuple(attribute.labels for attribute in settings.attributes)
        domain = Domain(
            names=tuple(attribute.name for attribute in settings.attributes), labels=labels
        )
        payload = pack_aggregates(
            replace(released(random_rows(3, 200), thresholds=(1, 3)), domain=domain)
        )
        return Run.of(place, settings, payload, payload)
    settings = config(synthesize={"method": method, **more})
    drawn = marginals(settings)
    return Run.of(
        place, settings, pack_marginals(drawn), pack_marginals(normalize_marginals(drawn, settings))
    )


@pytest.mark.parametrize("tuples", [True, False], ids=["k-tuples", "marginals"])
def test_the_evaluation_of_a_mixture_has_both_parts(tmp_path: Path, tuples: bool) -> None:
    """Total variation is a distance: none of the three is above the other two together."""
    found = run_of(tmp_path, "mixture", tuples=tuples).evaluation()
    assert [part["length"] for part in found["model"]] == [
        length["length"] for length in found["lengths"]
    ]
    for part, length in zip(found["model"], found["lengths"], strict=True):
        sides = sorted([part["model_error"], part["sampling_error"], length["tvd"]])
        # the records of a small table may be as the table is
        assert min(part["model_error"], part["sampling_error"]) > 0
        assert sides[2] <= sides[0] + sides[1] + 1e-12
    assert found["model"][0]["sampling_error"] < 0.02


@pytest.mark.parametrize(
    ("method", "tuples"), [("gum", True), ("gum", False), ("aggregate-seeded", True)]
)
def test_other_methods_have_no_model_and_say_nothing_of_one(
    tmp_path: Path, method: str, tuples: bool
) -> None:
    run = run_of(tmp_path, method, tuples=tuples)
    assert "model" not in run.evaluation()
    assert run.models == []


@pytest.mark.parametrize("tuples", [True, False], ids=["k-tuples", "marginals"])
def test_a_model_is_fitted_once(
    tmp_path: Path, tuples: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that stopped after the fit goes on from the model: the same records, and the same bytes where it is fitted anew."""
    fits, fit = [], release.fit_mixture
    monkeypatch.setattr(
        release, "fit_mixture", lambda *given, **named: (fits.append(1), fit(*given, **named))[1]
    )
    run = run_of(tmp_path / "one", "mixture", tuples=tuples)
    first, (model,) = run.synthesized(), run.models
    (run.reference.place / Path(first["synthesize"].file).name).unlink()
    again = run.synthesized()
    told = run.evaluation()
    assert len(fits) == 1
    assert again["synthesize"].digest == first["synthesize"].digest
    other = run_of(tmp_path / "two", "mixture", tuples=tuples)
    assert other.evaluation() == told
    assert other.models[0].read_bytes() == model.read_bytes()
    assert len(fits) == 2
