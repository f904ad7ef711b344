"""Keyword arguments of a question, and the request models made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict

from autotune.client.files import (
    AdapterInput,
    MachineInput,
    ModelInput,
    adapter_choice,
    machine_choice,
    model_choice,
)
from autotune.schemas.choices import EvaluatorName, Objective, SearchMethod, Surrogate
from autotune.schemas.requests import (
    Budget,
    CampaignCreate,
    ProtocolSpec,
    RayChoice,
    ScreenLayers,
    ScreenNodes,
    SlurmChoice,
)
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.studies import StudySpec
from autotune.validation import validated

LOCAL = "local"
"""The machine that the service runs on: the default."""

SlurmInput = SlurmChoice | Mapping[str, Any]
RayInput = RayChoice | Mapping[str, Any]
SpaceInput = SpaceSpec | Mapping[str, Any]
StrategyInput = StrategyShape | Mapping[str, Any]


class SubjectInput(TypedDict, total=False):
    """Keywords of every question: model, machine, and what would run the trials."""

    model: Required[ModelInput]
    machine: MachineInput | None
    evaluator: EvaluatorName | None
    slurm: SlurmInput | None


class CampaignInput(SubjectInput, total=False):
    """Keywords of `create`, `dry_run` and `plan`: the fields of `CampaignCreate`."""

    name: str
    nodes: int
    pool_nodes: int | None
    ray: RayInput | None
    adapter: AdapterInput
    objective: Objective
    min_headroom_gib: float
    baseline: str | StrategyInput | None
    space: SpaceInput | None
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


def campaign_request(fields: Mapping[str, Any]) -> CampaignCreate:
    """Return the request for the fields of `CampaignInput`.

    Defaults are not sent, so that an older service does not receive fields that it does not know.

    Raises:
        InvalidInputs: every invalid field.
        InvalidInput: the file of a model, machine or adapter cannot be read.
    """
    defaults = CampaignCreate.model_fields
    chosen = {
        name: value
        for name, value in fields.items()
        if value is not None and (name not in defaults or value != defaults[name].default)
    }
    if "adapter" in chosen:
        chosen["adapter"] = adapter_choice(chosen["adapter"])
    return validated(CampaignCreate, chosen | subject(fields))


def subject(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `SubjectInput` and `ray` as a request has them.

    Files are read; machine and evaluator default as on the command line. The simulated evaluator is
    sent only if it is named: predictions for a machine do not use simulated trials.
    """
    machine = LOCAL if fields.get("machine") is None else fields["machine"]
    clusters = {name: fields[name] for name in ("slurm", "ray") if fields.get(name) is not None}
    usual = "local" if machine == LOCAL else None
    evaluator = fields.get("evaluator") or next(iter(clusters), usual)
    chosen = {"machine": machine_choice(machine), **clusters}
    if evaluator is not None:
        chosen["evaluator"] = evaluator
    return chosen | ({"model": model_choice(fields["model"])} if "model" in fields else {})


def profile_named(fields: Mapping[str, Any]) -> str:
    """Return the cluster profile of `slurm` or `ray`, or "". Raises InvalidInputs if the choice is
    invalid."""
    slurm, ray = fields.get("slurm"), fields.get("ray")
    if slurm is not None:
        return (slurm if isinstance(slurm, SlurmChoice) else validated(SlurmChoice, slurm)).profile
    if ray is not None:
        return (ray if isinstance(ray, RayChoice) else validated(RayChoice, ray)).profile
    return ""
