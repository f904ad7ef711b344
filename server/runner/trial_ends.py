"""Store how trials end, and the outcome of a campaign that follows."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import structlog
from sqlalchemy.orm import Session

from autotune.explanation.summary import explain
from autotune.recommendation.recommendation import recommend
from autotune.recommendation.standing import standing
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.trials import Trial
from autotune.search import ended_of, search_trials
from evaluators.trial import TrialOutcome
from server.campaign.best import BestSoFar, has_stand_ins
from server.campaign.knobs import knobs_of_campaign
from server.campaign.results import FinishedTrial, finished_trial
from server.campaign.scheduling import same_failure
from server.runner.belief import CampaignSnapshot, SearchBelief
from server.store import Store
from server.store.campaigns import change_state
from server.store.leases import Lease, renew
from server.store.outcomes import BEST, EXPLANATION, RECOMMENDATION
from server.store.store import announce
from server.store.trials import all_trials, finish_trial

log = structlog.get_logger(__name__)


def store_ends(
    store: Store,
    lease: Lease,
    ended: Sequence[tuple[Trial, TrialOutcome]],
    *,
    campaign: Campaign,
    belief: SearchBelief,
    known: Sequence[Trial],
    withdrawn: Collection[str],
) -> None:
    """Store ends, and the best after them, in the transaction that renews the lease, so that
    nothing is stored if it was lost. A campaign pauses when consecutive trials fail alike.

    Args:
        campaign: its state before.
        known: the campaign's trials, as far as they have been read.
        withdrawn: tokens of trials that the campaign itself cancelled.

    Raises:
        LeaseLost: another runner has the campaign.
    """
    now, workload, power_factor = datetime.now(UTC), belief.workload, belief.power_factor
    fresh = {trial.number for trial, _ in ended}
    results: list[tuple[Trial, FinishedTrial]] = []
    with store.transaction() as session:
        row = renew(session, lease)
        for trial, outcome in ended:
            strategy = trial.strategy
            result = finished_trial(
                workload.of_trial(trial), strategy, outcome, now=now, power_factor=power_factor
            )
            if finish_trial(session, trial, result):
                results.append((trial, result))
        trials = all_trials(session, row.id, known=known)
        if not has_stand_ins(campaign.screening):  # otherwise a model must be fitted first
            _store_best(session, campaign, trials)
        if row.state == CampaignState.RUNNING:
            reason = same_failure(trials, fresh=fresh, withdrawn=withdrawn)
            if reason:
                change_state(session, row, CampaignState.PAUSED, reason=reason)
    for trial, result in results:
        log.info("trial_ended", trial=trial.number, state=result.state.value)


def _store_best(session: Session, campaign: Campaign, trials: Sequence[Trial]) -> None:
    """Store the best. A new best is announced before the trials' ends, so that readers notified of
    these see it."""
    best = BestSoFar.of(campaign, trials)
    BEST.write(session, campaign.id, best, ended=len(ended_of(trials)))
    layout = best.layout
    if layout and (layout.trial, layout.objective) != (
        campaign.best_trial,
        campaign.best_objective,
    ):
        announce(session, "campaign", campaign_id=campaign.id, first=True)


SHARE = 0.05
"""Share of a runner's time for outcomes while trials run; if trials take milliseconds, some ends
are skipped."""

LONGEST_S = 1.0
"""Assumed duration of the first outcome: a campaign that ends within LONGEST_S / SHARE gets one
only at its end."""


class OutcomeNotes:
    """Stores the outcomes of a runner's campaigns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._not_before = time.monotonic() + LONGEST_S / SHARE

    def keep(
        self, snapshot: CampaignSnapshot, belief: SearchBelief, *, at_once: bool = False
    ) -> bool:
        """Store the outcome of a campaign's ended trials; return False if it was skipped.

        Args:
            at_once: never skip it, because the campaign ends.
        """
        began = time.monotonic()
        if began < self._not_before and not at_once:
            return False
        try:
            self._keep(snapshot, belief)
        except (ValueError, ArithmeticError) as error:  # the results themselves are stored
            log.error("outcome_not_stored", exc_info=error)
        now = time.monotonic()
        self._not_before = now + (now - began) / SHARE
        return True

    def _keep(self, snapshot: CampaignSnapshot, belief: SearchBelief) -> None:
        campaign = snapshot.campaign
        trials = ended_of(snapshot.trials)
        ended = len(trials)
        known, proposer = search_trials(trials), belief.proposer()
        if has_stand_ins(campaign.screening):
            best = BestSoFar.of(campaign, trials, belief=proposer.belief)
            BEST.keep(self._store, campaign.id, best, ended=ended)
            with self._store.transaction() as session:
                announce(session, "campaign", campaign_id=campaign.id)
        knobs = knobs_of_campaign(campaign.request, snapshot.profile)
        found = recommend(campaign, trials, belief=proposer.belief, knobs=knobs)
        if found is not None:
            stands = standing(found.best.strategy, known, proposer)
            found = found.model_copy(update={"standing": stands})
        RECOMMENDATION.keep(self._store, campaign.id, found, ended=ended)
        why = explain(campaign, found, known, proposer.calibration(known), space=belief.space)
        EXPLANATION.keep(self._store, campaign.id, why, ended=ended)
