"""Draws put into a store without a ledger."""

from __future__ import annotations

from marginweave.tasks.checkpoint.draws import DrawStore


def stage_draw(store: DrawStore, release: str, name: str, lease: str, payload: bytes) -> str:
    """Store a draw as an attempt whose lease nobody has taken over."""
    with store.room(name, lease, len(payload)) as staged:
        return store.stage(staged, release, name, lease, payload, lambda: None)
