"""Logs written after the real formats of each program and version, each beside its reading.

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
    LoggedRun,
    LogReader,
    MicroBatches,
    PeakMemory,
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
    return TrainingLog(
        runs=tuple(run_of(run) for run in content["runs"]), cut=content.get("cut", False)
    )


def run_of(content: Mapping[str, Any]) -> LoggedRun:
    power = content.get("power", {"samples": {}, "absent": {}})
    return LoggedRun(
        iterations=tuple(
            Iteration(**({"line": line} | i))
            for line, i in enumerate(content.get("iterations", ()), 1)
        ),
        damaged=tuple(content.get("damaged", ())),
        memory={
            int(rank): PeakMemory(allocated_gib=allocated, reserved_gib=reserved)
            for rank, (allocated, reserved) in content.get("memory", {}).items()
        },
        overflows=content.get("overflows", 0),
        evaluations=content.get("evaluations", 0),
        power=Power(
            samples={
                node: tuple(PowerSample(watts=w, after=a) for _, w, a in samples)
                for node, samples in power["samples"].items()
            },
            absent=power["absent"],
        ),
        micro_batches=MicroBatches(**batch) if (batch := content.get("micro_batches")) else None,
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
