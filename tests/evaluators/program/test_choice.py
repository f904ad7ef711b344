from __future__ import annotations

from evaluators.cluster.profile import ClusterProfile, Megatron
from evaluators.program.choice import program_of, unsupported
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from tests.evaluators.local.trials import GPT, LLAMA, strategy

TRAINER = ClusterProfile(name="t")
MEGATRON = ClusterProfile(
    name="m", program="megatron-deepspeed", megatron=Megatron(path="/opt/Megatron-DeepSpeed")
)
ORNL = ClusterProfile(
    name="o", program="megatron-deepspeed", megatron=Megatron(path="/opt/m", variant="ornl")
)


def lattice(*strategies: Strategy) -> Lattice:
    return Lattice.of(strategies, gpus_per_node=4)


def test_a_profile_names_its_program() -> None:
    assert program_of(TRAINER).name == "trainer"
    assert program_of(MEGATRON).name == "megatron-deepspeed"


def test_what_the_trainer_cannot_run_is_said_before_anything_is_queued() -> None:
    fine, interleaved = strategy(1, 4), strategy(1, 4, virtual_stages=2)
    assert unsupported(TRAINER, GPT, lattice(fine)) is None
    assert "virtual_stages" in (unsupported(TRAINER, GPT, lattice(fine, interleaved)) or "")


def test_what_only_the_nodes_can_tell_is_not_refused() -> None:
    half = strategy(2, 1, precision="fp16", zero_stage=1)
    assert unsupported(TRAINER, GPT, lattice(half)) is None


def test_what_megatron_cannot_run_is_another_matter() -> None:
    long, short = strategy(1, 4, virtual_stages=2), strategy(2, 2, virtual_stages=2)
    assert unsupported(MEGATRON, GPT, lattice(long)) is None
    assert "more than 2 stages" in (unsupported(MEGATRON, GPT, lattice(long, short)) or "")


def test_a_model_that_a_fork_does_not_know_is_refused() -> None:
    assert unsupported(MEGATRON, LLAMA, lattice(strategy(1, 4))) is None
    assert "gated_mlp" in (unsupported(ORNL, LLAMA, lattice(strategy(1, 4))) or "")
