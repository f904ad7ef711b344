"""Trials on a Ray cluster."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from autotune.cost_model.parameters import is_cpu
from autotune.files import is_file_system_failure, write_whole
from autotune.schemas.choices import TrialState
from evaluators.attempt import (
    BODY_SCRIPT,
    Attempt,
    AttemptedTrial,
    AttemptState,
    FollowingBackend,
    TrialContext,
    body_script,
    never_prepared,
)
from evaluators.cluster.knobs import profile_of_run
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import container_words
from evaluators.failed_nodes import nodes_to_exclude
from evaluators.program import AttemptEnd, Launcher, Program
from evaluators.program.interpreter import ANY
from evaluators.ray.connection import SILENT_S, RayConnection, RayRefused, RayUnavailable
from evaluators.ray.driver import SENT
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine

AS_RANKS = "as_ranks.sh"


def service_of(trials: Path) -> str:
    place = f"{socket.gethostname()}:{os.getuid()}:{trials.absolute()}"
    return sha256(place.encode()).hexdigest()[:12]


def keeper_name(trials: Path) -> str:
    """Return the name of the actor that keeps these trials; it depends on the code's version."""
    root = Path(__file__).parents[2]
    sources = (root.joinpath(*name.split(".")).with_suffix(".py") for name in SENT)
    code = b"".join(source.read_bytes() for source in sources)
    return f"autotune-{service_of(trials)}-{sha256(code).hexdigest()[:8]}"


def bundle_of(machine: Machine, profile: ClusterProfile) -> dict[str, float]:
    """Return the resources of a trial on each node: all GPUs or, without GPUs, CPUs."""
    gpus, cpus = machine.gpus_per_node, profile.tasks.cpus_per_task
    if is_cpu(machine):
        return {"CPU": gpus * (cpus or 1)}
    return {"GPU": gpus, **({"CPU": gpus * cpus} if cpus else {})}


def work_of(attempt: Attempt, profile: ClusterProfile, program: Program) -> dict[str, Any]:
    """Return the work as plain values.

    Raises:
        InvalidInput: the program cannot run the request's strategy.
    """
    request = attempt.request
    profile = profile_of_run(profile, request)
    trials = Path(profile.ray.folder) / f"autotune-{service_of(request.directory.parent)}"
    folder = trials / request.token / attempt.folder.name
    launcher = Launcher(srun=("bash", str(folder / AS_RANKS)), container=container_words(profile))
    files = program.files(request, folder)
    script = body_script(request, folder, profile, program, launcher, "export MASTER_ADDR")
    return {
        "folder": str(folder),
        "bundle": bundle_of(request.machine, profile),
        "nodes": request.strategy.num_nodes,
        "exclude": nodes_to_exclude(
            request.directory.parent,
            failures=profile.retries.node_failures,
            token=request.token,
        ),
        "ranks": request.machine.gpus_per_node,
        "time_limit_s": request.protocol.time_limit_s,
        "files": {
            name: content.encode() for name, content in {**files, BODY_SCRIPT: script}.items()
        },
    }


KEEPER = "keeper.json"
"""File in an attempt's folder: the actor that it was sent to, and whether the actor received it."""

SUBMITTING = TrialProgress(phase="waiting", reason="being submitted to Ray")
KEEPER_LOST = "Ray's head, or the actor there that keeps trials, has died"

_NOT_ITS_FAULT = {"node": TrialState.NODE_FAIL, "lost": TrialState.LOST}
_ENDS = {"memory": TrialState.OOM, "cancelled": TrialState.CANCELLED}


