"""The program that a profile names, and what it cannot run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.schemas import EvaluatorName
from evaluators.adapter.capabilities import capabilities_of_adapter
from evaluators.cluster.profile import ClusterProfile, Megatron, ProgramName
from evaluators.frameworks.megatron_deepspeed.defects import DEFECTS, defects_of, refusals
from evaluators.frameworks.megatron_deepspeed.variants import VARIANTS, check
from evaluators.program.adapter_program import AdapterProgram
from evaluators.program.megatron_deepspeed import MegatronProgram
from evaluators.program.program import Program
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.support import CAPABILITIES, unsupported_anywhere, unsupported_within
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

OTHER_SPACE = "a space without such strategies, or the simulated evaluator"

_DECISIVE_IN_MEGATRON = (
    "tensor_parallel",
    "pipeline_parallel",
    "micro_batch_size",
    "zero_stage",
    "sequence_parallel",
    "flash_attention",
    "virtual_stages",
    "precision",
)
"""The dimensions that decide whether Megatron-DeepSpeed can run a strategy."""


PROGRAMS: Mapping[ProgramName, Callable[[ClusterProfile], Program]] = {
    "trainer": TrainerProgram,
    "megatron-deepspeed": MegatronProgram,
    "adapter": AdapterProgram,
}


def program_of(profile: ClusterProfile) -> Program:
    """Return the program that the profile names.

    Raises:
        ValueError: it names Megatron-DeepSpeed and has no `[megatron]`, or an adapter and has none.
    """
    return PROGRAMS[profile.program](profile)


_SEQUENCE_PARALLEL = Strategy(
    tensor_parallel=2,
    pipeline_parallel=1,
    micro_batch_size=1,
    gradient_accumulation_steps=1,
    zero_stage=1,
    num_nodes=1,
    sequence_parallel=True,
)


def capabilities_of(
    evaluator: EvaluatorName, transformer: Transformer, profile: ClusterProfile | None = None
) -> ProgramCapabilities:
    """Return what the program of a campaign's trials can do.

    Args:
        profile: of the cluster, and of whatever runs the trainer of an adapter.
    """
    if evaluator == "simulated":
        return ANY_PROGRAM
    if profile is not None and profile.adapter is not None:
        return capabilities_of_adapter(profile.adapter)
    if profile is None or profile.program == "trainer":
        return CAPABILITIES
    return _capabilities_of_megatron(profile.megatron or Megatron(path=""), transformer)


def _capabilities_of_megatron(megatron: Megatron, transformer: Transformer) -> ProgramCapabilities:
    """Return what a checkout can do.

    Sequence parallelism with learned positions crashes in every commit from September 2023 on, so
    it is taken to do so in a checkout that cannot be read from here.
    """
    checkout = Path(megatron.path)
    defects = defects_of(checkout) if (checkout / "megatron").is_dir() else DEFECTS
    met = {r.field for r in refusals(defects, transformer, _SEQUENCE_PARALLEL)}
    return ProgramCapabilities(
        name=f"Megatron-DeepSpeed ({megatron.variant})",
        uneven_stages=VARIANTS[megatron.variant].uneven_stages,
        sequence_parallel="sequence_parallel" not in met,
    )


def unsupported(
    profile: ClusterProfile, transformer: Transformer, lattice: Lattice
) -> list[InvalidInput]:
    """Return, by a request's fields, what keeps the profile's program from running all of these.

    It is said before anything is queued. What depends on the nodes is not looked at.
    """
    if profile.program == "trainer":
        reason = unsupported_within(lattice, reason_of=unsupported_anywhere)
        return [InvalidInput("space", "trainer", reason, valid=OTHER_SPACE)] if reason else []
    if profile.program == "adapter":
        return []  # what it cannot run is no part of its space
    megatron = profile.megatron
    defects = defects_of(Path(megatron.path)) if megatron else ()
    variant = megatron.variant if megatron else "main"
    problems: dict[str, InvalidInput] = {}
    for strategy in lattice.distinct(_DECISIVE_IN_MEGATRON):
        try:
            check(transformer, strategy, variant)
        except InvalidInput as problem:
            problems.setdefault(problem.field, problem)
        for refusal in refusals(defects, transformer, strategy):
            problems.setdefault(refusal.field, refusal)
    return [_of_request(problem, transformer) for problem in problems.values()]


def _of_request(problem: InvalidInput, transformer: Transformer) -> InvalidInput:
    """Return the problem by the field of a campaign that says it."""
    if hasattr(transformer, problem.field):
        reason = f"{problem.field} = {problem.value}: {problem.reason}"
        return InvalidInput("model", transformer.name, reason, valid=problem.valid)
    return InvalidInput(
        f"space.{problem.field}", problem.value, problem.reason, valid=problem.valid
    )
