"""The bundled trainer as the program of a cluster, with one srun task per rank."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autotune.cost_model.parameters import is_cpu
from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import task
from evaluators.program.interpreter import import_path, python
from evaluators.program.outcome import (
    AttemptFailure,
    failed,
    failure_of,
    log_of,
    succeeded,
)
from evaluators.program.power import Energy, energy
from evaluators.program.program import AttemptEnd, Launcher
from evaluators.program.task import RENDEZVOUS
from evaluators.trainer.support import indivisible, unsupported_anywhere
from evaluators.training_log import Cause, TrainingLog
from evaluators.trial import RESULT, TrialOutcome, TrialRequest, read_result, request_as_dict
from search_spaces.errors import InvalidInput

REQUEST = "request.json"


class TrainerProgram:
    """Runs the bundled trainer. On success, rank 0 writes `result.json` to the attempt's folder."""

    name = "trainer"

    def __init__(self, profile: ClusterProfile) -> None:
        self._profile = profile

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:
        strategy = request.strategy
        reason = unsupported_anywhere(strategy) or indivisible(request.transformer, strategy)
        if reason:
            raise InvalidInput("strategy", strategy.short(), reason)
        written = request_as_dict(replace(request, directory=folder))
        return {REQUEST: json.dumps(written, indent=2), task.SCRIPT_NAME: task.SCRIPT}

    def commands(
        self,
        request: TrialRequest,  # noqa: ARG002 (it is in a file already)
        folder: Path,
        launcher: Launcher,
    ) -> str:
        words = (python(self._profile), "-m", "evaluators.trainer", "--request", REQUEST)
        train = task.as_ranks(launcher, folder, *map(shlex.quote, words))
        return "\n".join([*import_path(self._profile), RENDEZVOUS, train])

    def cause(self, request: TrialRequest, folder: Path) -> Cause | None:  # noqa: ARG002
        return log_of(folder).failure

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        log = log_of(folder)
        on_cpu = is_cpu(request.machine)
        if failure := failure_of(ended, log.failure, folder, on_cpu=on_cpu):
            return failed(failure, folder, ended)
        result = read_result(folder)
        if result is None or not result.measurements:
            cut = (folder / RESULT).exists()
            fault = "cannot be read: it is cut or damaged" if cut else "is missing"
            error = f"it ended well, but {RESULT} {fault}"
            failure = AttemptFailure(status=TrialState.CRASHED, error=error)
            return failed(failure, folder, ended)
        return succeeded(
            _energy(log, request),
            folder,
            ended,
            measurements=result.measurements,
            peak_memory_gib=result.peak_memory_gib,
            loss=result.loss,
            first_losses=result.first_losses,
            routing=result.routing,
            versions=result.versions,
        )


def _energy(log: TrainingLog, request: TrialRequest) -> Energy:
    protocol = request.protocol
    gpus = request.machine.gpus_per_node
    measured = [
        i
        for i in log.iterations
        if i.accumulation in protocol.accumulations
        if i.number > protocol.warmup_at(i.accumulation)
    ]
    batches = [request.strategy.with_accumulation(i.accumulation or 1) for i in measured]
    samples = sum(batch.global_batch_size(gpus) for batch in batches)
    return energy(
        log.power,
        measured,
        nodes=request.strategy.num_nodes,
        tokens=samples * request.transformer.seq_length,
    )
