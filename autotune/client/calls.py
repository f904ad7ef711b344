"""Every request of the API as a value: what to send, and how its answer is read.

Nothing is sent here. What a caller gives is checked against the wire models first: each function
raises InvalidInputs naming every field that is refused, or InvalidInput for a file that is no model
or machine.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from autotune.client.files import MachineInput, ModelInput, machine_choice, model_choice
from autotune.errors import ApiError
from autotune.schemas import (
    Budget,
    BudgetExtension,
    CalibrationCreate,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
    Campaign,
    CampaignComparison,
    CampaignCreate,
    CampaignPage,
    CampaignPlan,
    DryRun,
    EvaluatorName,
    Explanation,
    FigureOffers,
    FigureScheme,
    MachineShape,
    ModelShape,
    Objective,
    ParetoCost,
    PictureFormat,
    Prediction,
    PredictionQuery,
    ProfileDetail,
    ProfileSummary,
    ProtocolSpec,
    Recommendation,
    ScalingQuery,
    ScalingStudy,
    ScreenLayers,
    ScreenNodes,
    SlurmChoice,
    SpaceQuery,
    SpaceReport,
    SpaceSpec,
    StrategyShape,
    Sweep,
    SweepQuery,
    Trial,
    TrialPage,
)
from autotune.validation import WireModel, validated

T = TypeVar("T")
PREFIX = "/api/v1"
LOCAL = "local"
"""The machine that the service runs on: the one where none is named."""


class _RequiredCampaignInput(TypedDict):
    model: ModelInput


class CampaignInput(_RequiredCampaignInput, total=False):
    """Keywords of `create` and `dry_run`; the fields of `autotune.schemas.CampaignCreate`."""

    machine: MachineInput | None
    evaluator: EvaluatorName | None
    name: str
    nodes: int
    pool_nodes: int | None
    slurm: SlurmChoice | Mapping[str, Any] | None
    objective: Objective
    min_headroom_gib: float
    baseline: str | StrategyShape | Mapping[str, Any] | None
    space: SpaceSpec | Mapping[str, Any] | None
    budget: Budget | Mapping[str, Any] | None
    protocol: ProtocolSpec | Mapping[str, Any] | None
    tokens: float | str | None
    seed: int
    fresh: bool
    screen_nodes: ScreenNodes
    screen_layers: ScreenLayers
    time_scale: float


class FigureInput(TypedDict, total=False):
    """What a figure may be narrowed to: `by` is of the trajectory ("trial", "time", "node_hours"),
    `micro_batch_size` and `num_nodes` of the map, `against` of the Pareto front."""

    by: str
    micro_batch_size: int
    num_nodes: int
    against: ParetoCost


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """One request, and how its answer is read.

    Attributes:
        read: takes the body of a successful answer.
        repeatable: whether sending it twice does no more than sending it once, so that it may be
            sent again when its connection broke with no answer.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def repeatable(self) -> bool:
        return self.method in {"GET", "DELETE"} or "Idempotency-Key" in self.headers

    def sent_with(self, client: httpx2.Client | httpx2.AsyncClient) -> httpx2.Request:
        headers = dict(self.headers)
        if self.body is not None:
            headers["Content-Type"] = "application/json"
        return client.build_request(
            self.method,
            PREFIX + self.path,
            params=self.params,
            headers=headers,
            content=self.body,
        )

    def answer(self, response: httpx2.Response) -> T:
        """Return what the request was for; raises ApiError where the service refused."""
        if not response.is_success:
            raise refusal(response)
        try:
            return self.read(response.content)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "its body"
            problem = {
                "title": "Answer not understood",
                "detail": f"what answers at {response.url} is no autotune service of this "
                f"version: {where}: {first['msg']}",
            }
            raise ApiError(response.status_code, problem) from error


def reader(answer: type[T]) -> Callable[[bytes | str], T]:
    """Return what reads a body; fields that this version does not know are passed over, so that a
    newer service may say more."""
    return partial(TypeAdapter(answer).validate_json, extra="ignore")


def refusal(response: httpx2.Response) -> ApiError:
    """Return the error of a refused request, made up where the body is no problem document."""
    problem: dict[str, Any] = {
        "title": response.reason_phrase,
        "status": response.status_code,
        "detail": f"{response.request.method} {response.url} was answered with "
        f"{response.status_code} {response.reason_phrase}",
    }
    if "json" in response.headers.get("content-type", ""):
        document = response.json()
        problem |= document if isinstance(document, dict) else {}
    return ApiError(response.status_code, problem)


def create(fields: CampaignInput) -> Call[Campaign]:
    """Make a campaign once: each call has a key of its own, sent again with each retry."""
    return Call(
        method="POST",
        path="/campaigns",
        headers={"Idempotency-Key": str(uuid.uuid4())},
        body=_body(_campaign(fields)),
        read=reader(Campaign),
    )


def dry_run(fields: CampaignInput) -> Call[DryRun]:
    return Call(
        method="POST",
        path="/campaigns",
        params={"dry_run": "true"},
        body=_body(_campaign(fields)),
        read=reader(DryRun),
    )


