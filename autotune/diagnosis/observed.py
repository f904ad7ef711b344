"""An earlier run as an observation of its layout, if it can be believed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from autotune.diagnosis.diagnosis import LACKING, contradicts, step_times
from autotune.diagnosis.run_log import TABLE, RunLog
from autotune.diagnosis.subject import UNNAMED, RunSubject, named_model
from autotune.measurement.metrics import AccumulationMeasurement, agree, impossible_time
from autotune.schemas.imports import ImportedRun
from autotune.schemas.validation import validated
from autotune.words.quantities import listed, percent
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.rules import findings
from search_spaces.transformer import Transformer

LONGEST_NAME = 100
MOST_APART = 0.03
"""Relative difference of a run's halves, as of repeated measurements. Those of 187 MLPerf 5.0 and
5.1 runs differ by 0.1 % (median) to 1.4 %."""


@dataclass(frozen=True, kw_only=True)
class ObservedRun:
    """A run that can be imported, and what is `assumed` where its log says nothing."""

    transformer: Transformer
    machine: Machine
    run: ImportedRun
    assumed: tuple[str, ...] = ()


def observed(run: RunLog, subject: RunSubject) -> ObservedRun:
    """Return a run as an observation; raises InvalidInput(s) if it says too little, or cannot be
    believed."""
    state = run.stated.get("status", "ok")
    transformer, machine, strategy = subject.transformer, subject.machine, subject.strategy
    reason = next(_doubts(run, subject, state), "")
    if reason or transformer is None or machine is None or strategy is None:
        raise InvalidInput("run", run.source, reason or "what it says makes no layout")
    if transformer.name == UNNAMED and (name := run.stated.get("model", "").partition("; ")[0]):
        transformer = replace(transformer, name=name[:LONGEST_NAME])
    fields = {
        "strategy": strategy,
        "state": state,
        "iteration_time_s": step_times(run, subject).median_s if state == "ok" else None,
        "peak_memory_gib": run.peak_memory_gib,
        "source": run.source[-LONGEST_NAME:],
        "finished_at": run.stated["finished_at"],
    }
    imported = validated(ImportedRun, fields)
    if problem := unusable(imported, transformer, machine):
        raise problem
    return ObservedRun(
        transformer=transformer, machine=machine, run=imported, assumed=subject.assumed
    )


def _doubts(run: RunLog, subject: RunSubject, state: str) -> Iterator[str]:
    if subject.is_adapted:
        yield "adapters of a frozen model are trained (LoRA)"
    if state not in {"ok", "oom"}:
        yield f"its status {state!r} says nothing of its layout"
    if subject.transformer is not None:
        yield from _another_model(run, subject.transformer)
    if subject.missing:
        named = listed([LACKING[each] for each in subject.missing])
        options = listed([f"--{each}" for each in subject.missing])
        yield f"it lacks {named}: add {options}"
    if (machine := subject.machine) and machine.gpus_per_node != subject.whole_node:
        nodes = f"nodes of {machine.gpus_per_node} GPUs, and {machine.name}'s have"
        yield f"it ran on {nodes} {subject.whole_node}: state a --machine with such nodes"
    if subject.ran_samples != subject.samples:
        yield f"{subject.ran_samples} samples ran where the batch has {subject.samples}"
    if state == "ok":
        yield from _untrusted(run, subject)


def _another_model(run: RunLog, transformer: Transformer) -> Iterator[str]:
    for name in ("num_layers", "hidden_size", "num_attention_heads"):
        stated, expected = run.number(name), getattr(transformer, name)
        if stated not in {None, expected}:
            yield f"it states {name} {stated}, and {transformer.name} has {expected}"
    counted = run.stated.get("parameters", "").replace(",", "")
    parameters = transformer.trained_parameters
    if counted.isdecimal() and not agree(int(counted), parameters):
        has = f"{transformer.name} has {parameters:,}"
        yield f"its trainer counts {int(counted):,} parameters, and {has}"
    named = None if counted or run.number("num_layers") else named_model(run)
    if named and not agree(named.trained_parameters, parameters):
        yield f"it trains {named.name}, which is not {transformer.name}"


def _untrusted(run: RunLog, subject: RunSubject) -> Iterator[str]:
    if not run.steps:
        yield "it has no time of an iteration"
    if run.trainer == TABLE:
        return
    times = step_times(run, subject)
    if times.is_short:
        yield f"{len(times.seconds)} iterations after the warm-up are too few"
    half = len(times.seconds) // 2
    first, second = median(times.seconds[:half]), median(times.seconds[-half:])
    apart = max(first, second) / min(first, second) - 1.0
    if apart > MOST_APART:
        differ = f"the medians of its first and second half differ by {percent(apart)}"
        yield f"{differ}, more than the {percent(MOST_APART)} of noise"
    if sentence := contradicts(run, times, subject):
        yield f"its rate and its times contradict each other: {sentence}"


def unusable(run: ImportedRun, transformer: Transformer, machine: Machine) -> InvalidInput | None:
    """Return why a run is no observation of this model on this machine; None if it is one."""
    strategy, time_s = run.strategy, run.iteration_time_s
    if (time_s is None) == (run.state == "ok"):
        valid = "a time of a run that is ok, and only of it"
        return InvalidInput("iteration_time_s", time_s, f"the run is {run.state}", valid=valid)
    for finding in findings(strategy, transformer, machine):
        if finding.severity != "warn":
            return InvalidInput("strategy", strategy.short(), finding.reason)
    gas = strategy.gradient_accumulation_steps
    step = AccumulationMeasurement(
        gradient_accumulation_steps=gas, iteration_times_s=(time_s,) if time_s else ()
    )
    reason = impossible_time(transformer, machine, strategy, [step])
    return InvalidInput("iteration_time_s", time_s, reason) if reason else None
