"""The measured baseline, and what the best saves against it."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.baseline import baseline_name, read_arguments
from autotune.knobs.phase import without_knobs
from autotune.measurement.energy import JOULES_PER_MWH, power_factor_of
from autotune.measurement.metrics import SECONDS_PER_DAY, metrics
from autotune.measurement.objectives import BETTER
from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import Contender, measured_accumulations
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import Objective, TrialState
from autotune.schemas.recommendations import Baseline, TrainingSaving
from autotune.schemas.trials import Trial, TrialMetrics
from autotune.search import CampaignBelief

ENDS = {
    TrialState.PENDING: "is being measured",
    TrialState.OOM: "runs out of memory",
    TrialState.TIMEOUT: "did not end within the time limit",
    TrialState.CRASHED: "crashed",
    TrialState.REFUSED: "was refused",
}
"""How a baseline has ended that gave no figure; for the other states it says nothing."""


def baseline_result(
    campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
) -> tuple[Baseline | None, float | None]:
    """Return the baseline and the best's speedup over it; None for each that is missing."""
    trial = _baseline_trial(trials)
    if trial is None:
        return None, None
    name = baseline_name(campaign.request, campaign.model, campaign.machine, trial.strategy)
    read = read_arguments(campaign.request, campaign.model)
    unread = list(read.unread) if read else []
    notes = list(read.notes) if read else []
    figures, speedup, spread = None, None, None
    contender = baseline_contender(campaign, trials)
    if contender is not None:
        figures = contender.metrics
        best = all_contenders(campaign, trials, belief=belief)[0]
        speedup, comparison = _comparison(campaign, contender, best, name=name)
        spread = (1.0 + best.uncertainty) * (1.0 + contender.uncertainty)
        if unread:
            notes.append(f"this compares layouts only, without your {', '.join(unread)}")
    elif trial.state in ENDS:
        comparison = f"{name} {ENDS[trial.state]}" + _cause(trial)
    else:
        comparison = f"{name} could not be measured" + _cause(trial)
    result = Baseline(
        name=name,
        trial_number=trial.number,
        strategy=trial.strategy,
        state=trial.state,
        metrics=figures,
        unread=unread,
        speedup_low=speedup / spread if speedup and spread else None,
        speedup_high=speedup * spread if speedup and spread else None,
        comparison="; ".join([comparison[0].upper() + comparison[1:], *notes]) + ".",
    )
    return result, speedup


def exceeds_spread(baseline: Baseline | None) -> bool:
    """Return whether the best differs from the baseline by more than both spreads."""
    if baseline is None or baseline.speedup_low is None or baseline.speedup_high is None:
        return False
    return not baseline.speedup_low <= 1.0 <= baseline.speedup_high


def baseline_contender(campaign: Campaign, trials: Sequence[Trial]) -> Contender | None:
    """Return the baseline with all trials that measured it, but for starts of knobs; None if
    there are none."""
    trial = _baseline_trial(trials)
    strategy = trial.strategy if trial else None
    measured = [
        t
        for t in without_knobs(trials)
        if t.metrics is not None and t.num_layers is None and t.strategy == strategy
    ]
    if strategy is None or not measured:
        return None
    return Contender(
        strategy=strategy,
        trials=tuple(measured),
        objective=campaign.request.objective,
        failed_confirmation=False,
    )


def _baseline_trial(trials: Sequence[Trial]) -> Trial | None:
    own = [trial for trial in trials if trial.purpose == "baseline"]
    return max(own, key=lambda trial: (trial.state is TrialState.OK, trial.number), default=None)


def _cause(trial: Trial) -> str:
    if trial.state in {TrialState.PENDING, TrialState.OOM} or not trial.error:
        return ""
    return f": {trial.error.rstrip('.')}"


