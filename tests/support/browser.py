"""Chromium without a window, for the tests of pages: what it logs, what it asks the network for, at any width."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
AXE = "package/axe.min.js"  # in the package from npm


def need(*programs: str) -> None:
    """Skip where a program is not installed; with MARGINWEAVE_REQUIRE_BROWSER that is a failure."""
    absent = [program for program in programs if shutil.which(program) is None]
    if not absent:
        return
    said = f"{' and '.join(absent)} not installed: pages are not opened"
    if os.environ.get("MARGINWEAVE_REQUIRE_BROWSER"):
        pytest.fail(said)
    pytest.skip(said)


@dataclass(frozen=True)
class Browser:
    """One browser; a page is opened as a file."""

    driver: Chrome

    def open(self, page: Path, width: int, fragment: str = "") -> None:
        """Open a page in a window `width` pixels wide; `fragment` begins with #."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.get(page.as_uri() + fragment)
        # a new page forgets it
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script in the page returns."""
        return self.driver.execute_script(script, *arguments)

    def prefer(self, *, dark: bool) -> None:
        """Show pages as somebody sees them who prefers dark ones, or light ones."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def violations(self, axe: str) -> list[tuple[str, list[str]]]:
        """Rules of WCAG 2.2, levels A and AA, and good practice that the page breaks, as far as axe-core can tell."""
        self.run(axe)
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1]; axe.run(arguments[0]).then((found) => done(found.violations))",
            {
                "runOnly": [
                    "wcag2a",
                    "wcag2aa",
                    "wcag21a",
                    "wcag21aa",
                    "wcag22aa",
                    "best-practice",
                ],
                "resultTypes": ["violations"],  # what was kept need not be listed
            },
        )
        return [(one["id"], [node["html"] for node in one["nodes"][:3]]) for one in found]

    def printed(self, width: float = 8.27, height: float = 11.69) -> bytes:
        """The page as a PDF, on paper of so many inches; A4 without."""
        paper = {"paperWidth": width, "paperHeight": height}
        return base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", paper)["data"])

    def complaints(self) -> list[str]:
        """What the console has shown since the last time."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last time, but for those of the browser's own first page.

        Its documents are under chrome://, chrome-untrusted:// and the like, and some begin late on a busy machine.
        """
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        asked = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [a["request"]["url"] for a in asked if not a["documentURL"].startswith("chrome")]


def fetch_axe(place: Path) -> None:
    """Put AXE, the source of axe-core in one version, into the empty folder `place`, from npm."""
    pack = ["npm", "pack", "--silent", "--prefer-offline", "axe-core@4.10.3"]
    try:
        subprocess.run(pack, cwd=place, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("npm, or its registry, is not there: axe-core is not run")
    (packed,) = place.glob("*.tgz")
    subprocess.run(["tar", "-xzf", packed, "-C", place, AXE], check=True)


@contextmanager
def browser(place: Path) -> Iterator[Browser]:
    """A browser with its profile in `place`, which can reach no other machine."""
    need("chromium", "chromedriver")
    options = ChromeOptions()
    options.binary_location = str(BROWSER)
    for argument in (
        *(
            "headless",
            "no-sandbox",
            "disable-gpu",
            "disable-dev-shm-usage",
            "no-first-run",
            "disable-sync",
        ),
        *("disable-background-networking", "disable-component-update", f"user-data-dir={place}"),
        "host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=ChromeService(executable_path=str(DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
