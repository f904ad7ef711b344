"""Model, machine and layout of a run, from what its log states and its user adds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from pydantic import ValidationError

from autotune.baseline.megatron import KNOWN, OTHER_NAMES, arguments, is_arguments
from autotune.baseline.statement import LayoutStatement, key_values
from autotune.diagnosis.run_log import RunLog
from autotune.measurement.metrics import agree
from search_spaces.catalog import (
    load_machine,
    load_model,
    machine_names,
    model_from_table,
    model_names,
)
from search_spaces.dimensions import BY_NAME, DIVIDING, Scalar
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine, default_precision
from search_spaces.strategy import Strategy, strategy_with
from search_spaces.transformer import Transformer

MEGATRON = ("Megatron", "Megatron-DeepSpeed", "MLPerf", "NeMo", "Megatron-Bridge", "DLLogger")
SHARDED = ("torchtitan", "OLMo")
"""Trainers that shard parameters over all replicas (FSDP) unless their configuration says less."""
PRECISIONS = ("nvfp4", "mxfp8", "fp8", "bf16", "fp16", "fp32")
EIGHT_BITS = frozenset(
    {"true", "1", "hybrid", "e4m3", "delayed", "tensorwise", "blockwise", "mxfp8", "float8"}
)
SAME_SITE = {"crusher": "frontier", "orion": "frontier", "flare": "aurora", "eagle": "polaris"}
"""Names of hosts and file systems -> the machine of their site."""
MOST_GPUS_OF_NODE = 16
UNNAMED = "the log's model"
SHORTEST_NAME = 6
"""Characters of a model's name that is looked for within others, without signs."""


@dataclass(frozen=True, kw_only=True)
class RunSubject:
    """What ran, as far as it is known.

    Attributes:
        strategy: its layout; nodes have as many GPUs as the log says where the machine is unknown.
        samples: of one iteration, as configured.
        ran_samples: of one iteration, as they really ran.
        missing: what has to be stated for a prediction, by the names of options.
        assumed: what the log does not say, and what is taken for it.
        whole_node: GPUs of a node of the machine; `machine` may have fewer, if the run used fewer.
        is_adapted: whether adapters of a frozen model are trained (LoRA).
    """

    transformer: Transformer | None
    machine: Machine | None
    strategy: Strategy | None
    gpus: int | None
    samples: int | None
    ran_samples: int | None
    missing: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    whole_node: int | None = None
    is_adapted: bool = False


