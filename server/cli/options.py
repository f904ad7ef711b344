"""Options that several commands share: the model, the machine, the space, the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from autotune.client import Client
from autotune.client.files import machine_choice, model_choice
from autotune.schemas import MachineShape, ModelShape, SpaceSpec
from autotune.validation import validated
from search_spaces.errors import InvalidInput
from search_spaces.strategy import DIMENSIONS
from server.cli.choices import dimension, given, global_batch, named_or_file

MODEL = "The model: a name, or its shape"
SPACE = "What may be tried: auto, 4, 1,2,4, 4:20 or 4:20:4"

CampaignId = Annotated[
    int, typer.Argument(metavar="ID", help="The campaign's number, as `autotune ls` shows it.")
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="AUTOTUNE_URL",
        help="The service's address.  \\[default: http://127.0.0.1:8765]",
        show_default=False,
    ),
]
Nodes = Annotated[int, typer.Option("--nodes", help="The most nodes that a strategy may use.")]


def _option(flag: str, text: str, panel: str) -> Any:
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=False)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A model by name, size, file or shape."""

    model: Annotated[
        str | None,
        _option(
            "--model",
            "A name (gpt-22b), a size (13B), a TOML file, or a Hugging Face config.json.",
            MODEL,
        ),
    ] = None
    layers: Annotated[int | None, _option("--layers", "Layers of a custom model.", MODEL)] = None
    hidden: Annotated[int | None, _option("--hidden", "Its hidden size.", MODEL)] = None
    heads: Annotated[int | None, _option("--heads", "Its attention heads.", MODEL)] = None
    kv_heads: Annotated[
        int | None, _option("--kv-heads", "Its query groups (key/value heads).", MODEL)
    ] = None
    ffn: Annotated[int | None, _option("--ffn", "Inner width of its MLP.", MODEL)] = None
    seq_length: Annotated[
        int | None, _option("--seq-length", "Tokens of one sample, of any model.", MODEL)
    ] = None
    vocab: Annotated[int | None, _option("--vocab", "Its vocabulary.", MODEL)] = None

    def choice(self) -> str | ModelShape:
        """As the service takes it; files are read here. Raises InvalidInput(s)."""
        shape = self._shape()
        if self.model is None:
            if not shape:
                raise InvalidInput(
                    "model", None, "no model was given", valid="--model, or --layers and others"
                )
            return validated(ModelShape, shape)
        chosen = model_choice(named_or_file(self.model))
        if not shape:
            return chosen
        return _reshaped(chosen, shape)

    def _shape(self) -> dict[str, int]:
        return given(
            num_layers=self.layers,
            hidden_size=self.hidden,
            num_attention_heads=self.heads,
            num_query_groups=self.kv_heads,
            ffn_hidden_size=self.ffn,
            seq_length=self.seq_length,
            vocab_size=self.vocab,
        )


def _reshaped(chosen: str | ModelShape, shape: dict[str, int]) -> ModelShape:
    """A named model with another sequence length or vocabulary; its layers are what it is."""
    refused = set(shape) - {"seq_length", "vocab_size"}
    if refused:
        field = sorted(refused)[0]
        raise InvalidInput(field, shape[field], "a model that is named keeps its own shape")
    if isinstance(chosen, str):
        from autotune.resolution import model_shape
        from search_spaces.catalog import load_model

        chosen = model_shape(load_model(chosen))
    return validated(ModelShape, chosen.model_dump() | shape)


@dataclass(frozen=True, kw_only=True)
class MachineOptions:
    """A machine by name or file, and what is to differ from it."""

    machine: Annotated[
        str | None,
        typer.Option(
            "--machine",
            help="A name (frontier, dgx-h100), a TOML file, or `local`: this machine.  "
            "\\[default: that of --profile, else local]",
            show_default=False,
        ),
    ] = None
    memory_gib: Annotated[
        float | None,
        typer.Option(
            "--memory-gib",
            help="Another memory of each GPU; on a CPU, what each rank may take before it fails.",
            show_default=False,
        ),
    ] = None

    def choice(self, *, default: str = "local") -> str | MachineShape:
        """As the service takes it; files are read here. Raises InvalidInput(s)."""
        chosen = machine_choice(named_or_file(self.machine or default))
        if self.memory_gib is None:
            return chosen
        if isinstance(chosen, str):
            from autotune.resolution import machine_shape
            from search_spaces.catalog import load_machine

            chosen = machine_shape(load_machine(chosen))
        return validated(MachineShape, chosen.model_dump() | {"memory_gib": self.memory_gib})


@dataclass(frozen=True, kw_only=True)
class SpaceOptions:
    """What may be tried in each dimension."""

    preset: Annotated[
        str | None, _option("--space", "Start from a ready space, such as table-v.", SPACE)
    ] = None
    tensor_parallel: Annotated[str | None, _option("--tp", "Tensor parallel.", SPACE)] = None
    pipeline_parallel: Annotated[str | None, _option("--pp", "Pipeline parallel.", SPACE)] = None
    micro_batch_size: Annotated[str | None, _option("--mbs", "Micro-batch size.", SPACE)] = None
    gradient_accumulation_steps: Annotated[
        str | None, _option("--gas", "Gradient accumulation steps.", SPACE)
    ] = None
    zero_stage: Annotated[str | None, _option("--zero", "ZeRO stage, 0 to 3.", SPACE)] = None
    num_nodes: Annotated[str | None, _option("--num-nodes", "Nodes.", SPACE)] = None
    activation_checkpointing: Annotated[
        str | None, _option("--checkpointing", "none, selective, full.", SPACE)
    ] = None
    sequence_parallel: Annotated[
        str | None, _option("--sequence-parallel", "on, off, or on,off.", SPACE)
    ] = None
    flash_attention: Annotated[
        str | None, _option("--flash-attention", "on, off, or on,off.", SPACE)
    ] = None
    virtual_stages: Annotated[
        str | None, _option("--virtual-stages", "Model chunks of each stage.", SPACE)
    ] = None
    precision: Annotated[str | None, _option("--precision", "bf16, fp16, fp32.", SPACE)] = None
    global_batch: Annotated[
        str | None,
        _option("--global-batch", "Samples of a step: 640, 512:1024, 512: or :1024.", SPACE),
    ] = None

    def spec(self) -> SpaceSpec:
        """As the service takes it; raises InvalidInput(s)."""
        choices = {name: dimension(name, getattr(self, name)) for name in DIMENSIONS}
        batch = global_batch(self.global_batch)
        return validated(SpaceSpec, given(preset=self.preset, global_batch_size=batch, **choices))


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """Where the service is."""

    url: Url = None

    def client(self) -> Client:
        return Client(self.url)
