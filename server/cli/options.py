"""Options shared by several commands: model, machine, dimensions, service, storage."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import typer

from autotune.errors import ServiceUnreachable
from autotune.schemas.choices import EvaluatorName
from search_spaces.dimensions import DIMENSIONS, MEMORY_FOR_TIME, TABLE, setting_text
from search_spaces.errors import InvalidInput
from search_spaces.machine import default_precision
from server.cli.option_groups import OptionGroup, chosen, option
from server.cli.output import note

if TYPE_CHECKING:
    # Imported late: a command's --help does not need the client and its models.
    from autotune.client.client import Client
    from autotune.schemas.requests import AdapterFile
    from autotune.schemas.spaces import SpaceSpec
    from search_spaces.machine import Machine
    from search_spaces.strategy import Strategy
    from search_spaces.transformer import Transformer
    from server.settings import Settings

EvaluatorChoice = Literal["simulated", "local", "slurm", "pilot", "ray"]

STARTS_WITHIN_S = 10.0
"""How long `submit` waits for a service; one takes two to five seconds to start."""
STARTS_EVERY_S = 0.2

CampaignId = Annotated[
    int, typer.Argument(metavar="ID", help="The campaign's number, as `autotune ls` shows it.")
]


LOCAL = "local"
WATCH = "Follow it, as `autotune watch`."
Watch = Annotated[bool, typer.Option("--watch", help=WATCH)]
Nodes = Annotated[int, typer.Option("--nodes", help="Maximum nodes of a layout.")]


def name_or_file(text: str) -> str | Path:
    name = text.partition(",")[0]
    is_path = os.sep in name or name.endswith((".toml", ".json"))
    return Path(text).expanduser() if is_path else text


def named_machine(profile: str, machine: str) -> str:
    """Return a profile's machine; raises InvalidInput if the profile is for any machine."""
    from autotune.client.question import machine_of_profile

    valid = "--machine, with a name of `autotune machines` or a TOML file"
    return machine_of_profile(profile, machine, valid=valid)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(OptionGroup):
    """A model by name, size, file or shape."""

    PANEL: ClassVar[str] = "The model"

    model: str | None = option(
        "--model",
        "A name (gpt-22b), a size (13B), a shape (layers=24,hidden=2048,heads=16), a TOML file, or "
        "a Hugging Face config.json. Fields that differ may follow: deepseek-v3,mtp=0.",
    )
    seq_length: int | None = option("--seq-length", "Tokens of one sample.")

    def choice(self) -> str | Transformer:
        """Return the model in the service's form; files are read here.

        Raises:
            InvalidInput, InvalidInputs: there is no model, or it is invalid.
        """
        from autotune.client.question import model_choice

        if self.model is None:
            valid = "a name, a size, a shape, or a file"
            raise InvalidInput("model", None, "no model was given", valid=valid)
        model = model_choice(name_or_file(self.model))
        if self.seq_length is None:
            return model
        from search_spaces.catalog import load_model, model_from_table
        from search_spaces.fields import as_table

        shape = load_model(model) if isinstance(model, str) else model
        return model_from_table(as_table(shape) | {"seq_length": self.seq_length})


