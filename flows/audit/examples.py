"""The releases of made-up data in `examples.yaml`, which an audit without a configuration looks at."""

from __future__ import annotations

from pathlib import Path

from marginweave.schemas.configuration.release import Configuration
from marginweave.schemas.configuration.yaml_source import read_yaml
from marginweave.tasks.accounting.plan.resolve import parse_configuration


def examples() -> dict[str, Configuration]:
    """The configurations by name."""
    content = read_yaml(Path(__file__).with_name("examples.yaml"))
    common, releases = content["common"], content["releases"]
    return {
        name: parse_configuration({**common, **own, "columns": {**common["columns"], **own.get("columns", {})}})
        for name, own in releases.items()
    }
