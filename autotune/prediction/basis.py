"""What a prediction rests on: trials of the machine, or what is generally known of its kind."""

from __future__ import annotations

from functools import lru_cache

from autotune.calibration import Calibration
from autotune.calibration.document import differences
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine


def basis_of(calibration: Calibration | None, machine: Machine, *, name: str | None) -> Calibration:
    """The calibration, where it is of this machine; general knowledge where there is none.

    Args:
        name: of the calibration, as the refusal shows it.

    Raises:
        InvalidInput: field `calibration`: it is of another machine.
    """
    if calibration is None:
        return general_knowledge(machine)
    differing = differences(calibration.machine, machine)
    if not differing:
        return calibration
    theirs, asked = calibration.machine.name, machine.name
    if theirs == asked:
        reason = f"it is of {theirs} with {', '.join(differing)}, unlike the {asked} asked about"
    else:
        reason = f"it is of {theirs}, and this is about {asked}"
    valid = f"a calibration of {asked}, or none"
    raise InvalidInput("calibration", name or theirs, reason, valid=valid)


@lru_cache(maxsize=32)
def general_knowledge(machine: Machine) -> Calibration:
    """What is known of the machine's kind before any trial."""
    return Calibration.of(machine)
