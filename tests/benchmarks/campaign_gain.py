"""What a plan expects a campaign to find, against what there is to be found on simulated machines.

    python tests/benchmarks/campaign_gain.py [--seeds 12] [--surprise 1]

With `--surprise 0` the formulas hold with other constants; with 1 the machines have costs that no
formula has.
"""

from __future__ import annotations

import argparse

import numpy as np

from autotune.calibration import general_knowledge
from autotune.prediction.candidates import Candidates
from autotune.schemas import CampaignCost
from tests.benchmarks.worlds.world import QUESTIONS, World

FREE = CampaignCost(trials=1, node_hours_per_trial=1.0, node_hours=1.0)


def main() -> None:
    """Print a row for each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=12, help="machines of each kind")
    parser.add_argument("--surprise", type=float, default=1.0, help="of costs without a formula")
    options = parser.parse_args()
    print(f"{'':36}{'expected':>10}{'1 in 10':>10}{'median':>10}{'mean':>10}{'above':>10}")
    for name, question in QUESTIONS.items():
        worlds = [
            World.of(question, seed=seed, surprise=options.surprise)
            for seed in range(options.seeds)
        ]
        space = worlds[0].space
        candidates = Candidates.of(
            space, general_knowledge(space.machine), objective="tokens_per_s", headroom_gib=0.0
        )
        gain = candidates.gain(FREE, tokens=None)
        # Rows of the candidates are those of the worlds: both are the layouts of the space.
        real = np.array([there(world, candidates) for world in worlds])
        print(
            f"{name:36}{gain.rate_gain:10.0%}{gain.rate_gain_high:10.0%}"
            f"{np.nanmedian(real):10.0%}{np.nanmean(real):10.0%}"
            f"{np.nanmean(real > gain.rate_gain_high):10.0%}"
        )


def there(world: World, candidates: Candidates) -> float:
    """Return by how much the best of a machine is better than the first in the predicted order that
    fits; NaN where none does."""
    fitting = [row for row in candidates.likely.tolist() if world.rates[row] > 0.0]
    return float(world.rates.max() / world.rates[fitting[0]] - 1.0) if fitting else float("nan")


if __name__ == "__main__":
    main()
