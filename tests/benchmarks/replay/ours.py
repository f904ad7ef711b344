"""Our search on a landscape: with what its stack showed before, a wrong data sheet, or predictions
that belong to other strategies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.mixture import Mixture
from autotune.calibration.quantity import Quantity
from autotune.calibration.relevance import relevance
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns, Rows
from autotune.search.belief import Belief
from autotune.search.choice import choose
from autotune.search.stopping import Outlook, reason_to_be_content
from autotune.search.surrogate import CalibratedRegressor
from search_spaces.machine import Machine
from tests.benchmarks.replay.imported import earlier_by_import
from tests.benchmarks.replay.landscapes import Landscape, Measurements
from tests.benchmarks.replay.trials import WITHIN, Grid, OwnStop, Revealed, revealed

KNOWN_BEFOREHAND = 20
"""Rows of other models that a warm search knows."""

WRONG_FIGURES = (
    "peak_tflops",
    "memory_bandwidth_gb_per_s",
    "intra_node_gb_per_s",
    "inter_node_gb_per_s",
)
"""Of the data sheet: one at a time is wrong."""

WRONG_FACTORS = (5.0, 0.2)
WRONG_VARIANTS = len(WRONG_FIGURES) * len(WRONG_FACTORS)

ROW = "row"
"""A column of its own, by which shuffled predictions know a strategy."""


def cold(landscape: Landscape) -> Search:
    return Search(landscape, landscape.machine)


def warm(landscape: Landscape, *, draw: int) -> Search:
    """With some rows of the stack known, drawn at random whatever their rate."""
    order = np.random.default_rng([KNOWN_BEFOREHAND, draw]).permutation(len(landscape.earlier))
    earlier = landscape.earlier.take(order[:KNOWN_BEFOREHAND])
    return Search(landscape, landscape.machine, earlier=earlier)


def imported(landscape: Landscape) -> Search:
    """With the rows of the stack known that the product selects after their import."""
    return Search(landscape, landscape.machine, earlier=earlier_by_import(landscape))


def wrong(landscape: Landscape, *, variant: int) -> Search:
    """With the `variant`-th of WRONG_FIGURES times WRONG_FACTORS."""
    factor_of, figure_of = divmod(variant, len(WRONG_FIGURES))
    figure, factor = WRONG_FIGURES[figure_of], WRONG_FACTORS[factor_of]
    machine = replace(landscape.machine, **{figure: factor * getattr(landscape.machine, figure)})
    return Search(landscape, machine)


def shuffled(landscape: Landscape, *, seed: int) -> Search:
    """With what the formulas say of each strategy said of another one; where strategies lie stays
    true, so that trials still tell about those like them."""
    order = np.random.default_rng(seed).permutation(len(landscape))
    return Search(landscape, landscape.machine, order=order)


@dataclass(frozen=True, eq=False)
class Shuffled(Quantity):
    """A quantity whose formulas are asked about another strategy than the one meant.

    Attributes:
        queried: columns of the strategy whose answer stands in place of each.
        log_shift: shape (n,), added to the logarithm of the answer.
    """

    queried: Columns
    log_shift: Array

    def log_value(self, z: Array, columns: Columns, labelled: Array) -> Array:
        if not len(columns):
            return super().log_value(z, columns, labelled)
        rows = columns[ROW].astype(np.int64)
        value = super().log_value(z, self.queried.take(rows), labelled)
        return np.asarray(value + self.log_shift[rows])


def quantities(
    landscape: Landscape, machine: Machine, order: Rows | None
) -> tuple[Quantity, Quantity]:
    prior = landscape.prior
    if order is None:
        return (
            Quantity(machine=machine, prior=prior, of_memory=False),
            Quantity(machine=machine, prior=prior, of_memory=True),
        )
    queried = landscape.columns.take(order)
    rates_shift = landscape.log_tokens - landscape.log_tokens[order]
    return (
        Shuffled(machine, prior, of_memory=False, queried=queried, log_shift=rates_shift),
        Shuffled(machine, prior, of_memory=True, queried=queried, log_shift=np.zeros(len(order))),
    )


class Search:
    """The product's belief, and its choice through DeepHyper; rows of a table say nothing of
    peaks, only whether memory sufficed."""

    def __init__(
        self,
        landscape: Landscape,
        machine: Machine,
        *,
        earlier: Measurements | None = None,
        order: Rows | None = None,
    ) -> None:
        self._landscape, self._machine = landscape, machine
        self._earlier = earlier or landscape.earlier.take(np.array([], dtype=np.int64))
        self._of_time, self._of_memory = quantities(landscape, machine, order)
        self._candidates, self._grid = numbered(landscape.columns), Grid(landscape)
        self._known: list[Revealed] = []
        self._by_factor: dict[float, Mixture] = {}

    def __call__(self, latest: Revealed | None) -> int:
        self._known.extend([] if latest is None else [latest])
        return self._choice(self._belief())

    def own_stop(self) -> OwnStop:
        """Search until the product would end, without a training in view."""
        row = self(None)
        while True:
            self._known.append(revealed(self._landscape, row))
            belief = self._belief()
            if self._is_over(belief):
                break
            row = self._choice(belief)
        best = float(np.nanmax(self._landscape.log_rate))
        reached = max(self._rates, default=-np.inf)
        return OwnStop(
            trials=len(self._known),
            failures=len(self._known) - len(self._rates),
            within=bool(-np.expm1(reached - best) <= WITHIN),
        )

    def _given(self, factor: float) -> Mixture:
        if factor not in self._by_factor:
            earlier = self._earlier
            time = _samples(earlier, _nothing(earlier), self._machine)[0]
            discounted = _discounted(time, len(time.log_value), factor)
            self._by_factor[factor] = Mixture.of(self._of_time, discounted)
        return self._by_factor[factor]

    @property
    def _rates(self) -> list[float]:
        return [trial.log_rate for trial in self._known if trial.log_rate is not None]

    def _belief(self) -> Belief:
        landscape, machine = self._landscape, self._machine
        tried = np.array([trial.row for trial in self._known], dtype=np.int64)
        log_time = np.array([_log_time(landscape, trial) for trial in self._known])
        here = Measurements(columns=self._candidates.take(tried), log_time=log_time)
        time, memory = _samples(self._earlier, here, machine)
        if len(self._earlier) and len(here):
            factor = relevance(self._given, _samples(_nothing(here), here, machine)[0])
            of_earlier = int(np.isfinite(self._earlier.log_time).sum())
            time = _discounted(time, of_earlier, factor)
        return Belief.of(
            Calibration(
                machine=machine,
                software="",
                observations=(),
                time=Mixture.of(self._of_time, time),
                memory=Mixture.of(self._of_memory, memory),
                memory_sample=memory,
            ),
            self._candidates,
            log_work=landscape.log_tokens,
            rows=np.setdiff1d(np.arange(len(landscape)), tried),
        )

    def _is_over(self, belief: Belief) -> bool:
        if not len(belief.rows):
            return True
        if not self._rates:
            return False
        measured = {t.row: t.log_rate for t in self._known if t.log_rate is not None}
        best = max(measured, key=measured.__getitem__)
        outlook = Outlook.of(belief, best=best, measured=list(measured), seed=0)
        content = reason_to_be_content(outlook, objective="tokens_per_s") is not None
        return content or not belief.worth_trying(measured[best]).any()

    def _choice(self, belief: Belief) -> int:
        grid, offered = self._grid, self._offered(belief)
        if not self._rates or len(offered.rows) == 1:
            return int(offered.rows[0])
        points = grid.levels[offered.rows]
        chosen = choose(
            grid.names,
            points,
            CalibratedRegressor(offered, points, np.ones(len(points))),
            results=[(grid.levels[trial.row].tolist(), _result(trial)) for trial in self._known],
            seed=0,
        )
        return int(offered.rows[chosen])

    def _offered(self, belief: Belief) -> Belief:
        """Return the candidates as the product offers them to DeepHyper. Where it would end the
        search because none is worth trying, the replay goes on with all of them."""
        if not self._rates:
            promise = belief.promise(failed=bool(self._known))
            return belief.take(np.argsort(-promise, kind="stable"))
        best = max(self._rates)
        worth = np.flatnonzero(belief.worth_trying(best))
        belief = belief.take(worth) if len(worth) else belief
        return belief.take(np.argsort(-belief.log_probability_better(best), kind="stable"))


def _result(trial: Revealed) -> float | str:
    return "F_oom" if trial.log_rate is None else trial.log_rate


def _log_time(landscape: Landscape, trial: Revealed) -> float:
    if trial.log_rate is None:
        return float("nan")
    return float(landscape.log_tokens[trial.row]) - trial.log_rate


def _nothing(like: Measurements) -> Measurements:
    return like.take(np.array([], dtype=np.int64))


def _discounted(time: Sample, rows: int, factor: float) -> Sample:
    """Return times with this factor on the weight of the first rows, as `discounted` does."""
    is_earlier = np.arange(len(time.log_value)) < rows
    if factor:
        return replace(time, weight=np.where(is_earlier, factor, 1.0))
    own = np.flatnonzero(~is_earlier)
    columns = time.columns.take(own) if len(own) else Columns.none()
    return Sample(columns=columns, log_value=time.log_value[own], side=time.side[own])


def numbered(columns: Columns) -> Columns:
    numbers = np.arange(len(columns), dtype=np.float64)
    return Columns(values={**columns.values, ROW: numbers}, rows=len(columns))


def _samples(earlier: Measurements, here: Measurements, machine: Machine) -> tuple[Sample, Sample]:
    """What is known of time, and of memory: on which side of the limit it lay."""
    parts = [part for part in (earlier, here) if len(part)]
    columns = Columns.stack([part.columns for part in parts]) if parts else Columns.none()
    log_time = np.concatenate([earlier.log_time, here.log_time])
    ran = np.isfinite(log_time)
    timed = columns.take(np.flatnonzero(ran)) if ran.any() else Columns.none()
    limit = np.full(len(log_time), np.log(machine.memory_gib))
    return (
        Sample(columns=timed, log_value=log_time[ran], side=np.zeros(int(ran.sum()))),
        Sample(columns=columns, log_value=limit, side=np.where(ran, 1.0, -1.0)),
    )
