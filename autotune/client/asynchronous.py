"""The client to be awaited: `AsyncClient` and its handles. What a method does is written in
`synchronous`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import httpx2

from autotune.client import calls
from autotune.client.calls import Call
from autotune.client.connection import settings
from autotune.client.files import save_archive
from autotune.client.following import Follower
from autotune.client.patience import Patience, unreachable
from autotune.client.questions import (
    CampaignQuestion,
    Machine,
    Model,
    campaign_request,
    prediction_query,
    space_query,
    validated,
)
from autotune.client.views import CampaignView, RecommendationView
from autotune.schemas import (
    BudgetExtension,
    Campaign,
    DryRun,
    Event,
    MachineShape,
    ModelShape,
    Prediction,
    ProfileDetail,
    ProfileSummary,
    Recommendation,
    SpaceReport,
    SpaceSpec,
    StrategyShape,
    Trial,
)

T = TypeVar("T")


class AsyncTransport:
    """Sends calls over one pool of connections, with patience."""

    def __init__(self, base_url: str | None, patience: Patience) -> None:
        self._http = httpx2.AsyncClient(**settings(base_url))
        self._patience = patience

    @property
    def base_url(self) -> str:
        return str(self._http.base_url).rstrip("/")

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        attempt = 1
        while True:
            try:
                response = await self._http.send(call.sent_with(self._http))
            except httpx2.TransportError as error:
                wait_s = self._patience.after_error(error, call, attempt=attempt)
                if wait_s is None:
                    raise unreachable(self.base_url, error) from error
            else:
                wait_s = self._patience.after_answer(response, call, attempt=attempt)
                if wait_s is None:
                    return call.answer(response)
            await asyncio.sleep(wait_s)
            attempt += 1

    async def follow(self, follower: Follower) -> AsyncIterator[Event]:
        while not follower.ended:
            try:
                async with self._http.sse(
                    follower.path, headers=follower.headers(), timeout=follower.timeout()
                ) as source:
                    if follower.refused(source.response):
                        await source.response.aread()
                        raise calls.refusal(source.response)
                    async for message in source:
                        for event in follower.take(message):
                            yield event
                        if follower.turned:
                            break
            except httpx2.TransportError as error:
                follower.lost(error, self._patience, base_url=self.base_url)
            await asyncio.sleep(follower.wait_s)


class AsyncClient:
    """As `autotune.client.Client`, to be awaited."""

    def __init__(self, base_url: str | None = None, *, patience: Patience | None = None) -> None:
        self._transport = AsyncTransport(base_url, patience or Patience())

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    async def create(self, **question: Unpack[CampaignQuestion]) -> AsyncCampaign:
        created = await self._transport.send(calls.create(campaign_request(question)))
        return AsyncCampaign(self._transport, created)

    async def dry_run(self, **question: Unpack[CampaignQuestion]) -> DryRun:
        return await self._transport.send(calls.dry_run(campaign_request(question)))

    async def campaign(self, campaign_id: int) -> AsyncCampaign:
        found = await self._transport.send(calls.campaign(campaign_id))
        return AsyncCampaign(self._transport, found)

    async def campaigns(self, *, state: str | None = None) -> AsyncIterator[AsyncCampaign]:
        cursor: str | None = None
        while True:
            page = await self._transport.send(calls.campaigns(state=state, cursor=cursor))
            for item in page.items:
                yield AsyncCampaign(self._transport, item)
            cursor = page.next
            if cursor is None:
                return

    async def predict(
        self, *, model: Model, machine: Machine, strategy: StrategyShape | Mapping[str, Any]
    ) -> Prediction:
        query = prediction_query(model=model, machine=machine, strategy=strategy)
        return await self._transport.send(calls.predict(query))

    async def space(
        self,
        *,
        model: Model,
        machine: Machine,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
    ) -> SpaceReport:
        query = space_query(model=model, machine=machine, nodes=nodes, space=space or {})
        return await self._transport.send(calls.space(query))

    async def models(self) -> list[str]:
        return await self._transport.send(calls.models())

    async def model(self, name: str) -> ModelShape:
        return await self._transport.send(calls.model(name))

    async def machines(self) -> list[str]:
        return await self._transport.send(calls.machines())

    async def machine(self, name: str) -> MachineShape:
        return await self._transport.send(calls.machine(name))

    async def spaces(self) -> list[str]:
        return await self._transport.send(calls.spaces())

    async def profiles(self) -> list[ProfileSummary]:
        return await self._transport.send(calls.profiles())

    async def profile(self, name: str) -> ProfileDetail:
        return await self._transport.send(calls.profile(name))


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
