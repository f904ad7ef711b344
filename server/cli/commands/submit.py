"""Submit campaigns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from autotune.schemas.choices import Objective, SearchMethod, Surrogate
from search_spaces.errors import InvalidInput
from server.cli.commands.watching import follow
from server.cli.dimensions import SpaceOptions
from server.cli.options import (
    LOCAL,
    BudgetOptions,
    CampaignId,
    MachineOptions,
    ModelOptions,
    Nodes,
    OptionGroup,
    ProgramOptions,
    ServiceOptions,
    Watch,
    chosen,
    named_machine,
)
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from autotune.client.client import Client
    from autotune.client.question import CampaignInput

SlurmMode = Literal["sbatch", "pilot"]


@dataclass(frozen=True, kw_only=True)
class CampaignBudgetOptions(BudgetOptions):
    """When a campaign ends that is to be made."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {"max_trials": 30}

    train_tokens: Annotated[
        str | None,
        typer.Option(
            "--train-tokens",
            help="Tokens of the planned training: 300B or 300e9. The search then continues while "
            "the next trial is expected to save more node-hours over this training than it "
            "costs (energy under tokens_per_joule); the same rule decides which runners-up "
            "are measured again.  \\[default: unknown; the search ends when no untried "
            "layout is likely to be better by 1 %]",
        ),
    ] = None
    stop_early: Annotated[
        bool | None,
        typer.Option(
            "--stop-early/--no-stop-early",
            help="Stop before the budget is spent, once another trial is not worth its cost. "
            "--no-stop-early spends all of it.  \\[default: stop early]",
            show_default=False,
        ),
    ] = None

    def budget(self) -> dict[str, Any]:
        return super().budget() | self.given(("train_tokens", "stop_early"))


@dataclass(frozen=True, kw_only=True)
class TrialOptions(ProgramOptions):
    """How each trial measures, and where."""

    mode: Annotated[
        SlurmMode | None,
        typer.Option(
            "--mode",
            help="sbatch: one job per trial; pilot: steps inside one allocation.  \\[default: "
            "sbatch]",
        ),
    ] = None
    pool_nodes: Annotated[
        int | None,
        typer.Option(
            "--pool-nodes",
            help="Maximum nodes of all concurrent trials.  \\[default: --nodes]",
        ),
    ] = None
    warmup_iterations: Annotated[
        int | None, typer.Option("--warmup", help="Iterations discarded at the start of a trial.")
    ] = None
    measured_iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            help="Minimum iterations timed at each GAS; two long ones that agree are enough.",
        ),
    ] = None
    most_iterations: Annotated[
        int | None,
        typer.Option(
            "--most-iterations",
            help="Maximum iterations timed at each GAS, while their spread is large.",
        ),
    ] = None
    target_spread: Annotated[
        float | None,
        typer.Option(
            "--target-spread",
            help="Relative standard error of the median time at which a trial stops measuring.",
        ),
    ] = None
    give_up_below: Annotated[
        float | None,
        typer.Option(
            "--give-up-below",
            help="End a trial early below this share of the best rate; 0: never.",
        ),
    ] = None
    time_limit_s: Annotated[
        float | None, typer.Option("--time-limit", help="Time limit of one trial, in seconds.")
    ] = None
    confirmations: Annotated[
        int | None,
        typer.Option("--confirmations", help="Number of the best layouts that are measured again."),
    ] = None
    time_scale: Annotated[
        float | None,
        typer.Option("--time-scale", help="Simulated trials: real seconds per simulated second."),
    ] = None

    def protocol(self) -> dict[str, Any]:
        from autotune.schemas.requests import ProtocolSpec

        return self.given(ProtocolSpec.model_fields)

    def slurm(self) -> dict[str, Any] | None:
        """Return the Slurm options in the service's form; None if none was given."""
        choice = chosen(profile=None if self.on_ray else self.profile, mode=self.mode)
        if choice and self.profile is None:
            valid = "a name of `autotune profiles`"
            raise InvalidInput("profile", None, "--mode needs a cluster profile", valid=valid)
        return choice or None


