"""How trials in pilot mode come to their one outcome, or to another attempt."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from autotune.schemas import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.controller import Controller
from evaluators.slurm.evidence import read_evidence, read_log_end
from evaluators.slurm.judgement import Retry
from evaluators.slurm.ledger import note_failures
from evaluators.slurm.outcome import give_up, without_run, write_outcome
from evaluators.slurm.pilot.allocation import INTACT, Allocation, Fate
from evaluators.slurm.pilot.entry import NO_STEP, Entry, Phase
from evaluators.slurm.pilot.steps import Place, this_host
from evaluators.slurm.pilot.sweeper import Sweeper
from evaluators.slurm.pilot.verdict import verdict
from evaluators.slurm.step_errors import NoStep, failed_nodes
from evaluators.trial import TrialOutcome, TrialProgress

MOST_NO_STEPS = 10
LONGEST_PAUSE_S = 15.0
"""Slurm makes no steps for some seconds after its controller was restarted."""


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
        if _ended_well(entry):
            self._judge(entry, place, INTACT)
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
        self._judge(entry, place, fate)

    def settle(self, entry: Entry, status: TrialState, error: str) -> None:
        """An outcome of a trial that does not run."""
        attempt = entry.attempt
        self._end_with(entry, lambda: without_run(attempt, status, error))

    def _judge(self, entry: Entry, place: Place, fate: Fate) -> None:
        folder = entry.attempt.folder
        log_end = read_log_end(folder)
        found = verdict(
            read_evidence(folder),
            place,
            fate=fate,
            log_end=log_end,
            time_limit_s=entry.request.protocol.time_limit_s,
            ended_at=entry.over_at,
            cancelled=entry.cancelled,
        )
        if isinstance(found, NoStep):
            self._no_step(entry, found.ended)
        elif isinstance(found, Retry):
            self._retry(entry, found.ended, fate.failed_nodes | failed_nodes(log_end))
        else:
            self._close(entry, found)

    def _no_step(self, entry: Entry, ended: AttemptEnd) -> None:
        entry.no_steps += 1
        if entry.no_steps >= MOST_NO_STEPS or entry.cancelled:
            self._close(entry, ended)
            return
        self._give_up(entry, NO_STEP, ended)
        pause_s = min(2.0 ** (entry.no_steps - 1), LONGEST_PAUSE_S)
        self.no_step_before = max(self.no_step_before, time.monotonic() + pause_s)

    def _retry(self, entry: Entry, ended: AttemptEnd, failed: frozenset[str]) -> None:
        """Another attempt, unless there were enough."""
        trials, name = entry.attempt.mailbox.parent, entry.attempt.name
        note_failures(trials, name=name, nodes=sorted(failed))
        entry.failures += 1
        most = self._site.profile.retries.attempts
        if entry.failures >= most:
            self._close(entry, replace(ended, reason=f"{ended.reason}, in each of {most} attempts"))
            return
        self._give_up(entry, str(ended.status), ended)

    def _give_up(self, entry: Entry, status: str, ended: AttemptEnd) -> None:
        give_up(entry.attempt, ended, status=status)
        entry.next_attempt()
        entry.wait(f"to be started again: {ended.reason}")

    def _close(self, entry: Entry, ended: AttemptEnd) -> None:
        request, folder, program = entry.request, entry.attempt.folder, self._site.program
        self._end_with(entry, lambda: program.outcome(request, folder, ended))

    def _end_with(self, entry: Entry, read: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        entry.phase = Phase.READING
        if isinstance(entry.told, TrialProgress):
            entry.told = replace(entry.told, reason="reading what it left")
        entry.reading = self._site.readers.submit(write_outcome, entry.attempt, read)


def _place(entry: Entry) -> Place:
    """An attempt of which no place was written has none."""
    return entry.place or Place(job_id="", nodes=(), host=this_host())


def _ended_well(entry: Entry) -> bool:
    """srun may exit with 0 although a node failed."""
    folder = entry.attempt.folder
    end = read_evidence(folder).end
    return end is not None and end.exit_code == 0 and not failed_nodes(read_log_end(folder))
