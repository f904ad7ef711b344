"""The client library: one campaign from the question to the launch script, over HTTP.

    from autotune import Client

    with Client() as client:
        campaign = client.create(model="gpt-175b", machine="frontier", nodes=16,
                                 evaluator="simulated", space={"preset": "table-v"})
        for event in campaign.watch():
            print(event.kind)
        print(campaign.best().launch_script())

`AsyncClient` has the same methods to be awaited; `synchronous` is generated from `asynchronous`.
What both share — requests, answers, retries, files — is in `calls`, `patience`, `following` and
`files`. Nothing of the server is imported.
"""

from autotune.client.asynchronous.campaign import AsyncCampaign
from autotune.client.asynchronous.client import AsyncClient
from autotune.client.asynchronous.recommendation import AsyncRecommendation
from autotune.client.calls.campaigns import CampaignInput
from autotune.client.synchronous.campaign import CampaignHandle
from autotune.client.synchronous.client import Client
from autotune.client.synchronous.recommendation import RecommendationHandle

__all__ = [
    "AsyncCampaign",
    "AsyncClient",
    "AsyncRecommendation",
    "CampaignHandle",
    "CampaignInput",
    "Client",
    "RecommendationHandle",
]
