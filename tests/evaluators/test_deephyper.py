from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deephyper.evaluator import HPOJob
from deephyper.hpo import CBO

from autotune.cost_model import Parameters, estimate, perturbed
from evaluators.adapter.reading import read_adapter
from evaluators.cluster import ClusterProfile
from evaluators.deephyper import ATTEMPTS, BackendEvaluator
from evaluators.local.backend import LocalProgramBackend
from evaluators.simulated import SimulatedBackend
from evaluators.trial import Backend, TrialOutcome, TrialProgress, TrialRequest
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace
from tests.evaluators.adapter.samples import MACHINE, MODEL, strategy
from tests.patience import TRAINING_S

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "cbo_without_service.py"

SPACE = SearchSpace.build(
    load_model("gpt-22b"),
    load_machine("frontier"),
    nodes=2,
    choices={
        "tensor_parallel": [1, 2, 4, 8],
        "pipeline_parallel": [1, 2, 4, 8],
        "micro_batch_size": [1, 2, 4],
        "zero_stage": [0, 1],
        "num_nodes": 2,
        "precision": "fp16",
    },
    batch=GlobalBatch.of(320),
)

FITTING = {
    "tensor_parallel": 1,
    "pipeline_parallel": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 160,
    "zero_stage": 1,
}
TOO_LARGE = FITTING | {"pipeline_parallel": 1, "gradient_accumulation_steps": 20, "zero_stage": 0}
ILLEGAL = FITTING | {"pipeline_parallel": 7}


class Counting(SimulatedBackend):
    """The simulated backend, counting the status calls and what is submitted."""

    def __init__(self, *, time_scale: float = 0.0) -> None:
        super().__init__(time_scale=time_scale)
        self.submitted: list[str] = []
        self.polled: list[int] = []

    def submit(self, request: TrialRequest) -> None:
        self.submitted.append(request.token)
        super().submit(request)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        self.polled.append(len(requests))
        return super().poll(requests)


class Forgetful(Counting):
    """Loses every trial, as a cluster whose controller was rolled back does."""

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        for request in requests:
            shutil.rmtree(request.directory)
        return super().poll(requests)


def run(
    directory: Path, *strategies: dict[str, Any], backend: Backend | None = None, **options: Any
) -> list[HPOJob]:
    """The finished jobs, in the order of their strategies."""
    given: dict[str, Any] = {"space": SPACE, "directory": directory} | options
    evaluator = BackendEvaluator(backend or SimulatedBackend(), **given)
    evaluator.submit(list(strategies))
    jobs = {job.id: job for job in evaluator.gather("ALL")}
    evaluator.close()
    return [jobs[key] for key in sorted(jobs, key=lambda key: int(key.split(".")[1]))]


def best_of_all() -> float:
    """Tokens a second of the best layout on the machine that is simulated, noise apart."""
    lattice = SPACE.lattice()
    truth = perturbed(Parameters.default(SPACE.machine), seed=0)
    real = estimate(SPACE.transformer, SPACE.machine, lattice, parameters=truth)
    samples = lattice.global_batch_size[real.fits] / real.iteration_time_s[real.fits]
    return float(samples.max() * SPACE.transformer.seq_length)


def test_energy_that_nothing_reports_is_refused_before_trials(tmp_path: Path) -> None:
    machine = replace(SPACE.machine, host_watt=None)
    space = SearchSpace.build(
        SPACE.transformer, machine, nodes=2, choices=FITTING, batch=GlobalBatch.of(320)
    )
    with pytest.raises(InvalidInput, match="it has no host_watt") as refused:
        run(tmp_path, FITTING, space=space, objective="tokens_per_joule")
    assert refused.value.field == "objective"
    [job] = run(tmp_path, FITTING, objective="tokens_per_joule")
    assert job.objective > 0


BUFFERED = """\
command = ["{python}", "-c", '''
import sys, time
log = open(1, "w", buffering=1 << 16)
for step in range(int(sys.argv[1])):
    time.sleep(0.01)
    print("step", step + 1, file=log)
''', "{iterations}"]
[set]
"$GAS" = "{gradient_accumulation_steps}"
[[read]]
log = 'step (?P<step>\\d+)'
arrival = true
"""


def test_lines_that_arrive_together_are_no_times(tmp_path: Path) -> None:
    (tmp_path / "buffered.toml").write_text(BUFFERED)
    adapter = read_adapter(tmp_path / "buffered.toml")
    profile = ClusterProfile(name="local", adapter=adapter)
    space = SearchSpace.build(MODEL, MACHINE, nodes=1, choices={"gradient_accumulation_steps": 2})
    backend = LocalProgramBackend(profile)
    [job] = run(tmp_path, strategy().as_dict(), backend=backend, space=space)
    backend.close()
    assert job.objective == "F_crashed"
    assert "the lines of several iterations arrive together" in job.metadata["error"]


