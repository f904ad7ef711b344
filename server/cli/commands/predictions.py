"""Predictions of the cost model: one strategy, its scaling, or a space counted or ranked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from autotune.schemas.choices import ScalingKind
from search_spaces.errors import InvalidInput
from server.cli.commands.submit import TrialOptions, submitted
from server.cli.failures import ExitCode, Failed
from server.cli.options import (
    LOCAL,
    WATCH,
    BudgetOptions,
    MachineOptions,
    ModelOptions,
    Nodes,
    OptionGroup,
    PredictedOptions,
    ProgramOptions,
    ServiceOptions,
    SpaceOptions,
    StrategyOptions,
    chosen,
    named_machine,
    option,
    options_of,
)
from server.cli.output import Json, document, out, text

if TYPE_CHECKING:
    from autotune.client.campaign import CampaignHandle
    from autotune.client.client import Client
    from autotune.client.question import CampaignInput
    from autotune.schemas.requests import PredictionQuery, SpaceQuery
    from autotune.schemas.scaling import ScalingQuery
    from autotune.schemas.shapes import StrategyShape
    from search_spaces.program import ProgramCapabilities

COMMANDS = 3
"""Number of rows of a sweep whose commands are printed."""


def predict(
    model: ModelOptions,
    machine: MachineOptions,
    strategy: PredictedOptions,
    program: ProgramOptions,
    json: Json = False,
) -> None:
    """Predict one strategy: whether it is legal and fits, its time, memory and energy.

    If it does not fit, print the smallest changes that make it fit.

    Every prediction has an 80 % interval. It is wide, because it rests on no trial; those of
    `autotune submit --dry-run` rest on the machine's earlier trials. `autotune sweep` predicts all
    strategies of a space.

    Needs no service. Exit code 1 if the strategy is illegal or probably does not fit.
    """
    from autotune.prediction.strategy import predict as predicted
    from autotune.schemas.requests import PredictionQuery
    from autotune.schemas.resolution import machine_of
    from autotune.schemas.validation import validated
    from server.cli.tables import predictions as predictions_table
    from server.programs import refusals_of
    from server.settings import Settings

    fields = subject_fields(machine, program)
    shape = strategy.on(machine_of(fields["machine"]))
    query = validated(PredictionQuery, fields | {"model": model.choice(), "strategy": shape})
    trainer = program_for(query)
    query = query.model_copy(update={"strategy": _fixed(query, strategy, trainer)})
    answer = predicted(
        query,
        program=trainer,
        refusals=refusals_of(query, Settings(), as_admin=True),
    )
    if json:
        document(answer)
    else:
        out().print(predictions_table.prediction(answer))
    if not (answer.legal and answer.fits):
        raise typer.Exit(ExitCode.FAILED)


def sweep(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    program: ProgramOptions,
    nodes: Nodes = 1,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of strategies to print.")] = 10,
    json: Json = False,
) -> None:
    """Rank all strategies of a space by their predicted speed, without a trial.

    The strategies are those that `autotune space` counts: dimensions that are not given are
    automatic. Predictions and intervals are those of `autotune predict`; the commands for the first
    rows are printed below the table. Also prints the cost and the expected gain of a campaign with
    the default budget.

    Needs no service.
    """
    from server.cli.tables import predictions as predictions_table

    query = _space_query(model, machine, space, program, nodes=nodes)
    from autotune.prediction.sweep import sweep as ranked
    from autotune.schemas.resolution import machine_of

    answer = ranked(query, most=top, program=program_for(query))
    if json:
        return document(answer)
    out().print(predictions_table.sweep(answer))
    subject = [*model.words(), *machine.words(), *program.words()]
    text("\ncommands for the first rows:")
    for row in answer.rows[:COMMANDS]:
        options = options_of(row.strategy, machine_of(answer.machine))
        text(f"{row.rank}  {' '.join(['autotune predict', *subject, options])}")
    return None


def space(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    program: ProgramOptions,
    nodes: Nodes = 1,
    json: Json = False,
) -> None:
    """Count the legal strategies of a space, and how many each rule removes.

    Needs no service. Dimensions that are not given are automatic. Exit code 1 if nothing fits.
    """
    from server.cli.tables import predictions as predictions_table

    query = _space_query(model, machine, space, program, nodes=nodes)
    from autotune.prediction.space import space_report

    report = space_report(query, program=program_for(query))
    if json:
        document(report)
    else:
        out().print(predictions_table.space(report))
    if not report.layouts:
        raise Failed("no strategy to try: " + "".join(report.warnings[:1]))


def _space_query(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    program: ProgramOptions,
    *,
    nodes: int,
) -> SpaceQuery:
    from autotune.schemas.requests import SpaceQuery
    from autotune.schemas.validation import validated

    question = {"model": model.choice(), "nodes": nodes, "space": space.spec()}
    return validated(SpaceQuery, question | subject_fields(machine, program))


def subject_fields(machine: MachineOptions, program: ProgramOptions) -> dict[str, Any]:
    """Return the request fields about the machine and the trainer."""
    name = machine.machine or _machine_of(program.profile)
    profile = None if program.on_ray else program.profile
    return {
        "machine": machine.choice(default=name),
        "evaluator": program.evaluator_for(name),
        "slurm": {"profile": profile} if profile is not None else None,
        "ray": program.ray(),
        "adapter": program.trainer() or "",
    }


def _machine_of(profile: str | None) -> str:
    if profile is None:
        return LOCAL
    from evaluators.cluster import load_profile
    from server.settings import Settings

    return named_machine(profile, load_profile(profile, folder=Settings().profiles_dir).machine)


def _fixed(
    query: PredictionQuery | ScalingQuery, given: StrategyOptions, program: ProgramCapabilities
) -> StrategyShape:
    from autotune.schemas.resolution import machine_of
    from search_spaces.space import fixed_values

    fixed = fixed_values(machine_of(query.machine), program)
    derived = {"num_nodes", "gradient_accumulation_steps"}
    unsaid = {
        name: value
        for name, value in fixed.items()
        if name not in derived and getattr(given, name) is None
    }
    return query.strategy.model_copy(update=unsaid)


def program_for(query: SpaceQuery | PredictionQuery) -> ProgramCapabilities:
    from server.programs import chosen_program
    from server.settings import Settings

    return chosen_program(query, Settings(), as_admin=True)


NODES_FORMS = "numbers of nodes with commas, such as 16,32,64"


@dataclass(frozen=True, kw_only=True)
class StudyOptions(OptionGroup):
    """How a scaling study is measured."""

    PANEL: ClassVar[str] = "To measure it: a campaign that is a scaling study"

    run: bool = option(
        "--run",
        "Measure it: one trial per number of nodes, smallest first. Needs --nodes.",
        value=False,
    )
    kind: ScalingKind | None = option(
        "--kind", "Measure only strong or only weak scaling.", default="both"
    )
    name: str | None = option("--name", "Name of the campaign.")
    dry_run: bool = option(
        "--dry-run", "Print what it would measure and the cost; submit nothing.", value=False
    )
    watch: bool = option("--watch", WATCH, value=False)


def scaling(
    model: ModelOptions,
    machine: MachineOptions,
    strategy: StrategyOptions,
    trials: TrialOptions,
    budget: BudgetOptions,
    study: StudyOptions,
    service: ServiceOptions,
    campaign: Annotated[
        int | None,
        typer.Option(
            "--campaign",
            "--like",
            help="Use this campaign's recommended strategy and measurements, instead of a model "
            "and a strategy.",
        ),
    ] = None,
    rank: Annotated[
        int, typer.Option("--rank", min=1, help="With --campaign: the strategy of this rank.")
    ] = 1,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            help="Numbers of nodes, such as 16,32,64.  \\[default: halves and doubles of its own]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Predict strong and weak scaling of one layout over nodes; with --run, measure it.

    Strong scaling keeps the global batch; weak scaling grows it in proportion to the nodes.
    Efficiency is the rate per GPU relative to the fewest nodes, with an 80 % interval. Points that
    a campaign measured are marked.

    Needs a service only for --campaign and for --run.
    """
    from autotune.schemas.scaling import ScalingQuery
    from autotune.schemas.validation import validated
    from server.cli.tables import predictions as predictions_table

    counts = node_counts(nodes)
    if campaign is not None and model.model is not None:
        reason = "a campaign has its own model"
        raise InvalidInput("model", model.model, reason, valid="--campaign, or --model")
    if study.run or study.dry_run:
        if not counts:
            reason = "a measurement needs numbers of nodes"
            raise InvalidInput("nodes", None, reason, valid=NODES_FORMS)
        with service.client() as client:
            if campaign is not None:
                fields = _like(client.campaign(campaign), trials, rank=rank)
            else:
                fields = {"model": model.choice(), "strategies": [strategy.shape()]}
                fields |= subject_fields(machine, trials)
            question = _question(fields, trials, budget, study, nodes=counts)
            return _measure(client, question, study, json=json)
    if campaign is not None:
        with service.client() as client:
            found = client.campaign(campaign).scaling(rank=rank, nodes=counts)
    else:
        asked = {"model": model.choice(), "strategy": strategy.shape(), "nodes": counts}
        query = validated(ScalingQuery, asked | subject_fields(machine, trials))
        # Imported late: other commands do not need everything that it imports.
        from autotune.prediction.scaling import scaling_study

        trainer = program_for(query)
        query = query.model_copy(update={"strategy": _fixed(query, strategy, trainer)})
        found = scaling_study(query, program=trainer)
    return document(found) if json else out().print(predictions_table.scaling(found))


