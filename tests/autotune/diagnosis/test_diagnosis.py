"""Logs with one planted fault each, and healthy ones."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from autotune.diagnosis.causes import LOOKS, WITHOUT_LAYOUT, cause_rules
from autotune.schemas.diagnoses import Diagnosis
from evaluators.run_log import read_run
from search_spaces.errors import InvalidInput
from server.diagnosis import diagnosis_of
from tests.evaluators.run_log.logs import GPU, bundled, megatron, torchtitan, written

EXPECTED_S = 6.0
"""About what is predicted of the layout of `logs.megatron`."""
BUNDLED: dict[str, Any] = {
    "model": "llama-3-8b",
    "machine": "dgx-h100",
    "nodes": 8,
    "baseline": "tp=2,mbs=1,gbs=512,zero=1,sp=on,checkpointing=none",
}


def around(time_s: float = EXPECTED_S, *, count: int = 60) -> list[float]:
    """Times of a healthy run, with a spread of 1 %."""
    random = Random(1)
    return [random.gauss(time_s, 0.01 * time_s) for _ in range(count)]


def slow_every(period: int, *, factor: float = 3.0) -> list[float]:
    return [factor * t if n % period == period - 1 else t for n, t in enumerate(around())]


def drifting(by: float = 0.3) -> list[float]:
    return [t * (1.0 + by * n / 60) for n, t in enumerate(around())]


def unsteady() -> list[float]:
    random = Random(2)
    return [EXPECTED_S * random.uniform(0.85, 1.1) for _ in range(60)]


def answer(folder: Path, text: str, **options: Any) -> Diagnosis:
    return diagnosis_of(read_run(written(folder, text)), **options)


EVERY_20 = range(20, 61, 20)
PLANTED: dict[str, tuple[str, str, dict[str, Any]]] = {
    # The bundled trainer.
    "spikes": ("spikes", bundled(slow_every(10)), BUNDLED),
    "drift": ("drift", bundled(drifting()), BUNDLED),
    "unsteady": ("unsteady times", bundled(unsteady()), BUNDLED),
    "bubble of 8 stages": (
        "pipeline bubble",
        bundled(around(9.0)),
        BUNDLED | {"baseline": "tp=2,pp=8,mbs=8,gbs=512,zero=1,sp=on,checkpointing=none"},
    ),
    "fp32": (
        "fp32",
        bundled(around(45.0)),
        BUNDLED | {"baseline": f"{BUNDLED['baseline']},precision=fp32"},
    ),
    "no flash attention": (
        "no FlashAttention",
        bundled(around(12.0)),
        BUNDLED | {"baseline": f"{BUNDLED['baseline']},flash=off"},
    ),
    "tensor parallel over nodes": (
        "tensor parallelism beyond the node",
        bundled(around(60.0)),
        BUNDLED | {"baseline": "tp=32,mbs=1,gbs=512,zero=1,sp=on,checkpointing=none"},
    ),
    "recomputation": (
        "needless recomputation",
        bundled(around(7.6)),
        BUNDLED | {"baseline": "tp=2,mbs=1,gbs=512,zero=1,sp=on,checkpointing=full"},
    ),
    "sockets": (
        "network",
        bundled(around(20.0), lines=["h1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1"]),
        BUNDLED,
    ),
    "network by exclusion": ("network", bundled(around(20.0)), BUNDLED),
    # Megatron-LM and torchtitan.
    "batch": (
        "micro-batches disagree",
        megatron(around(), lines=["CONFIG: micro_batches=1 micro_batch_size=4"]),
        {},
    ),
    "fp32 in Megatron": ("fp32", megatron(around(45.0), changed={"bf16": False}), {}),
    "checkpoints": (
        "checkpoints",
        megatron(
            [4 * t if n + 1 in EVERY_20 else t for n, t in enumerate(around())],
            between={n: ["saving checkpoint at iteration 20 to /ckpt"] for n in EVERY_20},
        ),
        {},
    ),
    "evaluation": (
        "evaluation",
        megatron(
            [4 * t if n + 1 in EVERY_20 else t for n, t in enumerate(around())],
            between={n: [" validation loss at iteration 20 | lm loss: 3"] for n in EVERY_20},
        ),
        {},
    ),
    "data": (
        "waiting for data",
        megatron(
            around(8.0),
            between={n: ["    batch-generator ....: (1900.10, 2050.30)"] for n in range(2, 60)},
        ),
        {},
    ),
    "overlaps": (
        "overlaps off",
        megatron(
            around(0.7),
            changed={
                "overlap_grad_reduce": False,
                "overlap_param_gather": False,
                "global_batch_size": 32,
            },
        ),
        {},
    ),
    "launch blocking": (
        "launch blocking",
        megatron(around(16.0), lines=["export CUDA_LAUNCH_BLOCKING=1"]),
        {},
    ),
    "missing flash-attn": (
        "no FlashAttention",
        torchtitan([2500.0] * 30, lines=["WARNING: flash_attn is not installed, using eager"]),
        {},
    ),
    "allocator": (
        "allocator",
        torchtitan(
            [2800.0] * 30,
            lines=["[titan] WARNING - 3 CUDA memory allocation retries."] * 8,
        ),
        {},
    ),
    "no compilation": (
        "not compiled",
        torchtitan([5600.0] * 30, lines=["  compile.enable: false", '  "compile": false']),
        {},
    ),
}


def test_twenty_planted_faults_are_found(tmp_path: Path) -> None:
    found = {
        name: [each.name for each in answer(tmp_path, text, **options).causes]
        for name, (_, text, options) in PLANTED.items()
    }
    first = [name for name, (cause, *_) in PLANTED.items() if found[name][:1] == [cause]]
    among = [name for name, (cause, *_) in PLANTED.items() if cause in found[name][:3]]
    wrong = {name: found[name] for name in PLANTED if name not in first}
    assert len(PLANTED) == 20
    assert len(first) >= 16, wrong
    assert len(among) >= 19, wrong


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (megatron(around()), {}),
        (bundled(around()), BUNDLED),
        (torchtitan([6500.0] * 30), {}),
        (megatron([30.0, 9.0, *around()]), {}),
    ],
    ids=["megatron", "bundled", "torchtitan", "warm-up"],
)
def test_a_healthy_run_is_called_healthy(
    text: str, options: dict[str, Any], tmp_path: Path
) -> None:
    found = answer(tmp_path, text, **options)
    assert found.verdict == "healthy", found.causes
    assert found.expected is not None
    assert found.slower == pytest.approx(1.0, abs=0.35)
    assert found.command.startswith("autotune submit --model llama-3-8b --seq-length 8192")


def test_experts_that_are_not_distributed_are_a_cause(tmp_path: Path) -> None:
    mixtral = {"num_experts": 8, "moe_router_topk": 2, "padded_vocab_size": 32000}
    layout = {"world_size": 16, "data_parallel_size": 4, "tensor_model_parallel_size": 4}
    changed = {**mixtral, **layout, "seq_length": 4096, "global_batch_size": 128}
    found = answer(tmp_path, megatron(around(14.0), changed=changed))
    [cause] = [each for each in found.causes if each.name == "experts on every GPU"]
    assert "EP" in cause.sentence
    assert cause in found.causes[:2]


def test_a_printed_rate_is_compared_with_ours(tmp_path: Path) -> None:
    plain = answer(tmp_path, megatron(around()))
    model = plain.run.model_tflops_per_gpu
    assert model is not None
    agreed = answer(tmp_path, megatron(around(), tflops=model)).run.printed_sentence
    assert "model FLOPs, 1.00 times the model FLOPs by our count" in agreed
    lines = ["CONFIG: micro_batches=1 micro_batch_size=4"]
    batch = answer(tmp_path, megatron(around(), lines=lines, tflops=model)).run.printed_sentence
    assert "of the configured batch" in batch
    assert f"Only {model / 4:.0f} TFLOP/s" in batch


def test_few_iterations_are_too_short(tmp_path: Path) -> None:
    assert answer(tmp_path, megatron([9.0, 7.0, 6.0])).verdict == "too short"


def test_without_a_machine_it_is_unknown_and_says_so(tmp_path: Path) -> None:
    found = answer(tmp_path, bundled(around()), model="llama-3-8b")
    assert (found.verdict, found.missing) == ("unknown", ["machine", "nodes"])
    assert "No prediction without the machine or the number of nodes." in found.sentence


def test_without_a_machine_a_layout_has_gpus_and_no_nodes(tmp_path: Path) -> None:
    found = answer(tmp_path, megatron(around()).replace(GPU, ""))
    assert found.missing == ["machine"]
    assert f" · {found.gpus} GPUs · " in found.layout
    assert "node" not in found.layout


def test_rates_without_a_batch_are_refused(tmp_path: Path) -> None:
    lines = torchtitan([7000.0] * 5).splitlines()
    with pytest.raises(InvalidInput, match="times follow only with"):
        answer(tmp_path, "\n".join(line for line in lines if "tps" in line))


def test_impossible_times_give_no_prediction(tmp_path: Path) -> None:
    found = answer(tmp_path, megatron(around(0.05)))
    assert (found.expected, found.verdict) == (None, "unknown")


def test_every_cause_can_be_looked_for() -> None:
    looks = [kind.look for kind in cause_rules() if kind.look]
    assert sorted(looks) == sorted(LOOKS)
    assert set(WITHOUT_LAYOUT) <= set(LOOKS)
    for kind in cause_rules():
        assert sum(map(bool, (kind.look, kind.sign, kind.setting))) == 1, kind.name


def test_the_command_repeats_the_layout(tmp_path: Path) -> None:
    changed = {"recompute_granularity": "full", "recompute_method": "uniform"}
    found = answer(tmp_path, megatron(around(8.0), changed=changed))
    assert "--seq-length 8192 --adapter megatron-lm" in found.command
    baseline = found.command.rpartition(" ")[2]
    again = answer(
        tmp_path, bundled(around(8.0)), **(BUNDLED | {"baseline": f"{baseline},gbs=512"})
    )
    assert again.strategy == found.strategy


def test_spikes_do_not_explain_the_median(tmp_path: Path) -> None:
    times = [4 * t if n % 10 == 9 else t for n, t in enumerate(around(20.0))]
    found = answer(tmp_path, megatron(times))
    assert "spikes" in [each.name for each in found.causes]
    assert "would still be" in found.sentence or "network" in found.sentence


def test_an_assumed_sequence_length_is_named(tmp_path: Path) -> None:
    found = answer(tmp_path, bundled(around()), **BUNDLED)
    assert found.assumed[0] == "sequences of 8,192 tokens"
