"""Render a strategy for a trainer: command, environment and files of a start; and which strategies
it supports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from evaluators.adapter.adapter import Adapter, AdapterRefusal, OtherModel, Setting
from evaluators.adapter.expression import ExpressionFault, Names, Value, parse
from evaluators.adapter.names import first_names, strategy_names
from evaluators.adapter.places import ConfigFile, Place, TextFile, file_of
from evaluators.adapter.template import template, written
from search_spaces.dimensions import DIMENSIONS, MEMORY_FOR_TIME, NEUTRAL
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities, undeclared, untrained
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class TrainerStart:
    """One start of a trainer, the same for every rank.

    Attributes:
        words: the command.
        prepare: the command that each rank runs before it; empty for none.
        variables: environment variables, besides those that identify the rank.
        files: name -> text, in the start's folder.
    """

    words: tuple[str, ...]
    variables: Mapping[str, str]
    files: Mapping[str, str]
    prepare: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """What one start trains, and with what.

    Attributes:
        iterations: total number, including warm-up.
        first_accumulation, first_iterations: the GAS before the strategy's own, and its number of
            iterations; None for a start with one GAS.
        python: the interpreter on the nodes.
        out: the start's folder, for its files and the trainer's output.
        training: whether it trains the model, on the user's data, instead of timing it.
        launch: whether it is a launch file's, whose variables a user sets, and no trial's.
    """

    transformer: Transformer
    machine: Machine
    strategy: Strategy
    iterations: int
    python: str = "python3"
    out: str = "."
    seed: int = 1
    first_accumulation: int | None = None
    first_iterations: int = 0
    training: bool = False
    launch: bool = False

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        if self.first_accumulation is None:
            return (self.strategy,)
        return self.strategy.with_accumulation(self.first_accumulation), self.strategy

    def names(self, adapter: Adapter) -> dict[str, Value]:
        """Return the values of all names available to templates."""
        return {
            **names_of(adapter, self.transformer, self.machine, self.strategy),
            "python": self.python,
            "out": self.out,
            "folder": adapter.folder or self.out,
            "iterations": self.iterations,
            "seed": self.seed,
            **self._of_one_start(),
        }

    def _of_one_start(self) -> dict[str, Value]:
        if self.first_accumulation is None:
            return {}
        last_iterations = self.iterations - self.first_iterations
        return {
            **first_names(self.machine, self.strategies[0]),
            "first_iterations": self.first_iterations,
            "last_iterations": last_iterations,
        }


def start_of(adapter: Adapter, plan: StartPlan) -> TrainerStart:
    """Return the start of the trainer for a strategy.

    Each place has a value: True makes an argument a flag, None and False omit it, and a list gives
    it several words, without those that are None.

    Raises:
        InvalidInput: the adapter refuses the strategy, or an expression has no value for it.
    """
    for strategy in plan.strategies:
        refuse(adapter, plan.transformer, plan.machine, strategy)
    names = plan.names(adapter)
    words = _command("command", adapter.command, names)
    variables: dict[str, str] = {}
    files = {name: file_of(name, text) for name, text in adapter.base.items()}
    for text, setting in _places(adapter, plan).items():
        place = Place.read(text)
        value = _value_at(text, setting, names)
        if place.kind == "argument":
            words += _argument(place.name, value)
        elif place.kind == "word" and value is not None:
            words.append(f"{place.name}={_joined(value)}")
        elif place.kind == "variable" and value is not None:
            variables[place.name] = _joined(value)
        elif place.kind == "key" and (value is not None or place.file in files):
            file = files.setdefault(place.file, file_of(place.file, _empty(place.file)))
            _lay(file, place.name, value)
    return TrainerStart(
        words=tuple(words),
        variables=variables,
        files={name: file.text for name, file in files.items()},
        prepare=() if plan.training else tuple(_command("prepare", adapter.prepare, names)),
    )


def _places(adapter: Adapter, plan: StartPlan) -> dict[str, Setting]:
    places = dict(adapter.places)
    if adapter.one_start and plan.first_accumulation is not None:
        places.update(adapter.one_start.places)
    if adapter.train and plan.training:
        places.update(adapter.train.places)
    if plan.launch and (other := other_model(adapter, plan)):
        places.update(other.places)
    return places


def other_model(adapter: Adapter, plan: StartPlan) -> OtherModel | None:
    """Return what a launch file asks for, if the adapter configures another model than the plan's.

    Raises:
        InvalidInput: the adapter's expression has no value for it.
    """
    other = adapter.other_model
    if other is None or adapter.base:
        return None
    applies = _worked_out("other_model.when", f"{{{other.when}}}", plan.names(adapter))
    return other if applies else None


def unknown_parts(adapter: Adapter, plan: StartPlan) -> list[str]:
    """Return what of the model a training leaves to the trainer's defaults."""
    names = plan.names(adapter)
    parts = adapter.train.unknown if adapter.train else ()
    return [part.text for part in parts if _worked_out("unknown", f"{{{part.when}}}", names)]


def _command(key: str, words: Iterable[str], names: Names) -> list[str]:
    values = (_worked_out(key, word, names) for word in words)
    return [written(value) for value in values if value is not None]


def names_of(
    adapter: Adapter, transformer: Transformer, machine: Machine, strategy: Strategy
) -> dict[str, Value]:
    return {**adapter.usual, **strategy_names(transformer, machine, strategy)}


