"""Progress of campaigns on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

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

from autotune.schemas import Campaign, Event, TrialState
from server.cli.figures import figure, mark
from server.cli.output import err, note


@dataclass
class Standing:
    """One campaign as its events tell of it: trials finished, trials failed, the best so far."""

    campaign: Campaign
    ended: dict[int, bool] = field(default_factory=dict)
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
        if trial is None or trial.state == TrialState.PENDING or trial.number in self.ended:
            return False
        self.ended[trial.number] = trial.state not in {TrialState.OK, TrialState.CANCELLED}
        if trial.metrics is not None:
            rate = getattr(trial.metrics, self.campaign.request.objective)
            self.best = max(rate, self.best or 0.0)
        return True

    def figures(self) -> str:
        found = f"best {figure(self.best)} tokens/s" if self.best else "nothing measured yet"
        return f"{self.failures} failed · {found} ({mark(self.campaign.simulated)})"

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

    def tell(self, event: Event) -> None:
        """An event of one of the campaigns."""
        standing = self._standings[event.campaign_id]
        ended_a_trial = standing.take(event)
        if self._console.is_terminal:
            self._bars.update(
                self._tasks[event.campaign_id],
                completed=standing.done,
                total=standing.total,
                figures=standing.figures(),
            )
        elif ended_a_trial:
            note(f"{standing.title()}: {standing.done}/{standing.total} · {standing.figures()}")
