"""End a start from outside as soon as its log shows that enough was measured.

A trainer is given its number of iterations at the start, and many save a checkpoint if they stop
earlier. So `start_watch` reads the log while it trains, and the start's step is ended, which does
not count as a failure.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from inspect import getsource
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import Any

from evaluators import stopping_rule
from evaluators.adapter import expression, figures, rank_process, readers
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import file_patterns
from evaluators.program import start_watch
from evaluators.stopping_rule import Verdict
from evaluators.trial import LOG, TrialProtocol

WATCHED = "watched"
"""The bash function that runs the command after a start's number until enough was measured."""

_SCRIPT = "start_watch.py"

# On SIGTERM srun ends its tasks. The two processes are waited for one after the other: if both end
# at once, bash 5.2 may forget the one that `wait -n` does not return.
_FUNCTION = """{name}() {{
    local number="$1" seen training watch code verdict
    shift
    if [[ -n "${{given_up:-}}" ]]; then return 0; fi
    seen="$(stat -c %s {log} 2>/dev/null || echo 0)"
    "$@" &
    training=$!
    (
        {watch} "{plan}" "$seen" "$SECONDS"
        code=$?
        if [[ -e "{note}" ]]; then kill "$training" 2>/dev/null; fi
        exit "$code"
    ) &
    watch=$!
    wait "$training"
    code=$?
    rm -f "{plan}"  # which ends the watch
    wait "$watch"
    verdict=$?
    if [[ ! -e "{note}" ]]; then return "$code"; fi
    if [[ $verdict -ge {give_up} ]]; then given_up=1; fi
    return 0
}}
"""


def watched_function(interpreter: Sequence[str]) -> str:
    """Return the bash function `watched NUMBER WORDS…`; `interpreter`: words that start Python."""
    return _FUNCTION.format(
        name=WATCHED,
        log=LOG,
        watch=shlex.join([*interpreter, _SCRIPT]),
        plan=_plan_name("$number"),
        note=_note_name("$number"),
        give_up=int(Verdict.GIVE_UP),
    )


def start_watch_files(
    protocol: TrialProtocol, adapter: Adapter, starts: Sequence[Sequence[StartPart]]
) -> Mapping[str, str]:
    """Return the files that the function needs in the attempt's folder, by name.

    Args:
        starts: the parts of each.
    """
    plans = {}
    for number, parts in enumerate(starts, start=1):
        plan = {
            "log": LOG,
            "note": _note_name(str(number)),
            "least": protocol.measured_iterations,
            "most": protocol.most,
            "target_spread": protocol.target_spread,
            "long_s": protocol.long_s if isfinite(protocol.long_s) else None,
            "time_for_more_s": protocol.time_for_more_s,
            "time_limit_s": protocol.time_limit_s,
            "start": number,
            "out": start_folder(number),
            "starts_owed": len(starts) - number,
            "readers": [asdict(reader) for reader in adapter.read],
            "files": dict(zip(_places_of_files(adapter), file_patterns(adapter.read), strict=True)),
            "parts": [asdict(part) for part in parts],
            "reports_memory": any(reader.reports("peak_memory_gib") for reader in adapter.read),
            "ends_early": adapter.ends_early,
            "segments": _segments(protocol, parts),
        }
        plans[_plan_name(str(number))] = json.dumps(plan, indent=2)
    modules = (start_watch, stopping_rule, figures, expression, rank_process, readers)
    return {**_texts(*modules), **plans}


def start_folder(number: int) -> str:
    return f"start-{number}"


def _places_of_files(adapter: Adapter) -> list[int]:
    return [place for place, reader in enumerate(adapter.read) if reader.file]


def _segments(protocol: TrialProtocol, parts: Sequence[StartPart]) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    for part in parts:
        before = segments[-1]["last"] if segments else 0
        accumulation = int(part.names["gradient_accumulation_steps"] or 0)
        limit_s = protocol.limit_at(accumulation)
        segment = {
            "gradient_accumulation_steps": accumulation,
            "last": before + part.iterations,
            "give_up_above_s": limit_s if isfinite(limit_s) else None,
            "iterations_owed": protocol.iterations_owed(accumulation),
        }
        segments.append(segment)
    # The next start has a warm-up of its own.
    segments[-1]["iterations_owed"] *= 1 + parts[0].warmup_iterations / protocol.fewest_iterations
    return segments


def note_of(folder: Path, number: int) -> Mapping[str, Any] | None:
    """Return the note of a run that was ended early: its `iterations`, and whether the trial was
    `given_up`; None if it ended by itself."""
    try:
        note = json.loads((folder / _note_name(str(number))).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def _plan_name(number: str) -> str:
    return f"watch-{number}.json"


def _note_name(number: str) -> str:
    return f"ended-early-{number}.json"


def _texts(*modules: ModuleType) -> dict[str, str]:
    texts = {f"{_plain(module)}.py": getsource(module) for module in modules}
    for module in modules:
        for name in texts:
            texts[name] = texts[name].replace(
                f"from {module.__name__} import", f"from {_plain(module)} import"
            )
    return texts


def _plain(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]
