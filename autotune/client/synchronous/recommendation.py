# Generated from `asynchronous` by `make client`: change that and run it again.
"""The answer of a campaign, with the files that run it."""

from __future__ import annotations

from autotune.client import calls
from autotune.client.synchronous.transport import Transport
from autotune.client.views import RecommendationView
from autotune.schemas import Recommendation


class RecommendationHandle(RecommendationView):
    """The answer of a campaign, with the files that run it."""

    def __init__(self, transport: Transport, recommendation: Recommendation) -> None:
        super().__init__(recommendation)
        self._transport = transport

    def artefact(self, name: str, *, rank: int = 1) -> str:
        """Return the text of one file, for the strategy at `rank` (1 is the best)."""
        call = calls.campaigns.artefact(self.recommendation.campaign_id, name, rank=rank)
        return self._transport.send(call)

    def launch_script(self, *, rank: int = 1) -> str:
        """Return the script that starts training with the strategy at `rank`."""
        return self.artefact(self.launch_script_name, rank=rank)
