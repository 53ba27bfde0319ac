"""What is gone of a configuration is refused with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from marginweave.base.errors import InputError
from marginweave.configuration.gone import GONE_KEYS, refuse_gone
from marginweave.configuration.load import parse_configuration


def written_with(key: str) -> dict[str, Any]:
    """A configuration that has a key which is gone, or a value, of the column `a` where it is of any."""
    path, _, value = key.partition(": ")
    section: Any = value or {}
    for name in reversed(path.replace("*", "a").split(".")):
        section = {name: section}
    return section


@pytest.mark.parametrize("key", GONE_KEYS)
def test_every_key_that_is_gone_is_refused_with_what_to_write_instead(key: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_configuration(written_with(key))
    assert str(caught.value) == f"{key.replace('*', 'a')} is gone: {GONE_KEYS[key]}"


def test_a_configuration_without_such_a_key_passes() -> None:
    refuse_gone(
        {
            "synthesize": {"method": "mixture"},
            "evaluate": {"internal": True},
            "columns": {"paid": None},
        }
    )
