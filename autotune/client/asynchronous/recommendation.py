"""The answer of a campaign, with the files that run it."""

from __future__ import annotations

from autotune.client import calls
from autotune.client.asynchronous.transport import AsyncTransport
from autotune.client.views import RecommendationView
from autotune.schemas import Recommendation


class AsyncRecommendation(RecommendationView):
    """The answer of a campaign, with the files that run it."""

    def __init__(self, transport: AsyncTransport, recommendation: Recommendation) -> None:
        super().__init__(recommendation)
        self._transport = transport

    async def artefact(self, name: str, *, rank: int = 1) -> str:
        """Return the text of one file, for the strategy at `rank` (1 is the best)."""
        call = calls.campaigns.artefact(self.recommendation.campaign_id, name, rank=rank)
        return await self._transport.send(call)

    async def launch_script(self, *, rank: int = 1) -> str:
        """Return the script that starts training with the strategy at `rank`."""
        return await self.artefact(self.launch_script_name, rank=rank)
