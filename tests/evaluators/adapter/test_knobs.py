"""Knobs of adapters: what is read, what is refused before anything runs, what changes a start; and
where AUTOTUNE_MEGATRON_LM or AUTOTUNE_MEGATRON_BRIDGE names a checkout, its own validation."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import adapter_names, load_adapter
from evaluators.adapter.expression import parse
from evaluators.adapter.figures import StartPart
from evaluators.adapter.knobs import catalog_names, knob_catalog
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import (
    StartPlan,
    TrainerStart,
    capabilities_of_adapter,
    names_of,
    start_of,
)
from search_spaces.catalog import load_machine, load_model
from search_spaces.dimensions import Scalar
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.knob import KnobEffect
from search_spaces.machine import Machine
from search_spaces.rules import findings
from search_spaces.strategy import Strategy, strategy_with
from search_spaces.transformer import Transformer
from tests.evaluators.adapter.megatron_lm import answers, answers_of_bridge, parsed

Layout = tuple[Transformer, Machine, Strategy]
PLAIN = Strategy(
    tensor_parallel=1,
    pipeline_parallel=1,
    micro_batch_size=1,
    gradient_accumulation_steps=16,
    zero_stage=1,
    num_nodes=4,
    activation_checkpointing="none",
)
LLAMA, HOPPER = load_model("llama-3-70b"), load_machine("dgx-h100")
DENSE: Layout = (
    LLAMA,
    HOPPER,
    replace(PLAIN, tensor_parallel=4, pipeline_parallel=4, sequence_parallel=True),
)
EXPERTS: Layout = (
    load_model("qwen3-30b-a3b"),
    load_machine("dgx-b200"),
    replace(PLAIN, pipeline_parallel=2, virtual_stages=2, expert_parallel=8),
)
LATENT: Layout = (
    load_model("deepseek-v3"),
    load_machine("gb200-nvl72"),
    replace(PLAIN, tensor_parallel=2, sequence_parallel=True, expert_parallel=8, num_nodes=16),
)
SHARDED = [(LLAMA, HOPPER, replace(PLAIN, zero_stage=stage)) for stage in (1, 2, 3)]
PLAIN_OF_MINE = replace(PLAIN, gradient_accumulation_steps=1, zero_stage=0)
TENSOR = (LLAMA, HOPPER, replace(PLAIN, tensor_parallel=4, zero_stage=3, sequence_parallel=True))
LAYOUTS = (DENSE, EXPERTS, LATENT)
COMPANIONS: Sequence[Mapping[str, Scalar]] = (
    {},
    {"ep_overlap": True},
    {"cuda_graphs": "attn"},
    {"memory_segments": False},
    {"memory_segments": False, "cuda_graphs": "attn"},
    {"compile": True},
)
"""With what else a value is tried, where it cannot be tried without."""


def with_knobs(adapter: Adapter, chosen: Mapping[str, Scalar], strategy: Strategy) -> Strategy:
    first = {each.name: each.values[0] for each in capabilities_of_adapter(adapter).own}
    return strategy_with({**strategy.as_dict(), **first, **chosen})


def refused(adapter: Adapter, chosen: Mapping[str, Scalar], layout: Layout) -> list[str]:
    model, machine, strategy = layout
    found = findings(
        with_knobs(adapter, chosen, strategy),
        model,
        machine,
        program=capabilities_of_adapter(adapter),
    )
    return [each.reason for each in found if each.severity == "refuse"]


def is_idle(adapter: Adapter, chosen: Mapping[str, Scalar], layout: Layout) -> bool:
    """Whether a value changes nothing on the layout."""
    model, machine, strategy = layout
    names = names_of(adapter, model, machine, with_knobs(adapter, chosen, strategy))
    knobs = [adapter.knobs[name] for name in chosen]
    return any(knob.when and not parse(knob.when).value(names) for knob in knobs)


def start(adapter: Adapter, chosen: Mapping[str, Scalar], layout: Layout) -> TrainerStart:
    model, machine, strategy = layout
    plan = StartPlan(
        transformer=model,
        machine=machine,
        strategy=with_knobs(adapter, chosen, strategy),
        iterations=8,
        out="out",
    )
    return start_of(adapter, plan)


def tried(adapter: Adapter, layout: Layout) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """Yield each knob and value that can be tried on a layout, with its companions."""
    for name, knob in adapter.knobs.items():
        for value in knob.values[1:]:
            several = ({**c, name: value} for c in COMPANIONS if c.keys() <= adapter.knobs.keys())
            legal = (
                chosen
                for chosen in several
                if not refused(adapter, chosen, layout) and not is_idle(adapter, chosen, layout)
            )
            if (chosen := next(legal, None)) is not None:
                yield name, chosen


@pytest.mark.parametrize("name", [n for n in adapter_names() if load_adapter(n).knobs])
def test_a_value_changes_a_start_where_it_applies(name: str) -> None:
    adapter = load_adapter(name)
    layouts = LAYOUTS if name.startswith("megatron-lm") else (DENSE, TENSOR, *SHARDED)
    if name == "megatron-bridge":
        layouts = LAYOUTS
    changed = set()
    for layout in layouts:
        try:
            start(adapter, {}, layout)
        except InvalidInput:
            continue  # the trainer has no such layout
        for knob, chosen in tried(adapter, layout):
            others = {n: value for n, value in chosen.items() if n != knob}
            assert start(adapter, chosen, layout) != start(adapter, others, layout), chosen
            changed.add(knob)
    assert changed == adapter.knobs.keys() - {"cudnn_norm"}  # which goes with mxfp8


MEGATRON = {"megatron-lm": "AUTOTUNE_MEGATRON_LM", "megatron-bridge": "AUTOTUNE_MEGATRON_BRIDGE"}
"""Adapter -> the variable that names a checkout of its trainer."""


def validated(name: str, starts: Sequence[tuple[TrainerStart, Layout]]) -> list[Mapping[str, Any]]:
    """Return the answers of the trainer's own parser and validation, with `error` or `printed`."""
    checkout = os.environ.get(MEGATRON[name], "")
    if not checkout:
        pytest.skip(f"{MEGATRON[name]} names no checkout")
    ask: Callable[..., Any] = answers if name == "megatron-lm" else answers_of_bridge
    requests = [
        {
            "words": each.words[3 if name == "megatron-lm" else 2 :],
            "variables": each.variables,
            "world_size": layout[2].world_size(layout[1].gpus_per_node),
            "generation": 9 if layout[1] == HOPPER else 10,
        }
        for each, layout in starts
    ]
    return list(ask(checkout, requests))