@dataclass(kw_only=True, eq=False)
class RayTrial(AttemptedTrial):
    """A trial on Ray. Only the backend's thread changes it, except for `cancelled`.

    Attributes:
        keeper: the actor that has the attempt, or will.
        taken: whether it is known to have it.
        reported: whether it has reported on the attempt since this object was made.
        logged: number of log bytes fetched.
        node_ids: Ray's, in the order of the hosts.
        began_at: start of the attempt, as far as is known here (epoch); `began` is the same by the
            monotonic clock.
    """

    answer: TrialOutcome | TrialProgress = SUBMITTING
    keeper: str = ""
    taken: bool = False
    reported: bool = False
    logged: int = 0
    began_at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    node_ids: Sequence[str] = ()

    @classmethod
    def of(cls, request: TrialRequest, context: TrialContext) -> Self:
        trial = super().of(request, context)
        trial.keeper = keeper_name(request.directory.parent)
        trial._read_keeper()
        return trial

    def note(self, *, taken: bool) -> None:
        """Record which keeper gets the attempt. Raises OSError."""
        self.attempt.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"keeper": self.keeper, "taken": taken})
        write_whole(self.attempt.folder / KEEPER, text)
        self.taken = taken

    def add_log(self, part: bytes, *, at: int) -> None:
        """Write a part of the log at its offset. Raises OSError."""
        if part:
            # At its offset: a runner that was presumed dead may write the same part.
            self.attempt.log.touch()
            with self.attempt.log.open("r+b") as file:
                file.seek(at)
                file.write(part)
            self.logged = at + len(part)

    def take(self, report: Mapping[str, Any] | None) -> None:
        """Process the keeper's report; None: it has no such trial. Raises OSError."""
        if report is None:
            if self.taken:
                self.try_again(self._lost())
            self.reported = True
            return
        if not self.taken:
            self.note(taken=True)
        self.reported = True
        self.add_log(report["log"], at=self.logged)
        if report["end"]:
            self._end(report)
        elif report.get("hosts"):
            self.become(AttemptState.RUNNING)
            self.answer = TrialProgress(
                phase="running", job_id=report["group"], host=report["hosts"]
            )
        else:
            self.become(AttemptState.PENDING)
            self.answer = TrialProgress(phase="waiting", reason=report["reason"])

    def begin_next_attempt(self, reason: str) -> None:
        super().begin_next_attempt(reason)
        self.keeper = keeper_name(self.request.directory.parent)
        self.taken, self.reported, self.logged = False, False, 0
        self.began_at, self.began = time.time(), time.monotonic()

    def _end(self, report: Mapping[str, Any]) -> None:
        end = report["end"]
        self.become(AttemptState.COMPLETING)
        for name, content in report["files"].items():
            (self.attempt.folder / name).write_bytes(content)
        self.node_ids = report.get("node_ids", ())
        status, reason = _ENDS.get(end["kind"]), end["reason"]
        if end.get("timed_out"):
            limit_s = self.request.protocol.time_limit_s
            status, reason = TrialState.TIMEOUT, f"it exceeded its time limit of {limit_s:g} s"
        ended = AttemptEnd(
            status=status,
            reason=reason,
            exit_code=end.get("exit_code"),
            started_at=datetime.fromtimestamp(end["began_at"], UTC),
            duration_s=max(0.0, end["ended_at"] - end["began_at"]),
            host=report.get("hosts", ""),
            job_id=report.get("group"),
        )
        if end["kind"] in _NOT_ITS_FAULT:
            self.try_again(replace(ended, status=_NOT_ITS_FAULT[end["kind"]]))
        else:
            self.close(ended)

    def _nodes(self, end: AttemptEnd) -> tuple[Sequence[str], Sequence[str]]:
        hosts = end.host.split(",")
        return (hosts, self.node_ids) if len(hosts) == len(self.node_ids) else ((), ())

    def _lost(self) -> AttemptEnd:
        log = self.attempt.log
        ended_at = log.stat().st_mtime if log.exists() else self.began_at
        return AttemptEnd(
            status=TrialState.LOST,
            reason=KEEPER_LOST,
            exit_code=None,
            started_at=datetime.fromtimestamp(min(self.began_at, ended_at), UTC),
            duration_s=min(max(0.0, ended_at - self.began_at), time.monotonic() - self.began),
        )

    def _read_keeper(self) -> None:
        try:
            record = json.loads((self.attempt.folder / KEEPER).read_text(encoding="utf-8"))
            self.keeper, self.taken = str(record["keeper"]), bool(record["taken"])
            self.logged = self.attempt.log.stat().st_size if self.attempt.log.exists() else 0
        except (OSError, ValueError, KeyError, TypeError):
            self.reported = True  # nobody has it


