"""The client that waits: `Client`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeVar, Unpack

import httpx2

from autotune.client import calls
from autotune.client.calls import Call
from autotune.client.connection import settings
from autotune.client.following import Follower
from autotune.client.handles import CampaignHandle
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


class Transport:
    """Sends calls over one pool of connections, with patience."""

    def __init__(self, base_url: str | None, patience: Patience) -> None:
        self._http = httpx2.Client(**settings(base_url))
        self._patience = patience

    @property
    def base_url(self) -> str:
        return str(self._http.base_url).rstrip("/")

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        attempt = 1
        while True:
            try:
                response = self._http.send(call.sent_with(self._http))
            except httpx2.TransportError as error:
                wait_s = self._patience.after_error(error, call, attempt=attempt)
                if wait_s is None:
                    raise unreachable(self.base_url, error) from error
            else:
                wait_s = self._patience.after_answer(response, call, attempt=attempt)
                if wait_s is None:
                    return call.answer(response)
            time.sleep(wait_s)
            attempt += 1

    def follow(self, follower: Follower) -> Iterator[Event]:
        """Events until the follower has seen the end; broken streams are taken up again."""
        while not follower.ended:
            try:
                with self._http.sse(
                    follower.path, headers=follower.headers(), timeout=follower.timeout()
                ) as source:
                    if follower.refused(source.response):
                        source.response.read()
                        raise calls.refusal(source.response)
                    for message in source:
                        yield from follower.take(message)
                        if follower.turned:
                            break
            except httpx2.TransportError as error:
                follower.lost(error, self._patience, base_url=self.base_url)
            time.sleep(follower.wait_s)


class Client:
    """The service, from Python.

    Args:
        base_url: AUTOTUNE_URL where not given, else http://127.0.0.1:8765.
        patience: how often a request is tried again, and how long is waited in between.

    Every method raises `ServiceUnreachable` where nothing answers, `ApiError` where the service
    refuses, and `InvalidInput(s)` where that can be told before anything is sent.
    """

    def __init__(self, base_url: str | None = None, *, patience: Patience | None = None) -> None:
        self._transport = Transport(base_url, patience or Patience())

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def create(self, **question: Unpack[CampaignQuestion]) -> CampaignHandle:
        """Submit a campaign; it is made once, however often the request had to be sent."""
        created = self._transport.send(calls.create(campaign_request(question)))
        return CampaignHandle(self._transport, created)

    def dry_run(self, **question: Unpack[CampaignQuestion]) -> DryRun:
        """What `create` with the same question would try, and what it would cost."""
        return self._transport.send(calls.dry_run(campaign_request(question)))

    def campaign(self, campaign_id: int) -> CampaignHandle:
        return CampaignHandle(self._transport, self._transport.send(calls.campaign(campaign_id)))

    def campaigns(self, *, state: str | None = None) -> Iterator[CampaignHandle]:
        """All campaigns, newest first; pages are fetched as they are needed."""
        cursor: str | None = None
        while True:
            page = self._transport.send(calls.campaigns(state=state, cursor=cursor))
            yield from (CampaignHandle(self._transport, item) for item in page.items)
            cursor = page.next
            if cursor is None:
                return

    def predict(
        self,
        *,
        model: Model,
        machine: Machine,
        strategy: StrategyShape | Mapping[str, Any],
        calibration: str | None = None,
    ) -> Prediction:
        """Is this strategy legal, does it fit, how long does an iteration take?

        `calibration` is a name, or "none"; where nothing is said, the newest of the machine.
        """
        query = prediction_query(
            model=model, machine=machine, strategy=strategy, calibration=calibration
        )
        return self._transport.send(calls.predict(query))

    def space(
        self,
        *,
        model: Model,
        machine: Machine,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
    ) -> SpaceReport:
        """How many strategies there are, and which rule removes how many."""
        query = space_query(model=model, machine=machine, nodes=nodes, space=space or {})
        return self._transport.send(calls.space(query))

    def sweep(
        self,
        *,
        model: Model,
        machine: Machine,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        calibration: str | None = None,
        most: int = 20,
    ) -> Sweep:
        """The `most` fastest strategies of a space, as predicted, among those that fit."""
        query = sweep_query(
            model=model,
            machine=machine,
            nodes=nodes,
            space=space or {},
            calibration=calibration,
            most=most,
        )
        return self._transport.send(calls.sweep(query))

    def calibrations(self) -> list[CalibrationSummary]:
        """All calibrations that the service keeps, newest first."""
        return self._transport.send(calls.calibrations())

    def calibrate(
        self, name: str, campaigns: Iterable[int], *, software: str | None = None
    ) -> CalibrationDetail:
        """Fit the cost model to trials of campaigns of one machine; keep that under `name`."""
        request = calibration_create(name=name, campaigns=campaigns, software=software)
        return self._transport.send(calls.calibrate(request))

    def calibration(self, name: str) -> CalibrationDetail:
        """What it rests on, and its constants before and after."""
        return self._transport.send(calls.calibration(name))

    def calibration_document(self, name: str) -> CalibrationDocument:
        """All of it, as `import_calibration` takes it."""
        return self._transport.send(calls.calibration_document(name))

    def import_calibration(
        self, name: str, document: CalibrationDocument | Mapping[str, Any]
    ) -> CalibrationDetail:
        """Keep an exported calibration under a name that is free."""
        call = calls.import_calibration(name, calibration_document(document))
        return self._transport.send(call)

    def delete_calibration(self, name: str) -> None:
        self._transport.send(calls.delete_calibration(name))

    def models(self) -> list[str]:
        """Names of models; any size such as "13B" is taken as well."""
        return self._transport.send(calls.models())

    def model(self, name: str) -> ModelShape:
        """The shape that a name or a size stands for."""
        return self._transport.send(calls.model(name))

    def machines(self) -> list[str]:
        """Names of machines; `local` is the one that the service runs on."""
        return self._transport.send(calls.machines())

    def machine(self, name: str) -> MachineShape:
        return self._transport.send(calls.machine(name))

    def spaces(self) -> list[str]:
        """Names of ready search spaces."""
        return self._transport.send(calls.spaces())

    def profiles(self) -> list[ProfileSummary]:
        """Cluster profiles that the service knows, its user's own and the ready ones."""
        return self._transport.send(calls.profiles())

    def profile(self, name: str) -> ProfileDetail:
        """All that one of them says."""
        return self._transport.send(calls.profile(name))
