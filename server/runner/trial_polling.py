"""Submit, poll and cancel a campaign's trials at their backend.

Local trials are child processes of the runner. A runner presumed dead may still be alive, so that
it and its successor run a trial twice. Each writes into its own folder, numbered by the lease under
which it started the trial, and the highest number counts. With a scheduler, all runners see the
same trial, in the trial's folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from autotune.calibration import Calibration
from autotune.files import is_file_system_failure
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from evaluators.trial import Backend, TrialOutcome, TrialProgress, TrialRequest
from server.campaign.protocol import protocol_of
from server.campaign.results import Workload
from server.runner.trial_logs import attempt_folder, attempt_folders, shorten_logs
from server.settings import Settings

log = structlog.get_logger(__name__)

LOG_END_BYTES = 10**6
"""Left at either end of an ended trial's log."""


@dataclass(frozen=True, kw_only=True)
class PolledTrials:
    """Unfinished trials after a poll: ended, in progress, or unknown to the backend.

    Attributes:
        without_room: token -> state of the unknown trials that could not start because the disk is
            full.
    """

    ended: Sequence[tuple[Trial, TrialOutcome]]
    in_progress: Sequence[tuple[Trial, TrialProgress]]
    unknown: Sequence[Trial]
    without_room: Mapping[str, TrialProgress]

    @property
    def started(self) -> list[Trial]:
        return [trial for trial, _ in self.in_progress]

    @property
    def waiting(self) -> list[Trial]:
        return [trial for trial, progress in self.in_progress if progress.phase == "waiting"]


class TrialPolling:
    """The trials of one campaign at their backend: submitted, polled, cancelled.

    Args:
        epoch: of the lease under which trials are started.
        trials: returns all known trials of the campaign.
        calibration: returns the calibration at the time when a trial was created.

    Attributes:
        withdrawn: tokens of the trials that it cancelled.
    """

    def __init__(
        self,
        campaign: Campaign,
        *,
        epoch: int,
        trials: Callable[[], Sequence[Trial]],
        calibration: Callable[[Trial], Calibration],
        backend: Backend,
        settings: Settings,
    ) -> None:
        self.workload = Workload.of(campaign)
        self.withdrawn: set[str] = set()
        self._campaign = campaign
        self._epoch = epoch
        self._trials = trials
        self._calibration = calibration
        self._backend = backend
        self._settings = settings
        self._requests: dict[str, TrialRequest] = {}
        self._without_room: dict[str, TrialProgress] = {}

    def poll(self, pending: Sequence[Trial]) -> PolledTrials:
        """Return the state or the outcome of each pending trial."""
        self._requests = {trial.token: self._request(trial) for trial in pending}
        reports = self._backend.poll(list(self._requests.values()))
        ended: list[tuple[Trial, TrialOutcome]] = []
        in_progress: list[tuple[Trial, TrialProgress]] = []
        unknown: list[Trial] = []
        for trial in pending:
            report = reports.get(trial.token)
            if report is None or self._was_abandoned(trial, report):
                unknown.append(trial)
            elif isinstance(report, TrialOutcome):
                ended.append((trial, report))
            else:
                in_progress.append((trial, report))
        for trial, _ in ended:
            shorten_logs(self._settings.trial_dir(trial.token), end_bytes=LOG_END_BYTES)
        return PolledTrials(
            ended=ended, in_progress=in_progress, unknown=unknown, without_room=self._without_room
        )

    def submit(self, trials: Iterable[Trial]) -> bool:
        """Start trials; a backend runs each token only once.

        Return whether any was started: a trial for which the disk is full stays unknown.
        """
        before, self._without_room = self._without_room, {}
        started = False
        for trial in trials:
            request = self._request(trial)
            if self._is_ours:
                request = replace(request, directory=self._own_attempt(trial))
            self._requests[trial.token] = request
            try:
                self._backend.submit(request)
            except OSError as error:
                if not is_file_system_failure(error):
                    raise
                reason = f"its folder cannot be written: {error.strerror}"
                self._without_room[trial.token] = TrialProgress(phase="waiting", reason=reason)
                if trial.token not in before:
                    log.warning("trial_waits_for_room", trial=trial.number, error=str(error))
                continue
            started = True
            strategy = trial.strategy.short()
            log.info("trial_submitted", trial=trial.number, strategy=strategy)
        return started

    def cancel(self, trials: Iterable[Trial]) -> None:
        """Cancel trials, each once."""
        for trial in trials:
            if trial.token not in self.withdrawn:
                self._backend.cancel(trial.token)
                self.withdrawn.add(trial.token)

    @property
    def _is_ours(self) -> bool:
        return self._campaign.request.evaluator == "local"

    def _was_abandoned(self, trial: Trial, report: TrialOutcome | TrialProgress) -> bool:
        return (
            self._is_ours
            and isinstance(report, TrialOutcome)
            and report.status is TrialState.CANCELLED
            and self._requests[trial.token].directory != self._own_attempt(trial)
        )

    def _own_attempt(self, trial: Trial) -> Path:
        return attempt_folder(self._settings.trial_dir(trial.token), self._epoch)

    def _directory(self, trial: Trial) -> Path:
        directory = self._settings.trial_dir(trial.token)
        attempts = attempt_folders(directory) if self._is_ours else []
        return attempts[-1] if attempts else directory

    def _request(self, trial: Trial) -> TrialRequest:
        known = self._requests.get(trial.token)
        if known is not None:
            return known  # a pending trial's request never changes
        return TrialRequest(
            token=trial.token,
            transformer=self.workload.of_trial(trial).transformer,
            machine=self.workload.machine,
            strategy=trial.strategy,
            protocol=protocol_of(
                self._campaign,
                trial,
                trials=self._trials(),
                calibration=lambda: self._calibration(trial),
            ),
            directory=self._directory(trial),
            seed=self._campaign.request.seed,
            group=f"campaign-{self._campaign.id}",
        )
