"""Causes of slow runs: the evidence of each in a log, and what it costs."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files

import numpy as np

from autotune.calibration import Calibration
from autotune.diagnosis.run_log import RunLog, StepTimes
from autotune.diagnosis.subject import RunSubject
from autotune.explanation.parts import time_by_part
from autotune.explanation.steps import with_values
from autotune.prediction.candidates import OWN_ERROR
from autotune.schemas.diagnoses import SlowCause
from autotune.schemas.predictions import LIKELY_TO_FIT, LayoutChange, Prediction
from autotune.words.quantities import count, gibibytes, percent, seconds
from search_spaces.lattice import Lattice
from search_spaces.machine import default_precision
from search_spaces.strategy import Strategy

WORTH_SAYING = 0.03
"""Share of an iteration's time below which a cause is not mentioned."""
SERIOUS = 0.1
"""Share from which a cause makes a run slow."""
LARGE_BUBBLE = 0.2
"""Share from which a pipeline's bubble is a cause: at 4 micro-batches for each stage."""
DRIFT = 0.05
UNSTEADY = 1.15
"""90th over 10th percentile of iterations from which their times are unsteady. Within MLPerf's runs
they vary by 0.9 % (median) to 1.8 % (90th percentile), a ratio of 1.05."""
DATA_SHARE, GRADIENT_SHARE = 0.05, 0.2
COMPILED_SHARE = 0.1
"""Share of an iteration that compiled kernels save in torchtitan's published runs, about."""
HOST_SHARE, LARGE_HOST_SHARE = 0.15, 0.4
"""Predicted share of waiting for the host that is a cause in a run that is slower than predicted,
and in any."""
LAYOUT_GAINS = 1.1
"""Lower end of the gain of another layout from which the layout is a cause."""
DISTRIBUTED_GAINS = 1.2
"""Gain of a layout that distributes the experts from which their place is a cause."""
PROGRAMS_DIFFER, UNKNOWN_PROGRAMS_DIFFER = 1.2, 2.0
"""Measured time over the upper end of its interval from which a run is slow without any evidence:
of a trainer with an adapter, and of another. Rest on public logs of healthy runs."""
NETWORK_PARTS = ("data_parallel", "all_to_all", "pipeline_transfer", "context_parallel")
EVENTS = ("checkpoint", "evaluation", "collection")


@dataclass(frozen=True, kw_only=True)
class RunCase:
    """A run, and what its layout was predicted to do.

    Attributes:
        faster: the layouts with the largest predicted gain.
        printed: how the printed TFLOP/s differ from those that ran; empty if they agree.
    """

    run: RunLog
    times: StepTimes
    subject: RunSubject
    expected: Prediction | None = None
    calibration: Calibration | None = None
    faster: Sequence[LayoutChange] = ()
    printed: str = ""

    @property
    def excess(self) -> float:
        """The share of the measured time above the prediction; 0 without one."""
        predicted = self.expected and self.expected.iteration_time_s
        return max(0.0, 1.0 - predicted / self.times.median_s) if predicted else 0.0

    @property
    def is_clearly_slow(self) -> bool:
        """Whether it is slower than its interval by more than programs differ."""
        high = self.expected and self.expected.iteration_time_high_s
        if not high or self.times.is_short:
            return False
        differ = PROGRAMS_DIFFER if self.run.adapter else UNKNOWN_PROGRAMS_DIFFER
        return self.times.median_s > differ * high

    def part(self, *names: str) -> float:
        """Return the share of parts of the predicted iteration; 0 without a prediction."""
        if self.expected is None or not self.expected.iteration_time_s:
            return 0.0
        parts = time_by_part(self.expected.time_parts_s)
        return sum(parts.get(name, 0.0) for name in names) / self.expected.iteration_time_s

    def saves(self, other: Strategy) -> tuple[float, float]:
        """Return the share of the time that another layout is predicted to save, and the
        probability that it fits."""
        strategy, transformer = self.subject.strategy, self.subject.transformer
        if self.calibration is None or strategy is None or transformer is None:
            return 0.0, 0.0
        machine = self.calibration.machine
        lattice = Lattice.of([strategy, other], gpus_per_node=machine.gpus_per_node)
        forecast = self.calibration.forecast(transformer, lattice)
        now, then = forecast.iteration_time_s
        return float(1.0 - then / now), float(forecast.fit_probability[1])

    def stated(self, *names: str) -> str:
        found = (f"{name} {self.run.stated[name]}" for name in names if name in self.run.stated)
        return ", ".join(found) or "the configuration"


