"""Try what an advice says to write: no advice names a line that would be refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marginweave.base.errors import InputError
from marginweave.configuration.load import parse_configuration
from marginweave.configuration.release import Configuration
from marginweave.configuration.yaml_source import mapping_of
from marginweave.runs.limits import check_size


def changed(configuration: Configuration, sections: Mapping[str, Any]) -> Configuration | None:
    """Return the configuration with other sections in the place of its own; None where a run would refuse it."""
    try:
        followed = parse_configuration({**mapping_of(configuration.written), **sections})
        check_size(followed)
    except InputError:
        return None
    return followed
