"""Sample calls of the API in the Python client and as commands.

They use campaign 1, and can be run in this order if campaigns 1 and 2 are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CallSample:
    """One call in Python, with a `Client` named `client`, and in a shell; empty without one."""

    python: str = ""
    shell: str = ""


_QUESTION = """\
    model="gpt-175b",
    machine="frontier",
    nodes=16,
    space={"preset": "table-v"},
"""
_STRATEGY = """\
    model="gpt-175b",
    machine="frontier",
    strategy={
        "tensor_parallel": 4,
        "pipeline_parallel": 16,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 320,
        "zero_stage": 1,
        "num_nodes": 16,
        "precision": "fp16",
    },
"""
_SPACE_OPTIONS = "--model gpt-175b --machine frontier --nodes 16 --space table-v"
_STRATEGY_OPTIONS = (
    "--model gpt-175b --machine frontier --tp 4 --pp 16 --gas 320 --num-nodes 16 --precision fp16"
)

SAMPLES: Mapping[str, CallSample] = {
    "campaigns.listing": CallSample(
        python='for campaign in client.campaigns(state="done"):\n    print(campaign.campaign.name)',
        shell="autotune ls --state done",
    ),
    "campaigns.read": CallSample(python="campaign = client.campaign(1)", shell="autotune show 1"),
    "trials.listing": CallSample(
        python='trials = client.campaign(1).trials(state="ok", sort="-tokens_per_s")',
        shell="autotune show 1 --state ok --sort=-tokens_per_s",
    ),
    "trials.export": CallSample(python="table = client.campaign(1).to_dataframe()"),
    "trials.read": CallSample(
        python="trial = client.campaign(1).trial(1)", shell="autotune show 1 --trial 1"
    ),
    "trials.log": CallSample(
        python="print(client.campaign(1).log(1))", shell="autotune show 1 --trial 1 --log 200"
    ),
    "recommendations.read": CallSample(
        python="best = client.campaign(1).best()", shell="autotune best 1"
    ),
    "recommendations.explanation": CallSample(
        python="why = client.campaign(1).explain()", shell="autotune plot 1 --kind parts"
    ),
    "recommendations.artefact": CallSample(
        python='text = client.campaign(1).best().artefact("launch.sbatch")',
        shell="autotune best 1 --script",
    ),
    "recommendations.archive": CallSample(
        python='client.campaign(1).download("run.zip")', shell="autotune best 1 --out run.zip"
    ),
    "comparisons.read": CallSample(
        python="comparison = client.compare(1, 2)", shell="autotune compare 1 2"
    ),
    "figures.offers": CallSample(
        python="offers = client.campaign(1).figures()", shell="autotune plot 1"
    ),
    "figures.series": CallSample(
        python='figure = client.campaign(1).figure("importance")',
        shell="autotune plot 1 --kind importance --json",
    ),
    "figures.chart": CallSample(
        python='chart = client.campaign(1).chart("importance", scheme="dark")',
        shell="autotune plot 1 --kind importance --scheme dark --out importance.vega.json",
    ),
    "figures.table": CallSample(
        python='table = client.campaign(1).figure("importance")["table"]',
        shell="autotune plot 1 --kind importance --out importance.csv",
    ),
    "figures.picture": CallSample(
        python='picture = client.campaign(1).picture("importance", "svg")',
        shell="autotune plot 1 --kind importance --out importance.svg",
    ),
    "access.create": CallSample(python="address = client.browser_address()"),
    "catalog.models": CallSample(python="names = client.models()", shell="autotune models"),
    "catalog.model": CallSample(python='shape = client.model("gpt-175b")'),
    "catalog.machines": CallSample(python="names = client.machines()", shell="autotune machines"),
    "catalog.machine": CallSample(python='machine = client.machine("frontier")'),
    "catalog.spaces": CallSample(python="names = client.spaces()"),
    "profiles.listing": CallSample(
        python="profiles = client.profiles()", shell="autotune profiles"
    ),
    "profiles.read": CallSample(
        python='profile = client.profile("generic")', shell="autotune profiles generic"
    ),
    "adapters.listing": CallSample(
        python="adapters = client.adapters()", shell="autotune adapter list"
    ),
    "predictions.report": CallSample(
        python=f"report = client.space(\n{_QUESTION})", shell=f"autotune space {_SPACE_OPTIONS}"
    ),
    "predictions.prediction": CallSample(
        python=f"prediction = client.predict(\n{_STRATEGY})",
        shell=f"autotune predict {_STRATEGY_OPTIONS}",
    ),
    "predictions.ranking": CallSample(
        python=f"sweep = client.sweep(\n{_QUESTION})", shell=f"autotune sweep {_SPACE_OPTIONS}"
    ),
    "predictions.planned": CallSample(python=f"plan = client.plan(\n{_QUESTION})"),
    "events.of_campaign": CallSample(
        python="for event in client.campaign(1).watch():\n    print(event.kind, event.id)",
        shell="autotune watch 1",
    ),
    "campaigns.create": CallSample(
        python=f'campaign = client.create(\n{_QUESTION}    evaluator="simulated",\n'
        '    budget={"max_trials": 40},\n)',
        shell=f"autotune submit {_SPACE_OPTIONS} --max-trials 40",
    ),
    "campaigns.extend": CallSample(
        python="client.campaign(1).extend(max_trials=60)", shell="autotune extend 1 --max-trials 60"
    ),
    "campaigns.change": CallSample(python='client.campaign(1).change(name="175B, first attempt")'),
    "campaigns.pause": CallSample(python="client.campaign(1).pause()", shell="autotune pause 1"),
    "campaigns.resume": CallSample(python="client.campaign(1).resume()", shell="autotune resume 1"),
    "campaigns.cancel": CallSample(python="client.campaign(1).cancel()", shell="autotune cancel 1"),
    "campaigns.delete": CallSample(python="client.campaign(1).delete()", shell="autotune rm 1"),
    "access.whoami": CallSample(python="me = client.whoami()"),
}
"""By the operation's id."""
