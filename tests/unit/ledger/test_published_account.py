"""account.json: the account as it is on the day of publication, with nothing that follows from unpublished noise."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from marginweave.ledger import Ledger
from marginweave.ledger.audit import audit_ledger
from marginweave.ledger.keys import load_key
from marginweave.released.account import AccountFile
from marginweave.verify.bundle_accounting import Fault
from marginweave.verify.bundle_statement import check_account
from tests.support.releases import ACCOUNT, gaussian, reserve_release, small_plan

DRAWS = ("count", "level-1", "level-2")
SMALL = small_plan(DRAWS, cost=gaussian(1e-3), epsilon=0.3, delta=1e-7)
FILES = {"release/a.csv": "cd" * 32}


def draw(ledger: Ledger, release: str, *names: str) -> None:
    """Take a lease, draw and commit these draws, and give back the others."""
    ledger.draws.take_lease(release, "lease")
    for name in names:
        ledger.draws.begin(release, name, "lease")
        ledger.draws.commit(release, name, "lease", "ab" * 32, tainted=False)
    ledger.draws.return_unused(release, [name for name in DRAWS if name not in names])


def publish(ledger: Ledger, release: str, *names: str) -> AccountFile:
    reserve_release(ledger, SMALL, release)
    draw(ledger, release, *names)
    ledger.releases.publish(release, "lease", FILES)
    return ledger.accounts.as_published(release)


def end(ledger: Ledger, release: str, how: str, *drawn: str) -> None:
    """A release that is not published; what it has drawn, and so what it gives back, follows from its noise."""
    reserve_release(ledger, SMALL, release, needs_approval=True)
    draw(ledger, release, *drawn)
    if how in {"rejected", "awaits approval"}:
        ledger.approvals.submit(release, "lease", FILES)
    if how == "rejected":
        ledger.approvals.decide(release, approved=False, by="A", reason="no")


def undated(told: AccountFile) -> AccountFile:
    return told.model_copy(update={"as_of": ""})


def test_what_a_rejected_release_gave_back_is_not_told(tmp_path: Path) -> None:
    """Two ledgers that differ in nothing but that: the account of the next release is the same, but for its date."""
    told = []
    for number, drawn in enumerate([("count",), ("count", "level-1"), DRAWS]):
        ledger = Ledger.create(tmp_path / f"{number}" / "ledger.sqlite", environment={})
        ledger.accounts.open(ACCOUNT, actor="steward")
        end(ledger, "a", "rejected", *drawn)
        told.append(publish(ledger, "b", "count", "level-1"))
        own = ledger.accounts.total("affairs")
        # three reserved, and two drawn
        assert float(told[-1].total.charged.mu2) == pytest.approx(5e-3)
        assert (
            own.spent.cost.mu2 == sum(r.charged.mu2 for r in ledger.releases.of("affairs"))
        ) is True
    assert undated(told[0]) == undated(told[1]) == undated(told[2])


@given(
    ends=st.lists(
        st.tuples(st.sampled_from(["rejected", "awaits approval", "failed"]), st.integers(1, 3)),
        max_size=4,
    ),
    others=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    place=st.integers(0, 4),
)
@settings(max_examples=7, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_no_history_of_unpublished_releases_is_told(
    ends: list[tuple[str, int]], others: list[int], place: int
) -> None:
    """Whatever each of them drew before it gave back the rest, and whether it came before the release or beside it."""
    told = []
    with TemporaryDirectory() as folder:
        for number, drawn in enumerate(([n for _, n in ends], others)):
            ledger = Ledger.create(Path(folder) / f"{number}" / "ledger.sqlite", environment={})
            ledger.accounts.open(ACCOUNT, actor="steward")
            publish(ledger, "published", "count")
            for i, ((how, _), many) in enumerate(zip(ends, drawn, strict=False)):
                if i == place:
                    reserve_release(ledger, SMALL, "b")
                end(ledger, f"a{i}", how, *DRAWS[:many])
            if ledger.releases.find("b") is None:
                reserve_release(ledger, SMALL, "b")
            draw(ledger, "b", *DRAWS)
            ledger.releases.publish("b", "lease", FILES)
            told.append(ledger.accounts.as_published("b"))
    assert undated(told[0]) == undated(told[1])
    assert told[0].releases == 2 + len(ends)


def test_what_a_published_release_gave_back_is_subtracted(ledger: Ledger) -> None:
    """Its own statement has it."""
    ledger.accounts.open(ACCOUNT, actor="steward")
    assert float(publish(ledger, "a", "count").total.charged.mu2) == pytest.approx(1e-3)
    assert float(publish(ledger, "b", *DRAWS).total.charged.mu2) == pytest.approx(4e-3)


def test_a_release_that_has_begun_nothing_does_not_count(ledger: Ledger) -> None:
    """Nothing of it follows from noise: an expired reservation is given back, and what is reserved now counts."""
    ledger.accounts.open(ACCOUNT, actor="steward")
    reserve_release(ledger, SMALL, "stalled")
    ledger.draws.return_unused("stalled", list(DRAWS))
    reserve_release(ledger, SMALL, "reserved")
    told = publish(ledger, "b", "count")
    assert (told.releases, float(told.total.charged.mu2)) == (2, pytest.approx(4e-3))


def test_a_release_that_waited_is_dated_and_counted_on_the_day_of_its_publication(
    ledger: Ledger,
) -> None:
    """Others were published while it awaited approval: they are in its account, and later ones are not."""
    ledger.accounts.open(ACCOUNT, actor="steward")
    end(ledger, "waits", "awaits approval", *DRAWS)
    others = [publish(ledger, name, *DRAWS) for name in ("one", "two")]
    ledger.approvals.decide("waits", approved=True, by="A", reason="ok")
    told = ledger.accounts.as_published("waits")
    record = ledger.releases.find("waits")
    assert record is not None
    assert record.published is not None
    assert told.as_of == f"{record.published:%Y-%m-%dT%H:%M:%SZ}" >= others[-1].as_of
    assert (told.releases, float(told.total.charged.mu2)) == (3, pytest.approx(9e-3))
    publish(ledger, "later", "count")
    assert ledger.accounts.as_published("waits") == told


def test_the_cap_is_that_of_the_day_and_its_changes_since_the_first_draw_are_told(
    ledger: Ledger,
) -> None:
    """What was changed before any noise is no news."""
    ledger.accounts.open(ACCOUNT, actor="steward")
    ledger.accounts.change_cap("affairs", 1.5, 1e-6, "before", "steward")
    first = publish(ledger, "a", "count")
    assert (first.cap.epsilon, first.caps_since_the_first_draw, first.largest_cap) == (
        1.5,
        None,
        None,
    )
    ledger.accounts.change_cap("affairs", 2.0, 1e-6, "after", "steward")
    second = publish(ledger, "b", "count")
    assert [cap.epsilon for cap in second.caps_since_the_first_draw or ()] == [1.5, 2.0]
    assert second.largest_cap is not None
    assert (second.cap.epsilon, second.largest_cap.epsilon) == (2.0, 2.0)
    assert ledger.accounts.as_published("a") == first
    assert "no such bound" in second.meaning


@pytest.mark.parametrize("later", [2.0, 1.2])
def test_a_bundle_knows_caps_and_meaning(tmp_path: Path, later: float) -> None:
    """By the rows of one release and the account alone, as a handover has them: raised, or lowered, after noise."""
    location = tmp_path / "ledger.sqlite"
    ledger = Ledger.create(location, environment={})
    ledger.accounts.open(ACCOUNT, actor="steward")
    ledger.accounts.change_cap("affairs", 1.5, 1e-6, "before", "steward")
    publish(ledger, "a", "count")
    ledger.accounts.change_cap("affairs", later, 1e-6, "after", "steward")
    publish(ledger, "b", "count")
    audited = [_read(row) for row in audit_ledger(location, load_key(location, {}, "")).rows]
    for release in ("a", "b"):
        rows = [
            row
            for row in audited
            if row["account"] == "affairs" and row["release"] in (None, "", release)
        ]
        (published,) = [row for row in rows if row["kind"] == "PUBLISHED"]
        told = json.loads(ledger.accounts.as_published(release).to_json())
        check_account(told, rows, published)
        caps = told.get("caps_since_the_first_draw")
        largest = {"epsilon": 9.0, "delta": 1e-6, "meaning": "none"}
        lies: list[dict[str, Any]] = [{"meaning": "another"}, {"largest_cap": largest}]
        lies += [{"caps_since_the_first_draw": [{**told["cap"], "since": told["as_of"]}] * 2}]
        if caps is not None:
            least = {**told["largest_cap"], "epsilon": 1.0}
            lies += [
                {"largest_cap": None},
                {"largest_cap": least},
                {"largest_cap": {**told["largest_cap"], "meaning": "-"}},
            ]
            lies += [
                {"caps_since_the_first_draw": changed}
                for changed in ([], caps[:1], caps[::-1], [*caps, *caps])
            ]
        for lie in lies:
            with pytest.raises(Fault, match=r"in account\.json is not that of the rows"):
                check_account({**told, **lie}, rows, published)


def _read(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as ledger.jsonl has it."""
    return {**row, "body": json.loads(row["body"]) if isinstance(row["body"], str) else row["body"]}
