"""Downloads: ready-to-run files that launch one strategy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.schemas.choices import TrainerName
from autotune.schemas.recommendations import LaunchNeed, LaunchScript, TrainerOffer
from evaluators.adapter.rendering import refuse
from evaluators.artefacts.adapter import (
    RANK_NEEDS,
    TRAIN_ITERATIONS,
    adapter_sbatch,
    adapter_script,
    own_rank_script,
    rank_script,
)
from evaluators.artefacts.job import LAUNCH_JOB, RANK_SCRIPT, Launch
from evaluators.artefacts.megatron_deepspeed import TRAIN_ITERS, megatron_needs, sbatch_script
from evaluators.artefacts.other_trainers import (
    MEGATRON_LM,
    NEMO,
    megatron_lm_arguments,
    nemo_yaml,
    other_trainer_files,
    ready_adapter,
    trainers_for,
    variables_of,
)
from evaluators.artefacts.trainer import ITERATIONS, train_sbatch, train_script
from evaluators.frameworks.deepspeed import ds_config_json
from evaluators.frameworks.megatron_deepspeed import arguments
from evaluators.frameworks.megatron_deepspeed.checkout import defects_of, flash_attention_option
from evaluators.program.interpreter import ANY
from search_spaces.errors import InvalidInput

__all__ = [
    "Launch",
    "artefact_names",
    "artefacts",
    "launch_script",
    "trainer_artefacts",
    "trainer_offers",
]


def artefact_names(launch: Launch) -> list[str]:
    """Return the names of the available files, without rendering them.

    A file is left out if its trainer cannot express the strategy.
    """
    return [name for name, artefact in _ARTEFACTS.items() if artefact.exists(launch)]


def artefacts(launch: Launch) -> dict[str, str]:
    """Return file name -> text. Scripts are self-contained; the other files are inputs for other
    trainers."""
    return {name: _ARTEFACTS[name].render(launch) for name in artefact_names(launch)}


TRAINER_SCRIPTS = ("train.sh", "train.sbatch")
"""Scripts for this machine, and the bundled trainer for Slurm."""

_LAUNCHERS = (*TRAINER_SCRIPTS, LAUNCH_JOB, RANK_SCRIPT)
"""In order of preference: the first that exists trains as the trials did."""

MEGATRON_LM_SCRIPT = "megatron_lm.sh"


def launch_script(launch: Launch, names: Sequence[str]) -> LaunchScript | None:
    """Return the name of the script, among these files, that trains as the trials did; None if
    there is none.

    It is that of the trials' adapter or of the bundled trainer if they ran the trials, and
    otherwise that of Megatron-DeepSpeed.
    """
    file = next((name for name in _LAUNCHERS if name in names), None)
    if file is None:
        return None
    if launch.by_adapter:
        remark = f"It trains {TRAIN_ITERATIONS} iterations with the trials' own trainer."
        needs = RANK_NEEDS if file == RANK_SCRIPT else {}
        return LaunchScript(file=file, needs=_needs(needs), remark=remark)
    if file in TRAINER_SCRIPTS:
        remark = f"It times {ITERATIONS} iterations on random tokens, to see the figure again."
        return LaunchScript(file=file, needs=[], remark=remark)
    needs = megatron_needs(launch.profile)
    on = "random tokens, as the trials did" if "DATA_PATH" not in needs else "your dataset"
    if launch.profile and launch.profile.megatron and launch.profile.megatron.data_path:
        on = "the dataset of the cluster profile"
    remark = (
        f"It trains {TRAIN_ITERS} iterations on {on}; TRAIN_ITERS and LEARNING_RATE, which no "
        "trial tuned, are yours to set."
    )
    defects = defects_of(launch.place.megatron.path if launch.place.megatron else "")
    trains = (launch.strategy, launch.transformer, launch.machine)
    if met := next((each for each in defects if each.refuses(*trains)), None):
        others = [each for each in (MEGATRON_LM, NEMO) if _with_ready(each)(launch)]
        instead = f" Files for {' and '.join(others)} lie beside it." if others else ""
        remark = f"It will not start: {met.because}; needed: {met.valid}.{instead}"
    return LaunchScript(file=file, needs=_needs(needs), remark=remark)


def trainer_artefacts(launch: Launch, trainer: TrainerName) -> dict[str, str]:
    """Return the files that launch the strategy with a trainer, name -> text.

    Raises:
        InvalidInput: field `trainer`: why it cannot train with this strategy.
    """
    try:
        return other_trainer_files(launch, trainer)
    except InvalidInput as problem:
        others = [offer.name for offer in trainer_offers(launch) if offer.supported]
        reason = _why_not(problem)
        raise InvalidInput("trainer", trainer, reason, valid=", ".join(others)) from problem


def trainer_offers(launch: Launch) -> list[TrainerOffer]:
    return [_offer(launch, name) for name in trainers_for(launch.machine)]


def _offer(launch: Launch, trainer: TrainerName) -> TrainerOffer:
    try:
        other_trainer_files(launch, trainer)
    except InvalidInput as problem:
        return TrainerOffer(name=trainer, supported=False, reason=_why_not(problem), variables=[])
    variables = _needs(variables_of(trainer))
    return TrainerOffer(name=trainer, supported=True, reason="", variables=variables)


def _why_not(problem: InvalidInput) -> str:
    if problem.field in ("strategy", "model"):
        return problem.reason
    return f"{problem.reason} (here {problem.field} is {problem.value})"


def _needs(meanings: Mapping[str, str]) -> list[LaunchNeed]:
    return [LaunchNeed(variable=name, meaning=meaning) for name, meaning in meanings.items()]


@dataclass(frozen=True, kw_only=True)
class _Artefact:
    """One file: a condition on the launch, and its text."""

    exists: Callable[[Launch], bool]
    render: Callable[[Launch], str]


def _accepted(check: Callable[[Launch], None]) -> Callable[[Launch], bool]:
    def accepted(launch: Launch) -> bool:
        try:
            check(launch)
        except InvalidInput:
            return False
        return True

    return accepted


def _flash_attention(launch: Launch) -> str:
    megatron = launch.place.megatron
    return flash_attention_option(megatron) if megatron else ""


_in_megatron_deepspeed = _accepted(
    lambda x: arguments.check(x.transformer, x.strategy, x.variant, _flash_attention(x)),
)


def _for_megatron_deepspeed(launch: Launch) -> bool:
    return not launch.by_adapter and _in_megatron_deepspeed(launch)


def _has_job(launch: Launch) -> bool:
    return launch.evaluator == "slurm" if launch.by_adapter else _in_megatron_deepspeed(launch)


def _script_for_here(launch: Launch) -> str:
    if launch.by_adapter:
        return adapter_script(launch)
    return train_script(launch, python=sys.executable)


def _with_ready(name: str) -> Callable[[Launch], bool]:
    accepted = _accepted(
        lambda x: refuse(ready_adapter(name), x.transformer, x.machine, x.strategy),
    )
    return lambda x: not x.strategy.settings and accepted(x)


_ARTEFACTS: Mapping[str, _Artefact] = {
    LAUNCH_JOB: _Artefact(
        exists=_has_job,
        render=lambda x: (adapter_sbatch if x.by_adapter else sbatch_script)(x),
    ),
    "megatron_deepspeed_args.txt": _Artefact(
        exists=_for_megatron_deepspeed,
        render=lambda x: arguments.arguments_text(
            x.transformer,
            x.machine,
            x.strategy,
            x.variant,
            flash_attention=_flash_attention(x),
        ),
    ),
    "ds_config.json": _Artefact(
        exists=_for_megatron_deepspeed,
        render=lambda x: ds_config_json(x.transformer, x.machine, x.strategy),
    ),
    "train.sbatch": _Artefact(
        exists=lambda x: x.profile is not None and x.profile.program == "trainer",
        render=train_sbatch,
    ),
    "train.sh": _Artefact(
        exists=lambda x: x.evaluator == "local",
        render=_script_for_here,
    ),
    RANK_SCRIPT: _Artefact(
        exists=lambda x: x.by_adapter,
        render=lambda x: own_rank_script(x, file=RANK_SCRIPT),
    ),
    # Trainers that no trial ran with.
    "megatron_lm_args.txt": _Artefact(
        exists=_with_ready(MEGATRON_LM),
        render=lambda x: megatron_lm_arguments(x.transformer, x.machine, x.strategy),
    ),
    MEGATRON_LM_SCRIPT: _Artefact(
        exists=_with_ready(MEGATRON_LM),
        render=lambda x: rank_script(
            x, ready_adapter(MEGATRON_LM), python=ANY, file=MEGATRON_LM_SCRIPT
        ),
    ),
    "nemo.yaml": _Artefact(
        exists=_with_ready(NEMO),
        render=lambda x: nemo_yaml(x.transformer, x.machine, x.strategy),
    ),
}
