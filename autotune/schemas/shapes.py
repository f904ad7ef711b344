"""The model and the machine that a request names."""

from __future__ import annotations

from autotune.schemas.wire import Wire
from search_spaces.fields import Label
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

ModelChoice = Label | Transformer
"""A preset ("gpt-22b") or a bare size ("13B"), with fields that differ ("gpt-22b,seq=8192"); or a
shape."""

MachineChoice = Label | Machine


class Subject(Wire):
    """The model and the machine that a prediction is about."""

    model: Transformer
    """The model in full."""
    machine: Machine
    """The machine in full."""
