"""The client that waits, generated from the one that is awaited.

    python -m tests.autotune.client.generation

writes it anew; `make client` does that. Both halves are kept, for type checkers and for readers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from unasync import Rule, unasync_files

SOURCE = Path("autotune/client/asynchronous")
GENERATED = Path("autotune/client/synchronous")
ROOT = Path(__file__).parents[3]

HEADER = "# Generated from `asynchronous` by `make client`: change that and run it again.\n"

WITHOUT_AWAIT = {
    "AsyncCalibrations": "Calibrations",
    "AsyncCampaign": "CampaignHandle",
    "AsyncCatalog": "Catalog",
    "AsyncClient": "Client",
    "AsyncConnection": "Connection",
    "AsyncHTTPTransport": "HTTPTransport",
    "AsyncPlot": "Plot",
    "AsyncPredictions": "Predictions",
    "AsyncRecommendation": "RecommendationHandle",
    "AsyncTransport": "Transport",
    "aclose": "close",
    "aread": "read",
    "asynchronous": "synchronous",
    "asyncio": "time",  # for its `sleep`, the only one of its functions that a client may need
}
"""What has another name where nothing is awaited, beside Python's own words."""


def generated() -> dict[Path, str]:
    """Return the text of each file of GENERATED that follows from SOURCE as it is now."""
    with tempfile.TemporaryDirectory() as folder:
        copied, written = Path(folder, SOURCE.name), Path(folder, GENERATED.name)
        copied.mkdir()
        for module in (ROOT / SOURCE).glob("*.py"):
            shutil.copy(module, copied)
        rule = Rule(f"/{copied.name}/", f"/{written.name}/", additional_replacements=WITHOUT_AWAIT)
        unasync_files([str(module) for module in copied.iterdir()], [rule])
        return {
            GENERATED / module.name: _in_order(GENERATED / module.name, module.read_text())
            for module in sorted(written.iterdir())
        }


def _in_order(path: Path, text: str) -> str:
    checked = _ruff("check", path, HEADER + text, "--fix-only", "--quiet")
    return _ruff("format", path, checked)


def _ruff(command: str, path: Path, text: str, *options: str) -> str:
    """Return `text` as Ruff leaves it at `path`, by the settings of this repository."""
    program = [sys.executable, "-m", "ruff", command, *options]
    where = ["--stdin-filename", str(path), "-"]
    done = subprocess.run(
        [*program, *where], input=text, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


if __name__ == "__main__":
    texts = generated()
    shutil.rmtree(ROOT / GENERATED, ignore_errors=True)
    (ROOT / GENERATED).mkdir()
    for path, text in texts.items():
        (ROOT / path).write_text(text)
