"""What `Client` gives: a campaign, and its recommendation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from autotune.client import calls
from autotune.client.files import save_archive
from autotune.client.following import Follower
from autotune.client.questions import validated
from autotune.client.views import CampaignView, RecommendationView
from autotune.schemas import BudgetExtension, Campaign, Event, Recommendation, Trial

if TYPE_CHECKING:
    from autotune.client.synchronous import Transport


class CampaignHandle(CampaignView):
    """One campaign; `campaign` is how it stood when last asked."""

    def __init__(self, transport: Transport, campaign: Campaign) -> None:
        super().__init__(campaign)
        self._transport = transport

    def refresh(self) -> Self:
        self.campaign = self._transport.send(calls.campaign(self.id))
        return self

    def watch(self, *, after: int = 0) -> Iterator[Event]:
        """Events from number `after` on (0: from the campaign's start), until it is at rest.

        A broken connection is taken up where it broke, with no event lost or repeated.
        """
        follower = Follower(self.refresh().campaign, after=after)
        for event in self._transport.follow(follower):
            self.campaign = event.campaign or self.campaign
            yield event

    def wait(self, *, timeout_s: float | None = None) -> Self:
        """Until the campaign is at rest; raises TimeoutError after `timeout_s` seconds."""
        deadline = self.deadline(timeout_s)
        while not self.refresh().at_rest:
            time.sleep(self.pause_s(deadline))
        return self

    def trials(
        self, *, state: str | None = None, purpose: str | None = None, sort: str = "number"
    ) -> list[Trial]:
        """All trials, or those of one state or purpose; `sort` as in `-tokens_per_s`."""
        found: list[Trial] = []
        cursor: str | None = None
        while True:
            page = self._transport.send(
                calls.trials(self.id, state=state, purpose=purpose, sort=sort, cursor=cursor)
            )
            found.extend(page.items)
            cursor = page.next
            if cursor is None:
                return found

    def trial(self, number: int) -> Trial:
        return self._transport.send(calls.trial(self.id, number))

    def log(self, number: int, *, lines: int = 200) -> str:
        """The last lines of a trial's log."""
        return self._transport.send(calls.trial_log(self.id, number, lines=lines))

    def best(self) -> RecommendationHandle:
        """The recommendation; raises ApiError with status 404 while there is none."""
        return RecommendationHandle(
            self._transport, self._transport.send(calls.recommendation(self.id))
        )

    def artefacts(self) -> list[str]:
        """Names of the files that `download` writes."""
        return self.best().artefacts()

    def download(self, path: str | Path, *, rank: int = 1) -> list[Path]:
        """Write the files of the strategy at `rank` into a folder, or as one archive (`.zip`)."""
        return save_archive(self._transport.send(calls.archive(self.id, rank=rank)), Path(path))

    def pause(self) -> Self:
        return self._control("pause")

    def resume(self) -> Self:
        return self._control("resume")

    def cancel(self) -> Self:
        return self._control("cancel")

    def _control(self, action: str) -> Self:
        self.campaign = self._transport.send(calls.control(self.id, action))
        return self

    def extend(self, **budget: Any) -> Self:
        """Raise the budget (the fields of `BudgetExtension`); a campaign that is done goes on."""
        extension = validated(BudgetExtension, budget)
        self.campaign = self._transport.send(calls.extend(self.id, extension))
        return self

    def delete(self) -> None:
        self._transport.send(calls.delete(self.id))


class RecommendationHandle(RecommendationView):
    """The answer of a campaign, with the files that run it."""

    def __init__(self, transport: Transport, recommendation: Recommendation) -> None:
        super().__init__(recommendation)
        self._transport = transport

    def artefact(self, name: str, *, rank: int = 1) -> str:
        """The text of one file, for the strategy at `rank` (1 is the best)."""
        call = calls.artefact(self.recommendation.campaign_id, name, rank=rank)
        return self._transport.send(call)

    def launch_script(self, *, rank: int = 1) -> str:
        """The script that starts training with the strategy at `rank`."""
        return self.artefact(self.launch_script_name, rank=rank)
