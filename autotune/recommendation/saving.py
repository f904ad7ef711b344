"""Saving of the best layout against the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.measurement import SECONDS_PER_DAY
from autotune.recommendation.baseline import baseline_contender, figures_at
from autotune.recommendation.ranking import Contender
from autotune.schemas import Campaign, TrainingSaving, Trial, TrialMetrics
from autotune.trial_energy import JOULES_PER_MWH


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
