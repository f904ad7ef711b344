"""The measurement protocol of a campaign's trials, and when they are given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration import COVERAGE, Calibration
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from autotune.measurement.metrics import AccumulationMeasurement, metrics, probe_accumulations
from autotune.recommendation.ranking import improvements
from autotune.schemas.campaigns import Campaign
from autotune.schemas.requests import ProtocolSpec
from autotune.schemas.trials import Trial
from evaluators.trial import TrialProtocol
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from server.campaign.results import Workload

UPPER_END = (1.0 + COVERAGE) / 2
"""Upper quantile of the interval with COVERAGE."""

DRAWS = 1000


def protocol_of(
    campaign: Campaign,
    trial: Trial,
    *,
    trials: Sequence[Trial],
    calibration: Callable[[], Calibration] | None = None,
) -> TrialProtocol:
    """Return what a trial measures, when it is given up, and its time limit.

    Trials of the search, including the baseline, measure at their probes; confirmations and starts
    of knobs at their strategy's own GAS. All starts of knobs time the same number of iterations:
    the first ones of a run are faster. Trials with more micro-batches have the time
    limit of search trials extended in proportion.

    Args:
        trials: of the campaign; those that had ended when this one was created determine which
            rates are too slow.
        calibration: returns the calibration after these trials; called only if a prediction is
            needed. The machine's priors by default.
    """
    strategy, spec = trial.strategy, campaign.request.protocol
    probes = probe_accumulations(strategy)
    own = (strategy.gradient_accumulation_steps,)
    of_knob = trial.purpose == "knob"
    measured = own if of_knob or trial.purpose == "confirmation" else probes
    return TrialProtocol(
        accumulations=measured,
        warmup_accumulation=None if of_knob else probes[0],
        warmup_iterations=spec.warmup_iterations,
        measured_iterations=knob_iterations(spec) if of_knob else spec.measured_iterations,
        most_iterations=None if of_knob else spec.most_iterations,
        target_spread=spec.target_spread,
        give_up_above_s=_limits(campaign, trial, measured, trials=trials, calibration=calibration),
        pipeline_wait=(strategy.pipeline_parallel - 1) / strategy.virtual_stages,
        time_limit_s=spec.time_limit_s * max(1.0, sum(measured) / sum(probes)),
    )


def knob_iterations(protocol: ProtocolSpec) -> int:
    """Return the number of timed iterations of a knob's start."""
    return max(protocol.measured_iterations, protocol.most_iterations)


def _limits(
    campaign: Campaign,
    trial: Trial,
    accumulations: Sequence[int],
    *,
    trials: Sequence[Trial],
    calibration: Callable[[], Calibration] | None,
) -> tuple[float, ...]:
    """Return, by GAS, the seconds per iteration above which a search trial is given up.

    They correspond to a rate of `give_up_below` times the best at the strategy's own GAS. At
    another GAS they are scaled by the predicted ratio of iteration times, at the upper end of its
    interval, and by the best trial's deviation from it, so that the best trial itself would never
    be given up. Empty if there is no best. Trials on fewer nodes are only compared with others on
    as many that stand in for as many; trials with fewer layers are not compared, since deep
    pipelines wait for a smaller share of the time than at full size.
    """
    request = campaign.request
    if trial.purpose != "search" or not request.protocol.give_up_below or trial.num_layers:
        return ()
    ended = [
        other
        for other in trials
        if other.finished_at and other.finished_at <= trial.created_at
        if _comparable(other, trial)
    ]
    steps = improvements(campaign, ended)
    if not steps:
        return ()
    best = steps[-1][0]
    assert best.metrics is not None
    workload, strategy = Workload.of(campaign), trial.strategy
    rate = _rate_at_one_second(workload, best.strategy)
    best_rate = rate / best.metrics.iteration_time_s
    rate = _rate_at_one_second(workload, strategy)
    own_limit_s = rate / (request.protocol.give_up_below * best_rate)
    shares_of = _BelievedShares(workload, calibration() if calibration else None)
    surprise = _surprise(shares_of, best)
    shares = shares_of(strategy, accumulations)
    return tuple(own_limit_s * min(1.0, share * surprise) for share in shares)


def _rate_at_one_second(workload: Workload, strategy: Strategy) -> float:
    """Return the objective at one second per iteration. Energy is from the power figures only, so
    that strategies do not differ by the errors of one trial's sensors."""
    own = AccumulationMeasurement(
        gradient_accumulation_steps=strategy.gradient_accumulation_steps, iteration_times_s=(1.0,)
    )
    figures = metrics(workload.transformer, workload.machine, strategy, [own])
    return float(getattr(figures, workload.objective))


def _comparable(one: Trial, other: Trial) -> bool:
    if one.stands_for_nodes is None and other.stands_for_nodes is None:
        return True
    widths = [(trial.strategy.num_nodes, trial.stands_for_nodes) for trial in (one, other)]
    return widths[0] == widths[1]


@dataclass(frozen=True)
class _BelievedShares:
    """The ratio of iteration times at a GAS and at the strategy's own: the upper end of the
    calibration's interval, or the cost model's value without a calibration."""

    workload: Workload
    calibration: Calibration | None

    def __call__(self, strategy: Strategy, accumulations: Sequence[int]) -> list[float]:
        own = strategy.gradient_accumulation_steps
        twins = [strategy.with_accumulation(gas) for gas in (*accumulations, own)]
        lattice = Lattice.of(twins, gpus_per_node=self.workload.machine.gpus_per_node)
        transformer = self.workload.transformer
        if self.calibration is None:
            times_s = estimate(transformer, self.workload.machine, lattice).iteration_time_s
            return [float(seconds / times_s[-1]) for seconds in times_s[:-1]]
        with threadpool_limits(limits=1, user_api="blas"):
            log_times = self.calibration.time.draws(
                Columns.of(transformer, lattice), count=DRAWS, generator=np.random.default_rng(own)
            )
        log_shares = log_times[:, :-1] - log_times[:, -1:]
        return [float(share) for share in np.exp(np.quantile(log_shares, UPPER_END, axis=0))]


def _surprise(shares_of: _BelievedShares, trial: Trial) -> float:
    """Return the factor by which an iteration at a small GAS, relative to one at the strategy's
    own, took longer than predicted; at least 1."""
    measured = [point for point in trial.accumulations if point.measured]
    if not measured or trial.metrics is None:
        return 1.0
    least = min(measured, key=lambda point: point.gradient_accumulation_steps)
    [believed] = shares_of(trial.strategy, [least.gradient_accumulation_steps])
    return max(1.0, least.iteration_time_s / trial.metrics.iteration_time_s / believed)
