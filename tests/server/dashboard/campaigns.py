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
from autotune.knobs.phase import at_size, with_settings
from autotune.knobs.question import Settings as KnobSettings
from autotune.measurement.metrics import AccumulationMeasurement
from autotune.prediction.campaign import check_campaign
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.trials import Expectation, Trial
from autotune.schemas.wire import TrialPurpose
from evaluators.cluster import load_profile, profile_as_dict
from evaluators.simulated import SimulatedBackend
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from search_spaces.strategy import Strategy
from server.campaign.protocol import protocol_of
from server.campaign.results import FinishedTrial, NewTrial, Workload, finished_trial
from server.settings import Settings
from server.store import Store
from server.store.campaigns import campaign_row, change_state, create_campaign, get_campaign
from server.store.tables import TrialRow
from server.store.trials import (
    all_trials,
    final_columns,
    finish_trial,
    insert_trials,
    note_progress,
)

SURELY_FITS = 0.7
SURELY_TOO_BIG = 1.6
"""Shares of the memory that no simulated machine's constants turn round."""

WITH_KNOBS: dict[str, Any] = {
    "model": "gpt-1.4b",
    "evaluator": "slurm",
    "slurm": {"profile": "frontier"},
    "knobs": ["overlap", "reduce_bucket", "allgather_bucket"],
    "space": {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "micro_batch_size": [1, 2],
        "gradient_accumulation_steps": 8,
        "zero_stage": 1,
        "num_nodes": 4,
    },
}
LOSSES = tuple(11.0 - step / 10 for step in range(20))
OTHER_LOSSES = (*LOSSES[:5], *(loss * 1.004 for loss in LOSSES[5:]))
OVERLAP, BUCKET = ("overlap", False), ("reduce_bucket", 50_000_000)
KNOB_STARTS: tuple[tuple[KnobSettings, tuple[float, ...]], ...] = (
    ((), (10.0, 10.02, 9.99, 10.01, 10.0)),
    ((OVERLAP,), (9.61, 9.6, 9.62)),
    ((BUCKET,), (9.8, 9.81, 9.79)),
    ((("reduce_bucket", 90_000_000),), (9.7, 9.71)),
    ((("allgather_bucket", 50_000_000),), (9.99,)),
    ((OVERLAP, BUCKET), (9.44, 9.45)),
)
"""Iteration times in seconds of starts with knobs."""


