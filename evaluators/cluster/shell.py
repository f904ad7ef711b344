"""A profile as bash: a job's header, its environment, and how its tasks start.

Everything is quoted against anything in a path, a name or a value; only a prologue is bash.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from evaluators.cluster.profile import ClusterProfile

SETUP_FAILED = 78
"""Exit code of a job whose modules, virtual environment or prologue fail (sysexits.h)."""

COMMON_VARIABLES: Mapping[str, str] = {
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}
"""One hardware queue keeps communication in issue order, which Megatron's sequence parallelism
requires; one host thread per rank, since the ranks of a node share its cores; unbuffered output."""

REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/(?!/)[^\0\n]*")
LONGEST_DIRECTIVE = 4000
"""Maximum characters: sbatch reads a line into 8 KiB, and an escaped character takes two."""

# A batch shell is not a login shell, so a `module` defined in /etc/profile.d is missing.
_MODULES = r"""if ! type module >/dev/null 2>&1; then
    for autotune_file in "${LMOD_PKG:-/opt/lmod}/init/bash" \
        "${MODULESHOME:-/usr/share/modules}/init/bash" \
        /etc/profile.d/lmod.sh /etc/profile.d/modules.sh; do
        if [[ -r "$autotune_file" ]]; then
            source "$autotune_file"
            break
        fi
    done
fi"""


_ASKS_FOR_MEMORY = re.compile(r"--mem(?:-per-(?:cpu|gpu))?=")


def sbatch_options(profile: ClusterProfile, *, nodes: int, gpus_per_node: int) -> tuple[str, ...]:
    """Return the profile's options of sbatch (or salloc) for `nodes` nodes, unquoted.

    The caller adds the job's name, time limit, files and the like.
    """
    slurm = profile.slurm
    # Without it a job gets the site's default, which may be a fraction of its whole nodes.
    whole = slurm.exclusive and not any(map(_ASKS_FOR_MEMORY.match, slurm.directives))
    return (
        *(f"--{option}={value}" for option, value in slurm.named.items() if value),
        f"--nodes={nodes}",
        f"--ntasks-per-node={gpus_per_node}",
        *_task_shape(profile, gpus_per_node),
        *(["--exclusive"] if slurm.exclusive else []),
        *(["--mem=0"] if whole else []),
        *slurm.directives,
    )


def sbatch_directives(profile: ClusterProfile, *, nodes: int, gpus_per_node: int) -> list[str]:
    options = sbatch_options(profile, nodes=nodes, gpus_per_node=gpus_per_node)
    return [directive_line(option) for option in options]


def directive_line(option: str) -> str:
    """Return an option as a `#SBATCH` line, quoted as sbatch reads it (which differs from bash).

    Raises:
        ValueError: it holds a line break or a NUL, or is too long for such a line.
    """
    if re.search(r"[\0\n\r]", option) or len(option) > LONGEST_DIRECTIVE:
        raise ValueError(f"not to be written as a #SBATCH line: {option[:100]!r}")
    # Backslashes work everywhere; old releases treat a quoted # as a comment.
    escaped = re.sub(r'([\\"\'#])', r"\\\1", option)
    # sbatch blanks out hetjob and packjob where it sees them.
    escaped = re.sub(r"(?i)(het|pack)(?=job)", r"\1\\", escaped)
    return f'#SBATCH "{escaped}"' if re.search(r"\s", escaped) else f"#SBATCH {escaped}"


def srun_words(profile: ClusterProfile, *, gpus_per_node: int) -> tuple[str, ...]:
    """Return srun's options for one task per GPU; the caller adds nodes and name.

    The job's environment reaches the tasks even with --export=NONE, and ranks that end later than
    the first are not killed, whatever the site's WaitTime is.
    """
    return (
        f"--ntasks-per-node={gpus_per_node}",
        *_task_shape(profile, gpus_per_node),
        "--export=ALL",
        "--kill-on-bad-exit=1",
        "--wait=0",
        *profile.tasks.srun,
    )


def _task_shape(profile: ClusterProfile, gpus_per_node: int) -> list[str]:
    requests = {
        "gpus-per-node": [f"--gpus-per-node={gpus_per_node}"],
        "gres": [f"--gres=gpu:{gpus_per_node}"],
        "none": [],
    }
    cpus = profile.tasks.cpus_per_task
    cores = [] if cpus is None else [f"--cpus-per-task={cpus}"]
    return [*requests[profile.slurm.gpu_request], *cores]


def container_words(profile: ClusterProfile, *, variables: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the prefix that runs a task inside the profile's container; empty without one.

    Args:
        variables: of the caller, which the task needs besides the profile's.
    """
    container = profile.container
    if container is None:
        return ()
    if container.runtime == "shifter":
        return ("shifter", f"--image={container.image}", *container.options)
    if container.runtime == "podman-hpc":
        # Podman passes no variables by itself, and isolates the network.
        names = ["SLURM_*", "MASTER_*", "NCCL_*", "FI_*", "CUDA_VISIBLE_DEVICES"]
        names += [*COMMON_VARIABLES, *profile.environment.variables, *variables]
        fixed = ["--rm", "--network=host", *(f"--env={name}" for name in dict.fromkeys(names))]
        return ("podman-hpc", "run", *fixed, *container.options, container.image)
    return (container.runtime, "exec", *container.options, container.image)


