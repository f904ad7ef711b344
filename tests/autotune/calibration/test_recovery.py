"""A machine whose constants are off is found again from its trials."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.calibration import Calibration
from autotune.cost_model import Parameters, estimate, perturbed
from search_spaces.machine import Machine
from search_spaces.strategy import Precision
from search_spaces.transformer import Transformer
from tests.autotune.calibration.examples import (
    GENERAL,
    SPACE,
    error,
    forecast,
    lattice,
    observations,
    trials,
    truth,
)
from tests.autotune.cost_model.examples import (
    CPU,
    DGX_A100,
    FRONTIER,
    GPT_22B,
    GPT_175B,
    LLAMA,
    TINY,
    strategy,
)

HELD_OUT = SPACE[100:160]


def errors_of_worlds(count: int) -> tuple[list[float], ...]:
    """Of time, with and without calibration, and of memory, over 5 worlds."""
    results: tuple[list[float], ...] = ([], [], [], [])
    for seed in range(5):
        world = perturbed(GENERAL, seed=seed)
        calibrated = Calibration.of(FRONTIER, trials(SPACE[:count], world, seed=seed))
        after, before = forecast(calibrated, HELD_OUT), truth(HELD_OUT, GENERAL)
        true = truth(HELD_OUT, world)
        results[0].append(error(after.iteration_time_s, true[0]))
        results[1].append(error(before[0], true[0]))
        results[2].append(error(after.reserved_gib, true[1]))
        results[3].append(error(before[1], true[1]))
    return results


@pytest.mark.parametrize(("count", "factor"), [(6, 2.0), (20, 4.0)])
def test_trials_make_predictions_of_others_better(count: int, factor: float) -> None:
    """Errors of layouts that were never tried fall by a factor, on the average over worlds."""
    time, time_before, memory, memory_before = errors_of_worlds(count)
    assert np.mean(time) * factor < np.mean(time_before)
    assert np.mean(memory) * factor < np.mean(memory_before)
    assert max(time) < 0.06
    assert max(memory) < 0.03


def test_a_strange_machine_is_found_too() -> None:
    """Twice as slow in products and four times in its network: beyond what anybody expects."""
    strange = replace(
        GENERAL,
        gemm_efficiency=float(GENERAL.gemm_efficiency) / 2,
        intra_node_efficiency=float(GENERAL.intra_node_efficiency) / 4,
        data_parallel_efficiency=float(GENERAL.data_parallel_efficiency) / 4,
        cached_share=0.3,
    )
    calibrated = forecast(Calibration.of(FRONTIER, trials(SPACE[:20], strange)), HELD_OUT)
    true, before = truth(HELD_OUT, strange), truth(HELD_OUT, GENERAL)
    assert error(calibrated.iteration_time_s, true[0]) < 0.15 * error(before[0], true[0])
    assert error(calibrated.reserved_gib, true[1]) < 0.3 * error(before[1], true[1])


def test_the_constants_themselves_are_recovered() -> None:
    """Those that the trials say something of come nearer to the truth, within their own bounds."""
    before, after, deviations = [], [], []
    for seed in range(4):
        world = perturbed(GENERAL, seed=seed)
        calibration = Calibration.of(FRONTIER, trials(SPACE[:40], world, seed=seed, noise=0.01))
        for constant in calibration.constants:
            if constant.spread > 0.5 * constant.prior_spread:
                continue
            true = float(getattr(world, constant.name))
            before.append(abs(np.log(constant.prior / true)))
            after.append(abs(np.log(constant.value / true)))
            deviations.append(after[-1] / constant.spread)
    assert len(after) >= 20
    assert np.mean(after) < 0.5 * np.mean(before)
    assert np.mean(np.array(deviations) < 2) > 0.85


@pytest.mark.parametrize("size", [2.0, 4.0])
def test_a_few_peaks_decide_how_gradients_are_stored(size: float) -> None:
    divided = [each for each in SPACE if each.zero_stage == 1][:8]
    world = replace(GENERAL, gradient_bytes=size)
    calibrated = Calibration.of(FRONTIER, trials(divided, world, seed=0))
    assert float(calibrated.parameters.gradient_bytes) == pytest.approx(size, rel=0.2)


def test_what_nothing_was_seen_of_stays_as_it_was() -> None:
    """No trial without a fused softmax, in 8 bits or in fp32."""
    calibration = Calibration.of(FRONTIER, trials(SPACE[:20], perturbed(GENERAL, seed=1)))
    results = {constant.name: constant for constant in calibration.constants}
    for name in ("unfused_score_traffic", "unfused_score_bytes", "fp8_gain", "fp32_rate"):
        assert results[name].value == pytest.approx(results[name].prior)
        assert results[name].spread == pytest.approx(results[name].prior_spread)
    assert results["gemm_efficiency"].spread < 0.6 * results["gemm_efficiency"].prior_spread


def test_models_teach_about_each_other() -> None:
    """Trials of 22B and of Llama say what 175B takes on 64 nodes."""
    large = [
        strategy(
            tensor_parallel=8,
            pipeline_parallel=p,
            micro_batch_size=b,
            gradient_accumulation_steps=64,
            zero_stage=1,
            num_nodes=64,
            activation_checkpointing=c,
        )
        for p in (8, 16)
        for b in (1, 2)
        for c in ("full", "selective", "none")
    ]
    after, before = [], []
    for seed in (2, 3):
        world = perturbed(GENERAL, seed=seed)
        seen = trials(SPACE[:8], world, seed=seed) + trials(
            SPACE[8:16], world, transformer=LLAMA, seed=seed + 100
        )
        calibration = Calibration.of(FRONTIER, seen)
        predicted = forecast(calibration, large, transformer=GPT_175B)
        true = truth(large, world, transformer=GPT_175B)
        general = truth(large, GENERAL, transformer=GPT_175B)
        after += [
            error(predicted.iteration_time_s, true[0]),
            error(predicted.reserved_gib, true[1]),
        ]
        before += [error(general[0], true[0]), error(general[1], true[1])]
    assert np.mean(after) < 0.35 * np.mean(before)


@pytest.mark.parametrize(
    ("machine", "transformer", "precision"), [(DGX_A100, GPT_22B, "bf16"), (CPU, TINY, "fp32")]
)
def test_other_kinds_of_machines(
    machine: Machine, transformer: Transformer, precision: Precision
) -> None:
    """A100s, and processes on a CPU, of which some constants are 0 and cannot be scaled."""
    layouts = [replace(each, precision=precision) for each in SPACE[:72]]
    general = Parameters.default(machine)
    world = perturbed(general, seed=5)
    true, before = (
        truth(layouts, each, transformer=transformer, machine=machine) for each in (world, general)
    )
    seen = observations(layouts[:12], true[0][:12], true[1][:12], transformer=transformer)
    after = forecast(Calibration.of(machine, seen), layouts[12:], transformer=transformer)
    assert error(after.iteration_time_s, true[0][12:]) < 0.5 * error(before[0], true[0])
    assert error(after.reserved_gib, true[1][12:]) < 0.5 * error(before[1], true[1])


def test_the_fitted_constants_rank_a_space() -> None:
    """`parameters` in the formulas alone, as a sweep ranks with them: near the truth in
    time and memory, and the best of the space is among the first."""
    world = perturbed(GENERAL, seed=3)
    calibration = Calibration.of(FRONTIER, trials(SPACE[:20], world))
    everything = lattice(SPACE)
    estimated = estimate(GPT_22B, FRONTIER, everything, parameters=calibration.parameters)
    true, sizes = truth(SPACE, world)
    assert error(estimated.iteration_time_s, true) < 0.04
    assert error(estimated.reserved_gib, sizes) < 0.02 < error(truth(SPACE, GENERAL)[1], sizes)
    tokens = everything.global_batch_size
    best = int(np.argmin(true / tokens))
    assert best in np.argsort(estimated.iteration_time_s / tokens)[:10]
