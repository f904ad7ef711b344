"""The program that a profile names, and what it cannot run."""

from __future__ import annotations

from evaluators.cluster.profile import ClusterProfile
from evaluators.frameworks.megatron_deepspeed.variants import check
from evaluators.program.megatron_deepspeed import MegatronProgram
from evaluators.program.program import Program
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.support import unsupported_anywhere, unsupported_within
from search_spaces.errors import InvalidInput
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def program_of(profile: ClusterProfile) -> Program:
    """Raises ValueError where the profile names Megatron-DeepSpeed and has no `[megatron]`."""
    return TrainerProgram(profile) if profile.program == "trainer" else MegatronProgram(profile)


def unsupported(profile: ClusterProfile, transformer: Transformer, lattice: Lattice) -> str | None:
    """Why the profile's program cannot run some strategy of `lattice`; None where it can run all.

    Said before anything is queued. What depends on the nodes is not looked at.
    """
    if profile.program == "trainer":
        return unsupported_within(lattice, reason_of=unsupported_anywhere)
    variant = profile.megatron.variant if profile.megatron else "main"

    def reason_of(strategy: Strategy) -> str | None:
        try:
            check(transformer, strategy, variant)
        except InvalidInput as error:
            return f"{error.field} = {error.value}: {error.reason}"
        return None

    return unsupported_within(
        lattice,
        reason_of=reason_of,
        decisive=("virtual_stages", "pipeline_parallel", "zero_stage"),
    )
