"""What the README shows: the output of its command, and its picture.

    make readme

runs the command as it stands there and writes what it prints below it; then it runs the demo's
simulated campaign on a service of its own, and takes a picture of the campaign's page.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from autotune import Client
from server.demo import SIMULATED
from tests.server.dashboard.conftest import ARGUMENTS, CHROMIUM
from tests.serving import COMMAND, environment, serving

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PICTURE = ROOT / "docs" / "images" / "dashboard.png"
SHOWN = re.compile(r"(?<=```console\n)\$ (autotune .+)\n[^`]*")
"""A command of the README, with its output."""

COLUMNS = "110"
NOWHERE = "http://127.0.0.1:9"
WIDTH, HEIGHT = 1280, 860
LIMIT_S = 300.0


def with_output(text: str) -> str:
    """Return the README's text with what its commands print now."""
    return SHOWN.sub(lambda found: f"$ {found[1]}\n{printed(found[1])}", text)


def printed(command: str) -> str:
    """Return what a command prints where no service runs, without blanks at the ends of lines."""
    alone = {"AUTOTUNE_URL": NOWHERE, "COLUMNS": COLUMNS}
    words = [*COMMAND, *shlex.split(command)[1:]]
    ran = subprocess.run(
        words, env=environment() | alone, stdout=subprocess.PIPE, text=True, check=True
    )
    return "".join(f"{line.rstrip()}\n" for line in ran.stdout.splitlines())


def take_picture(path: Path) -> None:
    """Write a picture of the page of the demo's simulated campaign."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as service:
        with Client(service.url) as client:
            campaign = client.create(**SIMULATED).wait(timeout_s=LIMIT_S)
            address = client.browser_address()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto(address)
            page.goto(f"{service.url}/campaigns/{campaign.id}")
            page.wait_for_selector("body[data-ready]")
            page.screenshot(path=path)
            browser.close()


if __name__ == "__main__":
    README.write_text(with_output(README.read_text()))
    take_picture(PICTURE)
