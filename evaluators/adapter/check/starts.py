"""Small training runs that check an adapter: with several batches, and with other dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.cost_model.parameters import is_cpu
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.rendering import capabilities_of_adapter, in_one_start
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.choices import fixed_default
from search_spaces.dimensions import NEUTRAL, TABLE, Scalar, setting_text
from search_spaces.machine import Machine, offers_bf16
from search_spaces.program import ProgramCapabilities
from search_spaces.rules import findings
from search_spaces.strategy import Strategy, strategy_with
from search_spaces.transformer import Transformer

FEW, MANY = 1, 4
PLAIN, MORE_BATCHES, MORE_SAMPLES = f"GAS {FEW}", f"GAS {MANY}", f"MBS {MANY}"
ONE_START = f"GAS {FEW} and {MANY}"
OF_BATCHES = (PLAIN, MORE_BATCHES, MORE_SAMPLES, ONE_START)
"""The runs that are compared with each other; all others only have to train."""
CHECKED_ITERATIONS = 8
"""Iterations after the warm-up, enough for a median that is robust to a few late ones."""
TRIED_ITERATIONS = 2
"""Iterations of a run that only has to train."""
MOST_OWN_VALUES = 3
USUAL_TIME_LIMIT_S = 600.0

_COMPANIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"sequence_parallel": True},
    {"pipeline_parallel": 2, "gradient_accumulation_steps": 2},
    {"tensor_parallel": 2},
    {"tensor_parallel": 2, "sequence_parallel": True},
)
"""Changes to a layout that another value of a dimension may require, smallest first."""


@dataclass(frozen=True, kw_only=True)
class CheckStarts:
    """The runs that check one adapter.

    Attributes:
        requests: by name, those of `OF_BATCHES` first.
        untried: dimensions that the adapter varies, but this machine or model cannot.
    """

    requests: Mapping[str, TrialRequest]
    untried: tuple[str, ...]


def check_starts(
    adapter: Adapter,
    transformer: Transformer,
    machine: Machine,
    folder: Path,
    *,
    time_limit_s: float = USUAL_TIME_LIMIT_S,
    batches_alone: bool = False,
) -> CheckStarts:
    """Return the runs: one micro-batch of one sample, four, one of four samples, and one
    micro-batch followed by four, all but the first only if the adapter supports them; then one for
    each other value of each other dimension that the adapter varies.

    Args:
        time_limit_s: of each run.
        batches_alone: skip the runs for other dimensions.
    """
    layouts = _CheckedLayouts(adapter=adapter, transformer=transformer, machine=machine)
    strategies = dict(layouts.of_batches())
    untried = []
    if not batches_alone:
        for name, values in layouts.other_values().items():
            tried = dict(layouts.of_dimension(name, values))
            strategies.update(tried)
            untried += [] if tried else [name]
    requests = {}
    for number, (name, strategy) in enumerate(strategies.items(), start=1):
        accumulations = (
            (FEW, MANY) if name == ONE_START else (strategy.gradient_accumulation_steps,)
        )
        measured = CHECKED_ITERATIONS if name in OF_BATCHES else TRIED_ITERATIONS
        requests[name] = TrialRequest(
            token=f"check-{number}",
            transformer=transformer,
            machine=machine,
            strategy=strategy,
            protocol=TrialProtocol(
                accumulations=accumulations,
                measured_iterations=measured,
                time_limit_s=time_limit_s,
            ),
            directory=folder / f"check-{number}",
        )
    return CheckStarts(requests=requests, untried=tuple(untried))


@dataclass(frozen=True, kw_only=True)
class _CheckedLayouts:
    """The layouts of an adapter's trainer that a machine can try."""

    adapter: Adapter
    transformer: Transformer
    machine: Machine

    @property
    def program(self) -> ProgramCapabilities:
        return capabilities_of_adapter(self.adapter)

    @property
    def plain(self) -> Strategy:
        """The simplest layout that the trainer supports; the simplest of all if it supports
        none."""
        values: dict[str, Any] = {
            **NEUTRAL,
            "num_nodes": 1,
            "precision": fixed_default("precision", self.machine)[0],
        }
        for name, value in self.program.fixed:
            values[name] = fixed_default(name, self.machine)[0] if value is None else value
        for own in self.adapter.dimensions:
            if own.searched:
                values[own.name] = own.values[0]
        stages = (0, 1, 2, 3) if "zero_stage" in self.adapter.varied else (values["zero_stage"],)
        layouts = [strategy_with(values | {"zero_stage": stage}) for stage in stages]
        return next(self._legal(layouts), layouts[0])

    def of_batches(self) -> Iterator[tuple[str, Strategy]]:
        yield PLAIN, self.plain
        if "gradient_accumulation_steps" in self.adapter.varied:
            yield MORE_BATCHES, self.plain.with_accumulation(MANY)
        if "micro_batch_size" in self.adapter.varied:
            yield MORE_SAMPLES, replace(self.plain, micro_batch_size=MANY)
        many = self.plain.with_accumulation(MANY)
        if "gradient_accumulation_steps" in self.adapter.varied and in_one_start(
            self.adapter, self.transformer, self.machine, many, FEW
        ):
            yield ONE_START, many

    def other_values(self) -> dict[str, tuple[Scalar, ...]]:
        """Return the dimensions besides the batch that the adapter varies, with the values to try;
        only kernels and precisions that the machine has."""
        on_cpu = is_cpu(self.machine)
        half: tuple[Scalar, ...] = ("bf16",) * offers_bf16(self.machine) + ("fp16",) * (not on_cpu)
        values: dict[str, tuple[Scalar, ...]] = {
            dimension.name: dimension.values or (2,)
            for dimension in TABLE
            if dimension.name in self.adapter.varied and dimension.part in ("layout", "switch")
        }
        if on_cpu:
            values.pop("flash_attention", None)
        if "precision" in self.adapter.varied:
            values["precision"] = half
        return values | {own.name: own.values[:MOST_OWN_VALUES] for own in self.adapter.dimensions}

    def of_dimension(self, name: str, values: Iterable[Scalar]) -> Iterator[tuple[str, Strategy]]:
        """Yield the simplest legal layout for each value that the plain layout does not have."""
        for value in values:
            if self.plain.value(name) == value or self.adapter.usual.get(name) == value:
                continue
            layouts = (
                strategy_with({**self.plain.as_dict(), **companion, name: value})
                for companion in _COMPANIONS
                if all(each in self.adapter.varied for each in companion)
            )
            for strategy in self._legal(layouts):
                yield f"{name} {setting_text(value)}", strategy
                break

    def _legal(self, layouts: Iterable[Strategy]) -> Iterator[Strategy]:
        for strategy in layouts:
            judged = (strategy, self.transformer, self.machine)
            found = findings(*judged, program=self.program)
            cuts_nothing = strategy.sequence_parallel and strategy.tensor_parallel == 1
            if not cuts_nothing and not any(finding.severity == "refuse" for finding in found):
                yield strategy
