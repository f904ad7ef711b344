"""Layouts of a space with their predictions, which of them probably fit, and the expected gain of a
campaign over the best prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Columns, Mask, Rows
from autotune.cost_model.estimate import Estimate
from autotune.explanation.rates import blocks
from autotune.measurement.metrics import SECONDS_PER_HOUR
from autotune.schemas.predictions import LIKELY_TO_FIT, SAFE_TO_FIT, CampaignCost, CampaignGain
from autotune.search.belief import MARGIN, Belief
from autotune.search.layouts import Layouts
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

RIVALS = 200
"""Number of layouts in joint draws: those with the highest expected rate, given their probability
of fitting."""

DRAWS = 1000

OWN_ERROR = 0.7
"""Factor for the errors of single layouts' times in joint draws. Layouts of one model differ less
than rows of different stacks, on which the intervals rest: with it, the mean gain on the five
published grids of the replay, which chose it, is 6.1 % (measured 6.6 %), and 4.2 % on eleven others
(measured 3.7 %)."""

MOST_GAIN = 3.0
"""Maximum gain of one draw, as a logarithm of the rate: without observations, some draws are
implausible."""

NINE_OF_TEN = 90.0


LEAST_CHANCE = 0.1
"""Probability of fitting up to which a space is refused. Of 74 published runs that ran, 20 were
predicted to fit with less than 50 %, the least likely one with 12 %."""

CERTAIN = 3.0
"""Beyond this factor below or above the limit, only the formulas decide."""


def probably_fits(
    calibration: Calibration,
    transformer: Transformer,
    lattice: Lattice,
    estimated: Estimate,
    *,
    headroom_gib: float = 0.0,
) -> Mask:
    """Return which strategies probably fit into memory, shape (n,).

    Args:
        estimated: of the lattice, with the calibration's parameters.
        headroom_gib: memory that must stay free.
    """
    limit_gib = max(estimated.limit_leaving(headroom_gib), 0.0)
    load = estimated.memory_gib / max(limit_gib, 1e-9)
    fits = load <= 1.0
    open_rows = np.flatnonzero((load > 1.0 / CERTAIN) & (load < CERTAIN))
    columns = Columns.of(transformer, lattice).take(open_rows)
    probabilities = [
        calibration.fit_probability(block, headroom_gib=headroom_gib)
        for block in blocks(columns, calibration)
    ]
    fits[open_rows] = np.concatenate(probabilities) > LIKELY_TO_FIT
    return fits


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates:
    """Layouts with their predictions.

    Attributes:
        belief: the campaign's belief about the promising layouts, before its first trial.
        likely: one row for each layout that probably fits, the safe ones first, best
            prediction first; if none does, for each that may, the likeliest to fit first.
    """

    space: SearchSpace
    layouts: Layouts
    belief: Belief
    likely: Rows

    @classmethod
    def of(
        cls,
        space: SearchSpace,
        calibration: Calibration,
        *,
        layouts: Layouts,
        headroom_gib: float,
    ) -> Candidates:
        columns = Columns.of(space.transformer, layouts.lattice)
        with threadpool_limits(limits=1, user_api="blas"):
            belief = Belief.of(
                calibration,
                columns,
                log_work=layouts.log_work,
                rows=np.arange(len(layouts)),
                headroom_gib=headroom_gib,
            )
        fitting = np.flatnonzero(belief.fit_probability > LIKELY_TO_FIT)
        doubtful = belief.fit_probability[fitting] < SAFE_TO_FIT
        order = fitting[np.lexsort([-belief.log_rate[fitting], doubtful])]
        if not len(order):
            most_likely = np.argsort(-belief.fit_probability, kind="stable")
            chances = belief.fit_probability[most_likely]
            order = most_likely[chances >= min(chances[0], LEAST_CHANCE)]
        return cls(
            space=space,
            layouts=layouts,
            belief=belief,
            likely=layouts.first_of_each(np.asarray(belief.rows[order], dtype=np.int64)),
        )

    def promising(self, most: int | None = None) -> list[Strategy]:
        return [self.layouts.lattice.strategy(row) for row in self.likely[:most].tolist()]

    def gain(self, cost: CampaignCost, *, tokens: float | None, seed: int = 0) -> CampaignGain:
        """Return the expected gain of the best layout over the best predicted one.

        Rates and memory are drawn jointly, with correlated errors. If the best predicted layout
        does not fit in a draw, the next one takes its place, since an out-of-memory error shows at
        the start.

        Args:
            cost: of the campaign that would find the best layout.
            tokens: of the training.
        """
        order, leads = self._leads(seed)
        above = np.minimum(leads, MOST_GAIN)
        saved = float(np.mean(-np.expm1(-above)))
        first = int(order[0])
        lattice = self.layouts.lattice.take(np.array([first]))
        trained = float(lattice.global_batch_size[0]) * self.space.transformer.seq_length
        time_s = float(np.exp(self.layouts.log_work[first] - self._log_rate(first)))
        node_hours = time_s * float(lattice["num_nodes"][0]) / SECONDS_PER_HOUR / trained
        training = None if tokens is None else node_hours * tokens
        return CampaignGain(
            rate_gain=float(np.mean(np.expm1(above))),
            rate_gain_high=float(np.percentile(np.expm1(above), NINE_OF_TEN)),
            probability_better=float(np.mean(above > np.log1p(MARGIN))),
            saved_share=saved,
            node_hours_per_token=node_hours,
            training_tokens=tokens,
            training_node_hours=training,
            saved_node_hours=None if training is None else saved * training,
            break_even_tokens=cost.node_hours / (saved * node_hours) if saved else None,
        )

    def _log_rate(self, row: int) -> float:
        return float(self.belief.log_rate[np.flatnonzero(self.belief.rows == row)[0]])

    def _leads(self, seed: int) -> tuple[Rows, Array]:
        belief = self.belief
        promise = belief.promise(failed=True)
        rivals = belief.rows[np.argsort(-promise, kind="stable")[:RIVALS]]
        taken = self.likely[:RIVALS]
        rows = np.concatenate([taken, np.setdiff1d(rivals, taken)])
        columns = belief.columns.take(rows)
        generator = np.random.default_rng(seed)
        with threadpool_limits(limits=1, user_api="blas"):
            times = belief.calibration.time.draws(columns, count=DRAWS, generator=generator)
            fits = belief.calibration.draws_of_fitting(
                columns, count=DRAWS, generator=generator, headroom_gib=belief.headroom_gib
            )
        expected = times.mean(axis=0)
        times = expected + OWN_ERROR * (times - expected)
        rates = np.where(fits, self.layouts.log_work[rows] - times, -np.inf)
        some = fits[:, : len(taken)].any(axis=1)
        if not some.any():
            return rows, np.zeros(1)
        rates, fits = rates[some], fits[some]
        first = np.argmax(fits[:, : len(taken)], axis=1)
        return rows, np.asarray(rates.max(axis=1) - rates[np.arange(len(rates)), first])
