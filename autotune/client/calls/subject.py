"""What a question is about: a model and a machine."""

from __future__ import annotations

from typing import Any

from autotune.client.files import MachineInput, ModelInput, machine_choice, model_choice

LOCAL = "local"
"""The machine that the service runs on: the one where none is named."""


def subject(model: ModelInput, machine: MachineInput) -> dict[str, Any]:
    return {"model": model_choice(model), "machine": machine_choice(machine)}
