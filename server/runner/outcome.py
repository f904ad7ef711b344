"""What follows from the ends of a campaign's trials, written down by its runner, which has fitted
the cost model to them: readers need not."""

from __future__ import annotations

import time

import structlog

from autotune.explanation import explain
from autotune.recommendation import recommend
from autotune.recommendation.standing import standing
from autotune.resolution import strategy_of
from autotune.search import ended_of, search_trials
from server.runner.belief import SearchBelief
from server.runner.snapshot import CampaignSnapshot
from server.store import Store
from server.store.outcomes import EXPLANATION, LEADER, STANDING, has_stand_ins, leader_of

SHARE = 0.05
"""Of a runner's time that outcomes may take while trials go on: where trials take milliseconds, not
every end can be written about."""

LONGEST_S = 1.0
"""That an outcome is taken to take before the first: a campaign that ends within LONGEST_S / SHARE
has one at its own end alone."""

log = structlog.get_logger(__name__)


class OutcomeNotes:
    """Writes down the outcomes of a runner's campaigns."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._not_before = time.monotonic() + LONGEST_S / SHARE

    def keep(
        self, snapshot: CampaignSnapshot, belief: SearchBelief, *, at_once: bool = False
    ) -> bool:
        """Write down what follows from a campaign's trials that have ended; return whether there
        was time for it.

        Args:
            at_once: whether there is, as when the campaign ends.
        """
        began = time.monotonic()
        if began < self._not_before and not at_once:
            return False
        try:
            self._keep(snapshot, belief)
        except (ValueError, ArithmeticError) as error:  # of what is told of results, not of them
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
            leader = leader_of(campaign, trials, proposer.belief)
            LEADER.keep(self._store, campaign.id, leader, ended=ended)
        found = recommend(campaign, trials, belief=proposer.belief)
        stands = None
        if found is not None:
            stands = standing(strategy_of(found.best.strategy), known, proposer)
        STANDING.keep(self._store, campaign.id, stands, ended=ended)
        why = explain(campaign, found, known, proposer.calibration(known), space=belief.space)
        EXPLANATION.keep(self._store, campaign.id, why, ended=ended)