@dataclass(frozen=True, kw_only=True)
class CampaignOptions(OptionGroup):
    """What is asked of a campaign, and how it searches."""

    objective: Annotated[
        Objective | None,
        typer.Option(
            "--objective",
            help="Metric to maximise: tokens_per_s, the shortest training on at most --nodes; "
            "tokens_per_s_per_gpu and tokens_per_node_hour, the fewest node-hours per "
            "token; tokens_per_joule, the least energy per token, hosts included, on a "
            "machine with known power.  \\[default: tokens_per_s]",
        ),
    ] = None
    min_headroom_gib: Annotated[
        float | None,
        typer.Option(
            "--min-headroom-gib",
            "--headroom",
            metavar="GIB",
            help="Free memory required on the fullest GPU; strategies that leave less rank "
            "last.  \\[default: 0]",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="LAYOUT|none",
            help="Your current layout: tp=8,pp=4,mbs=1,zero=1, or a quoted line of Megatron "
            "arguments. It is measured first, and the result is compared with it. Missing "
            "dimensions are taken from the space.  \\[default: as in Megatron-Bridge's "
            "recipes for the model's size: all nodes, MBS 1, ZeRO 1, as little "
            "recomputation and as few stages as fit]",
        ),
    ] = None
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            help="Tokens for which the result gives days and energy; no effect on the search.  "
            "\\[default: --train-tokens, else 20 for each parameter]",
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option("--seed", help="Random seed of the search and the trials.")
    ] = None
    search: Annotated[
        SearchMethod | None,
        typer.Option(
            "--search",
            help="Search method: calibrated, DeepHyper with the calibrated cost model as its "
            "surrogate; or for comparison deephyper with its defaults, random or grid, "
            "which run until the budget is spent.  \\[default: calibrated]",
        ),
    ] = None
    surrogate: Annotated[
        Surrogate | None,
        typer.Option("--surrogate", help="Surrogate of --search deephyper.  \\[default: forest]"),
    ] = None
    fresh: Annotated[
        bool | None,
        typer.Option("--fresh", help="Ignore earlier trials on the machine.", show_default=False),
    ] = None
    screen_nodes: Annotated[
        str | None,
        typer.Option(
            "--screen-nodes",
            metavar="auto|off|NODES",
            help="Measure layouts on fewer nodes, with fewer replicas; the best are confirmed on "
            "all nodes. auto, off, or a number of nodes.  \\[default: auto]",
        ),
    ] = None
    screen_layers: Annotated[
        str | None,
        typer.Option(
            "--screen-layers",
            metavar="off|LAYERS",
            help="Measure layouts with fewer of the model's layers, on proportionally fewer "
            "stages and nodes: for models that need more nodes than --pool-nodes.  "
            "\\[default: off]",
        ),
    ] = None
    name: Annotated[str | None, typer.Option("--name", help="Name of the campaign.")] = None
    private: Annotated[
        bool | None,
        typer.Option(
            "--private",
            help="Hide it from other users of a shared service, except admins.",
            show_default=False,
        ),
    ] = None
    own_runner: Annotated[
        bool | None,
        typer.Option(
            "--own-runner",
            help="Leave it to your own `autotune runner --as-me`.",
            show_default=False,
        ),
    ] = None
    notify: Annotated[
        bool | None,
        typer.Option("--notify", help="Send an e-mail when it ends or pauses.", show_default=False),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Return the request fields that were given."""
        given = self.given()
        for name in ("screen_nodes", "screen_layers"):
            if str(given.get(name, "")).isdecimal():
                given[name] = int(given[name])
        return given


def submit(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    trials: TrialOptions,
    budget: CampaignBudgetOptions,
    campaign: CampaignOptions,
    service: ServiceOptions,
    nodes: Nodes = 1,
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

    machine_name = machine.machine or _machine_of(trials.profile, service)
    places = chosen(
        slurm=trials.slurm(),
        ray=trials.ray(),
        adapter=trials.trainer(),
        pool_nodes=trials.pool_nodes,
        time_scale=trials.time_scale,
    )
    question: CampaignInput = {
        "model": model.choice(),
        "machine": machine.choice(default=machine_name),
        "nodes": nodes,
        "evaluator": trials.evaluator_for(machine_name),
        "space": space.spec(),
        "budget": budget.budget(),
        "protocol": trials.protocol(),
        **places,  # type: ignore[typeddict-item]
        **campaign.fields(),
    }
    with service.client() as client:
        if dry_run:
            answer = client.dry_run(**question)
            return document(answer) if json else out().print(predictions_table.dry_run(answer))
        return submitted(client, question, watch=watch, json=json)


def repeat(
    campaign: CampaignId,
    service: ServiceOptions,
    search: Annotated[
        SearchMethod,
        typer.Option(
            "--search",
            help="Search method, as for `autotune submit`. calibrated starts without earlier "
            "trials, which would include the campaign that it is compared with.",
        ),
    ],
    surrogate: Annotated[
        Surrogate,
        typer.Option("--surrogate", help="Surrogate of --search deephyper."),
    ] = "forest",
    watch: Watch = False,
    json: Json = False,
) -> None:
    """Submit a campaign again with another search, to compare both.

    Model, machine, space, budget, seed, evaluator and baseline are copied; a deadline is not.
    """
    from server.cli.tables import campaigns as campaigns_table

    with service.client() as client:
        handle = client.campaign(campaign).repeat(search, surrogate=surrogate)
        note(f"campaign {handle.id} repeats campaign {campaign} with the search {search}")
        if watch:
            follow(handle, json=json)
        elif json:
            return document(handle.campaign)
        else:
            out().print(campaigns_table.campaign(handle.campaign))
    return note(f"next: `autotune compare {campaign} {handle.id}` shows both")


def submitted(client: Client, question: CampaignInput, *, watch: bool, json: bool) -> None:
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
        f"next: `autotune watch {handle.id}` follows it, `autotune open {handle.id}` shows its page"
    )


def _machine_of(profile: str | None, service: ServiceOptions) -> str:
    """Return the default machine: the profile's, or this machine without one."""
    if profile is None:
        return LOCAL
    with service.client() as client:
        return named_machine(profile, client.profile(profile).machine)
