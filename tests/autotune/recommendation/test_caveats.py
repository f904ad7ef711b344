"""What a reader of a recommendation is told, and when nothing needs to be."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.resolution import machine_shape
from autotune.schemas import CampaignState, Trial
from tests.autotune.recommendation.examples import MACHINE, A, B, answer, strategy, trial


def said(word: str, trials: list[Trial], **settings: Any) -> bool:
    return any(word in sentence for sentence in answer(trials, **settings).caveats)


def eight() -> list[Trial]:
    layouts = [strategy(tp=tp, pp=pp) for tp in (1, 2) for pp in (1, 2, 4, 8)]
    return [trial(i, s, seconds=1.0 + i) for i, s in enumerate(layouts)]


def test_a_clear_and_confirmed_answer_needs_no_caveat() -> None:
    same_batch = [
        strategy(tp=2, pp=4, mbs=1),
        strategy(tp=2, pp=4, mbs=2),
        *(strategy(tp=tp, pp=8 // tp, mbs=mbs) for tp in (1, 4, 8) for mbs in (1, 2)),
    ]
    trials = [trial(i, s, seconds=1.0 + i) for i, s in enumerate(same_batch)]
    trials.append(trial(20, same_batch[0], seconds=1.01, purpose="confirmation"))
    found = answer(trials)
    assert found.caveats == []
    assert not found.provisional


@pytest.mark.parametrize("state", [CampaignState.RUNNING, CampaignState.PAUSED])
def test_an_unfinished_or_unconfirmed_answer_is_provisional(state: CampaignState) -> None:
    confirmed = [*eight(), trial(20, strategy(tp=1, pp=1), seconds=1.0, purpose="confirmation")]
    assert not answer(confirmed).provisional
    assert answer(confirmed, state=state).provisional
    assert answer(eight()).provisional
    assert said("has not been confirmed", eight())
    assert not said("has not been confirmed", confirmed)


def test_simulated_figures_say_so() -> None:
    assert answer(eight(), simulated=True).simulated
    assert said("Simulated", eight(), simulated=True)
    assert not said("Simulated", eight())


def test_cpu_figures_show_the_plumbing() -> None:
    shape = machine_shape(MACHINE).model_copy(update={"peak_tflops": None, "gpu": "CPU core"})
    assert said("plumbing", eight(), machine=shape)
    assert not said("plumbing", eight())
    assert not said("plumbing", eight(), machine=shape, simulated=True)


def test_few_trials_are_named() -> None:
    assert said("Only 7 search trials have", eight()[:7])
    assert said("Only 1 search trial has", eight()[:1])
    assert not said("Only", eight())


def test_a_law_below_the_pipelines_depth_is_not_to_be_relied_on() -> None:
    shallow = strategy(pp=2, gas=32)
    assert said("within a few per cent", [trial(1, shallow, seconds=1.0, probes=(4, 8))])
    deep = strategy(pp=8, gas=4)
    assert said("below the pipeline's 8 stages", [trial(1, deep, seconds=1.0, probes=(8, 16))])
    assert not said("law", [trial(1, deep, seconds=1.0)])


def test_a_confirmation_that_differs_is_told() -> None:
    more = trial(2, A, seconds=1.4, purpose="confirmation")
    searched = trial(1, A, seconds=1.0, probes=(4, 8))
    assert said("40% more than the 1 s of the search", [searched, more])
    less = trial(2, A, seconds=0.8, purpose="confirmation")
    assert said("20% less than", [searched, less])
    close = trial(2, A, seconds=1.04, purpose="confirmation")
    assert not said("of the search", [searched, close])


def test_the_convergence_guard_names_the_global_batches() -> None:
    trials = [trial(1, A.with_accumulation(8), seconds=1.0), trial(2, B, seconds=9.0)]
    first, second = (t.metrics.global_batch_size for t in trials if t.metrics)
    assert first != second
    sizes = f"with {min(first, second)} to {max(first, second)}"
    assert said(f"global batch of {first} samples", trials)
    assert said(sizes, trials)
    fixed = [trial(1, A, seconds=1.0), trial(2, B, seconds=2.0)]
    assert not said("global batch", fixed)
