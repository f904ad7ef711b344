"""The runner: claims campaigns and advances each in turn, one step at a time."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

import structlog
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from autotune.files import is_file_system_failure
from search_spaces.errors import InvalidInput
from server.data_folder import closed_folder
from server.pace import PACE, Pace
from server.runner.admission import MachineQueue
from server.runner.backends import EvaluatorBackends
from server.runner.campaign import ClaimedCampaign
from server.runner.claims import Claims, LeaseRenewal
from server.runner.trial_ends import OutcomeNotes
from server.settings import Settings
from server.store import DatabaseReplaced, LeaseLost, NotFound, Store
from server.store.errors import cause, is_full_disk
from server.store.events import newest_since
from server.store.leases import Lease, any_in_allocation
from server.store.ownership import ownership
from server.store.tables import UserRow

REST = 4.0
"""Pause after a round without changes, as a multiple of its duration: however many campaigns wait,
polling them takes at most a fifth of a core."""
DATABASE_PATIENCE_S = 1.0
CLOSING_PATIENCE_S = 3.0
CLOSING_PAUSE_S = 0.2
"""Seconds for which, and interval at which, a database that does not respond is retried when this
runner stops."""
DISK_FULL = "the disk that holds the trials or the database is full; make room, then resume"
log = structlog.get_logger(__name__)


def run_until_stopped(settings: Settings, *, pace: Pace = PACE) -> None:
    """Work on the campaigns of this database until SIGTERM or SIGINT, then end its trials.

    Raises:
        InvalidInput: the database's URL is invalid.
        InUse: another runner works on this SQLite file.
        UnknownSchema: the database was written by a later version, or by one too old to be
            upgraded.
        DatabaseReplaced: the database was deleted or replaced meanwhile.
    """
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    closed_folder(settings.data_dir)
    store = Store(settings.url)
    store.upgrade()
    if settings.runner_user:
        _check_user(store, settings.runner_user)
    with ownership(store, "runner"):
        runner = Runner(settings, store, pace=pace)
        log.info("runner_started", owner=runner.owner, database=store.dialect)
        try:
            runner.run(stop)
        finally:
            runner.close()
            store.close()
            log.info("runner_stopped")


def _check_user(store: Store, name: str) -> None:
    with store.session() as session:
        user = session.scalars(select(UserRow).where(UserRow.name == name)).one_or_none()
    if user is None or user.revoked_at is not None:
        reason = "the service has no such user" if user is None else "this user was revoked"
        raise InvalidInput("as", name, reason, valid="a user as `autotune users` lists them")


class Runner:
    """All campaigns of one process. A failure in one of them does not affect the others."""

    def __init__(self, settings: Settings, store: Store, *, pace: Pace = PACE) -> None:
        self._settings = settings
        self._pace = pace
        self._store = store
        self._claims = Claims(settings, store, pace)
        self.owner = self._claims.owner
        self._backends = EvaluatorBackends(cluster_retry_s=pace.cluster_retry_s)
        self._machine_queue = MachineQueue()
        self._outcomes = OutcomeNotes(store)
        self._campaigns: dict[int, ClaimedCampaign] = {}
        self._renewal = LeaseRenewal(store, held=self._leases, lease_s=pace.lease_s)
        self._newest: dict[int, int] = {}
        self._last_event = 0
        self._moving: set[int] = set()
        self._next_look = 0.0
        self._next_claim = 0.0

    def run(self, stop: threading.Event) -> None:
        """Run rounds until `stop` is set, with a pause after each round without changes.

        Raises:
            DatabaseReplaced: the campaigns' database is gone, and waiting does not help.
        """
        self._renewal.start()
        while not stop.is_set():
            began = time.monotonic()
            try:
                changed = self.round()
            except DBAPIError as error:
                log.warning("database_unavailable", error=cause(error))
                stop.wait(DATABASE_PATIENCE_S)
                continue
            if not changed:
                took_s = time.monotonic() - began
                stop.wait(max(self._pace.round_s, REST * took_s))

    def round(self) -> bool:
        """Claim free campaigns, then advance those in which something happened by one step.

        Once per interval all campaigns are advanced, since only polling reveals how trials stand;
        in between only those that changed in the last round or by someone else. Return whether
        anything changed.

        Raises:
            DBAPIError: the database does not respond; a later round may succeed.
        """
        self._keep_leases()
        self._claim()
        due = self._moving | self._news()
        self._moving = set()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + self._pace.round_s
            due = set(self._campaigns)
        for campaign_id, campaign in list(self._campaigns.items()):
            self._keep_leases()
            if campaign_id in due & self._campaigns.keys() and self._advance(campaign):
                self._moving.add(campaign_id)
        return bool(self._moving)

    def close(self) -> None:
        """End all trials and release the campaigns; the trials run again later."""
        self._leave_allocations()
        self._backends.close()
        self._renewal.stop()
        until = time.monotonic() + CLOSING_PATIENCE_S
        while not self._let_go(last=time.monotonic() > until):
            time.sleep(CLOSING_PAUSE_S)

    def _let_go(self, *, last: bool) -> bool:
        """Release the campaigns; return whether that succeeded, as the database may be restarting,
        too. `last`: it will not be retried."""
        try:
            for campaign_id, campaign in list(self._campaigns.items()):
                campaign.release()
                del self._campaigns[campaign_id]
        except (DBAPIError, DatabaseReplaced) as error:
            if isinstance(error, DBAPIError) and not last:
                return False
            log.warning("campaigns_not_released", held=len(self._campaigns), error=cause(error))
            self._campaigns.clear()
        return True

    def _leave_allocations(self) -> None:
        try:
            with self._store.session() as session:
                in_use = any_in_allocation(session)
        except (DBAPIError, DatabaseReplaced) as error:
            log.warning("allocations_not_released", error=cause(error))
            return
        if not in_use:
            self._backends.leave_allocations()

    def _news(self) -> set[int]:
        with self._store.session() as session:
            newest = newest_since(session, self._last_event)
        self._last_event = max([self._last_event, *newest.values()])
        self._newest |= newest
        self._newest = {known: self._newest[known] for known in self._campaigns}
        return newest.keys() & self._campaigns.keys()

    def _claim(self) -> None:
        now = time.monotonic()
        if now < self._next_claim:
            return
        self._next_claim = now + self._pace.round_s
        claimed = self._claims.take(held=len(self._campaigns))
        self._newest |= claimed.newest
        self._moving |= claimed.newest.keys()
        for lease in claimed.leases:
            log.info("campaign_claimed", campaign=lease.campaign_id, epoch=lease.epoch)
            self._campaigns[lease.campaign_id] = ClaimedCampaign(
                lease,
                store=self._store,
                settings=self._settings,
                backends=self._backends,
                machine_queue=self._machine_queue,
                outcomes=self._outcomes,
            )

    def _leases(self) -> list[Lease]:
        return [campaign.lease for campaign in list(self._campaigns.values())]

    def _keep_leases(self) -> None:
        for lease in self._renewal.in_round():
            campaign = self._campaigns.get(lease.campaign_id)
            if campaign and campaign.lease == lease:
                self._lose(campaign, "another runner has its lease")

    def _lose(self, campaign: ClaimedCampaign, reason: str) -> None:
        log.warning("campaign_lost", reason=reason, campaign=campaign.lease.campaign_id)
        self._campaigns.pop(campaign.lease.campaign_id, None)
        campaign.abandon()

    def _advance(self, campaign: ClaimedCampaign) -> bool:
        with structlog.contextvars.bound_contextvars(campaign=campaign.lease.campaign_id):
            try:
                changed = self._step(campaign)
            except (LeaseLost, NotFound) as error:
                self._lose(campaign, str(error))
                return True
            if campaign.at_rest:
                self._campaigns.pop(campaign.lease.campaign_id, None)
            return changed

    def _step(self, campaign: ClaimedCampaign) -> bool:
        """Advance a campaign by one step. Wait if a file system or the database fails, pause it if
        the database's disk is full, and let it fail for any other error.

        Return whether anything changed.

        Raises:
            LeaseLost, NotFound: the campaign no longer belongs to this runner.
            DBAPIError: the database does not respond; the next round will see the same error.
            DatabaseReplaced: the database is a different one.
        """
        try:
            changed = campaign.advance(self._newest[campaign.lease.campaign_id])
            campaign.wait("")
            return changed
        except (LeaseLost, NotFound, DatabaseReplaced):
            raise
        except Exception as error:
            if is_file_system_failure(error):
                log.warning("file_system_failure", error=str(error))
                campaign.wait(f"waits for a file system: {error}")
            elif is_full_disk(error):
                log.error("disk_full", error=cause(error))
                campaign.pause(DISK_FULL)
            elif isinstance(error, OperationalError | InterfaceError):
                raise
            else:
                log.error("campaign_failed", exc_info=error)
                campaign.fail(sentence(error))
            return False


def sentence(error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
