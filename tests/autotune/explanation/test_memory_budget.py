"""The memory calculator: parts, probability, and the least changes that make it fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autotune.calibration import general_knowledge
from autotune.cost_model.columns import Columns
from autotune.explanation.memory_budget import CHANGED, memory_budget
from autotune.explanation.steps import Surroundings, changed
from autotune.resolution import strategy_of
from autotune.schemas.predictions import LIKELY_TO_FIT
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM
from search_spaces.rules import findings
from search_spaces.strategy import Strategy
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, GPT_175B, unhurried
from tests.autotune.cost_model.study import SETTINGS
from tests.autotune.records import strategy

KNOWN = general_knowledge(FRONTIER)
STUDY = SETTINGS[1][0].strategy


@st.composite
def layouts(draw: st.DrawFn) -> Strategy:
    tensor, pipeline = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4]))
    return strategy(
        tp=tensor,
        pp=pipeline,
        mbs=draw(st.sampled_from([1, 2, 4, 8, 16])),
        gas=draw(st.sampled_from([1, 8, 32])),
        zero_stage=draw(st.sampled_from([0, 1] if pipeline > 1 else [0, 1, 2, 3])),
        nodes=4,
        activation_checkpointing=draw(st.sampled_from(["none", "full"])),
    )


def one_change_away(layout: Strategy) -> list[Strategy]:
    around = Surroundings(transformer=GPT_22B, machine=FRONTIER, program=ANY_PROGRAM)
    return around.legal(
        [
            changed(layout, name, value, gpus_per_node=8)
            for name in CHANGED
            for value in around.others(name, getattr(layout, name))
        ]
    )


@unhurried
@given(layouts())
def test_changes_are_legal_fit_and_are_as_few_as_can_be(layout: Strategy) -> None:
    budget = memory_budget(KNOWN, GPT_22B, layout)
    if budget.fits:
        assert budget.changes == []
        assert "it fits" in budget.sentence
        return
    near = one_change_away(layout)
    columns = Columns.of(GPT_22B, Lattice.of(near, gpus_per_node=8))
    fitting = np.flatnonzero(KNOWN.fit_probability(columns) >= LIKELY_TO_FIT)
    sizes = {len(each.changes) for each in budget.changes}
    assert (sizes == {1}) == (len(fitting) > 0)
    for each in budget.changes:
        broken = findings(strategy_of(each.strategy), GPT_22B, FRONTIER)
        assert [finding for finding in broken if finding.severity == "refuse"] == []
        assert each.fit_probability >= LIKELY_TO_FIT
        for name, value in each.changes.items():
            assert getattr(each.strategy, name) == value != getattr(layout, name)
    rates = [each.relative for each in budget.changes]
    assert rates == sorted(rates, reverse=True)
    named = [tuple(each.changes) for each in budget.changes]
    assert len(set(named)) == len(named)


def test_the_study_fits_and_without_checkpointing_it_does_not() -> None:
    assert memory_budget(KNOWN, GPT_175B, STUDY).fits
    budget = memory_budget(KNOWN, GPT_175B, replace(STUDY, activation_checkpointing="none"))
    assert not budget.fits
    again = {tuple(each.changes.items()): each for each in budget.changes}
    full = again[(("activation_checkpointing", "full"),)]
    assert strategy_of(full.strategy) == STUDY
    assert full.relative < 0.9
    assert full.sentence.startswith("With full checkpointing it needs 40.6 GiB and is ")


def test_headroom_is_heeded() -> None:
    tight = memory_budget(KNOWN, GPT_175B, STUDY, headroom_gib=30.0)
    assert tight.fit_probability < memory_budget(KNOWN, GPT_175B, STUDY).fit_probability
    assert not tight.fits


def test_what_no_few_changes_can_do_is_said() -> None:
    alone = replace(STUDY, tensor_parallel=1, pipeline_parallel=1, num_nodes=1)
    one_node = general_knowledge(replace(FRONTIER, max_nodes=1))
    budget = memory_budget(one_node, GPT_175B, alone)
    assert budget.changes == []
    assert budget.sentence.endswith("it does not fit")
