"""DeepHyper tunes the layout of a 22B GPT on four nodes of Frontier, with no service at all.

The trials are simulated; with `evaluators.local.LocalBackend()` in place of `SimulatedBackend()`
they would train for real on this machine. Give it a folder for the trials; the trials of an
earlier run in the same folder are not run again:

    python docs/examples/cbo_without_service.py trials
"""

from __future__ import annotations

import sys
from pathlib import Path

from deephyper.hpo import CBO

from evaluators.deephyper import BackendEvaluator
from evaluators.simulated import SimulatedBackend
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model
from search_spaces.space import SearchSpace

SEED = 1


def main(directory: Path) -> None:
    space = SearchSpace.build(
        load_model("gpt-22b"),
        load_machine("frontier"),
        nodes=4,
        choices={
            "tensor_parallel": [1, 2, 4, 8],
            "pipeline_parallel": [1, 2, 4, 8, 16],
            "micro_batch_size": [1, 2, 4, 8],
            "zero_stage": [0, 1],
            "num_nodes": 4,
            "precision": "fp16",
        },
        batch=GlobalBatch.of(640),
    )
    evaluator = BackendEvaluator(
        SimulatedBackend(), space=space, directory=directory, num_workers=4, seed=SEED
    )
    search = CBO(
        space.problem(SEED),
        random_state=SEED,
        surrogate_model="ET",
        acq_func="UCB",
        acq_optimizer="sampling",  # among the legal strategies that the problem samples
        # Out of memory is common here: without these, DeepHyper gives up at the 100th failure.
        acq_optimizer_kwargs={"max_total_failures": -1, "filter_failures": "mean"},
        multi_point_strategy="cl_min",
        n_initial_points=5,
        checkpoint_history_to_csv=False,
    )
    results = search.search(evaluator, max_evals=24)

    measured = results[results["m:status"] == "ok"].astype({"objective": float})
    best = measured.loc[measured["objective"].idxmax()]
    print(f"{len(results)} trials, {len(results) - len(measured)} failed, all simulated")
    layout = ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "zero_stage")
    print("best:", ", ".join(f"{name} {best[f'p:{name}']}" for name in layout))
    print(f"{best['objective']:.0f} tokens/s, {100 * best['m:hfu']:.1f} % of peak (hardware FLOPs)")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
