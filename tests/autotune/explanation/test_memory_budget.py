"""The memory calculator: parts, probability, and the least changes that make it fit."""

from __future__ import annotations

import re
from dataclasses import replace

from autotune.calibration import general_knowledge
from autotune.explanation.memory_budget import memory_budget
from tests.autotune.cost_model.examples import FRONTIER, GPT_175B
from tests.autotune.cost_model.study import SETTINGS

KNOWN = general_knowledge(FRONTIER)
STUDY = SETTINGS[1][0].strategy


def test_the_study_fits_only_with_recomputation() -> None:
    assert memory_budget(KNOWN, GPT_175B, STUDY).fits
    budget = memory_budget(KNOWN, GPT_175B, replace(STUDY, activation_checkpointing="none"))
    assert not budget.fits
    again = {tuple(each.changes.items()): each for each in budget.changes}
    full = again[(("activation_checkpointing", "full"),)]
    assert full.strategy == STUDY
    assert full.relative < 0.9
    assert re.fullmatch(
        r"With full recomputation: \d+ % fewer tokens per node-hour.*, 37.9 GiB\.",
        full.sentence,
    )


def test_headroom_is_heeded() -> None:
    tight = memory_budget(KNOWN, GPT_175B, STUDY, headroom_gib=30.0)
    assert tight.fit_probability < memory_budget(KNOWN, GPT_175B, STUDY).fit_probability
    assert not tight.fits


def test_what_no_few_changes_can_do_is_reported() -> None:
    alone = replace(STUDY, tensor_parallel=1, pipeline_parallel=1, num_nodes=1)
    one_node = general_knowledge(replace(FRONTIER, max_nodes=1))
    budget = memory_budget(one_node, GPT_175B, alone)
    assert budget.changes == []
    assert budget.sentence.endswith("it does not fit")
