"""The client to be awaited: `AsyncClient`. What a method does is written in `synchronous`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Self, TypeVar, Unpack

import httpx2

from autotune.client import calls
from autotune.client.awaited_handles import AsyncCampaign
from autotune.client.calls import Call
from autotune.client.connection import settings
from autotune.client.following import Follower
from autotune.client.patience import Patience, unreachable
from autotune.client.questions import (
    CampaignQuestion,
    Machine,
    Model,
    calibration_create,
    calibration_document,
    campaign_request,
    prediction_query,
    space_query,
    sweep_query,
)
from autotune.schemas import (
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
    DryRun,
    Event,
    MachineShape,
    ModelShape,
    Prediction,
    ProfileDetail,
    ProfileSummary,
    SpaceReport,
    SpaceSpec,
    StrategyShape,
    Sweep,
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
        self,
        *,
        model: Model,
        machine: Machine,
        strategy: StrategyShape | Mapping[str, Any],
        calibration: str | None = None,
    ) -> Prediction:
        query = prediction_query(
            model=model, machine=machine, strategy=strategy, calibration=calibration
        )
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

    async def sweep(
        self,
        *,
        model: Model,
        machine: Machine,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        calibration: str | None = None,
        most: int = 20,
    ) -> Sweep:
        query = sweep_query(
            model=model,
            machine=machine,
            nodes=nodes,
            space=space or {},
            calibration=calibration,
            most=most,
        )
        return await self._transport.send(calls.sweep(query))

    async def calibrations(self) -> list[CalibrationSummary]:
        return await self._transport.send(calls.calibrations())

    async def calibrate(
        self, name: str, campaigns: Iterable[int], *, software: str | None = None
    ) -> CalibrationDetail:
        request = calibration_create(name=name, campaigns=campaigns, software=software)
        return await self._transport.send(calls.calibrate(request))

    async def calibration(self, name: str) -> CalibrationDetail:
        return await self._transport.send(calls.calibration(name))

    async def calibration_document(self, name: str) -> CalibrationDocument:
        return await self._transport.send(calls.calibration_document(name))

    async def import_calibration(
        self, name: str, document: CalibrationDocument | Mapping[str, Any]
    ) -> CalibrationDetail:
        call = calls.import_calibration(name, calibration_document(document))
        return await self._transport.send(call)

    async def delete_calibration(self, name: str) -> None:
        await self._transport.send(calls.delete_calibration(name))

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
