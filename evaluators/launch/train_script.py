"""The script that trains one strategy on this machine with the bundled trainer."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from evaluators.launch.sbatch import comment, job_name
from evaluators.trainer.request_file import request_as_dict
from evaluators.trial import Protocol, TrialRequest
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

ITERATIONS = 10
"""Timed iterations: enough to see the recommended figure again, with its spread."""

TIME_LIMIT_S = 3600.0

_RUN = """mkdir -p "$RUN_DIR"
cd "$RUN_DIR"
cat >request.json <<'JSON'
{request}
JSON
echo "training in $RUN_DIR; its log is trial.log, what came of it result.json"
exec "$PYTHON" -m evaluators.trainer --request request.json
"""


def train_script(
    transformer: Transformer, machine: Machine, strategy: Strategy, *, name: str, python: str
) -> str:
    """A bash script that holds its own request; `python` is the interpreter it uses by default.

    It trains at the strategy's own GAS and leaves its files in a folder of its own.
    """
    protocol = Protocol(
        accumulations=(strategy.gradient_accumulation_steps,),
        measured_iterations=ITERATIONS,
        time_limit_s=TIME_LIMIT_S,
    )
    request = TrialRequest(
        token=job_name(name),
        transformer=transformer,
        machine=machine,
        strategy=strategy,
        protocol=protocol,
        directory=Path(),
    )
    head = [
        "#!/bin/bash",
        comment(f"{name}: {transformer.name} on {machine.name}"),
        comment(strategy.short()),
        "set -euo pipefail",
        f"default_python={shlex.quote(python)}",
        'PYTHON="${PYTHON:-$default_python}"  # where autotune[trials] is installed',
        f'RUN_DIR="${{RUN_DIR:-$PWD/{job_name(name)}-$(date +%Y%m%d-%H%M%S)}}"',
        "",
    ]
    data = request_as_dict(request)
    del data["directory"]  # the folder that the request lies in, which only the script knows
    return "\n".join(head) + _RUN.format(request=json.dumps(data, indent=2))
