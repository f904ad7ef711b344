"""How right explanations are, on simulated machines of which the truth is known.

    python tests/benchmarks/explanation_quality.py [--worlds N] [--trials N] [--surprise S]

For each question and machine (those of `search_quality.py`) a belief is fitted to trials of layouts
at random and of the five best. Printed is Kendall's tau of what is said of the space with the
truth: the order of the dimensions by their impact, and of the strategies' contributions; how often
80 % intervals of impacts and of steps hold it; how far what is predicted beyond the edge of a space
is from what runs there; and the seconds of one core. Beside it the order of the dimensions by
Optuna's fANOVA on the rates of the same trials. All figures are simulated.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import optuna
from scipy.stats import kendalltau
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array
from autotune.explanation import BelievedRates, DimensionImpact, edges, impacts, marginal
from autotune.search import SearchTrial
from search_spaces.lattice import Lattice
from tests.benchmarks.worlds.machine import RealMachine
from tests.benchmarks.worlds.world import QUESTIONS, World

BEST = 5
"""Of the layouts, which a search ends up with, besides those at random."""

CLOSE = 0.15
"""Relative error of a prediction beyond the edge that is small enough to try it."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What was said of one space, against the truth.

    Attributes:
        of_dimensions, of_contributions: Kendall's tau; of_fanova: the peer's, of dimensions.
        impacts_held, steps_held: whether an interval holds the truth, for each.
        edge_errors: relative ones, for each strategy beyond an edge.
    """

    strategies: int
    of_dimensions: float
    of_contributions: float
    of_fanova: float
    impacts_held: tuple[bool, ...]
    steps_held: tuple[bool, ...]
    edge_errors: tuple[float, ...]
    seconds: float


class Truth:
    """The machine of a world as it is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._real = RealMachine.of(world.space.machine, seed=world.seed, surprise=world.surprise)

    def log_rates(self, lattice: Lattice) -> Array:
        """Logarithm of tokens/s, whether a strategy fits or not, shape (n,)."""
        transformer = self._world.space.transformer
        seconds, _ = self._real.measure(transformer, lattice)
        return np.asarray(np.log(lattice.global_batch_size * transformer.seq_length / seconds))

    def rates(self, believed: BelievedRates) -> BelievedRates:
        exact = self.log_rates(believed.lattice)
        return replace(believed, log_rate=exact, draws=exact[:, np.newaxis])


def judged(world: World, *, trials: int) -> Judgement:
    some = np.random.default_rng(world.seed).permutation(len(world.rates))[:trials]
    rows = dict.fromkeys([*some.tolist(), *np.argsort(-world.rates)[:BEST].tolist()])
    ended = [world.trial(row) for row in rows]
    observed = [trial.observation(world.space.transformer) for trial in ended]
    calibration = Calibration.of(world.space.machine, [each for each in observed if each])
    started = time.perf_counter()
    rates = BelievedRates.of(world.space, calibration)
    found = impacts(rates)
    curves = [marginal(rates, each.dimension) for each in found]
    seconds = time.perf_counter() - started
    truth = Truth(world)
    exact = truth.rates(rates)
    true = {each.dimension: each for each in impacts(exact)}
    names = [each.dimension for each in found]
    sizes = [true[name].impact for name in names]
    steps_held = [
        step.low <= true_step.change <= step.high
        for curve in curves
        for step, true_step in zip(curve.steps, marginal(exact, curve.dimension).steps, strict=True)
    ]
    return Judgement(
        strategies=len(rates.lattice),
        of_dimensions=_tau([each.impact for each in found], sizes),
        of_contributions=_tau(*_contributions(found, true)),
        of_fanova=_tau(_fanova(world, ended, names), sizes),
        impacts_held=tuple(
            each.low <= size <= each.high for each, size in zip(found, sizes, strict=True)
        ),
        steps_held=tuple(steps_held),
        edge_errors=tuple(_edge_errors(world, calibration, truth)),
        seconds=seconds,
    )