def test_a_search_of_deephyper_finds_a_good_layout(tmp_path: Path) -> None:
    evaluator = BackendEvaluator(SimulatedBackend(), space=SPACE, directory=tmp_path, num_workers=2)
    search = CBO(
        SPACE.problem(seed=4),
        random_state=4,
        surrogate_model="ET",
        acq_func="UCB",
        acq_optimizer="sampling",
        acq_optimizer_kwargs={"max_total_failures": -1, "filter_failures": "mean"},
        n_initial_points=4,
        log_dir=str(tmp_path),
        checkpoint_history_to_csv=False,
    )
    results = search.search(evaluator, max_evals=20)
    measured = results[results["m:status"] == "ok"]
    failed = results[results["m:status"] != "ok"]
    rates = measured["objective"].astype(float)
    assert len(results) >= 20
    assert not failed.empty
    assert set(failed["objective"]) <= {"F_oom"}
    assert rates.max() > 0.95 * best_of_all()
    assert results["m:simulated"].all()
    assert (rates == measured["m:tokens_per_s"]).all()


def test_the_objective_is_the_rate_at_the_strategys_own_gas(tmp_path: Path) -> None:
    (job,) = run(tmp_path, FITTING)
    metadata = job.metadata
    assert metadata["gradient_accumulation_steps"] == 160
    assert metadata["global_batch_size"] == 320
    assert job.objective == pytest.approx(320 * 2048 / metadata["iteration_time_s"])
    assert metadata["status"] == "ok"
    assert Path(metadata["log_path"]).is_file()
    assert metadata["hfu"] > metadata["mfu"] > 0
    assert metadata["node_hours"] == pytest.approx(metadata["duration_s"] * 2 / 3600)
    (each,) = run(tmp_path, FITTING, objective="tokens_per_s_per_gpu")
    assert each.objective == pytest.approx(job.objective / 16)


def test_failures_are_named_and_keep_their_cause(tmp_path: Path) -> None:
    too_large, illegal = run(tmp_path, TOO_LARGE, ILLEGAL)
    assert too_large.objective == "F_oom"
    assert "64 GiB" in too_large.metadata["error"]
    assert illegal.objective == "F_refused"
    assert "7" in illegal.metadata["error"]
    assert len(list(tmp_path.iterdir())) == 1, "a refused strategy is not run"


def test_a_trial_beyond_its_time_limit_times_out(tmp_path: Path) -> None:
    (job,) = run(tmp_path, FITTING, time_limit_s=50)
    assert job.objective == "F_timeout"
    assert job.metadata["duration_s"] == 50


def test_a_strategy_is_measured_once_however_often_requested(tmp_path: Path) -> None:
    first, again = run(tmp_path, FITTING, FITTING, num_workers=2)
    (later,) = run(tmp_path, FITTING)
    assert first.objective == again.objective == later.objective
    assert len(list(tmp_path.iterdir())) == 1


def test_another_protocol_or_seed_is_another_trial(tmp_path: Path) -> None:
    for seed, iterations in [(0, 3), (1, 3), (0, 4)]:
        run(tmp_path, FITTING, measured_iterations=iterations, seed=seed)
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("workers", [1, 3])
def test_trials_run_up_to_the_workers_and_share_a_status_call(tmp_path: Path, workers: int) -> None:
    backend = Counting(time_scale=0.002)
    strategies = [
        FITTING | {"micro_batch_size": m, "gradient_accumulation_steps": 160 // m}
        for m in (1, 2, 4)
    ]
    started = time.monotonic()
    run(tmp_path, *strategies, backend=backend, num_workers=workers, poll_interval_s=0.05)
    assert max(backend.polled) == workers
    assert len(backend.polled) <= (time.monotonic() - started) / 0.05 + 1


def test_a_trial_that_vanishes_is_restarted_and_then_given_up(tmp_path: Path) -> None:
    backend = Forgetful()
    (job,) = run(tmp_path, FITTING, backend=backend, poll_interval_s=0.01)
    assert job.objective == "F_lost"
    assert f"vanished {ATTEMPTS} times" in job.metadata["error"]
    assert len(backend.submitted) == ATTEMPTS


def test_a_search_out_of_time_cancels_what_runs(tmp_path: Path) -> None:
    backend = Counting(time_scale=1.0)
    evaluator = BackendEvaluator(backend, space=SPACE, directory=tmp_path, num_workers=2)
    search = CBO(
        SPACE.problem(seed=3),
        random_state=3,
        acq_func="UCB",
        acq_optimizer="sampling",
        log_dir=str(tmp_path),
        checkpoint_history_to_csv=False,
    )
    started = time.monotonic()
    results = search.search(evaluator, timeout=1)
    assert time.monotonic() - started < 60
    assert set(results["objective"]) == {"F_cancelled"}
    for token in backend.submitted:
        assert '"cancelled"' in (tmp_path / token / "result.json").read_text()


@pytest.mark.soak
def test_the_example_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "trials")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TRAINING_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all simulated" in done.stdout
    assert "tokens/s" in done.stdout
