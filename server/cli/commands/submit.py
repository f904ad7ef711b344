"""Submit campaigns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from autotune.schemas.choices import Objective, SearchMethod
from search_spaces.errors import InvalidInput
from server.cli.commands.watching import follow
from server.cli.option_groups import OptionGroup, chosen, option
from server.cli.options import (
    LOCAL,
    BudgetOptions,
    MachineOptions,
    ModelOptions,
    ProgramOptions,
    ServiceOptions,
    SpaceOptions,
    Watch,
    named_machine,
    named_values,
)
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from autotune.client.client import Client
    from autotune.schemas.campaigns import Campaign
    from autotune.schemas.requests import CampaignCreate

KNOBS = (
    "Settings to try on the best layout once it is confirmed, such as overlap, buckets or NCCL's "
    "variables: all that change something there, or names of `autotune adapter show NAME --knobs` "
    "and `autotune profiles NAME --knobs`. Each costs one start or more; --max-node-hours and "
    "--deadline limit them."
)
SCREENS = "auto, off, a number of nodes, or layers=24"
TABLES = frozenset({"space", "budget", "protocol"})  # of a request, copied field by field


@dataclass(frozen=True, kw_only=True)
class CampaignBudgetOptions(BudgetOptions):
    """When a campaign ends that is to be made."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {"max_trials": 30}

    train_tokens: str | None = option(
        "--train-tokens",
        "Tokens of the planned training: 300B or 300e9. The result gives its days and energy, and "
        "the search continues while the next "
        "trial is expected to save more node-hours over this training than it costs (energy under "
        "tokens_per_joule); the same rule decides which runners-up are measured again.",
        default="unknown; the search ends when no untried layout is likely to be better by 1 %",
    )
    stop_early: bool | None = option(
        "--stop-early/--no-stop-early",
        "Stop before the budget is spent, once another trial is not worth its cost. "
        "--no-stop-early spends all of it.",
        default="stop early",
    )

    def budget(self) -> dict[str, Any]:
        return super().budget() | self.given(("train_tokens", "stop_early"))


@dataclass(frozen=True, kw_only=True)
class TrialOptions(ProgramOptions):
    """How each trial measures, and where."""

    pool_nodes: int | None = option(
        "--pool-nodes", "Maximum nodes of all concurrent trials.", default="--nodes"
    )
    protocol: list[str] | None = option(
        "--protocol",
        "How a trial measures: warmup_iterations, measured_iterations and most_iterations at each "
        "GAS, target_spread, give_up_below, time_limit_s, or the number of confirmations. "
        "Repeatable.",
        metavar="NAME=VALUE",
    )

    def measures(self) -> dict[str, str]:
        return named_values("protocol", self.protocol, valid="confirmations=0 and the like")


@dataclass(frozen=True, kw_only=True)
class CampaignOptions(OptionGroup):
    """A campaign's objective, how it searches, and who sees it."""

    objective: Objective | None = option(
        "--objective",
        "Metric to maximise: tokens_per_s, the shortest training on at most --nodes; "
        "tokens_per_s_per_gpu and tokens_per_node_hour, the fewest node-hours per token; "
        "tokens_per_joule, the least energy per token, hosts included, on a machine with known "
        "power.",
        default="tokens_per_s",
    )
    min_headroom_gib: float | None = option(
        "--min-headroom-gib",
        "Free memory required on the fullest GPU; strategies that leave less rank last. By "
        "default, what a training needs with a probability of 95 %: about 5 % of the memory, "
        "12 % with experts.",
        "--headroom",
        metavar="GIB",
    )
    baseline: str | None = option(
        "--baseline",
        "Your current layout: tp=8,pp=4,mbs=1,zero=1, or a quoted line of Megatron arguments. It "
        "is measured first, and the result is compared with it. Missing dimensions are taken from "
        "the space.",
        default="NVIDIA's recipe for the model and GPU, or a layout like its recipes: MBS 1, "
        "ZeRO 1, as little recomputation and as few stages as fit",
        metavar="LAYOUT|none",
    )
    seed: int | None = option("--seed", "Random seed of the search and the trials.")
    search: SearchMethod | None = option(
        "--search",
        "Search method: calibrated, DeepHyper with the calibrated cost model as its surrogate; or "
        "for comparison deephyper with its own surrogate, random or grid, which run until the "
        "budget is spent.",
        default="calibrated",
    )
    fresh: bool | None = option("--fresh", "Ignore earlier trials on the machine.")
    screen: str | None = option(
        "--screen",
        "Measure layouts on fewer nodes, with fewer replicas, and confirm the best on all nodes: "
        "auto, off, or a number of nodes; or with layers=24 of the model's layers, on "
        "proportionally fewer stages and nodes, for models that need more nodes than --pool-nodes.",
        default="auto",
        metavar="auto|off|NODES|layers=N",
    )
    knobs: str | None = option("--knobs", KNOBS, default="none", metavar="all|NAME,NAME")
    knob_file: Path | None = option(
        "--knob-file",
        "Your own knobs: a TOML file with tables \\[knob.NAME], as in a cluster profile; try them "
        "with --knobs.",
    )
    name: str | None = option("--name", "Name of the campaign.")
    private: bool | None = option(
        "--private", "Hide it from other users of a shared service, except admins."
    )
    own_runner: bool | None = option(
        "--own-runner", "Run it with your own `autotune runner --as-me`."
    )

    def fields(self) -> dict[str, Any]:
        """Return the request fields that were given."""
        given = self.given()
        screen = given.pop("screen", None)
        if screen is None:
            return given
        nodes, layers = screen, "off"
        if screen.startswith("layers="):
            nodes, layers = "auto", screen.removeprefix("layers=")
        for name, text in (("screen_nodes", nodes), ("screen_layers", layers)):
            if text not in {"auto", "off"} and not text.isdecimal():
                raise InvalidInput("screen", screen, "no way to screen", valid=SCREENS)
            given[name] = int(text) if text.isdecimal() else text
        return given


