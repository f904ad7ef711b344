"""Refuse values of knobs on a layout, before anything runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from evaluators.adapter.expression import Names, Value, parse
from evaluators.adapter.names import strategy_names
from search_spaces.dimensions import DIMENSIONS, Scalar
from search_spaces.errors import InvalidInput
from search_spaces.knob import Knob
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities
from search_spaces.rules import findings
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def knob_refusals(
    knobs: Mapping[str, Knob],
    chosen: Mapping[str, Scalar],
    *,
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    program: ProgramCapabilities,
    taken: Collection[str] = (),
) -> list[InvalidInput]:
    """Return why values of knobs cannot be tried on a layout, or change nothing there; empty if
    they can.

    Args:
        knobs: of the trainer and of the profile.
        chosen: knob -> value; those of other knobs are the strategy's, or the first.
        program: the trainer, whose own refusals hold, too.
        taken: places of the trainer's adapter, which take precedence over a profile's.
    """
    if faults := list(_unknown(knobs, chosen)):
        return faults
    names = names_with_knobs(
        knobs, chosen, transformer=transformer, machine=machine, strategy=strategy
    )
    faults = [*_idle(knobs, chosen, names), *_conflicts(knobs, names)]
    for name, value in chosen.items():
        for place in set(knobs[name].set).intersection(taken):
            if name not in {each.name for each in program.own}:
                reason = f"{program.name} sets {place} itself"
                faults.append(InvalidInput(name, value, reason))
    if faults:
        return faults
    layout = strategy_with(strategy, chosen, program)
    found = findings(layout, transformer, machine, program=program)
    return [
        InvalidInput("strategy", layout.short(), each.reason)
        for each in found
        if each.severity == "refuse"
    ]


def strategy_with(
    strategy: Strategy, chosen: Mapping[str, Scalar], program: ProgramCapabilities
) -> Strategy:
    """Return the strategy with the values of the trainer's knobs, without a profile's."""
    shared: dict[str, Any] = {name: value for name, value in chosen.items() if name in DIMENSIONS}
    own = {each.name: chosen[each.name] for each in program.own if each.name in chosen}
    settings = tuple(sorted((dict(strategy.settings) | own).items()))
    return replace(strategy, **shared, settings=settings)


def names_with_knobs(
    knobs: Mapping[str, Knob],
    chosen: Mapping[str, Scalar],
    *,
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
) -> dict[str, Value]:
    """Return the values of all names: of strategy, model, machine and knobs."""
    shared: dict[str, Any] = {name: value for name, value in chosen.items() if name in DIMENSIONS}
    first = {name: knob.values[0] for name, knob in knobs.items()}
    return {**first, **strategy_names(transformer, machine, replace(strategy, **shared)), **chosen}


def applies(knob: Knob, names: Names) -> bool:
    """Return whether a value other than the first changes anything where names have these
    values."""
    return not knob.when or _holds(knob.when, names)


def _unknown(knobs: Mapping[str, Knob], chosen: Mapping[str, Scalar]) -> Iterator[InvalidInput]:
    for name, value in chosen.items():
        if name not in knobs:
            yield InvalidInput(name, value, "no such knob", valid=", ".join(knobs))
        elif value not in knobs[name].values:
            valid = ", ".join(map(str, knobs[name].values))
            yield InvalidInput(name, value, "not a value of this knob", valid=valid)


def _idle(
    knobs: Mapping[str, Knob], chosen: Mapping[str, Scalar], names: Names
) -> Iterator[InvalidInput]:
    for name, value in chosen.items():
        if value != knobs[name].values[0] and not applies(knobs[name], names):
            reason = f"it changes nothing on this layout, but where {knobs[name].when}"
            yield InvalidInput(name, value, reason)


def _conflicts(knobs: Mapping[str, Knob], names: Names) -> Iterator[InvalidInput]:
    for name, knob in knobs.items():
        for conflict in knob.conflicts:
            if _holds(conflict.when, names):
                source = f" ({conflict.source})" if conflict.source else ""
                yield InvalidInput(name, names[name], f"{conflict.because}{source}")


def _holds(text: str, names: Names) -> bool:
    """Return whether a condition is true; one with names that this trainer does not have is
    not."""
    expression = parse(text)
    return expression.names <= names.keys() and bool(expression.value(names))
