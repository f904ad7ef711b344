"""What a file says of a trainer, as it is kept with a campaign: texts and numbers alone.

`evaluators.adapter.reading` makes it from a file and refuses what is wrong there; expressions are
read again, from their text, where they are worked out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from pydantic import ConfigDict

from evaluators.adapter.expression import parse
from evaluators.adapter.names import DECIDED_BY, MENTIONED_BY
from evaluators.adapter.template import template
from search_spaces.dimensions import DIMENSIONS
from search_spaces.program import USUAL_STATES, OwnDimension, StateWidths, Tuning
from search_spaces.transformer import LayerFeature

Constant: TypeAlias = bool | int | float | str
Setting: TypeAlias = Constant | tuple[Constant, ...]
"""What stands at a place: a template, or several, or a constant of TOML."""
Evidence: TypeAlias = Literal["unchecked", "read", "parsed", "trained"]
"""What was done with an adapter: nothing; its words were held against the trainer's sources or
documentation; the trainer's own parser took what it writes; it trained."""

USUAL_WARMUP = 3
"""Iterations at each start that are left out, unless a file says another number: compilation and
the first allocations last that long in the trainers that were tried."""
_NO_OTHER_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class AdapterRefusal:
    """`[[refuse]]`: strategies that the trainer cannot run.

    Attributes:
        when: an expression over strategy, model and machine.
        because: the reason, as a sentence goes on with it.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    when: str
    because: str


@dataclass(frozen=True, kw_only=True)
class OneStart:
    """`[one_start]`: the trainer can go on with a larger batch, so that two GAS values, the smaller
    one first, are measured in one start.

    Attributes:
        when: an expression over strategy, model and machine; where it is false each has a start of
            its own. Empty: it always can.
        places: place -> what stands there then (`[one_start.set]`), over what `[set]` has.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    places: Mapping[str, Setting]
    when: str = ""


@dataclass(frozen=True, kw_only=True)
class AdapterReader:
    """`[[read]]`: where figures are found, and which. One of the first four is not empty.

    The other texts are expressions over what was found there (groups of the pattern, keys,
    columns, tags) and all names of a strategy; one that is empty takes what was found under its
    own name, if anything.

    Attributes:
        log: a regular expression with named groups, searched in each line that a rank prints.
        json_lines, csv: a file (or a pattern of names) that the trainer writes.
        tensorboard: a folder in which it writes event files.
        step: the number of an iteration. Without one a line belongs to the last that was read.
        iteration_time_s, loss, peak_memory_gib: figures.
        parameters: of the model, as the trainer counts them.
        arrival: the iteration's time is that between two lines with a step, as they arrive.
        at_end: the trainer tells it when it ends, and not before.
        echo: a name of a strategy -> what the trainer says of it; the two must be equal.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    log: str = ""
    json_lines: str = ""
    csv: str = ""
    tensorboard: str = ""
    step: str = ""
    iteration_time_s: str = ""
    loss: str = ""
    peak_memory_gib: str = ""
    parameters: str = ""
    arrival: bool = False
    at_end: bool = False
    echo: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name, or pattern of names, of what it reads in the folder of a start; empty for the
        log."""
        return self.json_lines or self.csv or self.tensorboard

    def tells(self, figure: str) -> bool:
        """Whether it is there for a figure: by an expression, or a group of that name."""
        return bool(getattr(self, figure)) or f"(?P<{figure}>" in self.log


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One trainer.

    Attributes:
        name: of its file.
        command: the words that start one rank, as templates; those of `places` come after them.
        folder: in which ranks run; that of a start where empty.
        warmup_iterations: left out at the beginning of each start.
        base: file -> the user's own text of it, under which places are laid.
        places: place -> what stands there (`[set]` of the file).
        one_start: how it is told of two GAS values; None where it cannot be.
        fixed: dimension that the file does not mention -> the value that it has all the same.
        dimensions: those that this trainer has, and others have not.
        versions: package -> the version that the file was written for.
        evidence, checked: what was done with it; when, and at which version.
        values: dimension -> values that the trainer has beyond the usual ones.
        trains: what the layers of a model may have, as `ProgramCapabilities` has it.
        tuning, states: how far the trainer is tuned for the GPU, and the bytes that it keeps of a
            parameter, as `ProgramCapabilities` has them.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    name: str
    command: tuple[str, ...]
    description: str = ""
    folder: str = ""
    warmup_iterations: int = USUAL_WARMUP
    base: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, Setting] = field(default_factory=dict)
    one_start: OneStart | None = None
    fixed: Mapping[str, Constant] = field(default_factory=dict)
    dimensions: tuple[OwnDimension, ...] = ()
    refuse: tuple[AdapterRefusal, ...] = ()
    read: tuple[AdapterReader, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    evidence: Evidence = "unchecked"
    tuning: Tuning = "usual"
    states: StateWidths = USUAL_STATES
    checked: str = ""
    trains: tuple[LayerFeature, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that it says, the user's own files among it."""
        content = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Its name and the beginning of its digest, as a trial's versions have it."""
        return f"{self.name} {self.digest[:12]}"

    @property
    def ends_early(self) -> bool:
        """Whether a start may be ended once enough was measured: all that is read of it is told
        while it goes on."""
        return not any(reader.at_end for reader in self.read)

    @cached_property
    def names(self) -> frozenset[str]:
        """What the trainer's command and settings are made of."""
        templates = [*self.command, *texts_of(self.places)]
        return frozenset().union(*(template(text).names for text in templates))

    @cached_property
    def varied(self) -> frozenset[str]:
        """The dimensions that the file mentions; nodes are the launcher's."""
        return _behind(self.names, MENTIONED_BY, self.own_names) | {"num_nodes"}

    @property
    def own_names(self) -> tuple[str, ...]:
        """The names of the trainer's own dimensions."""
        return tuple(dimension.name for dimension in self.dimensions)

    @cached_property
    def usual(self) -> Mapping[str, Constant]:
        """The value of each dimension of the trainer's own that a strategy need not mention."""
        return {each.name: each.values[0] for each in self.dimensions if not each.searched}

    def decides(self, refusal: AdapterRefusal) -> tuple[str, ...]:
        """Return the dimensions that a refusal looks at, in their order."""
        looked_at = _behind(parse(refusal.when).names, DECIDED_BY, self.own_names)
        return tuple(name for name in (*DIMENSIONS, *self.own_names) if name in looked_at)


def texts_of(places: Mapping[str, Setting]) -> list[str]:
    """Return the templates among settings."""
    values = (v if isinstance(v, tuple | list) else (v,) for v in places.values())
    return [text for several in values for text in several if isinstance(text, str)]


def _behind(
    names: frozenset[str], derived: Mapping[str, tuple[str, ...]], own: tuple[str, ...]
) -> frozenset[str]:
    """Return the dimensions among names, and those behind derived ones."""
    behind = (derived.get(name, (name,)) for name in names)
    return frozenset(d for several in behind for d in several if d in DIMENSIONS or d in own)