def submit(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    trials: TrialOptions,
    budget: CampaignBudgetOptions,
    campaign: CampaignOptions,
    service: ServiceOptions,
    like: Annotated[
        int | None,
        typer.Option(
            "--like",
            metavar="ID",
            help="Copy the request of this campaign, without its name and deadline; other options "
            "override its values.",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", help="Maximum nodes of a layout.  \\[default: 1]"),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the size of the space and the cost; submit nothing."),
    ] = False,
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Submit a campaign: find the fastest layout of a model on these nodes.

    The service measures layouts in short training runs until another is not worth its cost,
    measures the best ones again, and recommends one. Dimensions that are not given are automatic.
    """
    from server.cli.tables import predictions as predictions_table

    service.wait_for_start()
    if like is None:
        question = _subject(model, machine, trials, service)
    else:
        with service.client() as client:
            known = client.campaign(like).campaign
        question = _copied(known, search=campaign.search)
        question |= _subject_like(known.request, model, machine, trials, service)
    question |= campaign.fields() | chosen(
        nodes=nodes,
        adapter=trials.trainer(),
        pool_nodes=trials.pool_nodes,
    )
    tables = {
        "space": space.spec().model_dump(exclude_defaults=True),
        "budget": budget.budget(),
        "protocol": trials.measures(),
    }
    question |= {name: question.get(name, {}) | given for name, given in tables.items()}
    with service.client() as client:
        if dry_run:
            answer = client.dry_run(**question)
            return document(answer) if json else out().print(predictions_table.dry_run(answer))
        return submitted(client, question, watch=watch, json=json)


def _subject(
    model: ModelOptions, machine: MachineOptions, trials: TrialOptions, service: ServiceOptions
) -> dict[str, Any]:
    name = machine.machine or _machine_of(trials.profile, service)
    clusters = chosen(slurm=trials.slurm(), ray=trials.ray())
    return {
        "model": model.choice(),
        "machine": machine.choice(default=name),
        "evaluator": trials.evaluator_for(name),
        **clusters,
    }


def _subject_like(
    request: CampaignCreate,
    model: ModelOptions,
    machine: MachineOptions,
    trials: TrialOptions,
    service: ServiceOptions,
) -> dict[str, Any]:
    name = request.machine if isinstance(request.machine, str) else request.machine.name
    if trials.profile is not None:
        name = _machine_of(trials.profile, service)
    name = machine.machine or name
    moved = bool(machine.given()) or trials.profile is not None
    subject = {
        "model": model.choice() if model.given() else request.model,
        "machine": machine.choice(default=name) if moved else request.machine,
        "evaluator": request.evaluator,
    } | chosen(slurm=request.slurm, ray=request.ray)
    if trials.given(("evaluator", "profile", "ray_address")):
        subject |= {
            "evaluator": trials.evaluator_for(name),
            "slurm": trials.slurm(),
            "ray": trials.ray(),
        }
    return subject


def _copied(campaign: Campaign, *, search: SearchMethod | None) -> dict[str, Any]:
    request = campaign.request
    fields = type(request).model_fields
    own = {"name"} if search in {None, request.search} else {"name", "surrogate"}
    values = {
        name: value
        for name in fields
        if name not in own and (value := getattr(request, name)) != fields[name].default
    }
    for table in TABLES & values.keys():
        values[table] = values[table].model_dump(exclude_defaults=True, exclude={"deadline"})
    return values | {"private": campaign.private}


def submitted(client: Client, question: Mapping[str, Any], *, watch: bool, json: bool) -> None:
    """Create a campaign, and follow it or print how to."""
    from server.cli.tables import campaigns as campaigns_table

    handle = client.create(**question)
    note(f"campaign {handle.id} is submitted: {client.base_url}/campaigns/{handle.id}")
    if handle.campaign.simulated:
        note("its trials are simulated: figures are predictions, not measurements")
    if watch:
        return follow(handle, json=json)
    if json:
        return document(handle.campaign)
    out().print(campaigns_table.campaign(handle.campaign))
    return note(
        f"next: `autotune watch {handle.id}` follows it, `autotune show {handle.id}` names its page"
    )


def _machine_of(profile: str | None, service: ServiceOptions) -> str:
    if profile is None:
        return LOCAL
    with service.client() as client:
        return named_machine(profile, client.profile(profile).machine)