def _comparison(
    campaign: Campaign, baseline: Contender, best: Contender, *, name: str
) -> tuple[float, str]:
    if best.strategy.layout_key() == baseline.strategy.layout_key():
        return best.rate / baseline.rate, f"{name} is the best so far"
    batch = best.metrics.global_batch_size
    figures = figures_at(campaign, baseline, batch)
    rate = None if figures is None else float(getattr(figures, campaign.request.objective))
    speedup = best.rate / (rate or baseline.rate)
    precision = baseline.strategy.precision
    differs = precision != best.strategy.precision
    against = f"{name}, which trains in {precision}" if differs else name
    if not best.leads_by(max(speedup, 1.0 / speedup), over=baseline):
        better = BETTER[campaign.request.objective]
        sentence = f"the best is no {better} than {against}: {speedup:.3g} times, within the spread"
    else:
        sentence = _against(speedup, against, campaign.request.objective)
    if rate is None:
        theirs = baseline.metrics.global_batch_size
        sentence += f", at a global batch of {batch} samples against {theirs}"
    return speedup, sentence


def _against(speedup: float, baseline: str, objective: Objective) -> str:
    if objective == "tokens_per_joule":
        return f"per token, the best takes {1 / speedup:.3g} times the energy of {baseline}"
    if objective == "tokens_per_node_hour":
        return f"per token, the best takes {1 / speedup:.3g} times the node-hours of {baseline}"
    each = " per GPU" if objective == "tokens_per_s_per_gpu" else ""
    return f"the best is {speedup:.3g} times as fast{each} as {baseline}"


def figures_at(campaign: Campaign, baseline: Contender, batch: int) -> TrialMetrics | None:
    """Return the baseline's metrics at another global batch, if its trial covers it.

    None if its replicas cannot make that batch, or if it has fewer micro-batches than stages, where
    the law does not hold.
    """
    if baseline.metrics.global_batch_size == batch:
        return baseline.metrics
    strategy = baseline.strategy
    gpus = campaign.machine.gpus_per_node
    gas, rest = divmod(batch, strategy.micro_batch_size * strategy.data_parallel(gpus))
    if rest or gas < strategy.pipeline_parallel:
        return None
    measured = measured_accumulations(baseline.trials)
    timed = {each.gradient_accumulation_steps for each in measured}
    if gas not in timed and len(timed) < 2:
        return None
    transformer, machine = campaign.model, campaign.machine
    power_factor = power_factor_of(
        transformer,
        machine,
        strategy,
        iteration_time_s=baseline.metrics.iteration_time_s,
        tokens_per_joule=baseline.metrics.tokens_per_joule,
    )
    twin = strategy.with_accumulation(gas)
    return metrics(transformer, machine, twin, measured, power_factor=power_factor)


def training_saving(
    campaign: Campaign,
    best: Contender,
    trials: Sequence[Trial],
    *,
    tokens: float,
    node_hours: float,
) -> TrainingSaving | None:
    """Return what a training of so many tokens saves compared with the baseline; None if the
    baseline has no figures or is the best itself.

    Args:
        node_hours: spent by the campaign.
    """
    baseline = baseline_contender(campaign, trials)
    if baseline is None or baseline.strategy.layout_key() == best.strategy.layout_key():
        return None
    own = best.metrics
    batch = own.global_batch_size
    theirs = figures_at(campaign, baseline, batch) or baseline.metrics
    each = 1.0 / theirs.tokens_per_node_hour - 1.0 / own.tokens_per_node_hour
    seconds = 1.0 / theirs.tokens_per_s - 1.0 / own.tokens_per_s
    return TrainingSaving(
        tokens=tokens,
        days=tokens * seconds / SECONDS_PER_DAY,
        node_hours=tokens * each,
        energy_mwh=_energy_mwh(own, theirs, tokens),
        repaid_after_tokens=node_hours / each if each > 0.0 else None,
    )


def _energy_mwh(own: TrialMetrics, theirs: TrialMetrics, tokens: float) -> float | None:
    if own.tokens_per_joule is None or theirs.tokens_per_joule is None:
        return None
    joules = 1.0 / theirs.tokens_per_joule - 1.0 / own.tokens_per_joule
    return tokens * joules / JOULES_PER_MWH
