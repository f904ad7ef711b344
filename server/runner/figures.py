"""Metrics of a runner, for the service's metrics endpoint.

A runner is a separate process, often on another machine. It stores its metrics in its row with
every heartbeat, and the service exposes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.metrics_core import Metric

from autotune.schemas.trials import Trial
from evaluators.slurm.commands import CALL_FAILURES, CALL_SECONDS
from server.campaign.results import FinishedTrial

# When each metric was created: a third of all lines.
disable_created_metrics()  # type: ignore[no-untyped-call]

PROPOSAL_SECONDS = Histogram(
    "autotune_proposal_duration_seconds",
    "Time to propose a campaign's next trial.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
    registry=None,
)
QUEUE_WAIT_SECONDS = Histogram(
    "autotune_trial_queue_wait_seconds",
    "Time from a trial's creation to its start, for ended trials.",
    ["evaluator"],
    buckets=(1, 10, 60, 600, 3600, 6 * 3600, 86400),
    registry=None,
)
TRIALS_ENDED = Counter(
    "autotune_trials_ended_total", "Ended trials, by state.", ["state"], registry=None
)
NODE_SECONDS_SPENT = Counter(
    "autotune_node_seconds_spent_total",
    "Node-seconds of ended trials.",
    ["evaluator"],
    registry=None,
)
LEASE_RENEWALS = Counter(
    "autotune_lease_renewals_total", "Renewed leases on campaigns.", registry=None
)
LEASES_LOST = Counter(
    "autotune_leases_lost_total", "Campaigns taken over by another runner.", registry=None
)
DATABASE_FAILURES = Counter(
    "autotune_database_failures_total",
    "Rounds of the runner that ended because the database did not answer.",
    registry=None,
)

_registry = CollectorRegistry()
for _figure in (
    PROPOSAL_SECONDS,
    QUEUE_WAIT_SECONDS,
    TRIALS_ENDED,
    NODE_SECONDS_SPENT,
    LEASE_RENEWALS,
    LEASES_LOST,
    DATABASE_FAILURES,
    CALL_SECONDS,
    CALL_FAILURES,
):
    _registry.register(_figure)


def count_end(trial: Trial, result: FinishedTrial, *, evaluator: str) -> None:
    """Count a trial whose end has been stored."""
    TRIALS_ENDED.labels(result.state.value).inc()
    NODE_SECONDS_SPENT.labels(evaluator).inc(result.node_hours * 3600)
    waited_s = (result.started_at - trial.created_at).total_seconds()
    QUEUE_WAIT_SECONDS.labels(evaluator).observe(max(0.0, waited_s))


def counted() -> list[dict[str, Any]]:
    """Return all metrics of this process as plain values."""
    return [
        {
            "name": metric.name,
            "help": metric.documentation,
            "type": metric.type,
            "samples": [[sample.name, sample.labels, sample.value] for sample in metric.samples],
        }
        for metric in _registry.collect()
    ]


def metrics_of(runners: Iterable[tuple[str, Iterable[dict[str, Any]]]]) -> list[Metric]:
    """Return the metrics of several runners, by runner and what it `counted`.

    Unknown metrics are passed on unchanged, since a runner may have another version.
    """
    metrics: dict[str, Metric] = {}
    for runner, figures in runners:
        for figure in figures:
            metric = metrics.setdefault(
                figure["name"], Metric(figure["name"], figure["help"], figure["type"])
            )
            for name, labels, value in figure["samples"]:
                metric.add_sample(name, {**labels, "runner": runner}, value)
    return list(metrics.values())
