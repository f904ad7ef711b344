"""Diagnose a log: read it, find its trainer, and use the earlier trials of its machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autotune.calibration import Calibration
from autotune.diagnosis.diagnosis import diagnose
from autotune.diagnosis.run_log import RunLog
from autotune.diagnosis.subject import RunSubject, subject_of_run
from autotune.schemas.diagnoses import Diagnosis
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.resolution import machine_of, transformer_of
from autotune.schemas.shapes import MachineChoice, ModelChoice
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import capabilities_of_adapter
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities

CalibrationOf = Callable[[PredictionQuery], Calibration | None]


def diagnosis_of(
    run: RunLog,
    *,
    model: ModelChoice | None = None,
    machine: MachineChoice | None = None,
    nodes: int | None = None,
    baseline: str = "",
    adapter: str = "",
    adapters_dir: Path | None = None,
    calibration_of: CalibrationOf = lambda _: None,
) -> Diagnosis:
    """Return what a log shows.

    Args:
        model, machine, nodes, baseline: used instead of what the log says.
        adapter: name of the trainer's adapter; by default, inferred from the log's form.
        calibration_of: returns the calibration by earlier trials.

    Raises:
        InvalidInput, InvalidInputs: one of these is invalid, or the log has rates only.
    """
    subject = subject_of_run(
        run,
        transformer=None if model is None else transformer_of(model),
        machine=None if machine is None else machine_of(machine),
        nodes=nodes,
        layout=baseline,
    )
    name = adapter or run.adapter
    program = _program(name, adapters_dir)
    return diagnose(
        run, subject, calibration=_calibration(subject, name, calibration_of), program=program
    )


def _program(adapter: str, folder: Path | None) -> ProgramCapabilities:
    if not adapter:
        return ANY_PROGRAM
    return capabilities_of_adapter(load_adapter(adapter, folder=folder))


def _calibration(
    subject: RunSubject, adapter: str, calibration_of: CalibrationOf
) -> Calibration | None:
    if subject.transformer is None or subject.machine is None or subject.strategy is None:
        return None
    query = PredictionQuery(
        model=subject.transformer,
        machine=subject.machine,
        strategy=subject.strategy,
        adapter=adapter,
    )
    return calibration_of(query)
