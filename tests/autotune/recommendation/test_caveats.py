"""Which caveats a recommendation has, and when it needs none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import Routing, Trial
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.autotune.recommendation.examples import A, B, C, answer, trial
from tests.autotune.records import MACHINE, MODEL, strategy


def tells(word: str, trials: list[Trial], **settings: Any) -> bool:
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
    clear = answer(trials)
    assert clear.caveats == []
    assert not clear.provisional


@pytest.mark.parametrize("state", [CampaignState.RUNNING, CampaignState.PAUSED])
def test_an_unfinished_or_unconfirmed_answer_is_provisional(state: CampaignState) -> None:
    confirmed = [*eight(), trial(20, strategy(tp=1, pp=1), seconds=1.0, purpose="confirmation")]
    assert not answer(confirmed).provisional
    assert answer(confirmed, state=state).provisional
    assert answer(eight()).provisional
    assert tells("has not been confirmed", eight())
    assert not tells("has not been confirmed", confirmed)


def test_simulated_figures_say_so() -> None:
    assert answer(eight(), simulated=True).simulated
    assert not answer(eight()).simulated


@pytest.mark.parametrize(
    ("peak", "shown"), [(77.7, True), (76.0, False), (81.0, False), (None, False)]
)
def test_a_requested_best_that_is_nearly_full(peak: float | None, shown: bool) -> None:
    machine = replace(load_machine("dgx-h100"), memory_gib=80.0)
    trials = [trial(1, A, seconds=1.0, peak=peak), trial(2, B, seconds=2.0, peak=60.0)]
    found = answer(trials, machine=machine, min_headroom_gib=0.0)
    assert found.best.trial_numbers == [1]
    full = "The best leaves 2.3 GiB of memory, and a training may need 3.9 GiB."
    assert (full in found.caveats) is shown
    assert any("may need" in sentence for sentence in found.caveats) is shown


def test_rates_of_a_cpu_say_nothing_about_gpus() -> None:
    shape = replace(MACHINE, peak_tflops=None, gpu="CPU core")
    assert tells("say nothing about GPUs", eight(), machine=shape)
    assert not tells("say nothing about GPUs", eight())
    assert not tells("say nothing about GPUs", eight(), machine=shape, simulated=True)


def test_few_trials_are_named() -> None:
    assert tells("Only 7 search trials have", eight()[:7])
    assert tells("Only 1 search trial has", eight()[:1])
    assert not tells("Only", eight())


def test_a_law_below_the_pipelines_depth_is_not_to_be_relied_on() -> None:
    shallow = strategy(pp=2, gas=32)
    assert tells("within a few percent", [trial(1, shallow, seconds=1.0, probes=(4, 8))])
    deep = strategy(pp=8, gas=4)
    assert tells("below the pipeline's 8 stages", [trial(1, deep, seconds=1.0, probes=(8, 16))])
    assert not tells("two other measured GAS values", [trial(1, deep, seconds=1.0)])


def test_a_confirmation_that_differs_is_reported() -> None:
    more = trial(2, A, seconds=1.4, purpose="confirmation")
    searched = trial(1, A, seconds=1.0, probes=(4, 8))
    assert tells("40% more than the 1 s of the search", [searched, more])
    less = trial(2, A, seconds=0.8, purpose="confirmation")
    assert tells("20% less than", [searched, less])
    close = trial(2, A, seconds=1.04, purpose="confirmation")
    assert not tells("of the search", [searched, close])


def test_the_convergence_guard_names_the_global_batches() -> None:
    trials = [trial(1, A.with_accumulation(8), seconds=1.0), trial(2, B, seconds=9.0)]
    first, second = (t.metrics.global_batch_size for t in trials if t.metrics)
    assert first != second
    sizes = f"with {min(first, second)} to {max(first, second)}"
    assert tells(f"global batch of {first} samples", trials)
    assert tells(sizes, trials)
    fixed = [trial(1, A, seconds=1.0), trial(2, B, seconds=2.0)]
    assert not tells("global batch", fixed)


def test_routing_that_was_forced_to_be_balanced_is_reported() -> None:
    def caveats_with(routing: Routing) -> list[str]:
        best = trial(9, C, seconds=0.1, routing=routing)
        return [s for s in answer([*eight(), best]).caveats if "about 20 %" in s]

    assert caveats_with("learned") == []
    assert len(caveats_with("balanced")) == 1


def test_experts_whose_tokens_cross_the_network_are_named() -> None:
    mixture = load_model("qwen3-30b-a3b")

    def caveats_with(expert_parallel: int) -> list[str]:
        best = strategy(tp=1, pp=1, expert_parallel=expert_parallel)
        return [
            s
            for s in answer([trial(1, best, seconds=1.0)], model=mixture).caveats
            if "network" in s
        ]

    assert caveats_with(8) == []
    assert caveats_with(16) == [
        "The best strategy's expert_parallel 16 spreads the experts over 16 GPUs, across nodes of "
        "8 GPUs: tokens cross the network to their experts and back in every layer."
    ]


def test_a_trainer_that_counts_another_model_is_reported() -> None:
    """One that counts biases and padding besides does not."""

    def caveats_with(share: float) -> list[str]:
        counted = MODEL.parameters * share
        others = [trial(n, s, seconds=2.0, trainer_parameters=counted) for n, s in ((3, B), (7, C))]
        return [s for s in answer([*eight(), *others]).caveats if "trainer counts" in s]

    assert caveats_with(1.04) == []
    [sentence] = caveats_with(0.5)
    half, whole = f"{round(MODEL.parameters / 2):,}", f"{MODEL.parameters:,}"
    assert sentence.startswith(f"In trial 3 and 1 more the trainer counts {half} parameters, and")
    assert f"has {whole}: it trains another model, or its adapter reads" in sentence


SHAPE = "RuntimeError: shape '[4096, 1, 32]' is invalid for input of size 131072"
INDEX = "IndexError: index out of range in self"


def crashed(number: int, subject: Strategy, error: str = SHAPE) -> Trial:
    return trial(number, subject, state=TrialState.CRASHED, error=error)


def crashes(trials: list[Trial]) -> list[str]:
    """The caveats about kinds that crashed, beside eight trials that ran."""
    return [sentence for sentence in answer([*eight(), *trials]).caveats if "crashed" in sentence]


def test_a_kind_that_never_ran_is_reported_once() -> None:
    """All with sequence parallelism crash, among them all of ZeRO 2 and all of micro-batch 4."""
    kinds: list[dict[str, Any]] = [{}, {"zero_stage": 2}, {"zero_stage": 2}, {"mbs": 4}, {"mbs": 4}]
    trials = [
        crashed(20 + number, strategy(tp=2, pp=2 ** (number % 3), sequence_parallel=True, **kind))
        for number, kind in enumerate(kinds)
    ]
    assert crashes(trials) == [
        f"All 5 trials with sequence parallelism crashed ({SHAPE}): the rate of such layouts is "
        "unknown."
    ]


def test_two_kinds_with_errors_of_their_own_are_two_sentences() -> None:
    trials = [crashed(20 + n, strategy(tp=2**n, pp=1, sequence_parallel=True)) for n in (1, 2, 3)]
    trials += [crashed(30 + n, strategy(pp=2**n, zero_stage=2), INDEX) for n in (0, 1)]
    first, second = crashes(trials)
    assert first.startswith("All 3 trials with sequence parallelism")
    assert second.startswith(f"Both trials with ZeRO 2 crashed ({INDEX})")


def test_values_of_one_dimension_that_crash_alike_are_one_kind() -> None:
    """The numbers in an error differ from layout to layout; long errors are cut."""
    trials = [
        crashed(20 + size, strategy(mbs=size), f"size {size} is wrong" + "!" * 500)
        for size in (2, 4, 8)
    ]
    [sentence] = crashes(trials)
    assert sentence.startswith("All 3 trials with MBS 2, 4 or 8 crashed (size 2 is")
    assert len(sentence) < 300


def test_two_dimensions_that_explain_the_same_trials_are_named() -> None:
    trials = [
        crashed(20 + n, strategy(pp=2**n, zero_stage=0, flash_attention=False)) for n in (0, 1)
    ]
    [sentence] = crashes(trials)
    assert sentence.startswith("Both trials without FlashAttention and with ZeRO 0 crashed")


def test_memory_is_a_layouts_own() -> None:
    kind = [strategy(tp=tp, pp=1, zero_stage=0) for tp in (1, 2, 4)]
    out = [trial(20 + n, s, state=TrialState.OOM) for n, s in enumerate(kind)]
    killed = "ended by SIGKILL (killed by hand, or because the machine ran out of RAM)"
    assert crashes(out) == []
    assert crashes([crashed(20 + n, s, killed) for n, s in enumerate(kind)]) == []
    [sentence] = crashes([out[0], *(crashed(21 + n, s) for n, s in enumerate(kind[1:]))])
    assert "with ZeRO 0 that did not run out of memory crashed" in sentence


@pytest.mark.parametrize(
    "other",
    [
        trial(30, strategy(pp=8, zero_stage=0), seconds=9.0),
        trial(30, strategy(pp=8, zero_stage=0), state=TrialState.TIMEOUT),
        crashed(30, strategy(pp=8, zero_stage=0), INDEX),
    ],
    ids=["one ran", "one was slow", "one crashed otherwise"],
)
def test_a_kind_of_which_anything_else_is_known_is_no_kind(other: Trial) -> None:
    alike = [crashed(20 + n, strategy(pp=2**n, zero_stage=0)) for n in (0, 1)]
    assert len(crashes(alike)) == 1
    assert crashes([*alike, other]) == []


def test_one_crash_is_no_kind() -> None:
    assert crashes([crashed(20, strategy(zero_stage=0))]) == []


def test_a_trial_that_was_lost_tells_nothing_of_its_kind() -> None:
    alike = [crashed(20 + n, strategy(pp=2**n, zero_stage=0)) for n in (0, 1)]
    lost = trial(30, strategy(pp=8, zero_stage=0), state=TrialState.NODE_FAIL)
    assert crashes([*alike, lost]) == crashes(alike)
