"""How long a test waits for what has to happen before it fails and says what did not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
"""Shorter than a test may last (the `timeout` of pyproject.toml): the failure names the wait."""

TRAINING_S = 110.0
"""How long a process may take that trains, or that starts several others that do."""

TRIAL_LIMIT_S = 600.0
"""The time limit of trials that no test means to reach."""

LATE_S = float(os.environ.get("AUTOTUNE_LATE_LOOKS_S", "0"))
"""Every look comes so late. A test that hopes to see a passing state fails then; one that holds
the state passes."""

LONGEST_PAUSE_S = 0.1


def until(
    holds: Callable[[], Any],
    what: str | Callable[[], object] = "it holds",
    *,
    step: Callable[[], object] = lambda: None,
    progress: Callable[[], object] = lambda: None,
) -> Any:
    """Return what `holds` returns once that is true; fail naming `what` after `PATIENCE_S`.

    `step` runs between looks, and without a pause as long as it returns something true. Patience
    begins anew where `progress` returns another value than before. What takes long is looked at
    less often, for each look takes time.
    """
    limit_s = PATIENCE_S + 20 * LATE_S
    ends, pause_s, before = time.monotonic() + limit_s, 0.01, progress()
    time.sleep(LATE_S)
    while not (found := holds()):
        if time.monotonic() > ends:
            now = progress()
            assert now != before, f"not within {limit_s:g} s: {what() if callable(what) else what}"
            ends, before = time.monotonic() + limit_s, now
        if not step():
            time.sleep(pause_s)
            pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
        time.sleep(LATE_S)
    return found
