"""One strategy, predicted without a service."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.client.questions import validated
from autotune.schemas import PredictionQuery, StrategyShape
from search_spaces.strategy import Precision
from search_spaces.transformer import ActivationCheckpointing
from server.cli import reports
from server.cli.failures import Exit
from server.cli.options import MachineOptions, ModelOptions
from server.cli.output import Json, document, out

STRATEGY = "The strategy"


def predict(
    model: ModelOptions,
    machine: MachineOptions,
    tp: Annotated[int, typer.Option("--tp", help="Tensor parallel.", rich_help_panel=STRATEGY)] = 1,
    pp: Annotated[
        int, typer.Option("--pp", help="Pipeline parallel.", rich_help_panel=STRATEGY)
    ] = 1,
    mbs: Annotated[
        int, typer.Option("--mbs", help="Micro-batch size.", rich_help_panel=STRATEGY)
    ] = 1,
    gas: Annotated[
        int,
        typer.Option("--gas", help="Gradient accumulation steps.", rich_help_panel=STRATEGY),
    ] = 1,
    zero: Annotated[
        int, typer.Option("--zero", help="ZeRO stage, 0 to 3.", rich_help_panel=STRATEGY)
    ] = 1,
    num_nodes: Annotated[
        int, typer.Option("--num-nodes", help="Nodes.", rich_help_panel=STRATEGY)
    ] = 1,
    checkpointing: Annotated[
        ActivationCheckpointing,
        typer.Option("--checkpointing", help="Activations recomputed.", rich_help_panel=STRATEGY),
    ] = "full",
    sequence_parallel: Annotated[
        bool,
        typer.Option("--sequence-parallel", help="Sequence parallelism.", rich_help_panel=STRATEGY),
    ] = False,
    flash_attention: Annotated[
        bool, typer.Option("--flash/--no-flash", help="Flash attention.", rich_help_panel=STRATEGY)
    ] = True,
    virtual_stages: Annotated[
        int,
        typer.Option(
            "--virtual-stages", help="Model chunks of each stage.", rich_help_panel=STRATEGY
        ),
    ] = 1,
    precision: Annotated[
        Precision, typer.Option("--precision", help="Of the weights.", rich_help_panel=STRATEGY)
    ] = "bf16",
    json: Json = False,
) -> None:
    """Predict one strategy: is it legal, does it fit, where do time and memory go?

    Needs no service. Exit code 1 where the strategy is illegal or does not fit.
    """
    strategy = validated(
        StrategyShape,
        {
            "tensor_parallel": tp,
            "pipeline_parallel": pp,
            "micro_batch_size": mbs,
            "gradient_accumulation_steps": gas,
            "zero_stage": zero,
            "num_nodes": num_nodes,
            "activation_checkpointing": checkpointing,
            "sequence_parallel": sequence_parallel,
            "flash_attention": flash_attention,
            "virtual_stages": virtual_stages,
            "precision": precision,
        },
    )
    from autotune.prediction import predict as predicted

    query = PredictionQuery(model=model.choice(), machine=machine.choice(), strategy=strategy)
    answer = predicted(query)
    if json:
        document(answer)
    else:
        out().print(reports.prediction(answer))
    if not (answer.legal and answer.fits):
        raise typer.Exit(Exit.FAILED)