class Campaigns:
    """Writes campaigns and simulated trials into one database."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.url)
        self.store.upgrade()

    def create(self, **fields: Any) -> Campaign:
        """A queued campaign: 22B on four Frontier nodes, simulated, unless told otherwise."""
        defaults: dict[str, Any] = {
            "model": "gpt-22b",
            "machine": "frontier",
            "nodes": 4,
            "evaluator": "simulated",
            "space": {"tensor_parallel": [1, 2, 4, 8], "micro_batch_size": [1, 2]},
            "budget": {"max_trials": 30},
        }
        request = CampaignCreate.model_validate(defaults | fields)
        space = check_campaign(request)
        # Written as the API does it, but for its look at the cluster: there need be none.
        with self.store.transaction() as session:
            return create_campaign(
                session,
                request,
                model=space.transformer,
                machine=space.machine,
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
        self,
        campaign: Campaign,
        strategies: Iterable[Strategy],
        *,
        purpose: TrialPurpose = "search",
    ) -> list[Trial]:
        """Pending trials, of which all the same is expected."""
        expected = Expectation(
            objective=168e3,
            iteration_time_low_s=8.0,
            iteration_time_high_s=12.5,
            fit_probability=0.93,
            node_hours=0.4,
            best_so_far=150e3,
            probability_better=0.8,
        )
        new = [
            NewTrial(
                strategy=strategy,
                purpose=purpose,
                predicted_iteration_time_s=10.0,
                predicted_memory_gib=40.0,
                expected=expected,
            )
            for strategy in strategies
        ]
        with self.store.transaction() as session:
            return insert_trials(session, campaign_row(session, campaign.id), new)

    def simulate(self, campaign: Campaign, trials: Sequence[Trial]) -> list[FinishedTrial]:
        """How each trial ends in the simulator."""
        workload = Workload.of(campaign)
        backend = SimulatedBackend()
        requests = [
            TrialRequest(
                token=trial.token,
                transformer=workload.transformer,
                machine=workload.machine,
                strategy=trial.strategy,
                protocol=protocol_of(campaign, trial, trials=()),
                directory=self.settings.trial_dir(trial.token),
                seed=campaign.request.seed,
            )
            for trial in trials
        ]
        for request in requests:
            backend.submit(request)
        outcomes = backend.poll(requests)
        now = datetime.now(UTC)
        return [
            finished_trial(workload, request.strategy, outcome, now=now)
            for request in requests
            if isinstance(outcome := outcomes[request.token], TrialOutcome)
        ]

    def finish(self, campaign: Campaign, trials: Sequence[Trial]) -> None:
        """As the simulator has it."""
        results = self.simulate(campaign, trials)
        with self.store.transaction() as session:
            for trial, result in zip(trials, results, strict=True):
                finish_trial(session, trial, result)

    def stand(self, trials: Sequence[Trial], **how: Any) -> None:
        """Pending trials, as a backend tells of them (see `TrialProgress`)."""
        with self.store.transaction() as session:
            for trial in trials:
                assert note_progress(session, trial, TrialProgress(**how))

    def end(self, campaign: Campaign, trial: Trial, status: TrialState, **how: Any) -> None:
        """A pending trial, as a backend tells of its end (see `TrialOutcome`)."""
        now = datetime.now(UTC)
        usual: dict[str, Any] = {"started_at": now, "duration_s": 60.0, "simulated": False}
        outcome = TrialOutcome(status=status, **usual | how)
        result = finished_trial(Workload.of(campaign), trial.strategy, outcome, now=now)
        with self.store.transaction() as session:
            assert finish_trial(session, trial, result)

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
        best = dict.fromkeys(trial.strategy for trial in measured)
        again = self.start(campaign, list(best)[:3], purpose="confirmation")
        self.finish(campaign, again)
        self.move(campaign, CampaignState.DONE, reason="Budget spent: 22 trials.")
        return self.read(campaign)

    def measured(
        self,
        campaign: Campaign,
        strategy: Strategy,
        purpose: TrialPurpose,
        *times_s: float,
        **how: Any,
    ) -> None:
        """A trial of a real campaign for each iteration time."""
        gas = strategy.gradient_accumulation_steps
        for time_s, trial in zip(
            times_s, self.start(campaign, [strategy] * len(times_s), purpose=purpose), strict=True
        ):
            measurement = AccumulationMeasurement(
                gradient_accumulation_steps=gas, iteration_times_s=(time_s,) * 3
            )
            usual: dict[str, Any] = {"measurements": (measurement,), "first_losses": LOSSES}
            self.end(campaign, trial, TrialState.OK, peak_memory_gib=(40.0,), **usual | how)

    def with_knobs(self, *, state: CampaignState = CampaignState.DONE) -> Campaign:
        """A real campaign that tried knobs: without overlap and with a small bucket it is faster,
        another bucket changes the losses, and one crashes. With the other micro-batch size it is
        slower without overlap."""
        campaign = self.running(**WITH_KNOBS)
        layout = next(
            s for s in self.strategies(campaign, 9, fitting=True) if s.micro_batch_size == 2
        )
        self.measured(campaign, at_size(layout, 1), "baseline", 12.0)
        self.measured(campaign, layout, "search", 10.0)
        self.measured(campaign, layout, "confirmation", 10.0, 10.03)
        for settings, times_s in KNOB_STARTS:
            losses = OTHER_LOSSES if ("reduce_bucket", 90_000_000) in settings else LOSSES
            strategy = with_settings(layout, settings)
            self.measured(campaign, strategy, "knob", *times_s, first_losses=losses)
        too_large = with_settings(layout, (("allgather_bucket", 1_000_000_000),))
        [failed] = self.start(campaign, [too_large], purpose="knob")
        self.end(campaign, failed, TrialState.CRASHED, error="out of host memory")
        other = at_size(layout, 1)
        self.measured(campaign, other, "knob", 11.0, 11.01)
        self.measured(campaign, with_settings(other, (OVERLAP,)), "knob", 11.3, 11.31)
        self.move(campaign, state)
        return self.read(campaign)

    def many(self, trials: int) -> Campaign:
        """A running campaign with thousands of trials: forty outcomes, again and again."""
        campaign = self.running(budget={"max_trials": 2 * trials}, name="many trials")
        strategies = self.strategies(campaign, 30, fitting=True)
        strategies += self.strategies(campaign, 10, fitting=False)
        started = self.start(campaign, islice(cycle(strategies), trials))
        results = self.simulate(campaign, started[: len(strategies)])
        columns = [final_columns(result) for result in results]
        rows = [{"id": t.id, **c} for t, c in zip(started, cycle(columns), strict=False)]
        with self.store.transaction() as session:
            session.execute(update(TrialRow), rows)
        return self.read(campaign)

    def read(self, campaign: Campaign) -> Campaign:
        with self.store.session() as session:
            return get_campaign(session, campaign.id)
