"""What a trial of an adapter makes of a failed trainer, over a corpus of what trainers print."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune.schemas.choices import TrialState
from evaluators.adapter.adapter import AdapterReader
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.program.outcome import failure_of
from evaluators.program.program import AttemptEnd
from evaluators.trial import LOG

FAILURES = tomllib.loads((Path(__file__).parent / "failures" / "failures.toml").read_text("utf-8"))
LINE = re.compile(r"(-|\d+) ?(.*)")
TIMES = AdapterReader(log=r"\[(?P<step>\d+)/\d+\]", arrival=True)


def _written(failure: dict[str, Any], folder: Path) -> Path:
    """Write the log as ranks' processes do; return it."""
    lines = []
    for number, line in enumerate(failure["log"].strip().splitlines()):
        match = LINE.fullmatch(line)
        assert match, line
        stamp = f"[start 1 rank {match[1]} {number / 10:.6f}s] "
        lines.append(match[2] if match[1] == "-" else stamp + match[2])
    log = folder / LOG
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return log


def _made_of(failure: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Return the state and the first cause."""
    limit = failure.get("limit", False)
    ended = AttemptEnd(
        status=TrialState.TIMEOUT if limit else None,
        reason="time limit of 60 s reached" if limit else "",
        exit_code=None if limit else 1,
        started_at=datetime.now(UTC),
        duration_s=60.0,
    )
    log = AdapterLog([TIMES], [[StartPart({})]])
    log.read(_written(failure, folder))
    found = failure_of(ended, log.cause, folder)
    assert found
    return found.status.value, found.error


def test_states_and_first_causes(tmp_path: Path) -> None:
    wrong_states, wrong_causes = [], []
    for failure in FAILURES["failure"]:
        state, cause = _made_of(failure, tmp_path)
        if state != failure["state"]:
            wrong_states.append(f"{failure['name']}: {state}")
        if failure["says"] not in cause:
            wrong_causes.append(f"{failure['name']}: {cause}")
    assert len(FAILURES["failure"]) >= 40
    assert wrong_states == []
    assert wrong_causes == []
