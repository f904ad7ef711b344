"""Predictions of the cost model: for one strategy, or a space counted or ranked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.commands.calibrations import known_name, read_document
from server.cli.dimensions import PredictedOptions, SpaceOptions, options_of
from server.cli.failures import ExitCode, Failed
from server.cli.options import (
    LOCAL,
    MachineOptions,
    ModelOptions,
    Nodes,
    OptionGroup,
    ProgramOptions,
    ServiceOptions,
    name_or_file,
    named_machine,
)
from server.cli.output import Json, document, out, text

if TYPE_CHECKING:
    from autotune.calibration import Calibration
    from autotune.schemas.calibrations import CalibrationDocument, CalibrationSummary
    from autotune.schemas.requests import PredictionQuery, SpaceQuery
    from search_spaces.program import ProgramCapabilities


COMMANDS = 3
"""Number of rows of a sweep whose commands are printed."""


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(OptionGroup):
    """A calibration of the service, one in a file, or none."""

    PANEL: ClassVar[str] = "What the prediction is based on"

    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="NAME|FILE|none",
            help="Calibration of this machine: a name of `autotune calibrations list` (needs the "
            "service), or a file of `autotune calibrations export`.  \\[default: none]",
        ),
    ] = None

    def load(self, service: ServiceOptions) -> tuple[Calibration | None, CalibrationSummary | None]:
        """Return the calibration and its summary; the service is only asked for a name.

        Raises:
            InvalidInput, InvalidInputs: it is invalid.
        """
        from autotune.schemas.requests import NO_CALIBRATION

        if self.calibration in {None, NO_CALIBRATION}:
            return None, None
        choice = name_or_file(self.calibration or "")
        if isinstance(choice, Path):
            with _fields_within("calibration"):
                return _read(read_document(choice), name=choice.name)
        name = known_name(choice, field="calibration")
        with service.client() as client:
            return _read(client.calibration_document(name), name=name)


def _read(content: CalibrationDocument, *, name: str) -> tuple[Calibration, CalibrationSummary]:
    from autotune.calibration.document import calibration_of, summary_of

    return calibration_of(content), summary_of(content, name=name, created_at=None)


@contextmanager
def _fields_within(option: str) -> Iterator[None]:
    """Prefix the fields of a file with the option, as the question has fields of the same names."""
    try:
        yield
    except InvalidInput as problem:
        raise InvalidInput(
            f"{option}.{problem.field}".removesuffix(".file"),
            problem.value,
            problem.reason,
            valid=problem.valid,
        ) from None
    except InvalidInputs as refusal:
        raise InvalidInputs(
            InvalidInput(f"{option}.{each.field}", each.value, each.reason, valid=each.valid)
            for each in refusal.problems
        ) from None


def predict(
    model: ModelOptions,
    machine: MachineOptions,
    strategy: PredictedOptions,
    program: ProgramOptions,
    calibration: CalibrationOptions,
    service: ServiceOptions,
    json: Json = False,
) -> None:
    """Predict one strategy: whether it is legal and fits, its time, memory and energy.

    If it does not fit, print the smallest changes that make it fit.

    Every prediction has an 80 % interval. It is wide without trials on the machine; --calibration
    narrows it. `autotune sweep` predicts all strategies of a space.

    Needs a service only for a calibration by name. Exit code 1 if the strategy is illegal or
    probably does not fit.
    """
    from autotune.prediction import predict as predicted
    from autotune.resolution import machine_of
    from autotune.schemas.requests import PredictionQuery
    from autotune.validation import validated
    from server.cli.tables import predictions as predictions_table
    from server.programs import refusals_of
    from server.settings import Settings

    fields = subject_fields(machine, program)
    shape = strategy.on(machine_of(fields["machine"]))
    query = validated(PredictionQuery, fields | {"model": model.choice(), "strategy": shape})
    answer = predicted(
        query,
        *calibration.load(service),
        program=program_for(query),
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
    calibration: CalibrationOptions,
    service: ServiceOptions,
    nodes: Nodes = 1,
    top: Annotated[int, typer.Option("--top", min=1, help="Number of strategies to print.")] = 10,
    json: Json = False,
) -> None:
    """Rank all strategies of a space by their predicted speed, without a trial.

    The strategies are those that `autotune space` counts: dimensions that are not given are
    automatic. Predictions and intervals are those of `autotune predict`; the commands for the first
    rows are printed below the table. Also prints the cost and the expected gain of a campaign with
    the default budget.

    Needs a service only for a calibration by name.
    """
    from server.cli.tables import predictions as predictions_table

    query = _space_query(model, machine, space, program, nodes=nodes)
    from autotune.prediction.sweep import sweep as ranked
    from autotune.resolution import machine_of

    answer = ranked(query, *calibration.load(service), most=top, program=program_for(query))
    if json:
        return document(answer)
    out().print(predictions_table.sweep(answer))
    subject = [*model.words(), *machine.words(), *program.words(), *calibration.words()]
    if calibration.calibration is not None:
        subject += service.words()
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
    from autotune.prediction import space_report

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
    from autotune.validation import validated

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
    """Return the default machine: the profile's, or this machine without one."""
    if profile is None:
        return LOCAL
    from evaluators.cluster import load_profile
    from server.settings import Settings

    return named_machine(profile, load_profile(profile, folder=Settings().profiles_dir).machine)


def program_for(query: SpaceQuery | PredictionQuery) -> ProgramCapabilities:
    from server.programs import chosen_program
    from server.settings import Settings

    return chosen_program(query, Settings(), as_admin=True)
