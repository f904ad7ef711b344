"""The work on one campaign, advanced a step at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property

import structlog

from autotune.cost_model import estimate
from autotune.resolution import machine_of, space_of, strategy_of, strategy_shape, transformer_of
from autotune.schemas import Budget, Campaign, CampaignState, Trial, TrialState
from autotune.search import Proposer
from evaluators.backend import Backend
from evaluators.trial import Standing, TrialOutcome, TrialRequest
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from server.runner.backends import Backends
from server.runner.outcomes import Subject, final_values, never_ran, same_crash
from server.runner.planning import (
    Decision,
    free_nodes,
    next_confirmations,
    next_search,
    protocol_of,
    reason_to_end_search,
)
from server.runner.turns import Turns
from server.settings import Settings
from server.store import Store
from server.store.commands import WORKED_ON, change_state
from server.store.events import announce
from server.store.leases import Lease, release, renew
from server.store.progress import (
    NewTrial,
    Purpose,
    finish_all,
    finish_trial,
    insert_trials,
    pending_trials,
)
from server.store.queries import all_trials, get_campaign

CRASHES_TO_PAUSE = 5
RENEWALS_PER_LEASE = 3
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
        self._campaign: Campaign  # as it stood when the step began
        self._idle_at: tuple[int, int, Budget] | None = None
        self._renewed = time.monotonic()
        self._running: list[Trial] = []

    def advance(self) -> bool:
        """One step: store what has finished, or start what can be; whether anything changed.

        Raises:
            LeaseLost: another runner works on it now; what this step found was not stored.
        """
        with self._store.session() as session:
            campaign = self._campaign = get_campaign(session, self.lease.campaign_id)
            pending = pending_trials(session, self.lease.campaign_id)
        found = self._backend.poll([self._request(trial) for trial in pending])
        finished = [
            (trial, outcome)
            for trial in pending
            if isinstance(outcome := found.get(trial.token), TrialOutcome)
        ]
        unknown = [trial for trial in pending if trial.token not in found]
        self._running = [t for t in pending if isinstance(found.get(t.token), Standing)]
        if finished:
            self._store_outcomes(finished)
            return True
        self._keep_lease()
        if campaign.state in {CampaignState.CANCELLED, CampaignState.FAILED}:
            return self._end_by_force(unknown)
        if campaign.state not in WORKED_ON:
            return self._rest(pending)
        if unknown:
            return self._submit(unknown)
        return self._go_on(campaign, pending)

    def fail(self, reason: str) -> None:
        """The campaign fails; one that had ended already loses the trials that keep it open."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state in {CampaignState.CANCELLED, CampaignState.FAILED}:
                values = never_ran(TrialState.LOST, reason, now=datetime.now(UTC))
                finish_all(session, row.id, values)
            else:
                change_state(session, row, CampaignState.FAILED, reason=reason)

    def pause(self, reason: str) -> None:
        """The campaign pauses, unless it rests already."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state in WORKED_ON:
                change_state(session, row, CampaignState.PAUSED, reason=reason)

    def abandon(self) -> None:
        """Another runner has it: end what runs on this machine, and write nothing."""
        self._turns.leave(self.lease.campaign_id)
        if self._running and self._shares_machine:
            for trial in self._running:
                self._backend.cancel(trial.token)

    def release(self) -> None:
        """Give the lease back, so that another runner need not wait for its end."""
        self._turns.leave(self.lease.campaign_id)
        with self._store.transaction() as session:
            release(session, self.lease)

    @cached_property
    def _subject(self) -> Subject:
        campaign = self._campaign
        return Subject(
            transformer=transformer_of(campaign.model),
            machine=machine_of(campaign.machine),
            objective=campaign.request.objective,
        )

    @cached_property
    def _backend(self) -> Backend:
        return self._backends.of(self._campaign.request)

    @cached_property
    def _proposer(self) -> Proposer:
        request, subject = self._campaign.request, self._subject
        space = space_of(request.space, subject.transformer, subject.machine, nodes=request.nodes)
        return Proposer(space, objective=request.objective, seed=request.seed)

    @property
    def _shares_machine(self) -> bool:
        return self._campaign.request.evaluator == "local"

    def _request(self, trial: Trial) -> TrialRequest:
        return TrialRequest(
            token=trial.token,
            transformer=self._subject.transformer,
            machine=self._subject.machine,
            strategy=strategy_of(trial.strategy),
            protocol=protocol_of(self._campaign, trial),
            directory=self._settings.trial_dir(trial.token),
            seed=self._campaign.request.seed,
        )

    def _store_outcomes(self, finished: Sequence[tuple[Trial, TrialOutcome]]) -> None:
        """In the transaction that renews the lease: a runner that lost it stores nothing."""
        now = datetime.now(UTC)
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            for trial, outcome in finished:
                strategy = strategy_of(trial.strategy)
                finish_trial(
                    session, trial, final_values(self._subject, strategy, outcome, now=now)
                )
            crash = same_crash(all_trials(session, row.id), times=CRASHES_TO_PAUSE)
            if crash and row.state == CampaignState.RUNNING:
                change_state(session, row, CampaignState.PAUSED, reason=crash)
        for trial, outcome in finished:
            log.info("trial_ended", trial=trial.number, state=outcome.status.value)
        if not self._running:
            self._turns.leave(self.lease.campaign_id)

    def _keep_lease(self) -> None:
        if time.monotonic() - self._renewed > self.lease.seconds / RENEWALS_PER_LEASE:
            with self._store.transaction() as session:
                renew(session, self.lease)
            self._renewed = time.monotonic()

    def _end_by_force(self, unknown: Sequence[Trial]) -> bool:
        """End what runs; what does not run is cancelled as it stands."""
        for trial in self._running:
            self._backend.cancel(trial.token)
        if unknown:
            reason = "cancelled before it ran to its end"
            values = never_ran(TrialState.CANCELLED, reason, now=datetime.now(UTC))
            with self._store.transaction() as session:
                renew(session, self.lease)
                for trial in unknown:
                    finish_trial(session, trial, values)
        return self._rest([*self._running, *unknown])

    def _rest(self, pending: Sequence[Trial]) -> bool:
        if not self._running:
            self._turns.leave(self.lease.campaign_id)
        if not pending:
            self.release()
            self.over = True
        return False

    def _may_start(self) -> bool:
        """This machine runs the trials of one campaign at a time; elsewhere nodes are the limit."""
        return not self._shares_machine or self._turns.ask(self.lease.campaign_id)

    def _submit(self, trials: Sequence[Trial]) -> bool:
        """Start pending trials; a backend runs a token that it knows only once."""
        if not self._may_start():
            return False
        for trial in trials:
            self._backend.submit(self._request(trial))
            strategy = strategy_of(trial.strategy).short()
            log.info("trial_started", trial=trial.number, strategy=strategy)
        return True

    def _go_on(self, campaign: Campaign, pending: Sequence[Trial]) -> bool:
        if campaign.state is CampaignState.QUEUED:
            return self._change(campaign, CampaignState.RUNNING)
        known = (
            campaign.trials + campaign.confirmations,
            campaign.pending,
            campaign.request.budget,
        )
        if known == self._idle_at or free_nodes(campaign, pending) <= 0:
            return False
        decision = self._decide(campaign)
        if decision is None:
            return False
        if decision.start:
            return self._start(campaign, decision.start)
        if not self._running:
            self._turns.leave(self.lease.campaign_id)
        if pending:
            self._idle_at = known  # until a trial ends or the budget grows, the answer is the same
            return False
        return self._end_phase(campaign, decision.end or "")

    def _decide(self, campaign: Campaign) -> Decision | None:
        """None while another campaign uses this machine."""
        now = datetime.now(UTC)
        with self._store.session() as session:
            trials = all_trials(session, campaign.id)
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
        purpose = PURPOSES[campaign.state]
        new = self._predicted(strategies, purpose)
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state != campaign.state:
                return True
            trials = insert_trials(session, row, new)
        return self._submit(trials)

    def _predicted(self, strategies: Sequence[Strategy], purpose: Purpose) -> list[NewTrial]:
        machine = self._subject.machine
        lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
        predicted = estimate(self._subject.transformer, machine, lattice)
        return [
            NewTrial(
                strategy=strategy_shape(strategy),
                purpose=purpose,
                predicted_iteration_time_s=float(predicted.iteration_time_s[row]),
                predicted_memory_gib=float(predicted.memory_gib[row]),
            )
            for row, strategy in enumerate(strategies)
        ]

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
