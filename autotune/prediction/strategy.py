"""Prediction of one strategy: legality, metrics, and the parts of time and memory."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.calibration import Calibration, general_knowledge
from autotune.explanation.memory_budget import memory_budget
from autotune.measurement.metrics import AccumulationMeasurement, metrics
from autotune.prediction.scaling import scaling_series
from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.predictions import BrokenRule, Prediction
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.resolution import subject_of
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.rules import PROGRAM_RULE, findings
from search_spaces.space import demand_dimensions
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

RATES = (
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "mfu",
    "hfu",
    "global_batch_size",
    "model_tflops_per_gpu",
    "hardware_tflops_per_gpu",
)
"""Fields of a Prediction with the same names in a forecast and in a trial's metrics."""


def predict(
    query: PredictionQuery,
    calibration: Calibration | None = None,
    *,
    started_from: Sequence[StartedFrom] = (),
    simulated: bool = False,
    program: ProgramCapabilities = ANY_PROGRAM,
    refusals: Sequence[str] = (),
) -> Prediction:
    """Predict whether a strategy is legal and, if so, its time, memory and rates.

    Args:
        calibration: the calibration to use; the machine's priors by default.
        started_from: the earlier trials in the calibration.
        simulated: whether those are simulated.
        program: the trainer of the query.
        refusals: reasons besides the rules why that trainer cannot run the strategy.

    Raises:
        InvalidInputs: fields `model` and `machine`; dimensions that the trainer does not vary.
        InvalidInput: field `over_nodes`: the layout can run on none of them.
    """
    transformer, machine = subject_of(query.model, query.machine)
    calibration = calibration or general_knowledge(machine, program.tuning, program.states)
    strategy = query.strategy
    demand_dimensions(strategy, machine, program)
    broken = findings(strategy, transformer, machine, program=program)
    reasons = [BrokenRule(rule=f.rule, reason=f.reason, severity=f.severity) for f in broken]
    known = {reason.reason for reason in reasons}
    reasons += [
        BrokenRule(rule=PROGRAM_RULE, reason=refusal)
        for refusal in refusals
        if refusal not in known
    ]
    prediction = Prediction(
        model=transformer,
        machine=machine,
        strategy=query.strategy,
        legal=all(reason.severity == "warn" for reason in reasons),
        reasons=reasons,
    )
    if not prediction.legal:
        return prediction
    budget = memory_budget(
        calibration,
        transformer,
        strategy,
        headroom_gib=query.min_headroom_gib,
        program=program,
    )
    return prediction.model_copy(
        update={
            **_figures(calibration, transformer, strategy),
            "fits": budget.fits,
            "fit_probability": budget.fit_probability,
            "memory_sentence": f"{budget.sentence}.",
            "memory_changes": budget.changes,
            "started_from": list(started_from),
            "simulated": simulated,
            "scaling": scaling_series(
                calibration, transformer, strategy, nodes=query.over_nodes, program=program
            )
            if query.over_nodes
            else [],
        }
    )


def _figures(
    calibration: Calibration, transformer: Transformer, strategy: Strategy
) -> dict[str, object]:
    machine = calibration.machine
    lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    single = forecast.of_one(0)
    joule = forecast.energy_joule
    samples = strategy.global_batch_size(machine.gpus_per_node)
    step = AccumulationMeasurement(
        gradient_accumulation_steps=strategy.gradient_accumulation_steps,
        iteration_times_s=(single["iteration_time_s"],),
    )
    rates = metrics(transformer, machine, strategy, [step])
    return single | {
        "joules_per_token": None
        if joule is None
        else float(joule[0]) / (samples * transformer.seq_length),
        "power_trials": calibration.power.measured,
        **{name: getattr(rates, name) for name in RATES},
        "data_parallel": strategy.data_parallel(machine.gpus_per_node),
        "memory_limit_gib": calibration.parameters.usable_gib(machine),
    }
