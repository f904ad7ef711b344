"""A campaign's trials at the evaluator that runs them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import structlog

from autotune.resolution import strategy_of
from autotune.schemas import Campaign, Trial
from evaluators.backend import Backend
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from server.runner.outcomes import Subject
from server.runner.planning import protocol_of
from server.settings import Settings

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How unfinished trials were found: ended, standing, or unknown to the evaluator."""

    ended: Sequence[tuple[Trial, TrialOutcome]]
    standing: Sequence[tuple[Trial, TrialProgress]]
    unknown: Sequence[Trial]

    @property
    def started(self) -> list[Trial]:
        """Those that wait or run."""
        return [trial for trial, _ in self.standing]

    @property
    def waiting(self) -> list[Trial]:
        return [trial for trial, standing in self.standing if standing.phase == "waiting"]


class Evaluation:
    """Asks a backend about the trials of one campaign.

    Attributes:
        withdrawn: tokens of the trials that it cancelled.
    """

    def __init__(self, campaign: Campaign, *, backend: Backend, settings: Settings) -> None:
        self.subject = Subject.of(campaign)
        self.withdrawn: set[str] = set()
        self._campaign = campaign
        self._backend = backend
        self._settings = settings
        self._requests: dict[str, TrialRequest] = {}

    def ask(self, pending: Sequence[Trial]) -> Answer:
        requests = {trial.token: self._request(trial) for trial in pending}
        self._requests = requests
        found = self._backend.poll(list(requests.values()))
        ended: list[tuple[Trial, TrialOutcome]] = []
        standing: list[tuple[Trial, TrialProgress]] = []
        for trial in pending:
            reported = found.get(trial.token)
            if isinstance(reported, TrialOutcome):
                ended.append((trial, reported))
            elif reported is not None:
                standing.append((trial, reported))
        unknown = [trial for trial in pending if trial.token not in found]
        return Answer(ended=ended, standing=standing, unknown=unknown)

    def submit(self, trials: Iterable[Trial]) -> None:
        """Start them; a backend runs a token that it knows only once."""
        for trial in trials:
            self._backend.submit(self._request(trial))
            strategy = strategy_of(trial.strategy).short()
            log.info("trial_submitted", trial=trial.number, strategy=strategy)

    def cancel(self, trials: Iterable[Trial]) -> None:
        """End them, each told once."""
        for trial in trials:
            if trial.token not in self.withdrawn:
                self._backend.cancel(trial.token)
                self.withdrawn.add(trial.token)

    def _request(self, trial: Trial) -> TrialRequest:
        """Made once for each trial: nothing of it changes."""
        if trial.token in self._requests:
            return self._requests[trial.token]
        return TrialRequest(
            token=trial.token,
            transformer=self.subject.transformer,
            machine=self.subject.machine,
            strategy=strategy_of(trial.strategy),
            protocol=protocol_of(self._campaign, trial),
            directory=self._settings.trial_dir(trial.token),
            seed=self._campaign.request.seed,
            group=f"campaign-{self._campaign.id}",
        )
