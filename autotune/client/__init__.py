"""The client library: one campaign from the question to the launch script, over HTTP.

    from autotune import Client

    with Client() as client:
        campaign = client.create(model="gpt-175b", machine="frontier", nodes=16,
                                 evaluator="simulated", space={"preset": "table-v"})
        for event in campaign.watch():
            print(event.kind)
        print(campaign.best().launch_script())

Nothing of the server is imported, and of the client only what is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.client.campaign import CampaignHandle as CampaignHandle
    from autotune.client.client import Client as Client
    from autotune.client.question import CampaignInput as CampaignInput
    from autotune.client.recommendation import RecommendationHandle as RecommendationHandle

HOMES = {
    "CampaignHandle": "campaign",
    "CampaignInput": "question",
    "Client": "client",
    "RecommendationHandle": "recommendation",
}
__all__ = list(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