@dataclass(frozen=True, kw_only=True)
class MachineOptions(OptionGroup):
    """A machine by name or file, and what is to differ from it."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {"machine": "the machine of --profile, else local"}

    machine: str | None = option(
        "--machine", "A name (frontier, dgx-h100), a TOML file, or `local`: this machine."
    )
    memory_gib: float | None = option(
        "--memory-gib", "Override the memory of each GPU; on a CPU, the limit of each rank."
    )

    def choice(self, *, default: str = LOCAL) -> str | Machine:
        """Return the machine in the service's form; files are read here.

        Raises:
            InvalidInput, InvalidInputs: it is invalid.
        """
        from autotune.client.question import machine_choice

        machine = machine_choice(name_or_file(self.machine or default))
        if self.memory_gib is None:
            return machine
        from search_spaces.catalog import load_machine, machine_from_table
        from search_spaces.fields import as_table

        machine = load_machine(machine) if isinstance(machine, str) else machine
        return machine_from_table(as_table(machine) | {"memory_gib": self.memory_gib})


@dataclass(frozen=True, kw_only=True)
class RunMachineOptions(MachineOptions):
    """The machine of a run that has a log."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {"machine": "as the log says"}


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(OptionGroup):
    """What is to run the trials, and so decides which strategies are legal."""

    PANEL: ClassVar[str] = "How trials are run"

    evaluator: EvaluatorChoice | None = option(
        "--evaluator",
        "slurm and ray train on a cluster's nodes, pilot as steps inside one Slurm allocation, "
        "local on this machine; simulated predicts with a cost model and marks the results.",
        default="ray with --ray-address, slurm with --profile, local for --machine local, else "
        "simulated",
    )
    profile: str | None = option("--profile", "Cluster profile: a name of `autotune profiles`.")
    ray_address: str | None = option(
        "--ray-address",
        "Address of the Ray cluster: its head, or ray://HOST:PORT from outside the cluster.",
        default="the profile's",
        metavar="HOST:PORT",
    )

    adapter: str | None = option(
        "--adapter",
        "The trainer of the trials: a name of `autotune adapter list`, or a TOML file.",
        default="the trainer of the profile, else the bundled one",
        metavar="NAME|FILE",
    )

    def trainer(self) -> str | AdapterFile | None:
        """Return the adapter in the service's form; files are read here. Raises InvalidInput(s) if
        it cannot be read."""
        from autotune.client.question import adapter_choice

        return None if self.adapter is None else adapter_choice(name_or_file(self.adapter))

    @property
    def on_ray(self) -> bool:
        return self.evaluator == "ray" or (self.evaluator is None and self.ray_address is not None)

    def slurm(self) -> dict[str, str] | None:
        """Return the Slurm choice in the service's form; None without a profile for Slurm."""
        if self.profile is None or self.on_ray:
            return None
        mode = {"mode": "pilot"} if self.evaluator == "pilot" else {}
        return {"profile": self.profile, **mode}

    def ray(self) -> dict[str, str] | None:
        """Return the Ray cluster in the service's form; None if none was chosen."""
        if not self.on_ray and self.ray_address is None:
            return None
        profile = self.profile if self.on_ray else None
        return chosen(address=self.ray_address, profile=profile)

    def evaluator_for(self, machine: str) -> EvaluatorName:
        if self.on_ray:
            return "ray"
        if self.evaluator == "pilot" or (self.evaluator is None and self.profile is not None):
            return "slurm"
        return self.evaluator or ("local" if machine.casefold() == LOCAL else "simulated")


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(OptionGroup):
    """When a campaign ends."""

    PANEL: ClassVar[str] = "When it ends, whichever comes first"

    max_trials: int | None = option("--max-trials", "Maximum number of trials.")
    max_node_hours: float | None = option("--max-node-hours", "Maximum node-hours of all trials.")
    deadline: str | None = option(
        "--deadline", "End by this time: 2030-01-31T18:00 (local) or with a zone."
    )

    def budget(self) -> dict[str, Any]:
        """Return the given budget; raises InvalidInput for a deadline that is not a time.

        A deadline without a zone is in local time.
        """
        deadline = None
        if self.deadline is not None:
            try:
                deadline = datetime.fromisoformat(self.deadline).astimezone()
            except ValueError:
                reason, valid = "not a time in ISO 8601", "2030-01-31T18:00+01:00"
                raise InvalidInput("deadline", self.deadline, reason, valid=valid) from None
        return chosen(
            max_trials=self.max_trials, max_node_hours=self.max_node_hours, deadline=deadline
        )


@dataclass(frozen=True, kw_only=True)
class ServiceOptions(OptionGroup):
    """Where the service is."""

    url: str | None = option(
        "--url",
        "The service's address.",
        default="where `autotune serve` would listen, http://127.0.0.1:8765",
        envvar="AUTOTUNE_URL",
    )

    def client(self) -> Client:
        from autotune.client.client import Client

        return Client(self.url)

    def wait_for_start(self) -> None:
        """Return when the service answers; one on this machine may be starting.

        Raises:
            ServiceUnreachable: it does not answer within `STARTS_WITHIN_S`, or is on another
                machine and does not answer now.
        """
        from autotune.client.known_services import is_loopback

        ends = time.monotonic() + STARTS_WITHIN_S
        waiting = False
        while True:
            with self.client() as client:
                here = is_loopback(urlsplit(client.base_url).hostname or "localhost")
                try:
                    client.whoami()
                    return
                except ServiceUnreachable:
                    if not here or time.monotonic() > ends:
                        raise
            if not waiting:
                note(f"waits {STARTS_WITHIN_S:g} s for a service to start at {client.base_url}")
            waiting = True
            time.sleep(STARTS_EVERY_S)


