"""What `AsyncClient` gives. What a method does is written in `handles`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from autotune.client import calls
from autotune.client.files import save_archive
from autotune.client.following import Follower
from autotune.client.questions import validated
from autotune.client.views import CampaignView, RecommendationView
from autotune.schemas import BudgetExtension, Campaign, Event, Recommendation, Trial

if TYPE_CHECKING:
    from autotune.client.asynchronous import AsyncTransport


class AsyncCampaign(CampaignView):
    """As `CampaignHandle`, to be awaited."""

    def __init__(self, transport: AsyncTransport, campaign: Campaign) -> None:
        super().__init__(campaign)
        self._transport = transport

    async def refresh(self) -> Self:
        self.campaign = await self._transport.send(calls.campaign(self.id))
        return self

    async def watch(self, *, after: int = 0) -> AsyncIterator[Event]:
        await self.refresh()
        async for event in self._transport.follow(Follower(self.campaign, after=after)):
            self.campaign = event.campaign or self.campaign
            yield event

    async def wait(self, *, timeout_s: float | None = None) -> Self:
        deadline = self.deadline(timeout_s)
        while not (await self.refresh()).at_rest:
            await asyncio.sleep(self.pause_s(deadline))
        return self

    async def trials(
        self, *, state: str | None = None, purpose: str | None = None, sort: str = "number"
    ) -> list[Trial]:
        found: list[Trial] = []
        cursor: str | None = None
        while True:
            page = await self._transport.send(
                calls.trials(self.id, state=state, purpose=purpose, sort=sort, cursor=cursor)
            )
            found.extend(page.items)
            cursor = page.next
            if cursor is None:
                return found

    async def trial(self, number: int) -> Trial:
        return await self._transport.send(calls.trial(self.id, number))

    async def log(self, number: int, *, lines: int = 200) -> str:
        return await self._transport.send(calls.trial_log(self.id, number, lines=lines))

    async def best(self) -> AsyncRecommendation:
        answer = await self._transport.send(calls.recommendation(self.id))
        return AsyncRecommendation(self._transport, answer)

    async def artefacts(self) -> list[str]:
        return (await self.best()).artefacts()

    async def download(self, path: str | Path, *, rank: int = 1) -> list[Path]:
        archive = await self._transport.send(calls.archive(self.id, rank=rank))
        return save_archive(archive, Path(path))

    async def pause(self) -> Self:
        return await self._control("pause")

    async def resume(self) -> Self:
        return await self._control("resume")

    async def cancel(self) -> Self:
        return await self._control("cancel")

    async def _control(self, action: str) -> Self:
        self.campaign = await self._transport.send(calls.control(self.id, action))
        return self

    async def extend(self, **budget: Any) -> Self:
        extension = validated(BudgetExtension, budget)
        self.campaign = await self._transport.send(calls.extend(self.id, extension))
        return self

    async def delete(self) -> None:
        await self._transport.send(calls.delete(self.id))


class AsyncRecommendation(RecommendationView):
    """As `RecommendationHandle`, to be awaited."""

    def __init__(self, transport: AsyncTransport, recommendation: Recommendation) -> None:
        super().__init__(recommendation)
        self._transport = transport

    async def artefact(self, name: str, *, rank: int = 1) -> str:
        call = calls.artefact(self.recommendation.campaign_id, name, rank=rank)
        return await self._transport.send(call)

    async def launch_script(self, *, rank: int = 1) -> str:
        return await self.artefact(self.launch_script_name, rank=rank)
