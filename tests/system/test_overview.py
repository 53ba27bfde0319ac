"""The overview of a real home: what it says is what ledger and runs have, and nothing private is opened for it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from marginweave.accounting.accounts import Account, Policy
from marginweave.base.errors import AuditError
from marginweave.flows.cli.app import app
from marginweave.ledger import Ledger, LedgerLocation, ledger_location
from marginweave.ledger.boxes import spent_share
from marginweave.runs.lookup import decide
from marginweave.runs.metrics import verification_noted
from marginweave.runs.overview import overview_page
from tests.support.browser import Browser
from tests.support.firefox import Firefox
from tests.support.opened_files import opened_files, within
from tests.support.page_laws import (
    PAPERS,
    breaks_no_rule,
    is_printed_well,
    light_and_dark,
    stands_alone,
)
from tests.support.people_table import people
from tests.support.plain_runs import run_plainly
from tests.support.samples import every

pytestmark = pytest.mark.system
PAGES = ["overview.html", "empty.html", "busy.html"]
KEPT = {"approval": "required", "keep_private": True}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LedgerLocation]]:
    """A home with a release, and one that awaits approval and keeps its private files."""
    home = tmp_path_factory.mktemp("office")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
        policy = Policy(per="year", epsilon=Decimal("2.5"), delta=Decimal("1e-6"))
        account = Account(
            dataset="people",
            epsilon=Decimal(3),
            delta=Decimal("4e-6"),
            unit="row",
            neighbors="add-remove",
            policy=policy,
        )
        Ledger.create(home / "ledger" / "ledger.sqlite").accounts.open(account, actor="steward")
        for name, publish in (("spring", {}), ("summer", KEPT)):
            (home / name).mkdir()
            config = people(home / name, 397, publish=publish, aggregate__reporting_length=2)
            run_plainly(home, config, name)
            time.sleep(1 - time.time() % 1)  # releases tell their time in seconds
        yield home, ledger_location({"MARGINWEAVE_LEDGER": str(home / "ledger" / "ledger.sqlite")})


def words(page: bytes) -> str:
    """What a reader sees."""
    return re.sub(
        r"\s+",
        " ",
        unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page.decode(), flags=re.DOTALL)),
    )


def test_it_says_what_is_spent_what_waits_and_what_is_left_over(
    office: tuple[Path, LedgerLocation],
) -> None:
    home, location = office
    moment = datetime.now(UTC)
    text = words(overview_page([home], location, moment))
    total = Ledger.open(location).accounts.total("people")
    assert "summer awaits approval: read marginweave report summer" in text
    assert "Run summer still holds private files: marginweave purge summer" in text
    assert "Run spring" not in text[: text.index("Accounts")]
    assert f"people {100 * spent_share(total):.0f} %" in text
    assert re.search(r"epsilon [\d.]+ of 2\.5 since \d{4}-01-01, per year\.", text)
    assert "The ledger was never verified from this home" in text
    row = re.search(r"spring people \S+ 1 released (good|with care|not for publication) no", text)
    assert row is not None, text
    # and no verdict before it is released
    assert re.search(r"summer people \S+ 1 awaits approval yes", text)


def test_nothing_private_is_opened(office: tuple[Path, LedgerLocation]) -> None:
    """Neither the table nor what is in private/, internal/ or proposed/; nor the number of rows on the page."""
    home, location = office
    with opened_files([]) as opened:
        page = overview_page([home], location, datetime.now(UTC))
    for run in ("spring", "summer"):
        folder = home / "runs" / run
        private = [folder / name for name in ("private", "derived", "internal", "proposed")]
        assert within(opened, *private, home / run) == []
    # a file that is opened is seen
    assert within(opened, home / "runs" / "spring" / "release") != []
    assert not re.search(r"\b397\b", words(page))


def test_it_says_how_old_the_last_verification_is(office: tuple[Path, LedgerLocation]) -> None:
    home, location = office
    with verification_noted(home, location):
        pass
    moment = datetime.now(UTC)
    fresh, old = (
        words(overview_page([home], location, moment + timedelta(days=days))) for days in (1, 60)
    )
    assert "was last verified on" in fresh
    assert "marginweave ledger verify" not in fresh
    assert f"The ledger was last verified on {moment:%Y-%m-%d}: marginweave ledger verify." in old
    with pytest.raises(AuditError), verification_noted(home, location):
        raise AuditError("row 3 was changed")
    assert "found a fault: marginweave ledger verify says which" in words(
        overview_page([home], location, moment)
    )


@pytest.fixture(scope="module")
def pages(office: tuple[Path, LedgerLocation], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The overview of the office, of a home and a ledger with nothing in them, and of many accounts with long names."""
    place, (home, location), moment = (
        tmp_path_factory.mktemp("overviews"),
        office,
        datetime.now(UTC),
    )
    for name in ("nothing", "empty", "busy"):
        (place / name).mkdir()
    Ledger.create(place / "empty" / "ledger.sqlite")
    nothing = ledger_location({"MARGINWEAVE_LEDGER": str(place / "empty" / "ledger.sqlite")})
    (place / "overview.html").write_bytes(overview_page([home], location, moment))
    (place / "empty.html").write_bytes(overview_page([place / "nothing"], nothing, moment))
    busy = Ledger.create(place / "busy" / "ledger.sqlite")
    for number in range(12):
        account = Account(
            dataset=f"survey_of_households_and_their_members_{number}",
            epsilon=Decimal(1 + number),
            delta=Decimal("1e-6"),
            unit="row",
            neighbors="add-remove",
        )
        busy.accounts.open(account, actor="steward")
    where = ledger_location({"MARGINWEAVE_LEDGER": str(place / "busy" / "ledger.sqlite")})
    (place / "busy.html").write_bytes(overview_page([home], where, moment))
    return place


