"""One strategy: is it legal, what would it give, and where do time and memory go?"""

from __future__ import annotations

from autotune.cost_model import estimate
from autotune.measurement import AccumulationMeasurement, metrics
from autotune.resolution import machine_shape, model_shape, strategy_of, subject_of
from autotune.schemas import Prediction, PredictionQuery, Refusal
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.rules import findings
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def predict(query: PredictionQuery) -> Prediction:
    """Whether a strategy is legal and, if so, its predicted time, memory and rates.

    Raises:
        InvalidInputs: fields `model` and `machine`.
    """
    transformer, machine = subject_of(query.model, query.machine)
    strategy = strategy_of(query.strategy)
    found = findings(strategy, transformer, machine)
    illegal = Prediction(
        model=model_shape(transformer),
        machine=machine_shape(machine),
        strategy=query.strategy,
        legal=all(finding.severity == "warn" for finding in found),
        reasons=[Refusal(rule=f.rule, reason=f.reason, severity=f.severity) for f in found],
    )
    if not illegal.legal:
        return illegal
    return illegal.model_copy(update=_figures(transformer, machine, strategy))


def _figures(transformer: Transformer, machine: Machine, strategy: Strategy) -> dict[str, object]:
    """The fields of a Prediction that only a legal strategy has."""
    lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
    estimated = estimate(transformer, machine, lattice)
    seconds = float(estimated.iteration_time_s[0])
    measurement = AccumulationMeasurement(
        gradient_accumulation_steps=strategy.gradient_accumulation_steps,
        iteration_times_s=(seconds,),
    )
    rates = metrics(transformer, machine, strategy, [measurement])
    shared = ("tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu", "global_batch_size")
    tflops = ("model_tflops_per_gpu", "hardware_tflops_per_gpu")
    return {name: getattr(rates, name) for name in (*shared, *tflops)} | {
        "fits": bool(estimated.fits[0]),
        "data_parallel": strategy.data_parallel(machine.gpus_per_node),
        "iteration_time_s": seconds,
        "memory_gib": float(estimated.memory_gib[0]),
        "memory_limit_gib": estimated.memory_limit_gib,
        "time_parts_s": {k: float(v[0]) for k, v in estimated.time_parts_s.items()},
        "memory_parts_gib": {k: float(v[0]) for k, v in estimated.memory_parts_gib.items()},
    }
