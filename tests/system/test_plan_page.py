"""`plan --page`: every number on the page is that of `plan` at the epsilon, and a slider chooses one, by keyboard as well."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from typer.testing import CliRunner

from marginweave.flows.cli.app import app
from marginweave.forecast.epsilon_page import EPSILONS
from tests.support.browser import Browser
from tests.support.page_laws import (
    PAPERS,
    breaks_no_rule,
    is_printed_well,
    light_and_dark,
    stands_alone,
)
from tests.support.samples import every

pytestmark = pytest.mark.system
OWN = 1.05
"""The epsilon of the configurations, which is none of those that a page always has."""
COLUMNS = {
    f"column_{i}": {"type": "category", "values": [f"value {j}" for j in range(3 + i % 5)]}
    for i in range(9)
}
KINDS: dict[str, dict[str, Any]] = {
    "rows.html": {"rows": 8000},
    "sizes.html": {"aggregate": {"method": "k-tuples", "reporting_length": 2}},
    "private.html": {
        "columns": COLUMNS
        | {"a_column_of_which_values_are_private": {"type": "category", "domain": "private"}}
    },
    "few.html": {
        "rows": 1000,
        "aggregate": {"method": "marginals", "cliques": [["column_0", "column_1"]]},
    },
}
PAGES = list(KINDS)


def configuration(place: Path, epsilon: float, sections: dict[str, Any]) -> Path:
    """A configuration whose table is nowhere."""
    place.mkdir(exist_ok=True)
    content = {
        "dataset": "survey",
        "source": "nowhere.csv",
        "privacy": {"epsilon": epsilon, "delta": 1e-6, "unit": "row"},
        "columns": COLUMNS,
    }
    path = place / f"at-{epsilon:g}.yaml"
    path.write_text(yaml.safe_dump(content | sections), encoding="utf-8")
    return path


def invoked(*words: object) -> str:
    """What a command prints, which must not fail."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("plans")
    for name, sections in KINDS.items():
        config = configuration(place / name.partition(".")[0], OWN, sections)
        invoked("plan", config, "--page", place / name, "--home", place)
    return place


def sections_of(page: Path) -> dict[str, str]:
    """The words of each section, by its epsilon."""
    pieces = re.findall(
        r'<section class="step" data-epsilon="([^"]*)".*?>(.*?)</section>',
        page.read_text("utf-8"),
        re.DOTALL,
    )
    return {
        epsilon: re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", piece)))
        for epsilon, piece in pieces
    }


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("epsilon", [0.1, OWN, 10.0])
def test_every_number_is_that_of_the_plan(
    pages: Path, page: str, epsilon: float, tmp_path: Path
) -> None:
    """Draws, errors and sentences at an epsilon are what `plan` prints of a configuration with that epsilon."""
    config = configuration(tmp_path, epsilon, KINDS[page])
    (facts,) = json.loads(invoked("plan", config, "--json", "--home", tmp_path))
    sections = sections_of(pages / page)
    epsilons = sorted({*EPSILONS, OWN})
    assert list(map(float, sections)) == epsilons
    assert f": {', '.join(f'{number:g}' for number in epsilons)}." in (pages / page).read_text()
    text = sections[f"{epsilon:g}"]
    for name, draw in facts["draws"].items():
        assert f"{name} {draw['noise']} " in text
    of_public_facts = [
        note for note in facts["notes"] if not note.startswith(("Ledger", "Known from an earlier"))
    ]
    assert [note for note in of_public_facts if note not in text] == []
    for size in facts["rows"]:
        for line in (size["single"], size["pairs"], size["noise"]):
            assert line in text
    assert "Ledger" not in text


