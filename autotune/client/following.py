"""Position in a stream of events that may break. No I/O: the transport does that."""

from __future__ import annotations

import httpx2

from autotune.client.patience import (
    LOST_ON_THE_WAY,
    REFUSED_FOR_NOW,
    Patience,
    timeout,
    unreachable,
)
from autotune.schemas.campaigns import Campaign, Event
from autotune.schemas.choices import CampaignState, TrialState

AT_REST = frozenset(
    {CampaignState.PAUSED, CampaignState.DONE, CampaignState.CANCELLED, CampaignState.FAILED}
)
SILENCE_S = 60.0
"""The service sends at least a comment every 15 s: this long without is a broken connection."""
LAST_WORDS_S = 1.0
"""Once the campaign is at rest: events stored already are sent at once, so after this long without
one there is none left."""
SHORTEST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Follower:
    """A reader's position in the events of a campaign, and whether it has read them all.

    Every event has the campaign's *current* state, including old events that are read again. A
    campaign at rest is therefore not the end: the stream is opened once more and read until it is
    silent.

    Attributes:
        ended: the campaign is at rest and all events were read.
        turned: the campaign came to rest within this stream, which should be closed.
        wait_s: seconds to wait before the next stream.
    """

    def __init__(self, campaign: Campaign, *, after: int) -> None:
        self.ended = False
        self.turned = False
        self.wait_s = 0.0
        self.campaign_id = campaign.id
        self._rests = campaign.state in AT_REST
        self._pending = campaign.pending
        self._last_id = str(after)
        self._failures = 0

    def headers(self) -> dict[str, str]:
        """Return the headers of the next stream, which resumes after the last event."""
        self.turned = False
        self.wait_s = SHORTEST_PAUSE_S
        return {"Last-Event-ID": self._last_id}

    def timeout(self) -> httpx2.Timeout:
        return timeout(LAST_WORDS_S if self._at_rest else SILENCE_S)

    def refused(self, response: httpx2.Response) -> bool:
        """Return whether the answer is a permanent refusal; a temporary one counts as a broken
        stream."""
        if response.status_code in REFUSED_FOR_NOW | LOST_ON_THE_WAY:
            raise httpx2.RemoteProtocolError(f"answered with {response.status_code}")
        return not response.is_success

    def take(self, message: httpx2.ServerSentEvent) -> Event | None:
        """Return the event of a message; None for messages that only keep the connection alive."""
        if not message.id or not message.data:
            return None
        event = Event.model_validate_json(message.data, extra="ignore")
        self._last_id = message.id
        self._failures = 0
        before = self._at_rest
        if event.campaign is not None:
            self._rests = event.campaign.state in AT_REST
            self._pending = event.campaign.pending
        elif event.trial is not None and event.trial.state != TrialState.PENDING:
            self._pending -= 1
        self.turned = self._at_rest and not before
        return event

    @property
    def _at_rest(self) -> bool:
        """Return whether the campaign is at rest. A cancelled one may still be ending trials."""
        return self._rests and self._pending <= 0

    def lost(self, error: httpx2.TransportError, patience: Patience, *, base_url: str) -> None:
        """Count a broken or silent stream. Raises ServiceUnreachable after too many."""
        if self._at_rest and isinstance(error, httpx2.ReadTimeout):
            self.ended = True
            return
        self._failures += 1
        if self._failures > patience.stream_attempts:
            raise unreachable(base_url, error) from error
        self.wait_s = min(LONGEST_PAUSE_S, patience.pause_s(self._failures))
