"""The evaluators of one runner."""

from __future__ import annotations

from autotune.schemas import CampaignCreate
from evaluators.backend import Backend
from evaluators.local import LocalBackend
from evaluators.simulated import SimulatedBackend


class Backends:
    """One object for each evaluator, made when a campaign first asks for it."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, float], Backend] = {}

    def of(self, request: CampaignCreate) -> Backend:
        """Campaigns share it; there is a simulator for each time scale."""
        simulated = request.evaluator == "simulated"
        key = (request.evaluator, request.time_scale if simulated else 0.0)
        if key not in self._made:
            scale = request.time_scale
            self._made[key] = SimulatedBackend(time_scale=scale) if simulated else LocalBackend()
        return self._made[key]

    def close(self) -> None:
        """End every trial that runs here."""
        for backend in self._made.values():
            backend.close()
        self._made.clear()