@pytest.mark.parametrize("width", [360, pytest.param(768, marks=pytest.mark.long), 1440])
@pytest.mark.parametrize("page", PAGES)
def test_it_stands_alone_at_any_width(
    chromium: Browser, pages: Path, page: str, width: int
) -> None:
    stands_alone(chromium, pages / page, width)


# tests/system/test_explorer.py opens the page with the most scripts in both browsers
@pytest.mark.long
def test_it_stands_alone_in_firefox_as_well(mozilla: Firefox, pages: Path) -> None:
    for width in (360, 1440):
        stands_alone(mozilla, pages / "overview.html", width)


@pytest.mark.parametrize(("page", "dark"), light_and_dark(PAGES))
def test_no_rule_of_accessibility_is_broken(
    chromium: Browser, pages: Path, axe: str, page: str, dark: bool
) -> None:
    breaks_no_rule(chromium, pages / page, axe, dark=dark)


@pytest.mark.parametrize("paper", every(2, PAPERS))
@pytest.mark.parametrize("page", PAGES)
def test_it_can_be_filed_on_paper(
    chromium: Browser, pages: Path, page: str, paper: str, tmp_path: Path
) -> None:
    chromium.open(pages / page, 1440)
    assert is_printed_well(chromium, tmp_path / "page.pdf", paper) >= 1


def test_a_decision_ends_the_waiting(office: tuple[Path, LedgerLocation]) -> None:
    home, location = office
    decide(home, "summer", approved=True, by="A. Meier", reason="checked")
    text = words(overview_page([home], location, datetime.now(UTC)))
    assert "awaits approval" not in text
    assert re.search(r"summer people \S+ 1 released (good|with care|not for publication) yes", text)


def test_two_releases_are_compared_by_the_command(
    office: tuple[Path, LedgerLocation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence, what changed, and the rate; with --to the page. Others than two releases of one dataset are refused."""
    home, _ = office
    monkeypatch.setenv("MARGINWEAVE_LEDGER", str(home / "ledger" / "ledger.sqlite"))
    command = ["report", "summer", "--home", str(home), "--against"]
    done = CliRunner().invoke(app, [*command, "spring", "--to", str(tmp_path / "changes")])
    assert done.exit_code == 0, done.output
    assert "at most 5 of 100 such comparisons" in done.output
    page = words((tmp_path / "changes" / "comparison.html").read_bytes())
    assert done.output.splitlines()[0] in page
    assert re.search(r"From spring \(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", page)
    assert "was made before" not in page
    # tells of no folder
    assert not re.search(r"\.\./", (tmp_path / "changes" / "comparison.html").read_text("utf-8"))
    backwards = CliRunner().invoke(
        app, ["report", "spring", "--home", str(home), "--against", "summer"]
    )
    assert re.match(
        r"spring \(.* UTC\) was made before summer \(.* UTC\)",
        " ".join(backwards.output.splitlines()[1:]),
    )
    turned = CliRunner().invoke(
        app, ["report", "spring", "--home", str(home), "--against", "summer", "--json"]
    )
    assert re.match(
        r"spring \(.* UTC\) was made before summer", json.loads(turned.stdout)["backwards"]
    )
    again = CliRunner().invoke(app, [*command, str(home / "runs" / "spring" / "release"), "--json"])
    assert again.exit_code == 0
    assert json.loads(again.stdout)["verdict"] == done.output.splitlines()[0]
    for wrong, said in (("summer", "another release than RUN"), ("autumn", "autumn")):
        refused = CliRunner().invoke(app, [*command, wrong])
        assert refused.exit_code == 2
        assert said in refused.output
