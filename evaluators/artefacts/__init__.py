"""Downloads: ready-to-run files that repeat the trial of one strategy, or train with it.

`benchmark` and `train` are written for the trainer that ran the trials, or for another one on
request: as a Slurm job (`.sbatch`), as a script for this machine (`.sh`) if the trials ran here,
and as one rank for any launcher (`_rank.sh`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from autotune.schemas.choices import TrainerName
from autotune.schemas.recommendations import LaunchNeed, LaunchScript, TrainerOffer
from evaluators.artefacts.adapter import RANK_NEEDS, adapter_sbatch, adapter_script, rank_script
from evaluators.artefacts.job import BENCHMARK_ITERATIONS, Launch, Purpose, variables_of
from evaluators.artefacts.other_trainers import launch_with, trainers_for
from evaluators.artefacts.trainer import ITERATIONS, benchmark_sbatch, benchmark_script
from search_spaces.errors import InvalidInput

__all__ = [
    "Launch",
    "artefact_names",
    "artefacts",
    "launch_script",
    "trainer_artefacts",
    "trainer_offers",
]

SUFFIXES = (".sbatch", ".sh", "_rank.sh")
"""Kinds of a file, the first that exists preferred."""


def artefact_names(launch: Launch) -> list[str]:
    """Return the names of the available files, without rendering them.

    After simulated trials without a trainer, the files are for the first trainer that can train
    with the strategy; there are none if none can.
    """
    return list(_renderers(launch))


def artefacts(launch: Launch) -> dict[str, str]:
    """Return file name -> text. Scripts are self-contained."""
    return {name: render() for name, render in _renderers(launch).items()}


def launch_script(launch: Launch, names: Sequence[str]) -> LaunchScript | None:
    """Return the script, among these files, that trains the model, or else that repeats the trial;
    None if there is none."""
    purposes: Sequence[Purpose] = ("train", "benchmark")
    both = [(purpose, suffix) for purpose in purposes for suffix in SUFFIXES]
    found = next(((p, suffix) for p, suffix in both if p + suffix in names), None)
    if found is None:
        return None
    purpose, suffix = found
    file = purpose + suffix
    trainer = _simulated_trainer(launch)
    launch = launch_with(launch, trainer) if trainer else launch
    if not launch.by_adapter:
        remark = f"It times {ITERATIONS} iterations on random tokens, to see the figure again."
        return LaunchScript(file=file, needs=[], remark=remark)
    needs = dict(RANK_NEEDS) if suffix == "_rank.sh" else {}
    needs |= _needs_of(launch, purpose)
    by = f"{trainer}, which ran none of the trials" if trainer else "the trials' own trainer"
    remark = f"It trains the model with {by}."
    if purpose == "benchmark":
        remark = f"It times {BENCHMARK_ITERATIONS} iterations with {by}; nothing is trained."
    return LaunchScript(file=file, needs=_needs(needs), remark=remark)


def trainer_artefacts(launch: Launch, trainer: TrainerName) -> dict[str, str]:
    """Return the files that launch the strategy with a trainer, name -> text.

    Raises:
        InvalidInput: field `trainer`: why it cannot train with this strategy.
    """
    try:
        other = "" if "not measured" in launch.figures else "; not with this trainer"
        figures = f"{launch.figures}{other}"
        return artefacts(launch_with(replace(launch, figures=figures), trainer))
    except InvalidInput as problem:
        others = [offer.name for offer in trainer_offers(launch) if offer.supported]
        reason = _why_not(problem)
        raise InvalidInput("trainer", trainer, reason, valid=", ".join(others)) from problem


def trainer_offers(launch: Launch) -> list[TrainerOffer]:
    return [_offer(launch, name) for name in trainers_for(launch.machine)]


def _offer(launch: Launch, trainer: TrainerName) -> TrainerOffer:
    try:
        offered = launch_with(launch, trainer)
    except InvalidInput as problem:
        return TrainerOffer(name=trainer, supported=False, reason=_why_not(problem), variables=[])
    variables = _needs(_needs_of(offered, "train"))
    return TrainerOffer(name=trainer, supported=True, reason="", variables=variables)


def _why_not(problem: InvalidInput) -> str:
    if problem.field in ("strategy", "model"):
        return problem.reason
    return f"{problem.reason} (here {problem.field} is {problem.value})"


def _needs_of(launch: Launch, purpose: Purpose) -> dict[str, str]:
    variables = variables_of(launch, purpose)
    needs = {name: each.meaning for name, each in variables.items() if not each.default}
    folder = variables.get("TRAINER_DIR")
    if launch.checkout and folder and folder.default:
        # No trial has shown that the trainer is there.
        needs = {"TRAINER_DIR": f"{folder.meaning}; by default {folder.default}"} | needs
    return needs


def _needs(meanings: Mapping[str, str]) -> list[LaunchNeed]:
    return [LaunchNeed(variable=name, meaning=meaning) for name, meaning in meanings.items()]


def _simulated_trainer(launch: Launch) -> TrainerName | None:
    """Return the trainer of the files where no trial named one."""
    if launch.by_adapter or launch.evaluator != "simulated":
        return None
    return next((each.name for each in trainer_offers(launch) if each.supported), None)


def _renderers(launch: Launch) -> dict[str, Callable[[], str]]:
    if trainer := _simulated_trainer(launch):
        figures = f"{launch.figures}, for a trainer that was not named; not for {trainer}"
        launch = launch_with(replace(launch, figures=figures), trainer)
    if not launch.by_adapter:
        return _of_bundled_trainer(launch)
    purposes: list[Purpose] = ["benchmark"]
    adapter = launch.place.adapter
    if adapter and adapter.train:
        purposes.append("train")
    files: dict[str, Callable[[], str]] = {}
    for purpose in purposes:
        files |= _of_adapter(launch, purpose)
    return files


def _of_adapter(launch: Launch, purpose: Purpose) -> dict[str, Callable[[], str]]:
    rank = f"{purpose}_rank.sh"
    files: dict[str, Callable[[], str]] = {}
    if launch.evaluator in ("slurm", "simulated"):
        files[f"{purpose}.sbatch"] = lambda: adapter_sbatch(launch, purpose)
    if launch.evaluator == "local":
        files[f"{purpose}.sh"] = lambda: adapter_script(launch, purpose)
    return files | {rank: lambda: rank_script(launch, purpose, file=rank)}


def _of_bundled_trainer(launch: Launch) -> dict[str, Callable[[], str]]:
    """Return its benchmarks: it trains on random tokens only."""
    files: dict[str, Callable[[], str]] = {}
    if launch.profile is not None:
        files["benchmark.sbatch"] = lambda: benchmark_sbatch(launch)
    if launch.evaluator == "local":
        files["benchmark.sh"] = lambda: benchmark_script(launch, python=sys.executable)
    return files
