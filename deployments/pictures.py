"""Take the pictures of README.md, from a release of `marginweave example`: python deployments/pictures.py.

Needs chromium, and a minute.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
MARGINWEAVE = Path(sys.executable).parent / "marginweave"
# Pages, with what is selected in them, and where the picture begins
SHOWN = {("report", ""): 0, ("explore", "#a=3.1&compare=all&unit=share"): 520}
COLORS = 48  # a picture of text needs no more, and is a third as large
BROWSER = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--virtual-time-budget=4000",
)


def main() -> None:
    """Release the example in a folder that is removed, and take a picture of each page."""
    with tempfile.TemporaryDirectory() as folder:
        home = {"MARGINWEAVE_HOME": folder, "MARGINWEAVE_LEDGER": f"{folder}/ledger/ledger.sqlite"}
        for command in (
            "example",
            "ledger open visits --for visits.yaml",
            "run visits.yaml --run visits",
        ):
            subprocess.run(  # noqa: S603 - ours
                [MARGINWEAVE, *command.split()], cwd=folder, env=os.environ | home, check=True
            )
        PICTURES.mkdir(exist_ok=True)
        for (page, fragment), top in SHOWN.items():
            picture = PICTURES / f"{page}.png"
            shot = [*BROWSER, f"--window-size=1000,{top + 640}", f"--screenshot={picture}"]
            address = f"file://{folder}/runs/visits/release/{page}.html{fragment}"
            subprocess.run([*shot, address], check=True, capture_output=True)  # noqa: S603 - ours
            with Image.open(picture) as image:
                small = image.convert("RGB").crop((0, top, 1000, top + 640)).quantize(COLORS)
            small.save(picture, optimize=True)


if __name__ == "__main__":
    main()
