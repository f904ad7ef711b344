"""The answer to a log: what ran, what was to be expected, and the gap by cause."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite

from autotune.calibration import Calibration, general_knowledge
from autotune.diagnosis.causes import PROGRAMS_DIFFER, SERIOUS, RunCase, causes_of
from autotune.diagnosis.run_log import RunLog, StepTimes
from autotune.diagnosis.subject import RunSubject
from autotune.explanation.what_if import WhatIf
from autotune.measurement.metrics import (
    TERA,
    AccumulationMeasurement,
    impossible_time,
    metrics,
)
from autotune.prediction.strategy import predict
from autotune.schemas.diagnoses import Diagnosis, RunFigures, SlowCause, Verdict
from autotune.schemas.predictions import LayoutChange, Prediction
from autotune.schemas.requests import PredictionQuery
from autotune.words.quantities import figure, listed, nodes_of, percent, plural, seconds
from search_spaces.dimensions import TABLE, setting_text
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import demand_dimensions
from search_spaces.transformer import Transformer

SHOWN = 3
LACKING = {
    "model": "the model",
    "machine": "the machine",
    "nodes": "the number of nodes",
    "baseline": "the layout and its global batch",
}
OF_SINGLE_STEPS = ("spikes", "checkpoints", "evaluation", "garbage collection")
"""Causes that do not change the median."""
LARGE_REST = 1.5
"""Measured over predicted time, without what was found, that a sentence mentions."""
UNEXPLAINED_RATE = "no known convention gives it"
UNEXPLAINED = "It is slow, and the log does not show why"
LEAST_PRINTED, MOST_PRINTED = 0.8, 1.45
"""Printed over model FLOPs that a usual convention explains: up to a third more with full
recomputation."""
AGREES = 0.04
"""Relative difference up to which a printed figure is taken for one of a convention."""


def diagnose(
    run: RunLog,
    subject: RunSubject,
    *,
    calibration: Calibration | None = None,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> Diagnosis:
    """Return what a log shows of a run, why it is slow, and which layouts may be faster.

    Args:
        calibration: of the run's machine; its priors by default.
        program: the trainer of the run.

    Raises:
        InvalidInput: field `nodes`: the log has rates only, and these need model, batch and GPUs.
    """
    times = step_times(run, subject)
    if subject.machine is not None and calibration is None:
        calibration = general_knowledge(subject.machine, program.tuning, program.states)
    expected = _expected(subject, times, calibration, program)
    case = RunCase(
        run=run, times=times, subject=subject, expected=expected, calibration=calibration
    )
    faster = _faster(case, program) if expected is not None else []
    figures = _figures(case)
    case = replace(case, faster=faster, printed=_misleading(figures))
    causes = causes_of(case)
    verdict = _verdict(case, causes)
    answer = Diagnosis(
        source=run.source,
        trainer=run.trainer,
        verdict=verdict,
        sentence="",
        runs=run.runs,
        model=subject.transformer.name if subject.transformer else "",
        machine=subject.machine.name if subject.machine else "",
        gpus=subject.gpus,
        layout=_layout(subject),
        strategy=subject.strategy,
        missing=list(subject.missing),
        assumed=list(subject.assumed),
        is_adapted=subject.is_adapted,
        run=figures,
        expected=expected,
        slower=None
        if expected is None or expected.iteration_time_s is None
        else times.median_s / expected.iteration_time_s,
        causes=causes,
        not_shown=_not_shown(case, causes),
        faster=faster,
        command=_command(subject, run.adapter) if expected is not None else "",
    )
    return answer.model_copy(update={"sentence": _sentence(answer)})


def step_times(run: RunLog, subject: RunSubject) -> StepTimes:
    """Return the times of a run's iterations, from its rates if it has no times; raises
    InvalidInput (`nodes`) for rates without a model, a batch or GPUs."""
    tokens = None
    model = subject.transformer
    length = model.seq_length if model else run.number("seq_length")
    if length and subject.ran_samples and subject.gpus:
        tokens = subject.ran_samples * length / subject.gpus
    found: list[float] = []
    after: list[frozenset[str]] = []
    for step in run.steps:
        time_s = step.time_s
        if not isfinite(time_s) and step.tokens_per_s_per_gpu and tokens:
            time_s = tokens / step.tokens_per_s_per_gpu
        if not isfinite(time_s) and step.samples_per_s and subject.ran_samples:
            time_s = subject.ran_samples / step.samples_per_s
        if isfinite(time_s) and time_s > 0:
            found.append(time_s)
            after.append(step.after)
    if not found:
        lacking = [*subject.missing, *([] if length else ["model"])] or ["baseline"]
        named = listed([LACKING[name] for name in dict.fromkeys(lacking)])
        reason = f"the log has rates, from which times follow only with {named}"
        raise InvalidInput(lacking[0], None, reason, valid="such as gbs=512 for the batch")
    return StepTimes.of(found, after)


def _expected(
    subject: RunSubject,
    times: StepTimes,
    calibration: Calibration | None,
    program: ProgramCapabilities,
) -> Prediction | None:
    transformer, machine, strategy = subject.transformer, subject.machine, subject.strategy
    if transformer is None or machine is None or strategy is None or subject.is_adapted:
        return None
    if impossible_time(transformer, machine, strategy, [_step(subject, times)]):
        return None
    query = PredictionQuery(model=transformer, machine=machine, strategy=strategy)
    with suppress(InvalidInput, InvalidInputs):
        demand_dimensions(strategy, machine, program)
        prediction = predict(query, calibration, program=program)
        if prediction.legal:
            return prediction
    with suppress(InvalidInput, InvalidInputs):
        prediction = predict(query, calibration)
        return prediction if prediction.legal else None
    return None


def _step(subject: RunSubject, times: StepTimes) -> AccumulationMeasurement:
    gas = subject.strategy.gradient_accumulation_steps if subject.strategy else 1
    return AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=times.seconds)


def _figures(case: RunCase) -> RunFigures:
    subject, times = case.subject, case.times
    low, high = times.range_s
    figures = RunFigures(
        iterations=len(times.seconds),
        warm_up=times.warm_up,
        iteration_time_s=times.median_s,
        iteration_time_low_s=low,
        iteration_time_high_s=high,
        global_batch_size=subject.ran_samples,
        printed_tflops_per_gpu=case.run.printed_tflops,
        peak_memory_gib=case.run.peak_memory_gib,
    )
    if subject.transformer is None or subject.machine is None or subject.strategy is None:
        return figures
    if subject.is_adapted:
        return figures
    rates = metrics(subject.transformer, subject.machine, subject.strategy, [_step(subject, times)])
    return figures.model_copy(
        update={
            "tokens_per_s_per_gpu": rates.tokens_per_s_per_gpu,
            "model_tflops_per_gpu": rates.model_tflops_per_gpu,
            "mfu": rates.mfu,
            "hfu": rates.hfu,
            "printed_sentence": _convention(case, subject.transformer),
        }
    )


def _convention(case: RunCase, transformer: Transformer) -> str:
    """Return how the TFLOP/s that a log prints relate to model FLOPs, and which convention gives
    them."""
    subject, printed = case.subject, case.run.printed_tflops
    if printed is None or subject.strategy is None or not subject.gpus or not subject.samples:
        return ""
    strategy, tokens = subject.strategy, float(subject.samples * transformer.seq_length)
    model = transformer.model_flops(subject.samples)
    scores = 3.0 * transformer.score_flops_per_token * transformer.num_layers * tokens
    kinds = {
        "model FLOPs": model,
        "hardware FLOPs, with the recomputation": transformer.hardware_flops(
            subject.samples, strategy.activation_checkpointing
        ),
        "hardware FLOPs of full recomputation": transformer.hardware_flops(subject.samples, "full"),
        "model FLOPs with half of the attention scores": model - scores / 2,
        "6 FLOPs for each parameter and token": 6.0 * transformer.active_parameters * tokens,
        "8 FLOPs for each parameter and token": 8.0 * transformer.active_parameters * tokens,
    }
    per_gpu = {
        name: flops / case.times.median_s / subject.gpus / TERA for name, flops in kinds.items()
    }
    name, nearest = min(per_gpu.items(), key=lambda each: abs(each[1] / printed - 1.0))
    share = (subject.ran_samples or subject.samples) / subject.samples
    model = per_gpu["model FLOPs"] * share
    prints = f"The log prints {figure(printed)} TFLOP/s"
    if abs(nearest / printed - 1.0) > AGREES:
        return f"{prints}, {printed / model:.2f} times the model FLOPs; {UNEXPLAINED_RATE}."
    if share < 1.0:
        ran = figure(nearest * share)
        return f"{prints}: {name} of the configured batch. Only {ran} TFLOP/s of these ran."
    return f"{prints}: {name}, {printed / model:.2f} times the model FLOPs by our count."


def contradicts(run: RunLog, times: StepTimes, subject: RunSubject) -> str:
    """Return that a log prints TFLOP/s that its times do not give; empty otherwise."""
    sentence = _misleading(_figures(RunCase(run=run, times=times, subject=subject)))
    return sentence if UNEXPLAINED_RATE in sentence else ""


def _misleading(figures: RunFigures) -> str:
    printed, ran = figures.printed_tflops_per_gpu, figures.model_tflops_per_gpu
    if not printed or not ran or LEAST_PRINTED <= printed / ran <= MOST_PRINTED:
        return ""
    return figures.printed_sentence


def _verdict(case: RunCase, causes: Sequence[SlowCause]) -> Verdict:
    worst = max((each.worth or 0.0 for each in causes), default=0.0)
    if worst >= SERIOUS:
        return "slow"
    if case.times.is_short:
        return "too short"
    if case.expected is None or case.expected.iteration_time_high_s is None:
        return "unknown"
    if case.is_clearly_slow:
        return "slow"
    high = PROGRAMS_DIFFER * case.expected.iteration_time_high_s
    return "healthy" if case.times.median_s <= high else "unknown"


def _faster(case: RunCase, program: ProgramCapabilities) -> list[LayoutChange]:
    subject = case.subject
    if subject.strategy is None or subject.transformer is None or case.calibration is None:
        return []
    question = WhatIf(
        start=subject.strategy,
        calibration=case.calibration,
        transformer=subject.transformer,
        program=program,
        fixed=("num_nodes",),
    )
    return question.best()[:SHOWN]


def _command(subject: RunSubject, adapter: str) -> str:
    if subject.transformer is None or subject.machine is None or subject.strategy is None:
        return ""
    strategy = subject.strategy
    layout = ",".join(
        f"{dimension.keys[0] if dimension.keys else dimension.name}={setting_text(value)}"
        for dimension in TABLE
        if dimension.part not in ("batch", "nodes") or dimension.name == "micro_batch_size"
        for value in [strategy.value(dimension.name)]
        if (value != dimension.neutral or dimension.is_searched or dimension.is_named)
        and not dimension.is_absent(value)
    )
    words = ["autotune", "submit", "--model", subject.transformer.name]
    words += ["--seq-length", str(subject.transformer.seq_length)]
    words += ["--adapter", adapter] if adapter else []
    words += ["--machine", subject.machine.name, "--nodes", str(strategy.num_nodes)]
    words += ["--global-batch", str(subject.samples), "--baseline", layout]
    return shlex.join(words)


def _layout(subject: RunSubject) -> str:
    """Return the layout in words; with GPUs instead of nodes if the machine is not known."""
    if subject.strategy is None:
        return ""
    words = subject.strategy.short()
    if subject.machine is not None or subject.gpus is None:
        return words
    nodes, gpus = nodes_of(subject.strategy.num_nodes), plural(subject.gpus, "GPU")
    return " · ".join(gpus if word == nodes else word for word in words.split(" · "))


def _not_shown(case: RunCase, causes: Sequence[SlowCause]) -> list[str]:
    """Return what would be worth looking at where a run is slow and the log does not say why."""
    known = sum(each.worth or 0.0 for each in causes)
    if case.expected is None or case.excess - known < SERIOUS or not case.subject.strategy:
        return []
    hints = ["a profile of one rank"]
    if case.subject.strategy.num_nodes > 1:
        hints.append("the network that NCCL uses (NCCL_DEBUG=INFO)")
    if "data" not in case.run.timers:
        hints.append("the trainer's timers, for the wait for data")
    return [*hints, "clocks and temperatures of the GPUs (nvidia-smi dmon)"]


def _sentence(answer: Diagnosis) -> str:
    run, expected = answer.run, answer.expected
    ran = f"An iteration takes {seconds(run.iteration_time_s)}"
    if run.tokens_per_s_per_gpu:
        ran += f", {figure(run.tokens_per_s_per_gpu)} tokens/s on each GPU"
        ran += f" at {percent(run.mfu)} MFU" if run.mfu else ""
    if answer.is_adapted:
        expectation = "Adapters with a frozen base (LoRA) are not predicted"
    elif expected is None or expected.iteration_time_s is None:
        lacking = listed([LACKING[name] for name in answer.missing], last="or")
        expectation = f"No prediction without {lacking}" if lacking else "No prediction"
    else:
        low, high = expected.iteration_time_low_s, expected.iteration_time_high_s
        expectation = (
            f"The expected time of this layout is {seconds(expected.iteration_time_s)} "
            f"({seconds(low)} to {seconds(high)})"
        )
    first = answer.causes[0] if answer.causes else None
    because = {
        "healthy": "The run is healthy",
        "too short": "The run is too short to judge",
        "unknown": "Whether it is slow cannot be judged"
        if answer.slower is None
        else "It is slower than predicted, but trainers without an adapter differ as much",
        "slow": f"Largest cause: {first.name}" if first else UNEXPLAINED,
    }[answer.verdict]
    return f"{ran}. {expectation}. {because}." + _rest(answer)


def _rest(answer: Diagnosis) -> str:
    """Return by how much the median stays above the prediction without the causes found."""
    if answer.verdict != "slow" or not answer.causes or answer.slower is None:
        return ""
    worth = sum(each.worth or 0.0 for each in answer.causes if each.name not in OF_SINGLE_STEPS)
    rest = answer.slower * (1.0 - min(worth, 1.0))
    if rest < LARGE_REST:
        return ""
    return f" Without what was found it would still be {rest:.1f} times slower than expected."
