"""Scaling of one layout over nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from autotune.schemas.choices import ScalingKind
from search_spaces.errors import InvalidInput
from server.cli.commands.predictions import (
    CalibrationOptions,
    program_for,
    subject_fields,
)
from server.cli.commands.submit import TrialOptions, submitted
from server.cli.dimensions import StrategyOptions
from server.cli.options import (
    BudgetOptions,
    MachineOptions,
    ModelOptions,
    OptionGroup,
    ServiceOptions,
    Watch,
    chosen,
)
from server.cli.output import Json, document, out

if TYPE_CHECKING:
    from autotune.client.campaign import CampaignHandle
    from autotune.client.client import Client
    from autotune.client.question import CampaignInput

NODES_FORMS = "numbers of nodes with commas, such as 16,32,64"


@dataclass(frozen=True, kw_only=True)
class StudyOptions(OptionGroup):
    """How a scaling study is measured."""

    PANEL: ClassVar[str] = "To measure it: a campaign that is a scaling study"

    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Measure it: one trial per number of nodes, smallest first. Needs --nodes.",
        ),
    ] = False
    kind: Annotated[
        ScalingKind | None,
        typer.Option("--kind", help="Measure only strong or only weak scaling.  \\[default: both]"),
    ] = None
    name: Annotated[str | None, typer.Option("--name", help="Name of the campaign.")] = None
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what it would measure and the cost; submit nothing."),
    ] = False
    watch: Watch = False


def scaling(
    model: ModelOptions,
    machine: MachineOptions,
    strategy: StrategyOptions,
    trials: TrialOptions,
    budget: BudgetOptions,
    study: StudyOptions,
    calibration: CalibrationOptions,
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

    Needs a service only for --campaign, for --run, and for a calibration by name.
    """
    from autotune.schemas.scaling import ScalingQuery
    from autotune.validation import validated
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
        from autotune.prediction import scaling_study

        found = scaling_study(query, *calibration.load(service), program=program_for(query))
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
    """Return the request for a campaign of a subject and its strategies."""
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
