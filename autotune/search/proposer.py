"""Which layouts a campaign tries next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration
from autotune.cost_model.columns import Rows
from autotune.errors import NothingToPropose
from autotune.schemas.choices import Objective, SearchMethod, Surrogate
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.schemas.recommendations import Neighbour
from autotune.search.belief import Belief, worth_a_look
from autotune.search.campaign_belief import CampaignBelief, Projections
from autotune.search.choice import choose
from autotune.search.evidence import Evidence, Known, suspected
from autotune.search.layouts import Floats, Integers, Layouts, Mask
from autotune.search.measured_comparison import MeasuredComparison
from autotune.search.proposal import ProjectionCheck, Proposal, TrialCost, TrialExpectation
from autotune.search.stand_ins import Runs, StandIns
from autotune.search.stopping import Outlook, Rival
from autotune.search.trial import SearchTrial
from autotune.search.uncalibrated import OUT_OF_MEMORY, uncalibrated
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

HOPELESS = 0.02
"""Probability of fitting that no untried layout exceeds when a search ends in which nothing ran."""

FAILURES_TO_DESPAIR = 2
"""Trials that ran out of memory before that: a formula never ends a search by itself."""

LIKELIER = 0.1
"""By so much a layout has to be likelier to fit in full than a stand-in that is not LIKELY_TO_FIT,
to run in full: with fewer replicas each holds more of what ZeRO divides."""


class Proposer:
    """Proposes strategies from nothing but seed and trials; only derived results are cached between
    calls.

    Args:
        belief: the campaign's; None if it starts from no earlier trials.
        cost: of a trial.
        headroom_gib: memory to leave free on the fullest GPU. A layout that ran and left less is
            timed but never the best; one that is likely to leave less is avoided like one that is
            unlikely to fit.
        stand_ins: smaller runs that may replace layouts; None if all layouts run in full.
        pool_nodes: nodes that trials may use at the same time; None if they suffice for every
            layout.
        method: the search. All but the calibrated one run layouts in full.
        surrogate: only of the search by DeepHyper.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        objective: Objective,
        seed: int,
        belief: CampaignBelief | None = None,
        cost: TrialCost = TrialCost(),  # noqa: B008  (frozen, so shared safely)
        headroom_gib: float = 0.0,
        stand_ins: StandIns | None = None,
        pool_nodes: int | None = None,
        method: SearchMethod = "calibrated",
        surrogate: Surrogate = "forest",
    ) -> None:
        self.belief = belief or CampaignBelief.over(space)
        self._space = space
        self._seed = seed
        self._cost = cost
        self._headroom_gib = headroom_gib
        self._pool_nodes = pool_nodes or space.nodes
        self._layouts = Layouts.of(space, objective=objective)
        self._runs = Runs.of(space, self._layouts, stand_ins=stand_ins)
        self._projection_check: ProjectionCheck | None = None
        if stand_ins is not None:
            self._projection_check = ProjectionCheck(
                space=space,
                layouts=self._layouts,
                stand_ins=stand_ins,
                pool_nodes=self._pool_nodes,
            )
        self._evidence = Evidence(
            space,
            self._layouts,
            self._runs,
            objective=objective,
            belief=self.belief,
            headroom_gib=headroom_gib,
        )
        self._comparison = MeasuredComparison(evidence=self._evidence, seed=seed)
        self._expectation = TrialExpectation(
            evidence=self._evidence, cost=cost, stand_ins=stand_ins
        )
        self._believed = lru_cache(maxsize=2)(self._believe)
        self._uncalibrated = uncalibrated(
            method,
            self._layouts,
            self._evidence.columns.take(np.arange(len(self._layouts))),
            surrogate=surrogate,
            seed=seed,
        )

    def propose(
        self, trials: Sequence[SearchTrial], *, count: int, free_nodes: int
    ) -> list[Proposal]:
        """Return up to `count` strategies to start at once, none of them observed or covered by an
        observation.

        Together they need at most `free_nodes`. The list is empty if nothing worth trying is small
        enough now. The order of `trials` does not matter; trials outside the space are used, too.

        Raises:
            NothingToPropose: every layout has been tried, or nothing fits.
        """
        seen = list(trials)
        proposed: list[Proposal] = []
        while len(proposed) < count:
            proposal = self._one(seen, free_nodes=free_nodes, first=not proposed)
            if proposal is None:
                break
            proposed.append(proposal)
            seen.append(proposal.running)
            free_nodes -= proposal.run.num_nodes
        return proposed

    def outlook(
        self, trials: Sequence[SearchTrial], *, best: Strategy | None = None
    ) -> Outlook | None:
        """Return how certainly the best measured layout is the best of the space; None before any
        measurement. A projection counts as a measurement, with its uncertainty.

        Args:
            best: judge this layout instead, against the whole space, including what the pool cannot
                measure any more. None is returned if it is outside the space or not measured.
        """
        known = self._evidence.known(trials)
        if not known.measured:
            return None
        layout = known.best_layout
        if best is not None:
            judged = self._layouts.row_of(best)
            if judged is None or judged not in known.measured:
                return None
            layout = judged
        open_layouts = np.setdiff1d(np.arange(len(self._layouts)), known.closed)
        if best is None:
            open_layouts = open_layouts[self._measurable[open_layouts]]
        with threadpool_limits(limits=1, user_api="blas"):
            return Outlook.of(
                self._belief(known, open_layouts),
                best=known.runs[layout],
                measured=sorted(known.runs.values()),
                seed=self._seed,
            )

    def expect(
        self,
        strategies: Sequence[Strategy],
        trials: Sequence[SearchTrial],
        *,
        at_own_accumulation: bool = False,
    ) -> list[Proposal]:
        """Return the predicted trial of each of these strategies, which were chosen elsewhere and
        may be outside the space.

        Args:
            at_own_accumulation: whether the trials measure at the strategies' own GAS only.
        """
        if not strategies:
            return []
        known = self._evidence.known(trials)
        expected = [self._expectation.of(known, strategy, None) for strategy in strategies]
        if not at_own_accumulation:
            return expected
        cost, gpus = self._cost.confirmation_node_hours, self._space.machine.gpus_per_node
        hours = [
            cost(each.strategy, iteration_time_s=each.iteration_time_s, gpus_per_node=gpus)
            for each in expected
        ]
        return [
            replace(each, expected=each.expected.model_copy(update={"node_hours": own}))
            for each, own in zip(expected, hours, strict=True)
        ]

    def neighbours(self, trials: Sequence[SearchTrial], best: Strategy) -> list[Neighbour]:
        """Return the layouts one step away from a measured strategy, compared with it after these
        trials; empty without a successful trial of it."""
        return self._comparison.neighbours(self._evidence.known(trials), best)

    def rivals(
        self, trials: Sequence[SearchTrial], best: Strategy, others: Sequence[Strategy]
    ) -> list[Rival]:
        """Compare each of `others` with `best` after these trials; all are measured or projected,
        inside the space or not."""
        return self._comparison.rivals(self._evidence.known(trials), best, others)

    def calibration(self, trials: Sequence[SearchTrial]) -> Calibration:
        return self._evidence.calibration(self._evidence.known(trials).ended)

    def projections(self, trials: Sequence[SearchTrial]) -> Projections:
        return self._evidence.known(trials).projections

    def _one(
        self, trials: Sequence[SearchTrial], *, free_nodes: int, first: bool
    ) -> Proposal | None:
        """Return the next strategy; None if none is small enough now. Raises NothingToPropose if
        there is none and it would be the `first`."""
        known = self._evidence.known(trials)
        check = self._check(known)
        if check is not None and check.run.num_nodes <= free_nodes:
            return check
        if check is not None and known.running:
            return None  # what it needs is not to be taken by others before it
        open_layouts = np.setdiff1d(np.arange(len(self._layouts)), known.closed)
        if not len(open_layouts) and first:
            count = self._layouts.count
            every = "the only layout" if count == 1 else f"all {count} layouts"
            raise NothingToPropose(f"{every} of the space {'was' if count == 1 else 'were'} tried")
        return self._next(known, open_layouts, free_nodes=free_nodes)

    def _next(self, known: Known, open_layouts: Integers, *, free_nodes: int) -> Proposal | None:
        """Return the best open layout whose run is small enough, or None. Raises NothingToPropose
        if no open layout is likely to fit."""
        nodes = self._runs.lattice["num_nodes"]
        small = open_layouts[nodes[self._first_runs(known, open_layouts)] <= free_nodes]
        if not len(small):
            return None
        if self._uncalibrated is not None:
            choice = self._uncalibrated(small, self._results(known))
            if choice is None:
                raise NothingToPropose(
                    "nothing else fits: every other layout needs as much memory as one that ran out"
                )
            strategy = self._layouts.lattice.strategy(choice.layout)
            return self._expectation.of(known, strategy, None, chosen_by=choice.by)
        with threadpool_limits(limits=1, user_api="blas"):
            belief = self._belief(known, small)
        startable = nodes[belief.rows] <= free_nodes
        if not startable.any():
            return None
        startable &= self._worth_trying(known, belief, open_layouts, free_nodes=free_nodes)
        if not startable.any():
            return None
        suspects = suspected(self._runs.lattice.take(belief.rows), known.trials)
        chosen = self._choose(
            known, belief.take(np.flatnonzero(startable & (suspects == suspects[startable].min())))
        )
        [run] = chosen.rows.tolist()
        layout = int(self._runs.layout[run])
        strategy = self._layouts.lattice.strategy(layout)
        instead = None if run == layout else self._runs.lattice.strategy(run)
        saving = None
        if known.best is not None:
            [saving] = chosen.expected_saving(best=known.best).tolist()
        return self._expectation.of(known, strategy, instead, expected_saving=saving)

    def _choose(self, known: Known, belief: Belief) -> Belief:
        """Return the belief of the one candidate that DeepHyper chooses; of the most promising one
        before any trial has succeeded, when there is no improvement to expect."""
        best = known.best
        order = belief.promise(failed=known.too_large > 0)
        if best is not None:
            order = belief.log_probability_better(best)
        offered = belief.take(np.argsort(-order, kind="stable"))
        if best is None or len(offered.rows) == 1:
            return offered.take(np.array([0]))
        # Imported where it is needed: DeepHyper and scikit-learn take two seconds.
        from autotune.search.surrogate import CalibratedRegressor

        points = self._layouts.numbers[self._runs.layout[offered.rows]]
        with threadpool_limits(limits=1, user_api="blas"):
            chosen = choose(
                self._layouts.point_dimensions,
                points,
                CalibratedRegressor(offered, points, self._node_hours(offered)),
                results=[
                    (self._layouts.numbers[row].tolist(), result)
                    for row, result in self._results(known).items()
                ],
                seed=self._seed,
            )
        return offered.take(np.array([chosen]))

    def _worth_trying(
        self, known: Known, belief: Belief, open_layouts: Integers, *, free_nodes: int
    ) -> Mask:
        """Return which candidates are worth a trial, shape (k,). Raises NothingToPropose if no open
        layout is."""
        if known.best is None:
            likeliest = float(belief.fit_probability.max())
            if known.too_large >= FAILURES_TO_DESPAIR and likeliest < HOPELESS:
                raise NothingToPropose(
                    self._exhausted(known, open_layouts, "no layout is likely to fit")
                )
            if likeliest < LIKELY_TO_FIT:  # the first question is whether anything fits
                return np.asarray(belief.fit_probability == likeliest)
            return np.ones(len(belief.rows), dtype=np.bool_)
        worth = belief.worth_trying(known.best)
        if not worth.any() and free_nodes >= self._pool_nodes:
            raise NothingToPropose(
                self._exhausted(known, open_layouts, "nothing else is worth its risk")
            )
        return worth

    def _exhausted(self, known: Known, open_layouts: Integers, why: str) -> NothingToPropose:
        tried, every, headroom = len(known.closed), len(self._layouts), self._headroom_gib
        left = f" and leave {headroom:g} GiB" if headroom else ""
        return NothingToPropose(
            f"{why}: {tried} of the space's {every} layouts were tried, and the other "
            f"{len(open_layouts)} are unlikely to fit in memory{left}"
        )

    def _check(self, known: Known) -> Proposal | None:
        if self._projection_check is None:
            return None
        for strategy, instead in self._projection_check.runs(known):
            proposal = self._expectation.of(known, strategy, instead)
            if instead is None or proposal.expected.fit_probability >= LIKELY_TO_FIT:
                return proposal
        return None

    @cached_property
    def _measurable(self) -> Mask:
        nodes = self._runs.lattice["num_nodes"]
        in_full = nodes[: len(self._layouts)]
        return np.asarray(np.minimum(in_full, nodes[self._runs.stand_in]) <= self._pool_nodes)

    def _first_runs(self, known: Known, layouts: Integers) -> Integers:
        if known.projections.contradicted:
            return layouts
        runs = self._runs.stand_in[layouts]
        in_full = np.isin(layouts, np.array(sorted(known.full_only), dtype=np.int64))
        return np.asarray(np.where(in_full, layouts, runs))

    def _belief(self, known: Known, layouts: Integers) -> Belief:
        return self._believed(known.trials, tuple(self._first_runs(known, layouts).tolist()))

    def _believe(self, trials: tuple[SearchTrial, ...], runs: tuple[int, ...]) -> Belief:
        known, columns = self._evidence.known(trials), self._evidence.columns
        calibration, log_work = self._evidence.expecting(known), self._evidence.log_work(known)
        every = np.array(runs, dtype=np.int64)
        limit = calibration.log_limit(self._headroom_gib)
        rows = worth_a_look(
            calibration,
            columns,
            log_work=log_work,
            rows=every,
            memory=self._runs.memory,
            log_limit=limit,
        )
        return Belief.of(
            calibration,
            columns,
            log_work=log_work,
            rows=self._likelier(calibration, rows),
            memory=self._runs.memory,
            headroom_gib=self._headroom_gib,
        )

    def _likelier(self, calibration: Calibration, runs: Rows) -> Rows:
        narrow = np.flatnonzero(runs >= len(self._layouts))
        if not len(narrow):
            return runs
        columns, full = self._runs.memory, self._runs.layout[runs[narrow]]
        fits = calibration.fit_probability(
            columns.take(runs[narrow]), headroom_gib=self._headroom_gib
        )
        gain = np.zeros(len(narrow))
        doubtful = fits < LIKELY_TO_FIT
        if doubtful.any():
            in_full = calibration.fit_probability(
                columns.take(full[doubtful]), headroom_gib=self._headroom_gib
            )
            gain[doubtful] = in_full - fits[doubtful]
        chosen = runs.copy()
        chosen[narrow[gain > LIKELIER]] = full[gain > LIKELIER]
        return chosen

    def _results(self, known: Known) -> dict[int, float | str]:
        """Return each layout that ended with the logarithm of its rate, or its failure. DeepHyper
        expects floats: an integer counts as failed."""
        results: dict[int, float | str] = dict(known.measured)
        closed = set(known.closed.tolist())
        for trial in known.trials:
            row = self._layouts.row_of(trial.full)
            ended = trial.state in {"failed", "ok"}
            if row is not None and row in closed - results.keys() and ended:
                results[row] = OUT_OF_MEMORY if trial.out_of_memory else "F_failed"
        return results

    def _node_hours(self, belief: Belief) -> Floats:
        seconds = np.exp(belief.log_work[belief.rows] - belief.log_rate)
        return self._cost.node_hours(self._runs.lattice.take(belief.rows), seconds)
