"""What a question is about: a model, a machine, and what would run the trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.client.files import MachineInput, ModelInput, machine_choice, model_choice
from autotune.schemas import EvaluatorName, RayChoice, SlurmChoice
from autotune.validation import validated

LOCAL = "local"
"""The machine that the service runs on: the one where none is named."""

SlurmInput = SlurmChoice | Mapping[str, Any]
RayInput = RayChoice | Mapping[str, Any]


def subject(
    model: ModelInput,
    machine: MachineInput | None,
    *,
    evaluator: EvaluatorName | None,
    slurm: SlurmInput | None,
    ray: RayInput | None = None,
) -> dict[str, Any]:
    """Return these as a request has them, with what the command line assumes, too, where nothing
    was said."""
    where = LOCAL if machine is None else machine
    usual: EvaluatorName = "local" if where == LOCAL else "simulated"
    asked: EvaluatorName = usual if slurm is ray is None else "ray" if slurm is None else "slurm"
    fields = {
        "model": model_choice(model),
        "machine": machine_choice(where),
        "evaluator": evaluator or asked,
    }
    clusters = {"slurm": slurm, "ray": ray}
    return fields | {name: choice for name, choice in clusters.items() if choice is not None}


def profile_named(slurm: SlurmInput | None, ray: RayInput | None = None) -> str:
    """Return the profile of the choice, an empty text where it names none; raises InvalidInputs for
    what is no choice."""
    if slurm is not None:
        return (slurm if isinstance(slurm, SlurmChoice) else validated(SlurmChoice, slurm)).profile
    if ray is not None:
        return (ray if isinstance(ray, RayChoice) else validated(RayChoice, ray)).profile
    return ""
