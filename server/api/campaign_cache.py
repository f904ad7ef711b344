"""Campaigns and what follows from their trials, computed once for all who ask.

A campaign and its trials are cached until the campaign's next event. A recommendation, an
explanation or a figure is cached until a trial ends: most events are the progress of one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, get_args

from autotune.answers.recommendation import knob_gains, launch_figures
from autotune.explanation.summary import explain
from autotune.recommendation.recommendation import as_of_now
from autotune.recommendation.standing import standing
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import FigureKind
from autotune.schemas.explanations import Explanation
from autotune.schemas.figures import FigureForm, FigureOffers
from autotune.schemas.knobs import KnobFindings
from autotune.schemas.recommendations import Ranked, Recommendation
from autotune.schemas.trials import Trial
from autotune.search import ended_of, search_trials
from evaluators.artefacts import Launch, artefact_names, launch_script, trainer_offers
from evaluators.cluster import profile_from_dict
from server.cache import MEGABYTES, Cache
from server.campaign.worth import proposer_of, trial_cost
from server.figures.figure import DrawnFigure
from server.figures.kinds import KINDS, FigureOptions, made, missing, offer
from server.figures.source import FigureSource, SpaceBelief
from server.figures.vega import Scheme
from server.store import NotFound, Store
from server.store.campaign_list import refresh_best
from server.store.campaigns import get_campaign, profile_of
from server.store.events import last_event_of
from server.store.history import earlier_observations
from server.store.outcomes import EXPLANATION, RECOMMENDATION
from server.store.trials import all_trials

RESULT = 10
"""Size of a recommendation, an explanation or a figure in the cache."""

T = TypeVar("T")


class CampaignCache:
    """No connection to the database is held while anything is computed.

    Each method that takes an event takes the campaign's last one. Each raises NotFound where there
    is no such campaign.
    """

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._cache = cache

    def last_event(self, campaign_id: int) -> int:
        """Return the id of a campaign's last event."""
        with self._store.session() as session:
            return last_event_of(session, campaign_id)

    def campaign(self, campaign_id: int, event: int) -> Campaign:
        """Return a campaign."""
        return self._cache.of(
            ("campaign", campaign_id), lambda: self._campaign(campaign_id), version=event
        )

    def source(self, campaign_id: int, event: int) -> FigureSource:
        """Return a campaign with its trials."""
        key = "source", campaign_id
        before: FigureSource | None = self._cache.latest(key)
        known = before.trials if before else ()
        return self._cache.of(
            key,
            lambda: self._source(campaign_id, event, known),
            version=event,
            size=MEGABYTES,
        )

    def latest(self, campaign_id: int) -> FigureSource:
        """Return a campaign with its trials, as they stand now."""
        return self.source(campaign_id, self.last_event(campaign_id))

    def recommendation(self, campaign_id: int, event: int) -> Recommendation | None:
        """Return the recommendation with its launch files; None while no trial has succeeded."""
        return self._result(campaign_id, event, "recommendation", self._recommendation)

    def existing_recommendation(self, campaign_id: int, event: int) -> Recommendation:
        """Return the recommendation; raises NotFound if there is none, and says why."""
        found = self.recommendation(campaign_id, event)
        if found is not None:
            return found
        reason = f"campaign {campaign_id} has no recommendation yet: no trial has succeeded"
        if self.campaign(campaign_id, event).is_imported:
            reason = f"campaign {campaign_id} was imported, and nothing is recommended from it"
        raise NotFound("recommendation", campaign_id, reason=reason)

    def explanation(self, campaign_id: int, event: int) -> Explanation:
        """Return the explanation."""
        return self._result(campaign_id, event, "explanation", self._explanation)

    def written_explanation(self, campaign_id: int, event: int) -> Explanation | None:
        """Return the explanation if it need not be computed, which takes up to a second."""
        return EXPLANATION.written(self._store, campaign_id, self.source(campaign_id, event).trials)

    def offers(self, campaign_id: int, event: int) -> FigureOffers:
        """Return which figures a campaign has, and why not the others."""
        return self._result(campaign_id, event, "offers", _offers)

    def figure(
        self, campaign_id: int, event: int, kind: FigureKind, options: FigureOptions
    ) -> DrawnFigure:
        """Return one figure.

        Raises:
            NotFound: the campaign has no such figure.
            InvalidInput: it has none with these options.
        """
        about = kind, options
        return self._result(campaign_id, event, about, lambda source: _made(source, kind, options))

    def figure_file(
        self,
        campaign_id: int,
        event: int,
        kind: FigureKind,
        options: FigureOptions,
        *,
        form: FigureForm,
        scheme: Scheme,
    ) -> bytes:
        """Return one figure as a file: its data, its chart, or a picture.

        Raises:
            NotFound, InvalidInput: as `figure` does.
            OSError: a picture could not be drawn.
        """
        figure = self.figure(campaign_id, event, kind, options)
        about = kind, options, form, scheme
        return self._result(
            campaign_id, event, about, lambda _: figure.encoded(form, scheme=scheme)
        )

    def _result(
        self,
        campaign_id: int,
        event: int,
        about: Hashable,
        make: Callable[[FigureSource], T],
    ) -> T:
        source = self.source(campaign_id, event)
        key = "result", campaign_id, about
        return self._cache.of(key, lambda: make(source), version=source.key, size=RESULT)

    def _campaign(self, campaign_id: int) -> Campaign:
        refresh_best(self._store, [campaign_id])
        with self._store.session() as session:
            return get_campaign(session, campaign_id)

    def _source(self, campaign_id: int, event: int, known: Sequence[Trial]) -> FigureSource:
        campaign = self.campaign(campaign_id, event)
        with self._store.session() as session:
            trials = all_trials(session, campaign_id, known=known)
        belief = self._cache.of(
            ("belief", campaign_id),
            lambda: self._belief(campaign, trials),
            version=tuple((trial.token, trial.finished_at) for trial in ended_of(trials)),
            size=MEGABYTES,
        )
        return FigureSource(campaign=campaign, trials=trials, belief=belief)

    def _belief(self, campaign: Campaign, trials: Sequence[Trial]) -> SpaceBelief:
        with self._store.session() as session:
            request = campaign.request
            has_profile = request.slurm or request.ray or request.adapter or request.knob_file
            profile = profile_of(session, campaign.id) if has_profile else None
            earlier = earlier_observations(session, campaign.id) if campaign.started_from else []
        return SpaceBelief.of(campaign, trials, profile=profile, earlier=earlier)

    def _recommendation(self, source: FigureSource) -> Recommendation | None:
        if source.campaign.is_imported:
            return None
        found = RECOMMENDATION.of(
            self._store, source.campaign.id, source.trials, lambda: _recommended(source)
        )
        if found is None:
            return None
        launch = launch_of(source, found.best, knobs=found.knobs)
        names = sorted(artefact_names(launch))
        files = {
            "artefacts": names,
            "launch": launch_script(launch, names),
            "trainers": trainer_offers(launch),
        }
        return as_of_now(found, source.campaign, source.trials).model_copy(update=files)

    def _explanation(self, source: FigureSource) -> Explanation:
        campaign_id = source.campaign.id
        return EXPLANATION.of(self._store, campaign_id, source.trials, lambda: _explained(source))


