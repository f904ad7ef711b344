"""Adapters as stored with a campaign: texts and numbers only.

`evaluators.adapter.reading` creates and validates them from files; expressions are parsed again
when they are evaluated.
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
from search_spaces.knob import Knob
from search_spaces.program import USUAL_STATES, OwnDimension, StateWidths, Tuning
from search_spaces.transformer import LayerFeature

Constant: TypeAlias = bool | int | float | str
Setting: TypeAlias = Constant | tuple[Constant, ...]
"""The value at a place: one or more templates, or a TOML constant."""
Evidence: TypeAlias = Literal["unchecked", "read", "parsed", "trained"]
"""How an adapter was verified: not at all; against the trainer's sources or documentation; with the
trainer's own parser; by training."""

USUAL_WARMUP = 3
"""Default number of warm-up iterations per start: compilation and the first allocations last that
long in the trainers that were tried."""
_NO_OTHER_KEYS = ConfigDict(extra="forbid")
_NOT_OF_TRIALS = ("train", "other_model", "numerics", "knobs")


@dataclass(frozen=True, kw_only=True)
class AdapterRefusal:
    """`[[refuse]]`: strategies that the trainer cannot run.

    Attributes:
        when: an expression over strategy, model and machine.
        because: the reason, as the continuation of a sentence.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    when: str
    because: str


@dataclass(frozen=True, kw_only=True)
class OneStart:
    """`[one_start]`: the trainer can increase its batch while running, so that two GAS values, the
    smaller one first, are measured in one start.

    Attributes:
        when: an expression over strategy, model and machine; if false, each GAS has its own start.
            Empty for always.
        places: place -> value in such a start (`[one_start.set]`), overriding `[set]`.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    places: Mapping[str, Setting]
    when: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainingVariable:
    """A variable that a user sets for a training, such as the path of the data.

    Attributes:
        meaning: what it holds.
        default: its value if it is not set, with `$NAME` for other variables; empty: it must be
            set.
        exists: paths that must exist, with `$NAME` for a variable; not checked for the default.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    meaning: str
    default: str = ""
    exists: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UnknownPart:
    """A part of the model that a launch file leaves to the trainer's default, and says so.

    Attributes:
        when: an expression over strategy, model and machine.
        text: the part, and what the trainer takes for it.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    when: str
    text: str


@dataclass(frozen=True, kw_only=True)
class AdapterTraining:
    """`[train]`: what differs between a trial and a training.

    Attributes:
        places: place -> value in a training (`[train.set]`), overriding `[set]`; `$NAME` in a value
            is a variable.
        variables: name -> what the user sets.
        unknown: what is written as not known.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    places: Mapping[str, Setting]
    variables: Mapping[str, TrainingVariable] = field(default_factory=dict)
    unknown: tuple[UnknownPart, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OtherModel:
    """`[other_model]`: what a launch file asks for if the adapter configures another model than
    the launch's. It does not apply to an adapter with a `base`, which is the user's configuration.

    Attributes:
        when: an expression over strategy, model and machine.
        places: place -> value in a launch file (`[other_model.set]`), overriding `[set]`; `$NAME`
            in a value is a variable.
        variables: name -> what the user sets.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    when: str
    places: Mapping[str, Setting]
    variables: Mapping[str, TrainingVariable]


