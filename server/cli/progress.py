"""Progress of campaigns on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
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

from autotune.schemas import Campaign, Event, Trial, TrialState
from server.cli.figures import figure, mark, not_started
from server.cli.output import err, note


@dataclass
class Standing:
    """One campaign as its events tell of it.

    Attributes:
        ended: by number: whether the trial failed.
        opened: by number: trials that have not ended, as they stand.
        told: reasons for which trials wait that `news` has given.
    """

    campaign: Campaign
    ended: dict[int, bool] = field(default_factory=dict)
    opened: dict[int, Trial] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    best: float | None = None

    @property
    def done(self) -> int:
        return len(self.ended)

    @property
    def failures(self) -> int:
        return sum(self.ended.values())

    @property
    def total(self) -> int:
        """Trials of the search and confirmations, as far as the budget tells."""
        request = self.campaign.request
        planned = request.budget.max_trials + request.protocol.confirmations
        return max(planned, self.done) if self.campaign.finished_at is None else self.done

    def take(self, event: Event) -> bool:
        """Whether a trial has ended with this event."""
        self.campaign = event.campaign or self.campaign
        trial = event.trial
        if trial is None:
            return False
        if trial.state == TrialState.PENDING:
            self.opened[trial.number] = trial
            return False
        self.opened.pop(trial.number, None)
        if trial.withdrawn or trial.number in self.ended:
            return False
        self.ended[trial.number] = trial.state not in {TrialState.OK, TrialState.CANCELLED}
        if trial.metrics is not None:
            rate = getattr(trial.metrics, self.campaign.request.objective)
            self.best = max(rate, self.best or 0.0)
        return True

    def figures(self) -> str:
        found = f"best {figure(self.best)} tokens/s" if self.best else "nothing measured yet"
        waiting = sum(trial.phase == "waiting" for trial in self.opened.values())
        wait = f"{waiting} waiting · " if waiting else ""
        return f"{wait}{self.failures} failed · {found} ({mark(self.campaign.simulated)})"

    def news(self) -> str:
        """Why no trial runs, once for each reason; empty while one does, and where it was told."""
        trials = self.opened.values()
        reasons = Counter(trial.phase_reason for trial in trials)
        fresh = set(reasons) - self.told - {""}
        if not fresh or any(trial.phase == "running" for trial in trials):
            return ""
        self.told |= fresh
        return not_started(reasons)

    def title(self) -> str:
        campaign = self.campaign
        return f"{campaign.id} {campaign.model.name} on {campaign.machine.name}"


class Board:
    """Shows several campaigns at once; each is told its events."""

    def __init__(self, campaigns: list[Campaign]) -> None:
        self._console = err()
        self._standings = {campaign.id: Standing(campaign) for campaign in campaigns}
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
        for key, standing in self._standings.items():
            self._tasks[key] = self._bars.add_task(
                standing.title(), total=standing.total, figures=standing.figures()
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, opened: Iterable[Trial]) -> None:
        """Trials that have not ended: with these alone it is known what runs and what waits."""
        for trial in opened:
            self._standings[trial.campaign_id].opened[trial.number] = trial
        for standing in self._standings.values():
            self._tell_news(standing)

    def _tell_news(self, standing: Standing) -> None:
        if news := standing.news():
            self._console.print(f"{standing.title()}: {news}", markup=False, soft_wrap=True)

    def tell(self, event: Event) -> None:
        """An event of one of the campaigns."""
        standing = self._standings[event.campaign_id]
        ended_a_trial = standing.take(event)
        self._tell_news(standing)
        if self._console.is_terminal:
            self._bars.update(
                self._tasks[event.campaign_id],
                completed=standing.done,
                total=standing.total,
                figures=standing.figures(),
            )
        elif ended_a_trial:
            note(f"{standing.title()}: {standing.done}/{standing.total} · {standing.figures()}")
