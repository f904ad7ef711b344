"""The layout that a campaign measures first."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.baseline import baseline_of
from autotune.baseline.megatron import INERT
from autotune.prediction.campaign import check_campaign
from autotune.prediction.plan import plan
from autotune.schemas.plans import PlannedStrategy
from autotune.schemas.requests import CampaignCreate
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, capabilities_of_adapter, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.dimensions import Scalar
from search_spaces.errors import InvalidInputs
from search_spaces.fields import as_table
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune import records

MEGATRON_OPTIONS = Path(__file__).parents[2] / "evaluators/adapter/megatron_lm_options.json"
LINE = (
    "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4 --micro-batch-size 1 "
    "--global-batch-size 512 --use-distributed-optimizer --recompute-activations --lr 1e-4 --bf16"
)

BLOCK = "--recompute-method block --recompute-num-layers"
SHARDING = "--data-parallel-sharding-strategy"


def _of_megatron_lm(model: Transformer, machine: Machine, strategy: Strategy) -> str:
    plan = StartPlan(transformer=model, machine=machine, strategy=strategy, iterations=8)
    return shlex.join(start_of(load_adapter("megatron-lm"), plan).words[3:])


def request_175b(baseline: Any = None, **changes: Any) -> CampaignCreate:
    """175B on 16 Frontier nodes at a batch of 512."""
    fields = {"model": "gpt-175b", "nodes": 16, "space": {"global_batch_size": 512}}
    return records.request(**fields | {"baseline": baseline} | changes)


def found(baseline: Any = None, **changes: Any) -> Strategy:
    request = request_175b(baseline, **changes)
    strategy = baseline_of(request, check_campaign(request))
    assert strategy is not None
    return strategy


def planned(baseline: Any = None, **changes: Any) -> tuple[PlannedStrategy, str]:
    """The prediction of the baseline in the plan, and its sentence."""
    request = request_175b(baseline, **changes)
    answer = plan(request, check_campaign(request))
    assert answer.baseline is not None
    return answer.baseline, answer.baseline_sentence


def refusal(baseline: Any, **changes: Any) -> tuple[str, str]:
    """Why it is refused, and what would be valid."""
    with pytest.raises(InvalidInputs) as refused:
        check_campaign(request_175b(baseline, **changes))
    first = refused.value.problems[0]
    assert first.field == "baseline"
    return first.reason, first.valid


def test_a_customary_layout_has_the_fewest_stages_that_fit() -> None:
    strategy = found()
    assert (strategy.tensor_parallel, strategy.sequence_parallel) == (4, True)
    assert (strategy.micro_batch_size, strategy.zero_stage, strategy.num_nodes) == (1, 1, 16)
    assert strategy.global_batch_size(8) == 512
    recomputed = f"sp=on,ckpt={strategy.activation_checkpointing}"
    half, _ = planned(f"tp=4,pp={strategy.pipeline_parallel // 2},zero=1,{recomputed}")
    assert half.fit_probability < 0.5
    h100 = {"machine": "dgx-h100", "nodes": 8}
    llama = found(model="llama-3-70b", **h100)
    assert (llama.tensor_parallel, llama.activation_checkpointing) == (4, "none")
    small = found(model="llama-3-8b", **h100)
    assert (small.tensor_parallel, small.sequence_parallel) == (1, False)


@pytest.mark.parametrize(
    ("model", "nodes", "tensor", "experts"),
    [
        ("deepseek-v2-lite", 1, 1, 8),
        ("qwen3-30b-a3b", 2, 1, 16),
        ("glm-4.5", 16, 2, 16),
        ("deepseek-v3", 32, 2, 32),
    ],
)
def test_a_customary_layout_of_experts_is_that_of_recipes(
    model: str, nodes: int, tensor: int, experts: int
) -> None:
    strategy = found(model=model, machine="dgx-h100", nodes=nodes)
    assert (strategy.tensor_parallel, strategy.expert_tensor_parallel) == (tensor, 1)
    assert abs(math.log2(strategy.expert_parallel / experts)) < 0.5
    assert strategy.sequence_parallel == (tensor > 1)


def test_a_customary_layout_leaves_the_headroom_where_any_does() -> None:
    """What recomputes as little as fits leaves 10 GiB; recomputation leaves what is asked for."""
    (plain, _), (roomy, _) = planned(), planned(min_headroom_gib=25.0)
    assert min(plain.fit_probability, roomy.fit_probability) > 0.5
    assert plain.strategy.activation_checkpointing == "none"
    assert roomy.strategy.activation_checkpointing == "full"
    assert roomy.memory_gib <= 64.0 - 25.0 < plain.memory_gib
    own, sentence = planned("tp=8,pp=4,mbs=1,zero=1", min_headroom_gib=25.0)
    room = f"fits and leaves 25 GiB free with a probability of {own.fit_probability:.0%} only"
    assert sentence.endswith(f"batch 512; {room}")
    only = {"global_batch_size": 512, "num_nodes": [2, 16], "tensor_parallel": 8}
    tight, _ = planned(nodes=16, pool_nodes=2, min_headroom_gib=25.0, model="gpt-22b", space=only)
    assert tight.strategy.num_nodes == 2


def test_a_customary_layout_respects_space_heads_and_pool() -> None:
    odd = {"num_layers": 96, "hidden_size": 12288, "num_attention_heads": 6}
    assert found(model=odd).tensor_parallel == 2
    narrow = {"preset": "table-v", "tensor_parallel": [2, 4]}
    strategy = found(space=narrow, pool_nodes=12)
    assert (strategy.tensor_parallel, strategy.micro_batch_size) == (4, 4)
    assert strategy.num_nodes == 12


def test_what_a_layout_leaves_open_is_as_in_the_space() -> None:
    space = {"global_batch_size": 512, "precision": "fp16", "zero_stage": 0}
    strategy = found("tp=4, PP=16 mbs=2", space=space)
    given = (strategy.tensor_parallel, strategy.pipeline_parallel, strategy.micro_batch_size)
    assert given == (4, 16, 2)
    assert (strategy.precision, strategy.zero_stage, strategy.num_nodes) == ("fp16", 0, 16)
    assert strategy.gradient_accumulation_steps == 128


def test_a_layout_need_not_be_of_the_space_and_may_be_too_big() -> None:
    layout = "tp=8,pp=1,mbs=3,ckpt=none,zero=0"
    own, sentence = planned(layout, space={"preset": "table-v"})
    assert own.fit_probability < 0.5
    assert sentence.startswith("TP 8 · PP 1 · MBS 3 · GAS 10")
    assert ": your own layout, batch 480; fits with a probability of 0% only" in sentence
    assert own.strategy.activation_checkpointing == "none"
    assert own.strategy.gradient_accumulation_steps == 10, "the space's fullest batch"


def test_none_does_without_and_a_strategy_is_taken_as_it_is() -> None:
    request = request_175b("none")
    assert baseline_of(request, check_campaign(request)) is None
    own = records.strategy(tp=8, pp=16, gas=512, nodes=16)
    assert found(as_table(own)) == own


def test_a_megatron_line_is_read_with_megatrons_defaults() -> None:
    strategy = found(LINE)
    assert (strategy.tensor_parallel, strategy.pipeline_parallel) == (8, 4)
    assert (strategy.micro_batch_size, strategy.gradient_accumulation_steps) == (1, 128)
    assert (strategy.zero_stage, strategy.activation_checkpointing) == (1, "selective")
    bare = found("torchrun --nnodes=8 \\\n pretrain_gpt.py --tensor-model-parallel-size=8 --bf16")
    assert (bare.num_nodes, bare.pipeline_parallel, bare.zero_stage) == (8, 1, 0)
    assert bare.activation_checkpointing == "none"
    line = "--deepspeed --zero-stage 3 --checkpoint-activations --micro-batch-size 2 --fp16"
    deepspeed = found(line)
    assert (deepspeed.zero_stage, deepspeed.activation_checkpointing) == (3, "full")
    chunks = found(f"{LINE} --num-layers-per-virtual-pipeline-stage 12")
    assert chunks.virtual_stages == 2


MEGATRON_FSDP = f"--use-megatron-fsdp {SHARDING} optim_grads_params"
READ: list[tuple[str, dict[str, Scalar]]] = [
    ("--micro-batch-size 2", {"precision": "fp32", "zero_stage": 0, "micro_batch_size": 2}),
    ("--bf16 false --fp16", {"precision": "fp16"}),
    (
        "--bf16 --sequence_parallel false --tensor_model_parallel_size 8",
        {"sequence_parallel": False},
    ),
    ("--bf16 --sequence_parallel true --tensor_model_parallel_size 8", {"sequence_parallel": True}),
    ("--bf16 --sequence-parallel --no-sequence-parallel", {"sequence_parallel": False}),
    ("--bf16 --sequence-parallel --tensor-model-parallel-size 1", {"sequence_parallel": False}),
    ("--bf16 --use_distributed_optimizer false", {"zero_stage": 0}),
    ("--bf16 --use_distributed_optimizer true", {"zero_stage": 1}),
    (f"--bf16 {MEGATRON_FSDP} --use-distributed-optimizer", {"zero_stage": 3}),
    (f"--bf16 --use-distributed-optimizer {MEGATRON_FSDP}", {"zero_stage": 3}),
    (f"--bf16 --use-distributed-optimizer {SHARDING} optim_grads", {"zero_stage": 1}),
    ("--bf16 --use-megatron-fsdp", {"zero_stage": 0}),
    ("--bf16 --use-torch-fsdp2", {"zero_stage": 3}),
    ("--bf16 --use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", {"zero_stage": 2}),
    (
        f"--bf16 --pipeline-model-parallel-size 8 --recompute-granularity full {BLOCK} 12",
        {"activation_checkpointing": "full", "pipeline_parallel": 8},
    ),
    (
        "--bf16 --recompute-granularity selective --recompute-modules layernorm",
        {"activation_checkpointing": "layernorm"},
    ),
    ("--bf16 --attention-backend unfused", {"flash_attention": False}),
    (
        "NPROC_PER_NODE=8 megatron sft --tensor_model_parallel_size 8",
        {"zero_stage": 1, "activation_checkpointing": "selective", "precision": "bf16"},
    ),
    ("megatron pt --use_megatron_fsdp true --recompute_granularity none", {"zero_stage": 3}),
    (
        "tensor_model_parallel_size=8,pipeline_model_parallel_size=4",
        {"tensor_parallel": 8, "pipeline_parallel": 4, "precision": "bf16"},
    ),
    (
        "python run.py --nnodes 8 model.tensor_model_parallel_size=8 model.sequence_parallel=True "
        "ddp.use_distributed_optimizer=true train.micro_batch_size=2 "
        "model.virtual_pipeline_model_parallel_size=null mixed_precision=fp16_mixed",
        {"num_nodes": 8, "sequence_parallel": True, "zero_stage": 1, "precision": "fp16"},
    ),
    (
        "trainer.precision=bf16-mixed model.activations_checkpoint_granularity=selective mbs=2",
        {"precision": "bf16", "activation_checkpointing": "selective", "micro_batch_size": 2},
    ),
    ("model.recompute_modules=[layernorm]", {"activation_checkpointing": "layernorm"}),
]


@pytest.mark.parametrize(("line", "layout"), READ)
def test_each_form_of_arguments_is_read(line: str, layout: dict[str, Scalar]) -> None:
    strategy = found(line)
    assert {name: strategy.value(name) for name in layout} == layout
    assert "not read" not in planned(line)[1]


def test_experts_of_swift_are_whole_and_of_megatron_split() -> None:
    there: dict[str, Any] = {"model": "qwen3-30b-a3b", "machine": "dgx-h100", "nodes": 8}
    options = "--tensor_model_parallel_size 2 --bf16 true"
    assert found(f"megatron sft {options}", **there).expert_tensor_parallel == 1
    assert found(options, **there).expert_tensor_parallel == 2


def test_unmeasured_options_are_named_before_and_after() -> None:
    fast = ("--tp-comm-overlap", "--cuda-graph-impl transformer_engine")
    unread = [*fast, "--hierarchical-context-parallel-sizes 4", "--recompute-num-layers 4"]
    plain = "--seed 1 --data-path 'a b' --swiglu --attention-dropout 0.0 --log-interval 1 --save s"
    recomputed = "--recompute-granularity full --recompute-method uniform"
    line = f"{LINE} {plain} {recomputed} {' '.join(unread)}"
    assert planned(line)[1].endswith(
        f"not read: {', '.join(unread)}, so the comparison is of layouts only"
    )


def test_scores_beside_other_modules_are_named_as_unread() -> None:
    there: dict[str, Any] = {"model": "qwen3-30b-a3b", "machine": "dgx-h100", "nodes": 8}
    line = "--bf16 --recompute-granularity selective --recompute-modules moe_act layernorm"
    assert found(f"{line} core_attn", **there) == found(line, **there)
    assert "not read" not in planned(line, **there)[1]
    assert "not read: --recompute-modules core_attn" in planned(f"{line} core_attn", **there)[1]


KIMI: dict[str, Any] = {"model": "kimi-k2", "machine": "dgx-h100", "nodes": 128}
KIMI_LINE = "--tensor-model-parallel-size 2 --expert-model-parallel-size 32 --sequence-parallel"


@pytest.mark.parametrize(
    ("stages", "layout", "shown"),
    [
        (16, "--pipeline-model-parallel-layout 'E(tttt|)*15tL'", "15 x 4, 1"),  # Megatron-Bridge's
        (4, "--pipeline-model-parallel-layout 'E(t*16|)*3t*13L'", "3 x 16, 13"),
        (
            16,  # Model Optimizer's
            "--decoder-first-pipeline-num-layers 3 --decoder-last-pipeline-num-layers 2",
            "3, 14 x 4, 2",
        ),
    ],
)
def test_published_stages_of_kimi_k2_are_read(stages: int, layout: str, shown: str) -> None:
    """Their fullest stage is as long as that of a strategy, which is what their time depends on."""
    line = f"{KIMI_LINE} --pipeline-model-parallel-size {stages} {layout} --bf16"
    assert found(line, **KIMI).pipeline_parallel == stages
    assert f"stages of {shown} layers are compared as" in planned(line, **KIMI)[1]


def test_some_recomputed_layers_are_read_for_trainers_with_them() -> None:
    """Time and memory lie between recomputing nothing and everything, at the share of layers."""
    program = capabilities_of_adapter(load_adapter("megatron-lm"))
    none = LINE.replace("--recompute-activations", "")
    full = f"{none} --recompute-granularity full --sequence-parallel"
    answers = []
    for line in (f"{none} --sequence-parallel", f"{full} {BLOCK} 6", f"{full} {BLOCK} 24"):
        request = request_175b(line, machine="dgx-h100")
        answer = plan(request, check_campaign(request, program=program)).baseline
        assert answer is not None
        answers.append(answer)
    least, some, most = answers
    assert dict(some.strategy.settings)["recomputed_layers"] == 6
    assert "recomputed_layers" not in dict(most.strategy.settings)
    mean = 0.75 * least.iteration_time_s + 0.25 * most.iteration_time_s
    assert some.iteration_time_s == pytest.approx(mean, rel=0.02)
    assert most.memory_gib < some.memory_gib < least.memory_gib + 5.0  # one layer at work


def test_a_line_without_a_precision_says_that_it_is_fp32() -> None:
    line = LINE.replace(" --bf16", "")
    note = "neither --bf16 nor --fp16 is given, so Megatron trains in fp32"
    assert note in planned(line)[1]
    assert note in refusal(f"{line} --num-nodes 64")[0]


def test_options_without_effect_are_those_of_megatron() -> None:
    """Options of Megatron-LM's own parser; no option that makes it faster is ignored."""
    known = json.loads(MEGATRON_OPTIONS.read_text())["options"]
    ignored = {flag for flag in known if INERT.fullmatch(flag)}
    assert {"--lr", "--ckpt-format", "--log-interval", "--tokenizer-type"} <= ignored
    faster = re.compile("overlap|fusion|graph|dispatcher|recompute|parallel-size|offload|buffer")
    assert not [flag for flag in ignored if faster.search(flag)]


