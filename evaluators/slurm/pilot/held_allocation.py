"""The allocation that the service holds: a job that sleeps while steps run beside it.

    <trials>/allocations/<profile>/<name>/    as in attempt_files
        job.sh, intent.json, job.json, claim/job, ended, abandoned.json
        need.json                             what was asked for
        lease                                 the epoch until which it is needed

It ends by itself when its lease does, so a service that never comes back holds it no longer than
its last trials take.
"""

from __future__ import annotations

import json
import logging
import math
import re
import secrets
import shlex
import time
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from autotune.files import write_whole
from autotune.schemas import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles, read_attempt_files, write_abandoned
from evaluators.slurm.batch_script import FOLDER_READ_ONLY, FOLDER_UNSEEN, JOB_SCRIPT, job_head
from evaluators.slurm.job_decision import (
    Abandon,
    AskAccounting,
    Decision,
    JobStatus,
    SubmitAgain,
    judge,
)
from evaluators.slurm.job_records import SubmitState
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import (
    Hostnames,
    Need,
    NoAllocation,
    NodeLoss,
    RunningAllocation,
    node_loss_in,
    running_allocation,
)
from evaluators.slurm.submit_queue import Submission
from evaluators.trial import TrialProgress

ALLOCATIONS = "allocations"
NEED = "need.json"
LEASE = "lease"
LEASE_S = 120.0
"""A lease is at least so long: the nodes may see it late."""
RENEWAL_S = 10.0
PATIENCE_S = 30.0
"""For so long after it was asked for it is looked at more often: it may start at once."""
log = logging.getLogger(__name__)

_SLEEP = rf"""cd -- "$folder" || exit {FOLDER_UNSEEN}
if [[ -e abandoned.json ]]; then exit 0; fi
if ! mkdir claim 2>/dev/null; then
    [[ -d claim ]] && exit 0
    exit {FOLDER_READ_ONLY}
fi
begin="$(date +%s)"
printf '%s %s %s\n' "$SLURM_JOB_ID" "$begin" "$SLURM_JOB_NODELIST" >claim/job.partial
mv -f claim/job.partial claim/job
while [[ "$(date +%s)" -lt "$(cat {LEASE})" ]]; do sleep 5; done
printf '0 %s %s\n' "$begin" "$(date +%s)" >ended.partial
mv -f ended.partial ended
"""


def holding_script(profile: ClusterProfile, name: str, folder: Path, need: Need) -> str:
    """It outlives the failure of a node other than its first (--no-kill).

    Raises:
        ValueError: something in the profile cannot be written as a `#SBATCH` line.
    """
    head = job_head(
        profile,
        name=name,
        nodes=need.nodes,
        gpus_per_node=need.gpus_per_node,
        minutes=math.ceil(profile.pilot.time_limit_h * 60),
        exclude=need.exclude,
    )
    return f"{head}#SBATCH --no-kill\n\nfolder={shlex.quote(str(folder))}\n{_SLEEP}"


