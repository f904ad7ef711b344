from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluators.adapter.catalog import adapter_file, load_adapter
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import capabilities_of_adapter
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.support import capabilities_of, program_of
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.choices import DimensionChoice
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM
from search_spaces.rules import findings, rule_masks
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.local.trials import GPT, LLAMA, request, strategy

MACHINE = replace(load_machine("frontier"), gpus_per_node=4)
TRAINER = ClusterProfile(name="t")
MEGATRON = ClusterProfile(name="m", adapter=load_adapter("megatron-deepspeed"))


def test_a_profile_names_its_program() -> None:
    assert program_of(TRAINER).name == "trainer"
    assert program_of(MEGATRON).name == "adapter"


def runnable(
    profile: ClusterProfile, transformer: Transformer, *strategies: Strategy
) -> list[Strategy]:
    """Those that a space of them has, by what the profile's program can do."""
    program = capabilities_of("slurm", profile)
    lattice = Lattice.of(strategies, gpus_per_node=MACHINE.gpus_per_node)
    broken = rule_masks(lattice, transformer, MACHINE, GlobalBatch(), program=program)
    return list(lattice.take(~np.any(list(broken.values()), axis=0)))


def test_what_the_trainer_cannot_run_is_no_part_of_a_space() -> None:
    fine, interleaved = strategy(1, 4), strategy(1, 4, virtual_stages=2)
    assert runnable(TRAINER, GPT, fine, interleaved) == [fine]


@pytest.mark.parametrize("profile", [TRAINER, MEGATRON])
def test_a_model_the_program_cannot_train_is_refused_clearly(
    profile: ClusterProfile,
) -> None:
    deepseek = load_model("deepseek-v3")
    program = replace(capabilities_of("slurm", profile), trains=("mtp",))
    sentence = (
        f"{program.name} is not known to train experts or latent attention, which deepseek-v3 has"
    )
    assert [f.reason for f in findings(strategy(1, 1), deepseek, MACHINE, program=program)] == [
        sentence
    ]
    with pytest.raises(InvalidInputs) as refused:
        SearchSpace.build(deepseek, MACHINE, nodes=1, choices={}, program=program)
    assert [(each.field, each.reason) for each in refused.value.problems] == [("model", sentence)]
    trains = replace(program, trains=("experts", "latent_attention", "mtp"))
    assert not findings(strategy(1, 1), deepseek, MACHINE, program=trains)


def test_an_adapter_says_which_layers_its_trainer_trains(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('command = ["train"]\n[[read]]\nlog = "(?P<iteration_time_s>x)"\n')
    assert capabilities_of_adapter(read_adapter(path)).trains == ()
    path.write_text('trains = ["mtp", "experts"]\n' + path.read_text())
    assert capabilities_of_adapter(read_adapter(path)).trains == ("experts", "mtp")


def test_what_only_the_nodes_can_tell_is_not_refused() -> None:
    half = strategy(2, 2, precision="fp16", zero_stage=1)
    assert runnable(TRAINER, GPT, half, replace(half, zero_stage=0)) == [half]


def test_what_megatron_cannot_run_is_another_matter() -> None:
    chunks = strategy(gradient_accumulation_steps=4, virtual_stages=2)
    long, short = (
        replace(chunks, tensor_parallel=tensor, pipeline_parallel=stages)
        for tensor, stages in ((1, 4), (2, 2))
    )
    assert runnable(MEGATRON, replace(LLAMA, num_layers=8), long, short) == [long]


def test_what_a_checkout_cannot_train_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "megatron" / "model" / "transformer.py"
    file.parent.mkdir(parents=True)
    file.write_text("each_hidden_size = width // 3\n")
    adapter = read_adapter(adapter_file("megatron-deepspeed"), folder=str(tmp_path))
    profile = ClusterProfile(name="m", adapter=adapter)
    fine, wide = strategy(1, 4), strategy(1, 4, micro_batch_size=2)
    assert runnable(profile, GPT, fine, wide, replace(wide, zero_stage=1)) == [fine]
    assert runnable(MEGATRON, GPT, fine, wide) == [fine, wide]
    with pytest.raises(InvalidInput, match="6acc370a"):
        program_of(profile).files(request(tmp_path, wide, ranks=4), tmp_path / "t" / "attempt-1")


@pytest.mark.parametrize("choices", [{}, {"tensor_parallel": [1, 4], "expert_parallel": 8}])
def test_what_is_simulated_of_experts_runs_on_megatron(choices: dict[str, DimensionChoice]) -> None:
    model, machine = load_model("qwen3-30b-a3b"), load_machine("dgx-h100")
    megatron = capabilities_of_adapter(load_adapter("megatron-lm"))
    simulated = capabilities_of("simulated")
    space = SearchSpace.build(model, machine, nodes=2, choices=choices, program=simulated)
    layouts = list(space.lattice().distinct(("tensor_parallel", "sequence_parallel")))
    assert [(s.tensor_parallel, s.sequence_parallel) for s in layouts if s.tensor_parallel > 1]
    for layout in layouts:
        one = replace(layout, pipeline_parallel=1, activation_checkpointing="full")
        broken = findings(one, model, machine, program=megatron)
        assert "sequence_parallel" not in " ".join(f.reason for f in broken), one.short()


def test_the_capabilities_of_each_program() -> None:
    simulated = capabilities_of("simulated")
    assert replace(simulated, experts_need_sequence_parallel=False) == ANY_PROGRAM
    for trainer in (capabilities_of("local"), capabilities_of("slurm", TRAINER)):
        assert not trainer.varies("sequence_parallel")