@dataclass(frozen=True, kw_only=True)
class StorageOptions(OptionGroup):
    """Where campaigns are kept."""

    data_dir: Path | None = option(
        "--data-dir",
        "Folder of the database and the trials' files.",
        default="AUTOTUNE_DATA_DIR, else the user's data folder",
    )
    database_url: str | None = option(
        "--database-url",
        "PostgreSQL or SQLite.",
        default="AUTOTUNE_DATABASE_URL, else in the folder",
    )

    def settings(self, **others: object) -> Settings:
        """Return the environment's settings, overridden by these.

        Raises:
            pydantic.ValidationError: a setting is invalid.
        """
        from server.settings import Settings

        return Settings(**self.given(), **chosen(**others))


def named_values(field: str, texts: Sequence[str] | None, *, valid: str) -> dict[str, str]:
    """Parse `NAME=VALUE` texts; raises InvalidInput for another form, and a name given twice."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values or name in found:
            raise InvalidInput(field, text, "no name with a value, each once", valid=valid)
        found[name] = values
    return found


ONE_OF_EACH: Mapping[str, int] = {d.name: 1 for d in TABLE if d.default is None}
"""Values of dimensions that have no default, if none is given."""


DimensionTexts: Any = make_dataclass(
    "DimensionTexts",
    [
        (dimension.name, str | None, option(dimension.option, dimension.sentence))
        for dimension in TABLE
        if dimension.option
    ],
    bases=(OptionGroup,),
    frozen=True,
    kw_only=True,
)


@dataclass(frozen=True, kw_only=True)
class DimensionOptions(DimensionTexts, OptionGroup):  # type: ignore[misc]
    """The text of each dimension's option."""

    settings: list[str] | None = option(
        "--set",
        f"Another dimension: {', '.join(d.name for d in TABLE if not d.option)}, or one that only "
        "the trainer has: overlap=on,off. Repeatable.",
        metavar="NAME=VALUES",
    )

    def texts(self) -> dict[str, Any]:
        """Return the text of each given dimension, and as `settings` those that only the trainer
        has; raises InvalidInput."""
        named = named_values("settings", self.settings, valid="overlap=on,off and the like")
        own = {name: text for name, text in named.items() if name not in DIMENSIONS}
        for name in named.keys() - own.keys():
            if getattr(self, name, None) is not None:
                raise InvalidInput("settings", name, "its own option has it, too", valid="one")
        with_option = {d.name: getattr(self, d.name) for d in TABLE if d.option}
        others = {name: text for name, text in named.items() if name in DIMENSIONS}
        return chosen(**with_option | others, settings=own or None)


@dataclass(frozen=True, kw_only=True)
class StrategyOptions(DimensionOptions):
    """One value for each dimension."""

    PANEL: ClassVar[str] = "The layout: one value of each dimension"
    DEFAULTS: ClassVar[Mapping[str, object]] = {
        d.name: 1 if d.default is None else setting_text(d.default) for d in TABLE
    }

    def shape(self) -> Strategy:
        """Return the strategy; raises InvalidInput for several values of a dimension."""
        from autotune.schemas.spaces import Range, SpaceSpec
        from autotune.schemas.validation import validated
        from search_spaces.fields import checked
        from search_spaces.strategy import Strategy

        texts = self.texts()
        read = validated(SpaceSpec, texts)
        values = {name: getattr(read, name) for name in texts}
        own = values.get("settings", {}).items()
        for name, value in (*values.items(), *own):
            if isinstance(value, Range | list) or value == "auto":
                reason = "one layout has one value of each dimension"
                valid = "one value; `autotune sweep` ranks the layouts of many"
                raise InvalidInput(name, texts.get(name, value), reason, valid=valid)
        return checked(Strategy, {**ONE_OF_EACH, **values})


