"""A run that goes on is computed as its file says now; what it is stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration import defaults
from marginweave.configuration.load import load_configuration
from marginweave.runs.capabilities import RunReference
from marginweave.runs.preparation import attended, prepare_run
from marginweave.runs.request import read_request
from tests.support.configurations import FAIR


def prepared(home: Path, execution: str, epsilon: str = "1") -> RunReference:
    path = home / "fair.yaml"
    path.write_text(FAIR.format(execution=execution, epsilon=epsilon))
    return prepare_run(read_request(path, run="fair", source=None, home=home))[0]


def test_a_corrected_engine_takes_effect_in_the_same_run(tmp_path: Path) -> None:
    tuples = "aggregate: {method: k-tuples}"
    begun = prepared(tmp_path, f'engine: {{dask: "tcp://127.0.0.1:1"}}\nmemory: 256MB\n{tuples}')
    assert begun.configuration.engine.dask == "tcp://127.0.0.1:1"
    resumed = prepared(tmp_path, f"memory: 4GB\npartitions: 3\n{tuples}")
    assert resumed.manifest.release == begun.manifest.release
    for configuration in (resumed.configuration, resumed.resolved):
        assert configuration.engine.dask is None
        assert (configuration.memory, configuration.partitions) == (4_000_000_000, 3)
    with pytest.raises(InputError, match=r"differs in privacy\.epsilon"):
        prepared(tmp_path, f"memory: 4GB\n{tuples}", epsilon="2")


def test_a_run_keeps_the_resolution_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version whose `auto` is another goes on with the one of the manifest, by the file's name as well."""
    path = tmp_path / "fair.yaml"
    path.write_text(FAIR.format(execution="", epsilon="1"))
    begun = prepare_run(read_request(path, run=None, source=None, home=tmp_path))[0]
    original = defaults.resolve_aggregate
    monkeypatch.setattr(
        "marginweave.configuration.load.resolve_aggregate",
        lambda c: {**original(c), "cliques": {"all": 1}},
    )
    request = read_request(path, run=None, source=None, home=tmp_path)
    assert load_configuration(path).canonical() != begun.manifest.configuration
    assert request.configuration.canonical() == begun.manifest.configuration
    resumed = prepare_run(request)[0]
    assert resumed.manifest == begun.manifest
    assert resumed.configuration == begun.configuration


def test_what_differs_is_what_was_written(tmp_path: Path) -> None:
    """A default that is written down is another file; the key that was added is named, and what follows from it is not."""
    prepared(tmp_path, "")
    with pytest.raises(InputError, match=r"it differs in aggregate; give the new release a name"):
        prepared(tmp_path, "aggregate: {method: k-tuples}")
    with pytest.raises(InputError, match=r"it differs in missing; give the new release a name"):
        prepared(tmp_path, 'missing: [""]')


def test_a_table_stops_a_run_that_a_person_has_started(tmp_path: Path) -> None:
    """And one that nobody watches where the configuration asks for it, and else never: that it stopped would tell."""
    assert not prepared(tmp_path, "").stops
    with attended():
        assert prepared(tmp_path, "").stops
        with attended(by_person=False):
            assert not prepared(tmp_path, "").stops
    assert not prepared(tmp_path, "").stops
    (tmp_path / "strict").mkdir()
    assert prepared(tmp_path / "strict", "check: stop").stops
