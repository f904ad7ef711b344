"""Trials on a Ray cluster."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from autotune.files import is_file_system_failure
from autotune.schemas import TrialState
from evaluators.attempt.attempt import attempts_of, never_prepared
from evaluators.attempt.attempt_state import AttemptState
from evaluators.attempt.driver import TrialBackend, TrialContext, result_readers
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.program.interpreter import ANY
from evaluators.program.support import program_of
from evaluators.ray.connection import SILENT_S, RayConnection, RayRefused, RayUnavailable
from evaluators.ray.ray_trial import SUBMITTING, RayTrial
from evaluators.ray.work import work_of
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from search_spaces.errors import InvalidInput

INTERVAL_S = 0.1
"""Between two calls for all trials together, while there are some."""
SLOWEST_S = 10.0
"""Between two calls of a cluster that does not answer."""

log = logging.getLogger(__name__)


class RayBackend(TrialBackend[RayTrial]):
    """Runs trials on the Ray cluster of a profile. A later object finds them again.

    An actor of the cluster (`evaluators.ray.keeper`) keeps each trial, independent of this process.
    One thread talks to it.

    Args:
        program: the trainer. Default: the profile's.
    """

    name = "ray"

    def __init__(self, profile: ClusterProfile, *, program: Program | None = None) -> None:
        super().__init__()
        profile = replace(profile, python=profile.python or ANY)
        self._context = TrialContext(
            profile=profile,
            program=program or program_of(profile),
            readers=result_readers(self.name),
        )
        self._connection = RayConnection(
            profile.ray.address, limit_s=profile.polling.command_limit_s
        )
        self._forgotten: defaultdict[str, set[str]] = defaultdict(set)
        self._thread: threading.Thread | None = None
        self._wake, self._closing = threading.Event(), threading.Event()

    def cancel(self, token: str) -> None:
        super().cancel(token)
        self._wake.set()

    def close(self) -> None:
        """Detach: trials keep running and can be found again by their folders and names."""
        self._closing.set()
        self._wake.set()
        if self._thread:
            self._thread.join(SILENT_S)
            self._connection.interrupt()
            self._thread.join()
            self._thread = None
        self._context.readers.shutdown(wait=True, cancel_futures=True)
        self._context = replace(self._context, readers=result_readers(self.name))
        self._trials.clear()
        self._forgotten.clear()
        self._closing.clear()

    def _begin(self, request: TrialRequest) -> RayTrial:
        """Hand the trial to the thread, which the first trial starts."""
        trial = RayTrial.of(request, self._context)
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="ray-trials", daemon=True)
            self._thread.start()
        self._wake.set()
        return trial

    def _resume(self, request: TrialRequest) -> RayTrial | None:
        return self._begin(request) if attempts_of(request) else None

    def _advance(self, trial: RayTrial) -> TrialOutcome | TrialProgress:
        answer, silence = trial.current(), self._connection.silence
        if silence and isinstance(answer, TrialProgress) and answer.phase == "waiting":
            return replace(answer, reason=f"Ray does not answer ({silence})")
        return answer

    def _forget(self, trial: RayTrial) -> None:
        self._forgotten[trial.keeper].add(trial.attempt.name)
        self._wake.set()

    def _follow(self) -> None:
        """Advance all trials until this object is closed."""
        pause_s = INTERVAL_S
        while not self._closing.is_set():
            self._wake.clear()
            with self._lock:
                going = [trial for trial in self._trials.values() if trial.reading is None]
                idle = not going and not any(self._forgotten.values())
            try:
                self._speak(going)
                pause_s = INTERVAL_S
                self._wake.wait(None if idle else pause_s)
                continue
            except (RayUnavailable, RayRefused) as error:
                _tell(going, f"Ray does not answer ({error})")
            except OSError as error:
                log.warning("a trial's folder cannot be written", exc_info=True)
                _tell(going, f"its folder cannot be written: {error}")
            pause_s = min(SLOWEST_S, 2 * pause_s)
            self._closing.wait(pause_s)
        with suppress(RayUnavailable, RayRefused):
            if any(self._forgotten.values()):
                self._speak([])
        self._connection.close()

    def _speak(self, going: Sequence[RayTrial]) -> None:
        """Send each keeper the changes, and process its trials' reports."""
        by_keeper: dict[str, list[RayTrial]] = defaultdict(list)
        works: dict[str, dict[str, Any]] = {}
        for trial in going:
            if trial.asked and not trial.taken and not self._prepare(trial, works):
                continue
            by_keeper[trial.keeper].append(trial)
        for keeper in {*by_keeper, *(name for name, trials in self._forgotten.items() if trials)}:
            trials, forget = by_keeper[keeper], sorted(self._forgotten[keeper])
            names = {trial.attempt.name: trial for trial in trials}
            message = {
                "submit": [(name, works[name]) for name in names if name in works],
                "cancel": [name for name, trial in names.items() if trial.cancelled],
                "forget": forget,
                "follow": {name: trial.logged for name, trial in names.items()},
            }
            reports = self._connection.ask("sync", keeper=keeper, message=message) or {}
            self._forgotten[keeper].difference_update(forget)
            for name, trial in names.items():
                trial.take(reports.get(name))
                if trial.attempt.name != name:  # which has been abandoned
                    self._forgotten[keeper].add(name)

    def _prepare(self, trial: RayTrial, works: dict[str, dict[str, Any]]) -> bool:
        """Write the files to run, and record the submission; return whether that succeeded."""
        if trial.cancelled:
            trial.settle(TrialState.CANCELLED, "cancelled before it ran")
            return False
        try:
            works[trial.attempt.name] = work_of(
                trial.attempt, self._context.profile, self._context.program
            )
            trial.note(taken=False)
        except (InvalidInput, OSError, ValueError) as error:
            if is_file_system_failure(error):
                raise  # it waits for room: what could not be written down would be told later
            never = never_prepared(error)
            trial.settle(never.status, never.error)
            return False
        if trial.state is AttemptState.NEW:
            trial.become(AttemptState.SUBMITTING)
        return True


def _tell(trials: Sequence[RayTrial], trouble: str) -> None:
    """Say of what waits why, and of what runs that nothing more is heard of it."""
    for trial in trials:
        if isinstance(trial.answer, TrialProgress):
            known = SUBMITTING if trial.answer.phase == "waiting" else trial.answer
            trial.answer = replace(known, reason=trouble)
