"""Why a campaign's best won, or why nothing ran: worked out once for all who ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress

from sqlalchemy.orm import Session

from autotune.calibration import Calibration
from autotune.explanation import explain
from autotune.recommendation import recommend
from autotune.resolution import machine_of, transformer_of
from autotune.schemas import EarlierObservation, Explanation, Trial
from autotune.search.trial import merged
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer
from server.runner.scheduling import search_trials
from server.runner.start import SearchStart, space_of_campaign
from server.store import NotFound, Store
from server.store.campaigns import get_campaign, profile_of
from server.store.events import newest_events
from server.store.history import earlier_observations
from server.store.trials import all_trials

KEPT = 200
"""Explanations that are kept, the last asked for."""


class Explanations:
    """A fit to all trials takes up to a second, and many may look at one campaign.

    An answer is kept until something happens to the campaign; whoever asks meanwhile waits for the
    one who asked first. No connection to the database is held while it is worked out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], Future[Explanation]] = OrderedDict()

    def of(self, campaign_id: int) -> Explanation:
        """Return the explanation as a campaign's trials stand; raises NotFound."""
        with self._store.session() as session:
            key = (campaign_id, _newest_event(session, campaign_id))
        with self._lock:
            future = self._kept.get(key)
            mine = future is None
            if future is None:
                future = self._kept[key] = Future()
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        if mine:
            try:
                future.set_result(self._worked_out(campaign_id))
            except BaseException as error:
                with self._lock:
                    self._kept.pop(key, None)
                future.set_exception(error)
        return future.result()

    def kept(self, session: Session, campaign_id: int) -> Explanation | None:
        """Return what `of` would return where that takes no time; None where it does."""
        with self._lock:
            future = self._kept.get((campaign_id, _newest_event(session, campaign_id)))
        ready = future is not None and future.done() and future.exception() is None
        return future.result() if future is not None and ready else None

    def _worked_out(self, campaign_id: int) -> Explanation:
        with self._store.session() as session:
            campaign = get_campaign(session, campaign_id)
            trials = all_trials(session, campaign_id)
            profile = profile_of(session, campaign_id) if campaign.request.slurm else None
            kept = earlier_observations(session, campaign_id) if campaign.started_from else []
        transformer, machine = transformer_of(campaign.model), machine_of(campaign.machine)
        space: SearchSpace | None = None
        with suppress(InvalidInput, InvalidInputs):  # of an earlier version, which allowed more
            space = space_of_campaign(campaign.request, transformer, machine, profile=profile)
        return explain(
            campaign,
            recommend(campaign, trials),
            search_trials(trials),
            _calibration(transformer, machine, trials, kept),
            space=space,
        )


def _newest_event(session: Session, campaign_id: int) -> int:
    """Return the id of a campaign's last event; raises NotFound."""
    newest = newest_events(session, [campaign_id])
    if campaign_id not in newest:
        raise NotFound("campaign", campaign_id)
    return newest[campaign_id]


def _calibration(
    transformer: Transformer,
    machine: Machine,
    trials: Sequence[Trial],
    kept: Sequence[EarlierObservation],
) -> Calibration:
    """Return the belief after these trials, as the campaign's search has it.

    Args:
        kept: what earlier trials had shown when it began.
    """
    start = SearchStart(machine=machine, transformer=transformer, kept=kept)
    earlier = start.observations(start.versions(trials))
    own = [trial.observation(transformer) for trial in merged(search_trials(trials))]
    return Calibration.of(machine, [*earlier, *(each for each in own if each is not None)])
