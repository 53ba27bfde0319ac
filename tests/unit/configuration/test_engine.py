"""`engine` names threads, processes of this machine, or a scheduler that is reached over TLS or loopback; nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.execution import Execution
from marginweave.configuration.release import Configuration
from marginweave.runs.request import read_request
from tests.support.configurations import configuration

FILES = {"ca": "ca.pem", "cert": "client.pem", "key": "client-key.pem"}


@pytest.mark.parametrize(
    "engine",
    [
        "local",
        {"dask": "local"},
        {"dask": "tcp://127.0.0.1:8786"},
        {"dask": "tcp://[::1]:8786"},
        {"dask": "tls://scheduler.office.example:8786", **FILES},
        {"dask": "tls://10.0.0.7:8786", **FILES},
    ],
    ids=str,
)
def test_an_engine_is_no_part_of_what_a_release_is(engine: object) -> None:
    """Of two configurations that differ in how they are computed alone, digest and run are the same."""
    config = configuration(engine=engine, memory="3GB", partitions=5)
    assert config.canonical() == configuration().canonical()
    assert config.default_run == configuration().default_run
    kept = Execution.model_validate_json(config.execution.model_dump_json())
    again = Configuration.from_canonical(config.canonical(), kept)
    assert again == config
    assert Configuration.from_canonical(config.canonical()).execution == Execution()


def test_the_default_is_local() -> None:
    assert configuration().digest == configuration(engine="local").digest
    assert configuration().engine.dask is None


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("cluster", "must be local, or a mapping"),
        ({}, "must be local, or a mapping"),
        ({"dask": "tcp://10.0.0.7:8786"}, "beyond this machine it is encrypted"),
        ({"dask": "tcp://localhost:8786"}, "beyond this machine it is encrypted"),
        ({"dask": "tcp://127.0.0.1.example.org:8786"}, "beyond this machine it is encrypted"),
        ({"dask": "10.0.0.7:8786"}, "beyond this machine it is encrypted"),
        ({"dask": "ws://127.0.0.1:8786"}, "beyond this machine it is encrypted"),
        ({"dask": "tls://10.0.0.7", **FILES}, "tls://host:port"),
        ({"dask": "tcp://127.0.0.1:65536"}, r"port in \[1, 65535\]"),
        ({"dask": "tls://10.0.0.7:0", **FILES}, r"port in \[1, 65535\]"),
        ({"dask": "tls://10.0.0.7:8786"}, "needs ca, cert and key"),
        (
            {"dask": "tls://10.0.0.7:8786", "ca": "ca.pem", "cert": "c.pem"},
            "needs ca, cert and key",
        ),
        ({"dask": "local", "ca": "ca.pem"}, "only a scheduler at tls://"),
        ({"dask": "local", "workers": 3}, "workers"),
    ],
    ids=str,
)
def test_other_engines_are_refused_with_the_reason(engine: object, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        configuration(engine=engine)


def test_certificates_lie_beside_the_configuration(tmp_path: Path) -> None:
    """Their files are resolved against it; one that is not there is refused before anything else happens."""
    text = """
dataset: people
source: people.csv
privacy: {epsilon: 1, delta: 1e-6, unit: row}
columns: {sex: {type: category, values: [f, m]}}
aggregate: {method: k-tuples}
engine: {dask: "tls://10.0.0.7:8786", ca: ca.pem, cert: client.pem, key: client-key.pem}
"""
    (tmp_path / "people.yaml").write_text(text)
    with pytest.raises(InputError, match=r"engine: .*ca\.pem does not exist"):
        read_request(tmp_path / "people.yaml", run=None, source=None, home=tmp_path)
    for file in FILES.values():
        (tmp_path / file).write_text("")
    request = read_request(tmp_path / "people.yaml", run=None, source=None, home=tmp_path)
    assert request.certificates == tuple(tmp_path / file for file in FILES.values())


@pytest.mark.parametrize(
    "memory", ["2GB extra", "2GB, 3GB", "300MBxyz", "much", "-1GB", "255MB", ""]
)
def test_memory_is_a_size_and_nothing_else(memory: str) -> None:
    with pytest.raises(InputError, match="memory"):
        configuration(memory=memory)
