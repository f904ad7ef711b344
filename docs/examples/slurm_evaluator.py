"""DeepHyper tunes a layout by real training runs, each a job of Slurm, with no service at all.

On a login node, in a notebook's terminal, or inside a batch job of your own:

    python docs/examples/slurm_evaluator.py frontier trials --model gpt-22b --nodes 4

The profile is a ready one or the path of your own; the folder must be on a file system that the
nodes see. Ended half-way and started again with the same folder, it finds the jobs that ran on and
runs no trial twice. With `--mode pilot` the trials are steps of the allocation it is started in.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from deephyper.hpo import CBO

from evaluators.cluster import load_profile
from evaluators.slurm.deephyper import SlurmEvaluator
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model, read_machine
from search_spaces.space import SearchSpace

SEED = 1


def main(args: argparse.Namespace) -> None:
    named = args.profile
    profile = load_profile(Path(named) if named.endswith(".toml") else named)
    machine = read_machine(args.machine) if args.machine else load_machine(profile.machine)
    space = SearchSpace.build(
        load_model(args.model),
        machine,
        nodes=args.nodes,
        choices={
            "tensor_parallel": [1, 2, 4, 8],
            "pipeline_parallel": [1, 2, 4, 8],
            "micro_batch_size": [1, 2, 4, 8],
            "zero_stage": 1,
            "num_nodes": args.nodes,
            "precision": "bf16",
        },
        batch=GlobalBatch.of(args.global_batch),
    )
    evaluator = SlurmEvaluator(
        profile=profile,
        space=space,
        directory=args.folder,
        mode=args.mode,
        num_workers=args.at_once,
        time_limit_s=1200.0,
        seed=SEED,
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
    results = search.search(evaluator, max_evals=args.trials)

    measured = results[results["m:status"] == "ok"].astype({"objective": float})
    print(f"{len(results)} trials, {len(results) - len(measured)} failed")
    if measured.empty:
        print("the first error:", results["m:error"].iloc[0])
        return
    best = measured.loc[measured["objective"].idxmax()]
    layout = ("tensor_parallel", "pipeline_parallel", "micro_batch_size")
    print("best:", ", ".join(f"{name} {best[f'p:{name}']}" for name in layout))
    print(f"{best['objective']:.0f} tokens/s; its log: {best['m:log_path']}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("profile", help="of the cluster: its name, or a TOML file")
    parser.add_argument("folder", type=Path, help="for the trials")
    parser.add_argument("--model", default="gpt-22b")
    parser.add_argument("--machine", type=Path, help="a TOML file; otherwise the profile's")
    parser.add_argument("--nodes", type=int, default=4, help="of each trial")
    parser.add_argument("--global-batch", type=int, default=640, help="sequences")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--at-once", type=int, default=4, help="trials in Slurm's hands")
    parser.add_argument("--mode", choices=["sbatch", "pilot"], default="sbatch")
    return parser.parse_args()


if __name__ == "__main__":
    main(arguments())