@dataclass(frozen=True, kw_only=True)
class AdapterReader:
    """`[[read]]`: where metrics are read, and which. One of the first four attributes is not empty.

    The other texts are expressions over what was found (groups of the pattern, keys, columns, tags)
    and all names of a strategy; an empty one uses what was found under its own name, if anything.

    Attributes:
        log: a regular expression with named groups, searched in each line that a rank prints.
        json_lines, csv: a file (or a pattern of names) that the trainer writes.
        tensorboard: a folder in which it writes event files.
        step: the iteration's number. Without one a line belongs to the last iteration read.
        iteration_time_s, loss, peak_memory_gib: metrics.
        peak_allocated_gib: what torch's allocator gave out of the peak, which it reserved.
        parameters: of the model, as the trainer counts them.
        arrival: use the interval between the arrivals of two lines with a step as the time.
        at_end: the trainer reports it only when it ends.
        excludes_next: the iteration that is reported next is not measured; nothing else is read.
        echo: a name of a strategy -> the trainer's value of it; the two must be equal.
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
    peak_allocated_gib: str = ""
    parameters: str = ""
    arrival: bool = False
    at_end: bool = False
    excludes_next: bool = False
    echo: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        return self.json_lines or self.csv or self.tensorboard

    def reports(self, figure: str) -> bool:
        return bool(getattr(self, figure)) or f"(?P<{figure}>" in self.log


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """One trainer.

    Attributes:
        name: of its file.
        command: the words that start one rank, as templates, followed by those of `places`.
        prepare: the words that each rank runs before, such as to write a dataset.
        folder: working directory of the ranks; the start's folder if empty.
        warmup_iterations: at the beginning of each start.
        base: file -> the user's own text, in which places are set.
        places: place -> value (`[set]` of the file).
        one_start: how to measure two GAS values in one start; None if not supported.
        fixed: dimension that the file does not mention -> its fixed value.
        dimensions: dimensions defined by this trainer.
        versions: package -> the version that the file was written for.
        needs: modules that the trainer imports, which are looked for before the first trial.
        evidence, checked: how it was verified; when, and with which version.
        values: dimension -> values that the trainer supports beyond the usual ones.
        trains: supported kinds of layers, as in `ProgramCapabilities`.
        tuning, states: how well the trainer is tuned for the GPU, and its bytes per parameter, as
            in `ProgramCapabilities`.
        train: what differs in a training; None if no file for one can be written.
        other_model: what a launch file asks for if the model is not the one configured here.
        numerics: place -> what its value changes in the numbers that are computed.
        knobs: those of its dimensions that are tried on a layout after it was found.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    name: str
    command: tuple[str, ...]
    description: str = ""
    prepare: tuple[str, ...] = ()
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
    needs: tuple[str, ...] = ()
    evidence: Evidence = "unchecked"
    tuning: Tuning = "usual"
    states: StateWidths = USUAL_STATES
    checked: str = ""
    trains: tuple[LayerFeature, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    train: AdapterTraining | None = None
    other_model: OtherModel | None = None
    numerics: Mapping[str, str] = field(default_factory=dict)
    knobs: Mapping[str, Knob] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Identity of what trials run: two adapters that differ only in launch files, or in what is
        known of knobs, are equal."""
        whole = asdict(self)
        trial = {name: whole[name] for name in whole if name not in _NOT_OF_TRIALS}
        content = json.dumps(trial, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    @property
    def label(self) -> str:
        return f"{self.name} {self.digest[:12]}"

    @property
    def ends_early(self) -> bool:
        return not any(reader.at_end for reader in self.read)

    @cached_property
    def names(self) -> frozenset[str]:
        templates = [*self.command, *self.prepare, *texts_of(self.places)]
        return frozenset().union(*(template(text).names for text in templates))

    @property
    def sets_model(self) -> bool:
        """Whether it gives the trainer the model's shape, so that no configuration decides it."""
        return "hidden_size" in self.names

    @cached_property
    def varied(self) -> frozenset[str]:
        return _behind(self.names, MENTIONED_BY, self.own_names) | {"num_nodes"}

    @property
    def own_names(self) -> tuple[str, ...]:
        return tuple(dimension.name for dimension in self.dimensions)

    @cached_property
    def refusals(self) -> tuple[AdapterRefusal, ...]:
        """Strategies that it cannot run, because of conflicts of knobs, too."""
        conflicts = (each for knob in self.knobs.values() for each in knob.conflicts)
        return (
            *self.refuse,
            *(AdapterRefusal(when=each.when, because=each.reason) for each in conflicts),
        )

    @property
    def places_by_dimension(self) -> dict[str, list[str]]:
        """Return dimension -> the places that mention it."""
        mentioned: dict[str, list[str]] = {}
        for place, setting in self.places.items():
            for name in {n for text in texts_of({place: setting}) for n in template(text).names}:
                mentioned.setdefault(name, []).append(place)
        return mentioned

    @cached_property
    def usual(self) -> Mapping[str, Constant]:
        return {each.name: each.values[0] for each in self.dimensions if not each.searched}

    def decides(self, refusal: AdapterRefusal) -> tuple[str, ...]:
        looked_at = _behind(parse(refusal.when).names, DECIDED_BY, self.own_names)
        return tuple(name for name in (*DIMENSIONS, *self.own_names) if name in looked_at)


def texts_of(places: Mapping[str, Setting]) -> list[str]:
    values = (v if isinstance(v, tuple | list) else (v,) for v in places.values())
    return [text for several in values for text in several if isinstance(text, str)]


def _behind(
    names: frozenset[str], derived: Mapping[str, tuple[str, ...]], own: tuple[str, ...]
) -> frozenset[str]:
    behind = (derived.get(name, (name,)) for name in names)
    return frozenset(d for several in behind for d in several if d in DIMENSIONS or d in own)
