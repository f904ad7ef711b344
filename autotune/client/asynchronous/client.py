"""The service, from Python: its campaigns, and all that it can be asked besides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Unpack

from autotune.client import calls
from autotune.client.asynchronous.calibrations import AsyncCalibrations
from autotune.client.asynchronous.campaign import AsyncCampaign
from autotune.client.asynchronous.plot import AsyncPlot
from autotune.client.asynchronous.predictions import AsyncPredictions
from autotune.client.calls.campaigns import CampaignInput
from autotune.client.calls.subject import RayInput, SlurmInput
from autotune.client.files import AdapterInput, MachineInput, ModelInput
from autotune.schemas import (
    Budget,
    CampaignComparison,
    CampaignPlan,
    DryRun,
    EvaluatorName,
    FigureScheme,
    Objective,
    ProgressAxis,
    ProtocolSpec,
    ScreenLayers,
    ScreenNodes,
    SearchMethod,
    SpaceSpec,
    StrategyShape,
    StudySpec,
    Surrogate,
)


class AsyncClient(AsyncPredictions, AsyncCalibrations):
    """The service, from Python.

    Args:
        base_url: where not given AUTOTUNE_URL, else where `autotune serve` would listen by
            AUTOTUNE_HOST and AUTOTUNE_PORT or the configuration, or does listen for this user:
            http://127.0.0.1:8765. `unix:/path` is one on a Unix socket.
        token_file: a file of a token, or a copy of a service's `service.json`; where not given
            AUTOTUNE_TOKEN_FILE or AUTOTUNE_TOKEN, else the token of `autotune login` there. This
            user's own service needs none: it is reached through its Unix socket.
        patience: how often a request is tried again, and how long is waited in between.

    Every method raises `ServiceUnreachable` where nothing answers, or the certificate cannot be
    verified, `ApiError` where the service refuses, and `InvalidInput(s)` where that can be told
    before anything is sent. A token is sent over https and loopback alone.
    """

    async def create(
        self,
        *,
        model: ModelInput,
        machine: MachineInput | None = None,
        nodes: int = 1,
        evaluator: EvaluatorName | None = None,
        slurm: SlurmInput | None = None,
        ray: RayInput | None = None,
        adapter: AdapterInput = "",
        pool_nodes: int | None = None,
        objective: Objective = "tokens_per_s",
        min_headroom_gib: float = 0.0,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        baseline: str | StrategyShape | Mapping[str, Any] | None = None,
        budget: Budget | Mapping[str, Any] | None = None,
        protocol: ProtocolSpec | Mapping[str, Any] | None = None,
        tokens: float | str | None = None,
        screen_nodes: ScreenNodes = "auto",
        screen_layers: ScreenLayers = "off",
        search: SearchMethod = "calibrated",
        surrogate: Surrogate = "forest",
        study: StudySpec | Mapping[str, Any] | None = None,
        fresh: bool = False,
        seed: int = 0,
        time_scale: float = 0.0,
        private: bool = False,
        own_runner: bool = False,
        notify: bool = False,
        name: str = "",
    ) -> AsyncCampaign:
        """Submit a campaign: how should this model be laid out on these nodes?

        It is made once, however often the request had to be sent.

        Args:
            model: a name ("gpt-22b"), a size ("13B"), a shape, or a Path to a file of one.
            machine: a name, a shape, or a Path; that of the cluster profile where not given, else
                "local", the machine that the service runs on.
            nodes: the most that a strategy may use.
            evaluator: "slurm" and "ray" train on a cluster's nodes, "local" on the service's
                machine, "simulated" asks a cost model; where not given "slurm" with `slurm`, "ray"
                with `ray`, "local" for the local machine, else "simulated".
            slurm: {"profile": …, "mode": "sbatch" or "pilot"}.
            ray: {"address": …, "profile": …}, one of them or both.
            adapter: the trainer of the trials, a name that the service knows, or a Path to an
                adapter's file; the bundled one, or that of the profile, where not given.
            pool_nodes: that trials may hold at the same time; `nodes` where not given.
            objective: what is to be as high as possible.
            min_headroom_gib: memory that the fullest GPU is to have left.
            space: what may be tried, the fields of `SpaceSpec`: {"preset": "table-v"},
                {"tensor_parallel": [1, 2, 4], "micro_batch_size": "4..20 step 4"}.
            baseline: the layout that is measured first and that the result is told against:
                "tp=8,pp=4,mbs=1,zero=1", a strategy, or "none"; a customary one where not given.
            budget: when it ends, the fields of `Budget`: {"max_trials": 30,
                "max_node_hours": 20.0, "train_tokens": "300B"}.
            protocol: how a trial measures, the fields of `ProtocolSpec`.
            tokens: that days and energy are told for; 20 for each parameter where not given.
            screen_nodes: on how few nodes trials of the search may run: "auto", "off", a number.
            screen_layers: with how few of the model's layers they run, in shorter pipelines on
                fewer nodes: "off", a number.
            search: what chooses the trials: "calibrated", or to compare with "deephyper", "random",
                "grid".
            surrogate: of the search "deephyper": "forest", "gaussian_process".
            study: instead of a search how given layouts scale over nodes, measured; the fields of
                `StudySpec`: {"kinds": ["strong"], "like": 3, "nodes": [16, 32, 64]}.
            fresh: start from nothing, not from earlier trials of the machine.
            seed: of the search and of simulated trials.
            time_scale: simulated trials: seconds waited for each simulated second.
            private: let nobody else see it, of a service that a group shares, but admins.
            own_runner: let a runner of its owner's alone bring it forward.
            notify: send you an e-mail when it ends or pauses, at the address that an admin has
                given you.
            name: for people.

        Raises:
            InvalidInputs: a field that cannot be used, told before anything is sent.
            ApiError: what the service refuses, with `problem["errors"]` for each field.
        """
        fields: CampaignInput = {
            "model": model,
            "machine": machine,
            "nodes": nodes,
            "evaluator": evaluator,
            "slurm": slurm,
            "ray": ray,
            "adapter": adapter,
            "pool_nodes": pool_nodes,
            "objective": objective,
            "min_headroom_gib": min_headroom_gib,
            "space": space,
            "baseline": baseline,
            "budget": budget,
            "protocol": protocol,
            "tokens": tokens,
            "screen_nodes": screen_nodes,
            "screen_layers": screen_layers,
            "search": search,
            "surrogate": surrogate,
            "study": study,
            "fresh": fresh,
            "seed": seed,
            "time_scale": time_scale,
            "private": private,
            "own_runner": own_runner,
            "notify": notify,
            "name": name,
        }
        created = await self._transport.send(calls.campaigns.create(await self._placed(fields)))
        return AsyncCampaign(self._transport, created)

    async def dry_run(self, **fields: Unpack[CampaignInput]) -> DryRun:
        """Return what `create` with the same fields would try, and what it would cost."""
        return await self._transport.send(calls.campaigns.dry_run(await self._placed(fields)))

    async def _placed(self, fields: CampaignInput) -> CampaignInput:
        """Return the fields with the machine of a cluster profile where none was named."""
        machine = await self._machine_of(
            fields.get("machine"), fields.get("slurm"), fields.get("ray")
        )
        return {**fields, "machine": machine}

    async def plan(self, **fields: Unpack[CampaignInput]) -> CampaignPlan:
        """Return what can be said of the campaign that `create` with the same fields would make:
        what is likely to fit, what is predicted best, what it would cost, and what it would find.

        Nothing runs. It rests on the earlier trials that the campaign would start from.
        """
        return await self._transport.send(calls.campaigns.plan(await self._placed(fields)))

    async def campaign(self, campaign_id: int) -> AsyncCampaign:
        return AsyncCampaign(
            self._transport, await self._transport.send(calls.campaigns.campaign(campaign_id))
        )

    async def campaigns(
        self, *, state: str | None = None, search: str = "", sort: str | None = None
    ) -> AsyncIterator[AsyncCampaign]:
        """Yield campaigns, newest first; pages are fetched as they are needed.

        Args:
            state: only those in this state.
            search: only those with all of these words: in their names, models, machines, layouts,
                outcomes or reasons.
            sort: by another column, falling with a leading -: "-best_mfu", "node_hours".
        """
        cursor: str | None = None
        while True:
            call = calls.campaigns.campaigns(state=state, search=search, sort=sort, cursor=cursor)
            page = await self._transport.send(call)
            for item in page.items:
                yield AsyncCampaign(self._transport, item)
            cursor = page.next
            if cursor is None:
                return

    async def compare(self, *ids: int) -> CampaignComparison:
        """Return two or more campaigns side by side, by their ids."""
        return await self._transport.send(calls.campaigns.compare(ids))

    async def plot_comparison(
        self, *ids: int, by: ProgressAxis = "node_hours", scheme: FigureScheme = "light"
    ) -> AsyncPlot:
        """Return the best so far of two or more campaigns, over their trials or over what these
        cost, as a notebook shows it."""
        ask = partial(calls.figures.comparison, ids, by=by, scheme=scheme)
        name = f"comparison of campaigns {', '.join(map(str, ids))}"
        return await AsyncPlot.drawn(self._transport, ask, name=name)
