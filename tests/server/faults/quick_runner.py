"""A runner that others take for dead after seconds."""

from __future__ import annotations

from server.pace import Pace
from server.runner.runner import run_until_stopped
from server.settings import Settings

LEASE_S = 5.0

if __name__ == "__main__":
    run_until_stopped(Settings(), pace=Pace(round_s=0.3, lease_s=LEASE_S, cluster_retry_s=0.5))
