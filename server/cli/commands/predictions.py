"""Predictions of the cost model: one strategy, or a space ranked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.cli.failures import ExitCode, Failed
from server.cli.options import (
    LOCAL,
    MachineOptions,
    ModelOptions,
    Nodes,
    PredictedOptions,
    ProgramOptions,
    SpaceOptions,
    StrategyOptions,
    named_machine,
    options_of,
)
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from autotune.schemas.plans import CampaignPlan
    from autotune.schemas.requests import CampaignCreate, PredictionQuery
    from search_spaces.program import ProgramCapabilities
    from search_spaces.strategy import Strategy

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

    If it does not fit, print the smallest changes that make it fit. With --over-nodes, also print
    how its layout scales: strong scaling keeps the global batch, weak scaling grows it with the
    nodes, and efficiency is the rate per GPU relative to the fewest nodes.

    Every prediction has an 80 % interval. It is wide, because it rests on no trial; the
    intervals of `autotune submit --dry-run` rest on the machine's earlier trials. `autotune sweep`
    predicts all strategies of a space.

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
    fields |= {"model": model.choice(), "strategy": shape, "over_nodes": strategy.widths()}
    fields["traits"] = strategy.named_traits()
    query = validated(PredictionQuery, fields)
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
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            help='The layout to compare with: "tp=8,pp=4,mbs=1,zero=1", a line of Megatron\'s '
            'arguments, or "none".',
            show_default="the vendor's recipe, or a customary layout",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of layouts to print.")] = 10,
    rules: Annotated[
        bool,
        typer.Option("--rules", help="Print what the space has and what each rule removes."),
    ] = False,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the first layout's launch files into this folder, marked as not measured.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Rank all layouts of a space by their predicted speed, without a trial.

    Dimensions that are not given are automatic. `autotune predict` gives the same predictions and
    intervals; the commands for the first rows are printed below the table. Also prints the cost
    and the expected gain of a campaign with the default budget. With --rules, counts the strategies
    of the space and explains which are refused.

    Needs no service. Exit code 1 if nothing fits.
    """
    from autotune.prediction.plan import plan
    from autotune.schemas.requests import CampaignCreate
    from autotune.schemas.resolution import campaign_space, machine_of, subject_of
    from autotune.schemas.validation import validated
    from server.cli.tables import predictions as predictions_table

    fields = {"model": model.choice(), "nodes": nodes, "space": space.spec()}
    fields |= {"baseline": baseline} if baseline else {}
    query = validated(CampaignCreate, fields | subject_fields(machine, program))
    subject = subject_of(query.model, query.machine)
    answer = plan(query, campaign_space(query, *subject, program=program_for(query)), most=top)
    if json:
        document(answer)
    elif rules:
        out().print(predictions_table.rules(answer))
    if answer.obstacle:
        raise Failed(answer.sentence)
    if out_dir is not None:
        _write_files(out_dir, query, answer)
    if json or rules:
        return
    out().print(predictions_table.sweep(answer))
    if not program.trainer():
        text("\npredicted for a usual trainer; name yours with --adapter")
    words = [*model.words(), *machine.words(), *program.words()]
    text("\ncommands for the first rows:")
    for row in answer.best[:COMMANDS]:
        options = options_of(row.strategy, machine_of(answer.machine))
        text(f"{row.rank}  {' '.join(['autotune predict', *words, options])}")


def _write_files(folder: Path, query: CampaignCreate, answer: CampaignPlan) -> None:
    from autotune.answers.recommendation import predicted_figures
    from autotune.files import write_whole
    from evaluators.artefacts import Launch, artefacts
    from evaluators.program.interpreter import ANY
    from server.programs import chosen_profile
    from server.settings import Settings

    row = answer.best[0]
    profile = chosen_profile(query, Settings(), as_admin=True)
    if profile and profile.adapter:  # no trial has run, and its interpreter need not be this one
        profile = replace(profile, python=profile.python or ANY)
    launch = Launch(
        transformer=answer.model,
        machine=answer.machine,
        strategy=row.strategy,
        name=f"{answer.model.name}-predicted",
        evaluator=query.evaluator,
        profile=profile,
        campaign="none, predicted by `autotune sweep`",
        figures=predicted_figures(row),
    )
    files = artefacts(launch)
    if not files:
        raise Failed("no trainer known here trains this model with this strategy")
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in files.items():
        note(f"wrote {write_whole(folder / name, script.encode(), executable=True)}")


def subject_fields(machine: MachineOptions, program: ProgramOptions) -> dict[str, Any]:
    """Return the request fields about the machine and the trainer."""
    name = machine.machine or _machine_of(program.profile)
    return {
        "machine": machine.choice(default=name),
        "evaluator": program.evaluator_for(name),
        "slurm": program.slurm(),
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
    query: PredictionQuery, given: StrategyOptions, program: ProgramCapabilities
) -> Strategy:
    from autotune.schemas.resolution import machine_of
    from search_spaces.space import fixed_values
    from search_spaces.strategy import strategy_with

    varied = {"num_nodes", "gradient_accumulation_steps", *given.texts()}
    fixed = fixed_values(machine_of(query.machine), program)
    fixed = {name: value for name, value in fixed.items() if name not in varied}
    return strategy_with({**query.strategy.as_dict(), **fixed})


def program_for(query: CampaignCreate | PredictionQuery) -> ProgramCapabilities:
    from server.programs import chosen_program
    from server.settings import Settings

    return chosen_program(query, Settings(), as_admin=True)
