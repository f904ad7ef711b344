"""The plan: legal, balanced, and about the limit of the GPU's memory."""

from __future__ import annotations

from functools import cache

import pytest

from evaluators.trainer.support import unsupported_anywhere
from search_spaces.catalog.amd import InstalledGpu
from search_spaces.catalog.local import machine_of_cpus, machine_of_gpus
from search_spaces.machine import Machine
from search_spaces.rules import findings
from tests.benchmarks.one_gpu.models import CPU_MODELS, GPU_MODELS
from tests.benchmarks.one_gpu.plan import BANDS, QUICK_TRIALS, TRIALS, PlannedTrial, one_gpu, plan

pytestmark = pytest.mark.xdist_group("one-gpu")  # one plan, and one backend, for all


def gpu(name: str, memory_gib: float) -> Machine:
    return one_gpu(machine_of_gpus([InstalledGpu(name, memory_gib, 400.0)] * 4))


MACHINES = {
    "v100": gpu("Tesla V100-SXM2-16GB", 16.0),
    "a100-40": gpu("NVIDIA A100-SXM4-40GB", 40.0),
    "h100": gpu("NVIDIA H100 80GB HBM3", 79.6),
    "h200": gpu("NVIDIA H200", 140.4),
    "unknown": gpu("NVIDIA of next year", 24.0),
    "cpu": one_gpu(machine_of_cpus()),
}
GPUS = [name for name in MACHINES if name != "cpu"]


@cache
def planned(name: str) -> tuple[PlannedTrial, ...]:
    return tuple(plan(MACHINES[name]))


@pytest.mark.parametrize("name", MACHINES)
def test_each_trial_is_legal_and_the_trainer_can_run_it(name: str) -> None:
    machine = MACHINES[name]
    for trial in planned(name):
        broken = findings(trial.strategy, trial.transformer, machine)
        assert not [each for each in broken if each.severity == "refuse"]
        assert unsupported_anywhere(trial.strategy) is None
        assert trial.strategy.world_size(machine.gpus_per_node) == 1


@pytest.mark.parametrize("name", GPUS)
def test_it_has_forty_trials_and_none_twice(name: str) -> None:
    assert len(planned(name)) == len({trial.key for trial in planned(name)}) == TRIALS


@pytest.mark.parametrize("name", GPUS)
def test_it_reaches_up_to_the_memory_and_over_it(name: str) -> None:
    """Any beginning of it, too, because a run may be cut."""
    for beginning in (planned(name), planned(name)[: len(BANDS)]):
        fills = [trial.fill for trial in beginning]
        assert min(fills) < 0.4
        assert any(0.8 < fill < 1.0 for fill in fills)
        assert 0.2 <= sum(fill > 1.1 for fill in fills) / len(fills) <= 0.4
        assert max(fills) < 2.0


def test_it_grows_with_the_memory() -> None:
    by_memory = [planned(name) for name in ("v100", "a100-40", "h100", "h200")]
    largest = [max(trial.transformer.parameters for trial in trials) for trials in by_memory]
    assert largest == sorted(set(largest))
    gib = [
        sum(trial.fill for trial in planned(name)) * MACHINES[name].memory_gib
        for name in ("v100", "a100-40", "h100", "h200")
    ]
    assert gib == sorted(gib)


@pytest.mark.parametrize("name", GPUS)
def test_it_covers_what_one_gpu_can_vary(name: str) -> None:
    trials = planned(name)

    def times(dimension: str) -> dict[object, int]:
        values = [getattr(trial.strategy, dimension) for trial in trials]
        return {value: values.count(value) for value in set(values)}

    assert min(times("zero_stage").values()) >= 6
    assert set(times("zero_stage")) == {0, 1, 2, 3}
    assert min(times("activation_checkpointing").values()) >= 8
    assert set(times("activation_checkpointing")) == {"none", "selective", "full"}
    assert len(times("micro_batch_size")) >= 5
    assert set(times("gradient_accumulation_steps")) == {1, 2, 4, 8}
    assert set(times("flash_attention")) == {True, False}
    assert len({trial.transformer.name for trial in trials}) >= 5
    assert {trial.transformer.gated_mlp for trial in trials} == {True, False}


def test_a_gpu_without_bf16_is_given_none() -> None:
    assert {t.strategy.precision for t in planned("v100")} == {"fp16", "fp32"}
    assert {t.strategy.precision for t in planned("h100")} == {"bf16", "fp16", "fp32"}


def test_the_same_machine_gets_the_same_plan() -> None:
    assert tuple(plan(MACHINES["v100"])) == planned("v100")


def test_a_quick_plan_is_a_few_trials_of_small_models() -> None:
    trials = plan(MACHINES["h100"], quick=True)
    assert len(trials) == QUICK_TRIALS
    assert all(trial.transformer.parameters <= 500e6 for trial in trials)
    assert any(trial.fill > 1.1 for trial in trials)


def test_on_a_cpu_it_is_a_quick_one_of_tiny_models() -> None:
    trials = planned("cpu")
    assert len(trials) == len({trial.key for trial in trials}) == QUICK_TRIALS
    assert {trial.transformer for trial in trials} == set(CPU_MODELS)
    assert len({trial.strategy.micro_batch_size for trial in trials}) == 2
    assert {t.strategy.activation_checkpointing for t in trials} == {"none", "full"}
    assert {trial.strategy.precision for trial in trials} == {"fp32"}
    assert any(_over(trial) for trial in trials)
    assert not all(_over(trial) for trial in trials)


def _over(trial: PlannedTrial) -> bool:
    return trial.fill > 1.0


@pytest.mark.parametrize("model", [*GPU_MODELS, *CPU_MODELS], ids=lambda model: model.name)
def test_a_model_is_as_large_as_its_name_says(model: object) -> None:
    assert isinstance(model, type(CPU_MODELS[0]))
    assert model.hidden_size % model.num_attention_heads == 0
    unit = {"m": 1e6, "b": 1e9}.get(model.name[-1])
    if unit:
        named = float(model.name.split("-")[1][:-1]) * unit
        assert model.parameters == pytest.approx(named, rel=0.08)
