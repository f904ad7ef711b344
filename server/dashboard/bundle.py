"""The script for charts: Vega, Vega-Lite and Vega-Embed from the installed vl-convert-python.

Nothing is downloaded, and the repository has no copy. Run as a program (`python -m
server.dashboard.bundle TARGET`) it writes the bundle. Building takes over a second and holds the
interpreter's lock, so the service does it once, in a child process.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from autotune.files import write_whole
from server.data_folder import closed_folder
from server.figures.vega import VEGA_LITE_VERSION

SNIPPET = "window.vegaEmbed = vegaEmbed;"
BUILD_TIME_LIMIT_S = 120.0


def bundle_name() -> str:
    return f"vega-{VEGA_LITE_VERSION}-vl-convert-{version('vl-convert-python')}.js"


def bundle_path(cache: Path) -> Path:
    """Return the path of the gzipped script in `cache`, building it if it does not exist.

    Raises:
        OSError: the folder cannot be written.
        subprocess.SubprocessError: the build failed or took over two minutes.
    """
    target = cache / f"{bundle_name()}.gz"
    if not target.exists():
        closed_folder(cache)
        subprocess.run(
            [sys.executable, "-m", "server.dashboard.bundle", str(target)],
            check=True,
            timeout=BUILD_TIME_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    return target


def build(target: Path) -> None:
    """Write the gzipped bundle."""
    import vl_convert

    script: str = vl_convert.javascript_bundle(SNIPPET, vl_version=VEGA_LITE_VERSION)
    write_whole(target, gzip.compress(script.encode(), mtime=0))


if __name__ == "__main__":
    build(Path(sys.argv[1]))
