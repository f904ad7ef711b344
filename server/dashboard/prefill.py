"""Fill in the form from a campaign's request, as the start of another one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from autotune.schemas.campaigns import Campaign
from autotune.schemas.predictions import LayoutChange
from autotune.schemas.requests import AdapterFile, CampaignCreate
from search_spaces.dimensions import DIMENSIONS
from search_spaces.fields import as_table, checked
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from server.dashboard.form import LAYER_FIELDS, SHAPE_FIELDS, dimension_fields

LABELS = {"nodes": "Nodes", **{field.name: field.label for field in dimension_fields()}}
CHANGEABLE = tuple(LABELS)
"""Inputs that the query may override."""

OWN = ("name", "budget.deadline")
"""Inputs that belong to one campaign and are not copied."""


def address(campaign_id: int, change: LayoutChange | None = None) -> str:
    changes = {name: _text(value) for name, value in (change.fields if change else {}).items()}
    return f"/campaigns/new?{urlencode({'like': campaign_id, **changes})}"


@dataclass(frozen=True, kw_only=True)
class FilledForm:
    """The initial state of the form.

    Attributes:
        values: input name -> text.
        changed: labels of the inputs that differ from the campaign's.
        catalog_machine: whether the campaign specified its machine in full; the form selects the
            catalog's machine of that name instead.
    """

    campaign: Campaign
    values: Mapping[str, str]
    changed: Sequence[str]
    catalog_machine: bool


def filled(campaign: Campaign, query: Mapping[str, str]) -> FilledForm:
    """Return the form for a campaign like another.

    Args:
        query: of the address; its CHANGEABLE inputs take precedence.
    """
    standing = {"private": _text(campaign.private)}
    changed = {name: query[name] for name in CHANGEABLE if name in query}
    return FilledForm(
        campaign=campaign,
        values=inputs(campaign.request) | standing | changed,
        changed=_labels(changed),
        catalog_machine=isinstance(campaign.request.machine, Machine),
    )


def inputs(request: CampaignCreate) -> dict[str, str]:
    """Return the request's values that differ from the form's defaults, input name -> text, and
    always the evaluator, whose default varies."""
    values = request.model_dump(mode="json", exclude_defaults=True)
    values["evaluator"] = request.evaluator
    model, machine = request.model, request.machine
    if isinstance(model, Transformer):
        values |= {"model-given": "shape", "model": _stated(model)}
    if isinstance(machine, Machine):
        values["machine"] = machine.name
    if isinstance(request.adapter, AdapterFile):
        del values["adapter"]  # the form only accepts names
    if isinstance(values.get("baseline"), Mapping):
        baseline = dict(values["baseline"])
        baseline |= baseline.pop("settings", {})
        values["baseline"] = ",".join(f"{k}={_text(v)}" for k, v in baseline.items())
    if own := values.get("space", {}).get("settings"):
        words = (f"{name}={_text(choices).replace(', ', ',')}" for name, choices in own.items())
        values["space"]["settings"] = " ".join(words)
    batch = values.get("space", {}).get("global_batch_size")
    if isinstance(batch, int):
        values["space"]["global_batch_size"] = {"minimum": batch, "maximum": batch}
    return {name: text for name, text in _flat(values) if name not in OWN}


def shape_inputs(shape: Transformer) -> dict[str, str]:
    """Return every input of a custom shape but its name, input name -> text; empty where the form's
    default applies."""
    table = _stated(replace(shape, name="custom"))
    names = ("gated_mlp", "tied_embeddings", "attention_gate")
    switches = {name: getattr(shape, name) for name in names}
    blank = {field.name: "" for field in (*SHAPE_FIELDS, *LAYER_FIELDS)}
    return blank | dict(_flat({"model": table | switches}))


def _stated(shape: Transformer) -> dict[str, Any]:
    """Return the fields that neither have their default nor follow from the others."""
    table = as_table(shape, exclude_defaults=True)
    for name in ("num_query_groups", "ffn_hidden_size"):
        others = {field: value for field, value in table.items() if field != name}
        table = others if checked(Transformer, others) == shape else table
    return table


def strategy_inputs(strategy: Strategy) -> str:
    return json.dumps({f"strategy.{name}": _text(strategy.value(name)) for name in DIMENSIONS})


def changed_inputs(change: LayoutChange) -> str:
    return json.dumps({name: _text(value) for name, value in change.fields.items()})


def _labels(changed: Mapping[str, str]) -> list[str]:
    return list(dict.fromkeys(LABELS[name] for name in changed))


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and prefix == "model.":
            yield name, " ".join(f"{key}={each}" for key, each in value.items())
        elif isinstance(value, Mapping) and "step" not in value:
            yield from _flat(value, f"{name}.")
        elif value is not None:
            yield name, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{minimum}..{maximum} step {step}".format(**value)
    if isinstance(value, list | tuple):
        return ", ".join(_text(each) for each in value)
    if isinstance(value, float):
        return f"{value / 1e9:g}B" if value >= 1e9 else f"{value:g}"
    return str(value)