@dataclass(frozen=True, kw_only=True)
class FoundCause:
    """The evidence of a cause in a run.

    Attributes:
        worth: share of the time that it costs; None if that is not known.
        words: values of the sentence.
    """

    evidence: str
    worth: float | None = None
    words: Mapping[str, object] = field(default_factory=dict)


Look = Callable[[RunCase, Strategy], FoundCause | None]


def _batch(case: RunCase, strategy: Strategy) -> FoundCause | None:
    meant, ran = case.subject.samples, case.subject.ran_samples
    if not meant or not ran or ran >= meant:
        return None
    words = {
        "ran": count(ran),
        "meant": count(meant),
        "micro_batches": strategy.gradient_accumulation_steps,
        "micro_batch": strategy.micro_batch_size,
    }
    counted = case.stated("deepspeed_micro_batch_size", "micro_batch_size")
    return FoundCause(
        evidence=f"{counted}, global batch {count(meant)}", worth=1.0 - ran / meant, words=words
    )


def _fp32(case: RunCase, strategy: Strategy) -> FoundCause | None:
    machine = case.subject.machine
    if machine is None or strategy.precision != "fp32":
        return None
    usual = default_precision(machine)
    if usual == "fp32":
        return None
    worth, _ = case.saves(with_values(strategy, {"precision": usual}))
    return FoundCause(evidence="neither bf16 nor fp16 is on", worth=worth, words={"usual": usual})


def _attention(case: RunCase, strategy: Strategy) -> FoundCause | None:
    sign = case.run.signs.get("no_flash")
    if sign is None and strategy.flash_attention:
        return None
    slow, fast = (
        1.0 - case.saves(replace(strategy, flash_attention=fused))[0] for fused in (False, True)
    )
    evidence = sign.line if sign else case.stated("flash", "attention")
    return FoundCause(evidence=evidence, worth=1.0 - fast / slow or None)


