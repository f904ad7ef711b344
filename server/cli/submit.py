"""Submitting a campaign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from autotune.client import CampaignInput
from autotune.schemas import DryRun, EvaluatorName, Objective
from search_spaces.errors import InvalidInput
from server.cli import reports, tables
from server.cli.campaigns import BUDGET, Deadline, MaxNodeHours, deadline_of
from server.cli.choices import given
from server.cli.figures import figure
from server.cli.options import MachineOptions, ModelOptions, Nodes, ServiceOptions, SpaceOptions
from server.cli.output import Json, document, note, out
from server.cli.watch import follow

TRIALS = "How trials are run"
LOCAL = "local"
SlurmMode = Literal["sbatch", "pilot"]


@dataclass(frozen=True, kw_only=True)
class BudgetOptions:
    """When the campaign ends."""

    max_trials: Annotated[
        int | None,
        typer.Option(
            "--max-trials", help="So many trials.  \\[default: 30]", rich_help_panel=BUDGET
        ),
    ] = None
    max_node_hours: MaxNodeHours = None
    deadline: Deadline = None

    def budget(self) -> dict[str, Any]:
        return given(
            max_trials=self.max_trials,
            max_node_hours=self.max_node_hours,
            deadline=deadline_of(self.deadline),
        )


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How each trial measures, and where."""

    evaluator: Annotated[
        EvaluatorName | None,
        typer.Option(
            "--evaluator",
            help="slurm trains on a cluster's nodes; local trains on this machine; simulated asks "
            "a cost model and says so.  \\[default: slurm with --profile, local for --machine "
            "local, else simulated]",
            rich_help_panel=TRIALS,
        ),
    ] = None
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="How trials go to Slurm: a name of `autotune profiles`.",
            rich_help_panel=TRIALS,
        ),
    ] = None
    mode: Annotated[
        SlurmMode | None,
        typer.Option(
            "--mode",
            help="sbatch: a job for each trial; pilot: steps inside one allocation.  "
            "\\[default: sbatch]",
            rich_help_panel=TRIALS,
        ),
    ] = None
    pool_nodes: Annotated[
        int | None,
        typer.Option(
            "--pool-nodes",
            help="Nodes that trials may hold at the same time.  \\[default: --nodes]",
            rich_help_panel=TRIALS,
        ),
    ] = None
    warmup: Annotated[
        int | None,
        typer.Option(
            "--warmup", help="Iterations left out of each timing.", rich_help_panel=TRIALS
        ),
    ] = None
    iterations: Annotated[
        int | None,
        typer.Option("--iterations", help="Iterations timed at each GAS.", rich_help_panel=TRIALS),
    ] = None
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", help="Seconds for one trial.", rich_help_panel=TRIALS),
    ] = None
    confirmations: Annotated[
        int | None,
        typer.Option(
            "--confirmations", help="So many of the best are run again.", rich_help_panel=TRIALS
        ),
    ] = None
    time_scale: Annotated[
        float | None,
        typer.Option(
            "--time-scale",
            help="Simulated trials: seconds waited for each simulated second.",
            rich_help_panel=TRIALS,
        ),
    ] = None

    def protocol(self) -> dict[str, Any]:
        return given(
            warmup_iterations=self.warmup,
            measured_iterations=self.iterations,
            time_limit_s=self.time_limit,
            confirmations=self.confirmations,
        )

    def evaluator_for(self, machine: str) -> EvaluatorName:
        if self.evaluator is None and self.profile is not None:
            return "slurm"
        return self.evaluator or ("local" if machine == LOCAL else "simulated")

    def slurm(self) -> dict[str, Any] | None:
        """As the service takes it; None where nothing of it was given."""
        chosen = given(profile=self.profile, mode=self.mode)
        if chosen and self.profile is None:
            valid = "--profile, with a name of `autotune profiles`"
            raise InvalidInput("slurm.profile", None, "a mode needs a profile", valid=valid)
        return chosen or None


def submit(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    trials: TrialOptions,
    budget: BudgetOptions,
    service: ServiceOptions,
    nodes: Nodes = 1,
    objective: Annotated[
        Objective | None, typer.Option("--objective", help="What is to be as high as possible.")
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option("--tokens", help="Training tokens, for days and energy: 300e9."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of the search and the trials.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="For people.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what it would try and cost; submit nothing.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Follow it, as `autotune watch`.")] = False,
    json: Json = False,
) -> None:
    """Submit a campaign: how should this model be laid out on these nodes?"""
    machine_name = machine.machine or _machine_of(trials.profile, service)
    optional: dict[str, Any] = given(
        slurm=trials.slurm(),
        pool_nodes=trials.pool_nodes,
        objective=objective,
        tokens=tokens,
        seed=seed,
        name=name,
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
    _send(question, service, dry_run=dry_run, watch=watch, json=json)


def _machine_of(profile: str | None, service: ServiceOptions) -> str:
    """The machine where none was named: the profile's own, and without a profile this machine."""
    if profile is None:
        return LOCAL
    with service.client() as client:
        own = client.profile(profile).machine
    if not own:
        reason = f"the profile {profile!r} is for any machine, so say which"
        valid = "--machine, with a name of `autotune machines` or a TOML file"
        raise InvalidInput("machine", None, reason, valid=valid)
    return own


def _send(
    question: CampaignInput, service: ServiceOptions, *, dry_run: bool, watch: bool, json: bool
) -> None:
    with service.client() as client:
        if dry_run:
            return _print_dry_run(client.dry_run(**question), json=json)
        handle = client.create(**question)
        note(f"campaign {handle.id} is submitted: {client.base_url}/campaigns/{handle.id}")
        if question["evaluator"] == "simulated":
            note("its trials are simulated: figures are predictions, not measurements")
        if watch:
            return follow(handle, json=json)
        if json:
            return document(handle.campaign)
        return out().print(tables.campaign(handle.campaign))


def _print_dry_run(answer: DryRun, *, json: bool) -> None:
    if json:
        return document(answer)
    console = out()
    console.print(reports.space(answer.space))
    bought = f"{answer.trials_affordable:,} trials of about {figure(answer.node_hours_per_trial)}"
    expected = f"{figure(answer.node_hours_expected)} node-hours"
    return console.print(
        tables.facts([("budget buys", f"{bought} node-hours each"), ("would cost", expected)])
    )