class _Holding:
    """One allocation, from its submission to its end."""

    def __init__(self, folder: Path, need: Need) -> None:
        self.folder, self.need = folder, need
        self.name = folder.name
        self.released = False
        self.evidence = AttemptFiles()
        self.version = -1
        self.job_ids: set[str] = set()
        self.begun_by: float | None = None
        self.renewed_at = time.monotonic()

    @classmethod
    def written(cls, folder: Path) -> _Holding | None:
        try:
            plain = json.loads((folder / NEED).read_text(encoding="utf-8"))
            need = Need(**plain | {"exclude": tuple(plain["exclude"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(folder, need)

    def read(self, version: int) -> None:
        """Its folder, when something may have changed there."""
        if version != self.version:
            self.evidence, self.version = read_attempt_files(self.folder), version
            if self.evidence.claimed and self.begun_by is None:
                self.begun_by = time.time()


class HeldAllocation:
    """Asked for when there is work, and again when it is lost, too small or at its end."""

    held = True

    def __init__(self, profile: ClusterProfile, tracker: JobTracker, trials: Path) -> None:
        self.room: RunningAllocation | None = None
        self.waiting = "no allocation has been asked for yet"
        self._profile = profile
        self._tracker = tracker
        self._hostnames = Hostnames(tracker.slurm)
        self._root = trials / ALLOCATIONS / (re.sub(r"[^\w.-]", "-", profile.name) or "-")
        self._past: dict[str, NodeLoss] = {}
        self._losses = 0
        self._now = self._found_again()

    def advance(self, need: Need | None) -> NoAllocation | None:
        """Take in what Slurm says, and ask for one where one is needed and there is none."""
        if self._now is None:
            if need:
                self._begin(need)
            return None
        sent = self._tracker.submit_status(self._now.name)
        if sent.state in {SubmitState.REFUSED, SubmitState.FAILED}:
            return self._refused(sent.error, refused=sent.state is SubmitState.REFUSED)
        if sent.state is not SubmitState.TRIED:
            self._say(self._tracker.full or "being submitted to Slurm")
            return None
        self._tracker.watch(hurry=self.room is None and time.time() - sent.at < PATIENCE_S)
        sight = self._tracker.status(self._now.name)
        self._now.read(self._tracker.version)
        self._now.job_ids |= {job.id for job in sight.jobs}
        verdict = judge(
            self._now.evidence,
            sight,
            time_limit_s=math.inf,
            submitted_at=sent.at,
            begun_by=self._now.begun_by,
            cancelled=self._now.released,
        )
        return self._act(self._now, verdict, sight)

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """What became of these nodes of that job."""
        if job_id in self._past:
            return self._past[job_id]
        if self.room and self.room.job_id == job_id:
            return node_loss_in(self.room, nodes, since=since)
        if self._now and (not self._now.job_ids or job_id in self._now.job_ids):
            return None
        return NodeLoss(status=TrialState.LOST, reason="its allocation is over")

    def keep(self, until: float) -> None:
        """Renew its lease."""
        now = time.monotonic()
        if self._now is None or now - self._now.renewed_at < RENEWAL_S:
            return
        self._now.renewed_at = now
        try:
            write_whole(self._now.folder / LEASE, f"{max(until, time.time() + LEASE_S):.0f}\n")
        except OSError:
            log.warning("the lease of an allocation could not be renewed", exc_info=True)

    def release(self) -> None:
        """Give it back."""
        if self._now and not self._now.released:
            self._now.released = True
            self.room = None
            self._losses = 0
            self._say("being given back: the next one follows")
            if self._tracker.withdraw(self._now.name):
                self._end(self._now, "withdrawn")
            else:
                self._tracker.cancel(self._now.name)

    def _found_again(self) -> _Holding | None:
        """The one of an earlier process; of several the newest, and the others are ended."""
        open_ones = [
            holding
            for folder in self._root.glob("*/")
            if (holding := _Holding.written(folder))
            and (evidence := read_attempt_files(folder)).intended_at is not None
            and not evidence.over
        ]
        open_ones.sort(key=lambda one: read_attempt_files(one.folder).intended_at or 0.0)
        for one in open_ones:
            at = read_attempt_files(one.folder).intended_at or 0.0
            self._tracker.follow(one.name, submitted_at=at)
        for one in open_ones[:-1]:
            self._tracker.cancel(one.name)
            self._end(one, "another one is in use")
        return open_ones[-1] if open_ones else None

    def _begin(self, need: Need) -> None:
        folder = self._root / f"autotune-pilot-{secrets.token_hex(4)}"
        self._now = _Holding(folder, need)
        self._submit(self._now)

    def _submit(self, holding: _Holding) -> None:
        self._say("being submitted to Slurm")

        def prepare() -> None:
            holding.folder.mkdir(parents=True, exist_ok=True)
            lease = f"{time.time() + LEASE_S:.0f}\n"
            script = holding_script(self._profile, holding.name, holding.folder, holding.need)
            write_whole(holding.folder / LEASE, lease)
            write_whole(holding.folder / NEED, json.dumps(asdict(holding.need)))
            write_whole(holding.folder / JOB_SCRIPT, script)

        self._tracker.submit(Submission(name=holding.name, folder=holding.folder, prepare=prepare))

    def _act(self, holding: _Holding, verdict: Decision, sight: JobStatus) -> NoAllocation | None:
        if isinstance(verdict, AttemptEnd):
            return self._ended(holding, verdict)
        if isinstance(verdict, Abandon):
            return self._ended(holding, verdict.ended)
        if isinstance(verdict, SubmitAgain):
            self._submit(holding)
        elif isinstance(verdict, AskAccounting):
            since = holding.evidence.intended_at or time.time()
            self._tracker.look_up(holding.name, since=since - 3600.0)
            self.room = None
        else:
            self._stands(holding, verdict, sight)
        return None

    def _stands(self, holding: _Holding, standing: TrialProgress, sight: JobStatus) -> None:
        jobs = [job for job in sight.jobs if job.id == standing.job_id]
        if holding.released or not jobs or sight.asked_at is None:
            self.room = None
        else:
            self.room = running_allocation(jobs[0], self._hostnames, asked_at=sight.asked_at)
        self._say(self._tracker.trouble or standing.reason or "it has begun")

    def _ended(self, holding: _Holding, ended: AttemptEnd) -> NoAllocation | None:
        """UserAllocation back, or lost; then its trials are started again in the next one."""
        status = ended.status or TrialState.NODE_FAIL
        reason = ended.reason or "ended by itself"
        job_id = ended.job_id or ""
        began = holding.evidence.claimed
        failed = self._tracker.failed_nodes(holding.name)
        self._end(holding, reason)
        self.room, self._now = None, None
        if holding.released or (ended.exit_code == 0 and began):
            self._past[job_id] = NodeLoss(status=TrialState.LOST, reason="its allocation is over")
            return None
        self._losses += 1
        self._tracker.cancel(holding.name)  # should Slurm have put it back
        log.warning("the allocation %s is lost: %s", job_id, reason)
        lost = TrialState.PREEMPTED if status is TrialState.TIMEOUT else status
        self._past[job_id] = NodeLoss(
            status=lost, reason=f"its allocation: {reason}", failed_nodes=failed
        )
        if began and self._losses < self._profile.retries.attempts:
            return None
        self._losses = 0
        return NoAllocation(status=status, error=f"the allocation of pilot mode: {reason}")

    def _refused(self, error: Exception | None, *, refused: bool) -> NoAllocation:
        assert self._now
        self._tracker.forget(self._now.name)
        self._now = None
        said = f"sbatch refused it: {error}" if refused else f"it cannot be asked for: {error}"
        return NoAllocation(
            status=TrialState.REFUSED, error=f"the allocation of pilot mode: {said}"
        )

    def _end(self, holding: _Holding, reason: str) -> None:
        self._tracker.forget(holding.name)
        try:
            write_abandoned(holding.folder, status="over", reason=reason, duration_s=0.0)
        except OSError:
            log.warning("an allocation could not be marked as over", exc_info=True)
        if self._now is holding:
            self._now = None

    def _say(self, why: str) -> None:
        nodes = self._now.need.nodes if self._now else 0
        self.waiting = f"waiting for the allocation of {nodes} nodes: {why}"