INTERVAL_S = 0.1
"""Seconds between two calls, each for all trials, while there are any."""
SLOWEST_S = 10.0
"""Maximum seconds between two calls of a cluster that does not answer."""

log = logging.getLogger(__name__)


class RayBackend(FollowingBackend[RayTrial]):
    """Runs trials on the Ray cluster of a profile. A later object finds them again.

    An actor of the cluster (`evaluators.ray.keeper`) keeps each trial, independent of this process.
    One thread talks to it.

    Args:
        program: the trainer. Default: the profile's.
    """

    name = "ray"

    def __init__(self, profile: ClusterProfile, *, program: Program | None = None) -> None:
        super().__init__(replace(profile, python=profile.python or ANY), program)
        self._connection = RayConnection(
            profile.ray.address, limit_s=profile.polling.command_limit_s
        )
        self._forgotten: defaultdict[str, set[str]] = defaultdict(set)
        self._pause_s = INTERVAL_S

    def close(self) -> None:
        """Detach: trials keep running and can be found again by their folders and names."""
        self._closing.set()
        self._wake.set()
        if self._thread:
            self._thread.join(SILENT_S)
            self._connection.interrupt()
        super().close()
        self._forgotten.clear()

    def _begin(self, request: TrialRequest) -> RayTrial:
        trial = RayTrial.of(
            request,
            TrialContext(profile=self._profile, program=self._program, readers=self._readers),
        )
        self._follow()
        return trial

    def _advance(self, trial: RayTrial) -> TrialOutcome | TrialProgress:
        answer, silence = trial.current(), self._connection.silence
        if silence and isinstance(answer, TrialProgress) and answer.phase == "waiting":
            return replace(answer, reason=f"Ray does not answer ({silence})")
        return answer

    def _forget(self, trial: RayTrial) -> None:
        self._forgotten[trial.keeper].add(trial.attempt.name)
        self._wake.set()

    def _round(self, trials: Sequence[RayTrial]) -> float | None:
        going = [trial for trial in trials if trial.reading is None]
        try:
            self._speak(going)
            self._pause_s = INTERVAL_S
            return INTERVAL_S if going or any(self._forgotten.values()) else None
        except (RayUnavailable, RayRefused) as error:
            _tell(going, f"Ray does not answer ({error})")
        except OSError as error:
            log.warning("a trial's folder cannot be written", exc_info=True)
            _tell(going, f"its folder cannot be written: {error}")
        self._pause_s = min(SLOWEST_S, 2 * self._pause_s)
        return self._pause_s

    def _last_round(self) -> None:
        with suppress(RayUnavailable, RayRefused):
            self._speak([])
        self._connection.close()

    def _speak(self, going: Sequence[RayTrial]) -> None:
        by_keeper: dict[str, list[RayTrial]] = defaultdict(list)
        works: dict[str, dict[str, Any]] = {}
        for trial in going:
            if trial.reported and not trial.taken and not self._prepare(trial, works):
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
                if trial.attempt.name != name:  # this attempt was abandoned
                    self._forgotten[keeper].add(name)

    def _prepare(self, trial: RayTrial, works: dict[str, dict[str, Any]]) -> bool:
        if trial.cancelled:
            trial.settle(TrialState.CANCELLED, "cancelled before it ran")
            return False
        try:
            works[trial.attempt.name] = work_of(trial.attempt, self._profile, self._program)
            trial.note(taken=False)
        except (InvalidInput, OSError, ValueError) as error:
            if is_file_system_failure(error):
                raise  # it waits for disk space, or its result could not be written either
            never = never_prepared(error)
            trial.settle(never.status, never.error)
            return False
        if trial.state is AttemptState.NEW:
            trial.become(AttemptState.SUBMITTING)
        return True


def _tell(trials: Sequence[RayTrial], trouble: str) -> None:
    for trial in trials:
        if isinstance(trial.answer, TrialProgress):
            known = SUBMITTING if trial.answer.phase == "waiting" else trial.answer
            trial.answer = replace(known, reason=trouble)
