"""One claimed campaign, advanced step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property

import structlog

from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.requests import Budget, CampaignCreate
from autotune.schemas.trials import Trial
from autotune.search import few_nodes
from evaluators.trial import TrialOutcome, TrialProgress
from server.campaign.best import ended_trials
from server.campaign.knobs import knobs_of_campaign, next_knob_start
from server.campaign.results import UnrunTrial
from server.campaign.scheduling import (
    NextTrials,
    free_nodes,
    is_late,
    new_trials,
    next_confirmations,
    next_search,
    reason_to_end_search,
    wants_baseline,
    while_confirming,
)
from server.runner.admission import ClusterCheck, ClusterStatus, MachineQueue
from server.runner.backends import EvaluatorBackends
from server.runner.belief import CampaignSnapshot, SearchBelief
from server.runner.trial_ends import OutcomeNotes, store_ends
from server.runner.trial_polling import PolledTrials, TrialPolling
from server.settings import Settings
from server.store import Store
from server.store.campaigns import WORKED_ON, change_state
from server.store.history import keep_start, note_worth, starting_observations
from server.store.leases import Lease, release, renew
from server.store.store import announce
from server.store.trials import finish_all, finish_trial, insert_trials, is_noted, note_progress

WORTH_GROWTH = 1.2
"""Growth of the number of timed trials after which the worth of the start is computed again."""
WAITS_FOR_MACHINE = "waits for this machine, where real trials run one at a time"
log = structlog.get_logger(__name__)


class ClaimedCampaign:
    """A campaign whose lease this runner holds.

    Everything that it holds between steps can be read from the rows again.

    Attributes:
        at_rest: nothing is left to do and no trial runs; the lease is released.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        store: Store,
        settings: Settings,
        backends: EvaluatorBackends,
        machine_queue: MachineQueue,
        outcomes: OutcomeNotes,
    ) -> None:
        self.lease = lease
        self.at_rest = False
        self._store = store
        self._settings = settings
        self._backends = backends
        self._machine_queue = machine_queue
        self._outcomes = outcomes
        self._trials_in_outcome = 0
        self._read: CampaignSnapshot | None = None
        self._idle_at: tuple[int, int, Budget] | None = None
        self._started: list[Trial] = []
        self._waits_for = ""
        self._belief = SearchBelief(store, lambda: self._snapshot)

    def advance(self, newest: int) -> bool:
        """Take one step: store ended trials, or start new ones.

        Return whether anything changed.

        Args:
            newest: the campaign's last event. Its rows are read again if it has changed.

        Raises:
            LeaseLost: another runner has the campaign; nothing of this step was stored.
            NotFound: the campaign was deleted.
        """
        if self._read is None or self._read.newest != newest:
            self._read = CampaignSnapshot.read(
                self._store, self.lease.campaign_id, newest=newest, before=self._read
            )
        campaign, pending = self._snapshot.campaign, self._snapshot.pending
        polled = self._polling.poll(pending)
        self._started = polled.started
        if polled.ended:
            self._store_outcomes(polled.ended)
            return True
        self._note_progress(polled)
        if campaign.state in {CampaignState.CANCELLED, CampaignState.FAILED}:
            return self._end_trials(polled)
        if campaign.state not in WORKED_ON:
            self._polling.cancel(polled.waiting)
            return self._rest(pending)
        if polled.unknown:
            return self._submit(polled.unknown)
        if self._go_on(campaign, polled):
            return True
        self._keep_outcome()
        return False

    def fail(self, reason: str) -> None:
        """Let the campaign fail; if it had already ended, drop the trials that keep it open."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            had_ended = row.state in {CampaignState.CANCELLED, CampaignState.FAILED}
            if had_ended:
                finish_all(session, row.id, _unrun(TrialState.LOST, reason))
            else:
                change_state(session, row, CampaignState.FAILED, reason=reason)
        if had_ended:
            if self._started:
                with contextlib.suppress(OSError):
                    self._polling.cancel(self._started)
            self.release()
            self.at_rest = True

    def wait(self, reason: str) -> None:
        """Record that the next step waits for a failing file system; empty if it does not."""
        if reason == self._waits_for:
            return
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state in WORKED_ON:
                confirming = row.state == CampaignState.CONFIRMING
                shown = while_confirming(row.reason, reason) if confirming else reason
                change_state(session, row, CampaignState(row.state), reason=shown)
        self._waits_for = reason

    def pause(self, reason: str) -> None:
        """Pause the campaign, unless it is already at rest."""
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state in WORKED_ON:
                change_state(session, row, CampaignState.PAUSED, reason=reason)

    def abandon(self) -> None:
        self._machine_queue.leave(self.lease.campaign_id)
        if self._started and self._shares_machine:
            self._polling.cancel(self._started)

    def release(self) -> None:
        self._machine_queue.leave(self.lease.campaign_id)
        with self._store.transaction() as session:
            release(session, self.lease)

    @property
    def _snapshot(self) -> CampaignSnapshot:
        assert self._read is not None
        return self._read

    @cached_property
    def _polling(self) -> TrialPolling:
        snapshot = self._snapshot
        backend = self._backends.of(snapshot.campaign.request, profile=snapshot.profile)
        return TrialPolling(
            snapshot.campaign,
            epoch=self.lease.epoch,
            trials=lambda: self._snapshot.trials,
            calibration=self._belief.calibration_before,
            backend=backend,
            settings=self._settings,
        )

    @cached_property
    def _cluster_check(self) -> ClusterCheck | None:
        request, profile = self._snapshot.campaign.request, self._snapshot.profile
        return self._backends.cluster_check(request, self._belief.space, profile=profile)

    @property
    def _shares_machine(self) -> bool:
        return self._snapshot.campaign.request.evaluator == "local"

    def _store_outcomes(self, ended: Sequence[tuple[Trial, TrialOutcome]]) -> None:
        store_ends(
            self._store,
            self.lease,
            ended,
            campaign=self._snapshot.campaign,
            belief=self._belief,
            known=self._snapshot.known_trials,
            withdrawn=self._polling.withdrawn,
        )
        if not self._started:
            self._machine_queue.leave(self.lease.campaign_id)

    def _note_progress(self, polled: PolledTrials) -> None:
        progress: list[tuple[Trial, TrialProgress | None]] = [
            *polled.in_progress,
            *((trial, polled.without_room.get(trial.token)) for trial in polled.unknown),
        ]
        changed = [(trial, now) for trial, now in progress if not is_noted(trial, now)]
        if changed:
            with self._store.transaction() as session:
                renew(session, self.lease)
                for trial, now in changed:
                    note_progress(session, trial, now)

    def _end_trials(self, polled: PolledTrials) -> bool:
        self._polling.cancel(polled.started)
        if polled.unknown:
            cancelled = _unrun(TrialState.CANCELLED, "cancelled before it ran to its end")
            with self._store.transaction() as session:
                renew(session, self.lease)
                for trial in polled.unknown:
                    finish_trial(session, trial, cancelled)
        return self._rest([*polled.started, *polled.unknown])

    def _rest(self, pending: Sequence[Trial]) -> bool:
        if not self._started:
            self._machine_queue.leave(self.lease.campaign_id)
        if not pending:
            self.release()
            self.at_rest = True
        return False

    def _keep_outcome(self, *, at_once: bool = False) -> None:
        campaign = self._snapshot.campaign
        ended = ended_trials(campaign)
        if ended == self._trials_in_outcome:
            return
        if self._outcomes.keep(self._snapshot, self._belief, at_once=at_once):
            self._trials_in_outcome = ended

    def _may_start(self) -> bool:
        """Return whether the machine is free; on other backends, the number of nodes is the
        limit."""
        return not self._shares_machine or self._machine_queue.enter(self.lease.campaign_id)

    def _may_add(self, campaign: Campaign) -> bool:
        if self._may_start():
            return True
        if not self._snapshot.trials and campaign.reason != WAITS_FOR_MACHINE:
            self._change(campaign, campaign.state, reason=WAITS_FOR_MACHINE)
        return False

    def _submit(self, trials: Sequence[Trial]) -> bool:
        """Start pending trials if the machine is this campaign's; return whether any was
        started."""
        return self._may_start() and self._polling.submit(trials)

    def _go_on(self, campaign: Campaign, polled: PolledTrials) -> bool:
        if campaign.state is CampaignState.QUEUED:
            return self._begin(campaign)
        if polled.waiting and is_late(campaign, now=datetime.now(UTC)):
            self._polling.cancel(polled.waiting)
        known = (
            campaign.trials_in_all,
            campaign.pending,
            campaign.request.budget,
        )
        if known == self._idle_at or free_nodes(campaign, self._snapshot.pending) <= 0:
            return False
        following = self._next_trials(campaign)
        if following is None:
            return False
        if following.proposals or following.strategies:
            return self._start(campaign, following)
        if not self._started:
            self._machine_queue.leave(self.lease.campaign_id)
        if self._snapshot.pending:
            # the answer stays the same until a trial ends or the budget grows
            self._idle_at = known
            return False
        searching = campaign.state is CampaignState.RUNNING
        ended = CampaignState.CONFIRMING if searching else CampaignState.DONE
        return self._change(campaign, ended, reason=following.phase_ends or "")

    def _begin(self, campaign: Campaign) -> bool:
        check = self._cluster_check
        status = check.status() if check else ClusterStatus()
        if status is None:
            return False
        if status.clear:
            return self._begin_search(campaign)
        if status.obstacle:
            del self._cluster_check  # a resumed campaign asks again
            self.pause(status.obstacle)
            return True
        if status.delay != campaign.reason:
            self._change(campaign, CampaignState.QUEUED, reason=status.delay)
        return False

    def _begin_search(self, campaign: Campaign) -> bool:
        earlier: list[EarlierObservation] = []
        if not campaign.request.fresh:
            now = datetime.now(UTC)
            with self._store.session() as session:
                earlier = starting_observations(session, campaign.id, self._belief.space, now=now)
        screening = few_nodes(campaign.request, self._belief.space)
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state == campaign.state:
                keep_start(session, row, earlier)
                row.screening = screening.model_dump(mode="json")
                change_state(session, row, CampaignState.RUNNING)
        log.info("search_begins", earlier_trials=len(earlier))
        return True

    def _next_trials(self, campaign: Campaign) -> NextTrials | None:
        """Return the trials to start; None while another campaign uses this machine, or the owner's
        limit is reached."""
        now, trials = datetime.now(UTC), self._snapshot.trials
        if campaign.state is CampaignState.CONFIRMING:
            following = next_confirmations(campaign, trials, self._belief.proposer(), now=now)
            if not following.strategies and not self._snapshot.pending:
                following = self._next_knob_start(campaign, now=now, ended=following)
            return following if not following.strategies or self._may_add(campaign) else None
        end = reason_to_end_search(campaign, trials, now=now)
        if end is not None:
            return NextTrials(phase_ends=end)
        if not self._may_add(campaign):
            return None
        baseline = self._belief.baseline if wants_baseline(trials) else None
        if baseline and baseline.num_nodes <= free_nodes(campaign, self._snapshot.pending):
            return NextTrials(strategies=(baseline,), purpose="baseline")
        return next_search(campaign, trials, self._belief.proposer(), now=now)

    def _next_knob_start(
        self, campaign: Campaign, *, now: datetime, ended: NextTrials
    ) -> NextTrials:
        return next_knob_start(
            campaign,
            self._snapshot.trials,
            self._belief.proposer(),
            knobs_of_campaign(campaign.request, self._snapshot.profile),
            self._belief.space.program,
            now=now,
            ended=ended,
        )

    def _start(self, campaign: Campaign, following: NextTrials) -> bool:
        trials = self._snapshot.trials
        new = new_trials(following, trials, self._belief.proposer())
        counted = campaign.start_worth.trials if campaign.start_worth else 0
        worth = self._belief.worth_of_start(more_than=counted * WORTH_GROWTH)
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if row.state != campaign.state:
                return True
            confirming = row.state == CampaignState.CONFIRMING
            # the previous reason to wait
            row.reason = while_confirming(row.reason, "") if confirming else ""
            note_worth(row, worth)
            if following.screening is not None:
                row.screening = following.screening.model_dump(mode="json")
            started = insert_trials(session, row, new)
        return self._submit(started)

    def _change(self, campaign: Campaign, state: CampaignState, *, reason: str = "") -> bool:
        worth = self._belief.worth_of_start()
        if state is CampaignState.DONE:
            self._keep_outcome(at_once=True)
        with self._store.transaction() as session:
            row = renew(session, self.lease)
            if (
                row.state != campaign.state
                or CampaignCreate.model_validate(row.request) != campaign.request
            ):
                return True  # extended, paused or cancelled meanwhile
            note_worth(row, worth)
            change_state(session, row, state, reason=reason)
            if state is CampaignState.DONE:
                announce(session, "recommendation", campaign_id=row.id)
        log.info("campaign_state", state=state.value, reason=reason)
        return True


def _unrun(state: TrialState, error: str) -> UnrunTrial:
    return UnrunTrial(state=state, error=error, finished_at=datetime.now(UTC))
