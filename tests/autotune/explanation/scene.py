"""Simulated machines, some trials of each, and what is believed after them."""

from __future__ import annotations

from functools import cache

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from tests.autotune.explanation.world import QUESTIONS, RealMachine, World

TABLE_V = "175B on 16 Frontier nodes, table V"
SURPRISE = 0.1
TRIALS = 20


@cache
def world(name: str = TABLE_V, *, seed: int = 1) -> World:
    return World.of(QUESTIONS[name], seed=seed, surprise=SURPRISE)


@cache
def known(name: str = TABLE_V, *, seed: int = 1, trials: int = TRIALS) -> Calibration:
    """After trials of layouts at random and of the five best, as a search ends with."""
    here = world(name, seed=seed)
    some = np.random.default_rng(seed).permutation(len(here.rates))[:trials]
    rows = [*some.tolist(), *np.argsort(-here.rates)[:5].tolist()]
    observed = [here.trial(row).observation(here.space.transformer) for row in rows]
    return Calibration.of(here.space.machine, [each for each in observed if each is not None])


def best(name: str = TABLE_V, *, seed: int = 1) -> Strategy:
    here = world(name, seed=seed)
    return here.layouts.lattice.strategy(int(np.argmax(here.rates)))


def true_log_rates(name: str, lattice: Lattice, *, seed: int = 1) -> Array:
    """Of a strategy on the machine as it is, whether it fits or not, shape (n,)."""
    here = world(name, seed=seed)
    real = RealMachine.of(here.space.machine, seed=seed, surprise=SURPRISE)
    seconds, _ = real.measure(here.space.transformer, lattice)
    tokens = lattice.global_batch_size * float(here.space.transformer.seq_length)
    return np.asarray(np.log(tokens / seconds))
