"""DeepHyper's searches through Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deephyper.hpo import CBO

from evaluators.slurm.deephyper import SlurmEvaluator
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_model
from search_spaces.space import SearchSpace
from tests.cluster.cluster import Cluster
from tests.evaluators.program.checkout import make_checkout
from tests.evaluators.slurm.trials import PROFILE, QUICK, Lines, machine
from tests.patience import TRAINING_S, until

pytestmark = pytest.mark.xdist_group("slurm")

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "slurm_evaluator.py"
MACHINE = """
gpu = "none"
gpus_per_node = 2
max_nodes = 8
memory_gib = 4.0
memory_bandwidth_gb_per_s = 10.0
intra_node_gb_per_s = 1.0
inter_node_gb_per_s = 1.0
"""


def test_a_search_measures_through_slurm_and_then_goes_on(slurm: Cluster, tmp_path: Path) -> None:
    """DeepHyper closes its evaluator after each search; a notebook's next cell uses it again."""
    space = SearchSpace.build(
        load_model("tiny"),
        machine(),
        nodes=2,
        choices={"tensor_parallel": [1, 2], "pipeline_parallel": [1, 2], "precision": "fp32"},
        batch=GlobalBatch.of(16),
    )
    made = SlurmEvaluator(
        profile=PROFILE, space=space, directory=tmp_path / "trials", program=Lines(text=QUICK)
    )
    for _ in range(2):
        search = CBO(
            space.problem(seed=1),
            random_state=1,
            acq_optimizer="sampling",
            log_dir=str(tmp_path),
            checkpoint_history_to_csv=False,
        )
        results = search.search(made, max_evals=2)
        assert all(float(objective) > 0 for objective in results["objective"])
    until(lambda: not slurm.jobs())


@pytest.mark.soak
def test_the_example_runs_on_the_nodes(slurm: Cluster, tmp_path: Path) -> None:
    (tmp_path / "machine.toml").write_text(MACHINE)
    checkout = make_checkout(tmp_path / "Megatron-DeepSpeed")
    (tmp_path / "profile.toml").write_text(
        f'python = "{sys.executable}"\n'
        '[slurm]\ngpu_request = "none"\nexclusive = false\n[polling]\ninterval_s = 0.5\n'
        f'[trainer]\nadapter = "{checkout}/quick.toml"\n'
    )
    words = [*("--model", "tiny", "--machine", str(tmp_path / "machine.toml"), "--nodes", "1")]
    done = subprocess.run(
        [
            *(sys.executable, str(EXAMPLE), str(tmp_path / "profile.toml"), str(tmp_path / "t")),
            *(*words, "--global-batch", "16", "--trials", "1", "--at-once", "1"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TRAINING_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert " trials, 0 failed" in done.stdout, done.stdout
    assert "tokens/s" in done.stdout
    until(lambda: not slurm.jobs())
