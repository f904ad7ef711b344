"""Progress of campaigns on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from autotune.answers.campaign import not_started
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.campaigns import Campaign, Event
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.words.quantities import duration, figure, mark, plural
from server.cli.output import err, note


@dataclass
class CampaignProgress:
    """One campaign, updated by its events.

    Attributes:
        ended: trial number -> whether the trial failed.
        unfinished: trial number -> trial that has not ended.
        reported: reasons that `reason_for_waiting` has already returned.
        last_end: when the last trial ended.
    """

    campaign: Campaign
    ended: dict[int, bool] = field(default_factory=dict)
    unfinished: dict[int, Trial] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    last_end: datetime | None = None
    confirmed: int = 0
    knob_starts: int = 0

    @property
    def total(self) -> int:
        if self.campaign.finished_at is not None:
            return self.searched
        return max(self.campaign.request.budget.max_trials, self.searched)

    @property
    def searched(self) -> int:
        return len(self.ended) - self.confirmed - self.knob_starts

    @property
    def title(self) -> str:
        return f"{self.campaign.id} {self.campaign.model.name} on {self.campaign.machine.name}"

    @property
    def remaining(self) -> str:
        """Return the maximum remaining time at the current pace, `at most 5 min left`; empty if
        unknown, as with knobs."""
        start, request = self.campaign.started_at, self.campaign.request
        if start is None or self.last_end is None or self.campaign.finished_at or request.knobs:
            return ""
        each_s = (self.last_end - start).total_seconds() / len(self.ended)
        confirmations = max(request.protocol.confirmations - self.confirmed, 0)
        left = self.total - self.searched + confirmations
        return f"at most {duration(each_s * left)} left"

    @property
    def figures(self) -> str:
        """Return the number of waiting and failed trials, confirmations and starts of knobs, the
        best rate, and the remaining time."""
        unit = OBJECTIVE_UNITS[self.campaign.request.objective]
        reached = self.campaign.best_objective
        best = f"best {figure(reached)} {unit}" if reached else "no result yet"
        waiting = sum(trial.phase == "waiting" for trial in self.unfinished.values())
        failed = f"{sum(self.ended.values())} failed"
        confirmed = plural(self.confirmed, "confirmation") if self.confirmed else ""
        knobs = f"{plural(self.knob_starts, 'start')} of knobs" if self.knob_starts else ""
        parts = [f"{waiting} waiting" if waiting else "", confirmed, knobs, failed]
        projected = "projected, " if self.campaign.best_projected_from_nodes else ""
        origin = f"{projected}{mark(self.campaign.simulated)}"
        parts += [f"{best} ({origin})", self.remaining]
        return " · ".join(filter(None, parts))

    def apply(self, event: Event) -> bool:
        """Process an event; return whether a trial has ended."""
        self.campaign = event.campaign or self.campaign
        trial = event.trial
        if trial is None:
            return False
        if trial.state == TrialState.PENDING:
            self.unfinished[trial.number] = trial
            return False
        self.unfinished.pop(trial.number, None)
        if trial.withdrawn or trial.number in self.ended:
            return False
        self.confirmed += trial.purpose == "confirmation"
        self.knob_starts += trial.purpose == "knob"
        self.ended[trial.number] = trial.state not in {TrialState.OK, TrialState.CANCELLED}
        self.last_end = max(filter(None, [self.last_end, trial.finished_at]), default=None)
        return True

    def reason_for_waiting(self) -> str:
        """Return why no trial runs, once per reason; empty if one does."""
        trials = self.unfinished.values()
        reasons = Counter(trial.phase_reason for trial in trials)
        fresh = set(reasons) - self.reported - {""}
        if not fresh or any(trial.phase == "running" for trial in trials):
            return ""
        self.reported |= fresh
        return not_started(reasons)


class ProgressBoard:
    """Shows the progress of several campaigns at once."""

    def __init__(self, campaigns: list[Campaign]) -> None:
        self._console = err()
        self._campaigns = {campaign.id: CampaignProgress(campaign) for campaign in campaigns}
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[figures]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[int, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        for key, progress in self._campaigns.items():
            self._tasks[key] = self._bars.add_task(
                progress.title, total=progress.total, figures=progress.figures
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, unfinished: Iterable[Trial]) -> None:
        """Load all trials that have not ended, to show what runs and waits."""
        for trial in unfinished:
            self._campaigns[trial.campaign_id].unfinished[trial.number] = trial
        for progress in self._campaigns.values():
            self._report_waiting(progress)

    def update(self, event: Event) -> None:
        """Display the effect of an event of one of the campaigns."""
        progress = self._campaigns[event.campaign_id]
        trial_ended = progress.apply(event)
        self._report_waiting(progress)
        done, total = progress.searched, progress.total
        if self._console.is_terminal:
            task = self._tasks[event.campaign_id]
            self._bars.update(task, completed=done, total=total, figures=progress.figures)
        elif trial_ended:
            note(f"{progress.title}: {done}/{total} · {progress.figures}")

    def _report_waiting(self, progress: CampaignProgress) -> None:
        if reason := progress.reason_for_waiting():
            self._console.print(f"{progress.title}: {reason}", markup=False, soft_wrap=True)
