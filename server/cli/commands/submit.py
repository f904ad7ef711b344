"""Submitting a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from autotune.schemas import Objective, SearchMethod, Surrogate
from search_spaces.errors import InvalidInput
from server.cli import tables
from server.cli.commands.watching import follow
from server.cli.dimensions import SpaceOptions
from server.cli.options import (
    LOCAL,
    BudgetOptions,
    CampaignId,
    MachineOptions,
    ModelOptions,
    Nodes,
    ProgramOptions,
    ServiceOptions,
    chosen,
    no_machine,
)
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from autotune.client import CampaignInput, Client

SlurmMode = Literal["sbatch", "pilot"]


@dataclass(frozen=True, kw_only=True)
class CampaignBudgetOptions(BudgetOptions):
    """When a campaign ends that is to be made."""

    DEFAULTS: ClassVar[Mapping[str, object]] = {"max_trials": 30}

    train_tokens: Annotated[
        str | None,
        typer.Option(
            "--train-tokens",
            help="Tokens that you will train for: 300B or 300e9. The search then goes on as long "
            "as the next trial is expected to save more node-hours over them than it costs (more "
            "energy under tokens_per_joule), and no longer; runners-up are measured again by the "
            "same account.  \\[default: not known; the search ends when nothing untried is likely "
            "to be better by 1 %]",
        ),
    ] = None
    stop_early: Annotated[
        bool | None,
        typer.Option(
            "--stop-early/--no-stop-early",
            help="Whether to end before the budget is spent, once another trial is not worth it. "
            "--no-stop-early takes all of it.  \\[default: stop early]",
            show_default=False,
        ),
    ] = None

    def budget(self) -> dict[str, Any]:
        own = chosen(train_tokens=self.train_tokens, stop_early=self.stop_early)
        return super().budget() | own


@dataclass(frozen=True, kw_only=True)
class TrialOptions(ProgramOptions):
    """How each trial measures, and where."""

    mode: Annotated[
        SlurmMode | None,
        typer.Option(
            "--mode",
            help="sbatch: a job for each trial; pilot: steps inside one allocation.  "
            "\\[default: sbatch]",
        ),
    ] = None
    pool_nodes: Annotated[
        int | None,
        typer.Option(
            "--pool-nodes",
            help="Nodes that trials may hold at the same time.  \\[default: --nodes]",
        ),
    ] = None
    warmup_iterations: Annotated[
        int | None, typer.Option("--warmup", help="Iterations left out at the start of a trial.")
    ] = None
    measured_iterations: Annotated[
        int | None,
        typer.Option(
            "--iterations",
            help="Iterations timed at each GAS at the least; of long ones two that agree do.",
        ),
    ] = None
    most_iterations: Annotated[
        int | None,
        typer.Option(
            "--most-iterations",
            help="Iterations timed at each GAS at most, while their spread is large.",
        ),
    ] = None
    target_spread: Annotated[
        float | None,
        typer.Option(
            "--target-spread",
            help="Standard error of the median time, as a share of it, that is small enough.",
        ),
    ] = None
    give_up_below: Annotated[
        float | None,
        typer.Option(
            "--give-up-below",
            help="Share of the best rate below which a trial ends early; 0: never.",
        ),
    ] = None
    time_limit_s: Annotated[
        float | None, typer.Option("--time-limit", help="Seconds for one trial.")
    ] = None
    confirmations: Annotated[
        int | None, typer.Option("--confirmations", help="So many of the best are run again.")
    ] = None
    time_scale: Annotated[
        float | None,
        typer.Option(
            "--time-scale", help="Simulated trials: seconds waited for each simulated second."
        ),
    ] = None

    def protocol(self) -> dict[str, Any]:
        return chosen(
            warmup_iterations=self.warmup_iterations,
            measured_iterations=self.measured_iterations,
            most_iterations=self.most_iterations,
            target_spread=self.target_spread,
            give_up_below=self.give_up_below,
            time_limit_s=self.time_limit_s,
            confirmations=self.confirmations,
        )

    def slurm(self) -> dict[str, Any] | None:
        """Return the choice as the service takes it; None where nothing of it was given."""
        choice = chosen(profile=None if self.on_ray else self.profile, mode=self.mode)
        if choice and self.profile is None:
            valid = "a name of `autotune profiles`"
            raise InvalidInput("profile", None, "--mode needs a cluster profile", valid=valid)
        return choice or None


def submit(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    trials: TrialOptions,
    budget: CampaignBudgetOptions,
    service: ServiceOptions,
    nodes: Nodes = 1,
    objective: Annotated[
        Objective | None,
        typer.Option(
            "--objective",
            help="What is to be as high as possible: tokens_per_s, the shortest training on at "
            "most --nodes; tokens_per_s_per_gpu and tokens_per_node_hour, the fewest node-hours "
            "for a token; tokens_per_joule, the least energy for a token, hosts included, on a "
            "machine whose power is known.  \\[default: tokens_per_s]",
        ),
    ] = None,
    min_headroom_gib: Annotated[
        float | None,
        typer.Option(
            "--min-headroom-gib",
            "--headroom",
            metavar="GIB",
            help="Memory that the fullest GPU is to have left; what leaves less is ranked last.  "
            "\\[default: 0]",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="LAYOUT|none",
            help="The layout that you would train with now, which is measured first and which the "
            "result is told against: tp=8,pp=4,mbs=1,zero=1, or a line of Megatron's arguments in "
            "quotes. What it leaves out is as in the space.  \\[default: as in "
            "Megatron-Bridge's recipes for the model's size: all nodes, MBS 1, ZeRO 1, as little "
            "recomputation and as few stages as fit]",
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            help="Tokens that days and energy are told for, and nothing else.  \\[default: "
            "--train-tokens, else 20 for each parameter]",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of the search and the trials.")
    ] = None,
    search: Annotated[
        SearchMethod | None,
        typer.Option(
            "--search",
            help="What chooses the trials: calibrated, DeepHyper with the calibrated cost model as "
            "its surrogate; deephyper as it comes, random or grid, to compare with, which run "
            "until the budget is spent.  \\[default: calibrated]",
        ),
    ] = None,
    surrogate: Annotated[
        Surrogate | None,
        typer.Option("--surrogate", help="Of --search deephyper.  \\[default: forest]"),
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Start from nothing, not from earlier trials of the machine."),
    ] = False,
    screen_nodes: Annotated[
        str | None,
        typer.Option(
            "--screen-nodes",
            metavar="auto|off|NODES",
            help="On how few nodes trials of the search may stand for the same layout on more, "
            "with fewer replicas; the best are confirmed on all of theirs.  \\[default: auto]",
        ),
    ] = None,
    screen_layers: Annotated[
        str | None,
        typer.Option(
            "--screen-layers",
            metavar="off|LAYERS",
            help="With how few of the model's layers trials of the search may stand for the same "
            "layout with all, in pipelines and on nodes fewer by the same factor: for models that "
            "the nodes at hand (--pool-nodes) are too few for.  \\[default: off]",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="For people.")] = None,
    private: Annotated[
        bool,
        typer.Option("--private", help="Let nobody else of a shared service see it, but admins."),
    ] = False,
    own_runner: Annotated[
        bool,
        typer.Option("--own-runner", help="Leave it to `autotune runner --as-me` of yours alone."),
    ] = False,
    notify: Annotated[
        bool,
        typer.Option("--notify", help="Send you an e-mail when it ends or pauses."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would try and cost; submit nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it, as `autotune watch`.")] = False,
    json: Json = False,
) -> None:
    """Submit a campaign: how should this model be laid out on these nodes?

    The service tries layouts in short training runs until another is not worth it, measures the
    best again, and recommends one. A dimension that is not given is automatic.
    """
    machine_name = machine.machine or _machine_of(trials.profile, service)
    optional: dict[str, Any] = chosen(
        slurm=trials.slurm(),
        ray=trials.ray(),
        adapter=trials.trainer(),
        pool_nodes=trials.pool_nodes,
        objective=objective,
        min_headroom_gib=min_headroom_gib,
        baseline=baseline,
        tokens=tokens,
        seed=seed,
        search=search,
        surrogate=surrogate,
        fresh=fresh or None,
        screen_nodes=_counted(screen_nodes),
        screen_layers=_counted(screen_layers),
        name=name,
        private=private or None,
        own_runner=own_runner or None,
        notify=notify or None,
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
        **optional,  # type: ignore[typeddict-item]
    }
    with service.client() as client:
        if dry_run:
            answer = client.dry_run(**question)
            return document(answer) if json else out().print(tables.predictions.dry_run(answer))
        return submitted(client, question, watch=watch, json=json)


def repeat(
    campaign: CampaignId,
    service: ServiceOptions,
    search: Annotated[
        SearchMethod,
        typer.Option(
            "--search",
            help="What chooses the trials, as of `autotune submit`. calibrated starts without "
            "earlier trials, so that it knows none of the campaign that it is compared with.",
        ),
    ],
    surrogate: Annotated[
        Surrogate,
        typer.Option("--surrogate", help="Of --search deephyper."),
    ] = "forest",
    watch: Annotated[bool, typer.Option("--watch", help="Follow it, as `autotune watch`.")] = False,
    json: Json = False,
) -> None:
    """Submit a campaign's question again with another search, to compare both.

    Model, machine, space, budget, seed, evaluator and baseline are the campaign's own; a deadline
    is not taken over.
    """
    with service.client() as client:
        handle = client.campaign(campaign).repeat(search, surrogate=surrogate)
        note(f"campaign {handle.id} repeats campaign {campaign} with the search {search}")
        if watch:
            follow(handle, json=json)
        elif json:
            return document(handle.campaign)
        else:
            out().print(tables.campaigns.campaign(handle.campaign))
    return note(f"next: `autotune compare {campaign} {handle.id}` shows both")


def submitted(client: Client, question: CampaignInput, *, watch: bool, json: bool) -> None:
    """Make a campaign, and follow it or say how."""
    handle = client.create(**question)
    note(f"campaign {handle.id} is submitted: {client.base_url}/campaigns/{handle.id}")
    if handle.campaign.simulated:
        note("its trials are simulated: figures are predictions, not measurements")
    if watch:
        return follow(handle, json=json)
    if json:
        return document(handle.campaign)
    out().print(tables.campaigns.campaign(handle.campaign))
    return note(
        f"next: `autotune watch {handle.id}` follows it, `autotune open {handle.id}` shows its page"
    )


def _counted(text: str | None) -> str | int | None:
    """Return a number as one, and any other word as it is."""
    return int(text) if text is not None and text.isdecimal() else text


def _machine_of(profile: str | None, service: ServiceOptions) -> str:
    """Return the machine where none was named: the profile's, and without one this machine."""
    if profile is None:
        return LOCAL
    with service.client() as client:
        machine = client.profile(profile).machine
    if not machine:
        raise no_machine(profile)
    return machine
