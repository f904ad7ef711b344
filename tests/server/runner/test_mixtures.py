"""Mixtures of experts from a published `config.json` through a simulated campaign to the arguments
of Megatron-LM and Megatron-Bridge, which their own parsers take where variables name checkouts."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from autotune.recommendation.recommendation import recommend
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, start_of
from evaluators.artefacts import Launch, trainer_artefacts
from search_spaces.catalog import load_machine, read_model
from tests.evaluators.adapter import megatron_bridge
from tests.evaluators.adapter.megatron_lm import answers, parsed, strategy_of_arguments
from tests.server.running import Running

HERE = Path(__file__).parents[3]
CONFIGS = HERE / "tests" / "search_spaces" / "recorded" / "hugging-face-configs.json"
MEGATRON_LM = os.environ.get("AUTOTUNE_MEGATRON_LM", "")
BRIDGE = os.environ.get("AUTOTUNE_MEGATRON_BRIDGE", "")


@pytest.mark.parametrize(
    ("name", "machine", "nodes"),
    [("qwen3-30b-a3b", "dgx-h200", 16), ("deepseek-v3", "gb200-nvl72", 64)],
)
def test_a_configuration_becomes_arguments(
    name: str, machine: str, nodes: int, running: Running, tmp_path: Path
) -> None:
    config = tmp_path / f"{name}.json"
    config.write_text(json.dumps(json.loads(CONFIGS.read_text())[name]))
    model = replace(read_model(config), seq_length=4096)
    fields: dict[str, Any] = {
        "model": asdict(model),
        "machine": machine,
        "nodes": nodes,
        "pool_nodes": nodes,
        "fresh": True,
        "space": {
            "tensor_parallel": 2,  # with it experts need sequence parallelism in Megatron
            "num_nodes": nodes,
            "micro_batch_size": [1, 2],
            "zero_stage": 1,
            "expert_parallel": [8, 16],
            "global_batch_size": 2048,
        },
        "baseline": "none",
        "budget": {"max_trials": 1},
        "protocol": {"confirmations": 0},
    }
    campaign = running.done(**fields)
    found = recommend(campaign, running.trials(campaign))
    assert found is not None
    strategy = found.best.strategy
    there = load_machine(machine)
    launch = Launch(
        transformer=model, machine=there, strategy=strategy, name=name, evaluator="simulated"
    )
    plan = StartPlan(transformer=model, machine=there, strategy=strategy, iterations=8)
    of_lm, of_bridge = (
        start_of(load_adapter(each), plan) for each in ("megatron-lm", "megatron-bridge")
    )
    assert trainer_artefacts(launch, "megatron-lm")
    files = trainer_artefacts(launch, "megatron-bridge")
    experts = f"model.expert_model_parallel_size={strategy.expert_parallel}"
    assert experts in "".join(files.values())
    arguments = parsed(of_lm.words[3:])
    assert strategy_of_arguments(arguments, there, num_nodes=nodes) == strategy
    ranks = {"world_size": strategy.world_size(there.gpus_per_node)}
    if MEGATRON_LM:
        request = {"words": list(of_lm.words[3:]), "variables": of_lm.variables, **ranks}
        (args,) = answers(MEGATRON_LM, [request])
        assert "error" not in args, args
        assert strategy_of_arguments(args, there, num_nodes=nodes) == strategy
    if BRIDGE:
        request = {"words": list(of_bridge.words[2:]), "variables": of_bridge.variables, **ranks}
        ran = subprocess.run(
            [f"{BRIDGE}/.venv/bin/python", "-m", megatron_bridge.__name__, BRIDGE],
            cwd=HERE,
            input=json.dumps([request]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        (recipe,) = json.loads(ran.stdout)
        assert "error" not in recipe, recipe
        assert recipe["model.expert_model_parallel_size"] == strategy.expert_parallel
        assert recipe["model.pipeline_model_parallel_size"] == strategy.pipeline_parallel