def plan(fields: CampaignInput) -> Call[CampaignPlan]:
    return _post("/plans", _campaign(fields), CampaignPlan)


def _campaign(fields: CampaignInput) -> CampaignCreate:
    """Return the question with what the command line assumes, too, where nothing was said.

    What is as the service assumes it is not sent.
    """
    said: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    machine = said.get("machine", LOCAL)
    usual: EvaluatorName = "local" if machine == LOCAL else "simulated"
    evaluator = said.get("evaluator", "slurm" if "slurm" in said else usual)
    defaults = CampaignCreate.model_fields
    told = {name: value for name, value in said.items() if value != defaults[name].default}
    subject = _subject(fields["model"], machine)
    return validated(CampaignCreate, told | subject | {"evaluator": evaluator})


def profile_named(slurm: SlurmChoice | Mapping[str, Any]) -> str:
    """Return the profile of a choice; raises InvalidInputs for what is none."""
    choice = slurm if isinstance(slurm, SlurmChoice) else validated(SlurmChoice, slurm)
    return choice.profile


def _subject(model: ModelInput, machine: MachineInput) -> dict[str, Any]:
    return {"model": model_choice(model), "machine": machine_choice(machine)}


def campaign(campaign_id: int) -> Call[Campaign]:
    return _get(f"/campaigns/{campaign_id}", Campaign)


def campaigns(*, state: str | None, cursor: str | None) -> Call[CampaignPage]:
    return _get("/campaigns", CampaignPage, state=state, cursor=cursor)


def control(campaign_id: int, action: str) -> Call[Campaign]:
    """Pause, resume or cancel a campaign; `action` is one of these words."""
    return Call(
        method="POST",
        path=f"/campaigns/{campaign_id}/{action}",
        read=reader(Campaign),
    )


def extend(campaign_id: int, budget: Mapping[str, Any]) -> Call[Campaign]:
    """Give a campaign more; `budget` holds the fields of `BudgetExtension`."""
    return _post(f"/campaigns/{campaign_id}/extend", validated(BudgetExtension, budget), Campaign)


def delete(campaign_id: int) -> Call[None]:
    return Call(method="DELETE", path=f"/campaigns/{campaign_id}", read=lambda _: None)


def trials(
    campaign_id: int, *, state: str | None, purpose: str | None, sort: str, cursor: str | None
) -> Call[TrialPage]:
    path = f"/campaigns/{campaign_id}/trials"
    return _get(path, TrialPage, state=state, purpose=purpose, sort=sort, cursor=cursor)


def trial(campaign_id: int, number: int) -> Call[Trial]:
    return _get(f"/campaigns/{campaign_id}/trials/{number}", Trial)


def trial_log(campaign_id: int, number: int, *, lines: int) -> Call[str]:
    path = f"/campaigns/{campaign_id}/trials/{number}/log"
    return Call(method="GET", path=path, params={"lines": str(lines)}, read=bytes.decode)


def recommendation(campaign_id: int) -> Call[Recommendation]:
    return _get(f"/campaigns/{campaign_id}/recommendation", Recommendation)


def explanation(campaign_id: int) -> Call[Explanation]:
    return _get(f"/campaigns/{campaign_id}/explanation", Explanation)


def artefact(campaign_id: int, name: str, *, rank: int) -> Call[str]:
    path = f"/campaigns/{campaign_id}/artefacts/{quote(name, safe='')}"
    return Call(method="GET", path=path, params={"rank": str(rank)}, read=bytes.decode)


def archive(campaign_id: int, *, rank: int) -> Call[bytes]:
    path = f"/campaigns/{campaign_id}/artefacts.zip"
    return Call(method="GET", path=path, params={"rank": str(rank)}, read=bytes)


def compare(ids: Sequence[int]) -> Call[CampaignComparison]:
    return _get("/comparison", CampaignComparison, ids=",".join(map(str, ids)))


def figures(campaign_id: int) -> Call[FigureOffers]:
    return _get(f"/campaigns/{campaign_id}/figures", FigureOffers)


def figure(campaign_id: int, kind: str, options: FigureInput) -> Call[dict[str, Any]]:
    return _figure(campaign_id, f"{kind}.json", options, read=json.loads)


def chart(
    campaign_id: int, kind: str, options: FigureInput, *, scheme: FigureScheme
) -> Call[dict[str, Any]]:
    return _figure(campaign_id, f"{kind}.vega.json", options, read=json.loads, scheme=scheme)


def picture(
    campaign_id: int,
    kind: str,
    options: FigureInput,
    *,
    scheme: FigureScheme,
    picture: PictureFormat,
) -> Call[bytes]:
    return _figure(campaign_id, f"{kind}.{picture}", options, read=bytes, scheme=scheme)