@pytest.mark.parametrize("zero_stage", [0, 1, 2])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_the_arguments_that_are_downloaded_are_read_back(
    zero_stage: int, checkpointing: Any
) -> None:
    model, machine = load_model("gpt-22b"), load_machine("frontier")
    strategy = records.strategy(
        tp=4,
        pp=1 if zero_stage == 2 else 2,
        mbs=2,
        gas=8 if zero_stage == 2 else 16,
        zero_stage=zero_stage,
        nodes=16,
        activation_checkpointing=checkpointing,
    )
    plan = StartPlan(transformer=model, machine=machine, strategy=strategy, iterations=8)
    words = start_of(load_adapter("megatron-deepspeed"), plan).words[2:]
    for text in (_of_megatron_lm(model, machine, strategy), shlex.join(words)):
        assert found(text, model="gpt-22b") == strategy


@pytest.mark.parametrize(
    ("precision", "checkpointing"),
    [
        *((each, "none") for each in ("fp8", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4")),
        *(("bf16", each) for each in ("selective", "moe", "layernorm+moe_act")),
    ],
)
def test_precisions_and_parts_that_are_recomputed_are_read_back(
    precision: Any, checkpointing: Any
) -> None:
    strategy = records.strategy(
        pp=1,
        mbs=2,
        gas=8,
        nodes=8,
        sequence_parallel=True,
        expert_parallel=16,
        expert_tensor_parallel=1,
        precision=precision,
        activation_checkpointing=checkpointing,
    )
    model, machine = load_model("qwen3-30b-a3b"), load_machine("dgx-b200")
    text = _of_megatron_lm(model, machine, strategy)
    there: dict[str, Any] = {"model": model.name, "machine": machine.name, "nodes": 8}
    assert found(text, **there) == strategy
    other = refusal(text.replace("--num-experts 128", "--num-experts 64"), **there)[0]
    assert other == "--num-experts 64: qwen3-30b-a3b has 128"
    as_all_layers = text.replace("--expert-tensor-parallel-size 1", "")
    assert found(as_all_layers, **there) == replace(strategy, expert_tensor_parallel=2)


@pytest.mark.parametrize(
    ("baseline", "reason", "valid"),
    [
        (
            f"{LINE} --fp8-format hybrid --fp8-recipe own",
            "not read: --fp8-recipe own (no",
            "delayed",
        ),
        (
            f"{LINE} --recompute-modules core_attn shared_experts --bf16",
            "not read: --recompute-modules core_attn shared_experts (activation_",
            "layernorm moe_act",
        ),
        ("tp=8,ppp=4", "'ppp' is no dimension of a layout; did you mean pp?", "tp, pp, mbs"),
        ("tp=8,pp", "'pp' is no key=value", "tp=8,pp=4"),
        ("tp=8,tp=4", "tp is given twice", "once"),
        ("", "the text names no part of a layout", '"none"'),
        ("zero=5", "zero=5: this is no value of zero_stage", "from 0 to 3"),
        ("nodes=32", "only 16 nodes may be used", "at most 16"),
        ("tp=5", "49152 is not divisible by tensor_parallel 5", "MLP"),
        ("tp=8,pp=4,mbs=3", "micro-batches of 12 samples in all", "is an allowed batch"),
        ("gbs=640", "a global batch of 640 samples; allowed: 512", "512"),
        ("--micro-batch-size $MBS", "--micro-batch-size $MBS: this is no value", "whole numbers"),
        (
            "--tensor-parallel-size 8",
            "not read: --tensor-parallel-size 8; did you mean --tensor-model-parallel-size?",
            "--tensor",
        ),
        (
            f"{LINE} --pipeline-model-parallel-layout 'Et|(tt|)*30L'",
            "not read: --pipeline-model-parallel-layout Et|(tt|)*30L (no strategy has such stages)",
            "stages of 32 x 3 layers",
        ),
        (
            f"{LINE} --pipeline-model-parallel-layout 'Ett|m|L'",
            "(only E, t, m and L in this order are)",
            "stages of 4 x 24 layers",
        ),
        (
            f"{LINE} --decoder-first-pipeline-num-layers 9",
            "not read: --decoder-first-pipeline-num-layers 9 (no strategy has such stages)",
            "stages of 4 x 24 layers",
        ),
        (
            f"{LINE} --account-for-loss-in-pipeline-split",
            "not read: --account-for-loss-in-pipeline-split (97 are not divisible by 4)",
            "stages of 4 x 24 layers",
        ),
        (
            f"{LINE} --recompute-granularity full {BLOCK} 4",
            "not read: 4 recomputed layers of each stage",
            "every layer, none, or selective",
        ),
        (f"{LINE} --use-megatron-fsdp {SHARDING} all", "there is no such strategy", "no_shard"),
        ("model.tensor_parallel_size=8", "not read: model.tensor_parallel_size=8; did", "--tensor"),
        ("model.precision=int8 tp=8", "not read: model.precision=int8 (no", "bf16-mixed"),
        ("--lr 1e-4", "none of these arguments says how a model is laid out", "tp=8"),
        (f"{LINE} --num-layers 48", "--num-layers 48: gpt-175b has 96", "campaign's model"),
        (f"{LINE} --num-experts 8", "--num-experts 8: gpt-175b has none", "campaign's model"),
        (f"{LINE} --expert-model-parallel-size 2", "gpt-175b has no experts", "need a model with"),
        (f"{LINE} 'a", "cannot be split into words", "tp=8"),
    ],
)
def test_what_cannot_be_a_baseline_is_refused_with_what_would_be(
    baseline: str, reason: str, valid: str
) -> None:
    because, would_be_valid = refusal(baseline)
    assert reason in because
    assert valid in would_be_valid


def test_a_layout_has_to_find_room_among_the_nodes_of_all_trials() -> None:
    assert refusal("nodes=16", pool_nodes=12)[0] == "it needs 16 nodes, and all trials share 12"
