"""The service, from Python: its campaigns, and all that it can be asked besides."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack
from urllib.parse import quote, urlencode

from autotune.client.campaign import CampaignHandle
from autotune.client.files import DATA_FORMS
from autotune.client.location import locate
from autotune.client.patience import Patience
from autotune.client.plot import Plot
from autotune.client.question import (
    CampaignInput,
    SpaceInput,
    StrategyInput,
    SubjectInput,
    campaign_request,
    profile_named,
    subject,
)
from autotune.client.transport import Transport, listed
from autotune.schemas import (
    Activity,
    AdapterSummary,
    BrowserKey,
    CalibrationCreate,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
    Campaign,
    CampaignComparison,
    CampaignPage,
    CampaignPlan,
    DryRun,
    FigureForm,
    FigureScheme,
    MachineShape,
    ModelShape,
    Prediction,
    PredictionQuery,
    ProfileDetail,
    ProfileSummary,
    ProgressAxis,
    ScalingQuery,
    ScalingStudy,
    SpaceQuery,
    SpaceReport,
    Sweep,
    SweepQuery,
    WhoAmI,
)
from autotune.validation import validated
from search_spaces.errors import InvalidInput


class Client:
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

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token_file: Path | None = None,
        patience: Patience | None = None,
    ) -> None:
        location = locate(base_url, token_file=token_file)
        self._transport = Transport(location, patience or Patience())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    def browser_address(self, page: str = "/") -> str:
        """Return the address of a page that admits the first browser that opens it, and no other.

        Args:
            page: its path: `/campaigns/3`.
        """
        key = self._transport.post("/browser-keys", BrowserKey).key
        return f"{self.base_url}/enter?{urlencode({'key': key, 'to': page})}"

    def whoami(self) -> WhoAmI:
        """Return who asks, as the service knows them, and what they may do."""
        return self._transport.get("/whoami", WhoAmI)

    def create(self, **fields: Unpack[CampaignInput]) -> CampaignHandle:
        """Submit a campaign: how should this model be laid out on these nodes?

        It is made once, however often the request had to be sent. Only `model` is required.

        Args:
            model: a name ("gpt-22b"), a size ("13B"), a shape, or a Path to a file of one.
            machine: a name, a shape, or a Path; that of the cluster profile where not given, else
                "local", the machine that the service runs on.
            nodes: the most that a strategy may use; 1 where not given.
            evaluator: "slurm" and "ray" train on a cluster's nodes, "local" on the service's
                machine, "simulated" asks a cost model; where not given "slurm" with `slurm`, "ray"
                with `ray`, "local" for the local machine, else "simulated".
            slurm: {"profile": …, "mode": "sbatch" or "pilot"}.
            ray: {"address": …, "profile": …}, one of them or both.
            adapter: the trainer of the trials, a name that the service knows, or a Path to an
                adapter's file; the bundled one, or that of the profile, where not given.
            pool_nodes: that trials may hold at the same time; `nodes` where not given.
            objective: what to maximise; "tokens_per_s" where not given.
            min_headroom_gib: memory to leave free on the fullest GPU; 0 where not given.
            space: what may be tried, the fields of `SpaceSpec`: {"preset": "table-v"},
                {"tensor_parallel": [1, 2, 4], "micro_batch_size": "4..20 step 4"}.
            baseline: the layout that is measured first, to compare the result with:
                "tp=8,pp=4,mbs=1,zero=1", a strategy, or "none"; a customary one where not given.
            budget: when it ends, the fields of `Budget`: {"max_trials": 30,
                "max_node_hours": 20.0, "train_tokens": "300B"}.
            protocol: how a trial measures, the fields of `ProtocolSpec`.
            tokens: that days and energy are told for; 20 for each parameter where not given.
            screen_nodes: on how few nodes trials of the search may run: "auto", "off", a number;
                "auto" where not given.
            screen_layers: with how few of the model's layers they run, in shorter pipelines on
                fewer nodes: "off", a number; "off" where not given.
            search: what chooses the trials: "calibrated", or to compare with "deephyper", "random",
                "grid"; "calibrated" where not given.
            surrogate: of the search "deephyper": "forest" (where not given), "gaussian_process".
            study: instead of a search how given layouts scale over nodes, measured; the fields of
                `StudySpec`: {"kinds": ["strong"], "like": 3, "nodes": [16, 32, 64]}.
            fresh: start from nothing, not from earlier trials of the machine.
            seed: of the search and of simulated trials.
            time_scale: simulated trials: seconds waited for each simulated second.
            private: hide it from the other users of a shared service, but for admins.
            own_runner: let only a runner of its owner's process it.
            notify: send you an e-mail when it ends or pauses, at the address that an admin has
                given you.
            name: for people.

        Raises:
            InvalidInputs: a field that cannot be used, told before anything is sent.
            ApiError: what the service refuses, with `problem["errors"]` for each field.
        """
        request = campaign_request(self._placed(fields))
        created = self._transport.post("/campaigns", Campaign, request, key=str(uuid.uuid4()))
        return CampaignHandle(self._transport, created)

    def dry_run(self, **fields: Unpack[CampaignInput]) -> DryRun:
        """Return what `create` with the same fields would try, and what it would cost."""
        request = campaign_request(self._placed(fields))
        return self._transport.post("/campaigns", DryRun, request, params={"dry_run": "true"})

    def plan(self, **fields: Unpack[CampaignInput]) -> CampaignPlan:
        """Return what can be said of the campaign that `create` with the same fields would make:
        what is likely to fit, what is predicted best, what it would cost, and what it would find.

        Nothing runs. It rests on the earlier trials that the campaign would start from.
        """
        return self._transport.post("/plans", CampaignPlan, campaign_request(self._placed(fields)))

    def campaign(self, campaign_id: int) -> CampaignHandle:
        campaign = self._transport.get(f"/campaigns/{campaign_id}", Campaign)
        return CampaignHandle(self._transport, campaign)

    def campaigns(
        self, *, state: str | None = None, search: str = "", sort: str | None = None
    ) -> Iterator[CampaignHandle]:
        """Yield campaigns, newest first; pages are fetched as they are needed.

        Args:
            state: only those in this state.
            search: only those with all of these words: in their names, models, machines, layouts,
                outcomes or reasons.
            sort: by another column, falling with a leading -: "-best_mfu", "node_hours".
        """
        asked = {"state": state, "search": search or None, "sort": sort}
        cursor: str | None = None
        while True:
            page = self._transport.get("/campaigns", CampaignPage, {**asked, "cursor": cursor})
            for item in page.items:
                yield CampaignHandle(self._transport, item)
            cursor = page.next
            if cursor is None:
                return

    def compare(self, *ids: int) -> CampaignComparison:
        """Return two or more campaigns side by side, by their ids."""
        return self._transport.get("/comparison", CampaignComparison, {"ids": listed(ids)})

    def plot_comparison(
        self, *ids: int, by: ProgressAxis = "node_hours", scheme: FigureScheme = "light"
    ) -> Plot:
        """Return the best so far of two or more campaigns, over their trials or over what these
        cost, as a notebook shows it."""

        def drawn(form: FigureForm) -> bytes:
            if form == "json":
                return self._transport.content("/comparison", {"ids": listed(ids)})
            look = {} if form in DATA_FORMS else {"by": by, "scheme": scheme}
            params = {"ids": listed(ids), **look}
            return self._transport.content(f"/comparison.{form}", params)

        return Plot(f"comparison of campaigns {', '.join(map(str, ids))}", drawn)

    def predict(
        self,
        *,
        strategy: StrategyInput,
        calibration: str | None = None,
        min_headroom_gib: float = 0.0,
        **about: Unpack[SubjectInput],
    ) -> Prediction:
        """Predict whether a strategy is legal and fits, and how long an iteration takes.

        Where it does not fit, `memory_changes` of the answer are the fewest changes that make it
        fit and leave `min_headroom_gib` of the fullest GPU.

        Args:
            strategy: the fields of `StrategyShape`.
            calibration: a name, or "none"; where not given, the newest of the machine.
            min_headroom_gib: memory to leave free on the fullest GPU.
            about: `model`, `machine`, `evaluator` and `slurm` as in `create`. The last two choose
                the trainer, whose capabilities decide what is legal.
        """
        query = {
            **self._subject(about),
            "strategy": strategy,
            "min_headroom_gib": min_headroom_gib,
            "calibration": calibration,
        }
        return self._transport.post("/predictions", Prediction, validated(PredictionQuery, query))

    def scaling(
        self,
        *,
        strategy: StrategyInput,
        nodes: Sequence[int] = (),
        calibration: str | None = None,
        **about: Unpack[SubjectInput],
    ) -> ScalingStudy:
        """Predict how a strategy's layout scales over `nodes`, strongly and weakly; over halves and
        doubles of its own where none are given. The other arguments are those of `predict`."""
        query = {
            **self._subject(about),
            "strategy": strategy,
            "nodes": list(nodes),
            "calibration": calibration,
        }
        path = "/predictions/scaling"
        return self._transport.post(path, ScalingStudy, validated(ScalingQuery, query))

    def space(
        self, *, nodes: int = 1, space: SpaceInput | None = None, **about: Unpack[SubjectInput]
    ) -> SpaceReport:
        """Return how many strategies there are, and which rule removes how many."""
        query = {**self._subject(about), "nodes": nodes, "space": space or {}}
        return self._transport.post("/spaces", SpaceReport, validated(SpaceQuery, query))

    def sweep(
        self,
        *,
        nodes: int = 1,
        space: SpaceInput | None = None,
        calibration: str | None = None,
        most: int = 10,
        **about: Unpack[SubjectInput],
    ) -> Sweep:
        """Return the `most` fastest strategies of a space, as predicted, among those that fit."""
        query = {
            **self._subject(about),
            "nodes": nodes,
            "space": space or {},
            "calibration": calibration,
            "most": most,
        }
        return self._transport.post("/sweeps", Sweep, validated(SweepQuery, query))

    def calibrations(self) -> list[CalibrationSummary]:
        """Return all calibrations that the service keeps, newest first."""
        return self._transport.get("/calibrations", list[CalibrationSummary])

    def calibrate(
        self, name: str, campaigns: Iterable[int], *, software: str | None = None
    ) -> CalibrationDetail:
        """Fit the cost model to trials of campaigns of one machine; keep that under `name`."""
        fields = {"name": name, "campaigns": list(campaigns), "software": software}
        request = validated(CalibrationCreate, fields)
        return self._transport.post("/calibrations", CalibrationDetail, request)

    def calibration(self, name: str) -> CalibrationDetail:
        """Return what a calibration rests on, and its constants before and after."""
        return self._transport.get(f"/calibrations/{_quoted(name)}", CalibrationDetail)

    def calibration_document(self, name: str) -> CalibrationDocument:
        """Return a whole calibration, as `import_calibration` takes it."""
        path = f"/calibrations/{_quoted(name)}/document"
        return self._transport.get(path, CalibrationDocument)

    def import_calibration(
        self, name: str, document: CalibrationDocument | Mapping[str, Any]
    ) -> CalibrationDetail:
        """Keep an exported calibration under a name that is free."""
        if not isinstance(document, CalibrationDocument):
            document = validated(CalibrationDocument, document)
        return self._transport.put(f"/calibrations/{_quoted(name)}", CalibrationDetail, document)

    def delete_calibration(self, name: str) -> None:
        self._transport.delete(f"/calibrations/{_quoted(name)}")

    def models(self) -> list[str]:
        """Return the names of models; any size such as "13B" is accepted as well."""
        return self._transport.get("/models", list[str])

    def model(self, name: str) -> ModelShape:
        """Return the shape that a name or a size stands for."""
        return self._transport.get(f"/models/{_quoted(name)}", ModelShape)

    def machines(self) -> list[str]:
        """Return the names of machines; `local` is the one that the service runs on."""
        return self._transport.get("/machines", list[str])

    def machine(self, name: str) -> MachineShape:
        return self._transport.get(f"/machines/{_quoted(name)}", MachineShape)

    def spaces(self) -> list[str]:
        """Return the names of ready search spaces."""
        return self._transport.get("/spaces", list[str])

    def profiles(self) -> list[ProfileSummary]:
        """Return the cluster profiles that the service knows, its user's own and the ready ones."""
        return self._transport.get("/profiles", list[ProfileSummary])

    def profile(self, name: str) -> ProfileDetail:
        """Return a cluster profile with all its settings."""
        return self._transport.get(f"/profiles/{_quoted(name)}", ProfileDetail)

    def adapters(self) -> list[AdapterSummary]:
        """Return the trainers that a file describes, its user's own and the ready ones."""
        return self._transport.get("/adapters", list[AdapterSummary])

    def activity(self) -> Activity:
        """Return what runs where, and who waits for what."""
        return self._transport.get("/activity", Activity)

    def _subject(self, about: SubjectInput) -> dict[str, Any]:
        return subject(self._placed(about))

    def _placed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with the machine of the cluster profile where none was named."""
        name = profile_named(fields)
        if not name or fields.get("machine") is not None:
            return {**fields}
        profile = self.profile(name)
        if not profile.machine:
            reason = f"the profile {profile.name!r} is for any machine, so say which"
            raise InvalidInput("machine", None, reason, valid="a name of `machines()`, or a Path")
        return {**fields, "machine": profile.machine}


def _quoted(name: str) -> str:
    return quote(name, safe="")
