"""The record of an attempt that ended through no fault of the trial: another one follows."""

from __future__ import annotations

import json
from pathlib import Path

from autotune.files import write_whole

ABANDONED = "abandoned.json"


def write_abandoned(folder: Path, *, status: str, reason: str, duration_s: float) -> None:
    """Record that the attempt is abandoned, and why. Raises OSError."""
    content = {"status": status, "reason": reason, "duration_s": duration_s}
    write_whole(folder / ABANDONED, json.dumps(content))


def abandoned_duration_s(folder: Path) -> float:
    """Return the seconds for which an abandoned attempt held its nodes."""
    try:
        content = json.loads((folder / ABANDONED).read_text(encoding="utf-8"))
        return float(content["duration_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def abandoned_status(folder: Path) -> str | None:
    """Return the final status of an abandoned attempt, `unknown` if it is unreadable.

    None if the attempt was not abandoned.
    """
    try:
        return str(json.loads((folder / ABANDONED).read_text(encoding="utf-8"))["status"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"
