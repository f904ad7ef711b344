"""A campaign over dimensions that only its trainer has, whose times truly depend on them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.settings import Settings
from tests.evaluators.adapter.samples import MACHINE, MODEL
from tests.server.asking import body
from tests.server.running import Running

pytestmark = pytest.mark.usefixtures("own")

ADAPTER = """command = ["{python}", "train.py", "{micro_batch_size}"]
[dimension.overlap]
values = [false, true]
[dimension.kernel]
values = ["plain", "fused"]
[dimension.bucket]
values = [25, 100, 200]
[set]
"--gas=" = "{gradient_accumulation_steps}"
"--overlap" = "{overlap}"
"--kernel" = "{kernel}"
"--bucket" = "{bucket}"
"--steps" = "{iterations}"
[[read]]
log = 'step (?P<step>\\d+) (?P<iteration_time_s>\\S+) s with (?P<kernel>\\w+)'
"""
SCRIPT = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("micro_batch", type=int)
parser.add_argument("--gas", type=int)
parser.add_argument("--overlap", action="store_true")
parser.add_argument("--kernel")
parser.add_argument("--bucket", type=int)
parser.add_argument("--steps", type=int)
args = parser.parse_args()
seconds = 0.01 * args.gas * args.micro_batch ** 0.9
seconds *= 0.8 if args.overlap else 1.0
seconds *= {"plain": 1.0, "fused": 0.85}[args.kernel]
seconds *= {25: 1.0, 100: 0.92, 200: 1.05}[args.bucket]
for step in range(1, args.steps + 1):
    print("step", step, seconds, "s with", args.kernel)
"""
CAMPAIGN = body(
    model=asdict(MODEL),
    machine=asdict(MACHINE) | {"name": "local", "gpus_per_node": 1} | {"sources": []},
    nodes=1,
    pool_nodes=1,
    evaluator="local",
    adapter="own",
    space={"micro_batch_size": 1, "gradient_accumulation_steps": 1},
    budget={"max_trials": 4},
    protocol={"confirmations": 0},
)
ADDRESS = "/api/v1/campaigns"


@pytest.fixture
def own(sqlite_settings: Settings) -> Settings:
    folder = sqlite_settings.adapters_dir
    folder.mkdir(parents=True)
    (folder / "own.toml").write_text(ADAPTER)
    (folder / "train.py").write_text(SCRIPT)
    return sqlite_settings


@pytest.mark.soak
def test_a_campaign_finds_the_best_values(client: TestClient, running: Running) -> None:
    answer = client.post(ADDRESS, json=CAMPAIGN)
    assert answer.status_code == 201, answer.text
    address = f"{ADDRESS}/{answer.json()['id']}"
    running.until(lambda: client.get(address).json()["state"] == "done")
    trials = client.get(f"{address}/trials").json()["items"]
    assert {trial["state"] for trial in trials} == {"ok"}, trials
    (label,) = {trial["versions"]["adapter"] for trial in trials}
    assert label.startswith("own ")
    usual = {"overlap": False, "kernel": "plain", "bucket": 25}
    assert trials[0]["purpose"] == "baseline"
    assert trials[0]["strategy"]["settings"] == usual
    best = client.get(f"{address}/recommendation").json()["best"]["strategy"]
    # Of 12 strategies, four of which are tried, the one that is 0.85 x 0.8 x 0.92 of usual.
    assert best["settings"] == {"bucket": 100, "kernel": "fused", "overlap": True}
    for kind in ("impact", "parallel", "parts"):
        figure = client.get(f"{address}/figures/{kind}.json")
        assert figure.status_code == 200, (kind, figure.text)
        assert "overlap" in figure.text, (kind, figure.text)
    explained = client.get(f"{address}/explanation")
    assert explained.status_code == 200, explained.text
    of_others = [each["sentence"] for each in explained.json()["strategies"][1:]]
    # Nothing of a step is predicted from what has no formula.
    assert of_others
    unexplained = "the cost model cannot explain why"
    assert all(unexplained in sentence and "loses" not in sentence for sentence in of_others)
    (nearby, *_) = client.get(f"{address}/recommendation").json()["standing"]["neighbours"]
    assert nearby["strategy"]["settings"]
    page = client.get(f"/campaigns/{answer.json()['id']}").text
    assert "kernel fused" in page
    assert "Trainer: own" in page


REFUSED: list[tuple[dict[str, Any], str | None, str]] = [
    (
        {"space": {"settings": {"kernel": "new"}}},
        "space.settings.kernel",
        "not a value of this dimension",
    ),
    (
        {"space": {"settings": {"kernl": "fused"}}},
        "space.settings.kernl",
        "no such dimension; did you mean kernel?",
    ),
    (
        {"space": {"settings": {"zero_stage": 1}}},
        "space.settings.zero_stage",
        "a dimension that every trainer has",
    ),
    ({"space": {"zero_stage": 1}}, "space.zero_stage", "own does not vary it"),
    ({"baseline": "tp=1,kernel=new"}, "baseline", "kernel new: not a value"),
    ({"adapter": "", "space": {"settings": {"kernel": "a"}}}, None, "no such dimension"),
]


def test_values_that_it_does_not_have_are_refused_by_field(client: TestClient) -> None:
    for changes, field, reason in REFUSED:
        answer = client.post(ADDRESS, json=CAMPAIGN | changes)
        assert answer.status_code == 422
        assert any(
            reason in error["reason"] and field in {None, error["field"]}
            for error in answer.json()["errors"]
        ), (changes, answer.text)
