"""How one layout scales over nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.schemas import ScalingQuery
from autotune.validation import validated
from search_spaces.errors import InvalidInput
from server.cli.commands.predictions import (
    CalibrationOptions,
    program_for,
    subject_fields,
)
from server.cli.dimensions import StrategyOptions
from server.cli.options import MachineOptions, ModelOptions, ProgramOptions, ServiceOptions
from server.cli.output import Json, document, out
from server.cli.tables import scaling as tables

NODES_FORMS = "numbers of nodes with commas, such as 16,32,64"


def scaling(
    model: ModelOptions,
    machine: MachineOptions,
    strategy: StrategyOptions,
    program: ProgramOptions,
    calibration: CalibrationOptions,
    service: ServiceOptions,
    campaign: Annotated[
        int | None,
        typer.Option(
            "--campaign",
            help="The strategy that this campaign recommends, with what its trials measured; then "
            "neither model nor strategy is given.",
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
    """Tell how one layout scales over nodes, strongly and weakly.

    Strong scaling keeps the global batch, weak scaling has one in proportion to the nodes. The
    efficiency is the rate for each GPU over that on the fewest nodes; beside it stands an interval
    that is to hold 80 % of measurements. Points that a campaign measured say so.

    Needs no service, but for --campaign and for a calibration by name.
    """
    counts = node_counts(nodes)
    if campaign is not None:
        if model.model is not None:
            reason = "a campaign has its own model"
            raise InvalidInput("model", model.model, reason, valid="--campaign, or --model")
        with service.client() as client:
            study = client.campaign(campaign).scaling(rank=rank, nodes=counts)
    else:
        question = {"model": model.choice(), "strategy": strategy.shape(), "nodes": counts}
        query = validated(ScalingQuery, question | subject_fields(machine, program))
        # Here, and not above: other commands need not wait for all that it imports.
        from autotune.prediction import scaling_study

        study = scaling_study(query, *calibration.load(service), program=program_for(query))
    if json:
        document(study)
    else:
        out().print(tables.scaling(study))


def node_counts(text: str | None) -> list[int]:
    """Read `16,32,64`; raises InvalidInput for anything else."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise InvalidInput("nodes", text, "this is no list of numbers of nodes", valid=NODES_FORMS)
    return [int(word) for word in words]