def test_a_figure_has_a_point_for_each_known_error(pages: Path) -> None:
    """At the place of its epsilon and nowhere else: no line runs between points."""
    page = (pages / "rows.html").read_text("utf-8")
    (figure,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert "<polyline" not in figure
    assert "<path" not in figure
    epsilons = sorted({*EPSILONS, OWN})
    sections = sections_of(pages / "rows.html")
    for kind, name in (("ring", "columns"), ("point", "pairs")):
        places = re.findall(rf'class="{kind}" data-place="(\d+)"', figure)
        with_number = [
            str(place)
            for place, epsilon in enumerate(epsilons)
            if re.search(rf"{name}, by noise [\d.]+ %", sections[f"{epsilon:g}"])
        ]
        assert places == with_number
    # scores choose pairs at some
    assert "pairs, by noise chosen in the run" in sections["0.3"]
    # the forecast of records was not measured below epsilon .3
    boxes = re.findall(r'class="solid" data-place="(\d+)"', figure)
    assert boxes == [str(place) for place, epsilon in enumerate(epsilons) if epsilon >= 0.3]
    assert "<svg" not in (pages / "private.html").read_text("utf-8")


def test_the_slider_works_by_keyboard(chromium: Browser, pages: Path) -> None:
    """It begins at the epsilon of the configuration; a key shows the next section, marks its points, and says which."""
    chromium.open(pages / "rows.html", 1440)
    epsilons = sorted({*EPSILONS, OWN})
    chromium.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert chromium.run("return document.activeElement.id") == "epsilon"

    def shown() -> list[str]:
        return chromium.run(
            "return [...document.querySelectorAll('section.step')]"
            ".filter((e) => e.offsetHeight > 0).map((e) => e.dataset.epsilon)"
        )

    for key, place in (
        (None, epsilons.index(OWN)),
        (Keys.ARROW_RIGHT, epsilons.index(OWN) + 1),
        (Keys.HOME, 0),
        (Keys.END, len(epsilons) - 1),
    ):
        if key is not None:
            chromium.driver.switch_to.active_element.send_keys(key)
        assert shown() == [f"{epsilons[place]:g}"]
        words = f"epsilon {epsilons[place]:g}"
        assert chromium.run("return document.getElementById('shown').innerText") == words
        assert chromium.run("return document.activeElement.ariaValueText") == words
        marked = chromium.run(
            "return [...document.querySelectorAll('.chosen')].map((e) => e.dataset.place)"
        )
        assert set(marked) == {str(place)}


@pytest.mark.parametrize("width", [360, pytest.param(768, marks=pytest.mark.long), 1440])
@pytest.mark.parametrize("page", PAGES)
def test_it_stands_alone_at_any_width(
    chromium: Browser, pages: Path, page: str, width: int
) -> None:
    stands_alone(chromium, pages / page, width)


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
    """With the plan of the epsilon that is chosen."""
    chromium.open(pages / page, 1440)
    assert 1 <= is_printed_well(chromium, tmp_path / "page.pdf", paper, half_empty=True) <= 4


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("", "must be a file in a folder that exists"),
        ("nowhere/plan.html", "must be a file in a folder that exists"),
        (f"at-{OWN:g}.yaml", "is the configuration itself"),
    ],
)
def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path, page: str, words: str) -> None:
    config = configuration(tmp_path, OWN, {})
    before = config.read_text()
    done = CliRunner().invoke(app, ["plan", str(config), "--page", str(tmp_path / page)])
    assert done.exit_code == 2
    assert words in done.output
    assert config.read_text() == before
    two = CliRunner().invoke(app, ["plan", str(config), str(config), "--page", "plan.html"])
    assert (two.exit_code, "one configuration, and not two" in two.output) == (2, True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    config = configuration(tmp_path, OWN, {})
    (tmp_path / "closed").mkdir(mode=0o500)
    page = tmp_path / "closed" / "plan.html"
    done = CliRunner().invoke(app, ["plan", str(config), "--page", str(page)])
    assert done.exit_code != 0
    assert f"{page} cannot be written" in done.output


def test_an_epsilon_that_would_be_refused_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page says why."""
    from marginweave.base.errors import InputError
    from marginweave.configuration.release import Configuration
    from marginweave.forecast import epsilon_page

    def refuse_little(changed: Configuration) -> None:
        if changed.privacy.epsilon < 0.25:
            raise InputError("the noise is too large")

    monkeypatch.setattr(epsilon_page, "check_size", refuse_little)
    page = tmp_path / "plan.html"
    invoked("plan", configuration(tmp_path, OWN, {}), "--page", page, "--home", tmp_path)
    assert min(map(float, sections_of(page))) == 0.3
    text = page.read_text("utf-8")
    for epsilon in (0.1, 0.2):
        sentence = f"At epsilon {epsilon:g} the release would be refused: the noise is too large"
        assert sentence in text