def subject_of_run(
    run: RunLog,
    *,
    transformer: Transformer | None = None,
    machine: Machine | None = None,
    nodes: int | None = None,
    layout: str = "",
) -> RunSubject:
    """Return model, machine and layout of a run.

    Args:
        transformer, machine, nodes: used instead of what the log says.
        layout: `tp=8,pp=4` or a line of arguments, used instead of what the log says.

    Raises:
        InvalidInput: field `baseline`: the layout cannot be read.
    """
    transformer = transformer or _model_of(run)
    machine = machine or _machine_of(run)
    own = _statement(run, transformer)
    if layout and (transformer or not is_arguments(layout)):
        named = (
            arguments(layout, transformer)
            if is_arguments(layout) and transformer
            else key_values(layout)
        )
        own = replace(
            own,
            dimensions={**own.dimensions, **named.dimensions},
            global_batch_size=named.global_batch_size or own.global_batch_size,
        )
    values: dict[str, Any] = dict(own.dimensions)
    assumed: list[str] = []
    if seq := run.number("seq_length"):
        transformer = transformer and replace(transformer, seq_length=seq)
    elif transformer:
        assumed.append(f"sequences of {transformer.seq_length:,} tokens")
    gpus = _gpus(run, values, machine, nodes)
    whole_node = machine.gpus_per_node if machine else None
    if machine and gpus:
        machine = _with_node(machine, run, gpus, nodes)
    batch = own.global_batch_size or _batch_of(run, transformer)
    strategy = ran = None
    per_node = machine.gpus_per_node if machine else run.number("gpus_per_node") or 1
    is_laid_out = any(name in values for name in DIVIDING) or run.trainer not in MEGATRON
    is_laid_out = is_laid_out and _has_batch(run, values, batch)
    if gpus and gpus % per_node == 0 and is_laid_out:
        filled = _with_batch(run, values, batch, gpus, assumed)
        strategy = _strategy(run, filled, machine, gpus // per_node, assumed)
    if strategy and (transformer is None or not transformer.experts):
        strategy = replace(strategy, expert_parallel=1, expert_tensor_parallel=1)
    if strategy:
        ran = strategy.global_batch_size(per_node)
        batch = batch or ran
    return RunSubject(
        transformer=transformer,
        machine=machine,
        strategy=strategy,
        gpus=gpus,
        samples=batch,
        ran_samples=ran or batch,
        missing=_missing(transformer, machine, gpus, is_laid_out=is_laid_out),
        assumed=tuple(assumed),
        whole_node=whole_node,
        is_adapted="lora" in run.stated.get("model", "").lower(),
    )


def _batch_of(run: RunLog, transformer: Transformer | None) -> int | None:
    tokens = run.number("step_tokens")
    if run.number("global_batch_size") or not tokens or transformer is None:
        return run.number("global_batch_size")
    return tokens // transformer.seq_length or None


def _missing(
    transformer: Transformer | None, machine: Machine | None, gpus: int | None, *, is_laid_out: bool
) -> tuple[str, ...]:
    lacks = {
        "model": transformer is None,
        "machine": machine is None,
        "nodes": gpus is None,
        "baseline": gpus is not None and not is_laid_out,
    }
    return tuple(name for name, is_missing in lacks.items() if is_missing)


def _model_of(run: RunLog) -> Transformer | None:
    counted = run.number("parameters")
    shaped, named = (
        each if each and (counted is None or agree(counted, each.trained_parameters)) else None
        for each in (_shaped(run), named_model(run))
    )
    if shaped is None or named is None:
        return shaped or named
    alike = replace(shaped, name=named.name, details=named.details, seq_length=named.seq_length)
    return named if alike == replace(named, vocab_size=shaped.vocab_size) else shaped


def named_model(run: RunLog) -> Transformer | None:
    """Return the model of the catalog that a log names."""
    known = sorted(model_names(), key=len, reverse=True)
    for text in run.stated.get("model", "").split("; "):
        plain = _plain(text + run.stated.get("flavor", ""))
        for name in known:
            if len(_plain(name)) >= SHORTEST_NAME and _plain(name) in plain:
                return load_model(name)
    return None


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower().replace("meta-llama", ""))


def _shaped(run: RunLog) -> Transformer | None:
    shape = ("num_layers", "hidden_size", "num_attention_heads")
    fields: dict[str, Any] = {name: run.number(name) for name in shape}
    if None in fields.values():
        return None
    more = ("num_query_groups", "ffn_hidden_size")
    fields |= {name: number for name in more if (number := run.number(name))}
    vocabulary = run.number("vocab_size")
    routed = run.number("num_experts") or 1
    for name in model_names():
        preset = load_model(name)
        experts = preset.experts.num_experts if preset.experts else 1
        if experts == routed and all(getattr(preset, key) == fields[key] for key in fields):
            return replace(preset, vocab_size=vocabulary or preset.vocab_size)
    table = {"name": UNNAMED, "vocab_size": vocabulary, **fields}
    if run.switch("gated"):
        table["gated_mlp"] = True
    with suppress(InvalidInput, InvalidInputs):
        return model_from_table(table | _experts(run))
    return None


def _experts(run: RunLog) -> dict[str, Any]:
    experts, top_k = run.number("num_experts"), run.number("top_k")
    width = run.number("expert_ffn") or run.number("ffn_hidden_size")
    if not experts or not top_k or not width:
        return {}
    return {"experts": {"num_experts": experts, "top_k": top_k, "ffn_hidden_size": width}}


def _machine_of(run: RunLog) -> Machine | None:
    platform = run.stated.get("platform", "").lower()
    site = next((known for word, known in SAME_SITE.items() if word in platform), platform)
    for name in machine_names():
        if name != "local" and name.split("-")[0] in site:
            return load_machine(name)
    gpu, _, size = run.stated.get("gpu", "").partition("-")
    if not gpu:
        return None
    known = [load_machine(name) for name in machine_names() if name != "local"]
    alike = [each for each in known if re.search(rf"\b{gpu}", each.gpu)]
    exact = [each for each in alike if size and size in each.gpu]
    return next(iter([*exact, *alike]), None)