def echoed(adapter: Adapter) -> set[str]:
    return adapter.knobs.keys() & {name for reader in adapter.read for name in reader.echo}


def confirmed(
    adapter: Adapter, starts: Iterable[tuple[Mapping[str, Scalar], Layout, Iterable[str]]]
) -> set[str]:
    """Return the knobs whose values the lines of some start confirm; none may differ."""
    found: set[str] = set()
    for chosen, (model, machine, strategy), lines in starts:
        names = names_of(adapter, model, machine, with_knobs(adapter, chosen, strategy))
        log = AdapterLog(adapter.read, [[StartPart(names, 2)]])
        for line in lines:
            log.take(f"[start 1 rank 0 1.000000s] {line}")
        figures = log.starts[0].figures
        assert figures.differs is None, (chosen, model.name)
        found |= figures.confirmed & chosen.keys()
    return found


def test_printed_arguments_confirm_knobs() -> None:
    adapter = load_adapter("megatron-lm")
    starts = [
        (chosen, layout, printed_arguments(parsed(start(adapter, chosen, layout).words[3:])))
        for layout in LAYOUTS
        for _, chosen in tried(adapter, layout)
    ]
    assert confirmed(adapter, starts) == echoed(adapter)
    [(chosen, layout, lines), *_] = (each for each in starts if "ep_overlap" in each[0])
    ignored = [
        line.replace("True", "False") if "expert_parallel_comm" in line else line for line in lines
    ]
    with pytest.raises(AssertionError):
        confirmed(adapter, [(chosen, layout, ignored)])


def printed_arguments(arguments: Mapping[str, Any]) -> list[str]:
    """Return the lines that Megatron-LM prints of its arguments."""
    return [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]


@pytest.mark.parametrize("name", MEGATRON)
def test_the_trainer_accepts_all_values_on_three_layouts(name: str) -> None:
    adapter = load_adapter(name)
    cases = [(chosen, layout) for layout in LAYOUTS for _, chosen in tried(adapter, layout)]
    assert {n for chosen, _ in cases for n in chosen} >= adapter.knobs.keys() - {"cudnn_norm"}
    found = validated(name, [(start(adapter, *each), each[1]) for each in cases])
    pairs = list(zip(cases, found, strict=True))
    assert [(c, m[0].name, each["error"]) for (c, m), each in pairs if "error" in each] == []
    printed = [(*case, each["printed"].splitlines()) for case, each in pairs]
    # Bridge prints no value that is Megatron Core's own, as when these are off.
    silent = {"overlap", "tp_overlap"} if name == "megatron-bridge" else set()
    assert confirmed(adapter, printed) == echoed(adapter) - silent


