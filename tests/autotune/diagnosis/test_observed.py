"""Which earlier runs are believed, and why the others are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.diagnosis.observed import ObservedRun, observed, unusable
from autotune.diagnosis.subject import subject_of_run
from evaluators.run_log import read_runs
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from tests.evaluators.run_log.logs import megatron, torchtitan, written

STEADY = [9.0, *[6.0, 6.02, 5.98] * 4]


def read(folder: Path, text: str, **options: object) -> ObservedRun:
    (run,) = read_runs(written(folder, text))
    return observed(run, subject_of_run(run, **options))  # type: ignore[arg-type]


def refusal(folder: Path, text: str, **options: object) -> str:
    with pytest.raises(InvalidInput) as refused:
        read(folder, text, **options)
    return refused.value.reason


def test_a_steady_run_is_an_observation(tmp_path: Path) -> None:
    found = read(tmp_path, megatron(STEADY))
    assert found.run.iteration_time_s == 6.0
    assert (found.run.state, found.run.source) == ("ok", "run.log")
    assert found.run.strategy.num_nodes == 8
    assert (found.transformer.num_layers, found.machine.name) == (32, "dgx-h100")


def test_halves_that_disagree_are_refused(tmp_path: Path) -> None:
    assert "first and second half differ by 5.0 %, more than the 3.0 % of noise" in refusal(
        tmp_path, megatron([6.0] * 10 + [6.3] * 9)
    )
    assert read(tmp_path, megatron([6.0] * 10 + [6.1] * 9)).run.iteration_time_s == 6.05


def test_another_model_than_stated_is_refused(tmp_path: Path) -> None:
    stated = {"transformer": load_model("llama-3-70b")}
    reason = refusal(tmp_path, megatron(STEADY), **stated)
    assert reason == "it states num_layers 32, and llama-3-70b has 80"
    reason = refusal(tmp_path, torchtitan([7000.0] * 9), **stated)
    assert "its trainer counts 8,030,261,248 parameters, and llama-3-70b has" in reason
    uncounted = torchtitan([7000.0] * 9).replace(" size: 8,030,261,248 total parameters", "")
    reason = refusal(tmp_path, uncounted, **stated)
    assert reason == "it trains llama-3-8b, which is not llama-3-70b"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (megatron([6.0, 6.0]), "1 iterations after the warm-up are too few"),
        (megatron([0.006] * 9), "an iteration in 0.006 s is impossible"),
        (megatron(STEADY, tflops=2000.0), "its rate and its times contradict each other"),
        (megatron(STEADY, lines=["  model_name ... llama-3-8b-lora"]), "(LoRA)"),
        (megatron(STEADY, changed={"num_layers": None}), "it lacks the model: add --model"),
        (megatron(STEADY, changed={"world_size": 4, "data_parallel_size": 2}), "nodes of 4 GPUs"),
    ],
    ids=["short", "impossible", "contradiction", "adapters", "no model", "part of a node"],
)
def test_what_cannot_be_trusted_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    assert reason in refusal(tmp_path, text)


def test_a_printed_rate_of_another_convention_is_believed(tmp_path: Path) -> None:
    ours = read(tmp_path, megatron(STEADY))
    strategy, machine = ours.run.strategy, ours.machine
    flops = ours.transformer.hardware_flops(strategy.global_batch_size(8), "full")
    printed = flops / 6.0 / strategy.world_size(machine.gpus_per_node) / 1e12
    assert read(tmp_path, megatron(STEADY, tflops=printed)).run.iteration_time_s == 6.0


def test_a_layout_that_cannot_run_is_no_observation(tmp_path: Path) -> None:
    ours = read(tmp_path, megatron(STEADY))
    eleven = replace(ours.run.strategy, pipeline_parallel=3)
    wrong = ours.run.model_copy(update={"strategy": eleven})
    problem = unusable(wrong, ours.transformer, ours.machine)
    assert problem is not None
    assert problem.field == "strategy"
    timeless = ours.run.model_copy(update={"state": "oom"})
    problem = unusable(timeless, ours.transformer, load_machine("dgx-h100"))
    assert problem is not None
    assert problem.field == "iteration_time_s"
