"""Megatron-DeepSpeed as the program of a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from autotune.cost_model.parameters import is_cpu
from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import ClusterProfile, Megatron
from evaluators.frameworks.deepspeed import ds_config_json
from evaluators.frameworks.megatron_deepspeed.arguments import (
    VARIANTS,
    Argument,
    entry_words,
    null_vocabulary,
)
from evaluators.frameworks.megatron_deepspeed.checkout import (
    defects_of,
    flash_attention_option,
    refusals,
)
from evaluators.frameworks.megatron_deepspeed.dataset import synthetic_dataset
from evaluators.frameworks.megatron_deepspeed.schedule import PlannedRun, Segment, trial_runs
from evaluators.program import task
from evaluators.program.interpreter import python
from evaluators.program.outcome import (
    AttemptFailure,
    failed,
    failure_of,
    highest_by_rank,
    log_of,
    succeeded,
    versions_in,
    write_versions,
)
from evaluators.program.power import Energy, energy
from evaluators.program.program import AttemptEnd, Launcher
from evaluators.program.task import RENDEZVOUS
from evaluators.program.watched_run import WATCHED, as_run, watch_files, watched_function
from evaluators.training_log import Cause, Iteration, LoggedRun, TrainingLog
from evaluators.trial import TrialOutcome, TrialRequest

DATASETS = "datasets"
"""Folder next to the trials for synthetic datasets, shared by trials of one vocabulary and sequence
length."""

EXTENSIONS = "torch-extensions"
"""Folder next to the trials for DeepSpeed's compiled extensions, shared by all trials of a
profile."""

# A killed build leaves its lock behind, and every later user of the extension waits for it forever.
# In torch's own folder the lock may be anyone's; in this one, a build that has written nothing for
# this long has ended.
_OWN_EXTENSIONS = """if [[ -z "${{TORCH_EXTENSIONS_DIR:-}}" ]]; then
    export TORCH_EXTENSIONS_DIR={folder}
    for lock in "$TORCH_EXTENSIONS_DIR"/*/lock; do
        if [[ -e "$lock" && -z "$(find "${{lock%/lock}}" -mmin -{minutes} -print -quit)" ]]; then
            rm -f "$lock"
        fi
    done
fi"""
BUILD_LIMIT_MIN = 10
"""Longer than any one of DeepSpeed's files takes to compile."""

LEAST_CLEAN = 2
"""Minimum clean iterations at each GAS, if as many were requested."""


class MegatronProgram:
    """A checkout of Megatron-DeepSpeed; results are read from its log."""

    name = "megatron-deepspeed"

    def __init__(self, profile: ClusterProfile) -> None:
        if profile.megatron is None:
            raise ValueError(f"the profile {profile.name!r} has no [megatron]")
        self._megatron: Megatron = profile.megatron
        self._profile = profile

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:
        """Return DeepSpeed's configuration of each run, and the script of the tasks.

        Raises:
            InvalidInput: the checkout cannot run the request's strategy or model.
            OSError: a synthetic dataset could not be written.
        """
        defects = defects_of(self._megatron.path)
        for refusal in refusals(defects, request.transformer, request.strategy, request.machine):
            raise refusal
        configurations = {
            _config_name(number): ds_config_json(request.transformer, request.machine, run.strategy)
            for number, run in enumerate(self._runs(request), start=1)
            if run.uses_deepspeed
        }
        self._data_path(request, folder)
        files = {**configurations, task.SCRIPT_NAME: task.SCRIPT}
        if request.protocol.adaptive:
            files |= watch_files(request.protocol, self._runs(request))
        return files

    def commands(self, request: TrialRequest, folder: Path, launcher: Launcher) -> str:
        """Return bash that runs the runs in order, up to the first failure."""
        interpreter = python(self._profile)
        packages = {"torch": None, "deepspeed": None}
        versions = write_versions([*launcher.container, interpreter], packages)
        starts = [
            task.as_ranks(launcher, folder, *self._words(request, folder, run, number))
            for number, run in enumerate(self._runs(request), start=1)
        ]
        extensions = _OWN_EXTENSIONS.format(
            folder=shlex.quote(str(folder.parents[1] / EXTENSIONS / self._profile.name)),
            minutes=BUILD_LIMIT_MIN,
        )
        preparation = [RENDEZVOUS, extensions, versions]
        if request.protocol.adaptive:
            preparation.append(watched_function([*launcher.container, interpreter]))
            starts = [f"{WATCHED} {number} {start}" for number, start in enumerate(starts, start=1)]
        return "\n".join([*preparation, " &&\n".join(starts)])

    def cause(self, request: TrialRequest, folder: Path) -> Cause | None:  # noqa: ARG002
        return log_of(folder).last.failure

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:
        log = log_of(folder)
        on_cpu = is_cpu(request.machine)
        if failure := failure_of(ended, log.last.failure, folder, on_cpu=on_cpu):
            return failed(failure, folder, ended)
        runs = _paired(log, as_run(self._runs(request), folder))
        measured = [
            _Measured(run=run, segment=segment)
            for run, planned in runs
            for segment in planned.segments
            if segment.measured
        ]
        faults = (
            *(_other_micro_batches(run, planned) for run, planned in runs),
            *(segment.fault for segment in measured),
        )
        if reason := next(filter(None, faults), None):
            failure = AttemptFailure(status=TrialState.CRASHED, error=reason)
            return failed(failure, folder, ended)
        losses = [i.loss for run in log.runs for i in run.iterations if i.loss is not None]
        return succeeded(
            _energy(log, measured, request),
            folder,
            ended,
            measurements=tuple(segment.measurement for segment in measured),
            peak_memory_gib=highest_by_rank(
                (rank, peak.reserved_gib or peak.allocated_gib)
                for run in log.runs
                for rank, peak in run.memory.items()
            ),
            loss=losses[-1] if losses else None,
            versions=versions_in(folder),
        )

    def _runs(self, request: TrialRequest) -> list[PlannedRun]:
        return trial_runs(
            request.transformer,
            request.machine,
            request.strategy,
            request.protocol,
            self._megatron.variant,
            flash_attention=flash_attention_option(self._megatron),
        )

    def _words(
        self, request: TrialRequest, folder: Path, run: PlannedRun, number: int
    ) -> list[str]:
        megatron = self._megatron
        script = f"{megatron.path.rstrip('/')}/{VARIANTS[megatron.variant].script}"
        start = entry_words(
            megatron.variant,
            run.strategy,
            python=shlex.quote(python(self._profile)),
            script=shlex.quote(script),
        )
        # Concurrent trials would write the same index files next to the data.
        own_files = ["--data-cache-path", '"$PWD/index-cache"']
        if run.uses_deepspeed:
            own_files += ["--deepspeed_config", f'"$PWD/{_config_name(number)}"']
        arguments = [
            *run.arguments,
            ("--seed", str(1 + request.seed)),
            *self._data(request, folder),
            megatron.arguments,
        ]
        return [*start, *own_files, *map(shlex.quote, chain(*arguments))]

    def _data(self, request: TrialRequest, folder: Path) -> list[Argument]:
        megatron = self._megatron
        files = {
            "--tokenizer-model": megatron.tokenizer_model,
            "--vocab-file": megatron.vocab_file,
            "--merge-file": megatron.merge_file,
        }
        data: list[Argument] = [
            ("--data-path", self._data_path(request, folder)),
            ("--split", "100,0,0"),
            ("--num-workers", "0"),
            ("--tokenizer-type", megatron.tokenizer_type),
            *((option, file) for option, file in files.items() if file),
        ]
        if megatron.tokenizer_type == "NullTokenizer":
            data.append(("--vocab-size", str(null_vocabulary(request.transformer))))
        return data

    def _data_path(self, request: TrialRequest, folder: Path) -> str:
        if self._megatron.data_path:
            return self._megatron.data_path
        model = request.transformer
        dataset = synthetic_dataset(
            folder.parents[1] / DATASETS, vocab_size=model.vocab_size, seq_length=model.seq_length
        )
        return str(dataset)


def _config_name(number: int) -> str:
    return f"ds_config-{number}.json"


def _paired(log: TrainingLog, planned: Sequence[PlannedRun]) -> list[tuple[LoggedRun, PlannedRun]]:
    runs = [run for run in log.runs if run.iterations or run.damaged]
    missing = [LoggedRun()] * max(0, len(planned) - len(runs))
    return list(zip([*runs, *missing], planned, strict=False))


def _other_micro_batches(run: LoggedRun, planned: PlannedRun) -> str | None:
    """Return how DeepSpeed split the batch if it differs from the plan; else None.

    Megatron computes its logged metrics from its arguments, so no other line would reveal it.
    """
    count, size = planned.strategy.gradient_accumulation_steps, planned.strategy.micro_batch_size
    logged = run.micro_batches
    if logged is None or (logged.count, logged.size) == (count, size):
        return None
    return (
        f"DeepSpeed trained {logged.count} micro-batches of {logged.size} where {count} of {size} "
        "were asked for: its configuration and Megatron's arguments disagree"
    )


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """One segment of a run in the log."""

    run: LoggedRun
    segment: Segment

    @property
    def iterations(self) -> list[Iteration]:
        return [i for i in self._logged if i.stepped and not i.after_evaluation]

    @property
    def measurement(self) -> AccumulationMeasurement:
        return AccumulationMeasurement(
            gradient_accumulation_steps=self.segment.gradient_accumulation_steps,
            iteration_times_s=tuple(i.elapsed_s for i in self.iterations),
        )

    @property
    def fault(self) -> str | None:
        """Why there is no measurement; None if there is one."""
        segment, gas = self.segment, f"GAS {self.segment.gradient_accumulation_steps}"
        numbers = {i.number for i in self.run.iterations} | set(self.run.damaged)
        first, planned = segment.first_iteration, segment.iterations
        logged = len(numbers & set(range(first, first + planned)))
        least = segment.warmup_iterations + segment.least_iterations
        if logged < least:
            return f"{gas}: the log has {logged} of {least} iterations, though all ended well"
        batch = segment.global_batch_size
        if others := {i.global_batch_size for i in self._logged} - {batch, None}:
            batches = ", ".join(str(other) for other in sorted(filter(None, others)))
            return f"{gas}: it trained with a global batch of {batches} where {batch} was asked for"
        clean, measured = len(self.iterations), logged - segment.warmup_iterations
        if clean >= min(LEAST_CLEAN, measured):
            return None
        reasons = {
            "a loss or gradient was no number": any(i.nan for i in self._logged),
            "steps were skipped (OVERFLOW)": any(i.skipped or i.overflows for i in self._logged),
            "an evaluation ran": any(i.after_evaluation for i in self._logged),
            "another rank's output broke the line": bool(self.run.damaged),
        }
        why = ", ".join(reason for reason, holds in reasons.items() if holds)
        return f"{gas}: {clean} of {measured} measured iterations count: {why}"

    @property
    def _logged(self) -> list[Iteration]:
        return [i for i in self.run.iterations if i.number in self.segment.measured]


def _energy(log: TrainingLog, measured: Sequence[_Measured], request: TrialRequest) -> Energy:
    run = measured[-1].run
    segments = [each for each in measured if each.run is run]
    samples = sum(each.segment.global_batch_size * len(each.iterations) for each in segments)
    return energy(
        log,
        run,
        [i for each in segments for i in each.iterations],
        nodes=request.strategy.num_nodes,
        tokens=samples * request.transformer.seq_length,
    )
