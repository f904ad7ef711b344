"""What a question is about: a model, a machine, and what would run the trials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.client.files import MachineInput, ModelInput, machine_choice, model_choice
from autotune.schemas import EvaluatorName, SlurmChoice
from autotune.validation import validated

LOCAL = "local"
"""The machine that the service runs on: the one where none is named."""

SlurmInput = SlurmChoice | Mapping[str, Any]


def subject(
    model: ModelInput,
    machine: MachineInput | None,
    *,
    evaluator: EvaluatorName | None,
    slurm: SlurmInput | None,
) -> dict[str, Any]:
    """Return these as a request has them, with what the command line assumes, too, where nothing
    was said."""
    where = LOCAL if machine is None else machine
    usual: EvaluatorName = "local" if where == LOCAL else "simulated"
    fields = {
        "model": model_choice(model),
        "machine": machine_choice(where),
        "evaluator": evaluator or (usual if slurm is None else "slurm"),
    }
    return fields if slurm is None else {**fields, "slurm": slurm}


def profile_named(slurm: SlurmInput) -> str:
    """Return the profile of a choice; raises InvalidInputs for what is none."""
    choice = slurm if isinstance(slurm, SlurmChoice) else validated(SlurmChoice, slurm)
    return choice.profile