def environment_lines(profile: ClusterProfile) -> list[str]:
    """Return the lines of modules, virtual environment, variables, prologue, common variables.

    The profile's variables override existing ones; the common ones do not. If a step fails, the
    script says so and ends with SETUP_FAILED. Run them without `set -e` and `set -u`: the sourced
    files do not expect these.
    """
    environment = profile.environment
    lines = _MODULES.splitlines() if environment.modules else []
    for name in environment.modules:
        complaint = f"environment.modules: {name} does not load"
        lines.append(_or_end(f"module load {shlex.quote(name)}", complaint))
    if folder := environment.virtual_environment:
        source = f"source {shlex.quote(f'{folder}/bin/activate')}"
        lines.append(_or_end(source, f"environment.virtual_environment: none is at {folder}"))
    plain = {n: v for n, v in environment.variables.items() if not is_reference(v)}
    lines += export_lines(plain)
    for name, value in environment.variables.items():
        lines += _secret_lines(name, value) if is_reference(value) else []
    if environment.prologue.strip():
        # As one quoted word: an open quote in it cannot swallow what follows.
        lines.append(f"autotune_prologue={shlex.quote(environment.prologue)}")
        check = 'bash -O extglob -n -c "$autotune_prologue"'
        lines.append(_or_end(check, "environment.prologue: this is not bash"))
        lines.append('eval "$autotune_prologue"')
    return lines + export_lines(COMMON_VARIABLES, keep=True)


def is_reference(value: str) -> bool:
    return REFERENCE.fullmatch(value) is not None


def _secret_lines(name: str, reference: str) -> list[str]:
    kind, _, place = reference.partition(":")
    complaint = f"environment.variables.{name}: {reference} is not there"
    if kind == "env":
        found = _or_end(f'[[ -n "${{{place}:-}}" ]]', complaint)
        return [found, f'export {name}="${place}"']
    return [_or_end(f'{name}="$(cat -- {shlex.quote(place)})"', complaint), f"export {name}"]


def export_lines(variables: Mapping[str, str], *, keep: bool = False) -> list[str]:
    """Return lines that export variables; with `keep`, a non-empty variable stays as it is."""
    exports = {name: f"export {name}={shlex.quote(value)}" for name, value in variables.items()}
    if not keep:
        return list(exports.values())
    return [f'[[ -n "${{{name}:-}}" ]] || {line}' for name, line in exports.items()]


def _or_end(command: str, complaint: str) -> str:
    message = shlex.quote(f"autotune: the cluster profile's {complaint}")
    return f"{command} || {{ echo {message} >&2; exit {SETUP_FAILED}; }}"
