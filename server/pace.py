"""How often the service and its runners look, and how long they wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Intervals and limits, in seconds. Tests pass shorter ones."""

    round_s: float = 0.25
    """Pause between a runner's rounds."""
    lease_s: float = 30.0
    """How long a runner that does not renew its leases keeps its campaigns."""
    most_campaigns: int = 500
    """Campaigns that a runner works on at the same time."""
    cluster_retry_s: float = 10.0
    """Pause before retrying a cluster that did not answer."""
    stream_poll_s: float = 0.5
    """Poll interval of event streams."""
    stream_life_s: float = 600.0
    """Maximum duration of an event stream."""


PACE: Final = Pace()
