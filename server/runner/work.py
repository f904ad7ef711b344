"""The work on one campaign, advanced a step at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property

import structlog

from autotune.resolution import space_of, strategy_of
from autotune.schemas import Budget, Campaign, CampaignState, Trial, TrialState
from autotune.search import Proposer
from evaluators.trial import TrialOutcome, TrialProgress
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from server.runner.backends import Backends
from server.runner.evaluation import Answer, Evaluation
from server.runner.failures import same_failure
from server.runner.outcomes import differs, final_values, never_ran, standing_values
from server.runner.planning import (
    Decision,
    free_nodes,
    is_late,
    new_trials,
    next_confirmations,
    next_search,
    reason_to_end_search,
)
from server.runner.preflight import CLEAR, Preflight
from server.runner.snapshot import Snapshot
from server.runner.turns import Turns
from server.settings import Settings
from server.store import Store
from server.store.commands import WORKED_ON, change_state
from server.store.events import announce
from server.store.leases import Lease, release, renew
from server.store.progress import (
    Purpose,
    finish_all,
    finish_trial,
    insert_trials,
    note_standing,
)
from server.store.queries import all_trials

FAILURES_TO_PAUSE = 5
PURPOSES: Mapping[CampaignState, Purpose] = {
    CampaignState.RUNNING: "search",
    CampaignState.CONFIRMING: "confirmation",
}
log = structlog.get_logger(__name__)


class CampaignWork:
    """One claimed campaign. All that it keeps between steps can be had from the rows again.

    Attributes:
        over: the campaign rests and none of its trials runs; the lease is given back.
    """

    def __init__(
        self, lease: Lease, *, store: Store, settings: Settings, backends: Backends, turns: Turns
    ) -> None:
        self.lease = lease
        self.over = False
        self._store = store
        self._settings = settings
        self._backends = backends
        self._turns = turns
        self._seen: Snapshot | None = None
        self._idle_at: tuple[int, int, Budget] | None = None
        self._started: list[Trial] = []

    def advance(self, newest: int) -> bool:
        """One step: store what has finished, or start what can be; whether anything changed.

        Args:
            newest: the campaign's last event. Its rows are read again when that has grown.

        Raises:
            LeaseLost: another runner works on it now; what this step found was not stored.
            NotFound: it was deleted.
        """
        if self._seen is None or self._seen.newest != newest:
            self._seen = Snapshot.read(self._store, self.lease.campaign_id, newest=newest)
        campaign, pending = self._snapshot.campaign, self._snapshot.pending
        answer = self._evaluation.ask(pending)
        self._started = answer.started
        if answer.ended:
            self._store_outcomes(answer.ended)
            return True
        self._note_standings(answer)
        if campaign.state in {CampaignState.CANCELLED, CampaignState.FAILED}:
            return self._end_by_force(answer)
        if campaign.state not in WORKED_ON:
            self._evaluation.cancel(answer.waiting)
            return self._rest(pending)
        if answer.unknown:
            return self._submit(answer.unknown)
        return self._go_on(campaign, answer)

    def fail(self, reason: str) -> None:
        """The campaign fails; one that had ended already loses the trials that keep it open."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            hopeless = row.state in {CampaignState.CANCELLED, CampaignState.FAILED}
            if hopeless:
                values = never_ran(TrialState.LOST, reason, now=datetime.now(UTC))
                finish_all(session, row.id, values)
            else:
                change_state(session, row, CampaignState.FAILED, reason=reason)
        if hopeless and self._started:
            with contextlib.suppress(OSError):
                self._evaluation.cancel(self._started)

    def pause(self, reason: str) -> None:
        """The campaign pauses, unless it rests already."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state in WORKED_ON:
                change_state(session, row, CampaignState.PAUSED, reason=reason)

    def abandon(self) -> None:
        """Another runner has it: end what runs on this machine, and write nothing."""
        self._turns.leave(self.lease.campaign_id)
        if self._started and self._shares_machine:
            self._evaluation.cancel(self._started)

    def release(self) -> None:
        """Give the lease back, so that another runner need not wait for its end."""
        self._turns.leave(self.lease.campaign_id)
        with self._store.transaction() as session:
            release(session, self.lease)

    @property
    def _snapshot(self) -> Snapshot:
        assert self._seen is not None
        return self._seen

    @cached_property
    def _evaluation(self) -> Evaluation:
        snapshot = self._snapshot
        backend = self._backends.of(snapshot.campaign.request, profile=snapshot.profile)
        return Evaluation(snapshot.campaign, backend=backend, settings=self._settings)

    @cached_property
    def _space(self) -> SearchSpace:
        request, subject = self._snapshot.campaign.request, self._evaluation.subject
        return space_of(request.space, subject.transformer, subject.machine, nodes=request.nodes)

    @cached_property
    def _preflight(self) -> Preflight | None:
        request, profile = self._snapshot.campaign.request, self._snapshot.profile
        return self._backends.preflight(request, self._space, profile=profile)

    @cached_property
    def _proposer(self) -> Proposer:
        request = self._snapshot.campaign.request
        return Proposer(self._space, objective=request.objective, seed=request.seed)

    @property
    def _shares_machine(self) -> bool:
        return self._snapshot.campaign.request.evaluator == "local"

    def _store_outcomes(self, ended: Sequence[tuple[Trial, TrialOutcome]]) -> None:
        """In the transaction that renews the lease: a runner that lost it stores nothing."""
        now, subject = datetime.now(UTC), self._evaluation.subject
        fresh = {trial.number for trial, _ in ended}
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            for trial, outcome in ended:
                strategy = strategy_of(trial.strategy)
                finish_trial(session, trial, final_values(subject, strategy, outcome, now=now))
            if row.state == CampaignState.RUNNING:
                reason = same_failure(
                    all_trials(session, row.id),
                    fresh=fresh,
                    times=FAILURES_TO_PAUSE,
                    withdrawn=self._evaluation.withdrawn,
                )
                if reason:
                    change_state(session, row, CampaignState.PAUSED, reason=reason)
        for trial, outcome in ended:
            log.info("trial_ended", trial=trial.number, state=outcome.status.value)
        if not self._started:
            self._turns.leave(self.lease.campaign_id)

    def _note_standings(self, answer: Answer) -> None:
        """Write how trials stand where that has changed, all in one transaction."""
        standings: list[tuple[Trial, TrialProgress | None]] = [
            *answer.standing,
            *((trial, None) for trial in answer.unknown),
        ]
        noted = [(trial, standing_values(standing)) for trial, standing in standings]
        changed = [(trial, values) for trial, values in noted if differs(trial, values)]
        if changed:
            with self._store.transaction() as session:
                renew(session, self.lease)
                for trial, values in changed:
                    note_standing(session, trial, values)

    def _end_by_force(self, answer: Answer) -> bool:
        """End what runs; what does not run is cancelled as it stands."""
        self._evaluation.cancel(answer.started)
        if answer.unknown:
            reason = "cancelled before it ran to its end"
            values = never_ran(TrialState.CANCELLED, reason, now=datetime.now(UTC))
            with self._store.transaction() as session:
                renew(session, self.lease)
                for trial in answer.unknown:
                    finish_trial(session, trial, values)
        return self._rest([*answer.started, *answer.unknown])

    def _rest(self, pending: Sequence[Trial]) -> bool:
        if not self._started:
            self._turns.leave(self.lease.campaign_id)
        if not pending:
            self.release()
            self.over = True
        return False

    def _may_start(self) -> bool:
        """This machine runs the trials of one campaign at a time; elsewhere nodes are the limit."""
        return not self._shares_machine or self._turns.ask(self.lease.campaign_id)

    def _submit(self, trials: Sequence[Trial]) -> bool:
        """Start pending trials, if it is this campaign's turn."""
        if not self._may_start():
            return False
        self._evaluation.submit(trials)
        return True

    def _go_on(self, campaign: Campaign, answer: Answer) -> bool:
        if campaign.state is CampaignState.QUEUED:
            return self._begin(campaign)
        if answer.waiting and is_late(campaign, now=datetime.now(UTC)):
            self._evaluation.cancel(answer.waiting)
        known = (
            campaign.trials + campaign.confirmations,
            campaign.pending,
            campaign.request.budget,
        )
        if known == self._idle_at or free_nodes(campaign, self._snapshot.pending) <= 0:
            return False
        decision = self._decide(campaign)
        if decision is None:
            return False
        if decision.start:
            return self._start(campaign, decision.start)
        if not self._started:
            self._turns.leave(self.lease.campaign_id)
        if self._snapshot.pending:
            self._idle_at = known  # until a trial ends or the budget grows, the answer is the same
            return False
        return self._end_phase(campaign, decision.end or "")

    def _begin(self, campaign: Campaign) -> bool:
        """Start the search, unless the cluster stands in the way."""
        found = self._preflight.finding() if self._preflight else CLEAR
        if found is None:
            return False
        if found.clear:
            return self._change(campaign, CampaignState.RUNNING)
        if found.obstacle:
            del self._preflight  # a resumed campaign looks again
            self.pause(found.obstacle)
            return True
        if found.delay != campaign.reason:
            self._change(campaign, CampaignState.QUEUED, reason=found.delay)
        return False

    def _decide(self, campaign: Campaign) -> Decision | None:
        """None while another campaign uses this machine."""
        now, trials = datetime.now(UTC), self._snapshot.trials
        if campaign.state is CampaignState.CONFIRMING:
            decision = next_confirmations(campaign, trials, now=now)
            return decision if not decision.start or self._may_start() else None
        end = reason_to_end_search(campaign, trials, now=now)
        if end is not None:
            return Decision(end=end)
        if not self._may_start():
            return None
        return next_search(campaign, trials, self._proposer, now=now)

    def _start(self, campaign: Campaign, strategies: Sequence[Strategy]) -> bool:
        """The rows first, and only then the trials: what is not in a row never runs."""
        new = new_trials(self._evaluation.subject, strategies, purpose=PURPOSES[campaign.state])
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state != campaign.state:
                return True
            trials = insert_trials(session, row, new)
        return self._submit(trials)

    def _end_phase(self, campaign: Campaign, reason: str) -> bool:
        if campaign.state is CampaignState.RUNNING:
            return self._change(campaign, CampaignState.CONFIRMING, reason=reason)
        return self._change(campaign, CampaignState.DONE, reason=reason)

    def _change(self, campaign: Campaign, state: CampaignState, *, reason: str = "") -> bool:
        """To the next state, unless a user has changed it in the meantime."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state == campaign.state:
                change_state(session, row, state, reason=reason)
                if state is CampaignState.DONE:
                    announce(session, "recommendation", campaign_id=row.id)
        log.info("campaign_state", state=state.value, reason=reason)
        return True
