"""Runs one trial of a program on this machine: `python -m evaluators.local.attempt FOLDER`.

The folder has the request and the profile, in ATTEMPT. SIGTERM cancels the trial. Closing standard
input, as when the submitting process ends, stops it without a result.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from inspect import getsource
from pathlib import Path
from shlex import quote

from autotune.files import FAILING, write_whole
from autotune.schemas.choices import TrialState
from evaluators import time_limit
from evaluators.attempt import BODY_SCRIPT, body_script
from evaluators.cluster import ClusterProfile, profile_as_dict, profile_from_dict
from evaluators.cluster.knobs import profile_of_run
from evaluators.cluster.shell import container_words
from evaluators.processes import ProcessGroup
from evaluators.program import AttemptEnd, Launcher, Program, local_ranks
from evaluators.program.outcome import AttemptFailure, failed
from evaluators.program.support import program_of
from evaluators.trainer.failure import NO_OTHER_NODE
from evaluators.trainer.supervisor import owned
from evaluators.trial import (
    LOG,
    TrialOutcome,
    TrialRequest,
    request_as_dict,
    request_from_dict,
    write_result,
)
from search_spaces.errors import InvalidInput, InvalidInputs

ATTEMPT = "attempt.json"
LOCAL_RANKS = "local_ranks.py"
LOOK_S = 0.05
END_LIMIT_S = 3.0
"""That processes have to end by themselves after SIGTERM."""


def write_attempt(request: TrialRequest, profile: ClusterProfile) -> None:
    content = {"request": request_as_dict(request), "profile": profile_as_dict(profile)}
    write_whole(request.directory / ATTEMPT, json.dumps(content))


class LocalAttempt:
    """One trial while it runs."""

    def __init__(self, request: TrialRequest, profile: ClusterProfile) -> None:
        self._request, self._profile = request, profile
        self._folder = request.directory
        self._program: Program = program_of(profile)
        self._started_at, self._began = datetime.now(UTC), time.monotonic()
        self._cancelled = False

    def run(self) -> TrialOutcome | None:
        """Return the outcome after all processes have ended; None if nobody waits for it."""
        signal.signal(signal.SIGTERM, self._cancel)
        try:
            self._prepare()
        except (InvalidInput, InvalidInputs) as problem:
            failure = AttemptFailure(status=TrialState.CRASHED, error=str(problem))
            return failed(failure, self._folder, self._end(None, None))
        group = ProcessGroup()
        try:
            script = group.start(
                ["bash", BODY_SCRIPT],
                variables=self._variables,
                folder=self._folder,
                output=self._folder / LOG,
            )
            end = self._watch(script)
            if script.poll() is None:
                group.ask_to_end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    script.wait(END_LIMIT_S)
        finally:
            group.end()
        if end is None:
            return None
        outcome = self._program.outcome(self._request, self._folder, end)
        if outcome.status is TrialState.NODE_FAIL:
            return replace(outcome, error=f"{outcome.error} ({NO_OTHER_NODE})")
        return outcome

    def _cancel(self, *_: object) -> None:
        self._cancelled = True

    def _prepare(self) -> None:
        request, folder = self._request, self._folder
        profile = profile_of_run(self._profile, request)
        ranks = request.strategy.world_size(request.machine.gpus_per_node)
        launcher = Launcher(
            srun=(sys.executable, str(folder / LOCAL_RANKS), str(ranks)),
            container=container_words(profile),
        )
        files = {
            **self._program.files(request, folder),
            LOCAL_RANKS: getsource(local_ranks),
            BODY_SCRIPT: body_script(
                request, folder, profile, self._program, launcher, f"cd {quote(str(folder))}"
            ),
        }
        for name, text in files.items():
            write_whole(folder / name, text)

    @property
    def _variables(self) -> Mapping[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return own | {"MASTER_ADDR": "127.0.0.1"}

    def _watch(self, script: subprocess.Popen[bytes]) -> AttemptEnd | None:
        limit_s = self._request.protocol.time_limit_s
        while (code := script.poll()) is None:
            if self._cancelled:
                return self._end(TrialState.CANCELLED, None, reason="cancelled")
            if time_limit.reached(self._began, time_limit_s=limit_s):
                reason = f"time limit of {limit_s:g} s reached"
                return self._end(TrialState.TIMEOUT, None, reason=reason)
            readable, _, _ = select.select([sys.stdin], [], [], LOOK_S)
            if readable:
                return None
        return self._end(None, code if code >= 0 else 128 - code)

    def _end(self, status: TrialState | None, code: int | None, *, reason: str = "") -> AttemptEnd:
        return AttemptEnd(
            status=status,
            reason=reason,
            exit_code=code,
            started_at=self._started_at,
            duration_s=time.monotonic() - self._began,
            host=socket.gethostname(),
        )


def main(arguments: Sequence[str]) -> int:
    """Run the trial in a folder and write its result; return 0.

    If the disk is full, other files may fail, too: the errno is returned.
    """
    folder = Path(arguments[0])
    content = json.loads((folder / ATTEMPT).read_text(encoding="utf-8"))
    request = request_from_dict(content["request"])
    profile = profile_from_dict(content["profile"], source="attempt")
    try:
        with owned(folder) as mine:
            if mine and (outcome := LocalAttempt(request, profile).run()):
                write_result(folder, outcome)
    except OSError as error:
        if error.errno in FAILING:
            return error.errno
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
