"""Ends steps whose trial has ended; their nodes are free only when the steps are gone.

srun can die before its step: killed after a time limit, or with the service's host.
"""

from __future__ import annotations

import logging
import threading
import time

from evaluators.slurm.commands import Slurm, SlurmError

PAUSE_S = 1.0
"""Between two listings of steps, so that they and the status calls stay below two a second."""
log = logging.getLogger(__name__)


class StepCleanup:
    """Ends steps by name, in its own thread. Thread-safe."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._wake = threading.Condition()
        self._dead: dict[str, str] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def end_steps(self, name: str, *, job_id: str) -> None:
        """End every step of this name in the job, from now on."""
        with self._wake:
            self._dead[name] = job_id
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="slurm-steps", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def gone(self, name: str) -> bool:
        """Return whether Slurm has reported, after `end_steps`, that there is none."""
        with self._wake:
            return name not in self._dead

    def close(self) -> None:
        """End the thread, after the current command."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._dead or self._closed)
                if self._closed:
                    return
                dead = dict(self._dead)
            began = time.monotonic()
            try:
                self._end_left_over(dead)
            except SlurmError as error:
                log.warning("steps cannot be listed: %s", error)
            with self._wake:
                pause_s = max(PAUSE_S, time.monotonic() - began)
                self._wake.wait_for(lambda: self._closed, timeout=pause_s)

    def _end_left_over(self, dead: dict[str, str]) -> None:
        """Cancel the steps that still run, by name and job; an unlisted one is gone."""
        left: set[str] = set()
        for job_id in set(dead.values()):
            steps = self._slurm.steps(job_id)
            left_over = [step for step, name in steps if dead.get(name) == job_id]
            left |= {name for _, name in steps}
            if left_over:
                self._slurm.scancel(left_over)
        with self._wake:
            for name in dead.keys() - left:
                self._dead.pop(name, None)
