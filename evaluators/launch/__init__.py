"""One strategy in the words of the framework that trains with it: files that are ready to run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from autotune.schemas import EvaluatorName
from evaluators.cluster.catalog import profile_for_machine
from evaluators.cluster.profile import ClusterProfile
from evaluators.launch import megatron_lm
from evaluators.launch.megatron_deepspeed.arguments import arguments_text
from evaluators.launch.megatron_deepspeed.ds_config import ds_config_json
from evaluators.launch.nemo import nemo_yaml
from evaluators.launch.scripts.sbatch import sbatch_script
from evaluators.launch.scripts.train_script import train_sbatch, train_script
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

__all__ = ["artefacts"]


def artefacts(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    *,
    name: str,
    evaluator: EvaluatorName,
    profile: ClusterProfile | None = None,
) -> dict[str, str]:
    """File name -> text. The scripts hold all they need; the other files are for other launchers.

    With the campaign's profile they run as its trials did; without one they follow the ready
    profile of the machine. An export that cannot express the strategy is left out.

    Raises:
        InvalidInput: Megatron-DeepSpeed cannot run this strategy.
    """
    place = profile or profile_for_machine(machine.name) or ClusterProfile(name="generic")
    variant = place.megatron.variant if place.megatron else "main"
    files = {
        "launch.sbatch": sbatch_script(transformer, machine, strategy, place, name=name),
        "megatron_deepspeed_args.txt": arguments_text(transformer, machine, strategy, variant),
        "ds_config.json": ds_config_json(machine, strategy),
    }
    if profile and profile.program == "trainer":
        files["train.sbatch"] = train_sbatch(transformer, machine, strategy, profile, name=name)
    if evaluator == "local":
        files["train.sh"] = train_script(
            transformer, machine, strategy, name=name, python=sys.executable
        )
    return files | _exports(transformer, machine, strategy)


_EXPORTS: Mapping[str, Callable[[Transformer, Machine, Strategy], str]] = {
    "megatron_lm_args.txt": megatron_lm.arguments_text,
    "nemo.yaml": nemo_yaml,
}


def _exports(transformer: Transformer, machine: Machine, strategy: Strategy) -> dict[str, str]:
    """The strategy for frameworks that no trial ran with, where they have words for it."""
    files = {}
    for file, export in _EXPORTS.items():
        with suppress(InvalidInput):
            files[file] = export(transformer, machine, strategy)
    return files
