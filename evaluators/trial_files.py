"""The files of a trial's folder: request, result and log."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.files import raise_if_failing, write_whole
from evaluators.trial import TrialOutcome, TrialProtocol, TrialRequest
from search_spaces.machine import Machine
from search_spaces.strategy import strategy_with
from search_spaces.transformer import Transformer

RESULT = "result.json"
LOG = "trial.log"


def request_as_dict(request: TrialRequest) -> dict[str, Any]:
    """Return the request in JSON-compatible form."""
    plain = {
        "directory": str(request.directory),
        "strategy": request.strategy.as_dict(),
        "transformer": request.transformer.as_dict(),
    }
    return asdict(request) | plain


def request_from_dict(data: Mapping[str, Any]) -> TrialRequest:
    """Return the request from the result of `request_as_dict`.

    Raises:
        KeyError, TypeError: `data` has another form.
    """
    machine, protocol = dict(data["machine"]), dict(data["protocol"])
    machine["sources"] = tuple(machine.get("sources", ()))
    for name in ("accumulations", "give_up_above_s"):
        protocol[name] = tuple(protocol.get(name, ()))
    return TrialRequest(
        token=data["token"],
        transformer=Transformer.of(data["transformer"]),
        machine=Machine(**machine),
        strategy=strategy_with(data["strategy"]),
        protocol=TrialProtocol(**protocol),
        directory=Path(data["directory"]),
        seed=data.get("seed", 0),
    )


def write_result(directory: Path, outcome: TrialOutcome) -> None:
    """Write the outcome to `directory` durably; raises OSError."""
    write_whole(directory / RESULT, json.dumps(outcome.as_dict(), indent=2), durable=True)


def read_result(directory: Path) -> TrialOutcome | None:
    """Return the outcome in `directory`; None if there is none yet, or it cannot be read."""
    try:
        data = json.loads((directory / RESULT).read_text(encoding="utf-8"))
        return TrialOutcome.from_dict(data)
    except OSError as error:
        raise_if_failing(error)
    except (ValueError, KeyError, TypeError):
        pass
    return None


def log_tail(directory: Path) -> str:
    """Return the last 40 lines of the trial's log, up to 16 KiB; empty if there is none."""
    return "\n".join(log_end(directory, most_bytes=16_384).splitlines()[-40:])


def log_end(directory: Path, *, most_bytes: int = 65_536) -> str:
    """Return the end of the log in a trial's or an attempt's folder; empty if there is none."""
    try:
        with (directory / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            return file.read(most_bytes).decode("utf-8", "replace")
    except OSError:
        return ""