def in_one_start(
    adapter: Adapter,
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    first_accumulation: int,
) -> bool:
    """Return whether the trainer can measure a smaller GAS in the start of a strategy.

    Raises:
        InvalidInput: the adapter's expression has no value for it.
    """
    if adapter.one_start is None or not adapter.one_start.when:
        return adapter.one_start is not None
    first = strategy.with_accumulation(first_accumulation)
    names = {
        **names_of(adapter, transformer, machine, strategy),
        **first_names(machine, first),
    }
    return bool(_worked_out("one_start.when", f"{{{adapter.one_start.when}}}", names))


def refuse(
    adapter: Adapter, transformer: Transformer, machine: Machine, strategy: Strategy
) -> None:
    """Raise InvalidInput if the trainer cannot train the model, or not with a strategy."""
    if reason := untrained(transformer, program=adapter.name, trains=adapter.trains):
        raise InvalidInput("model", transformer.name, reason)
    _refuse_settings(adapter, strategy)
    names = names_of(adapter, transformer, machine, strategy)
    for refusal in adapter.refusals:
        if _worked_out("refuse", f"{{{refusal.when}}}", names):
            raise InvalidInput("strategy", strategy.short(), _because(adapter, refusal))
    for other in undeclared(adapter.name, adapter.values):
        if other.meets(strategy):
            name = other.dimension
            raise InvalidInput(name, strategy.value(name), other.because)
    for name in DIMENSIONS:
        fixed = adapter.fixed.get(name, NEUTRAL.get(name))
        value = getattr(strategy, name)
        if name not in adapter.varied and fixed is not None and value != fixed:
            reason = f"{adapter.name} has no {name}: its value is always {fixed}"
            raise InvalidInput(name, value, reason, valid=str(fixed))


def _because(adapter: Adapter, refusal: AdapterRefusal) -> str:
    return f"{adapter.name} cannot run this layout: {refusal.because}"


def _refuse_settings(adapter: Adapter, strategy: Strategy) -> None:
    for dimension in adapter.dimensions:
        if dimension.searched or dimension.name in dict(strategy.settings):
            dimension.chosen(strategy.value(dimension.name))
    for name, value in strategy.settings:
        if name not in adapter.own_names:
            reason = f"{adapter.name} has no such dimension"
            raise InvalidInput(name, value, reason, valid=", ".join(adapter.own_names))


def _worked_out(where: str, text: str, names: Names) -> Value:
    try:
        return template(text).value(names)
    except ExpressionFault as fault:
        raise InvalidInput(where, text, str(fault)) from fault


def _value_at(place: str, setting: Setting, names: Names) -> Value | list[Value]:
    if isinstance(setting, tuple | list):
        words = [word_at(place, each, names) for each in setting]
        present: list[Value] = [word for word in words if word is not None]
        return None if words and not present else present
    return word_at(place, setting, names)


def word_at(place: str, setting: Value, names: Names) -> Value:
    """Return the value of a setting, None to leave it out; raises InvalidInput without one."""
    return _worked_out(f"set.{place}", setting, names) if isinstance(setting, str) else setting


def _argument(name: str, value: Value | list[Value]) -> Iterator[str]:
    if value is None or value is False:
        return
    if name.endswith("="):
        yield name + _joined(value)
        return
    yield name
    if value is not True:
        yield from map(written, value if isinstance(value, list) else [value])


def _joined(value: Value | list[Value]) -> str:
    return ",".join(map(written, value)) if isinstance(value, list) else written(value)


def _empty(name: str) -> str:
    return "{}" if name.endswith("json") else ""


def _lay(file: ConfigFile | TextFile, key: str, value: Value | list[Value]) -> None:
    if value is None:
        file.drop(key)
    else:
        file.put(key, value)


@dataclass(frozen=True, kw_only=True)
class StrategyRefusal:
    """A refusal of an adapter, as a rule of a space."""

    refusal: AdapterRefusal
    adapter: Adapter
    dimensions: tuple[str, ...]

    @property
    def because(self) -> str:
        return _because(self.adapter, self.refusal)

    def refuses(self, strategy: Strategy, transformer: Transformer, machine: Machine) -> bool:
        """Return whether it applies to a strategy; also if it cannot be evaluated."""
        try:
            names = names_of(self.adapter, transformer, machine, strategy)
            return bool(parse(self.refusal.when).value(names))
        except (ExpressionFault, ZeroDivisionError):
            return True


WIDER_HEADS = AdapterRefusal(
    when="head_width * num_attention_heads != hidden_size",
    because="its adapter names the number of heads and not their width, `head_width`",
)


def capabilities_of_adapter(adapter: Adapter) -> ProgramCapabilities:
    """Return the trainer's capabilities: it varies the dimensions that its adapter mentions."""
    fixed = tuple(
        (name, adapter.fixed.get(name, NEUTRAL.get(name)))
        for name in DIMENSIONS
        if name not in adapter.varied
    )
    names_heads = "num_attention_heads" in adapter.names
    wider_heads = () if not names_heads or "head_width" in adapter.names else (WIDER_HEADS,)
    return ProgramCapabilities(
        name=adapter.name,
        # Vendor-tuned trainers are built on Megatron Core.
        repeats_query_groups=adapter.tuning == "vendor",
        experts_need_sequence_parallel=adapter.tuning == "vendor",
        fixed=fixed,
        refusals=tuple(
            StrategyRefusal(refusal=refusal, adapter=adapter, dimensions=adapter.decides(refusal))
            for refusal in (*adapter.refusals, *wider_heads)
        )
        + undeclared(adapter.name, adapter.values),
        tuning=adapter.tuning,
        states=adapter.states,
        own=adapter.dimensions,
        trains=adapter.trains,
        special=tuple(adapter.values.items()),
        searched=tuple(name for name in MEMORY_FOR_TIME if name in adapter.varied),
    )
