"""Why campaigns' best won, or why nothing ran: worked out once for all who ask."""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy.orm import Session

from autotune.explanation import explain
from autotune.schemas import Explanation
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.space import SearchSpace
from server.api.kept import Kept
from server.api.kept_figures import KeptFigures
from server.figures.source import FigureSource
from server.runner.scheduling import search_trials
from server.store.events import newest_events

EXPLANATIONS = 200


class Explanations:
    """An explanation is kept until something happens in its campaign, and rests on what is believed
    for the campaign's figures: that costs up to a second."""

    def __init__(self, figures: KeptFigures) -> None:
        self._figures = figures
        self._kept: Kept[Explanation] = Kept(EXPLANATIONS)

    def of(self, campaign_id: int) -> Explanation:
        """Return the explanation as a campaign's trials stand; raises NotFound."""
        event = self._figures.last_event(campaign_id)
        return self._kept.of(
            (campaign_id, event), lambda: _explained(self._figures.source(campaign_id, event))
        )

    def ready(self, session: Session, campaign_id: int) -> Explanation | None:
        """Return what `of` would return where that takes no time; None where it does."""
        event = newest_events(session, [campaign_id]).get(campaign_id)
        return self._kept.ready((campaign_id, event))


def _explained(source: FigureSource) -> Explanation:
    space: SearchSpace | None = None
    with source.belief.lock:
        with suppress(InvalidInput, InvalidInputs):  # of an earlier version, which allowed more
            space = source.belief.space
        calibration = source.belief.calibration
    trials = search_trials(source.trials)
    return explain(source.campaign, source.recommendation, trials, calibration, space=space)
