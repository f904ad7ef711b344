"""Store the outcome of a campaign's trials as they end, so that no reader needs to fit the cost
model."""

from __future__ import annotations

import time

import structlog

from autotune.explanation import explain
from autotune.recommendation import recommend
from autotune.recommendation.standing import standing
from autotune.resolution import strategy_of
from autotune.search import ended_of, search_trials
from server.campaign.best import BestSoFar, has_stand_ins
from server.runner.belief import SearchBelief
from server.runner.snapshot import CampaignSnapshot
from server.store import Store
from server.store.announcements import announce
from server.store.outcomes import BEST, EXPLANATION, RECOMMENDATION

SHARE = 0.05
"""Share of a runner's time for outcomes while trials run; if trials take milliseconds, some ends
are skipped."""

LONGEST_S = 1.0
"""Assumed duration of the first outcome: a campaign that ends within LONGEST_S / SHARE gets one
only at its end."""

log = structlog.get_logger(__name__)


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
            log.error("outcome_not_kept", exc_info=error)
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
        found = recommend(campaign, trials, belief=proposer.belief)
        if found is not None:
            stands = standing(strategy_of(found.best.strategy), known, proposer)
            found = found.model_copy(update={"standing": stands})
        RECOMMENDATION.keep(self._store, campaign.id, found, ended=ended)
        why = explain(campaign, found, known, proposer.calibration(known), space=belief.space)
        EXPLANATION.keep(self._store, campaign.id, why, ended=ended)
