"""What a stage is, among functions."""

from __future__ import annotations

from contextlib import suppress

from marginweave.tasks.stage import stage_of


def is_stage(value: object) -> bool:
    """Return whether `value` is the function of a stage."""
    with suppress(KeyError, TypeError):  # of an object without attributes
        return callable(value) and bool(stage_of(value))
    return False
