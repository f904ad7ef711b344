"""Knobs of a cluster: environment variables and options of srun."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.adapter.knobs import check_knob, knob_catalog
from evaluators.adapter.own_dimensions import AdapterFaults
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.values import SRUN_RESERVED, option_fault
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput
from search_spaces.knob import Knob


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
        if name in DIMENSIONS or not knob.set:
            faults.add(key, name, "a profile's knob sets a variable or an option of srun")
        for place, fault in _places_faults(knob):
            valid = "$VARIABLE, or a long option of srun (--cpu-bind)"
            faults.add(f"{key}.set.{place}", knob.set[place], fault, valid=valid)
    return faults.problems


def _places_faults(knob: Knob) -> Iterator[tuple[str, str]]:
    for place in knob.set:
        fault = None if place.startswith("$") else option_fault(place, SRUN_RESERVED)
        if fault:
            yield place, fault
