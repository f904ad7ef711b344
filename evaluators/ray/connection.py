"""A connection to a Ray cluster through a separate process, which may be lost and replaced."""

from __future__ import annotations

import importlib.util
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from tempfile import gettempdir
from typing import Any

from evaluators.processes import PipedProcess

DRIVER = "evaluators.ray.driver"
KNOCK_LIMIT_S = 5.0
START_LIMIT_S = 15.0
"""Time for the process to start and connect, in addition to the limit of an answer."""
SILENT_S = 5.0
"""Seconds without an answer after which the cluster is reported as silent."""
INSTALL = "pip install 'autotune[ray]'"
CLIENT_SCHEME = "ray://"
NO_CLIENT = "an address of this kind needs Ray's client: pip install 'ray[client]'"
ENDED = "the process that connects to it has ended"
NOT_INSTALLED = f"the Python package ray is not installed here: {INSTALL}"


class RayUnavailable(Exception):
    """The cluster does not answer now."""


class RayRefused(Exception):
    """The cluster cannot be used from here, now or later."""


@dataclass(frozen=True, kw_only=True)
class RayClusterFacts:
    """What a cluster reports about itself.

    Attributes:
        version: of Ray.
        nodes: resources of each living node, by Ray's names.
        fitting: how many of them have what a trial needs of a node.
        lacks: packages of the trials' program that Ray's Python on one of these lacks.
    """

    version: str
    nodes: tuple[dict[str, float], ...]
    fitting: int
    lacks: tuple[str, ...]


def installed() -> bool:
    return importlib.util.find_spec("ray") is not None


class RayConnection:
    """Sends questions to one cluster, one after the other.

    Its process ends with the thread that asks first, which must live as long as this object.

    Args:
        limit_s: timeout of an answer.
    """

    def __init__(self, address: str, *, limit_s: float) -> None:
        self.address = address
        self._limit_s = limit_s
        self._waiting_since: float | None = None
        self._process: PipedProcess | None = None
        self._lock = threading.Lock()

    def ask(self, what: str, **fields: Any) -> Any:
        """Return the answer to a question of `evaluators.ray.driver`.

        Raises:
            RayUnavailable: nobody answers, or not in time.
            RayRefused: ray is not installed, or the cluster has another version.
        """
        with self._lock:
            if not installed():
                raise RayRefused(NOT_INSTALLED)
            if self.address.startswith(CLIENT_SCHEME) and importlib.util.find_spec("grpc") is None:
                raise RayRefused(f"{self.address}: {NO_CLIENT}")
            question = {"ask": what, "address": self.address, "limit_s": self._limit_s, **fields}
            self._waiting_since = time.monotonic()
            try:
                answer = self._exchange(question)
            except (OSError, EOFError) as error:
                self._end()
                raise RayUnavailable(f"{self.address}: {str(error) or ENDED}") from error
            finally:
                self._waiting_since = None
            if isinstance(answer, RayUnavailable | RayRefused):
                self._end()  # it may be connected to a cluster that has ended
                raise type(answer)(f"{self.address}: {answer}")
            return answer

    @property
    def silence(self) -> str:
        """Return since when an answer has been outstanding; empty for up to SILENT_S."""
        since = self._waiting_since
        silent_s = time.monotonic() - since if since else 0.0
        if silent_s <= SILENT_S:
            return ""
        clock = time.strftime("%H:%M", time.localtime(time.time() - silent_s))
        return f"{self.address}: no answer since {clock}"

    def interrupt(self) -> None:
        process = self._process
        if process:
            process.kill()

    def close(self) -> None:
        with self._lock:
            self._end()

    def _exchange(self, question: Mapping[str, Any]) -> Any:
        limit_s = 1.5 * self._limit_s  # the process itself reports a timeout earlier
        if self._process is None:
            limit_s += START_LIMIT_S
            _knock(self.address)
            variables = {"RAY_USAGE_STATS_ENABLED": "0"}
            self._process = PipedProcess(DRIVER, variables=variables, folder=gettempdir())
        self._process.pipe.send(question)
        if not self._process.pipe.poll(limit_s):
            raise TimeoutError("timed out")
        return self._process.pipe.recv()

    def _end(self) -> None:
        if self._process:
            self._process.pipe.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def _knock(address: str) -> None:
    host, _, port = address.removeprefix(CLIENT_SCHEME).rpartition(":")
    if not (host and port.isdigit()):
        raise RayRefused(f"{address}: not the address of a Ray cluster, which is HOST:PORT")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_LIMIT_S):
        pass
