"""One job of Slurm for each trial."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.program.choice import program_of
from evaluators.slurm.attempt import Attempt
from evaluators.slurm.controller import Controller
from evaluators.slurm.course import Course, Site
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result

READERS = 4


class SlurmBackend:
    """Trials as jobs, each submitted once; an object made later finds them again.

    Args:
        controller: shared with other backends of the process; one of its own otherwise.
        program: what trains; the profile's otherwise.
    """

    name = "slurm"
    simulated = False

    def __init__(
        self,
        profile: ClusterProfile,
        *,
        controller: Controller | None = None,
        program: Program | None = None,
    ) -> None:
        self.controller = controller or Controller.of(profile)
        self._owns_controller = controller is None
        self._site = Site(
            profile=profile,
            program=program or program_of(profile),
            controller=self.controller,
            readers=_readers(),
        )
        self._courses: dict[str, Course] = {}
        self._lock = threading.RLock()

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result: then do nothing."""
        with self._lock:
            if self._course(request) is None and read_result(request.directory) is None:
                self._courses[request.token] = Course.begun(request, self._site)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """By token: the outcome of each trial that has ended, and how each other one stands.

        A trial that was never submitted is left out.
        """
        mail = _Mail()
        with self._lock:
            found = {request.token: self._stand(request, mail) for request in requests}
            if self._courses:
                self.controller.watch()
        return {token: stands for token, stands in found.items() if stands}

    def cancel(self, token: str) -> None:
        """End the trial's jobs; its outcome becomes `cancelled` once they have ended."""
        with self._lock:
            if course := self._courses.get(token):
                course.cancel()

    def close(self) -> None:
        """Let go: jobs run on, and are found by their folders and names, by this object too."""
        if self._owns_controller:
            self.controller.close()
        with self._lock:
            self._site.readers.shutdown(wait=True, cancel_futures=True)
            self._site = replace(self._site, readers=_readers())
            self._courses.clear()

    def _course(self, request: TrialRequest) -> Course | None:
        """Of a trial that is under way."""
        course = self._courses.get(request.token)
        if course is None and read_result(request.directory) is None:
            course = Course.found(request, self._site)
            if course:
                self._courses[request.token] = course
        return course

    def _stand(self, request: TrialRequest, mail: _Mail) -> TrialOutcome | TrialProgress | None:
        course = self._course(request)
        if course is None:
            return read_result(request.directory)
        stands = course.advance(mailed=mail.holds(course.attempt))
        if isinstance(stands, TrialOutcome) and read_result(request.directory):
            del self._courses[request.token]
        return stands


def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS, thread_name_prefix="slurm-results")


class _Mail:
    """The mailboxes as they were when each was first looked into."""

    def __init__(self) -> None:
        self._names: dict[Path, frozenset[str]] = {}

    def holds(self, attempt: Attempt) -> bool:
        box = attempt.mailbox
        if box not in self._names:
            try:
                self._names[box] = frozenset(os.listdir(box))
            except OSError:
                self._names[box] = frozenset()
        return attempt.name in self._names[box]