SEEN_BY_VALIDATION: list[tuple[dict[str, Scalar], dict[str, Any]]] = [
    ({"ep_overlap": True}, {"expert_parallel": 1}),
    ({"ep_overlap": True}, {"virtual_stages": 1}),
    ({"ep_overlap": True, "activation_checkpointing": "full"}, {}),
    ({"ep_overlap": True, "activation_checkpointing": "moe"}, {}),
    ({"delay_wgrad": True}, {}),
    ({"cuda_graphs": "attn", "activation_checkpointing": "full"}, {}),
    ({"cuda_graphs": "attn+moe_router+moe_preprocess", "activation_checkpointing": "moe"}, {}),
    ({"cuda_graphs": "attn", "graph_register": True}, {}),
    ({"optimizer_offload": 0.5, "precision": "mxfp8"}, {}),
]
"""Conflicts: values of knobs, and what differs in the layout of experts."""


def test_conflicts_are_real() -> None:
    adapter = load_adapter("megatron-lm")
    free = replace(adapter, knobs={}, refuse=())
    starts = []
    for chosen, changed in SEEN_BY_VALIDATION:
        layout = (*EXPERTS[:2], replace(EXPERTS[2], **changed))
        faults = refused(adapter, chosen, layout)
        assert any("Megatron" in each or "megatron/" in each for each in faults), chosen
        starts.append((start(free, chosen, layout), layout))
    found = validated("megatron-lm", starts)
    assert [
        c for c, each in zip(SEEN_BY_VALIDATION, found, strict=True) if "error" not in each
    ] == []


@pytest.mark.parametrize(
    ("chosen", "layout", "reason"),
    [
        ({"dispatcher": "deepep"}, LATENT, "DeepEP not on an NVL72"),
        ({"user_buffers": True}, DENSE, "distributed_data_parallel_config.py"),
        ({"attention": "flash"}, LATENT, "FlashAttention has no latent attention"),
        (
            {"activation_checkpointing": "mla_up_proj"},
            DENSE,
            "lacks some of the parts to recompute",
        ),
    ],
)
def test_a_refusal_has_its_reason(chosen: dict[str, Scalar], layout: Layout, reason: str) -> None:
    faults = refused(load_adapter("megatron-lm"), chosen, layout)
    assert any(reason in each for each in faults), faults


def test_values_that_fit_together_are_not_refused() -> None:
    adapter = load_adapter("megatron-lm")
    for layout in LAYOUTS:
        assert refused(adapter, {}, layout) == []
    together = {"user_buffers": True, "memory_segments": False, "sm_margin": 0}
    assert refused(adapter, together, DENSE) == []
    assert refused(adapter, {"ep_overlap": True, "dispatcher": "hybridep"}, EXPERTS) == []


def test_a_conflict_holds_for_requests_too() -> None:
    with pytest.raises(InvalidInput, match="needs virtual stages in a pipeline"):
        start(load_adapter("megatron-lm"), {"ep_overlap": True}, (
            *EXPERTS[:2], replace(EXPERTS[2], virtual_stages=1)
        ))  # fmt: skip


ADAPTER = """\
command = ["{python}", "train.py"]
[dimension.bucket]
values = [25, 50]
[set]
"--bucket" = "{bucket}"
"--mbs" = "{micro_batch_size}"
[[read]]
log = 'step (?P<step>\\d+)'
arrival = true
"""


def test_an_adapter_adds_its_own_knobs(tmp_path: Path) -> None:
    own = """
[knob.bucket]
meaning = "MiB of a bucket"
numerics = "reordered"
[knob.fast]
meaning = "fast kernels"
values = [false, true]
numerics = "identical"
set = { "--fast" = "{fast}" }
"""
    path = tmp_path / "mine.toml"
    path.write_text(ADAPTER + own)
    adapter = read_adapter(path)
    assert adapter.knobs["bucket"].values == (25, 50)
    assert [(each.name, each.searched) for each in adapter.dimensions] == [
        ("bucket", True),
        ("fast", False),
    ]
    assert (
        "--fast"
        in start(adapter, {"fast": True, "bucket": 25}, (LLAMA, HOPPER, PLAIN_OF_MINE)).words
    )
    assert adapter.places_by_dimension["fast"] == ["--fast"]
    path.write_text(ADAPTER)
    assert read_adapter(path).digest != adapter.digest


