"""What the adapter of Megatron-Bridge sets, against NVIDIA's own recipes, which
megatron_recipes.py reads. Each difference is deliberate, and its reason stands in
docs/trainer.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.evaluators.adapter import megatron_recipes

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "trainer.md").read_text("utf-8")
READ: Mapping[str, Any] = json.loads(Path(__file__).with_name("megatron_recipes.json").read_text())
RECIPES: list[Mapping[str, Any]] = READ["recipes"]
WHOLE = {"tensor_parallel": 1, "pipeline_parallel": 1, "zero_stage": 1} | {
    "activation_checkpointing": "none"
}
DISPATCHER = {
    *("moe_flex_dispatcher_backend", "moe_hybridep_num_sms", "moe_token_dispatcher_type"),
    *("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", "NUM_OF_TOKENS_PER_CHUNK_COMBINE_API"),
    *("NVLINK_DOMAIN_SIZE", "USE_MNNVL"),
}
GRAPHS = {"cuda_graph_impl", "cuda_graph_modules", "use_te_rng_tracker"}


def _reasons() -> list[set[str]]:
    """Return the names in the first column of each row of the page's table."""
    table = PAGE[PAGE.index("| the recipes set |") : PAGE.index("### Mixtures of experts")]
    rows = [line.split("|")[1] for line in table.strip().splitlines()[2:]]
    return [set(re.findall(r"`(\w+)`", row)) for row in rows]


def _differences(recipe: Mapping[str, Any], **settings: str) -> set[str]:
    plan = StartPlan(
        transformer=load_model(recipe["model"]),
        machine=load_machine(recipe["machine"]),
        strategy=Strategy(
            **{**WHOLE, **recipe["layout"]}, settings=tuple(sorted(settings.items()))
        ),
        iterations=8,
    )
    start = start_of(load_adapter("megatron-bridge"), plan)
    words = dict(word.partition("=")[::2] for word in start.words if "=" in word)
    ours = words | {f"${name}": value for name, value in start.variables.items()}
    theirs = READ["common"] | recipe["sets"]
    different = {name for name, value in theirs.items() if ours.get(name) != value}
    return {name.rpartition(".")[2].lstrip("$") for name in different}


def test_twelve_pairs_of_model_and_gpu_are_compared() -> None:
    assert len({(recipe["model"], recipe["machine"]) for recipe in RECIPES}) >= 12


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["recipe"])
def test_every_difference_from_a_recipe_has_a_reason(recipe: Mapping[str, Any]) -> None:
    assert _differences(recipe) <= set.union(*_reasons())


def test_every_reason_is_that_of_a_difference() -> None:
    found = set.union(*map(_differences, RECIPES))
    assert [row for row in _reasons() if not row & found] == []


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["recipe"])
def test_dispatcher_and_graphs_on_request_are_the_recipes(recipe: Mapping[str, Any]) -> None:
    sets = recipe["sets"]
    settings = {"dispatcher": sets.get("model.moe_flex_dispatcher_backend", "alltoall")}
    modules = sets.get("model.cuda_graph_modules", "[]").strip("[]").replace(",", "+")
    if modules and modules != "full_iteration":
        settings["cuda_graphs"] = modules
    whole = GRAPHS if modules == "full_iteration" else set()
    assert not _differences(recipe, **settings) & ((DISPATCHER | GRAPHS) - whole)


@pytest.mark.long
def test_recipes_are_those_of_the_checkout() -> None:
    checkout = os.environ.get("AUTOTUNE_MEGATRON_BRIDGE", "")
    if not checkout:
        pytest.skip("AUTOTUNE_MEGATRON_BRIDGE names no checkout")
    words = [f"{checkout}/.venv/bin/python", "-m", megatron_recipes.__name__, checkout]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout) == READ