def _statement(run: RunLog, transformer: Transformer | None) -> LayoutStatement:
    own: dict[str, Scalar] = {
        name: number
        for name, dimension in BY_NAME.items()
        if dimension.is_counted and (number := run.number(name)) is not None
    }
    own |= {name: kind for name, kind in _kinds(run).items() if kind is not None}
    if not run.arguments or transformer is None:
        return LayoutStatement(dimensions=own)
    is_flat = run.arguments.get("--no-pipeline-parallel") == "True"
    if is_flat or "--pipeline-model-parallel-size" not in run.arguments:
        own.pop("pipeline_parallel", None)
    given = {
        flag: value.rpartition(".")[2] if "Backend." in value else re.sub(r"\.0$", "", value)
        for flag, value in run.arguments.items()
        if (flag in KNOWN or flag in OTHER_NAMES) and value not in {"None", ""}
    }
    line = " ".join(f"{flag} {value}" for flag, value in given.items() if "[" not in value)
    with suppress(InvalidInput):
        read = arguments(line, transformer)
        return replace(read, dimensions={**own, **read.dimensions, **_unfused(run)})
    return LayoutStatement(dimensions=own)


def _unfused(run: RunLog) -> dict[str, Scalar]:
    flash = [value for flag, value in run.arguments.items() if flag.startswith("--use-flash-attn")]
    is_off = bool(flash) and "--attention-backend" not in run.arguments and set(flash) == {"False"}
    return {"flash_attention": False} if is_off else {}


def _kinds(run: RunLog) -> Mapping[str, Scalar | None]:
    stated = run.stated
    zero = run.number("zero_stage")
    if stated.get("zero_stage", "").startswith("0"):
        zero = 0
    if zero is None and (run.switch("sharded") or run.trainer in SHARDED):
        zero = 3
    if zero is None and (
        run.switch("distributed_optimizer") is not None or run.trainer in MEGATRON
    ):
        zero = int(run.switch("distributed_optimizer") is not False)
    attention = stated.get("attention", "").lower()
    flash = run.switch("flash")
    if any(word in attention for word in ("eager", "unfused", "local", "math")):
        flash = False
    return {
        "zero_stage": zero,
        "precision": _precision(run),
        "activation_checkpointing": _recomputation(run),
        "sequence_parallel": run.switch("sequence_parallel"),
        "flash_attention": flash,
    }


def _precision(run: RunLog) -> str | None:
    text = run.stated.get("precision", "").lower().replace("float", "fp").replace("bfp", "bf")
    named = next((each for each in PRECISIONS if each in text), None)
    if run.stated.get("fp8", "").lower() in EIGHT_BITS:
        return "fp8"
    if run.switch("bf16") or run.switch("fp16"):
        return "bf16" if run.switch("bf16") else "fp16"
    if named is None and text.startswith("32"):
        named = "fp32"
    has_no_switch = run.switch("bf16") is None and run.switch("fp16") is None
    return named if named or has_no_switch or run.trainer not in MEGATRON[:2] else "fp32"


def _recomputation(run: RunLog) -> str | None:
    for each in ("recompute", "recompute_all"):
        if (named := run.stated.get(each, "").lower()) in {"full", "selective", "none"}:
            return named
    if run.switch("recompute_all") is not None:
        return "full" if run.switch("recompute_all") else "none"
    return None


def _gpus(
    run: RunLog, values: Mapping[str, Any], machine: Machine | None, nodes: int | None
) -> int | None:
    world, per_node = run.number("world_size"), run.number("gpus_per_node")
    if nodes and world and world % nodes == 0:
        return world
    of_node = per_node or (machine.gpus_per_node if machine else None)
    if nodes:
        return nodes * of_node if of_node else None
    if (on_platform := _nodes_of_platform(run)) and of_node:
        return on_platform * of_node
    stated = run.number("num_nodes")
    whole = stated * of_node if stated and of_node else per_node
    return _gpus_of_replicas(run, values) or world or whole


