"""Where the service is, and how its connections are set up."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TypedDict

import httpx2

DEFAULT_URL = "http://127.0.0.1:8765"
ANSWER_S = 30.0
"""For one read or write: an answer takes milliseconds, an archive a second."""
CONNECT_S = 5.0


def timeout(read_s: float) -> httpx2.Timeout:
    return httpx2.Timeout(ANSWER_S, connect=CONNECT_S, read=read_s)


class ConnectionSettings(TypedDict):
    base_url: str
    timeout: httpx2.Timeout
    trust_env: bool


def settings(base_url: str | None) -> ConnectionSettings:
    """Keyword arguments of an HTTP client for the service at `base_url`, else at AUTOTUNE_URL."""
    url = (base_url or os.environ.get("AUTOTUNE_URL") or DEFAULT_URL).rstrip("/")
    # A cluster's login shell often names a proxy, which cannot reach this machine's own loopback.
    return {"base_url": url, "timeout": timeout(ANSWER_S), "trust_env": not is_loopback(url)}


def is_loopback(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