@dataclass(frozen=True, kw_only=True)
class PredictedOptions(StrategyOptions):
    """A strategy by its dimensions, or by its nodes and its batch."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {
        **StrategyOptions.DEFAULTS,
        "num_nodes": "--nodes, else 1",
        "gradient_accumulation_steps": "what --global-batch asks for, else 1",
        "precision": "bf16, or what the machine has instead",
    }

    nodes: int | None = option("--nodes", "Same as --num-nodes.")
    global_batch_size: int | None = option("--global-batch", "Samples per step; sets GAS.")
    traits: list[str] | None = option(
        "--trait",
        "What the trainer does that no dimension states: dispatcher=hybridep, routing=natural, "
        "cuda_graphs=0.5, offloaded_inputs=1, or another key of an adapter's states. Repeatable.",
        metavar="NAME=VALUE",
    )
    over_nodes: str | None = option(
        "--over-nodes", "Also predict the layout on these numbers of nodes: 1,2,4,8."
    )

    def named_traits(self) -> dict[str, str]:
        """Return the text of each trait; raises InvalidInput."""
        return named_values("traits", self.traits, valid="routing=natural and the like")

    def widths(self) -> list[int]:
        """Return the numbers of nodes of `--over-nodes`; raises InvalidInput."""
        words = [word.strip() for word in self.over_nodes.split(",")] if self.over_nodes else []
        if not all(word.isascii() and word.isdigit() and int(word) for word in words):
            reason, valid = "this is no list of numbers of nodes", "numbers with commas: 1,2,4,8"
            raise InvalidInput("over_nodes", self.over_nodes, reason, valid=valid)
        return [int(word) for word in words]

    def on(self, machine: Machine) -> Strategy:
        """Return the strategy, completed for a machine as in a space of it.

        Raises:
            InvalidInput, InvalidInputs: an invalid value, or two that contradict each other.
        """
        from search_spaces.strategy import strategy_with

        shape = self.shape()
        usual = {} if self.precision else {"precision": default_precision(machine)}
        completed = strategy_with({**shape.as_dict(), "num_nodes": self._nodes(shape), **usual})
        if self.global_batch_size is None:
            return completed
        gas = self._accumulation(completed, machine)
        return completed.with_accumulation(gas)

    def _nodes(self, shape: Strategy) -> int:
        if self.nodes is None:
            return int(shape.num_nodes)
        if self.nodes < 1 or (self.num_nodes is not None and shape.num_nodes != self.nodes):
            reason = f"num_nodes is {shape.num_nodes}" if self.num_nodes else "a layout needs one"
            raise InvalidInput("nodes", self.nodes, reason, valid="1 or more, by one of the two")
        return self.nodes

    def _accumulation(self, shape: Strategy, machine: Machine) -> int:
        """Return the GAS for the global batch; the strategy's own if the number of replicas is not
        an integer, which a rule reports."""

        groups = shape.groups(machine.gpus_per_node)
        replicas = int(groups.data_parallel)
        if groups.left_over or not replicas:
            return int(shape.gradient_accumulation_steps)
        micro_batches = shape.micro_batch_size * replicas
        batch = self.global_batch_size or 0
        gas, left = divmod(batch, micro_batches)
        if left or gas < 1:
            reason = (
                f"micro_batch_size {shape.micro_batch_size} x data_parallel {replicas} = "
                f"{micro_batches} does not divide it"
            )
            valid = f"a multiple of {micro_batches}"
            raise InvalidInput("global_batch_size", batch, reason, valid=valid)
        if self.gradient_accumulation_steps and shape.gradient_accumulation_steps != gas:
            given = shape.gradient_accumulation_steps
            reason = f"gradient_accumulation_steps {given} makes {given * micro_batches} samples"
            valid = f"{given * micro_batches}, or gradient_accumulation_steps {gas}"
            raise InvalidInput("global_batch_size", batch, reason, valid=valid)
        return int(gas)


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(DimensionOptions):
    """The values to try in each dimension."""

    PANEL: ClassVar[str] = "What may be tried: auto, 4, 1,2,4, 4..20 or 4..20 step 4 (4:20:4)"
    DEFAULTS: ClassVar[Mapping[str, object]] = {
        d.name: f"searched on GPUs, else {setting_text(d.default)}"
        for d in TABLE
        if d.name in MEMORY_FOR_TIME and d.default is not None
    }

    preset: str | None = option("--space", "A ready space, such as table-v.")
    global_batch_size: str | None = option(
        "--global-batch", "Samples per step: 640, 512..1024, 512.. or ..1024."
    )

    def spec(self) -> SpaceSpec:
        """Return the space in the service's form; raises InvalidInput(s)."""
        from autotune.schemas.spaces import SpaceSpec
        from autotune.schemas.validation import validated

        return validated(
            SpaceSpec,
            chosen(
                preset=self.preset,
                global_batch_size=self.global_batch_size,
                **self.texts(),
            ),
        )


def options_of(strategy: Strategy, machine: Machine) -> str:
    from search_spaces.strategy import strategy_with

    usual = strategy_with({**ONE_OF_EACH, "precision": default_precision(machine)})
    return options_between(usual, strategy)


def options_between(strategy: Strategy, other: Strategy) -> str:
    """Return the options that change one strategy into another: `--pp 16 --gas 20`."""
    flags = DimensionOptions.flags()
    words = [
        f"{f'{flags[name]} ' if name in flags else f'--set {name}='}"
        f"{setting_text(getattr(other, name))}"
        for name in DIMENSIONS
        if getattr(other, name) != getattr(strategy, name)
    ]
    own = [f"--set {n}={setting_text(v)}" for n, v in other.settings if v != strategy.value(n)]
    return " ".join([*words, *own])