def _like(handle: CampaignHandle, trials: TrialOptions, *, rank: int) -> dict[str, Any]:
    """Return a campaign's subject with its strategy of a rank. Trials run like the campaign's
    unless options say otherwise."""
    request = handle.campaign.request
    own = trials.evaluator is None and trials.profile is None
    name = request.machine if isinstance(request.machine, str) else request.machine.name
    return {
        "model": request.model,
        "machine": request.machine,
        "strategies": [handle.scaling(rank=rank).strategy],
        "like": handle.id,
        "evaluator": request.evaluator if own else trials.evaluator_for(name),
        "slurm": request.slurm if own else None,
        "adapter": (request.adapter if own else trials.trainer()) or "",
    }


def _question(
    subject: dict[str, Any],
    trials: TrialOptions,
    budget: BudgetOptions,
    study: StudyOptions,
    *,
    nodes: list[int],
) -> CampaignInput:
    kinds = {} if study.kind is None else {"kinds": [study.kind]}
    spec = {"nodes": nodes, "strategies": subject.pop("strategies"), **kinds}
    spec |= chosen(like=subject.pop("like", None))
    optional = chosen(
        pool_nodes=trials.pool_nodes,
        name=study.name,
        time_scale=trials.time_scale,
    )
    slurm = trials.slurm() or subject.pop("slurm", None)
    question: dict[str, Any] = {
        **subject,
        **optional,
        "slurm": slurm,
        "budget": budget.budget(),
        "protocol": trials.protocol(),
        "study": spec,
    }
    return question  # type: ignore[return-value]


def _measure(client: Client, question: CampaignInput, study: StudyOptions, *, json: bool) -> None:
    from server.cli.tables import predictions as predictions_table

    if study.dry_run:
        answer = client.dry_run(**question)
        return document(answer) if json else out().print(predictions_table.planned(answer))
    return submitted(client, question, watch=study.watch, json=json)


def node_counts(text: str | None) -> list[int]:
    """Parse `16,32,64`; raises InvalidInput for anything else."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise InvalidInput("nodes", text, "this is no list of numbers of nodes", valid=NODES_FORMS)
    return [int(word) for word in words]
