"""Metrics for Prometheus: of the service, the database, and the runners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TypeVar, cast

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import QueuePool

from server.api.event_feed import EventFeed
from server.auth.authentication import METRICS
from server.runner.figures import metrics_of
from server.store import DatabaseReplaced, Store
from server.store.activity import ServiceCounts, service_counts
from server.store.errors import cause
from server.store.runners import KnownRunner, known_runners

Labelled = TypeVar("Labelled", bound=tuple[str, ...])
router = APIRouter(include_in_schema=False)
log = structlog.get_logger(__name__)


class StoreMetrics(Collector):
    """Metrics of the database, read at each request."""

    def __init__(self, store: Store, feed: EventFeed) -> None:
        self._store = store
        self._feed = feed

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; if the database does not respond, those that need none."""
        yield _gauge("autotune_build_info", "This service.", {(version("autotune"),): 1}, "version")
        streams = {(): self._feed.streams}
        yield _gauge("autotune_event_streams_open", "Streams of events that are open.", streams)
        yield self._connections()
        try:
            with self._store.session() as session:
                counts = service_counts(session)
                runners = known_runners(session)
            schema = self._store.revision() or ""
        except (SQLAlchemyError, DatabaseReplaced) as error:
            log.warning("figures_without_database", error=cause(error))
            yield _gauge("autotune_database_up", "Whether the database answers.", {(): 0})
            return
        yield _gauge("autotune_database_up", "Whether the database answers.", {(): 1})
        identity = {(self._store.dialect, self._store.shown, schema): 1}
        yield _gauge(
            "autotune_database_info", "Which one it is.", identity, "dialect", "database", "schema"
        )
        yield from _of_counts(counts)
        yield from _of_runners(runners)

    def _connections(self) -> Metric:
        pool = cast("QueuePool", self._store.engine.pool)
        found = {("in_use",): pool.checkedout(), ("idle",): pool.checkedin()}
        help_ = "Connections of the service to its database."
        return _gauge("autotune_database_connections", help_, found, "state")


def _of_counts(counts: ServiceCounts) -> Iterator[Metric]:
    by_state = ("evaluator", "state")
    yield _gauge("autotune_campaigns", "Campaigns that are kept.", counts.campaigns, *by_state)
    yield _gauge("autotune_trials", "Trials of these campaigns.", counts.trials, *by_state)
    # Prometheus wants base units in names: `promtool check metrics`.
    spent = {(evaluator,): hours * 3600 for evaluator, hours in counts.node_hours.items()}
    help_ = "Node-seconds of the trials of these campaigns that have ended."
    yield _gauge("autotune_node_seconds", help_, spent, "evaluator")


def _of_runners(runners: list[KnownRunner]) -> Iterator[Metric]:
    """Yield the state and metrics of runners, labelled by host and process id."""
    names = {f"{runner.host}:{runner.pid}": runner for runner in runners}
    silent = {(name,): runner.silent_s for name, runner in names.items()}
    held = {(name,): len(runner.campaigns) for name, runner in names.items()}
    help_ = "Since a runner last said that it works."
    yield _gauge("autotune_runner_silent_seconds", help_, silent, "runner")
    yield _gauge("autotune_runner_campaigns", "Campaigns that a runner holds.", held, "runner")
    yield from metrics_of((name, runner.figures) for name, runner in names.items())


def _gauge(
    name: str, help_: str, values: Mapping[Labelled, float], *labels: str
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, help_, labels=labels)
    for labelled, value in values.items():
        gauge.add_metric(labelled, value)
    return gauge


class ServiceMetrics:
    """The metrics of one service since its start."""

    def __init__(self, store: Store, feed: EventFeed) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "autotune_http_requests_total",
            "Requests that were answered, by the template of their path.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._durations = Histogram(
            "autotune_http_request_duration_seconds",
            "From a request to the end of its answer; streams of events are not in it.",
            ["method", "route"],
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        self._registry.register(StoreMetrics(store, feed))

    def count(self, method: str, route: str, status: int, seconds: float | None) -> None:
        """Count a request; `seconds` is None for a stream."""
        self._requests.labels(method, route, str(status)).inc()
        if seconds is not None:
            self._durations.labels(method, route).observe(seconds)

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)


@router.get(METRICS)
def metrics(request: Request) -> Response:
    """Return the metrics of the service, the database and the runners."""
    found: ServiceMetrics = request.app.state.metrics
    return Response(found.page(), media_type=CONTENT_TYPE_LATEST)
