"""Logs of the bundled trainer and of what fails around it, each beside its reading.

A field that a reading leaves out has the value of the dataclass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaluators.training_log import (
    Cause,
    CauseKind,
    Iteration,
    LogReader,
    Power,
    PowerSample,
    TrainingLog,
    read_log,
)

CORPUS = Path(__file__).parent / "corpus"
LOGS = sorted(CORPUS.glob("*.log"))


def reading(log: Path) -> TrainingLog:
    """What is put down beside a log."""
    content = json.loads(log.with_suffix(".json").read_text())
    power = content.get("power", {"samples": {}, "absent": {}})
    first = content.get("first_line", 1)
    return TrainingLog(
        iterations=tuple(
            Iteration(**({"line": line} | i))
            for line, i in enumerate(content.get("iterations", ()), first)
        ),
        power=Power(
            samples={
                node: tuple(PowerSample(watts=w, after=a) for _, w, a in samples)
                for node, samples in power["samples"].items()
            },
            absent=power["absent"],
        ),
        failure=cause_of(content.get("failure")),
    )


def cause_of(content: Mapping[str, Any] | None) -> Cause | None:
    if content is None:
        return None
    return Cause(
        error=content["error"],
        kind=CauseKind(content["kind"]),
        rank=content["rank"],
        host=content.get("host", ""),
    )


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_log_reads_as_put_down_beside_it(log: Path) -> None:
    assert read_log(log) == reading(log)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_byte_by_byte_it_reads_the_same(log: Path) -> None:
    reader = LogReader()
    for byte in log.read_bytes():
        reader.feed(bytes([byte]))
    assert reader.finish() == read_log(log)
