"""Models that are kept by the thousand hold the names of their fields together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.schemas.wire import Wire

_given: dict[frozenset[str], set[str]] = {}


def share_names(models: Iterable[Wire]) -> None:
    """Let models hold the names of their given fields together with their like: with a set of its
    own in each of its models, a trial takes twice the memory. Pydantic copies a set before it adds
    to it, and the models are frozen."""
    for model in models:
        given = model.model_fields_set
        shared = _given.setdefault(frozenset(given), given)
        object.__setattr__(model, "__pydantic_fields_set__", shared)


def models_in(model: Wire) -> Iterator[Wire]:
    """Yield a model and all models in it."""
    yield model
    for value in model.__dict__.values():
        for part in value if isinstance(value, list | tuple) else (value,):
            if isinstance(part, Wire):
                yield from models_in(part)