@pytest.mark.parametrize(
    ("table", "field", "reason"),
    [
        ('knobs_from = ["nothing"]', "knobs_from", "no such catalogue"),
        ('[knob.a]\nvalues = [1, 2]\nnumerics = "none"\nmeaning = ""', "numerics", "identical"),
        ('[knob.a]\nvalues = [1]\nnumerics = "identical"\nmeaning = ""', "values", "2 to 100"),
        (
            '[knob.a]\nvalues = [1, 2]\nnumerics = "identical"\nmeaning = ""\nwhen = "layers > 1"',
            "when",
            "unknown name layers",
        ),
        (
            '[knob.precision]\nvalues = ["bf16", "int1"]\nnumerics = "identical"\nmeaning = ""',
            "values",
            "int1",
        ),
        (
            '[knob.a]\nvalues = [1, 2]\nnumerics = "identical"\nmeaning = ""\n'
            'set = { "--bucket" = "{a}" }',
            "--bucket",
            "[set] has it, too",
        ),
        (
            '[knob.a]\nvalues = [1, 2]\nnumerics = "identical"\nmeaning = ""\n'
            'published = [{ value = 3, source = "me" }]',
            "published",
            "not a value of this knob",
        ),
    ],
)
def test_an_invalid_knob_is_refused(tmp_path: Path, table: str, field: str, reason: str) -> None:
    path = tmp_path / "mine.toml"
    lines = table.splitlines()
    head, rest = (table, "") if lines[0].startswith("knobs_from") else ("", table)
    path.write_text(f"{head}\n{ADAPTER}\n{rest}\n")
    with pytest.raises(InvalidInputs) as raised:
        read_adapter(path)
    problems = [each for each in raised.value.problems if field in each.field]
    assert any(reason in str(each) for each in problems), raised.value


def published() -> list[KnobEffect]:
    catalogs = [knob_catalog(name) for name in catalog_names()]
    knobs = [*catalogs, *(load_adapter(name).knobs for name in adapter_names())]
    return [effect for each in knobs for knob in each.values() for effect in knob.published]


TABLE = "AUTOTUNE_PUBLISHED_KNOBS"
"""Names a table of published pairs: knob, relative_gain, source."""
KNOBS = {
    "moe_dispatcher": "dispatcher",
    "dp_overlap (overlap_grad_reduce+overlap_param_gather)": "overlap",
    "tp_comm_overlap": "tp_overlap",
    "recompute_modules": "activation_checkpointing",
    "alloc_conf expandable_segments": "memory_segments",
    "moe_ep_overlap": "ep_overlap",
    "delay_wgrad_compute": "delay_wgrad",
    "optimizer_offload_fraction": "optimizer_offload",
    "overlap_cpu_optimizer_d2h_h2d": "optimizer_offload",
    "moe_router_fusion": "router_fusion",
    "cuda_graph": "cuda_graphs",
    "cpu_numa_binding": "memory_binding",
    "norm_quantization_fusion": "cudnn_norm",
    "async_tp": "async_tp",
    "precision": "precision",
    "torch_compile": "compile",
    "attention_kernel": "attention",
}
"""Knob of the published pairs -> the catalogue's."""
LEFT_OUT = {
    **dict.fromkeys(
        ("virtual_stages", "micro_batch_size", "tensor_parallel", "pipeline_parallel"),
        "a dimension of layouts, which is searched",
    ),
    "zero_stage": "a dimension of layouts, which is searched",
    "pipeline_schedule": "follows virtual_stages, a dimension of layouts",
    "moe_expert_capacity_factor": "drops tokens: another training, not another speed",
    "optimizer": "another training, not another speed",
    "router": "a condition under which speeds compare (balanced_routing), nothing to be tried",
    "framework": "two trainers: two campaigns compare them",
    "sequence_parallel_input_regather": "published for LoRA, which no ready adapter trains",
    "vit_gradient_checkpointing": "of ms-swift, which has no ready adapter",
    "gradient_checkpointing": "activation_checkpointing, a dimension of layouts",
    "padding_free": "trl-sft packs sequences; of the others none pads",
    "kernel/host step": "kernels of a release: no option switches them",
}
"""Knob of the published pairs -> why no catalogue has it."""


@pytest.mark.skipif(TABLE not in os.environ, reason=f"{TABLE} names no table")
def test_published_pairs_are_in_the_catalogue_or_left_out() -> None:
    with Path(os.environ[TABLE]).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ours = {name for each in catalog_names() for name in knob_catalog(each)}
    ours |= {name for each in adapter_names() for name in load_adapter(each).knobs}
    assert set(KNOBS.values()) <= ours
    for row in rows:
        knob = row["knob"].partition(": ")[0]
        assert (knob in KNOBS) != (knob in LEFT_OUT), row["knob"]
    gains = {(row["source"], round(float(row["relative_gain"] or 0), 3)) for row in rows}
    for effect in published():
        measured = {gain for source, gain in gains if source.startswith(effect.source)}
        if effect.gain is not None and measured:
            assert round(effect.gain, 3) in measured, effect
