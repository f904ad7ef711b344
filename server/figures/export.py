"""Figures as pictures, drawn in a child process.

A conversion holds the interpreter's lock and takes up to 330 MB, so the service never does it
itself. Run as a program (`python -m server.figures.export FORMAT`) it reads a specification from
stdin and writes the picture to stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading

from autotune.schemas.figures import PictureFormat
from server.figures.vega import VEGA_LITE_VERSION, Spec

TIME_LIMIT_S = 60.0
AT_ONCE = 2
"""Maximum number of child processes; further requests wait."""

PIXELS_PER_POINT = 2.0
"""Resolution of a PNG."""

MEDIA_TYPES: dict[PictureFormat, str] = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "pdf": "application/pdf",
}

_turns = threading.BoundedSemaphore(AT_ONCE)


def export(spec: Spec, picture: PictureFormat) -> bytes:
    """Return a specification, which must have a fixed width, as a picture.

    Raises:
        OSError: the conversion failed or exceeded the time limit.
    """
    command = [sys.executable, "-m", "server.figures.export", picture]
    with _turns:
        try:
            drawn = subprocess.run(
                command,
                input=json.dumps(spec).encode(),
                capture_output=True,
                check=True,
                timeout=TIME_LIMIT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"the picture was not drawn within {TIME_LIMIT_S:g} s") from error
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").strip().splitlines()
            raise OSError(f"the picture was not drawn: {lines[-1] if lines else error}") from error
    return drawn.stdout


def convert(spec: Spec, picture: PictureFormat) -> bytes:
    """Return the picture; holds the interpreter's lock."""
    import vl_convert

    if picture == "svg":
        svg: str = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
        return svg.encode()
    if picture == "png":
        png: bytes = vl_convert.vegalite_to_png(
            spec, vl_version=VEGA_LITE_VERSION, scale=PIXELS_PER_POINT
        )
        return png
    pdf: bytes = vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE_VERSION)
    return pdf


if __name__ == "__main__":
    wanted: PictureFormat = next(name for name in MEDIA_TYPES if name == sys.argv[1])
    sys.stdout.buffer.write(convert(json.load(sys.stdin), wanted))
