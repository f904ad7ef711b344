"""Common parts of launch scripts: head, settings, environment, srun."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from autotune.schemas.choices import EvaluatorName
from evaluators.adapter.adapter import TrainingVariable
from evaluators.adapter.rendering import StartPlan, other_model
from evaluators.cluster.catalog import profile_for_machine
from evaluators.cluster.knobs import profile_of_run, strategy_of_trainer
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    container_words,
    directive_line,
    environment_lines,
    is_reference,
    sbatch_directives,
    srun_words,
)
from evaluators.program.interpreter import ANY
from evaluators.program.interpreter import python as python_of
from evaluators.program.task import RANK_VARIABLES, RENDEZVOUS
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Purpose = Literal["benchmark", "train"]
"""What a launch is for: to repeat the trial, or to train the model."""

TIME_LIMITS: Mapping[Purpose, str] = {"benchmark": "02:00:00", "train": "24:00:00"}
"""`sbatch --time` overrides them. A training that is submitted again goes on where it saved."""

PURPOSES: Mapping[Purpose, str] = {
    "benchmark": "Benchmark: repeats the trial for a few iterations. It trains nothing to keep.",
    "train": "Training: trains the model on your data, and saves it.",
}

BENCHMARK_ITERATIONS = 20
"""Iterations of a benchmark: warm-up, and enough to see the spread."""

OUT, PYTHON = "AUTOTUNE-OUT-FOLDER", "AUTOTUNE-PYTHON"
"""Placeholders in a launch's command for the output folder and the interpreter; they need no
quoting."""

STRICT = "set -euo pipefail\n"
"""Set only after the environment and the rendezvous, which were not written for it."""

DEFAULT = """default() { [[ -n "${!1:-}" ]] || printf -v "$1" %s "$2"; }"""
"""bash: `default NAME VALUE` sets a variable that the user has not set."""

IN_A_JOB = r"""if [[ -z "${SLURM_JOB_ID:-}" ]]; then
    echo "This launch cannot start: submit this file with sbatch" >&2
    exit 2
fi
"""

MEETING = f"# --- where the ranks meet\n{RENDEZVOUS}"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One strategy to launch, and its context.

    Attributes:
        name: of the campaign; the job's name has only characters that Slurm allows.
        evaluator: the backend of the campaign's trials.
        profile: cluster profile at the campaign's creation; the scripts run as the trials did.
        campaign: which one, in words.
        figures: what is known of its speed, and whether it was measured.
        knobs: adopted knob -> its value, and what it gave.
        checkout: the folder that the trainer needs, in words, if no trial ran with it.
    """

    transformer: Transformer
    machine: Machine
    strategy: Strategy
    name: str
    evaluator: EvaluatorName
    profile: ClusterProfile | None = None
    campaign: str = "none"
    figures: str = "not measured"
    knobs: Mapping[str, str] = field(default_factory=dict)
    checkout: str = ""

    @cached_property
    def place(self) -> ClusterProfile:
        return profile_of_run(self._profile, self)

    @property
    def _profile(self) -> ClusterProfile:
        ready = self.profile or profile_for_machine(self.machine.name)
        return ready or ClusterProfile(name="generic")

    @property
    def has_cluster(self) -> bool:
        """Whether a profile describes the cluster: not only the trainer and its interpreter."""
        bare = ClusterProfile(name=self.place.name)
        return replace(self._profile, adapter=None, python="", knob={}) != bare

    @property
    def by_adapter(self) -> bool:
        return self.profile is not None and self.profile.adapter is not None


def comment(text: str) -> str:
    return "# " + " ".join(text.split())


def job_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "training"


def folder_of_job(name: str) -> str:
    folder = f'"${{SLURM_SUBMIT_DIR:-$PWD}}/{job_name(name)}-${{SLURM_JOB_ID:-}}"'
    return f"default RUN_DIR {folder}"


def folder_here(name: str) -> str:
    return f'RUN_DIR="${{RUN_DIR:-$PWD/{job_name(name)}-$(date +%Y%m%d-%H%M%S)}}"'


def description(launch: Launch, purpose: Purpose) -> list[str]:
    """Return comments: purpose, model, machine, layout, figures, campaign, and what to set."""
    strategy, machine, gpus = launch.strategy, launch.machine, launch.machine.gpus_per_node
    adapter = launch.place.adapter
    comments = [
        PURPOSES[purpose],
        f"Model: {launch.transformer.name}, {launch.transformer.parameters:.4g} parameters, "
        f"sequences of {launch.transformer.seq_length} tokens",
        f"Machine: {machine.name}, {strategy.num_nodes} x {gpus} {machine.gpu}",
        f"Layout: {strategy.short()}, global batch {strategy.global_batch_size(gpus)}",
        f"Trainer: {adapter.label if adapter else 'the bundled one'}",
        f"Figures: {launch.figures}",
        *(f"Knob {name} = {gain}" for name, gain in launch.knobs.items()),
        f"Campaign: {launch.campaign}",
    ]
    if adapter and not adapter.sets_model:
        comments.append(
            "The trainer's own configuration defines the model, and this file does not: compare "
            "its count of parameters."
        )
    for name, variable in variables_of(launch, purpose).items():
        unset = f" (default: {variable.default})" if variable.default else ""
        comments.append(f"Set {name}: {variable.meaning}{unset}")
    return list(map(comment, comments))