def _contributions(
    found: Sequence[DimensionImpact], true: dict[str, DimensionImpact]
) -> tuple[Array, Array]:
    pairs = [(each.contribution, true[each.dimension].contribution) for each in found]
    one, other = (np.concatenate(both) for both in zip(*pairs, strict=True))
    return one, other


def _tau(one: Sequence[float] | Array, other: Sequence[float] | Array) -> float:
    return float(kendalltau(np.asarray(one), np.asarray(other)).statistic)


def _edge_errors(world: World, calibration: Calibration, truth: Truth) -> list[float]:
    best = world.layouts.lattice.strategy(int(np.argmax(world.rates)))
    report = edges(world.space, calibration, best)
    beyond = [each for edge in report.edges for each in edge.beyond]
    beyond += [report.together] if report.together else []
    if not beyond:
        return []
    lattice = Lattice.of(
        [best, *(each.strategy for each in beyond)],
        gpus_per_node=world.space.machine.gpus_per_node,
    )
    leads = truth.log_rates(lattice)
    ratios = np.exp(leads[1:] - leads[0])
    return [abs(e.relative / ratio - 1.0) for e, ratio in zip(beyond, ratios, strict=True)]


def _fanova(world: World, ended: Sequence[SearchTrial], names: Sequence[str]) -> list[float]:
    """Return the importance of each dimension by Optuna, of what ran."""
    ran = [trial for trial in ended if trial.state == "ok"]
    values = {name: sorted({getattr(t.strategy, name) for t in ran}, key=str) for name in names}
    gpus = world.space.machine.gpus_per_node
    study = optuna.create_study(direction="maximize")
    for trial in ran:
        seconds = trial.iteration_time_s or np.inf
        study.add_trial(
            optuna.trial.create_trial(
                params={name: getattr(trial.strategy, name) for name in names},
                distributions={
                    name: optuna.distributions.CategoricalDistribution(values[name])
                    for name in names
                },
                value=float(np.log(trial.strategy.global_batch_size(gpus) / seconds)),
            )
        )
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return [shares.get(name, 0.0) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=3, help="machines for each question")
    parser.add_argument("--trials", type=int, default=20, help="of layouts at random")
    parser.add_argument("--surprise", type=float, default=0.1)
    chosen = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    every: list[Judgement] = []
    print(f"{'question':38}{'strategies':>11}{'dimensions':>11}{'fANOVA':>8}{'values':>8}{'s':>7}")
    with threadpool_limits(limits=1):
        for name, question in QUESTIONS.items():
            worlds = [
                World.of(question, seed=seed, surprise=chosen.surprise)
                for seed in range(1, 1 + chosen.worlds)
            ]
            judgements = [judged(world, trials=chosen.trials) for world in worlds]
            every += judgements
            print(f"{name:38}{judgements[0].strategies:11}{_row(judgements)}")
    print(f"{'all':49}{_row(every)}")
    held = [np.mean([h for j in every for h in j.impacts_held])]
    held.append(np.mean([h for j in every for h in j.steps_held]))
    print(f"80 % intervals hold {held[0]:.0%} of the impacts and {held[1]:.0%} of the steps")
    errors = np.array([error for each in every for error in each.edge_errors])
    print(
        f"beyond the edge: {np.mean(errors <= CLOSE):.0%} of {len(errors)} within {CLOSE:.0%}, "
        f"median error {np.median(errors):.1%}"
    )


def _row(judgements: Sequence[Judgement]) -> str:
    means = [
        float(np.mean([getattr(each, name) for each in judgements]))
        for name in ("of_dimensions", "of_fanova", "of_contributions", "seconds")
    ]
    return f"{means[0]:11.2f}{means[1]:8.2f}{means[2]:8.2f}{means[3]:7.2f}"


if __name__ == "__main__":
    main()
