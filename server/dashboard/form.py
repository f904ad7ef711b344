"""The form of a new campaign: choices from the catalog, fields, and two examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.answers.campaign import model_size
from autotune.schemas.catalog import AdapterSummary, ProfileSummary
from autotune.schemas.choices import SearchMethod
from autotune.schemas.requests import CampaignCreate
from autotune.words.quantities import figure
from search_spaces.catalog import load_machine, load_model, machine_names, model_names, space_names
from search_spaces.dimensions import TABLE, Scalar, setting_text
from server.catalog import profile_summaries, usable_adapters

LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class FormField:
    """One input. `name` is its path in `CampaignCreate`, which errors refer to; inputs about
    experts are hidden while the model has none."""

    name: str
    label: str
    kind: str = "number"
    hint: str = ""
    value: str = ""
    of_experts: bool = False

    @property
    def id(self) -> str:
        return self.name.replace(".", "-")


@dataclass(frozen=True)
class SelectOption:
    """A value to choose, and data for the page's script: a model's sequence length and whether it
    has experts, a profile's machine in the catalog, the dimensions that a search with an adapter
    may vary."""

    value: str
    label: str
    seq_length: int = 0
    has_experts: bool = False
    machine: str = ""
    dimensions: str = ""


@dataclass(frozen=True)
class ProfileGroup:
    """Profiles under one heading; built-in ones are only used if the user selects one."""

    label: str
    choices: list[SelectOption]
    own: bool = False


SHAPE_FIELDS = (
    FormField(name="model.num_layers", label="Layers"),
    FormField(name="model.hidden_size", label="Hidden size"),
    FormField(name="model.num_attention_heads", label="Attention heads"),
    FormField(name="model.num_query_groups", label="Query groups", hint="default: number of heads"),
    FormField(name="model.head_dim", label="Head size", hint="default: hidden / heads"),
    FormField(name="model.ffn_hidden_size", label="FFN size", hint="default: 4 × hidden"),
    FormField(name="model.seq_length", label="Sequence length", hint="default: 2048"),
    FormField(name="model.vocab_size", label="Vocabulary", hint="default: 51,200"),
)

LAYER_FIELDS = (
    FormField(
        name="model.experts",
        label="Experts",
        kind="table",
        hint="such as num_experts=64 top_k=6 ffn_hidden_size=1408 dense_layers=1",
    ),
    FormField(
        name="model.latent_attention",
        label="Latent attention",
        kind="table",
        hint="such as kv_rank=512 qk_head_dim=128 rope_head_dim=64 v_head_dim=128",
    ),
    FormField(name="model.attention_window", label="Attention window", hint="tokens"),
    FormField(name="model.window_layers", label="Layers with the window"),
    FormField(name="model.mtp_layers", label="Multi-token prediction layers"),
    FormField(
        name="model.mamba",
        label="Mamba-2 layers",
        kind="table",
        hint="such as layers=24 attention_layers=4 num_heads=128 head_dim=64 state_size=128 "
        "num_groups=8",
    ),
    FormField(
        name="model.linear_attention",
        label="Linear attention",
        kind="table",
        hint="such as layers=36 key_heads=16 value_heads=32 key_head_dim=128 value_head_dim=128",
    ),
    FormField(
        name="model.sparse_attention",
        label="Sparse attention",
        kind="table",
        hint="such as top_k=2048 index_heads=64 index_head_dim=128 index_layers=61",
    ),
)
"""Additional fields of a custom shape's layers, which GPT and Llama do not have."""

SEARCHES: dict[SearchMethod, str] = {
    "calibrated": "calibrated: DeepHyper with the cost model",
    "deephyper": "deephyper: DeepHyper only",
    "random": "random",
    "grid": "grid, pruned",
}

SETTINGS = FormField(
    name="settings",
    label="Adapter dimensions",
    kind="text",
    hint="such as overlap=on,off bucket=50",
)
"""Values of trainer-defined dimensions."""


def dimension_fields() -> list[FormField]:
    fields = [
        FormField(name=d.name, label=d.label, kind="text", hint=d.hint, of_experts=d.of_experts)
        for d in TABLE
    ]
    return [replace(field, name=f"space.{field.name}") for field in (*fields, SETTINGS)]


