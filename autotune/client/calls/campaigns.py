"""Requests that make campaigns, read them and control them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote

from autotune.client.calls.call import Call, encoded, get, listed, post, reader
from autotune.client.calls.subject import RayInput, SlurmInput, subject
from autotune.client.files import AdapterInput, MachineInput, ModelInput, adapter_choice
from autotune.schemas import (
    Budget,
    BudgetExtension,
    Campaign,
    CampaignChange,
    CampaignComparison,
    CampaignCreate,
    CampaignPage,
    CampaignPlan,
    DryRun,
    EvaluatorName,
    Explanation,
    Objective,
    ProtocolSpec,
    Recommendation,
    ScalingStudy,
    ScreenLayers,
    ScreenNodes,
    SearchMethod,
    SpaceSpec,
    StrategyShape,
    StudySpec,
    Surrogate,
    TrainerName,
)
from autotune.validation import validated


class _RequiredCampaignInput(TypedDict):
    model: ModelInput


class CampaignInput(_RequiredCampaignInput, total=False):
    """Keywords of `create` and `dry_run`; the fields of `autotune.schemas.CampaignCreate`."""

    machine: MachineInput | None
    evaluator: EvaluatorName | None
    name: str
    nodes: int
    pool_nodes: int | None
    slurm: SlurmInput | None
    ray: RayInput | None
    adapter: AdapterInput
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
    search: SearchMethod
    surrogate: Surrogate
    time_scale: float
    private: bool
    own_runner: bool
    notify: bool
    study: StudySpec | Mapping[str, Any] | None


def create(fields: CampaignInput) -> Call[Campaign]:
    """Make a campaign once: each call has a key of its own, sent again with each retry."""
    return Call(
        method="POST",
        path="/campaigns",
        headers={"Idempotency-Key": str(uuid.uuid4())},
        body=encoded(question(fields)),
        read=reader(Campaign),
    )


def dry_run(fields: CampaignInput) -> Call[DryRun]:
    return Call(
        method="POST",
        path="/campaigns",
        params={"dry_run": "true"},
        body=encoded(question(fields)),
        read=reader(DryRun),
    )


def plan(fields: CampaignInput) -> Call[CampaignPlan]:
    return post("/plans", question(fields), CampaignPlan)


def question(fields: CampaignInput) -> CampaignCreate:
    """Return the question with what the command line assumes, too, where nothing was said.

    What is as the service assumes it is not sent.
    """
    said: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    defaults = CampaignCreate.model_fields
    told = {name: value for name, value in said.items() if value != defaults[name].default}
    about = subject(
        fields["model"],
        said.get("machine"),
        evaluator=said.get("evaluator"),
        slurm=said.get("slurm"),
        ray=said.get("ray"),
    )
    told["adapter"] = adapter_choice(said.get("adapter", ""))
    return validated(CampaignCreate, told | about)


def campaign(campaign_id: int) -> Call[Campaign]:
    return get(f"/campaigns/{campaign_id}", Campaign)


def campaigns(
    *, state: str | None, search: str, sort: str | None, cursor: str | None
) -> Call[CampaignPage]:
    words = search or None
    return get("/campaigns", CampaignPage, state=state, search=words, sort=sort, cursor=cursor)


def compare(ids: Sequence[int]) -> Call[CampaignComparison]:
    return get("/comparison", CampaignComparison, ids=listed(ids))


def control(campaign_id: int, action: str) -> Call[Campaign]:
    """Pause, resume or cancel a campaign; `action` is one of these words."""
    return Call(
        method="POST",
        path=f"/campaigns/{campaign_id}/{action}",
        read=reader(Campaign),
    )


def extend(campaign_id: int, budget: Mapping[str, Any]) -> Call[Campaign]:
    """Give a campaign more; `budget` holds the fields of `BudgetExtension`."""
    return post(f"/campaigns/{campaign_id}/extend", validated(BudgetExtension, budget), Campaign)


def change(campaign_id: int, changes: Mapping[str, Any]) -> Call[Campaign]:
    """Name or hide a campaign; `changes` holds the fields of `CampaignChange`."""
    return Call(
        method="PATCH",
        path=f"/campaigns/{campaign_id}",
        body=encoded(validated(CampaignChange, changes)),
        read=reader(Campaign),
    )


def delete(campaign_id: int) -> Call[None]:
    return Call(method="DELETE", path=f"/campaigns/{campaign_id}", read=lambda _: None)


def recommendation(campaign_id: int) -> Call[Recommendation]:
    return get(f"/campaigns/{campaign_id}/recommendation", Recommendation)


def explanation(campaign_id: int) -> Call[Explanation]:
    return get(f"/campaigns/{campaign_id}/explanation", Explanation)


def artefact(campaign_id: int, name: str, *, rank: int) -> Call[str]:
    path = f"/campaigns/{campaign_id}/artefacts/{quote(name, safe='')}"
    return Call(method="GET", path=path, params={"rank": str(rank)}, read=bytes.decode)


def archive(campaign_id: int, *, rank: int, trainer: TrainerName | None) -> Call[bytes]:
    path = f"/campaigns/{campaign_id}/artefacts.zip"
    params = {"rank": str(rank)} | ({"trainer": trainer} if trainer else {})
    return Call(method="GET", path=path, params=params, read=bytes)


def scaling(campaign_id: int, *, rank: int, nodes: Sequence[int]) -> Call[ScalingStudy]:
    counts = listed(nodes) or None
    path = f"/campaigns/{campaign_id}/scaling"
    return get(path, ScalingStudy, rank=str(rank), nodes=counts)
