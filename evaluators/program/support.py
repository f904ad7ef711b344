"""The program of a profile, what it cannot run, and its knobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotune.knobs.phase import option_of, with_settings
from autotune.knobs.question import KnobOption
from autotune.schemas.choices import EvaluatorName
from autotune.schemas.requests import Knobs
from evaluators.adapter.expression import ExpressionFault, Value, parse
from evaluators.adapter.knobs import knob_names, knobs_of_bundled, own_dimensions
from evaluators.adapter.names import EVERYWHERE
from evaluators.adapter.rendering import capabilities_of_adapter
from evaluators.adapter.template import template
from evaluators.cluster.knobs import knobs_of_profile
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.adapter_program import AdapterProgram
from evaluators.program.program import Program
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.support import CAPABILITIES
from search_spaces.errors import InvalidInput, closest, suggestion
from search_spaces.knob import Knob
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.rules import is_refused
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

SIMULATED = replace(ANY_PROGRAM, experts_need_sequence_parallel=True)
"""What the simulator supports: whatever some program can run, but for experts what Megatron
can, so that Megatron-LM, Megatron-Bridge and NeMo run what it recommends."""

OTHER_SPACE = "a space without such layouts, or the simulated evaluator"


def program_of(profile: ClusterProfile) -> Program:
    return AdapterProgram(profile) if profile.adapter else TrainerProgram(profile)


def capabilities_of(
    evaluator: EvaluatorName, profile: ClusterProfile | None = None
) -> ProgramCapabilities:
    """Return the capabilities of the program that runs a campaign's trials.

    Args:
        profile: of the cluster, or of whatever runs an adapter's trainer.
    """
    own = CAPABILITIES if evaluator != "simulated" else SIMULATED
    if profile is None:
        return own
    program = capabilities_of_adapter(profile.adapter) if profile.adapter else own
    named = {each.name for each in program.own}
    of_cluster = own_dimensions(knobs_of_profile(profile))
    others = (each for each in of_cluster if each.name not in named)
    return replace(program, own=(*program.own, *others))


def knobs_of_program(profile: ClusterProfile | None) -> dict[str, Knob]:
    """Return the knobs of a trainer, the bundled one by default, and of its cluster.

    Where an adapter sets what a knob of the cluster would, the adapter takes precedence.
    """
    adapter = profile.adapter if profile else None
    trainer = adapter.knobs if adapter else knobs_of_bundled()
    if profile is None:
        return dict(trainer)
    taken = adapter.places if adapter else {}
    of_cluster = knobs_of_profile(profile).items()
    return {name: knob for name, knob in of_cluster if not knob.set.keys() & taken} | dict(trainer)


def names_of_trainer(profile: ClusterProfile | None) -> set[str]:
    """Return the trainer's own dimensions and its knobs."""
    if profile is None or profile.adapter is None:
        return set(knobs_of_bundled())
    return {*profile.adapter.own_names, *profile.adapter.knobs}


def unknown_names(profile: ClusterProfile) -> Iterator[InvalidInput]:
    """Yield the settings of the cluster's knobs that mention what has no value in a trial."""
    known = {*EVERYWHERE, *knobs_of_program(profile), *names_of_trainer(profile)}
    for name, knob in knobs_of_profile(profile).items():
        for place, setting in knob.set.items():
            for strange in sorted(template(str(setting)).names - known):
                hint = suggestion(closest(strange, sorted(known), count=1))
                reason = f"unknown name {strange}{hint}"
                valid = "names of the strategy, the model and the machine, and knobs"
                yield InvalidInput(f"knob.{name}.set.{place}", setting, reason, valid=valid)


def knob_options(
    layout: Strategy,
    knobs: Mapping[str, Knob],
    transformer: Transformer,
    machine: Machine,
    program: ProgramCapabilities,
    chosen: Knobs = "all",
) -> Iterator[KnobOption]:
    """Yield the values of chosen knobs that can be tried on a layout and change something there.

    Args:
        knobs: all of the trainer and the cluster: conditions of one may mention others.
    """
    names = knob_names(knobs, transformer, machine, layout)
    for name, knob in knobs.items():
        if (chosen != "all" and name not in chosen) or not _holds(knob.when or "True", names):
            continue
        for value in knob.values:
            if value == names[name]:
                continue
            strategy = with_settings(layout, ((name, value),))
            own = knob_names(knobs, transformer, machine, strategy)
            conflicts = (c.when for each in knobs.values() for c in each.conflicts)
            if any(_holds(when, own, unclear=True) for when in conflicts):
                continue
            if not is_refused(strategy, transformer, machine, program=program):
                yield option_of(name, value, knob)


def _holds(condition: str, names: Mapping[str, Value], *, unclear: bool = False) -> bool:
    """Return whether a condition is true; one with names that this trainer lacks is not.

    Args:
        unclear: the answer for a condition that has no value, as it divides by zero.
    """
    expression = parse(condition)
    if not expression.names <= names.keys():
        return False
    try:
        return bool(expression.value(names))
    except ExpressionFault:
        return unclear
