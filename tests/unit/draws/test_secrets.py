"""Seeds follow from nothing, are made once, and what is damaged of a draw is mended from its copy."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from marginweave.base.errors import BudgetError
from marginweave.checkpoints.run_folder import RunFolder
from marginweave.draws.files import DrawSecrets, DrawStore, SystemSeeds
from marginweave.ledger import Ledger
from tests.support.draws import never_made, prepared_draw, secrets_of, take_part

KEY = bytes(range(32))


def _seed(secrets: DrawSecrets, name: str = "count") -> bytes:
    secrets.make("r", name)
    found = secrets.read("r", name)
    assert found is not None
    return found.seed


def test_a_seed_follows_from_nothing(folder: RunFolder) -> None:
    """The same draw of the same release under the same key has another one each time that it is made; false alarm 2^-256."""
    secrets = DrawSecrets(folder, KEY)
    first = _seed(secrets)
    assert _seed(secrets) == first
    secrets.destroy("count")
    assert secrets.present() == frozenset()
    assert len({first, _seed(secrets), _seed(secrets, "level-1")}) == 3


@dataclass(frozen=True)
class _Overtaken(SystemSeeds):
    """A source whose attempt sleeps while another one makes the seed."""

    other: DrawSecrets

    def seed(self, draw: str) -> bytes:
        self.other.make("r", draw)
        return bytes(32)


def test_of_two_attempts_at_once_the_first_makes_the_seed(folder: RunFolder) -> None:
    """Whoever wakes up later finds it, and both copies are of it."""
    other = DrawSecrets(folder, KEY)
    late = _seed(DrawSecrets(folder, KEY, _Overtaken(other)))
    assert late != bytes(32)
    assert _seed(other) == late
    files = [(folder.seeds / f"count.{ending}").read_bytes() for ending in ("seed", "copy")]
    assert files[0] == files[1]


@pytest.mark.parametrize("ending", [".draw", ".copy"])
def test_a_damaged_copy_of_a_draw_is_mended(
    ledger: Ledger, draw_store: DrawStore, ending: str
) -> None:
    """Whoever reads a committed draw leaves two whole files behind."""
    drawn = take_part(ledger, draw_store, "count", "A", prepared_draw())
    whole = draw_store.place("count", "A").read_bytes()
    place = draw_store.place("count", "A").with_suffix(ending)
    place.write_bytes(b"?" + whole[1:])
    assert take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made)) == drawn
    assert place.read_bytes() == whole


def test_a_lost_draw_stays_charged(ledger: Ledger, draw_store: DrawStore) -> None:
    """Both copies of its seed are gone after its charge: what was reserved for it is spent."""

    def dies(*_: object) -> bytes:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=dies))
    before = ledger.releases.find("r")
    secrets_of(draw_store).destroy("count")
    with pytest.raises(BudgetError, match="charged and lost"):
        take_part(ledger, draw_store, "count", "A", prepared_draw(make=never_made))
    after = ledger.releases.find("r")
    assert before is not None
    assert after is not None
    assert after.charged == before.charged
