"""The program of a profile, and what it cannot run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from autotune.schemas.choices import EvaluatorName
from evaluators.adapter.rendering import capabilities_of_adapter
from evaluators.cluster.profile import ClusterProfile, Megatron, ProgramName
from evaluators.frameworks.deepspeed import OVERLAP
from evaluators.frameworks.megatron_deepspeed.arguments import (
    VARIANTS,
    VARIED,
    check,
    narrow_kernels,
)
from evaluators.frameworks.megatron_deepspeed.checkout import (
    defects_of,
    flash_attention_option,
    refusals,
)
from evaluators.program.adapter_program import AdapterProgram
from evaluators.program.megatron_deepspeed import MegatronProgram
from evaluators.program.program import Program
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.support import CAPABILITIES
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities, lacking
from search_spaces.transformer import Transformer

SIMULATED = replace(ANY_PROGRAM, experts_need_sequence_parallel=True)
"""What the simulator is asked for: whatever some program can run, but for experts what Megatron
can, so that Megatron-LM, Megatron-Bridge and NeMo run what it recommends."""

OTHER_SPACE = "a space without such strategies, or the simulated evaluator"

PROGRAMS: Mapping[ProgramName, Callable[[ClusterProfile], Program]] = {
    "trainer": TrainerProgram,
    "megatron-deepspeed": MegatronProgram,
    "adapter": AdapterProgram,
}


def program_of(profile: ClusterProfile) -> Program:
    """Return the program of a profile.

    Raises:
        ValueError: the profile names Megatron-DeepSpeed without `[megatron]`, or an adapter without
            one.
    """
    return PROGRAMS[profile.program](profile)


def capabilities_of(
    evaluator: EvaluatorName, profile: ClusterProfile | None = None
) -> ProgramCapabilities:
    """Return the capabilities of the program that runs a campaign's trials.

    Args:
        profile: of the cluster, or of whatever runs an adapter's trainer.
    """
    if profile is not None and profile.adapter is not None:
        return capabilities_of_adapter(profile.adapter)
    if evaluator == "simulated":
        return SIMULATED
    if profile is None or profile.program == "trainer":
        return CAPABILITIES
    megatron = profile.megatron or Megatron(path="")
    name = f"Megatron-DeepSpeed ({megatron.variant})"
    return ProgramCapabilities(
        name=name,
        uneven_stages=VARIANTS[megatron.variant].uneven_stages,
        repeats_query_groups=False,
        refusals=(
            *lacking(name, VARIED),
            *(each for each in defects_of(megatron.path) if not each.of_model),
            *narrow_kernels(megatron.variant, flash_attention_option(megatron)),
        ),
        own=(OVERLAP,),
    )


def unsupported(
    profile: ClusterProfile, transformer: Transformer, machine: Machine, lattice: Lattice
) -> list[InvalidInput]:
    """Return, by field of a request, why the profile's program cannot run a lattice.

    Strategies that its capabilities exclude are not in a space. What remains are models that a
    checkout of Megatron-DeepSpeed cannot train. Nothing that depends on the nodes is checked.
    """
    if profile.program != "megatron-deepspeed":
        return []
    megatron = profile.megatron or Megatron(path="")
    defects, variant = defects_of(megatron.path), megatron.variant
    flash_attention = flash_attention_option(megatron)
    problems: dict[str, InvalidInput] = {}
    for strategy in lattice.distinct(VARIED):
        try:
            check(transformer, strategy, variant, flash_attention)
        except InvalidInput as problem:
            problems.setdefault(problem.field, problem)
        for refusal in refusals(defects, transformer, strategy, machine):
            problems.setdefault(refusal.field, refusal)
    return [_of_request(problem, transformer) for problem in problems.values()]


def _of_request(problem: InvalidInput, transformer: Transformer) -> InvalidInput:
    if hasattr(transformer, problem.field):
        reason = f"{problem.field} = {problem.value}: {problem.reason}"
        return InvalidInput("model", transformer.name, reason, valid=problem.valid)
    return InvalidInput(
        f"space.{problem.field}", problem.value, problem.reason, valid=problem.valid
    )
