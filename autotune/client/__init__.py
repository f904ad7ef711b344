"""The client library: one campaign from the question to the launch script, over HTTP.

    from autotune import Client

    with Client() as client:
        campaign = client.create(model="gpt-175b", machine="frontier", nodes=16,
                                 evaluator="simulated", space={"preset": "table-v"})
        for event in campaign.watch():
            print(event.kind)
        print(campaign.best().launch_script())

`AsyncClient` has the same methods to be awaited. What is shared by both — requests, answers,
retries, files — is in `calls`, `patience`, `following` and `files`; each client is a thin layer
over it. Nothing of the server is imported.
"""

from autotune.client.asynchronous import AsyncClient
from autotune.client.awaited_handles import AsyncCampaign, AsyncRecommendation
from autotune.client.handles import CampaignHandle, RecommendationHandle
from autotune.client.questions import CampaignQuestion
from autotune.client.synchronous import Client

__all__ = [
    "AsyncCampaign",
    "AsyncClient",
    "AsyncRecommendation",
    "CampaignHandle",
    "CampaignQuestion",
    "Client",
    "RecommendationHandle",
]
