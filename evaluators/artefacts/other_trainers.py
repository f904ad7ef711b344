"""Launch with a trainer of the user's choice, whichever one ran the trials."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from autotune.schemas import TrainerName
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import adapter_file, load_adapter
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from evaluators.artefacts.adapter import adapter_sbatch, own_rank_script
from evaluators.artefacts.job import LAUNCH_JOB, RANK_SCRIPT, Launch
from evaluators.program.interpreter import ANY
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MEGATRON_LM, NEMO = "megatron-lm", "nemo"

_OF_A_TRIAL: Mapping[str, Sequence[str]] = {
    MEGATRON_LM: ("--vocab-size", "--train-iters", "--seed", "--eval-interval"),
    NEMO: (
        *("nemo.yaml:trainer.max_steps", "nemo.yaml:trainer.log_every_n_steps"),
        *("nemo.yaml:trainer.limit_val_batches", "nemo.yaml:exp_manager.explicit_log_dir"),
        "nemo.yaml:exp_manager.create_checkpoint_callback",
        *("nemo.yaml:exp_manager.resume_if_exists", "nemo.yaml:model.seed"),
        *("nemo.yaml:model.data.data_impl", "nemo.yaml:model.data.data_prefix"),
    ),
}
"""Places of each adapter that only apply to a trial, including its command."""

_NEMO_HEAD = """# python megatron_gpt_pretraining.py --config-dir=. --config-name=nemo
# It is laid over NeMo's own megatron_gpt_config.yaml, which has data, tokenizer, schedule.
"""
_NEMO_FSDP = "# ZeRO {stage} is torch's FSDP here, not the engine that was measured.\n"


@cache
def ready_adapter(name: str) -> Adapter:
    """Return the bundled adapter of this name."""
    return load_adapter(name)


def megatron_lm_arguments(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return one option per line; a launcher passes them on with `$(cat megatron_lm_args.txt)`.

    Raises:
        InvalidInput: Megatron-LM cannot train with this strategy.
    """
    words = _start(MEGATRON_LM, transformer, machine, strategy).words
    return "".join(f"{' '.join(option)}\n" for option in _options(words))


def nemo_yaml(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return the YAML text, with a comment on its use.

    Raises:
        InvalidInput: NeMo cannot train with this strategy.
    """
    text = _start(NEMO, transformer, machine, strategy).files["nemo.yaml"]
    stage = strategy.zero_stage
    return _NEMO_HEAD + (_NEMO_FSDP.format(stage=stage) if stage > 1 else "") + text


def _start(
    name: str, transformer: Transformer, machine: Machine, strategy: Strategy
) -> TrainerStart:
    adapter = ready_adapter(name)
    kept = {p: value for p, value in adapter.places.items() if p not in _OF_A_TRIAL[name]}
    plan = StartPlan(transformer=transformer, machine=machine, strategy=strategy, iterations=1)
    return start_of(replace(adapter, command=(), places=kept), plan)


def _options(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield each option with its values."""
    starts = [place for place, word in enumerate(words) if word.startswith("--")]
    for begin, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield list(words[begin:end])


@dataclass(frozen=True, kw_only=True)
class OtherTrainer:
    """A trainer that files can be downloaded for.

    Attributes:
        adapter: name of its bundled adapter.
        folder: working directory of its ranks.
        model_word: word of its command that names a model configuration; empty if the files define
            the model.
    """

    adapter: str
    folder: str
    model_word: str = ""


OTHER_TRAINERS: Mapping[TrainerName, OtherTrainer] = {
    "megatron-lm": OtherTrainer(adapter="megatron-lm", folder="a checkout of Megatron-LM"),
    "megatron-bridge": OtherTrainer(
        adapter="megatron-bridge", folder="a checkout of Megatron-Bridge"
    ),
    "nemo": OtherTrainer(
        adapter="nemo", folder="the folder of megatron_gpt_pretraining.py in NeMo 1"
    ),
    "torchtitan": OtherTrainer(
        adapter="torchtitan-2026-08",
        folder="a checkout of torchtitan of August 2026 or newer, with the tokenizer",
        model_word="llama3_8b",
    ),
    "transformers": OtherTrainer(
        adapter="huggingface-trainer",
        folder="the folder of a train.py that reads TrainingArguments and loads the model",
    ),
}

_FOLDER, _MODEL = "AUTOTUNE-TRAINER-DIR", "AUTOTUNE-MODEL-CONFIG"
"""Placeholders for values that the script reads from its environment."""


def trainers_for(machine: Machine) -> list[TrainerName]:
    """Return all trainers, best suited first: on H100 that is Megatron-Bridge."""
    names = list(OTHER_TRAINERS)
    return sorted(names, key="megatron-bridge".__ne__) if "H100" in machine.gpu else names


def variables_of(trainer: TrainerName) -> dict[str, str]:
    """Return the variables that the files read from the environment, variable -> meaning."""
    other, default = OTHER_TRAINERS[trainer], _default_folder(trainer)
    meanings = {"TRAINER_DIR": other.folder + (f"; by default {default}" if default else "")}
    if other.model_word:
        meanings["MODEL_CONFIG"] = f"the configuration of the model, such as {other.model_word}"
    return meanings


def other_trainer_files(launch: Launch, trainer: TrainerName) -> dict[str, str]:
    """Return a Slurm job and the script of one rank, file name -> text.

    Raises:
        InvalidInput: the trainer cannot train the model, or not with this strategy.
    """
    other, transformer, profile = OTHER_TRAINERS[trainer], launch.transformer, launch.place
    if other.model_word and not transformer.gated_mlp:
        reason = f"{trainer} trains Llama models here, and {transformer.name} is none"
        raise InvalidInput("model", transformer.name, reason)
    ready = ready_adapter(other.adapter)
    command = tuple(_MODEL if word == other.model_word else word for word in ready.command)
    adapter = replace(ready, name=trainer, folder=_FOLDER, command=command)
    shell = _lookups(trainer)
    checks = "".join(f": {lookup}\n" for lookup in shell.values())
    environment = profile.environment
    asking = replace(environment, prologue=f"{environment.prologue}\n{checks}".lstrip())
    place = replace(
        profile,
        program="adapter",
        adapter=adapter,
        environment=asking,
        python=profile.python or ANY,
    )
    launch = replace(launch, profile=place)
    job = adapter_sbatch(launch, shell=shell)
    return {LAUNCH_JOB: job, RANK_SCRIPT: own_rank_script(launch, file=RANK_SCRIPT, shell=shell)}


def _lookups(trainer: TrainerName) -> dict[str, str]:
    """Return the shell word for each placeholder; `~` is the home of the user who runs the
    script."""
    default = _default_folder(trainer).replace("~", "$HOME", 1)
    meanings = variables_of(trainer)
    folder = f":-{default}" if default else f":?{meanings['TRAINER_DIR']}"
    lookups = {_FOLDER: f'"${{TRAINER_DIR{folder}}}"'}
    if "MODEL_CONFIG" in meanings:
        lookups[_MODEL] = f'"${{MODEL_CONFIG:?{meanings["MODEL_CONFIG"]}}}"'
    return lookups


def _default_folder(trainer: TrainerName) -> str:
    """Return the adapter's folder as written in its file; a loaded adapter has this service's home
    in it."""
    text = adapter_file(OTHER_TRAINERS[trainer].adapter).read_text()
    return str(tomllib.loads(text).get("folder", ""))
