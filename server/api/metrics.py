"""Metrics for Prometheus: of requests, campaigns and trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from server.auth.authentication import METRICS
from server.store import DatabaseReplaced, Store
from server.store.counts import service_counts
from server.store.errors import cause

router = APIRouter(include_in_schema=False)
log = structlog.get_logger(__name__)


# When each metric was created: a third of all lines.
disable_created_metrics()  # type: ignore[no-untyped-call]


class StoreMetrics(Collector):
    """Metrics of the database, read at each request."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; if the database does not respond, that it does not."""
        help_ = "Whether the database answers."
        try:
            with self._store.session() as session:
                counts = service_counts(session)
        except (SQLAlchemyError, DatabaseReplaced) as error:
            log.warning("metrics_without_database", error=cause(error))
            yield GaugeMetricFamily("autotune_database_up", help_, value=0)
            return
        yield GaugeMetricFamily("autotune_database_up", help_, value=1)
        yield _gauge("autotune_campaigns", "Campaigns in the database.", counts.campaigns)
        yield _gauge("autotune_trials", "Their trials.", counts.trials)


def _gauge(name: str, help_: str, values: Mapping[tuple[str, str], int]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, help_, labels=("evaluator", "state"))
    for labels, value in values.items():
        gauge.add_metric(labels, value)
    return gauge


class ServiceMetrics:
    """The metrics of one service since its start."""

    def __init__(self, store: Store) -> None:
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
        self._registry.register(StoreMetrics(store))

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
    """Return the metrics of the service and its database."""
    found: ServiceMetrics = request.app.state.metrics
    return Response(found.page(), media_type=CONTENT_TYPE_LATEST)
