"""Requests for a campaign's figures: as data, as charts, as pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypedDict, TypeVar
from urllib.parse import quote

from autotune.client.calls.call import Call, get
from autotune.schemas import FigureOffers, FigureScheme, ParetoCost, PictureFormat

T = TypeVar("T")


class FigureInput(TypedDict, total=False):
    """What a figure may be narrowed to: `by` is of the trajectory ("trial", "time", "node_hours"),
    `micro_batch_size` and `num_nodes` of the map, `against` of the Pareto front."""

    by: str
    micro_batch_size: int
    num_nodes: int
    against: ParetoCost


def figures(campaign_id: int) -> Call[FigureOffers]:
    return get(f"/campaigns/{campaign_id}/figures", FigureOffers)


def figure(campaign_id: int, kind: str, options: FigureInput) -> Call[dict[str, Any]]:
    return _figure(campaign_id, f"{kind}.json", options, read=json.loads)


def chart(
    campaign_id: int, kind: str, options: FigureInput, *, scheme: FigureScheme
) -> Call[dict[str, Any]]:
    return _figure(campaign_id, f"{kind}.vega.json", options, read=json.loads, scheme=scheme)


def picture(
    campaign_id: int,
    kind: str,
    options: FigureInput,
    *,
    scheme: FigureScheme,
    picture: PictureFormat,
) -> Call[bytes]:
    return _figure(campaign_id, f"{kind}.{picture}", options, read=bytes, scheme=scheme)


def _figure(
    campaign_id: int, file: str, options: FigureInput, *, read: Callable[[bytes], T], **more: str
) -> Call[T]:
    given = {name: str(value) for name, value in options.items() if value is not None}
    path = f"/campaigns/{campaign_id}/figures/{quote(file, safe='')}"
    return Call(method="GET", path=path, params=given | more, read=read)
