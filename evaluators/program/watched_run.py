"""Ends a run from outside as soon as its log shows that enough was measured.

Megatron is told beforehand how long to train, and would save what it has trained before it ended
sooner. So `run_watch` looks at its log beside it, and the run's step is ended once it has seen
enough, which is no failure of it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from inspect import getsource
from math import isfinite
from pathlib import Path
from typing import Any

from evaluators import stopping_rule
from evaluators.frameworks.megatron_deepspeed.schedule import PlannedRun
from evaluators.program import run_watch
from evaluators.stopping_rule import Verdict
from evaluators.trial import TrialProtocol
from evaluators.trial_files import LOG

WATCHED = "watched"
"""The bash function that runs the words after a run's number, until enough was measured."""

_SCRIPT = "run_watch.py"
_RULE = "stopping_rule"

# srun takes its tasks with it when it is asked to end.
_FUNCTION = """{name}() {{
    local number="$1" seen training watch code
    shift
    if [[ -n "${{given_up:-}}" ]]; then return 0; fi
    seen="$(stat -c %s {log} 2>/dev/null || echo 0)"
    "$@" &
    training=$!
    {watch} "{plan}" "$seen" &
    watch=$!
    wait -n "$training" "$watch"
    if [[ -e "{note}" ]]; then
        kill "$training" 2>/dev/null
        wait "$training"
        wait "$watch" || [[ $? -lt {give_up} ]] || given_up=1
        return 0
    fi
    wait "$training"
    code=$?
    kill "$watch" 2>/dev/null
    wait "$watch"
    return "$code"
}}
"""


def watched_function(interpreter: Sequence[str]) -> str:
    """Return the bash of `watched NUMBER WORDS…`, where these words start Python."""
    return _FUNCTION.format(
        name=WATCHED,
        log=LOG,
        watch=shlex.join([*interpreter, _SCRIPT]),
        plan=_plan_name("$number"),
        note=_note_name("$number"),
        give_up=int(Verdict.GIVE_UP),
    )


def watch_files(protocol: TrialProtocol, runs: Sequence[PlannedRun]) -> Mapping[str, str]:
    """Return by name what the function needs in the attempt's folder."""
    script = getsource(run_watch).replace(f"from {stopping_rule.__name__} ", f"from {_RULE} ")
    plans = {
        _plan_name(str(number)): json.dumps(_plan(protocol, run, number), indent=2)
        for number, run in enumerate(runs, start=1)
    }
    return {_SCRIPT: script, f"{_RULE}.py": getsource(stopping_rule), **plans}


def as_run(planned: Sequence[PlannedRun], folder: Path) -> list[PlannedRun]:
    """Return the planned runs as far as they were run: one that was given up is the last."""
    runs: list[PlannedRun] = []
    for number, run in enumerate(planned, start=1):
        try:
            ended = json.loads((folder / _note_name(str(number))).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            ended = {}  # it came to its own end
        if ended.get("given_up"):
            return [*runs, run.given_up_after(ended["iterations"])]
        runs.append(run)
    return runs


def _plan_name(number: str) -> str:
    return f"watch-{number}.json"


def _note_name(number: str) -> str:
    return f"ended-early-{number}.json"


def _plan(protocol: TrialProtocol, run: PlannedRun, number: int) -> Mapping[str, Any]:
    """Return what `run_watch` is to look for in the log of this run."""
    limits = [protocol.limit_at(segment.gradient_accumulation_steps) for segment in run.segments]
    return {
        "log": LOG,
        "note": _note_name(str(number)),
        "least": protocol.measured_iterations,
        "most": protocol.most,
        "target_spread": protocol.target_spread,
        "long_s": protocol.long_s if isfinite(protocol.long_s) else None,
        "time_for_more_s": protocol.time_for_more_s,
        "time_limit_s": protocol.time_limit_s,
        "segments": [
            {
                "gradient_accumulation_steps": segment.gradient_accumulation_steps,
                "first_measured": segment.measured.start,
                "last": segment.measured.stop - 1,
                "give_up_above_s": limit_s if isfinite(limit_s) else None,
                "iterations_owed": protocol.iterations_owed(segment.gradient_accumulation_steps),
            }
            for segment, limit_s in zip(run.segments, limits, strict=True)
        ],
    }
