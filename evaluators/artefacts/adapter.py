"""Scripts for an adapter's trainer: a Slurm job, a script for this machine, and one rank, which any
launcher can start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import getsource
from itertools import pairwise

from evaluators.adapter.adapter import Adapter, TrainingVariable
from evaluators.adapter.rendering import TrainerStart, start_of, unknown_parts
from evaluators.artefacts.job import (
    DEFAULT,
    IN_A_JOB,
    MEETING,
    OUT,
    PYTHON,
    STRICT,
    Launch,
    Purpose,
    comment,
    description,
    environment,
    folder_here,
    folder_of_job,
    head,
    plan_of,
    srun,
    variables_of,
)
from evaluators.cluster.shell import container_words
from evaluators.program import local_ranks
from evaluators.program.task import RANK_VARIABLES

_FOLDER_OF_TRAINER = "AUTOTUNE-TRAINER-DIR"
"""Placeholder for the trainer's folder while the command is built; needs no quoting."""

RANK_NEEDS: Mapping[str, str] = {
    "RANK": "as torchrun sets it, as all of these",
    "LOCAL_RANK": "the rank on its node",
    "WORLD_SIZE": "how many ranks there are",
    "MASTER_ADDR": "the first rank's host",
    "MASTER_PORT": "its port",
}
"""Environment variables that a rank needs -> meaning."""

_RANK = "rank.sh"
_START_RANK = f'bash "$RUN_DIR/{_RANK}"'

_FOLDER = """mkdir -p "$RUN_DIR"
cd "$RUN_DIR"
export OUT="$RUN_DIR"
echo "running in $RUN_DIR"
cat >{rank} <<'AUTOTUNE_RANK'
{script}AUTOTUNE_RANK
"""

_ALONE = """# --- all ranks on this machine, by no variable of a job that this may be in
unset "${!SLURM@}"
MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}"
"""

# Empty arrays are unset before bash 4.4.
_EXTRA = 'read -r -a extra <<<"${EXTRA_ARGS:-}"'

_HEAD = """# Every rank runs it, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in
# its environment, as torchrun sets them:
#   torchrun --nnodes={nodes} --nproc-per-node={ranks} … --no-python bash {file}
# OUT is the folder for its files; EXTRA_ARGS are further arguments, split at blanks.
set -euo pipefail
"""

_CHECKS = """# --- what it needs
missing=()
needs() {{ [[ -n "${{!1:-}}" ]] || missing+=("$1 is not set: $2"); }}
exists() {{
    [[ -z "${{!1:-}}" ]] && return
    [[ "$2" == /* ]] || missing+=("$1: $2 is not an absolute path")
    [[ -e "$2" ]] || missing+=("$1: there is no $2")
}}
can_import() {{
    [[ -n "${{TRAINER_DIR:-}}" && "${{RANK:-0}}" == 0 ]] || return 0
    local lacks
    lacks="$({{ cd "$TRAINER_DIR" && {environment}"$PYTHON" -c {look} "$@"; }} 2>&1)" ||
        missing+=("$PYTHON in $TRAINER_DIR: ${{lacks##*$'\n'}}; set TRAINER_DIR or PYTHON")
}}
has_program() {{
    [[ -z "${{TRAINER_DIR:-}}" || -f "$TRAINER_DIR/$1" ]] ||
        missing+=("TRAINER_DIR: there is no $TRAINER_DIR/$1")
}}
{checks}
if (( ${{#missing[@]}} > 0 )); then
    (( ${{RANK:-0}} > 0 )) || printf '%s\\n' "This launch cannot start:" "${{missing[@]}}" >&2
    exit 2
fi
[[ "${{1:-}}" != --check ]] || exit 0
"""

# Nothing is imported, as in `packages_fault`.
_LOOK = """import importlib.util, sys
lacks = [name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]
sys.exit("no module named " + ", ".join(lacks) if lacks else 0)"""

