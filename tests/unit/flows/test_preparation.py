"""A run that goes on is computed as its file says now; what it is stays what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.flows.preparation import prepare_run
from marginweave.flows.request import read_request
from marginweave.schemas.errors import InputError
from marginweave.tasks.references import RunReference

TEXT = """
dataset: fair
source: example:affairs
privacy: {{epsilon: {epsilon}, delta: 1e-6, unit: row}}
columns: {{religious: {{type: category, values: ["1.0", "2.0", "3.0", "4.0"], public: "the questionnaire"}}}}
{execution}
"""


def prepared(home: Path, execution: str, epsilon: str = "1") -> RunReference:
    path = home / "fair.yaml"
    path.write_text(TEXT.format(execution=execution, epsilon=epsilon))
    return prepare_run(read_request(path, run="fair", source=None, home=home))[0]


def test_a_corrected_engine_takes_effect_in_the_same_run(tmp_path: Path) -> None:
    begun = prepared(tmp_path, 'engine: {dask: "tcp://127.0.0.1:1"}\nmemory: 256MB')
    assert begun.configuration.engine.dask == "tcp://127.0.0.1:1"
    resumed = prepared(tmp_path, "memory: 4GB\npartitions: 3")
    assert resumed.manifest.release == begun.manifest.release
    for configuration in (resumed.configuration, resumed.resolved):
        assert configuration.engine.dask is None
        assert (configuration.memory, configuration.partitions) == (4_000_000_000, 3)
    with pytest.raises(InputError, match=r"differs in privacy\.epsilon"):
        prepared(tmp_path, "memory: 4GB", epsilon="2")
