"""Megatron-DeepSpeed as a program: on a real Slurm with a stand-in for its checkout."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import ClusterProfile, Megatron
from evaluators.program.megatron_deepspeed import MegatronProgram
from evaluators.trial import TrialOutcome, TrialRequest
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from tests.cluster import Cluster
from tests.evaluators.local.trials import request, strategy
from tests.evaluators.program.checkout import make_checkout
from tests.evaluators.program.jobs import SHARED, Job, ended

TWO_BY_TWO = replace(strategy(1, 2, zero_stage=1), num_nodes=2)
MIB = 2**-10
LOG_OF_THE_TRIAL = Path("trials", "t1", "attempt-1", "trial.log")


def profile(checkout: Path, *arguments: str, **megatron: Any) -> ClusterProfile:
    return ClusterProfile(
        name="test",
        program="megatron-deepspeed",
        slurm=SHARED,
        megatron=Megatron(path=str(checkout), arguments=arguments, **megatron),
    )


def trial(folder: Path, layout: Strategy = TWO_BY_TWO, **others: Any) -> TrialRequest:
    asked = {"accumulations": (2, 4), "measured_iterations": 3, **others}
    return request(folder / "trials" / "t1", layout, ranks=2, **asked)


Run = Callable[..., TrialOutcome]


@pytest.fixture
def run(tmp_path: Path, slurm: Cluster) -> Run:
    """Runs a trial whose checkout misbehaves so."""
    assert slurm.nodes

    def started(misbehaviour: str = "", **others: Any) -> TrialOutcome:
        words = ("--misbehave", misbehaviour) if misbehaviour else ()
        site = profile(make_checkout(tmp_path / "a checkout"), *words)
        return Job.submit(MegatronProgram(site), site, trial(tmp_path, **others)).outcome()

    return started


@pytest.mark.xdist_group("slurm")
def test_a_trial_measures_two_batches_from_one_start(run: Run) -> None:
    outcome = run()
    assert outcome.status is TrialState.OK, outcome
    assert [m.gradient_accumulation_steps for m in outcome.measurements] == [2, 4]
    small, large = outcome.measurements
    assert len(small.iteration_times_s) == len(large.iteration_times_s) == 3
    assert small.iteration_time_s >= 0.03
    assert large.iteration_time_s >= 0.05
    # Pipeline of two over two replicas: ranks 0 and 2 are of the first replica.
    assert outcome.peak_memory_gib == (4096 * MIB, 4098 * MIB)
    assert outcome.loss == pytest.approx(10 / 7)
    assert "python" in outcome.versions
    assert "neither nvidia-smi nor rocm-smi" in outcome.energy_note
    assert outcome.log_tail.count("rank 3 of 4") == 1


@pytest.mark.xdist_group("slurm")
def test_three_batches_take_two_starts_in_one_job(run: Run) -> None:
    outcome = run(accumulations=(2, 4, 8))
    assert outcome.status is TrialState.OK, outcome
    assert [m.gradient_accumulation_steps for m in outcome.measurements] == [2, 4, 8]
    assert all(len(m.iteration_times_s) == 3 for m in outcome.measurements)


@pytest.mark.xdist_group("slurm")
@pytest.mark.parametrize(
    ("misbehaviour", "status", "words"),
    [
        ("oom", TrialState.OOM, "out of memory"),
        ("kill", TrialState.CRASHED, "Killed"),
        ("no-ramp-up", TrialState.CRASHED, "global batch of 8 where 4 was asked for"),
    ],
)
def test_what_goes_wrong_is_told_by_its_root_cause(
    run: Run, misbehaviour: str, status: TrialState, words: str
) -> None:
    outcome = run(misbehaviour)
    assert outcome.status is status, outcome
    assert words in (outcome.error or "")
    assert outcome.measurements == ()


@pytest.mark.xdist_group("slurm")
def test_a_run_is_ended_as_soon_as_its_spread_is_small(run: Run, tmp_path: Path) -> None:
    """It is started for a thousand iterations, whose spread is small after a few."""
    outcome = run(most_iterations=1000, target_spread=0.5)
    assert outcome.status is TrialState.OK, outcome
    small, large = outcome.measurements
    assert len(small.iteration_times_s) == 3
    assert 3 <= len(large.iteration_times_s) < 100
    assert "autotune ends the run after iteration" in (tmp_path / LOG_OF_THE_TRIAL).read_text()


@pytest.mark.xdist_group("slurm")
def test_a_run_far_below_the_best_is_given_up_and_ends_well(run: Run) -> None:
    """Though the lines of one of its ranks come late, as from a busy node."""
    limits = {"give_up_above_s": (0.001, 0.001, 0.001), "measured_iterations": 100}
    outcome = run("late", accumulations=(2, 4, 8), **limits)
    assert outcome.status is TrialState.OK, outcome
    [only] = outcome.measurements
    assert only.gradient_accumulation_steps == 2
    assert len(only.iteration_times_s) == 2
    assert outcome.peak_memory_gib == (4096 * MIB, 4098 * MIB)


@pytest.mark.xdist_group("slurm")
def test_a_watched_run_that_fails_has_failed(run: Run) -> None:
    outcome = run("crash", most_iterations=1000, target_spread=0.5)
    assert outcome.status is TrialState.CRASHED, outcome
    assert "left the plane" in (outcome.error or "")


@pytest.mark.xdist_group("slurm")
def test_a_trial_that_hangs_is_ended_at_its_limit(tmp_path: Path, slurm: Cluster) -> None:
    site = profile(make_checkout(tmp_path / "checkout"), "--misbehave", "hang")
    job = Job.submit(MegatronProgram(site), site, trial(tmp_path, time_limit_s=2.0))
    assert job.ended().exit_code == 124
    slurm.wait_idle()


def test_a_synthetic_dataset_is_made_once_beside_the_trials(tmp_path: Path) -> None:
    program = MegatronProgram(profile(make_checkout(tmp_path / "checkout")))
    for number in (1, 2):
        program.files(trial(tmp_path), tmp_path / "trials" / f"t{number}" / "attempt-1")
    made = sorted(path.suffix for path in (tmp_path / "trials" / "datasets").iterdir())
    assert made == [".bin", ".idx"]


def test_the_users_own_dataset_is_taken_as_it_is(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "checkout")
    program = MegatronProgram(profile(checkout, data_path="/data/my text"))
    folder = tmp_path / "trials" / "t1" / "attempt-1"
    program.files(trial(tmp_path), folder)
    assert not (tmp_path / "trials").exists()


def test_a_strategy_it_cannot_run_is_refused_before_queueing(tmp_path: Path) -> None:
    program = MegatronProgram(profile(tmp_path))
    interleaved = replace(TWO_BY_TWO, virtual_stages=2)
    with pytest.raises(InvalidInput, match="more than 2 stages"):
        program.files(trial(tmp_path, interleaved), tmp_path / "t" / "attempt-1")


def test_a_profile_without_a_checkout_has_no_such_program() -> None:
    with pytest.raises(ValueError, match=r"no \[megatron\]"):
        MegatronProgram(ClusterProfile(name="bare", program="megatron-deepspeed"))


def line(number: int, *, batch: int, ms: float = 100.0, **others: object) -> str:
    """An iteration line of the main branch."""
    skipped = others.get("skipped", 0)
    return (
        f" iteration {number:8d}/       7 | consumed samples: {4 * number:12d} | elapsed time per"
        f" iteration (ms): {ms:.1f} | learning rate: 1.000E-04 | global batch size: {batch:5d} |"
        f" lm loss: 5.000000E+00 | number of skipped iterations: {skipped:3} |"
        " number of nan iterations:   0 |\n"
    )


def outcome_of(folder: Path, text: str, **others: Any) -> TrialOutcome:
    attempt = folder / "trials" / "t1" / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "trial.log").write_text(text)
    program = MegatronProgram(profile(folder, data_path="/data"))
    return program.outcome(trial(folder, **others), attempt, ended(0))


COMPLETE = [line(n, batch=4, ms=100 + n) for n in range(1, 5)] + [
    line(n, batch=8, ms=200 + n) for n in range(5, 8)
]


OVERFLOW = "[deepspeed] OVERFLOW! Rank 3 Skipping step. Attempted loss scale: 4096, reducing\n"


def test_a_step_that_was_skipped_is_not_timed(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, "".join([*COMPLETE[:3], OVERFLOW, *COMPLETE[3:]]))
    assert outcome.status is TrialState.OK, outcome
    assert [len(m.iteration_times_s) for m in outcome.measurements] == [2, 3]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (COMPLETE[:3], "GAS 2: the log has 3 of 4 iterations"),
        ([part for line in COMPLETE for part in (OVERFLOW, line)], "OVERFLOW"),
        (
            [line.replace("nan iterations:   0", "nan iterations:   1") for line in COMPLETE],
            "no number",
        ),
    ],
)
def test_a_log_without_the_iterations_that_were_asked_for(
    lines: list[str], words: str, tmp_path: Path
) -> None:
    outcome = outcome_of(tmp_path, "".join(lines))
    assert outcome.status is TrialState.CRASHED, outcome
    assert words in (outcome.error or "")
    assert outcome.measurements == ()


def test_the_warm_up_of_a_start_is_left_out(tmp_path: Path) -> None:
    outcome = outcome_of(tmp_path, "".join(COMPLETE))
    times = [m.iteration_times_s for m in outcome.measurements]
    assert times[0] == pytest.approx((0.102, 0.103, 0.104))
    assert times[1] == pytest.approx((0.205, 0.206, 0.207))


def test_an_iteration_after_an_evaluation_is_left_out(tmp_path: Path) -> None:
    evaluation = (
        " validation loss at iteration 6 | lm loss value: 5.0E+00 | lm loss PPL: 1.4E+02 | \n"
    )
    text = "".join([*COMPLETE[:6], evaluation, *COMPLETE[6:]])
    outcome = outcome_of(tmp_path, text)
    assert outcome.measurements[1].iteration_times_s == pytest.approx((0.205, 0.206))


@pytest.mark.parametrize(
    ("micro_batches", "size", "same"), [(2, 1, True), (1, 1, False), (2, 4, False)]
)
def test_a_batch_that_deepspeed_cut_differently_is_not_measured(
    tmp_path: Path, micro_batches: int, size: int, *, same: bool
) -> None:
    """Two halves of a configuration that disagree: each of Megatron's own lines looks right."""
    says = (
        "[2026-01-01 10:00:00,123] [INFO] [engine.py:98:__init__] CONFIG: "
        f"micro_batches={micro_batches} micro_batch_size={size}\n"
    )
    outcome = outcome_of(tmp_path, says + "".join(COMPLETE))
    assert (outcome.status is TrialState.OK) == same, outcome
    if not same:
        assert outcome.status is TrialState.CRASHED
        words = f"{micro_batches} micro-batches of {size} where 2 of 1 were asked for"
        assert words in (outcome.error or "")
        assert outcome.measurements == ()


def test_energy_is_told_where_power_was_sampled(tmp_path: Path) -> None:
    samples = [
        f"[autotune power] n0{n} 17000000{k}.5 {100 * n}.0\n" for k in range(3) for n in (1, 2)
    ]
    text = "".join([part for text in COMPLETE for part in (*samples, text)])
    outcome = outcome_of(tmp_path, text)
    # Both nodes draw 300 W through 0.927 s, in which 3 x 4 and 3 x 8 samples of 16 tokens pass.
    assert outcome.gpu_joules_per_token == pytest.approx(300 * 0.927 / (36 * 16))
    assert "36 times on 2 nodes" in outcome.energy_note


def test_versions_that_are_no_versions_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "trials" / "t1" / "attempt-1"
    assert outcome_of(tmp_path, "".join(COMPLETE)).versions == {}
    (folder / "versions.json").write_text(json.dumps(["torch"]))
    program = MegatronProgram(profile(tmp_path, data_path="/data"))
    assert program.outcome(trial(tmp_path), folder, ended(0)).versions == {}
