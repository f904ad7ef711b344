"""Knobs of a cluster: environment variables and options of srun."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from evaluators.adapter.knobs import check_knob, knob_catalog, knob_names, read_knobs
from evaluators.adapter.own_dimensions import AdapterFaults
from evaluators.adapter.places import Place
from evaluators.adapter.rendering import word_at
from evaluators.adapter.template import written
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.values import READ_ONLY_IN_BASH, SRUN_RESERVED, option_fault
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.knob import Knob
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def knobs_of_profile(profile: ClusterProfile) -> dict[str, Knob]:
    """Return the knobs of its catalogues, and its own, which replace them."""
    knobs: dict[str, Knob] = {}
    for name in profile.knobs_from:
        knobs |= knob_catalog(name)
    return knobs | dict(profile.knob)


def faults_of_knobs(profile: ClusterProfile, *, source: str) -> list[InvalidInput]:
    """Return what is wrong with a profile's own knobs."""
    faults = AdapterFaults(source=source)
    for name, knob in profile.knob.items():
        check_knob(name, knob, faults)
        key = f"knob.{name}"
        if (name in DIMENSIONS) is bool(knob.set):
            reason = "a knob of a cluster is a dimension, or sets a variable or an option of srun"
            faults.add(key, name, reason)
        for place, fault in _places_faults(knob):
            valid = "$VARIABLE, or a long option of srun (--cpu-bind)"
            faults.add(f"{key}.set.{place}", knob.set[place], fault, valid=valid)
    return faults.problems


def _places_faults(knob: Knob) -> Iterator[tuple[str, str]]:
    for place in knob.set:
        if not place.startswith("$"):
            fault = option_fault(place, SRUN_RESERVED)
        else:
            fault = "bash itself sets this variable" if place[1:] in READ_ONLY_IN_BASH else None
        if fault:
            yield place, fault


class LayoutRun(Protocol):
    """A strategy of a model on a machine: a trial, or a launch."""

    @property
    def transformer(self) -> Transformer: ...
    @property
    def machine(self) -> Machine: ...
    @property
    def strategy(self) -> Strategy: ...


def profile_of_run(profile: ClusterProfile, run: LayoutRun) -> ClusterProfile:
    """Return the profile with the variables and options of srun that a strategy's knobs set.

    Raises:
        InvalidInput: an expression of a knob has no value for the strategy.
    """
    knobs = knobs_of_profile(profile)
    chosen = [knobs[name] for name, _ in run.strategy.settings if name in knobs]
    if not chosen:
        return profile
    names = knob_names(knobs, run.transformer, run.machine, run.strategy)
    variables, words = dict(profile.environment.variables), list(profile.tasks.srun)
    for text, setting in (each for knob in chosen for each in knob.set.items()):
        place = Place.read(text)
        value = word_at(text, setting, names)
        if value is None or value is False:
            continue
        if place.kind == "variable":
            variables[place.name] = written(value)
            continue
        words = [word for word in words if word.partition("=")[0] != place.name]
        words.append(place.name if value is True else f"{place.name}={written(value)}")
    return replace(
        profile,
        environment=replace(profile.environment, variables=variables),
        tasks=replace(profile.tasks, srun=tuple(words)),
    )


def strategy_of_trainer(profile: ClusterProfile, strategy: Strategy) -> Strategy:
    """Return what the adapter's trainer has of a strategy: all but the cluster's knobs."""
    trainer = profile.adapter.own_names if profile.adapter else ()
    of_cluster = knobs_of_profile(profile).keys() - set(trainer)
    settings = tuple(each for each in strategy.settings if each[0] not in of_cluster)
    return replace(strategy, settings=settings)


def read_knob_file(text: str) -> dict[str, Knob]:
    """Return a request's own knobs, `[knob.NAME]` in TOML.

    Raises:
        InvalidInput: it is not TOML, or has other tables.
        InvalidInputs: a knob has a fault.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("knob_file", text[:80], f"not TOML: {error}") from error
    if strange := [name for name in table if name != "knob"]:
        raise InvalidInput("knob_file", strange[0], "no such table", valid="[knob.NAME]")
    faults = AdapterFaults(source="knob_file")
    knobs = read_knobs(table, faults)
    problems = faults.problems or faults_of_knobs(
        ClusterProfile(name="request", knob=knobs), source="knob_file"
    )
    if problems:
        raise InvalidInputs(problems)
    return knobs
