"""Campaigns for the pages to show, made by the service's own functions and the simulator."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice
from typing import Any

import numpy as np
from sqlalchemy import update

from autotune.cost_model import estimate
from autotune.prediction import check_campaign
from autotune.resolution import (
    machine_of,
    machine_shape,
    model_shape,
    strategy_of,
    strategy_shape,
    transformer_of,
)
from autotune.schemas import Campaign, CampaignCreate, CampaignState, Trial, TrialState
from evaluators.cluster import load_profile, profile_as_dict
from evaluators.simulated import SimulatedBackend
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from search_spaces.strategy import Strategy
from server.runner.outcomes import Subject, final_values, standing_values
from server.runner.planning import protocol_of
from server.settings import Settings
from server.store import Store
from server.store.commands import change_state, create_campaign
from server.store.progress import (
    NewTrial,
    Purpose,
    finish_trial,
    insert_trials,
    note_standing,
)
from server.store.queries import all_trials, campaign_row, get_campaign
from server.store.tables import TrialRow

Values = dict[str, Any]

SURELY_FITS = 0.7
SURELY_TOO_BIG = 1.6
"""Shares of the memory that no simulated machine's constants turn round."""


class Campaigns:
    """Writes campaigns and simulated trials into one database."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.url)
        self.store.upgrade()

    def create(self, **fields: Any) -> Campaign:
        """A queued campaign: 22B on four Frontier nodes, simulated, unless told otherwise."""
        asked: dict[str, Any] = {
            "model": "gpt-22b",
            "machine": "frontier",
            "nodes": 4,
            "evaluator": "simulated",
            "space": {"tensor_parallel": [1, 2, 4, 8], "micro_batch_size": [1, 2]},
            "budget": {"max_trials": 30},
        }
        request = CampaignCreate.model_validate(asked | fields)
        space = check_campaign(request)
        # Written as the API does it, but for its look at the cluster: there need be none.
        with self.store.transaction() as session:
            return create_campaign(
                session,
                request,
                model=model_shape(space.transformer),
                machine=machine_shape(space.machine),
                simulated=request.evaluator == "simulated",
                profile=profile_as_dict(load_profile(request.slurm.profile))
                if request.slurm
                else None,
            )

    def strategies(self, campaign: Campaign, count: int, *, fitting: bool) -> list[Strategy]:
        """Legal ones that clearly fit or clearly do not, on any machine that is simulated, in an
        order that is random but repeatable."""
        space = check_campaign(campaign.request)
        lattice = space.lattice()
        predicted = estimate(space.transformer, space.machine, lattice)
        full = predicted.memory_gib / predicted.memory_limit_gib
        rows = np.flatnonzero(full < SURELY_FITS if fitting else full > SURELY_TOO_BIG).tolist()
        return [lattice.strategy(row) for row in random.Random(7).choices(rows, k=count)]

    def start(
        self, campaign: Campaign, strategies: Iterable[Strategy], *, purpose: Purpose = "search"
    ) -> list[Trial]:
        """Pending trials."""
        new = [
            NewTrial(
                strategy=strategy_shape(strategy),
                purpose=purpose,
                predicted_iteration_time_s=10.0,
                predicted_memory_gib=40.0,
            )
            for strategy in strategies
        ]
        with self.store.transaction() as session:
            return insert_trials(session, campaign_row(session, campaign.id), new)

    def simulate(self, campaign: Campaign, trials: Sequence[Trial]) -> list[Values]:
        """The columns of each trial after the simulator has run it."""
        transformer, machine = transformer_of(campaign.model), machine_of(campaign.machine)
        subject = Subject(
            transformer=transformer, machine=machine, objective=campaign.request.objective
        )
        backend = SimulatedBackend()
        requests = [
            TrialRequest(
                token=trial.token,
                transformer=transformer,
                machine=machine,
                strategy=strategy_of(trial.strategy),
                protocol=protocol_of(campaign, trial),
                directory=self.settings.trial_dir(trial.token),
                seed=campaign.request.seed,
            )
            for trial in trials
        ]
        for request in requests:
            backend.submit(request)
        outcomes = backend.poll(requests)
        found = [(request, outcomes[request.token]) for request in requests]
        now = datetime.now(UTC)
        return [
            final_values(subject, r.strategy, o, now=now)
            for r, o in found
            if isinstance(o, TrialOutcome)
        ]

    def finish(self, campaign: Campaign, trials: Sequence[Trial]) -> None:
        """As the simulator has it."""
        found = self.simulate(campaign, trials)
        with self.store.transaction() as session:
            for trial, columns in zip(trials, found, strict=True):
                finish_trial(session, trial, columns)

    def stand(self, trials: Sequence[Trial], **how: Any) -> None:
        """Pending trials, as a backend tells of them (see `TrialProgress`)."""
        values = standing_values(TrialProgress(**how))
        with self.store.transaction() as session:
            for trial in trials:
                assert note_standing(session, trial, values)

    def end(self, campaign: Campaign, trial: Trial, status: TrialState, **how: Any) -> None:
        """A pending trial, as a backend tells of its end (see `TrialOutcome`)."""
        told: Values = {"started_at": datetime.now(UTC), "duration_s": 60.0, "simulated": False}
        outcome = TrialOutcome(status=status, **told | how)
        values = final_values(
            Subject.of(campaign), strategy_of(trial.strategy), outcome, now=datetime.now(UTC)
        )
        with self.store.transaction() as session:
            assert finish_trial(session, trial, values)

    def move(self, campaign: Campaign, state: CampaignState, *, reason: str = "") -> None:
        """To another state, as the runner does it."""
        with self.store.transaction() as session:
            change_state(session, campaign_row(session, campaign.id), state, reason=reason)

    def running(self, *, ok: int = 0, too_big: int = 0, **fields: Any) -> Campaign:
        """A running campaign with finished trials: predicted to fit, and not to."""
        campaign = self.create(**fields)
        self.move(campaign, CampaignState.RUNNING)
        strategies = self.strategies(campaign, ok, fitting=True)
        strategies += self.strategies(campaign, too_big, fitting=False)
        random.Random(1).shuffle(strategies)
        self.finish(campaign, self.start(campaign, strategies))
        return self.read(campaign)

    def done(self, *, ok: int = 16, too_big: int = 6, **fields: Any) -> Campaign:
        """A finished campaign: its three best trials were run again."""
        campaign = self.running(ok=ok, too_big=too_big, **fields)
        with self.store.session() as session:
            measured = [t for t in all_trials(session, campaign.id) if t.metrics is not None]
        measured.sort(key=lambda t: t.metrics.tokens_per_s if t.metrics else 0.0, reverse=True)
        best = dict.fromkeys(strategy_of(trial.strategy) for trial in measured)
        again = self.start(campaign, list(best)[:3], purpose="confirmation")
        self.finish(campaign, again)
        self.move(campaign, CampaignState.DONE, reason="the budget of 22 trials is spent")
        return self.read(campaign)

    def many(self, trials: int) -> Campaign:
        """A running campaign with thousands of trials: forty outcomes, again and again."""
        campaign = self.running(budget={"max_trials": 2 * trials}, name="many trials")
        strategies = self.strategies(campaign, 30, fitting=True)
        strategies += self.strategies(campaign, 10, fitting=False)
        started = self.start(campaign, islice(cycle(strategies), trials))
        values = self.simulate(campaign, started[: len(strategies)])
        columns = [{"id": t.id, **v} for t, v in zip(started, cycle(values), strict=False)]
        with self.store.transaction() as session:
            session.execute(update(TrialRow), columns)
        return self.read(campaign)

    def read(self, campaign: Campaign) -> Campaign:
        with self.store.session() as session:
            return get_campaign(session, campaign.id)
