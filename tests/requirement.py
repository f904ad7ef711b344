"""What some tests need of the machine; where it is absent they are skipped, saying so.

With AUTOTUNE_REQUIRE_ALL=1, as in continuous integration, an absence is a failure.
"""

from __future__ import annotations

import os

import pytest


def require(present: object, what: str) -> None:
    """Go on if `present`; otherwise skip this test, naming `what` the machine lacks."""
    if present:
        return
    if os.environ.get("AUTOTUNE_REQUIRE_ALL") == "1":
        pytest.fail(f"this machine has no {what}, which is required here")
    pytest.skip(f"this machine has no {what}")
