"""The client library: submit a campaign, follow it, and download its launch script, over HTTP.

    from autotune import Client

    with Client() as client:
        campaign = client.create(model="gpt-175b", machine="frontier", nodes=16,
                                 evaluator="simulated", space={"preset": "table-v"})
        for event in campaign.watch():
            print(event.kind)
        print(campaign.best().launch_script())

It imports nothing of the server.
"""
