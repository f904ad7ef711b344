"""Requests for what the service knows by name."""

from __future__ import annotations

from urllib.parse import quote

from autotune.client.calls.call import Call, get, reader
from autotune.schemas import (
    Activity,
    AdapterSummary,
    MachineShape,
    ModelShape,
    ProfileDetail,
    ProfileSummary,
)


def models() -> Call[list[str]]:
    return _names("/models")


def model(name: str) -> Call[ModelShape]:
    return get(f"/models/{quote(name, safe='')}", ModelShape)


def machines() -> Call[list[str]]:
    return _names("/machines")


def machine(name: str) -> Call[MachineShape]:
    return get(f"/machines/{quote(name, safe='')}", MachineShape)


def spaces() -> Call[list[str]]:
    return _names("/spaces")


def profiles() -> Call[list[ProfileSummary]]:
    read = reader(list[ProfileSummary])
    return Call(method="GET", path="/profiles", read=read)


def profile(name: str) -> Call[ProfileDetail]:
    return get(f"/profiles/{quote(name, safe='')}", ProfileDetail)


def adapters() -> Call[list[AdapterSummary]]:
    return Call(method="GET", path="/adapters", read=reader(list[AdapterSummary]))


def activity() -> Call[Activity]:
    return get("/activity", Activity)


def _names(path: str) -> Call[list[str]]:
    return Call(method="GET", path=path, read=reader(list[str]))
