"""A campaign in which all failed: the cause, and a question that fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from autotune.calibration import Calibration
from autotune.explanation.failures import explain_failures
from autotune.prediction.campaign import check_campaign
from autotune.schemas.explanations import FailureCause
from autotune.search import SearchTrial
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.choices import DimensionChoice
from search_spaces.space import SearchSpace
from tests.autotune.records import request

LARGE: Mapping[str, DimensionChoice] = {
    "tensor_parallel": [4, 8],
    "pipeline_parallel": [8],
    "micro_batch_size": [4, 8],
    "zero_stage": [1],
    "num_nodes": [8],
}
BATCH = 640


def space_175b(**choices: DimensionChoice) -> SearchSpace:
    return SearchSpace.build(
        load_model("gpt-175b"),
        load_machine("frontier"),
        nodes=8,
        choices={**LARGE, **choices},
        batch=GlobalBatch.of(BATCH),
    )


def report(space: SearchSpace, trials: Sequence[SearchTrial]) -> FailureCause | None:
    observed = [trial.observation(space.transformer) for trial in trials]
    calibration = Calibration.of(space.machine, [each for each in observed if each is not None])
    return explain_failures(space, calibration, trials)


def all_too_large(space: SearchSpace) -> list[SearchTrial]:
    return [
        SearchTrial(strategy=each, state="failed", out_of_memory=True) for each in space.lattice()
    ]


def test_the_cause_and_questions_that_fit() -> None:
    space = space_175b()
    trials = all_too_large(space)
    found = report(space, trials)
    assert found is not None
    assert found.need_low_gib is not None
    assert found.need_high_gib is not None
    assert 60.0 < found.need_low_gib < found.need_high_gib
    assert found.sentence.startswith(f"All {len(trials)} trials ran out of memory: ")
    assert "of each GPU's 64. With " in found.sentence
    changed = [
        set(each.fields) - {"space.gradient_accumulation_steps"} for each in found.suggestions
    ]
    assert {"nodes", "space.num_nodes"} in changed
    assert {"space.micro_batch_size"} in changed


def test_each_remedy_is_a_request_that_holds_its_strategy() -> None:
    """The fields fill in a form as they are."""
    space = space_175b()
    found = report(space, all_too_large(space))
    assert found is not None
    for remedy in found.suggestions:
        assert remedy.fit_probability >= 0.5
        spec = {**{k: list(v) for k, v in space.dimensions.items()}, "global_batch_size": BATCH}
        spec |= {
            field.removeprefix("space."): value
            for field, value in remedy.fields.items()
            if field.startswith("space.")
        }
        nodes = remedy.fields.get("nodes", space.nodes)
        searched = check_campaign(request(model="gpt-175b", nodes=nodes, space=spec))
        assert remedy.strategy in list(searched.lattice())
        assert remedy.strategy.global_batch_size(space.machine.gpus_per_node) == BATCH


def test_several_dimensions_where_none_alone_suffices() -> None:
    space = SearchSpace.build(
        load_model("gpt-175b"),
        load_machine("frontier"),
        nodes=16,
        choices={
            "tensor_parallel": [1, 2],
            "pipeline_parallel": [16],
            "micro_batch_size": [8, 9, 10],
            "gradient_accumulation_steps": [5, 10],
            "zero_stage": [0],
        },
    )
    found = report(space, all_too_large(space)[:6])
    assert found is not None
    assert found.suggestions
    assert min(len(each.changes) for each in found.suggestions) > 1
    nodes = [each.strategy.num_nodes for each in found.suggestions]
    assert nodes == sorted(nodes)


def test_other_causes_are_counted_and_have_no_remedy() -> None:
    space = space_175b()
    trials = [
        SearchTrial(strategy=each, state="failed", cause=cause)
        for each, cause in zip(
            space.lattice(),
            ("no such image", "rank 3: --acum 1 is unknown", "rank 7: --acum 2 is unknown"),
            strict=False,
        )
    ]
    found = report(space, trials)
    assert found is not None
    assert found.suggestions == []
    assert found.need_low_gib is None
    assert found.sentence == (
        "All 3 trials failed: 2 with rank 3: --acum 1 is unknown, 1 with no such image."
    )


@pytest.mark.parametrize("state", ["ok", None])
def test_nothing_where_something_ran_or_nothing_ended(state: str | None) -> None:
    space = space_175b()
    trials = all_too_large(space)[:1] if state else []
    if state:
        ran = space.lattice().strategy(1)
        trials.append(SearchTrial(strategy=ran, state="ok", iteration_time_s=100.0))
    assert report(space, trials) is None
