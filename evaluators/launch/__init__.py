"""One strategy in the words of the framework that trains with it: files that are ready to run."""

from __future__ import annotations

import sys

from autotune.schemas import EvaluatorName
from evaluators.launch.ds_config import ds_config_json
from evaluators.launch.megatron_deepspeed import arguments_text
from evaluators.launch.sbatch import sbatch_script
from evaluators.launch.train_script import train_script
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
) -> dict[str, str]:
    """File name -> text. The scripts hold all they need; the other files are for other launchers.

    Raises:
        InvalidInput: Megatron-DeepSpeed cannot run this strategy.
    """
    files = {
        "launch.sbatch": sbatch_script(transformer, machine, strategy, name=name),
        "megatron_deepspeed_args.txt": arguments_text(transformer, machine, strategy),
        "ds_config.json": ds_config_json(machine, strategy),
    }
    if evaluator == "local":
        files["train.sh"] = train_script(
            transformer, machine, strategy, name=name, python=sys.executable
        )
    return files
