# Generated from asynchronous.py by `make client`: change that and run it again.
"""The client: the service, a campaign and its recommendation, as programs see them.

`asynchronous` is the source of `synchronous`: `make client` writes the latter, which has the same
text with nothing awaited.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import httpx2

from autotune.client import calls
from autotune.client.calls import Call, CampaignInput, FigureInput
from autotune.client.dataframe import dataframe
from autotune.client.files import MachineInput, ModelInput, save_archive
from autotune.client.following import Follower
from autotune.client.patience import Patience, settings, unreachable
from autotune.client.views import CampaignView, RecommendationView
from autotune.schemas import (
    Budget,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
    Campaign,
    CampaignComparison,
    CampaignPlan,
    DryRun,
    EvaluatorName,
    Event,
    Explanation,
    FigureKind,
    FigureOffers,
    FigureScheme,
    MachineShape,
    ModelShape,
    Objective,
    PictureFormat,
    Prediction,
    ProfileDetail,
    ProfileSummary,
    ProtocolSpec,
    Recommendation,
    ScalingStudy,
    ScreenLayers,
    ScreenNodes,
    SlurmChoice,
    SpaceReport,
    SpaceSpec,
    StrategyShape,
    Sweep,
    Trial,
)
from search_spaces.errors import InvalidInput

T = TypeVar("T")


class Transport:
    """Sends calls over one pool of connections, with patience."""

    def __init__(self, base_url: str | None, patience: Patience) -> None:
        self._http = httpx2.Client(**settings(base_url))
        self._patience = patience

    @property
    def base_url(self) -> str:
        return str(self._http.base_url).rstrip("/")

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call[T]) -> T:
        attempt = 1
        while True:
            try:
                response = self._http.send(call.sent_with(self._http))
            except httpx2.TransportError as error:
                wait_s = self._patience.after_error(error, call, attempt=attempt)
                if wait_s is None:
                    raise unreachable(self.base_url, error) from error
            else:
                wait_s = self._patience.after_answer(response, call, attempt=attempt)
                if wait_s is None:
                    return call.answer(response)
            time.sleep(wait_s)
            attempt += 1

    def follow(self, follower: Follower) -> Iterator[Event]:
        """Yield events until the follower has seen the end; broken streams are taken up again."""
        while not follower.ended:
            try:
                with self._http.sse(
                    follower.path, headers=follower.headers(), timeout=follower.timeout()
                ) as source:
                    if follower.refused(source.response):
                        source.response.read()
                        raise calls.refusal(source.response)
                    for message in source:
                        event = follower.take(message)
                        if event is not None:
                            yield event
                        if follower.turned:
                            break
            except httpx2.TransportError as error:
                follower.lost(error, self._patience, base_url=self.base_url)
            time.sleep(follower.wait_s)


class Client:
    """The service, from Python.

    Args:
        base_url: where not given AUTOTUNE_URL, else where `autotune serve` would listen by
            AUTOTUNE_HOST and AUTOTUNE_PORT or the configuration: http://127.0.0.1:8765.
        patience: how often a request is tried again, and how long is waited in between.

    Every method raises `ServiceUnreachable` where nothing answers, `ApiError` where the service
    refuses, and `InvalidInput(s)` where that can be told before anything is sent.
    """

    def __init__(self, base_url: str | None = None, *, patience: Patience | None = None) -> None:
        self._transport = Transport(base_url, patience or Patience())

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    def create(
        self,
        *,
        model: ModelInput,
        machine: MachineInput | None = None,
        nodes: int = 1,
        evaluator: EvaluatorName | None = None,
        slurm: SlurmChoice | Mapping[str, Any] | None = None,
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
        fresh: bool = False,
        seed: int = 0,
        time_scale: float = 0.0,
        name: str = "",
    ) -> CampaignHandle:
        """Submit a campaign: how should this model be laid out on these nodes?

        It is made once, however often the request had to be sent.

        Args:
            model: a name ("gpt-22b"), a size ("13B"), a shape, or a Path to a file of one.
            machine: a name, a shape, or a Path; that of the Slurm profile where not given, else
                "local", the machine that the service runs on.
            nodes: the most that a strategy may use.
            evaluator: "slurm" trains on a cluster's nodes, "local" on the service's machine,
                "simulated" asks a cost model; where not given "slurm" with `slurm`, "local" for
                the local machine, else "simulated".
            slurm: {"profile": …, "mode": "sbatch" or "pilot"}.
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
            tokens: that days and energy are told for; 20 for each parameter where not given, at
                most 300e9.
            screen_nodes: on how few nodes trials of the search may run: "auto", "off", a number.
            screen_layers: with how few of the model's layers they run, in shorter pipelines on
                fewer nodes: "off", a number.
            fresh: start from nothing, not from earlier trials of the machine.
            seed: of the search and of simulated trials.
            time_scale: simulated trials: seconds waited for each simulated second.
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
            "fresh": fresh,
            "seed": seed,
            "time_scale": time_scale,
            "name": name,
        }
        created = self._transport.send(calls.create(self._placed(fields)))
        return CampaignHandle(self._transport, created)

    def dry_run(self, **fields: Unpack[CampaignInput]) -> DryRun:
        """Return what `create` with the same fields would try, and what it would cost."""
        return self._transport.send(calls.dry_run(self._placed(fields)))

    def _placed(self, fields: CampaignInput) -> CampaignInput:
        """Return the fields with the machine of a Slurm profile where none was named."""
        slurm = fields.get("slurm")
        if slurm is None or fields.get("machine") is not None:
            return fields
        profile = self.profile(calls.profile_named(slurm))
        if not profile.machine:
            reason = f"the profile {profile.name!r} is for any machine, so say which"
            raise InvalidInput("machine", None, reason, valid="a name of `machines()`, or a Path")
        return {**fields, "machine": profile.machine}

    def plan(self, **fields: Unpack[CampaignInput]) -> CampaignPlan:
        """Return what can be said of the campaign that `create` with the same fields would make:
        what is likely to fit, what is predicted best, what it would cost, and what it would find.

        Nothing runs. It rests on the earlier trials that the campaign would start from.
        """
        return self._transport.send(calls.plan(self._placed(fields)))

    def campaign(self, campaign_id: int) -> CampaignHandle:
        return CampaignHandle(self._transport, self._transport.send(calls.campaign(campaign_id)))

    def campaigns(self, *, state: str | None = None) -> Iterator[CampaignHandle]:
        """Yield all campaigns, newest first; pages are fetched as they are needed."""
        cursor: str | None = None
        while True:
            page = self._transport.send(calls.campaigns(state=state, cursor=cursor))
            for item in page.items:
                yield CampaignHandle(self._transport, item)
            cursor = page.next
            if cursor is None:
                return

    def compare(self, *ids: int) -> CampaignComparison:
        """Return two or more campaigns side by side, by their ids."""
        return self._transport.send(calls.compare(ids))

    def predict(
        self,
        *,
        model: ModelInput,
        machine: MachineInput,
        strategy: StrategyShape | Mapping[str, Any],
        calibration: str | None = None,
        min_headroom_gib: float = 0.0,
        evaluator: EvaluatorName = "simulated",
        slurm: SlurmChoice | Mapping[str, Any] | None = None,
    ) -> Prediction:
        """Predict whether a strategy is legal and fits, and how long an iteration takes.

        Where it does not fit, `memory_changes` of the answer are the fewest changes that make it
        fit and leave `min_headroom_gib` of the fullest GPU.

        `calibration` is a name, or "none"; where nothing is said, the newest of the machine.
        Legal is what the program can do that `evaluator` and `slurm` choose, as in `create`.
        """
        call = calls.predict(
            model=model,
            machine=machine,
            strategy=strategy,
            calibration=calibration,
            min_headroom_gib=min_headroom_gib,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def scaling(
        self,
        *,
        model: ModelInput,
        machine: MachineInput,
        strategy: StrategyShape | Mapping[str, Any],
        nodes: Sequence[int] = (),
        calibration: str | None = None,
        evaluator: EvaluatorName = "simulated",
        slurm: SlurmChoice | Mapping[str, Any] | None = None,
    ) -> ScalingStudy:
        """Predict how a strategy's layout scales over `nodes`, strongly and weakly; over halves and
        doubles of its own where none are given. The other arguments are those of `predict`."""
        call = calls.scaling(
            model=model,
            machine=machine,
            strategy=strategy,
            nodes=nodes,
            calibration=calibration,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def space(
        self,
        *,
        model: ModelInput,
        machine: MachineInput,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        evaluator: EvaluatorName = "simulated",
        slurm: SlurmChoice | Mapping[str, Any] | None = None,
    ) -> SpaceReport:
        """Return how many strategies there are, and which rule removes how many."""
        call = calls.space(
            model=model,
            machine=machine,
            nodes=nodes,
            space=space,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def sweep(
        self,
        *,
        model: ModelInput,
        machine: MachineInput,
        nodes: int = 1,
        space: SpaceSpec | Mapping[str, Any] | None = None,
        calibration: str | None = None,
        most: int = 20,
        evaluator: EvaluatorName = "simulated",
        slurm: SlurmChoice | Mapping[str, Any] | None = None,
    ) -> Sweep:
        """Return the `most` fastest strategies of a space, as predicted, among those that fit."""
        call = calls.sweep(
            model=model,
            machine=machine,
            nodes=nodes,
            space=space,
            calibration=calibration,
            most=most,
            evaluator=evaluator,
            slurm=slurm,
        )
        return self._transport.send(call)

    def calibrations(self) -> list[CalibrationSummary]:
        """Return all calibrations that the service keeps, newest first."""
        return self._transport.send(calls.calibrations())

    def calibrate(
        self, name: str, campaigns: Iterable[int], *, software: str | None = None
    ) -> CalibrationDetail:
        """Fit the cost model to trials of campaigns of one machine; keep that under `name`."""
        return self._transport.send(calls.calibrate(name, campaigns, software=software))

    def calibration(self, name: str) -> CalibrationDetail:
        """Return what a calibration rests on, and its constants before and after."""
        return self._transport.send(calls.calibration(name))

    def calibration_document(self, name: str) -> CalibrationDocument:
        """Return a whole calibration, as `import_calibration` takes it."""
        return self._transport.send(calls.calibration_document(name))

    def import_calibration(
        self, name: str, document: CalibrationDocument | Mapping[str, Any]
    ) -> CalibrationDetail:
        """Keep an exported calibration under a name that is free."""
        return self._transport.send(calls.import_calibration(name, document))

    def delete_calibration(self, name: str) -> None:
        self._transport.send(calls.delete_calibration(name))

    def models(self) -> list[str]:
        """Return the names of models; any size such as "13B" is taken as well."""
        return self._transport.send(calls.models())

    def model(self, name: str) -> ModelShape:
        """Return the shape that a name or a size stands for."""
        return self._transport.send(calls.model(name))

    def machines(self) -> list[str]:
        """Return the names of machines; `local` is the one that the service runs on."""
        return self._transport.send(calls.machines())

    def machine(self, name: str) -> MachineShape:
        return self._transport.send(calls.machine(name))

    def spaces(self) -> list[str]:
        """Return the names of ready search spaces."""
        return self._transport.send(calls.spaces())

    def profiles(self) -> list[ProfileSummary]:
        """Return the cluster profiles that the service knows, its user's own and the ready ones."""
        return self._transport.send(calls.profiles())

    def profile(self, name: str) -> ProfileDetail:
        """Return all that a cluster profile says."""
        return self._transport.send(calls.profile(name))


class CampaignHandle(CampaignView):
    """One campaign; `campaign` is how it stood when last asked for."""

    def __init__(self, transport: Transport, campaign: Campaign) -> None:
        super().__init__(campaign)
        self._transport = transport

    def refresh(self) -> Self:
        self.campaign = self._transport.send(calls.campaign(self.id))
        return self

    def watch(self, *, after: int = 0) -> Iterator[Event]:
        """Yield events from number `after` on (0: from the campaign's start), until it is at rest.

        A broken connection is taken up where it broke, with no event lost or repeated.
        """
        self.refresh()
        for event in self._transport.follow(Follower(self.campaign, after=after)):
            self.campaign = event.campaign or self.campaign
            yield event

    def wait(self, *, timeout_s: float | None = None) -> Self:
        """Wait until the campaign is at rest; raises TimeoutError after `timeout_s` seconds."""
        deadline = self.deadline(timeout_s)
        while not (self.refresh()).at_rest:
            time.sleep(self.pause_s(deadline))
        return self

    def trials(
        self,
        *,
        state: str | None = None,
        purpose: str | None = None,
        sort: str = "number",
        limit: int | None = None,
    ) -> list[Trial]:
        """Return all trials, or those of one state or purpose; `sort` as in `-tokens_per_s`, and
        the first `limit` of them where that is given."""
        trials: list[Trial] = []
        cursor: str | None = None
        while True:
            page = self._transport.send(
                calls.trials(self.id, state=state, purpose=purpose, sort=sort, cursor=cursor)
            )
            trials.extend(page.items)
            cursor = page.next
            if cursor is None or (limit is not None and len(trials) >= limit):
                return trials[:limit]

    def to_dataframe(self) -> Any:
        """Return all trials as a pandas.DataFrame: a row each, by number, under flat names.

        The columns are `autotune.trial_table.COLUMNS`.

        Raises:
            ImportError: pandas is not installed.
        """
        return dataframe(self.trials())

    def trial(self, number: int) -> Trial:
        return self._transport.send(calls.trial(self.id, number))

    def log(self, number: int, *, lines: int = 200) -> str:
        """Return the last lines of a trial's log."""
        return self._transport.send(calls.trial_log(self.id, number, lines=lines))

    def best(self) -> RecommendationHandle:
        """Return the recommendation; raises ApiError with status 404 while there is none."""
        answer = self._transport.send(calls.recommendation(self.id))
        return RecommendationHandle(self._transport, answer)

    def scaling(self, *, rank: int = 1, nodes: Sequence[int] = ()) -> ScalingStudy:
        """Return how the strategy at `rank` scales, measured where a trial ran it and predicted
        elsewhere from what the trials have shown."""
        call = calls.campaign_scaling(self.id, rank=rank, nodes=nodes)
        return self._transport.send(call)

    def figures(self) -> FigureOffers:
        """Return which kinds of figures there are of this campaign, and why not the others."""
        return self._transport.send(calls.figures(self.id))

    def figure(self, kind: FigureKind, **options: Unpack[FigureInput]) -> dict[str, Any]:
        """Return a figure as data: its caption, its table and its series.

        Raises ApiError with status 404 where the campaign has none of this kind, and says why.
        """
        return self._transport.send(calls.figure(self.id, kind, options))

    def chart(
        self, kind: FigureKind, *, scheme: FigureScheme = "light", **options: Unpack[FigureInput]
    ) -> dict[str, Any]:
        """Return a figure as Vega-Lite with its rows."""
        return self._transport.send(calls.chart(self.id, kind, options, scheme=scheme))

    def picture(
        self,
        kind: FigureKind,
        picture: PictureFormat = "svg",
        *,
        scheme: FigureScheme = "light",
        **options: Unpack[FigureInput],
    ) -> bytes:
        """Return a figure as a picture, with its title and caption."""
        call = calls.picture(self.id, kind, options, scheme=scheme, picture=picture)
        return self._transport.send(call)

    def explain(self) -> Explanation:
        """Return why its best won and what lies beyond its space, or why nothing ran."""
        return self._transport.send(calls.explanation(self.id))

    def artefacts(self) -> list[str]:
        """Return the names of the files that `download` writes."""
        return (self.best()).artefacts()

    def download(self, path: str | Path, *, rank: int = 1) -> list[Path]:
        """Write the files of the strategy at `rank` into a folder, or as one archive (`.zip`)."""
        archive = self._transport.send(calls.archive(self.id, rank=rank))
        return save_archive(archive, Path(path))

    def pause(self) -> Self:
        return self._control("pause")

    def resume(self) -> Self:
        return self._control("resume")

    def cancel(self) -> Self:
        return self._control("cancel")

    def _control(self, action: str) -> Self:
        self.campaign = self._transport.send(calls.control(self.id, action))
        return self

    def extend(self, **budget: Any) -> Self:
        """Raise the budget (the fields of `BudgetExtension`); a campaign that is done goes on."""
        self.campaign = self._transport.send(calls.extend(self.id, budget))
        return self

    def delete(self) -> None:
        self._transport.send(calls.delete(self.id))


class RecommendationHandle(RecommendationView):
    """The answer of a campaign, with the files that run it."""

    def __init__(self, transport: Transport, recommendation: Recommendation) -> None:
        super().__init__(recommendation)
        self._transport = transport

    def artefact(self, name: str, *, rank: int = 1) -> str:
        """Return the text of one file, for the strategy at `rank` (1 is the best)."""
        call = calls.artefact(self.recommendation.campaign_id, name, rank=rank)
        return self._transport.send(call)

    def launch_script(self, *, rank: int = 1) -> str:
        """Return the script that starts training with the strategy at `rank`."""
        return self.artefact(self.launch_script_name, rank=rank)
