"""Where a rank's process begins, forked or fresh.

`python -m evaluators.trainer.entry TASK` is a fresh rank; TASK is JSON: parent, place, request.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from evaluators import processes
from evaluators.trainer.libraries import load
from evaluators.trial import TrialRequest
from evaluators.trial_files import request_from_dict


def enter(request: TrialRequest, place: Mapping[str, Any]) -> int:
    """Be the rank that `place` describes (see `rank.Place`); returns its exit code."""
    load()
    from evaluators.trainer.rank import Place, leave, run_rank

    address = (place["address"][0], place["address"][1])
    code, _ = run_rank(request, Place(**{**place, "address": address}))
    leave(code)
    return code


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    processes.die_with(task["parent"])
    enter(request_from_dict(task["request"]), task["place"])
