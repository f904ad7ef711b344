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

JOB_TRAINERS: Sequence[TrainerName] = ("megatron-deepspeed", "megatron-lm")


def launch_script(launch: Launch, names: Sequence[str]) -> LaunchScript | None:
    """Return the name of the script, among these files, that trains as the trials did; None if
    there is none.

    It is that of the trials' adapter or of the bundled trainer if they ran the trials, and
    otherwise that of the first trainer of `JOB_TRAINERS` that can train the strategy.
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
    trainer = _trainer_of_job(launch)
    remark = (
        f"It trains {TRAIN_ITERATIONS} iterations with {trainer}, which ran none of the trials."
    )
    needs = variables_of(trainer) if trainer else {}
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


def _script_for_here(launch: Launch) -> str:
    if launch.by_adapter:
        return adapter_script(launch)
    return train_script(launch, python=sys.executable)


def _with_ready(name: str) -> Callable[[Launch], bool]:
    accepted = _accepted(
        lambda x: refuse(ready_adapter(name), x.transformer, x.machine, x.strategy),
    )
    return lambda x: not x.strategy.settings and accepted(x)


def _trainer_of_job(launch: Launch) -> TrainerName | None:
    return next((name for name in JOB_TRAINERS if _with_ready(name)(launch)), None)


def _has_job(launch: Launch) -> bool:
    if launch.by_adapter:
        return launch.evaluator == "slurm"
    return _trainer_of_job(launch) is not None


def _job(launch: Launch) -> str:
    trainer = None if launch.by_adapter else _trainer_of_job(launch)
    return other_trainer_files(launch, trainer)[LAUNCH_JOB] if trainer else adapter_sbatch(launch)


_ARTEFACTS: Mapping[str, _Artefact] = {
    LAUNCH_JOB: _Artefact(exists=_has_job, render=_job),
    "train.sbatch": _Artefact(
        exists=lambda x: x.profile is not None and not x.by_adapter,
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
