"""The ready adapters of Hugging Face's Trainer and of TRL: random strategies come back equal from
their own parsers.

AUTOTUNE_TRANSFORMERS names an interpreter that has transformers, trl, accelerate and deepspeed.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, start_of
from search_spaces.catalog import load_machine
from search_spaces.strategy import Strategy
from tests.evaluators.adapter.random_strategies import random_strategies
from tests.evaluators.adapter.samples import MODEL

PARSER = Path(__file__).parent / "hugging_face_parser.py"
MANY = 200
FRONTIER = load_machine("frontier")
SCRIPT_WORDS = {"huggingface-trainer": 2, "trl-sft": 3}
"""The words of the command that are no arguments."""


@pytest.mark.long
@pytest.mark.parametrize("name", SCRIPT_WORDS)
def test_strategies_come_back(name: str, tmp_path: Path) -> None:
    interpreter = os.environ.get("AUTOTUNE_TRANSFORMERS", "")
    if not interpreter:
        pytest.skip("AUTOTUNE_TRANSFORMERS names no interpreter")
    adapter = load_adapter(name)
    strategies = random_strategies(adapter, MODEL, FRONTIER, MANY)
    lists = []
    for number, strategy in enumerate(strategies):
        folder = tmp_path / str(number)
        folder.mkdir()
        plan = StartPlan(
            transformer=MODEL, machine=FRONTIER, strategy=strategy, iterations=8, out=str(folder)
        )
        start = start_of(adapter, plan)
        for file, text in start.files.items():
            (folder / file).write_text(text)
        lists.append(json.dumps([name, *start.words[SCRIPT_WORDS[name] :]]))
    ran = subprocess.run(
        [interpreter, str(PARSER), str(tmp_path / "out")],
        input="\n".join(lists),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    answers = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    for strategy, arguments in zip(strategies, answers, strict=True):
        assert "refused" not in arguments, (strategy.short(), arguments)
        assert _strategy(arguments, num_nodes=strategy.num_nodes) == strategy
        assert (arguments["max_steps"], arguments["logging_steps"]) == (8, 1)
        assert arguments["max_length"] in (None, MODEL.seq_length)


def _strategy(arguments: dict[str, Any], *, num_nodes: int) -> Strategy:
    """Return what the Trainer would train; DeepSpeed must have the same settings."""
    batch, accumulation = (
        arguments["per_device_train_batch_size"],
        arguments["gradient_accumulation_steps"],
    )
    deepspeed = arguments["deepspeed"]
    if deepspeed:
        assert deepspeed["train_micro_batch_size_per_gpu"] == batch
        assert deepspeed["gradient_accumulation_steps"] == accumulation
        assert deepspeed["bf16"]["enabled"] == arguments["bf16"]
        assert deepspeed["fp16"]["enabled"] == arguments["fp16"]
    return Strategy(
        tensor_parallel=1,
        pipeline_parallel=1,
        micro_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        zero_stage=deepspeed["zero_optimization"]["stage"] if deepspeed else 0,
        num_nodes=num_nodes,
        activation_checkpointing="full" if arguments["gradient_checkpointing"] else "none",
        precision="bf16" if arguments["bf16"] else "fp16" if arguments["fp16"] else "fp32",
    )
