"""A trial's request and its result as files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluators.trial import TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

RESULT = "result.json"
LOG = "trial.log"


def request_as_dict(request: TrialRequest) -> dict[str, Any]:
    """JSON-ready."""
    return asdict(request) | {"directory": str(request.directory)}


def request_from_dict(data: Mapping[str, Any]) -> TrialRequest:
    """The reverse of `request_as_dict`; raises KeyError or TypeError on anything else."""
    machine, protocol = dict(data["machine"]), dict(data["protocol"])
    machine["sources"] = tuple(machine.get("sources", ()))
    protocol["accumulations"] = tuple(protocol["accumulations"])
    return TrialRequest(
        token=data["token"],
        transformer=Transformer(**data["transformer"]),
        machine=Machine(**machine),
        strategy=Strategy(**data["strategy"]),
        protocol=TrialProtocol(**protocol),
        directory=Path(data["directory"]),
        seed=data.get("seed", 0),
    )


def write_result(directory: Path, outcome: TrialOutcome) -> None:
    """Under another name first, so that a reader never sees half of it; raises OSError."""
    partial = directory / f"{RESULT}.partial"
    with partial.open("w", encoding="utf-8") as file:
        json.dump(outcome.as_dict(), file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(directory / RESULT)


def read_result(directory: Path) -> TrialOutcome | None:
    """The outcome in `directory`; None where there is none yet, or it cannot be read."""
    try:
        data = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        return TrialOutcome.from_dict(data)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def log_tail(directory: Path, *, lines: int = 40, most_bytes: int = 16_384) -> str:
    """The last lines of the trial's log; empty where there is none."""
    try:
        with (directory / LOG).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most_bytes))
            return "\n".join(file.read(most_bytes).decode("utf-8", "replace").splitlines()[-lines:])
    except OSError:
        return ""