_OPTION = re.compile(r"--\S|[\w.+~@/-]+=")
"""Beginning of an option of a trainer's command, `--name` or `key=`."""

_SCRIPT = re.compile(r"(?!/|AUTOTUNE-)\S+\.py")
"""A file in the trainer's folder; none in that of a placeholder."""

_OF_FILES = ("TRAINER_DIR", "PYTHON")
"""Variables of each file, which an adapter's values do not name."""


def adapter_sbatch(launch: Launch, purpose: Purpose) -> str:
    """Return the whole launch as a Slurm job, with one task of srun per GPU.

    Submit it from a folder that all nodes share, like its trials.
    """
    sections = [
        head(launch, purpose),
        "\n".join([DEFAULT, folder_of_job(launch.name), ""]),
        environment(launch.place),
        IN_A_JOB,
        MEETING,
        STRICT,
        _FOLDER.format(rank=_RANK, script=rank_script(launch, purpose, file=_RANK)),
        _check(launch, purpose),
        "exec " + srun(launch, [_START_RANK], variables=variables_of(launch, purpose)),
    ]
    return "\n".join(sections)


def adapter_script(launch: Launch, purpose: Purpose) -> str:
    """Return a script that starts all ranks on this machine."""
    ranks = launch.strategy.world_size(launch.machine.gpus_per_node)
    # As in a trial, ranks outside a job have no Slurm variables.
    task = shlex.quote(f'{RANK_VARIABLES}unset "${{!SLURM@}}"\nexec "$@"\n')
    start = f"{_inside(launch, purpose)} bash -c {task} task {_START_RANK}".strip()
    sections = [
        "\n".join(["#!/bin/bash", *description(launch, purpose), ""]),
        _ALONE + folder_here(launch.name) + "\n",
        environment(launch.place),
        MEETING,
        STRICT,
        _FOLDER.format(rank=_RANK, script=rank_script(launch, purpose, file=_RANK)),
        _check(launch, purpose),
        f"cat >local_ranks.py <<'AUTOTUNE_RANKS'\n{getsource(local_ranks)}AUTOTUNE_RANKS",
        f"exec python3 local_ranks.py {ranks} {start}\n",
    ]
    return "\n".join(sections)


def rank_script(launch: Launch, purpose: Purpose, *, file: str) -> str:
    """Return the script of one rank: what the trials started, for a few iterations, or a
    training. It first checks what the user has set, and whether the trainer is there."""
    adapter = launch.place.adapter
    assert adapter
    adapter = replace(adapter, folder=_FOLDER_OF_TRAINER)
    plan, variables = plan_of(launch, purpose), variables_of(launch, purpose)
    start = start_of(adapter, plan)
    words = _Words(
        {
            OUT: '"$out"',
            PYTHON: '"$PYTHON"',
            _FOLDER_OF_TRAINER: '"$TRAINER_DIR"',
            **{f"${name}": f'"${name}"' for name in variables if name not in _OF_FILES},
        }
    )
    nodes, ranks = launch.strategy.num_nodes, launch.machine.gpus_per_node
    about = () if file == _RANK else description(launch, purpose)
    head = [
        *("#!/bin/bash", *about),
        _HEAD.format(nodes=nodes, ranks=ranks, file=file).rstrip(),
    ]
    unknown = unknown_parts(adapter, plan) if plan.training else []
    lines = [
        "\n".join(head),
        'out="${OUT:-$PWD/out}"\nmkdir -p "$out"',
        _checks(variables, start, adapter, words),
        *_files(start.files, words),
        *_exports(start, adapter, words),
        'cd "$TRAINER_DIR"',
        *([" ".join(map(words.of, start.prepare))] if start.prepare else []),
        *(comment(f"not known: {each}") for each in unknown),
        _command(start, adapter, words),
    ]
    return "\n".join([*lines, ""])


