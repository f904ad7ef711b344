"""Why a run is slow, from its log, which is sent as the body."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool

from autotune.schemas.diagnoses import Diagnosis
from autotune.schemas.shapes import MachineChoice, ModelChoice
from evaluators.run_log import read_run
from search_spaces.fields import Label
from server.api.dependencies import PlansOf, SettingsOf, problems
from server.api.planning import Plans
from server.auth.permissions import Caller, CallerOf
from server.diagnosis import diagnosis_of
from server.settings import Settings

router = APIRouter(tags=["predictions"])

ENDINGS = (".csv", ".jsonl")
EVENTS = "tfevents"
LONGEST_LAYOUT = 20_000
MOST_NODES = 10**6
BODY: dict[str, Any] = {
    "requestBody": {
        "description": "The log, JSON lines or CSV, or an event file of TensorBoard.",
        "required": True,
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string"},
                "examples": {
                    "Megatron-LM": {
                        "value": "iteration 7/ 100 | elapsed time per iteration (ms): 2500.0 |\n"
                    }
                },
            }
        },
    }
}


@dataclass(frozen=True, kw_only=True)
class LogQuestion:
    """What the user states besides the log; empty for what the log says."""

    name: str
    model: str
    machine: str
    nodes: int | None
    baseline: str
    adapter: str


async def _question(
    name: Annotated[Label, Query(description="Name of the log.")] = "log",
    model: Annotated[Label, Query(description="A model by name or size.")] = "",
    machine: Annotated[Label, Query(description="A machine of the catalog.")] = "",
    nodes: Annotated[
        int | None, Query(ge=1, le=MOST_NODES, description="Number of nodes of the run.")
    ] = None,
    baseline: Annotated[
        str,
        Query(
            max_length=LONGEST_LAYOUT,
            description="Its layout: `tp=8,pp=4,mbs=1,zero=1,gbs=512`, or its arguments.",
        ),
    ] = "",
    adapter: Annotated[Label, Query(description="Its trainer (`GET /adapters`).")] = "",
) -> LogQuestion:
    return LogQuestion(
        name=name, model=model, machine=machine, nodes=nodes, baseline=baseline, adapter=adapter
    )


LogQuestionOf = Annotated[LogQuestion, Depends(_question)]


@router.post("/diagnoses", responses=problems(413), openapi_extra=BODY)
async def diagnosed(
    request: Request,
    question: LogQuestionOf,
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Diagnosis:
    """Explain from its log why a training is slow, with the earlier trials of its machine. Nothing
    is stored."""
    return await diagnosis_of_upload(request, question, plans, settings, caller)


async def diagnosis_of_upload(
    request: Request, question: LogQuestion, plans: Plans, settings: Settings, caller: Caller
) -> Diagnosis:
    """Return the diagnosis of the log in a request's body."""
    with TemporaryDirectory(prefix="autotune-log-") as folder:
        path = Path(folder) / _file_name(question.name)
        with path.open("wb") as file:
            async for block in request.stream():
                await run_in_threadpool(file.write, block)
        log = path.parent if EVENTS in path.name else path
        return await run_in_threadpool(_diagnosed, log, question, plans, settings, caller)


def _file_name(name: str) -> str:
    ending = next((each for each in (*ENDINGS, EVENTS) if name.lower().endswith(each)), ".log")
    return f"log.{EVENTS}" if EVENTS in name.lower() else f"log{ending}"


def _diagnosed(
    log: Path, question: LogQuestion, plans: Plans, settings: Settings, caller: Caller
) -> Diagnosis:
    model: ModelChoice | None = question.model or None
    machine: MachineChoice | None = question.machine or None
    return diagnosis_of(
        read_run(log, name=question.name),
        model=model,
        machine=machine,
        nodes=question.nodes,
        baseline=question.baseline,
        adapter=question.adapter,
        adapters_dir=settings.adapters_dir,
        calibration_of=lambda query: plans.earlier(
            query, owner=caller.name, as_admin=caller.is_admin
        )[0],
    )