def _bubble(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    stages, virtual = strategy.pipeline_parallel, strategy.virtual_stages
    micro_batches = strategy.gradient_accumulation_steps
    idle = (stages - 1) / virtual
    share = idle / (micro_batches + idle)
    if share < LARGE_BUBBLE:
        return None
    evidence = f"{stages} stages, {virtual} virtual, {micro_batches} micro-batches"
    return FoundCause(evidence=evidence, worth=share, words={"share": percent(share)})


def _recomputation(case: RunCase, strategy: Strategy) -> FoundCause | None:
    is_assumed = any("recompute" in each for each in case.subject.assumed)
    if strategy.activation_checkpointing == "none" or is_assumed or case.expected is None:
        return None
    for kind in ("none", "selective"):
        worth, fits = case.saves(replace(strategy, activation_checkpointing=kind))
        if fits >= LIKELY_TO_FIT and worth > WORTH_SAYING:
            peak = case.run.peak_memory_gib or case.expected.memory_gib
            limit = case.expected.memory_limit_gib
            recomputed = f"{strategy.activation_checkpointing} recomputation"
            return FoundCause(
                evidence=f"{recomputed}; peak {gibibytes(peak)} of {gibibytes(limit)}",
                worth=worth,
                words={"kind": kind, "fits": f"{fits:.0%}"},
            )
    return None


def _tensor_parallel(case: RunCase, strategy: Strategy) -> FoundCause | None:
    machine = case.subject.machine
    if machine is None or strategy.tensor_parallel <= machine.fast_gpus:
        return None
    fast = machine.fast_gpus
    stages = strategy.pipeline_parallel * strategy.tensor_parallel // fast
    other = replace(strategy, tensor_parallel=fast, pipeline_parallel=stages)
    worth = max(case.saves(other)[0], case.part("tensor_parallel"))
    return FoundCause(evidence=strategy.short(), worth=worth, words={"fast": fast})


def _timed(kind: str, *, least: float) -> Look:
    def look(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
        share = case.run.timers.get(kind, 0.0)
        if share < least:
            return None
        return FoundCause(
            evidence=f"the log's timer: {percent(share)} of an iteration", worth=share
        )

    return look


def _interruptions(kind: str) -> Look:
    def look(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
        places = [n for n in case.times.spikes if kind in case.times.after[n]]
        worth = case.times.lost_in(places)
        if worth < WORTH_SAYING:
            return None
        return FoundCause(
            evidence=f"{_longer(case, places)} after it",
            worth=worth,
            words={"share": percent(worth)},
        )

    return look


def _longer(case: RunCase, places: Sequence[int]) -> str:
    longest = max(case.times.seconds[n] for n in places) / case.times.median_s
    iterations = f"{len(places)} of {len(case.times.seconds)} iterations"
    return f"{iterations} are up to {longest:.1f} times as long"


def _spikes(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    places = [n for n in case.times.spikes if not case.times.after[n] & set(EVENTS)]
    worth = case.times.lost_in(places)
    if worth < WORTH_SAYING:
        return None
    apart = set(np.diff(places).tolist())
    period = f", every {min(apart)} reports" if len(apart) == 1 and len(places) > 2 else ""
    return FoundCause(evidence=_longer(case, places), worth=worth, words={"period": period})


def _drift(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    drift = case.times.drift
    if drift < DRIFT:
        return None
    evidence = f"the last third is {percent(drift)} slower than the first"
    return FoundCause(evidence=evidence, worth=drift / (1.0 + drift))


def _unsteady(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    low, high = case.times.range_s
    is_calm = high < UNSTEADY * low or case.times.drift >= DRIFT
    if is_calm or case.times.spikes or case.times.is_short:
        return None
    evidence = f"{seconds(low)} to {seconds(high)} (10th and 90th percentile)"
    return FoundCause(evidence=evidence, worth=1.0 - low / case.times.median_s)


def _overlaps(case: RunCase, strategy: Strategy) -> FoundCause | None:
    machine, transformer = case.subject.machine, case.subject.transformer
    switches = ("overlap_gradients", "overlap_parameters")
    off = [name for name in switches if case.run.switch(name) is False]
    if machine is None or transformer is None or not off:
        return None
    # DeepSpeed's pipeline engine has no such overlap.
    in_engine = strategy.pipeline_parallel > 1 and "DeepSpeed" in case.run.trainer
    if strategy.data_parallel(machine.gpus_per_node) == 1 or in_engine:
        return None
    split = strategy.tensor_parallel * strategy.pipeline_parallel * strategy.expert_parallel
    speed = machine.inter_node_gb_per_s if strategy.num_nodes > 1 else machine.intra_node_gb_per_s
    traffic_s = len(off) * 3.0 * transformer.parameters / split / (speed * 1e9)
    worth = min(traffic_s / case.times.median_s, case.excess)
    return FoundCause(evidence=case.stated(*off), worth=worth)


def _compilation(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    if case.run.switch("compiled") is not False or case.run.trainer != "torchtitan":
        return None
    return FoundCause(evidence=case.stated("compiled"), worth=COMPILED_SHARE)


def _expert_loop(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    transformer = case.subject.transformer
    has_experts = transformer is not None and transformer.experts is not None
    if not has_experts or case.run.switch("grouped_experts") is not False:
        return None
    return FoundCause(evidence=case.stated("grouped_experts"))


def _host(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    share = case.part("host")
    if share < (HOST_SHARE if case.excess > WORTH_SAYING else LARGE_HOST_SHARE):
        return None
    return FoundCause(evidence=f"{percent(share)} of the predicted iteration", worth=share)


def _layout(case: RunCase, strategy: Strategy) -> FoundCause | None:
    best = next((each for each in case.faster if each.relative_low >= LAYOUT_GAINS), None)
    return None if best is None else _slower_than(best, strategy)


def _undistributed(case: RunCase, strategy: Strategy) -> FoundCause | None:
    if strategy.expert_parallel > 1:
        return None
    changes = (each for each in case.faster if "expert_parallel" in each.changes)
    best = next((each for each in changes if each.relative >= DISTRIBUTED_GAINS), None)
    return None if best is None else _slower_than(best, strategy)


def _slower_than(change: LayoutChange, strategy: Strategy) -> FoundCause:
    worth = 1.0 - 1.0 / (1.0 + OWN_ERROR * (change.relative - 1.0))
    return FoundCause(evidence=strategy.short(), worth=worth, words={"change": change.sentence})


def _printed_rate(case: RunCase, strategy: Strategy) -> FoundCause | None:  # noqa: ARG001
    return FoundCause(evidence=case.printed, worth=0.0) if case.printed else None


def _unexplained(case: RunCase, strategy: Strategy) -> FoundCause | None:
    """By exclusion, where a run on several nodes is slower than its interval."""
    if strategy.num_nodes == 1 or not case.is_clearly_slow:
        return None
    share = percent(case.part(*NETWORK_PARTS))
    return FoundCause(
        evidence=f"by exclusion; {share} of the predicted time is communication",
        worth=case.excess,
        words={"nodes": strategy.num_nodes},
    )


LOOKS: Mapping[str, Look] = {
    "batch": _batch,
    "fp32": _fp32,
    "attention": _attention,
    "data": _timed("data", least=DATA_SHARE),
    "gradients": _timed("gradients", least=GRADIENT_SHARE),
    "tensor_parallel": _tensor_parallel,
    "bubble": _bubble,
    "recomputation": _recomputation,
    "drift": _drift,
    **{event: _interruptions(event) for event in EVENTS},
    "spikes": _spikes,
    "unsteady": _unsteady,
    "overlaps": _overlaps,
    "compilation": _compilation,
    "expert_loop": _expert_loop,
    "undistributed": _undistributed,
    "host": _host,
    "layout": _layout,
    "printed_rate": _printed_rate,
    "unexplained": _unexplained,
}
WITHOUT_LAYOUT = ("data", "gradients", "drift", *EVENTS, "spikes", "unsteady", "printed_rate")


@dataclass(frozen=True, kw_only=True)
class CauseRule:
    """A cause, as `causes.toml` has it; a general one comes after those that it may consist of."""

    name: str
    sentence: str
    sign: str = ""
    setting: str = ""
    look: str = ""
    least: int = 1
    general: bool = False

    def found_in(self, case: RunCase) -> FoundCause | None:
        if self.sign:
            sign = case.run.signs.get(self.sign)
            return FoundCause(evidence=sign.line) if sign and sign.count >= self.least else None
        if self.setting:
            is_on = case.run.switch(self.setting)
            return FoundCause(evidence=case.stated(self.setting)) if is_on else None
        strategy = case.subject.strategy or ANY_LAYOUT
        if case.subject.strategy is None and self.look not in WITHOUT_LAYOUT:
            return None
        return LOOKS[self.look](case, strategy)


ANY_LAYOUT = Strategy(
    tensor_parallel=1,
    pipeline_parallel=1,
    micro_batch_size=1,
    gradient_accumulation_steps=1,
    zero_stage=0,
    num_nodes=1,
)


@cache
def cause_rules() -> tuple[CauseRule, ...]:
    table = tomllib.loads((files(__package__) / "causes.toml").read_text("utf-8"))
    return tuple(CauseRule(**each) for each in table["cause"])


def causes_of(case: RunCase) -> list[SlowCause]:
    """Return the causes that a log shows, the most costly first.

    A cause whose cost no formula gives takes what the iteration takes longer than predicted.
    """
    causes: list[SlowCause] = []
    for kind in cause_rules():
        if kind.look == "unexplained" and _is_explained(causes, case.excess):
            continue
        if (found := kind.found_in(case)) is None:
            continue
        worth = found.worth if found.worth is not None else case.excess or None
        if worth is None or worth >= WORTH_SAYING or kind.look == "printed_rate":
            sentence = kind.sentence.format(**found.words)
            cause = SlowCause(
                name=kind.name, sentence=sentence, evidence=found.evidence, worth=worth
            )
            causes.append(cause)
    general = {kind.name for kind in cause_rules() if kind.general}
    specific = [each for each in causes if each.name not in general]
    is_specific = any((each.worth or 0.0) >= SERIOUS for each in specific)
    return sorted(
        causes, key=lambda each: (is_specific and each.name in general, -(each.worth or 0.0))
    )


def _is_explained(causes: Collection[SlowCause], excess: float) -> bool:
    return any(each.worth is None or each.worth >= excess / 2 for each in causes)
