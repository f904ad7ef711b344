"""Benchmarks by the bundled trainer of one strategy: for this machine, and for Slurm."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from evaluators.artefacts.job import (
    DEFAULT,
    IN_A_JOB,
    MEETING,
    STRICT,
    Launch,
    description,
    environment,
    folder_here,
    folder_of_job,
    head,
    job_name,
    srun,
)
from evaluators.program.interpreter import import_path
from evaluators.program.interpreter import python as python_of
from evaluators.trial import TrialProtocol, TrialRequest, request_as_dict

ITERATIONS = 10
"""Timed iterations: enough to reproduce the recommended metrics, with their spread."""

TIME_LIMIT_S = 3600.0

_TRAIN = '"$PYTHON" -m evaluators.trainer --request request.json'

_REQUEST = """mkdir -p "$RUN_DIR"
cd "$RUN_DIR"
cat >request.json <<'JSON'
{request}
JSON
echo "running in $RUN_DIR; its log is trial.log, what came of it result.json"
"""


def benchmark_script(launch: Launch, *, python: str) -> str:
    """Return a self-contained bash script; `python` is its default interpreter.

    It trains at the strategy's own GAS and writes to a folder of its own.
    """
    lines = [
        "#!/bin/bash",
        *description(launch, "benchmark"),
        STRICT.rstrip(),
        f"default_python={shlex.quote(python)}",
        'PYTHON="${PYTHON:-$default_python}"  # where autotune[trials] is installed',
        folder_here(launch.name),
        "",
    ]
    return "\n".join(lines) + _request(launch) + f"exec {_TRAIN}\n"


def benchmark_sbatch(launch: Launch) -> str:
    """Return the same as a Slurm job, with one task of srun per GPU."""
    profile = launch.place
    python = f"default PYTHON {shlex.quote(python_of(profile))}  # it has autotune[trials]"
    sections = [
        head(launch, "benchmark"),
        "\n".join([DEFAULT, python, folder_of_job(launch.name), ""]),
        environment(profile),
        "\n".join([*import_path(profile), ""]),
        IN_A_JOB,
        MEETING,
        STRICT,
        _request(launch),
        srun(launch, [f"{_TRAIN} 2>&1 | tee trial.log"]),
    ]
    return "\n".join(sections)


def _request(launch: Launch) -> str:
    protocol = TrialProtocol(
        accumulations=(launch.strategy.gradient_accumulation_steps,),
        measured_iterations=ITERATIONS,
        time_limit_s=TIME_LIMIT_S,
    )
    request = TrialRequest(
        token=job_name(launch.name),
        transformer=launch.transformer,
        machine=launch.machine,
        strategy=launch.strategy,
        protocol=protocol,
        directory=Path(),
    )
    data = request_as_dict(request)
    del data["directory"]  # the request's folder, which only the script knows
    return _REQUEST.format(request=json.dumps(data, indent=2))
