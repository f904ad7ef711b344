"""The pace of services and runners in tests, which wait for each step."""

from __future__ import annotations

from dataclasses import replace

from server.pace import Pace

QUICK = Pace(round_s=0.02, cluster_retry_s=0.2, stream_poll_s=0.05)
UNHURRIED = replace(QUICK, round_s=0.2)
"""For clusters, which each round asks, and whose trials take seconds."""
