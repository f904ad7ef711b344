"""The program of a profile, and what it cannot run."""

from __future__ import annotations

from dataclasses import replace

from autotune.schemas.choices import EvaluatorName
from evaluators.adapter.rendering import capabilities_of_adapter
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.adapter_program import AdapterProgram
from evaluators.program.program import Program
from evaluators.program.trainer import TrainerProgram
from evaluators.trainer.support import CAPABILITIES
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities

SIMULATED = replace(ANY_PROGRAM, experts_need_sequence_parallel=True)
"""What the simulator is asked for: whatever some program can run, but for experts what Megatron
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
    if profile is not None and profile.adapter is not None:
        return capabilities_of_adapter(profile.adapter)
    return SIMULATED if evaluator == "simulated" else CAPABILITIES
