"""How trials in pilot mode come to their one outcome, or to another attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Ended, Program
from evaluators.slurm.controller import Controller
from evaluators.slurm.course import attempts_of, write_outcome
from evaluators.slurm.evidence import over_duration_s, read_evidence, write_over
from evaluators.slurm.judgement import Retry
from evaluators.slurm.ledger import note_failures
from evaluators.slurm.pilot.allocation import INTACT, Allocation, Fate
from evaluators.slurm.pilot.entry import NO_STEP, Entry, Phase
from evaluators.slurm.pilot.steps import Place, this_host
from evaluators.slurm.pilot.sweeper import Sweeper
from evaluators.slurm.pilot.verdict import NoStep, verdict
from evaluators.slurm.step_errors import StepError, step_error
from evaluators.trial import Standing, TrialOutcome, TrialStatus

MOST_NO_STEPS = 10
LONGEST_PAUSE_S = 15.0
"""Slurm makes no steps for some seconds after its controller was restarted."""
TAIL_BYTES = 65_536
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PilotSite:
    """What every trial of a backend needs."""

    profile: ClusterProfile
    program: Program
    controller: Controller
    allocation: Allocation
    sweeper: Sweeper
    readers: Executor


class Endings:
    """Only one thread uses it.

    Attributes:
        no_step_before: until then (monotonic clock) Slurm is not asked for another step.
    """

    def __init__(self, site: PilotSite) -> None:
        self.no_step_before = float("-inf")
        self._site = site

    def over(self, entry: Entry) -> None:
        """Its processes are gone. One that ended well is done; its nodes are free at once."""
        entry.phase, entry.over_at = Phase.OVER, time.time()
        place = _place(entry)
        evidence = read_evidence(entry.attempt.folder)
        if evidence.end and evidence.end.exit_code == 0:
            self._judge(entry, place, INTACT, None)
            return
        if entry.place:
            self._site.sweeper.sweep(entry.attempt.name, job_id=place.job_id)
        else:
            self._site.controller.cancel(entry.attempt.name)  # it was a job of its own

    def advance(self, entry: Entry) -> None:
        """Judge it, once it is known what became of its nodes and that no step is left."""
        place = _place(entry)
        self._site.controller.watch(hurry=True)
        fate = self._site.allocation.fate(place.job_id, place.nodes, since=entry.over_at)
        if fate is None or not self._site.sweeper.gone(entry.attempt.name):
            return
        self._judge(entry, place, fate, step_error(_tail(entry.attempt.log)))

    def settle(self, entry: Entry, status: TrialStatus, error: str) -> None:
        """An outcome of a trial that does not run."""
        now, log_path = datetime.now(UTC), entry.attempt.log
        found = TrialOutcome(
            status=status,
            started_at=now,
            duration_s=0.0,
            simulated=False,
            error=error,
            log_path=str(log_path) if log_path.exists() else None,
        )
        self._end_with(entry, lambda: found)

    def _judge(self, entry: Entry, place: Place, fate: Fate, error: StepError | None) -> None:
        found = verdict(
            read_evidence(entry.attempt.folder),
            place,
            fate=fate,
            error=error,
            time_limit_s=entry.request.protocol.time_limit_s,
            ended_at=entry.over_at,
            cancelled=entry.cancelled,
        )
        if isinstance(found, NoStep):
            self._no_step(entry, found.ended)
        elif isinstance(found, Retry):
            failed = fate.failed_nodes | (error.failed_nodes if error else frozenset())
            self._retry(entry, found.ended, failed)
        else:
            self._close(entry, found)

    def _no_step(self, entry: Entry, ended: Ended) -> None:
        entry.no_steps += 1
        if entry.no_steps >= MOST_NO_STEPS or entry.cancelled:
            self._close(entry, ended)
            return
        self._give_up(entry, NO_STEP, ended)
        pause_s = min(2.0 ** (entry.no_steps - 1), LONGEST_PAUSE_S)
        self.no_step_before = max(self.no_step_before, time.monotonic() + pause_s)

    def _retry(self, entry: Entry, ended: Ended, failed_nodes: frozenset[str]) -> None:
        """Another attempt, unless there were enough."""
        trials, name = entry.attempt.mailbox.parent, entry.attempt.name
        note_failures(trials, name=name, nodes=sorted(failed_nodes))
        entry.failures += 1
        most = self._site.profile.retries.attempts
        if entry.failures >= most:
            self._close(entry, replace(ended, reason=f"{ended.reason}, in each of {most} attempts"))
            return
        self._give_up(entry, str(ended.status), ended)

    def _give_up(self, entry: Entry, status: str, ended: Ended) -> None:
        log.warning("%s: %s; it is started again", entry.attempt.name, ended.reason)
        try:
            write_over(
                entry.attempt.folder,
                status=status,
                reason=ended.reason,
                duration_s=ended.duration_s,
            )
            (entry.attempt.mailbox / entry.attempt.name).unlink(missing_ok=True)
        except OSError:
            log.warning("an attempt could not be marked as over", exc_info=True)
        entry.next_attempt()
        entry.wait(f"to be started again: {ended.reason}")

    def _close(self, entry: Entry, ended: Ended) -> None:
        request, attempt, program = entry.request, entry.attempt, self._site.program
        earlier_s = sum(
            over_duration_s(each.folder) for each in attempts_of(request) if each != attempt
        )

        def outcome() -> TrialOutcome:
            found = program.outcome(request, attempt.folder, ended)
            return replace(found, duration_s=found.duration_s + earlier_s)

        self._end_with(entry, outcome)

    def _end_with(self, entry: Entry, outcome: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        mail = entry.attempt.mailbox / entry.attempt.name
        entry.phase = Phase.READING
        if isinstance(entry.told, Standing):
            entry.told = replace(entry.told, reason="reading what it left")
        entry.reading = self._site.readers.submit(write_outcome, entry.request, outcome, mail)


def _place(entry: Entry) -> Place:
    """An attempt of which no place was written has none."""
    return entry.place or Place(job_id="", nodes=(), host=this_host())


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