KINDS: Mapping[type[Scalar], str] = {bool: "flag", int: "number", str: "text"}
"""How the page parses an input, by kind of value."""


@dataclass(frozen=True, kw_only=True)
class StrategyField(FormField):
    """One dimension of one strategy, with `choices` if it has few values."""

    choices: tuple[SelectOption, ...] = ()


def strategy_fields() -> list[StrategyField]:
    """Return one input per dimension of a strategy, with a common default."""
    return [
        StrategyField(
            name=f"strategy.{dimension.name}",
            label=dimension.label,
            kind=KINDS[type(value)],
            value=str(value).lower(),
            of_experts=dimension.of_experts,
            choices=tuple(
                SelectOption(str(each).lower(), setting_text(each)) for each in dimension.values
            ),
        )
        for dimension in TABLE
        for value in [dimension.usual if dimension.default is None else dimension.default]
    ]


def model_choices() -> list[SelectOption]:
    """Return the built-in models by size, each with its shape."""
    models = sorted((load_model(name) for name in model_names()), key=lambda m: m.parameters)
    return [
        SelectOption(
            m.name,
            f"{model_size(m)}: {m.num_layers} layers, hidden {m.hidden_size}",
            seq_length=m.seq_length,
            has_experts=m.experts is not None,
        )
        for m in models
    ]


def machine_choices() -> list[SelectOption]:
    """Return the built-in machines, the one that the service runs on first."""
    names = sorted(machine_names(), key=lambda name: (name != LOCAL, name))
    options = []
    for name, machine in ((name, load_machine(name)) for name in names):
        gpus = f"{machine.gpus_per_node} × {machine.gpu}, {figure(machine.memory_gib)} GiB each"
        options.append(SelectOption(name, f"{'this machine' if name == LOCAL else name}: {gpus}"))
    return options


def space_choices() -> list[SelectOption]:
    return [SelectOption(name, name) for name in space_names()]


def profile_choices(folder: Path) -> list[ProfileGroup]:
    """Return the cluster profiles, the user's own first; the API rejects invalid ones."""
    profiles = sorted(profile_summaries(folder), key=lambda profile: bool(profile.problem))
    own = [_profile_option(profile) for profile in profiles if profile.source]
    ready = [_profile_option(profile) for profile in profiles if not profile.source]
    groups = (ProfileGroup("Your own", own=True, choices=own), ProfileGroup("Ready", choices=ready))
    return [group for group in groups if group.choices]


def _profile_option(profile: ProfileSummary) -> SelectOption:
    sentence = profile.description.partition(". ")[0].rstrip(".")
    remark = "cannot be used as it is written" if profile.problem else sentence
    label = f"{profile.name}: {remark}" if remark else profile.name
    return SelectOption(profile.name, label, machine=profile.machine)


def adapter_choices(folder: Path) -> list[SelectOption]:
    return [_adapter_option(adapter) for adapter in usable_adapters(folder)]


def _adapter_option(adapter: AdapterSummary) -> SelectOption:
    remark = adapter.description or ("your own" if adapter.own else "")
    label = f"{adapter.name}: {remark}" if remark else adapter.name
    return SelectOption(adapter.name, label, dimensions=" ".join(adapter.dimensions))


def examples() -> dict[str, dict[str, Any]]:
    """Return example campaigns, as values of the form's inputs."""
    return {
        "a tiny GPT, real trials on this machine": {
            "model": "tiny",
            "machine": LOCAL,
            "nodes": "1",
            "evaluator": "local",
            "space.preset": "tiny-local",
            "budget.max_trials": "12",
            "budget.train_tokens": "100M",
        },
        "175B on Frontier, simulated": {
            "model": "gpt-175b",
            "machine": "frontier",
            "nodes": "16",
            "evaluator": "simulated",
            "space.preset": "table-v",
            "budget.max_trials": "40",
            "budget.train_tokens": "300B",
        },
    }


def default_of(path: str) -> str:
    """Return the API's default of a field such as `budget.max_trials`, as text."""
    value: Any = CampaignCreate(model="tiny", machine=LOCAL, evaluator="simulated")
    for part in path.split("."):
        value = getattr(value, part)
    return f"{value:g}" if isinstance(value, float) else str(value)
