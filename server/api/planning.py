"""Plans of campaigns before they run, cached for all users."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

from autotune.calibration import Calibration
from autotune.calibration.calibration import prior_of
from autotune.prediction.campaign import misplaced
from autotune.prediction.plan import SHOWN, plan
from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.requests import CampaignCreate, PredictionQuery
from autotune.schemas.resolution import campaign_space, subject_of
from autotune.search import CampaignBelief
from evaluators.cluster import ClusterProfile, profile_as_dict
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer
from server.cache import MEGABYTES, Cache
from server.campaign.knobs import check_knobs, with_knob_starts
from server.campaign.start import SearchStart, machine_digest, trainer_of
from server.campaign.start import program_of as program_name
from server.programs import chosen_profile, is_simulated, program_of
from server.settings import Settings
from server.store import Store
from server.store.history import (
    PastTrial,
    TrialStack,
    most_informative_of,
    newest_trial,
    sources_of,
    trials_of,
)

FIT = 10
"""Size of a calibration in the cache."""
SUBJECT = {"model", "machine", "evaluator", "slurm", "ray", "adapter"}


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedQuestion:
    """A valid request for a plan, and the stack whose earlier trials it uses.

    Attributes:
        newest: id of the newest of these trials; 0 if there is none, or none is to be used.
    """

    request: CampaignCreate
    transformer: Transformer
    machine: Machine
    profile: ClusterProfile | None
    stack: TrialStack
    newest: int
    now: datetime

    @cached_property
    def space(self) -> SearchSpace:
        """The campaign's space, which takes up to a third of a second to build."""
        program = program_of(self.request, self.profile)
        return campaign_space(self.request, self.transformer, self.machine, program=program)


class Plans:
    """Computes plans, which the form requests at every pause in typing, often the same one.

    A plan is cached until another trial of its stack ends, at most for an hour, because the weight
    of a trial falls with its age. No database connection is held while it is computed.
    """

    def __init__(self, store: Store, settings: Settings, cache: Cache) -> None:
        self._store = store
        self._settings = settings
        self._cache = cache

    def of(
        self,
        request: CampaignCreate,
        *,
        owner: str | None = None,
        as_admin: bool = False,
        most: int = SHOWN,
    ) -> CampaignPlan:
        """Return the plan of a campaign, with at most so many strategies.

        Raises:
            InvalidInput, InvalidInputs: the request is invalid; that nothing fits is no error.
        """
        question = self._question(request, owner=owner, as_admin=as_admin)
        fields = request.model_dump(mode="json", exclude={"name", "time_scale"})
        profile = profile_as_dict(question.profile) if question.profile else None
        words = json.dumps([fields, profile, asdict(question.stack)], sort_keys=True)

        def answer() -> CampaignPlan:
            calibration, sources = self._start(question)
            simulated = question.stack.simulated
            found = plan(
                request,
                question.space,
                calibration,
                started_from=sources,
                simulated=simulated,
                most=most,
            )
            program, parameters = question.space.program, calibration.parameters
            return with_knob_starts(
                found, request, question.profile, program, parameters=parameters
            )

        return self._cache.of(
            ("plan", words, most), answer, version=(question.newest, question.now)
        )

    def calibration(
        self, request: CampaignCreate, *, owner: str | None = None, as_admin: bool = False
    ) -> Calibration:
        """Return the calibration behind a plan; raises as `of` does."""
        calibration, _ = self._start(self._question(request, owner=owner, as_admin=as_admin))
        return calibration

    def earlier(
        self, query: PredictionQuery, *, owner: str | None, as_admin: bool = False
    ) -> tuple[Calibration | None, list[StartedFrom]]:
        """Return the calibration by the machine's earlier trials with the query's trainer, as a
        campaign would start from, and these; None without such trials, or if the query is
        invalid."""
        about = query.model_dump(exclude_unset=True, include=SUBJECT)
        about["nodes"] = query.strategy.num_nodes
        try:
            question = self._question(CampaignCreate(**about), owner=owner, as_admin=as_admin)
            return self._start(question) if question.newest else (None, [])
        except (InvalidInput, InvalidInputs):
            return None, []  # reported with all other errors of the query

    def _question(
        self, request: CampaignCreate, *, owner: str | None, as_admin: bool
    ) -> PlannedQuestion:
        profile = chosen_profile(request, self._settings, as_admin=as_admin)
        check_knobs(request.knobs, request, profile)
        transformer, machine = subject_of(request.model, request.machine)
        problems = list(misplaced(request, machine))
        if problems:
            raise InvalidInputs(problems)
        stored = profile_as_dict(profile) if profile else None
        simulated = is_simulated(request)
        stack = TrialStack(
            machine_digest=machine_digest(machine),
            program=program_name(request, stored) if simulated else trainer_of(stored),
            simulated=simulated,
            private_of=(owner,) if request.private else (),
        )
        newest = 0
        if not request.fresh:
            with self._store.session() as session:
                newest = newest_trial(session, stack)
        return PlannedQuestion(
            request=request,
            transformer=transformer,
            machine=machine,
            profile=profile,
            stack=stack,
            newest=newest,
            now=_next_hour(datetime.now(UTC)),
        )

    def _start(self, question: PlannedQuestion) -> tuple[Calibration, list[StartedFrom]]:
        space = question.space
        if not question.newest:
            return prior_of(space), []

        def read() -> Sequence[PastTrial]:
            with self._store.session() as session:
                return trials_of(session, question.stack)

        past = self._cache.of(
            ("past trials", question.stack), read, version=question.newest, size=MEGABYTES
        )
        with self._store.session() as session:
            shown = most_informative_of(session, past, space, now=question.now)
            sources = sources_of(session, shown)
        belief = SearchStart(alone=CampaignBelief.over(space), earlier=shown).first_belief
        earlier = tuple(sorted(belief.earlier, key=repr))
        belief = replace(belief, earlier=earlier)
        return self._cache.of(("calibration", belief), belief.prior, size=FIT), sources


def _next_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
