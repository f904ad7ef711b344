"""Each ready adapter against a sample of its trainer: what it is given, and what it prints.

A sample is `ready/NAME.toml` beside this file. `source` says where its words and lines are from.

- `strategy`: what differs from two ranks' worth of the simplest one; the model and the machine are
  those of `samples`. `model`: what differs from that.
- `words`, `variables`, `files`: all that the trainer is given.
- `refused`: what differs from `strategy` in one that the adapter refuses, and `because`; `model`:
  what differs from that model there, in `experts` and `mamba` from EXPERTS and MAMBA.
- `log`: lines of ranks, as they come; `left`: texts of the files that it reads, in its order, or
  step, tag, figure and, where it matters, time of each event of TensorBoard.
- `times_s`: iteration -> seconds; `loss`; `peak_memory_gib`: rank -> GiB.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import adapter_names, load_adapter
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.places import ConfigFile
from evaluators.adapter.rendering import StartPlan, capabilities_of_adapter, start_of
from search_spaces.errors import InvalidInput
from search_spaces.layers import Experts, Mamba
from tests.evaluators.adapter.samples import MACHINE, MODEL, event, strategy

SAMPLES = Path(__file__).parent / "ready"
READY = [name for name in adapter_names() if load_adapter(name).evidence != "unchecked"]


def _sample(name: str) -> dict[str, Any]:
    sample = tomllib.loads((SAMPLES / f"{name}.toml").read_text("utf-8"))
    assert sample["source"]
    return sample


EXPERTS = Experts(num_experts=8, top_k=2, ffn_hidden_size=32)
MAMBA = Mamba(layers=2, attention_layers=1, num_heads=4, head_dim=16, state_size=8, num_groups=2)


def _plan(
    sample: dict[str, Any], model: Mapping[str, Any] = MappingProxyType({}), **changed: Any
) -> StartPlan:
    changed["settings"] = tuple(map(tuple, changed.get("settings", ())))
    shape = {**sample.get("model", {}), **model}
    if "experts" in shape:
        shape["experts"] = replace(EXPERTS, **shape["experts"])
    if "mamba" in shape:
        shape["mamba"] = replace(MAMBA, **shape["mamba"])
    return StartPlan(
        transformer=replace(MODEL, **shape),
        machine=MACHINE,
        strategy=strategy(**sample["strategy"] | changed),
        iterations=6,
        python="/usr/bin/python3",
        out="/out",
    )


@pytest.mark.parametrize("name", READY)
def test_a_start_is_what_the_sample_of_its_trainer_shows(name: str) -> None:
    adapter, sample = load_adapter(name), _sample(name)
    start = start_of(adapter, _plan(sample))
    assert list(start.words) == sample["words"]
    assert start.variables == sample.get("variables", {})
    files = {file: ConfigFile.read(file, text).table for file, text in start.files.items()}
    assert files == sample.get("files", {})


TOGETHER: Mapping[str, Any] = {"context_parallel": 2, "zero_stage": 1}
SHARDED: Mapping[str, Any] = {**TOGETHER, "zero_stage": 3}
DISTRIBUTED: Mapping[str, Any] = {
    "expert_parallel": 2,
    "tensor_parallel": 1,
    "sequence_parallel": False,
    "zero_stage": 1,
    "precision": "bf16",
}
DISTRIBUTED_AND_SHARDED: Mapping[str, Any] = {**DISTRIBUTED, "zero_stage": 3}
WIDE: Mapping[str, Any] = {"head_dim": 128}


@pytest.mark.parametrize(
    ("name", "model", "changed", "options"),
    [
        ("megatron-bridge", {}, TOGETHER, ["model.context_parallel_size=2"]),
        ("megatron-lm", {}, TOGETHER, ["--context-parallel-size 2"]),
        ("nemo-automodel", {}, SHARDED, ["cp_size: 2"]),
        ("torchtitan-0.2", {}, SHARDED, ["context_parallel_degree = 2"]),
        ("torchtitan-2026-08", {}, SHARDED, ["--parallelism.context_parallel_degree 2"]),
        ("megatron-bridge", {"experts": {}}, DISTRIBUTED,
         ["model.expert_model_parallel_size=2", "model.num_moe_experts=8"]),
        ("megatron-lm", {"experts": {}}, DISTRIBUTED,
         ["--expert-model-parallel-size 2", "--num-experts 8"]),
        ("nemo-automodel", {"experts": {}}, DISTRIBUTED_AND_SHARDED, ["ep_size: 2"]),
        ("torchtitan-0.2", {"experts": {}}, DISTRIBUTED_AND_SHARDED,
         ["expert_parallel_degree = 2", "moe_force_load_balance = true"]),
        ("torchtitan-2026-08", {"experts": {}}, DISTRIBUTED_AND_SHARDED,
         ["--parallelism.expert_parallel_degree 2", "--debug.moe_force_load_balance"]),
        ("megatron-lm", WIDE, {}, ["--kv-channels 128"]),
        ("megatron-deepspeed", WIDE, {}, ["--kv-channels 128"]),
        ("megatron-deepspeed-alcf", WIDE, {}, ["--kv-channels 128"]),
        ("megatron-bridge", WIDE, {}, ["model.kv_channels=128"]),
    ],
)  # fmt: skip
def test_options_of_few_layouts_are_set_for_those_only(
    name: str, model: Mapping[str, Any], changed: Mapping[str, Any], options: list[str]
) -> None:
    adapter, sample = load_adapter(name), _sample(name)
    neutral = {each: 1 for each in changed if each in ("context_parallel", "expert_parallel")}
    if neutral:
        changed = {**changed, "num_nodes": 2 * sample["strategy"]["num_nodes"]}
    texts = []
    for plan in (_plan(sample, model, **changed), _plan(sample, **{**changed, **neutral})):
        start = start_of(adapter, plan)
        texts.append("\n".join([" ".join(start.words), *start.files.values()]))
    assert [option for option in options if option not in texts[0]] == []
    assert [option for option in options if option in texts[1]] == []
    assert neutral.keys() <= adapter.varied


@pytest.mark.parametrize("name", ["litgpt", "nanotron"])
def test_a_trainer_that_cannot_cut_sequences_refuses_to(name: str) -> None:
    with pytest.raises(InvalidInput, match="has no context_parallel"):
        start_of(load_adapter(name), _plan(_sample(name), context_parallel=2))


def test_an_adapter_without_head_width_trains_only_usual_heads() -> None:
    adapter = load_adapter("megatron-lm")
    places = {place: text for place, text in adapter.places.items() if place != "--kv-channels"}
    chosen = strategy(**_sample("megatron-lm")["strategy"])
    for settings, refused in ((adapter.places, False), (places, True)):
        can = capabilities_of_adapter(replace(adapter, places=settings))
        reasons = [
            each.because
            for each in can.refusals
            if each.refuses(chosen, replace(MODEL, head_dim=128), MACHINE)
        ]
        assert any("head_width" in reason for reason in reasons) == refused


@pytest.mark.parametrize("name", READY)
def test_each_refusal_is_met(name: str) -> None:
    adapter, sample = load_adapter(name), _sample(name)
    met = set()
    for changed in sample.get("refused", []):
        because = changed.pop("because")
        with pytest.raises(InvalidInput, match=f"{name} .*{because}"):
            start_of(adapter, _plan(sample, **changed))
        met |= {refusal.because for refusal in adapter.refuse if because in refusal.because}
    assert met == {refusal.because for refusal in adapter.refuse}


@pytest.mark.parametrize("name", READY)
def test_what_a_trainer_prints_is_read(name: str, tmp_path: Path) -> None:
    adapter, sample = load_adapter(name), _sample(name)
    for order, text in enumerate(sample.get("left", [])):
        (tmp_path / f"found-1-{order}-0").write_bytes(_file(text))
    figures = _log(adapter, sample, tmp_path).starts[0].figures
    assert figures.differs is None
    times = {str(each.step): each.time_s for each in figures.iterations}
    assert times == pytest.approx(sample["times_s"], rel=1e-4)
    assert figures.losses[-1] == pytest.approx(sample["loss"])
    assert figures.parameters == sample.get("parameters")
    memory = {str(rank): each.peak_memory_gib for rank, each in figures.ranks.items()}
    peaks = {rank: peak for rank, peak in memory.items() if peak is not None}
    assert peaks == pytest.approx(sample.get("peak_memory_gib", {}), rel=1e-4)


def _file(left: str | list[tuple[Any, ...]]) -> bytes:
    if isinstance(left, str):
        return left.encode()
    return b"".join(
        event(step, tag, number, at_s=at_s[0] if at_s else 0.0) for step, tag, number, *at_s in left
    )


def _log(adapter: Adapter, sample: dict[str, Any], folder: Path) -> AdapterLog:
    log = AdapterLog(adapter.read, [[StartPart(_plan(sample).names(adapter))]])
    for line in sample.get("log", "").splitlines():
        log.take(line)
    log.read_files(folder)
    return log