def _inside(launch: Launch, purpose: Purpose) -> str:
    variables = variables_of(launch, purpose)
    return shlex.join(container_words(launch.place, variables=variables))


def _check(launch: Launch, purpose: Purpose) -> str:
    return f"{_inside(launch, purpose)} {_START_RANK} --check\n".lstrip()


def _checks(
    variables: Mapping[str, TrainingVariable], start: TrainerStart, adapter: Adapter, words: _Words
) -> str:
    values = {f"${name}": f'"${{{name}:-}}"' for name in variables}
    given = _Words({"$HOME": '"$HOME"', "$OUT": '"$out"', **values})
    lines = []
    for name, variable in variables.items():
        if not variable.default:
            lines.append(f"needs {name} {shlex.quote(variable.meaning)}")
        lines += [f"exists {name} {given.of(path)}" for path in variable.exists]
        if variable.default:
            default = given.of(variable.default)
            lines.append(f'[[ -n "${{{name}:-}}" ]] || export {name}={default}')
    program = start.words[: _first_option(start.words)]
    scripts = [word for word in program if _SCRIPT.fullmatch(word) and word not in start.files]
    lines += [f"has_program {words.of(word)}" for word in scripts if not start.prepare]
    at_module = [after for word, after in pairwise(program) if word == "-m"]
    if modules := [*(name.partition(".")[0] for name in at_module), *adapter.needs]:
        lines.append(f"can_import {' '.join(map(words.of, dict.fromkeys(modules)))}")
    path = start.variables.get("PYTHONPATH")
    environment = f"PYTHONPATH={words.of(path)} " if path else ""
    return _CHECKS.format(checks="\n".join(lines), environment=environment, look=shlex.quote(_LOOK))


def _first_option(words: Sequence[str]) -> int:
    return next((at for at, word in enumerate(words) if _OPTION.match(word)), len(words))


def _exports(start: TrainerStart, adapter: Adapter, words: _Words) -> Iterator[str]:
    for name, value in start.variables.items():
        yield f"export {name}={words.of(value)}{_remark(adapter, f'${name}')}"


def _remark(adapter: Adapter, place: str) -> str:
    text = adapter.numerics.get(place)
    return f"  # {' '.join(text.split())}" if text else ""


def _command(start: TrainerStart, adapter: Adapter, words: _Words) -> str:
    """Return bash that starts the trainer, with each option on a line of its own."""
    begins = [place for place, word in enumerate(start.words) if _OPTION.match(word)]
    bounds = pairwise([*begins, len(start.words)])
    options = [start.words[begin:end] for begin, end in bounds]
    lines = [f"    {_option(option, adapter, words)}" for option in options]
    program = " ".join(map(words.of, start.words[: _first_option(start.words)]))
    given = '${arguments[@]+"${arguments[@]}"} ${extra[@]+"${extra[@]}"}'
    return "\n".join(["arguments=(", *lines, ")", _EXTRA, f"exec {program} {given}"])


def _option(option: Sequence[str], adapter: Adapter, words: _Words) -> str:
    place = option[0] if option[0].startswith("--") else option[0].partition("=")[0]
    return " ".join(map(words.of, option)) + _remark(adapter, place)


class _Words:
    """Shell words, with some texts replaced by variables of the script."""

    def __init__(self, shell: Mapping[str, str]) -> None:
        self._shell = shell
        longest_first = sorted(shell, key=len, reverse=True)
        self._named = re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def of(self, text: str) -> str:
        parts = filter(None, self._named.split(text))
        return "".join(self._shell.get(part) or shlex.quote(part) for part in parts) or "''"


def _files(files: Mapping[str, str], words: _Words) -> Iterator[str]:
    for name, text in files.items():
        lines = " ".join(map(words.of, text.splitlines()))
        partial, whole = f'"$out/{name}.$RANK"', f'"$out/{name}"'
        yield f"printf '%s\\n' {lines} >{partial}\nmv {partial} {whole}"