def plan_of(launch: Launch, purpose: Purpose) -> StartPlan:
    return StartPlan(
        transformer=launch.transformer,
        machine=launch.machine,
        strategy=strategy_of_trainer(launch.place, launch.strategy),
        iterations=BENCHMARK_ITERATIONS,
        python=PYTHON,
        out=OUT,
        training=purpose == "train",
        launch=True,
    )


def variables_of(launch: Launch, purpose: Purpose) -> dict[str, TrainingVariable]:
    """Return what a user sets for a launch: the trainer's folder, the model's configuration where
    the adapter has another, what the training needs, and the interpreter."""
    adapter = launch.place.adapter
    if adapter is None:
        return {}
    folder = TrainingVariable(
        meaning=launch.checkout or "folder of the trainer, such as a checkout",
        default=adapter.folder or ("" if launch.checkout else "$OUT"),
        exists=("$TRAINER_DIR",),
    )
    plan = plan_of(launch, purpose)
    other = other_model(adapter, plan)
    training = adapter.train if plan.training else None
    # Where no trial ran, this service's own interpreter is none of the trainer's.
    own = python_of(launch.place) if launch.evaluator != "simulated" else ""
    interpreter = launch.place.python or own or ANY
    python = TrainingVariable(meaning="interpreter of the trainer", default=interpreter)
    return {
        "TRAINER_DIR": folder,
        **(other.variables if other else {}),
        **(training.variables if training else {}),
        "PYTHON": python,
    }


def head(launch: Launch, purpose: Purpose) -> str:
    """Return the first lines: the profile's sbatch options and a description."""
    strategy, profile, gpus = launch.strategy, launch.place, launch.machine.gpus_per_node
    options = [
        f"--job-name={job_name(launch.name)}",
        f"--time={TIME_LIMITS[purpose]}",
        "--output=%x-%j.log",
    ]
    directives = [
        *map(directive_line, options),
        *sbatch_directives(profile, nodes=strategy.num_nodes, gpus_per_node=gpus),
    ]
    comments = [
        f"For the cluster profile {profile.name}: {profile.description}"
        if launch.has_cluster
        else "For no cluster profile: partition, account and modules are this cluster's defaults.",
        "SBATCH_ACCOUNT, SBATCH_PARTITION and options of sbatch override the lines above.",
    ]
    return "\n".join(
        ["#!/bin/bash", *directives, *description(launch, purpose), *map(comment, comments), ""]
    )


def environment(profile: ClusterProfile) -> str:
    """Return the profile's environment as a trial has it; variables that the user has set take
    precedence.

    The log mentions them, since the run then differs from the measured one.
    """
    title = "# --- the environment of the cluster profile"
    # A reference stands for a secret, which must not be logged.
    variables = profile.environment.variables.items()
    names = " ".join(name for name, value in variables if not is_reference(value))
    if not names:
        return "\n".join([title, *environment_lines(profile), ""])
    return "\n".join(
        [
            title,
            "own=()",
            f"for name in {names}; do",
            '    [[ -z "${!name:-}" ]] || own+=("$name=${!name}")',
            "done",
            *environment_lines(profile),
            "if (( ${#own[@]} > 0 )); then",
            '    echo "your own, instead of the profile\'s: ${own[*]}" >&2',
            '    export "${own[@]}"',
            "fi",
            "",
        ]
    )


def srun(launch: Launch, lines: Iterable[str], *, variables: Iterable[str] = ()) -> str:
    """Return the srun command that runs `lines` (of bash) as one task per GPU.

    Args:
        variables: of the job, which the tasks need.
    """
    options = [
        f"--nodes={launch.strategy.num_nodes}",
        *srun_words(launch.place, gpus_per_node=launch.machine.gpus_per_node),
    ]
    task = shlex.quote(f'{RANK_VARIABLES}exec "$@"\n')
    inside = container_words(launch.place, variables=variables)
    started = [
        f"srun {shlex.join(options)}",
        *([shlex.join(inside)] if inside else []),
        f"bash -c {task} task",
        *lines,
    ]
    return " \\\n    ".join(started) + "\n"
