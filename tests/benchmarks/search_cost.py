"""Node-hours to a confirmed strategy: a whole campaign against the Frontier study's way.

    python tests/benchmarks/search_cost.py [--seeds N] [--screen-nodes auto off] [--json OUT]

Simulated, both on the same machine, whose constants differ from what is believed of them by the
seed. The study (Dash et al. 2023, arXiv 2312.12705) gave every trial 20 minutes at the production
batch and on all nodes, chosen by DeepHyper, which had to find out what is legal and what fits; here
by the product's search `deephyper`, which knows what is legal and skips what needs as much memory
as a layout that ran out of it. It ends with the first trial that is within 1 % of what our campaign
confirmed, or after 200. A trial that runs out of memory costs its start and its first iteration,
for both. Failed are shares of the trials that each search chose: the baseline and the confirmations
of our campaign are counted as trials and in node-hours, not there.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import numpy as np
import structlog

from autotune.cost_model.columns import Columns
from autotune.measurement.metrics import SECONDS_PER_HOUR, metrics
from autotune.schemas.choices import TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import machine_of, space_of, transformer_of
from autotune.schemas.trials import FAILURES, Trial
from autotune.search.layouts import Layouts
from autotune.search.uncalibrated import OUT_OF_MEMORY, uncalibrated
from evaluators.simulated import simulate
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.strategy import Strategy
from server.settings import Settings
from tests.server.recorded import ran

WITHIN, MOST_OF_THE_STUDYS = 0.99, 200
TRIAL_HOURS = 20.0 / 60.0
"""Of each of the study's trials."""

Question = tuple[str, int, dict[str, Any]]
"""Model, nodes and space."""

QUESTIONS: dict[str, Question] = {
    "175B on 16 Frontier nodes, table V": ("gpt-175b", 16, {"preset": "table-v"}),
    "22B for 64 Frontier nodes": ("gpt-22b", 64, {"num_nodes": 64, "global_batch_size": 2048}),
    "1T on 128 Frontier nodes": ("gpt-1t", 128, {"num_nodes": 128, "global_batch_size": 1600}),
}

Cost = dict[str, Any]
"""What one campaign, and the study's way to as good a strategy, take; `rate` is the strategy's
without noise, in tokens/s. The baseline and the confirmations are no trials of the search."""


def cost(question: str, values: Question, *, seed: int, screen_nodes: str) -> Cost:
    how = {"seed": seed, "screen_nodes": screen_nodes}
    simulated = {"machine": "frontier", "evaluator": "simulated"}
    subject = dict(zip(("model", "nodes", "space"), values, strict=True))
    request = CampaignCreate.model_validate({**subject, **simulated, **how})
    trials, best = _campaign(request)
    rate, _ = _rate(request, best)
    searched = [trial for trial in trials if trial.purpose == "search"]
    return {
        "question": question,
        **how,
        "narrow": sum(trial.stands_for_nodes is not None for trial in trials),
        "rate": rate,
        "strategy": best.short(),
        "trials": len(trials),
        "searched": len(searched),
        "failed": sum(trial.state in FAILURES for trial in searched),
        "node_hours": sum(trial.node_hours or 0.0 for trial in trials),
        **_study(request, target=WITHIN * rate),
    }


def _campaign(request: CampaignCreate) -> tuple[list[Trial], Strategy]:
    """Trials and best strategy of the product's own campaign, from its creation to its end."""
    document = request.model_dump(mode="json", exclude_unset=True)
    with (
        TemporaryDirectory() as folder,
        ran(Settings(data_dir=Path(folder)), document) as (client, at),
    ):
        trials = client.get(f"{at}/trials", params={"limit": 1000}).json()
        found = Recommendation.model_validate(client.get(f"{at}/recommendation").json())
    return [Trial.model_validate(each) for each in trials["items"]], found.best.strategy


def _rate(request: CampaignCreate, strategy: Strategy) -> tuple[float, float]:
    """Tokens/s of a strategy at its own GAS, 0 where it does not run, and the seconds of a trial
    that fails."""
    transformer, machine = transformer_of(request.model), machine_of(request.machine)
    outcome = simulate(
        TrialRequest(
            token="study",
            transformer=transformer,
            machine=machine,
            strategy=strategy,
            protocol=TrialProtocol(
                accumulations=(strategy.gradient_accumulation_steps,), time_limit_s=np.inf
            ),
            directory=Path(gettempdir()),
            seed=request.seed,
        ),
        started_at=datetime.now(UTC),
    ).outcome
    if outcome.status is not TrialState.OK:
        return 0.0, outcome.duration_s
    figures = metrics(transformer, machine, strategy, outcome.measurements)
    return figures.tokens_per_s, outcome.duration_s


def _study(request: CampaignCreate, *, target: float) -> Cost:
    transformer, machine = transformer_of(request.model), machine_of(request.machine)
    space = space_of(request.space, transformer, machine, nodes=request.nodes)
    layouts = Layouts.of(space, objective="tokens_per_s")
    columns = Columns.of(transformer, layouts.lattice)
    choose = uncalibrated("deephyper", layouts, columns, surrogate="forest", seed=request.seed)
    assert choose
    hours, rates, left = 0.0, dict[int, float](), np.arange(len(layouts))
    while len(rates) < MOST_OF_THE_STUDYS and len(left):
        results = {row: math.log(rate) if rate else OUT_OF_MEMORY for row, rate in rates.items()}
        choice = choose(left, results)
        if choice is None:
            break
        row = choice.layout
        strategy, left = layouts.lattice.strategy(row), left[left != row]
        rates[row], seconds = _rate(request, strategy)
        hours += strategy.num_nodes * (TRIAL_HOURS if rates[row] else seconds / SECONDS_PER_HOUR)
        if rates[row] >= target:
            break
    return {
        "study_trials": len(rates),
        "study_failed": list(rates.values()).count(0.0),
        "study_node_hours": hours,
        "study_found": max(rates.values(), default=0.0) >= target,
    }


def table(costs: Sequence[Cost]) -> str:
    lines = [
        "| question | few nodes | trials | on few | failed | node-hours | tokens/s "
        "| study's | failed | node-hours | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in costs:
        shares = {
            "of_search": one["failed"] / max(one["searched"], 1),
            "of_study": one["study_failed"] / one["study_trials"],
            "ratio": one["study_node_hours"] / one["node_hours"],
            "more": "" if one["study_found"] else "> ",
        }
        lines.append(
            "| {question}, seed {seed} | {screen_nodes} | {trials} | {narrow} | {of_search:.0%} "
            "| {node_hours:.1f} | {rate:,.0f} | {more}{study_trials} | {of_study:.0%} "
            "| {more}{study_node_hours:,.0f} | {more}{ratio:.0f} |".format_map(one | shares)
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1, help="machines for each question")
    few = "few nodes that stand for all: auto, off"
    parser.add_argument("--screen-nodes", nargs="+", default=["auto"], help=few)
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    costs = []
    for question, values in QUESTIONS.items():
        for seed in range(options.seeds):
            for screen_nodes in options.screen_nodes:
                costs.append(cost(question, values, seed=seed, screen_nodes=screen_nodes))
                print(f"{question}, seed {seed}: {costs[-1]['strategy']}", flush=True)
    print(f"\nSimulated.\n{table(costs)}")
    if options.json:
        document = {"simulated": True, "costs": costs}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
