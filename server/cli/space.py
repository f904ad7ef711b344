"""What may be tried, counted without a service."""

from __future__ import annotations

from autotune.schemas import SpaceQuery
from autotune.validation import validated
from server.cli import reports
from server.cli.failures import Failed
from server.cli.options import MachineOptions, ModelOptions, Nodes, SpaceOptions
from server.cli.output import Json, document, out


def space(
    model: ModelOptions,
    machine: MachineOptions,
    space: SpaceOptions,
    nodes: Nodes = 1,
    json: Json = False,
) -> None:
    """Count the strategies that may be tried, and say which rule removes how many.

    Needs no service. A dimension that is not given is automatic. Exit code 1 where nothing fits.
    """
    query = validated(
        SpaceQuery,
        {
            "model": model.choice(),
            "machine": machine.choice(),
            "nodes": nodes,
            "space": space.spec(),
        },
    )
    from autotune.prediction import space_report

    report = space_report(query)
    if json:
        document(report)
    else:
        out().print(reports.space(report))
    if not report.layouts:
        raise Failed("there is nothing to try: " + "; ".join(report.warnings))