def _figure(
    campaign_id: int, file: str, options: FigureInput, *, read: Callable[[bytes], T], **more: str
) -> Call[T]:
    given = {name: str(value) for name, value in options.items() if value is not None}
    path = f"/campaigns/{campaign_id}/figures/{quote(file, safe='')}"
    return Call(method="GET", path=path, params=given | more, read=read)


def predict(
    *,
    model: ModelInput,
    machine: MachineInput,
    strategy: StrategyShape | Mapping[str, Any],
    calibration: str | None,
    min_headroom_gib: float,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[Prediction]:
    fields = {
        **_subject(model, machine),
        "strategy": strategy,
        "min_headroom_gib": min_headroom_gib,
        "calibration": calibration,
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return _post("/predictions", validated(PredictionQuery, fields), Prediction)


def scaling(
    *,
    model: ModelInput,
    machine: MachineInput,
    strategy: StrategyShape | Mapping[str, Any],
    nodes: Sequence[int],
    calibration: str | None,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[ScalingStudy]:
    fields = {
        **_subject(model, machine),
        "strategy": strategy,
        "nodes": list(nodes),
        "calibration": calibration,
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return _post("/predictions/scaling", validated(ScalingQuery, fields), ScalingStudy)


def campaign_scaling(campaign_id: int, *, rank: int, nodes: Sequence[int]) -> Call[ScalingStudy]:
    counts = ",".join(map(str, nodes)) or None
    path = f"/campaigns/{campaign_id}/scaling"
    return _get(path, ScalingStudy, rank=str(rank), nodes=counts)


def space(
    *,
    model: ModelInput,
    machine: MachineInput,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any] | None,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[SpaceReport]:
    fields = {
        **_subject(model, machine),
        "nodes": nodes,
        "space": space or {},
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return _post("/spaces", validated(SpaceQuery, fields), SpaceReport)


def sweep(
    *,
    model: ModelInput,
    machine: MachineInput,
    nodes: int,
    space: SpaceSpec | Mapping[str, Any] | None,
    calibration: str | None,
    most: int,
    evaluator: EvaluatorName,
    slurm: SlurmChoice | Mapping[str, Any] | None,
) -> Call[Sweep]:
    fields = {
        **_subject(model, machine),
        "nodes": nodes,
        "space": space or {},
        "calibration": calibration,
        "most": most,
        "evaluator": evaluator,
        "slurm": slurm,
    }
    return _post("/sweeps", validated(SweepQuery, fields), Sweep)


def calibrations() -> Call[list[CalibrationSummary]]:
    read = reader(list[CalibrationSummary])
    return Call(method="GET", path="/calibrations", read=read)


def calibrate(
    name: str, campaigns: Iterable[int], *, software: str | None
) -> Call[CalibrationDetail]:
    fields = {"name": name, "campaigns": list(campaigns), "software": software}
    return _post("/calibrations", validated(CalibrationCreate, fields), CalibrationDetail)


def calibration(name: str) -> Call[CalibrationDetail]:
    return _get(_calibration(name), CalibrationDetail)


def calibration_document(name: str) -> Call[CalibrationDocument]:
    return _get(f"{_calibration(name)}/document", CalibrationDocument)


def import_calibration(
    name: str, document: CalibrationDocument | Mapping[str, Any]
) -> Call[CalibrationDetail]:
    if not isinstance(document, CalibrationDocument):
        document = validated(CalibrationDocument, document)
    return Call(
        method="PUT",
        path=_calibration(name),
        body=_body(document),
        read=reader(CalibrationDetail),
    )


def delete_calibration(name: str) -> Call[None]:
    return Call(method="DELETE", path=_calibration(name), read=lambda _: None)


def _calibration(name: str) -> str:
    return f"/calibrations/{quote(name, safe='')}"


def models() -> Call[list[str]]:
    return _names("/models")


def model(name: str) -> Call[ModelShape]:
    return _get(f"/models/{quote(name, safe='')}", ModelShape)


def machines() -> Call[list[str]]:
    return _names("/machines")


def machine(name: str) -> Call[MachineShape]:
    return _get(f"/machines/{quote(name, safe='')}", MachineShape)


def spaces() -> Call[list[str]]:
    return _names("/spaces")


def profiles() -> Call[list[ProfileSummary]]:
    read = reader(list[ProfileSummary])
    return Call(method="GET", path="/profiles", read=read)


def profile(name: str) -> Call[ProfileDetail]:
    return _get(f"/profiles/{quote(name, safe='')}", ProfileDetail)


def _names(path: str) -> Call[list[str]]:
    return Call(method="GET", path=path, read=reader(list[str]))


def _get(path: str, answer: type[WireModel], **params: str | None) -> Call[WireModel]:
    present = {name: value for name, value in params.items() if value is not None}
    return Call(method="GET", path=path, params=present, read=reader(answer))


def _post(path: str, request: BaseModel, answer: type[WireModel]) -> Call[WireModel]:
    return Call(method="POST", path=path, body=_body(request), read=reader(answer))


def _body(document: BaseModel) -> bytes:
    return document.model_dump_json(exclude_unset=True).encode()
