"""Megatron-LM's ready adapter: what it writes goes through Megatron-LM's own options, and, where
`AUTOTUNE_MEGATRON_LM` names a checkout, through its own parser and validation; what it reads are
lines as that commit's sources print them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.rendering import StartPlan, TrainerStart, names_of, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.adapter import megatron_on_cpu
from tests.evaluators.adapter.megatron_lm import (
    COMMIT,
    RECORDED,
    answers,
    layers_of_arguments,
    parsed,
    strategy_of_arguments,
)
from tests.evaluators.adapter.random_strategies import (
    batches_of,
    random_strategies,
    two_accumulations,
)
from tests.evaluators.adapter.samples import MACHINE, MODEL
from tests.evaluators.adapter.samples import strategy as two_ranks
from tests.evaluators.frameworks.strategies import BASE
from tests.patience import PATIENCE_S

NODES = load_machine("dgx-b200")
BLACKWELL = 10
GPT = load_model("gpt-22b")
LLAMA = load_model("llama-3-70b")
SHORT = replace(GPT, num_layers=14)
STUDY = [load_model(name) for name in ("gpt-175b", "gpt-1t")]
OF_EXPERTS = [load_model(name) for name in ("qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b")]
HYBRID = [load_model(name) for name in ("nemotron-h-8b", "nemotron-3-nano-30b-a3b")]
CHECKOUT = os.environ.get("AUTOTUNE_MEGATRON_LM", "")
WANTED = {GPT: 70, LLAMA: 70, SHORT: 60, **dict.fromkeys((*STUDY, *OF_EXPERTS, *HYBRID), 30)}
of_checkout = pytest.mark.skipif(
    not CHECKOUT, reason=f"AUTOTUNE_MEGATRON_LM names no checkout of Megatron-LM ({COMMIT[:8]})"
)


@pytest.fixture(scope="module")
def adapter() -> Adapter:
    return load_adapter("megatron-lm")


@pytest.fixture(scope="module")
def cases(adapter: Adapter) -> list[tuple[Transformer, Strategy]]:
    return [
        (model, strategy)
        for model, wanted in WANTED.items()
        for strategy in random_strategies(adapter, model, NODES, wanted)
    ]


def _start(adapter: Adapter, model: Transformer, strategy: Strategy) -> TrainerStart:
    plan = StartPlan(transformer=model, machine=NODES, strategy=strategy, iterations=8)
    return start_of(adapter, plan)


def _words(start: TrainerStart) -> list[str]:
    hybrid = "--hybrid-layer-pattern" in start.words
    assert start.words[:3] == ("python3", "-m", "pretrain_hybrid" if hybrid else "pretrain_gpt")
    return list(start.words[3:])


def test_strategies_come_back_from_the_recorded_options(
    adapter: Adapter, cases: list[tuple[Transformer, Strategy]]
) -> None:
    for model, strategy in cases:
        args = parsed(_words(_start(adapter, model, strategy)))
        found = strategy_of_arguments(args, NODES, num_nodes=strategy.num_nodes)
        assert found == strategy
        assert args["num_layers"] == model.num_layers
        layers = layers_of_arguments(args)
        assert layers == {name: getattr(model, name) for name in layers}
    names = adapter.varied.difference(adapter.own_names)
    varied = [{getattr(strategy, name) for _, strategy in cases} for name in names]
    assert min(map(len, varied)) > 1  # the strategies are of every kind


@of_checkout
def test_strategies_come_back_from_its_own_validation(
    adapter: Adapter, cases: list[tuple[Transformer, Strategy]]
) -> None:
    requests = []
    for model, strategy in cases:
        start = _start(adapter, model, strategy)
        ranks = strategy.world_size(NODES.gpus_per_node)
        requests.append(
            {
                "words": _words(start),
                "variables": start.variables,
                "world_size": ranks,
                "generation": BLACKWELL,
            }
        )
    for (model, strategy), args in zip(cases, answers(CHECKOUT, requests), strict=True):
        assert "error" not in args, (model.name, strategy.short(), args["error"])
        layers = layers_of_arguments(args)
        assert layers == {name: getattr(model, name) for name in layers}
        found = strategy_of_arguments(args, NODES, num_nodes=strategy.num_nodes)
        assert found == strategy
        replicated = strategy.data_parallel(NODES.gpus_per_node) * strategy.context_parallel > 1
        assert args["overlap_grad_reduce"] is replicated
        assert args["overlap_param_gather"] is (replicated and strategy.zero_stage > 0)
        assert args["cross_entropy_loss_fusion"]
        assert args["manual_gc"]
    options = answers(CHECKOUT, [])
    for option, facts in RECORDED["options"].items():
        known = {k: v for k, v in options[option].items() if v is not None} | {"type": None}
        assert known == facts | {"type": None}, option


@of_checkout
def test_two_batches_of_one_start_are_those_of_its_own_schedule(
    adapter: Adapter, cases: list[tuple[Transformer, Strategy]]
) -> None:
    plans = [two_accumulations(model, NODES, strategy) for model, strategy in cases]
    shared = [plan for plan in plans if plan is not None]
    requests = []
    for plan in shared:
        start = start_of(adapter, plan)
        ranks = plan.strategy.world_size(NODES.gpus_per_node)
        requests.append(
            {
                "words": _words(start),
                "variables": start.variables,
                "world_size": ranks,
                "generation": BLACKWELL,
            }
        )
    assert len(requests) > 50
    for plan, args in zip(shared, answers(CHECKOUT, requests), strict=True):
        assert "error" not in args, (plan.strategy.short(), args["error"])
        assert args["batches"] == batches_of(plan)


def test_two_batches_are_scheduled_in_tokens(adapter: Adapter) -> None:
    strategy = replace(BASE, gradient_accumulation_steps=8)
    plan = two_accumulations(GPT, NODES, strategy)
    assert plan is not None
    args = parsed(_words(start_of(adapter, plan)))
    first, last = (each.global_batch_size(NODES.gpus_per_node) for each in plan.strategies)
    tokens = 5 * first * GPT.seq_length
    assert args["step_batch_size_schedule"] == f"0:{first} {tokens}:{last}"
    assert args["train_samples"] == 5 * first + 7 * last
    assert args["train_iters"] is args["global_batch_size"] is None
    # A line says how large its batch was.
    line = LOG.splitlines()[-1].replace("iteration        2", "iteration        {step}")
    parts = [
        StartPart(names_of(adapter, GPT, NODES, each), count)
        for each, count in zip(plan.strategies, (5, 7), strict=True)
    ]
    for step, batch, differs in ((5, first, None), (6, first, last), (6, last, None)):
        log = AdapterLog(adapter.read, [parts])
        text = line.replace("global batch size:    32", f"global batch size: {batch}")
        log.take(text.format(step=step))
        found = log.starts[0].figures.differs
        assert found == (differs and ("global_batch_size", differs, batch))


def test_fsdp_starts_without_what_tensor_parallelism_demands(adapter: Adapter) -> None:
    sharded = replace(BASE, pipeline_parallel=1, zero_stage=3)
    hopper = load_machine("dgx-h100")
    for strategy, machine, connections in (
        (sharded, NODES, "8"),
        (BASE, NODES, "32"),
        (BASE, hopper, "1"),
        (replace(BASE, tensor_parallel=1), hopper, "32"),
    ):
        plan = StartPlan(transformer=GPT, machine=machine, strategy=strategy, iterations=8)
        variables = start_of(adapter, plan).variables
        assert variables["CUDA_DEVICE_MAX_CONNECTIONS"] == connections
    with pytest.raises(InvalidInput, match="not written for pipelines"):
        _start(adapter, GPT, replace(BASE, zero_stage=3))


@pytest.mark.parametrize(
    ("replicas", "zero_stage", "settings", "reduced", "gathered"),
    [
        (2, 0, (), True, False),  # nothing is sharded, so nothing has to be gathered
        (2, 1, (), True, True),
        (2, 3, (), True, True),
        (1, 1, (), False, False),
        (2, 1, (("overlap", False),), False, False),
    ],
)
def test_data_parallel_waits_are_overlapped_unless_switched_off(
    adapter: Adapter,
    replicas: int,
    zero_stage: int,
    settings: tuple[tuple[str, bool], ...],
    reduced: bool,
    gathered: bool,
) -> None:
    tensor = NODES.gpus_per_node // replicas
    strategy = replace(
        BASE,
        num_nodes=1,
        tensor_parallel=tensor,
        pipeline_parallel=1,
        zero_stage=zero_stage,
        settings=settings,
    )
    args = parsed(_words(_start(adapter, GPT, strategy)))
    assert (args["overlap_grad_reduce"], args["overlap_param_gather"]) == (reduced, gathered)


@pytest.mark.parametrize(("printed", "settings", "noticed"), [
    ("True", (), False),
    ("False", (), True),
    ("True", (("overlap", False),), True),
])  # fmt: skip
def test_an_overlap_that_it_switched_by_itself_is_noticed(
    adapter: Adapter, printed: str, settings: tuple[tuple[str, bool], ...], noticed: bool
) -> None:
    strategy = replace(BASE, settings=settings)
    assert strategy.data_parallel(NODES.gpus_per_node) > 1
    log = AdapterLog(adapter.read, [[StartPart(names_of(adapter, GPT, NODES, strategy))]])
    log.take(f"[start 1 rank 0 9.000000s]   overlap_grad_reduce ................ {printed}")
    assert bool(log.starts[0].figures.differs) is noticed


@pytest.mark.parametrize(
    ("model", "precision", "flash_attention", "backend"),
    [
        (load_model("deepseek-v3"), "bf16", True, "auto"),  # FlashAttention 2 lacks its widths
        (LLAMA, "bf16", True, "auto"),
        (LLAMA, "bf16", False, "unfused"),
        (LLAMA, "fp32", True, "unfused"),
    ],
)
def test_transformer_engine_chooses_the_fused_attention(
    model: Transformer, precision: Any, flash_attention: bool, backend: str, adapter: Adapter
) -> None:
    strategy = replace(
        BASE, sequence_parallel=True, precision=precision, flash_attention=flash_attention
    )
    words = _words(_start(adapter, model, strategy))
    assert words[words.index("--attention-backend") + 1] == backend


def test_stages_that_differ(adapter: Adapter) -> None:
    words = _words(_start(adapter, SHORT, replace(BASE, pipeline_parallel=5)))
    layout = words[words.index("--pipeline-model-parallel-layout") + 1]
    assert layout == "Ettt|(ttt|)*3ttL"


def test_the_blocks_of_a_hybrid_are_spread_over_its_stages(adapter: Adapter) -> None:
    words = _words(_start(adapter, HYBRID[0], replace(BASE, pipeline_parallel=4)))
    pattern = words[words.index("--hybrid-layer-pattern") + 1]
    stages = pattern.split("|")
    assert [len(stage) for stage in stages] == [13] * 4
    assert [stage.count("M") for stage in stages] == [6] * 4
    assert [stage.count("*") for stage in stages] == [1] * 4


# As megatron/training/{training,arguments}.py and megatron/training/utils/common_utils.py of COMMIT
# format them: `training_log`, `report_memory`, `_print_args`.
LOG = """\
[start 1 rank 0 9.000000s] using world size: 16, data-parallel size: 2, context-parallel size: 1, \
hierarchical context-parallel sizes: None, tensor-model-parallel size: 2, \
pipeline-model-parallel size: 4
[start 1 rank 0 9.100000s]   micro_batch_size ................................ 2
[start 1 rank 0 9.100000s]   sequence_parallel ............................... {sequence}
[start 1 rank 15 30.000000s]  [2026-08-22 10:00:01.000000] iteration        1/       8 | \
consumed samples:           32 | elapsed time per iteration (ms): 21034.7 | \
learning rate: 1.000000E-04 | global batch size:    32 | lm loss: 1.093411E+01 | \
loss scale: 1.0 | grad norm: 2.104 | number of skipped iterations:   0 | \
number of nan iterations:   0 |
[start 1 rank 8 30.100000s] [Rank 8] (after 1 iterations) memory (MB) | allocated: 4096.00 | \
max allocated: 5120.00 | reserved: 6144.00 | max reserved: 6144.00
[start 1 rank 15 31.300000s]  [2026-08-22 10:00:02.000000] iteration        2/       8 | \
consumed samples:           64 | elapsed time per iteration (ms): 1234.5 | \
learning rate: 1.000000E-04 | global batch size:    32 | loss scale: 4096.0 | \
number of skipped iterations:   1 | number of nan iterations:   0 |
"""


def _read(adapter: Adapter, text: str) -> AdapterLog:
    log = AdapterLog(adapter.read, [[StartPart(names_of(adapter, GPT, NODES, BASE))]])
    for line in text.splitlines():
        log.take(line)
    return log


def test_what_it_changed_by_itself_is_noticed(adapter: Adapter) -> None:
    switched_on = _read(adapter, LOG.format(sequence="True")).starts[0].figures
    assert switched_on.differs == ("sequence_parallel", False, "True")
    smaller = LOG.format(sequence="False").replace(
        "global batch size:    32", "global batch size: 16"
    )
    assert _read(adapter, smaller).starts[0].figures.differs == ("global_batch_size", 32, 16)


def test_a_refusal_is_reported_in_its_own_words(adapter: Adapter) -> None:
    cause = _read(adapter, (
        "[start 1 rank 3 9.000000s] Traceback (most recent call last):\n"
        "[start 1 rank 3 9.000000s] AssertionError: FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 "
        "or unset.\n"
        "[start 1 rank 3 9.100000s] ended with exit code 1\n"
    )).cause  # fmt: skip
    assert cause is not None
    assert "FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1" in cause.error


@pytest.mark.skipif(
    not any(Path(CHECKOUT, "megatron/core/datasets").glob("helpers_cpp*.so")) if CHECKOUT else True,
    reason="AUTOTUNE_MEGATRON_LM names no checkout whose helpers_cpp was compiled",
)
@pytest.mark.parametrize(
    "changed",
    [
        {"zero_stage": 1, "micro_batch_size": 2, "gradient_accumulation_steps": 2},
        {"pipeline_parallel": 2, "virtual_stages": 2, "gradient_accumulation_steps": 4},
        {"tensor_parallel": 2, "activation_checkpointing": "full"},
        {"gradient_accumulation_steps": 4, "first_accumulation": 2},
    ],
    ids=["ZeRO 1", "virtual stages", "tensor parallel", "two batches"],
)
def test_it_trains_and_is_read(changed: dict[str, Any], adapter: Adapter, tmp_path: Path) -> None:
    first = changed.pop("first_accumulation", None)
    strategy = two_ranks(precision="bf16", **changed)
    model = replace(MODEL, gated_mlp=True)
    plan = StartPlan(
        transformer=model,
        machine=MACHINE,
        strategy=strategy,
        iterations=4,
        out=str(tmp_path),
        first_accumulation=first,
        first_iterations=2 if first else 0,
    )
    start = start_of(adapter, plan)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = strategy.world_size(MACHINE.gpus_per_node)
    running = []
    for rank in range(ranks):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
        own = {name: str(value) for name, value in place.items()}
        module = (sys.executable, "-m", megatron_on_cpu.__name__, CHECKOUT)
        with (tmp_path / f"{rank}.log").open("w") as file:
            running.append(
                subprocess.Popen(
                    (*module, *start.words[3:]),
                    env={**os.environ, **start.variables, **own, "MASTER_ADDR": "127.0.0.1"},
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
    codes = [process.wait(timeout=PATIENCE_S) for process in running]
    parts = [StartPart(names_of(adapter, model, MACHINE, each), 2) for each in plan.strategies]
    log = AdapterLog(adapter.read, [parts])
    for rank in range(ranks):
        for line in (tmp_path / f"{rank}.log").read_text(errors="replace").splitlines():
            log.take(f"[start 1 rank {rank} 1.000000s] {line}")
    assert codes == [0] * ranks, log.cause
    figures = log.starts[0].figures
    assert [i.step for i in figures.iterations] == [1, 2, 3, 4]
    assert all(i.loss and 6 < i.loss < 7 for i in figures.iterations)  # log(512) = 6.24
    assert figures.ranks[0].peak_memory_gib
    assert figures.differs is None
