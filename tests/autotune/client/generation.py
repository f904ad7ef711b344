"""The client that waits, generated from the one that is awaited.

    python -m tests.autotune.client.generation

writes it anew; `make client` does that. Both halves are kept, for type checkers and for readers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from unasync import Rule, unasync_files

SOURCE = Path("autotune/client/asynchronous.py")
GENERATED = Path("autotune/client/synchronous.py")
ROOT = Path(__file__).parents[3]

HEADER = f"# Generated from {SOURCE.name} by `make client`: change that and run it again.\n"

WITHOUT_AWAIT = {
    "AsyncCampaign": "CampaignHandle",
    "AsyncClient": "Client",
    "AsyncRecommendation": "RecommendationHandle",
    "AsyncTransport": "Transport",
    "aclose": "close",
    "aread": "read",
    "asyncio": "time",  # for its `sleep`, the only one of its functions that a client may need
}
"""What has another name where nothing is awaited, beside Python's own words."""


def generated() -> str:
    """Return the text of GENERATED that follows from SOURCE as it is now."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "asynchronous", "client.py")
        source.parent.mkdir()
        source.write_text((ROOT / SOURCE).read_text())
        rule = Rule("/asynchronous/", "/synchronous/", additional_replacements=WITHOUT_AWAIT)
        unasync_files([str(source)], [rule])
        text = HEADER + Path(folder, "synchronous", "client.py").read_text()
    return _ruff("format", _ruff("check", text, "--fix-only", "--quiet"))


def _ruff(command: str, text: str, *options: str) -> str:
    """Return `text` as Ruff leaves it, by the settings of this repository."""
    program = [sys.executable, "-m", "ruff", command, *options]
    where = ["--stdin-filename", str(GENERATED), "-"]
    done = subprocess.run(
        [*program, *where], input=text, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


if __name__ == "__main__":
    (ROOT / GENERATED).write_text(generated())
