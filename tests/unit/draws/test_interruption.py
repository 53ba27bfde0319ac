"""A stop that a signal asks for waits for the end of a draw, and for nothing else."""

from __future__ import annotations

import signal

import pytest

from marginweave.accounting.records import State
from marginweave.base.interruption import Interruption, Stopped
from marginweave.draws import protocol as draws
from marginweave.draws.files import DrawStore
from marginweave.ledger import Ledger
from marginweave.mechanisms.randomness import DrawBits
from tests.support.draws import draw_of_bits, prepared_draw, take_part


def test_outside_a_draw_it_stops_at_once() -> None:
    with pytest.raises(Stopped) as stopped:
        Interruption().ask(signal.SIGTERM)
    assert (stopped.value.number, str(stopped.value)) == (signal.SIGTERM, "SIGTERM")


def test_within_a_draw_it_waits_for_the_outermost_end() -> None:
    interruption, done = Interruption(), []

    def nested() -> None:
        with interruption.deferred():
            with interruption.deferred():
                interruption.ask(signal.SIGINT)
                done.append("inner")
            done.append("outer")

    with pytest.raises(Stopped):
        nested()
    assert done == ["inner", "outer"]
    assert interruption.may_end


def test_an_error_of_the_draw_is_not_hidden_by_the_stop() -> None:
    interruption = Interruption()

    def failing() -> None:
        with interruption.deferred():
            interruption.ask(signal.SIGINT)
            raise ValueError("of the draw")

    with pytest.raises(ValueError, match="of the draw"):
        failing()


def test_a_draw_that_was_charged_is_committed_before_the_stop(
    ledger: Ledger, draw_store: DrawStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    interruption = Interruption()
    monkeypatch.setattr(draws, "INTERRUPTION", interruption)

    def make(bits: DrawBits, noise: bytes) -> bytes:
        interruption.ask(signal.SIGTERM)  # between charge and commit
        return draw_of_bits(bits, noise)

    with pytest.raises(Stopped):
        take_part(ledger, draw_store, "count", "one", prepared_draw(make=make))
    record = ledger.releases.find("r")
    assert record is not None
    draw = record.draw("count")
    assert draw is not None
    assert draw.state == State.COMMITTED
