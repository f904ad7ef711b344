"""Options of sbatch and srun that a profile may add, and those that it may not."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PROFILE_OWN = {
    "account": "slurm.account",
    "partition": "slurm.partition",
    "qos": "slurm.qos",
    "reservation": "slurm.reservation",
    "constraint": "slurm.constraint",
    "exclusive": "slurm.exclusive",
    "cpus-per-task": "tasks.cpus_per_task",
}
_SHAPE = ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu")
_NAMED = ("job-name", "comment", "output", "error", "input", "open-mode", "chdir", "exclude")
_TIMED = ("time", "time-min")
_NOT_RUN = ("help", "usage", "version", "test-only")

GPU_OPTIONS: Mapping[str, str] = dict.fromkeys(
    ("gpus", "gpus-per-node", "gres"), "slurm.gpu_request sets this; with none you set it yourself"
)
"""Not to be added where `slurm.gpu_request` asks for the GPUs."""

SBATCH_RESERVED: Mapping[str, str] = {
    **{option: f"write it as {key}" for option, key in _PROFILE_OWN.items()},
    **dict.fromkeys((*_SHAPE, *_NAMED, *_TIMED), "autotune sets this for each trial"),
    **dict.fromkeys(
        ("requeue", "no-requeue", "array", "dependency", "parsable", "wrap", "wait", "quiet"),
        "each trial is one job that is submitted once and found again",
    ),
    **dict.fromkeys(("clusters",), "jobs are looked for in one cluster only"),
    **dict.fromkeys(_NOT_RUN, "nothing would be submitted"),
}
"""Long option -> why a profile must not set it."""

SRUN_RESERVED: Mapping[str, str] = {
    **{option: f"write it as {key}" for option, key in _PROFILE_OWN.items()},
    **dict.fromkeys(
        (*_SHAPE, *_NAMED, *_TIMED, "nodelist", "nodefile", "relative", "exact", "overlap"),
        "autotune sets this for each trial",
    ),
    **dict.fromkeys(("export", "kill-on-bad-exit", "wait"), "autotune sets this for every task"),
    **dict.fromkeys(("label", "pty", "multi-prog"), "the log could not be read"),
    **dict.fromkeys(("jobid", "het-group", "immediate"), "tasks belong to the trial's own job"),
    **dict.fromkeys(_NOT_RUN, "nothing would be run"),
}


def option_fault(word: str, reserved: Mapping[str, str]) -> str | None:
    """Return why `word` cannot be added to the command, or None.

    Slurm accepts abbreviated option names, so an abbreviation of a reserved one is refused, too. So
    are one-letter options, because their meaning cannot be checked.
    """
    if re.match(r"-[^-]", word):
        return "write the option's long form, in one word (--mail-type=NONE)"
    parts = re.fullmatch(r"--([a-z][a-z0-9_-]*)(=.*)?", word, re.DOTALL)
    if parts is None:
        return "not an option; one with a value is one word (--mail-type=NONE)"
    name = parts[1]
    for option, reason in reserved.items():
        if option.startswith(name):
            return f"--{option}: {reason}"
    return None
