"""Ends of trials, stored as their evaluator reports them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import structlog

from autotune.resolution import strategy_of
from autotune.schemas import CampaignState, Trial
from evaluators.trial import TrialOutcome
from server.runner.belief import SearchBelief
from server.runner.figures import count_end
from server.runner.results import finished_trial
from server.runner.scheduling import same_failure
from server.store import Store
from server.store.campaigns import change_state
from server.store.leases import Lease, renew
from server.store.trials import FinishedTrial, all_trials, finish_trial

FAILURES_TO_PAUSE = 5
log = structlog.get_logger(__name__)


def store_ends(
    store: Store,
    lease: Lease,
    ended: Sequence[tuple[Trial, TrialOutcome]],
    *,
    belief: SearchBelief,
    known: Sequence[Trial],
    withdrawn: Collection[str],
) -> None:
    """Store ends in the transaction that renews the lease: who lost it stores nothing. A campaign
    pauses when its trials fail alike one after the other.

    Args:
        known: the campaign's trials as far as they have been read.
        withdrawn: tokens of the trials that the campaign itself cancelled.

    Raises:
        LeaseLost: another runner works on the campaign.
    """
    now, workload, power_factor = datetime.now(UTC), belief.workload, belief.power_factor
    fresh = {trial.number for trial, _ in ended}
    results: list[tuple[Trial, FinishedTrial]] = []
    with store.transaction() as session:
        row = renew(session, lease)
        for trial, outcome in ended:
            strategy = strategy_of(trial.strategy)
            result = finished_trial(
                workload.of_trial(trial), strategy, outcome, now=now, power_factor=power_factor
            )
            if finish_trial(session, trial, result):
                results.append((trial, result))
        if row.state == CampaignState.RUNNING:
            reason = same_failure(
                all_trials(session, row.id, known=known),
                fresh=fresh,
                times=FAILURES_TO_PAUSE,
                withdrawn=withdrawn,
            )
            if reason:
                change_state(session, row, CampaignState.PAUSED, reason=reason)
    for trial, result in results:
        log.info("trial_ended", trial=trial.number, state=result.state.value)
        count_end(trial, result, evaluator=row.evaluator)