def launch_of(source: FigureSource, ranked: Ranked, *, knobs: KnobFindings | None = None) -> Launch:
    """Return the launch of a strategy, with the cluster's profile as the campaign keeps it.

    Args:
        knobs: what was found of knobs on this strategy; it is launched with those adopted.
    """
    campaign, profile = source.campaign, source.belief.profile
    return Launch(
        transformer=campaign.model,
        machine=campaign.machine,
        strategy=knobs.launched if knobs else ranked.strategy,
        name=campaign.name,
        evaluator=campaign.request.evaluator,
        profile=None if profile is None else profile_from_dict(dict(profile), source="campaign"),
        campaign=f"{campaign.id}, {campaign.name}",
        figures=launch_figures(ranked, simulated=campaign.simulated),
        knobs=knob_gains(knobs) if knobs else {},
    )


def _recommended(source: FigureSource) -> Recommendation | None:
    campaign, belief = source.campaign, source.belief
    with belief.lock:
        found = source.recommendation
        if found is None:
            return None
        cost = trial_cost(campaign, source.trials)
        proposer = proposer_of(campaign, belief.space, belief=belief.of_campaign, cost=cost)
        stands = standing(found.best.strategy, belief.known, proposer)
        return found.model_copy(update={"standing": stands})


def _explained(source: FigureSource) -> Explanation:
    campaign, belief = source.campaign, source.belief
    if campaign.is_imported:
        about: dict[str, Any] = {"campaign_id": campaign.id, "simulated": False, "strategies": []}
        about |= dict.fromkeys(("memory_limit_gib", "gpu_memory_gib"), campaign.machine.memory_gib)
        return Explanation(**about, sentences=["Its runs were imported: nothing was searched."])
    with belief.lock:
        trials, found = search_trials(source.ended), source.recommendation
        return explain(campaign, found, trials, belief.calibration, space=belief.space)


def _offers(source: FigureSource) -> FigureOffers:
    with source.belief.lock:
        figures = [offer(kind, source) for kind in get_args(FigureKind)]
    return FigureOffers(
        campaign_id=source.campaign.id, simulated=source.campaign.simulated, figures=figures
    )


def _made(source: FigureSource, kind: FigureKind, options: FigureOptions) -> DrawnFigure:
    fits = KINDS[kind].rests_on != "trials"
    with source.belief.lock if fits else nullcontext():
        why = missing(kind, source)
        if why:
            reason = f"campaign {source.campaign.id} has no figure of {kind}: {why}"
            raise NotFound("figure", kind, reason=reason)
        return made(kind, source, options)