def _gpus_of_replicas(run: RunLog, values: Mapping[str, Any]) -> int | None:
    cut = prod(int(values.get(name, 1)) for name in DIVIDING)
    sharded, repeated = run.number("dp_shard"), run.number("dp_replicate") or 1
    if replicas := sharded * repeated if sharded else run.number("data_parallel"):
        return replicas * cut
    micro, accumulated = run.number("micro_batch_size"), run.number("gradient_accumulation_steps")
    batch, samples = run.number("global_batch_size"), run.number("samples_of_replica")
    if not samples and micro and accumulated:
        samples = micro * accumulated
    is_known = batch and samples and batch % samples == 0 and not run.number("world_size")
    return batch // samples * cut if batch and samples and is_known else None


def _nodes_of_platform(run: RunLog) -> int | None:
    """Return the nodes of an MLPerf platform: `128xNVIDIA GB200`."""
    found = re.match(r"(\d+)x[A-Z]", run.stated.get("platform", ""))
    return int(found[1]) if found and run.trainer == "MLPerf" else None


def _with_node(machine: Machine, run: RunLog, gpus: int, nodes: int | None) -> Machine:
    per_node = run.number("gpus_per_node") or machine.gpus_per_node
    if nodes and gpus % nodes == 0:
        per_node = gpus // nodes
    per_node = min(per_node, gpus) if per_node <= MOST_GPUS_OF_NODE else machine.gpus_per_node
    if gpus % per_node or per_node == machine.gpus_per_node:
        return machine if gpus % machine.gpus_per_node == 0 else replace(machine, gpus_per_node=1)
    domain = machine.fast_domain if machine.fast_gpus % per_node == 0 else None
    return replace(machine, gpus_per_node=per_node, fast_domain=domain)


def _has_batch(run: RunLog, values: Mapping[str, Any], batch: int | None) -> bool:
    accumulated = run.number("gradient_accumulation_steps") or run.number("samples_of_replica")
    return batch is not None or ("micro_batch_size" in values and accumulated is not None)


def _with_batch(
    run: RunLog, values: Mapping[str, Any], batch: int | None, gpus: int, assumed: list[str]
) -> dict[str, Any]:
    cut = prod(int(values.get(name, 1)) for name in DIVIDING)
    replicas = max(gpus // cut, 1)
    samples = run.number("samples_of_replica")
    accumulated = run.number("gradient_accumulation_steps")
    micro = values.get("micro_batch_size")
    if micro is None and accumulated and batch:
        micro = batch // (replicas * accumulated) or None
    if micro is None:
        micro = 1
        assumed.append("micro-batches of 1 sample")
    per_replica = samples or (batch // replicas if batch else None)
    scheduled = _scheduled_micro_batch(run) or int(micro)
    if per_replica and per_replica >= scheduled:
        accumulated = per_replica // scheduled
    accumulated = accumulated or 1
    return {**values, "micro_batch_size": int(micro), "gradient_accumulation_steps": accumulated}


def _scheduled_micro_batch(run: RunLog) -> int | None:
    """Return the micro-batch by which DeepSpeed counts, where Megatron loads another."""
    counted = run.number("deepspeed_micro_batch_size")
    loaded = run.arguments.get("--micro-batch-size", "")
    return counted if counted and loaded.isdecimal() and int(loaded) != counted else None


def _strategy(
    run: RunLog, values: Mapping[str, Any], machine: Machine | None, nodes: int, assumed: list[str]
) -> Strategy | None:
    usual: dict[str, Any] = {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "zero_stage": 1 if run.trainer in MEGATRON else 0,
        "precision": default_precision(machine) if machine else "bf16",
        "activation_checkpointing": "selective" if run.trainer == "torchtitan" else "none",
        "sequence_parallel": False,
        "flash_attention": True,
    }
    assumed += [
        BY_NAME[name].short_value(value)
        for name, value in sorted(usual.items(), reverse=True)
        if name not in values and not isinstance(value, bool) and "_parallel" not in name
    ]
    known = {name: value for name, value in values.items() if name in BY_NAME}
    known["num_nodes"] = nodes
    known["virtual_stages"] = (
        known.get("virtual_stages", 1) if known.get("pipeline_parallel", 1) > 1 else 1
    )
    if known.get("tensor_parallel", 1) == 1:
        known["sequence_parallel"] = False
    with suppress(ValidationError):
        return strategy_with({**usual, **known})
    return None
