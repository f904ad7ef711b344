"""Requests for a campaign's figures: as data, as charts, as pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar, get_args

from autotune.client.calls.call import Call, get, listed
from autotune.schemas import (
    FigureForm,
    FigureName,
    FigureOffers,
    FigureScheme,
    ParetoCost,
    ProgressAxis,
    ScalingKind,
)
from search_spaces.errors import InvalidInput, closest

T = TypeVar("T")


class FigureInput(TypedDict, total=False):
    """What a figure may be narrowed to: `by` is of the trajectory ("trial", "time", "node_hours"),
    `micro_batch_size` and `num_nodes` of the map, `against` of the Pareto front, `scaling` of
    that figure."""

    by: str
    micro_batch_size: int
    num_nodes: int
    against: ParetoCost
    scaling: ScalingKind


def figures(campaign_id: int) -> Call[FigureOffers]:
    return get(f"/campaigns/{campaign_id}/figures", FigureOffers)


def figure(campaign_id: int, kind: str, options: FigureInput) -> Call[dict[str, Any]]:
    return _figure(campaign_id, kind, "json", options, read=json.loads)


def chart(
    campaign_id: int, kind: str, options: FigureInput, *, scheme: FigureScheme
) -> Call[dict[str, Any]]:
    return _figure(campaign_id, kind, "vega.json", options, read=json.loads, scheme=scheme)


def file(
    campaign_id: int, kind: str, options: FigureInput, *, scheme: FigureScheme, form: FigureForm
) -> Call[bytes]:
    """Ask for a figure as a file holds it."""
    coloured = {} if form == "json" else {"scheme": scheme}
    return _figure(campaign_id, kind, form, options, read=bytes, **coloured)


def comparison(
    ids: Sequence[int], *, by: ProgressAxis, scheme: FigureScheme, form: FigureForm
) -> Call[bytes]:
    """Ask for the progress of campaigns side by side as a file holds it; its data is the
    comparison."""
    drawn = {} if form == "json" else {"by": by, "scheme": scheme}
    path = "/comparison" if form == "json" else f"/comparison.{form}"
    return Call(method="GET", path=path, params={"ids": listed(ids), **drawn}, read=bytes)


def _figure(
    campaign_id: int,
    kind: str,
    form: FigureForm,
    options: FigureInput,
    *,
    read: Callable[[bytes], T],
    **more: str,
) -> Call[T]:
    given = {name: str(value) for name, value in options.items() if value is not None}
    path = f"/campaigns/{campaign_id}/figures/{_known(kind)}.{form}"
    return Call(method="GET", path=path, params=given | more, read=read)


def _known(kind: str) -> str:
    """Return the kind; raises InvalidInput, with the nearest there is, where it is none."""
    kinds = get_args(FigureName)
    if kind in kinds:
        return kind
    near = closest(kind, kinds, count=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidInput("kind", kind, f"there is no such figure{hint}", valid=", ".join(kinds))
