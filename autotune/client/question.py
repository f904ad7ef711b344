"""Keyword arguments of a question, the files that they name, and the request made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Required, TypedDict

from autotune.schemas.choices import EvaluatorName, Objective, SearchMethod, Surrogate
from autotune.schemas.requests import (
    AdapterFile,
    Budget,
    CampaignCreate,
    Knobs,
    ProtocolSpec,
    RayChoice,
    ScreenLayers,
    ScreenNodes,
    SlurmChoice,
)
from autotune.schemas.shapes import MachineChoice, ModelChoice
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.validation import validated
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

LOCAL = "local"
"""The machine that the service runs on: the default."""

ModelInput = str | Path | Transformer
"""A preset's name, a bare size such as "13B", a file (read here, not by the service), a shape."""
MachineInput = str | Path | Machine
AdapterInput = str | Path | AdapterFile
"""A name that the service knows, or a TOML file, read here with the files that it names."""
SlurmInput = SlurmChoice | Mapping[str, Any]
RayInput = RayChoice | Mapping[str, Any]
SpaceInput = SpaceSpec | Mapping[str, Any]
StrategyInput = Strategy | Mapping[str, Any]


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
    knobs: Knobs | str
    knob_file: str | Path
    time_scale: float
    private: bool
    own_runner: bool


def campaign_request(fields: Mapping[str, Any]) -> CampaignCreate:
    """Return the request for the fields of `CampaignInput`.

    Defaults are not sent, so that an older service does not receive fields that it does not know.

    Raises:
        InvalidInputs: every invalid field.
        InvalidInput: the file of a model, machine, adapter or knobs cannot be read.
    """
    defaults = CampaignCreate.model_fields
    chosen = {
        name: value
        for name, value in fields.items()
        if value is not None and (name not in defaults or value != defaults[name].default)
    }
    if "adapter" in chosen:
        chosen["adapter"] = adapter_choice(chosen["adapter"])
    if isinstance(knob_file := chosen.get("knob_file"), Path):
        from search_spaces.catalog.files import read_text

        chosen["knob_file"] = read_text(knob_file, field="knob_file")
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


def machine_of_profile(name: str, machine: str, *, valid: str) -> str:
    """Return a profile's machine. Raises InvalidInput if the profile is for any machine.

    Args:
        valid: how the user names a machine.
    """
    if machine:
        return machine
    reason = f"the profile {name!r} is for any machine, so say which"
    raise InvalidInput("machine", None, reason, valid=valid)


def model_choice(model: ModelInput) -> ModelChoice:
    """Return the shape in a model's file or line, or of a model with fields that differ
    (`deepseek-v3,mtp=0`); names and shapes unchanged.

    Raises:
        InvalidInput, InvalidInputs: the file or the line cannot be read as a model.
    """
    from search_spaces.catalog import model_from_line, model_with, read_model

    if not isinstance(model, str | Path):
        return model
    base, comma, line = str(model).partition(",")
    if comma and "=" not in base and "=" in line:
        return model_with(type(model)(base), line)
    if isinstance(model, Path):
        return read_model(model)
    return model_from_line(model) if "=" in model else model


def machine_choice(machine: MachineInput) -> MachineChoice:
    """Return the shape in a machine's file; names and shapes unchanged.

    Raises:
        InvalidInput: the file cannot be read as a machine.
    """
    if not isinstance(machine, Path):
        return machine
    from search_spaces.catalog import read_machine

    return read_machine(machine)


def adapter_choice(adapter: AdapterInput) -> str | AdapterFile:
    """Return an adapter's file with the files that its `base` names; names unchanged.

    Raises:
        InvalidInput, InvalidInputs: field `adapter`: a file cannot be read or is too large.
    """
    if not isinstance(adapter, Path):
        return adapter
    from search_spaces.catalog.files import parse_toml, read_text

    text = read_text(adapter, field="adapter")
    base = parse_toml(text, adapter, field="adapter").get("base")
    paths = base.values() if isinstance(base, Mapping) else ()
    files = {
        path: read_text(adapter.parent / Path(path).expanduser(), field="adapter")
        for path in paths
        if isinstance(path, str)
    }
    folder = str(adapter.parent.absolute())
    fields = {"name": adapter.stem, "text": text, "folder": folder, "files": files}
    return validated(AdapterFile, fields)
