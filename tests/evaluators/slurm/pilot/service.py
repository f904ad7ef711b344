"""A process that owns a backend: `python -m … TRIALS TEXT WIDTH…`. It ends when its trials have."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.evaluators.slurm.pilot.scene import pilot, requests
from tests.evaluators.slurm.trials import run


def main() -> None:
    trials, text, *widths = sys.argv[1:]
    with pilot(text) as backend:
        for outcome in run(backend, *requests(Path(trials), *map(int, widths))):
            print(outcome.status, outcome.job_id, outcome.error, flush=True)


if __name__ == "__main__":
    main()
