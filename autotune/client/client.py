"""The client of a service: submit campaigns, list them, and ask for predictions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import quote, urlencode

from pydantic import BaseModel

from autotune.client.campaign import CampaignHandle
from autotune.client.location import locate
from autotune.client.patience import Patience
from autotune.client.question import (
    AdapterInput,
    CampaignInput,
    MachineInput,
    ModelInput,
    StrategyInput,
    SubjectInput,
    adapter_choice,
    campaign_request,
    machine_choice,
    machine_of_profile,
    model_choice,
    profile_named,
    subject,
)
from autotune.client.transport import Transport, listed
from autotune.schemas.campaigns import Campaign, CampaignPage
from autotune.schemas.catalog import AdapterSummary, ProfileSummary
from autotune.schemas.comparisons import CampaignComparison
from autotune.schemas.diagnoses import Diagnosis
from autotune.schemas.imports import ImportedRun, ImportRequest
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import Prediction
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.users import BrowserKey, User, WhoAmI
from autotune.schemas.validation import validated
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

Q = TypeVar("Q", bound=BaseModel)


class Client:
    """A connection to the service.

    Every method raises `ServiceUnreachable` if the service does not answer or its certificate
    cannot be verified, `ApiError` if the service refuses the request, and `InvalidInput(s)` if an
    argument is invalid before anything is sent. A token is sent only over HTTPS or loopback.

    Args:
        base_url: the service's address, `http://…`, `https://…` or `unix:/path`. Default:
            AUTOTUNE_URL, then the address in AUTOTUNE_HOST and AUTOTUNE_PORT or the configuration,
            then this user's running service, then http://127.0.0.1:8765.
        token_file: a file with a token, or a copy of a service's `service.json`. Default:
            AUTOTUNE_TOKEN_FILE, AUTOTUNE_TOKEN, then the token of `autotune login`. This user's own
            service needs none: the client uses its Unix socket.
        patience: how often a request is retried, and the waits in between.
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
        """Return an address that signs in one browser, the first that opens it.

        Args:
            page: path of the page that opens, such as `/campaigns/3`.
        """
        key = self._transport.post("/browser-keys", BrowserKey).key
        return f"{self.base_url}/enter?{urlencode({'key': key, 'to': page})}"

    def whoami(self) -> WhoAmI:
        """Return the user as the service knows them, and their rights."""
        return self._transport.get("/whoami", WhoAmI)

    def users(self) -> list[User]:
        """Return the users of a group; raises ApiError unless the caller is an admin."""
        return self._transport.get("/users", list[User])

    def create(self, **fields: Unpack[CampaignInput]) -> CampaignHandle:
        """Submit a campaign: how should this model be laid out on these nodes?

        Only `model` is required. The campaign is created once, even if the request is retried.

        Args:
            model: a name ("gpt-22b"), a size ("13B"), a shape, or the Path of a file (TOML or a
                `config.json`).
            machine: a name, a shape, or the Path of a file. Default: the machine of the cluster
                profile, then "local", the service's own machine.
            nodes: maximum number of nodes of a strategy. Default: 1.
            evaluator: where trials run: "slurm" and "ray" on a cluster, "local" on the service's
                machine, "simulated" by a cost model. Default: "slurm" with `slurm`, "ray" with
                `ray`, "local" for the local machine, else "simulated".
            slurm: {"profile": …, "mode": "sbatch" or "pilot"}.
            ray: {"address": …, "profile": …}, at least one of them.
            adapter: the trainer, by name or by the Path of an adapter's file. Default: the trainer
                of the profile, then the bundled one.
            pool_nodes: number of nodes that trials may use at the same time. Default: `nodes`.
            objective: what to maximise. Default: "tokens_per_s".
            min_headroom_gib: memory to leave free on the fullest GPU. Default: 0.
            space: the search space, fields of `SpaceSpec`: {"preset": "table-v"},
                {"tensor_parallel": [1, 2, 4], "micro_batch_size": "4..20 step 4"}.
            baseline: the layout that is measured first, for comparison: "tp=8,pp=4,mbs=1,zero=1", a
                strategy, or "none". Default: a customary layout.
            budget: when to stop, fields of `Budget`: {"max_trials": 30, "max_node_hours": 20.0,
                "train_tokens": "300B"}.
            protocol: how a trial measures, fields of `ProtocolSpec`.
            tokens: tokens of the full training run, for its duration and energy. Default: 20 per
                parameter.
            screen_nodes: the fewest nodes on which trials may run: "auto" (default), "off", or a
                number.
            screen_layers: run trials with fewer of the model's layers, in shorter pipelines on
                fewer nodes: "off" (default) or a number of layers.
            search: what chooses the trials: "calibrated" (default); for comparison "deephyper",
                "random" or "grid".
            surrogate: model of the search "deephyper": "forest" (default) or "gaussian_process".
            knobs: settings to try on the best layout once it is confirmed: "all", or names as
                ["overlap"] or "overlap,reduce_bucket". Default: none.
            knob_file: your own knobs, as the Path of a TOML file with tables `[knob.NAME]`, or as
                its text.
            fresh: ignore earlier trials on the machine.
            seed: of the search and of simulated trials.
            time_scale: seconds to wait for each simulated second.
            private: hide the campaign from other users of a shared service, except administrators.
            own_runner: only a runner of the campaign's owner may process it.
            name: a name for people.

        Raises:
            InvalidInputs: an argument is invalid; nothing was sent.
            ApiError: the service refused, with `problem["errors"]` for each field.
        """
        request = campaign_request(self._placed(fields))
        created = self._transport.post("/campaigns", Campaign, request, key=str(uuid.uuid4()))
        return CampaignHandle(self._transport, created)

    def dry_run(self, **fields: Unpack[CampaignInput]) -> CampaignPlan:
        """Return the plan of the campaign that `create` with the same arguments would start; raises
        ApiError for what `create` would refuse."""
        request = campaign_request(self._placed(fields))
        return self._transport.post("/campaigns", CampaignPlan, request, params={"dry_run": "true"})

    def plan(self, *, most: int = 10, **fields: Unpack[CampaignInput]) -> CampaignPlan:
        """Return predictions for the campaign that `create` with the same arguments would start:
        what fits, what is fastest, its cost, and what it would find.

        Nothing runs. Predictions use the earlier trials that the campaign would start from.

        Args:
            most: maximum number of strategies in `best`.
        """
        request = campaign_request(self._placed(fields))
        return self._transport.post("/plans", CampaignPlan, request, params={"most": str(most)})

    def import_runs(
        self,
        *,
        model: ModelInput,
        machine: MachineInput,
        runs: Sequence[ImportedRun | Mapping[str, Any]],
        adapter: AdapterInput = "",
        name: str = "",
        private: bool = False,
    ) -> CampaignHandle:
        """Import earlier runs of one model on one machine, from which later campaigns there with
        the same trainer start; all are stored, as a campaign in the state `imported`, or none.

        Args:
            runs: fields of `ImportedRun`: strategy, iteration_time_s, peak_memory_gib, source,
                finished_at, and state ("ok" or "oom").
            adapter: their trainer, as in `create`.
        """
        about: dict[str, Any] = {"model": model_choice(model), "machine": machine_choice(machine)}
        about |= {"adapter": adapter_choice(adapter), "name": name, "private": private}
        stored = self._transport.post(
            "/imports", Campaign, validated(ImportRequest, about | {"runs": runs})
        )
        return CampaignHandle(self._transport, stored)

    def campaign(self, campaign_id: int) -> CampaignHandle:
        campaign = self._transport.get(f"/campaigns/{campaign_id}", Campaign)
        return CampaignHandle(self._transport, campaign)

    def campaigns(
        self, *, state: str | None = None, search: str = "", sort: str | None = None
    ) -> Iterator[CampaignHandle]:
        """Yield campaigns, newest first. Pages are fetched on demand.

        Args:
            state: only campaigns in this state.
            search: only campaigns with all of these words in their names, models, machines,
                layouts, outcomes or reasons.
            sort: a column; a leading `-` sorts in descending order: "-best_mfu", "node_hours".
        """
        fields = {"state": state, "search": search or None, "sort": sort}
        for page in self._transport.pages("/campaigns", CampaignPage, fields):
            for item in page.items:
                yield CampaignHandle(self._transport, item)

    def compare(self, *ids: int) -> CampaignComparison:
        """Return several campaigns side by side, by id."""
        return self._transport.get("/comparison", CampaignComparison, {"ids": listed(ids)})

    def predict(
        self,
        *,
        strategy: StrategyInput,
        min_headroom_gib: float = 0.0,
        traits: Mapping[str, bool | float | str] | None = None,
        over_nodes: Sequence[int] = (),
        **about: Unpack[SubjectInput],
    ) -> Prediction:
        """Predict whether a strategy is legal and fits, and its iteration time.

        If it does not fit, `memory_changes` has the fewest changes that make it fit and leave
        `min_headroom_gib` free on the fullest GPU.

        Args:
            strategy: fields of `Strategy`.
            min_headroom_gib: memory to leave free on the fullest GPU.
            traits: what the trainer does that no dimension states: `{"routing": "natural"}`.
            over_nodes: numbers of nodes for `scaling`, strong and weak, of the same layout.
            about: `model`, `machine`, `evaluator` and `slurm` as in `create`. The last two select
                the trainer, whose capabilities decide what is legal.
        """
        fields = {
            "strategy": strategy,
            "min_headroom_gib": min_headroom_gib,
            "traits": dict(traits or {}),
            "over_nodes": list(over_nodes),
        }
        query = self._query(PredictionQuery, about, **fields)
        return self._transport.post("/predictions", Prediction, query)

    def diagnose(
        self,
        log: Path,
        *,
        model: str = "",
        machine: str = "",
        nodes: int | None = None,
        baseline: str = "",
        adapter: str = "",
    ) -> Diagnosis:
        """Explain from its log why a training is slow: what ran, what was to be expected of its
        layout on this machine, the gap by cause, and layouts that may be faster.

        Args:
            log: a log, JSON lines or CSV, or an event file of TensorBoard.
            model, machine, nodes: what the log does not say, as in `create`.
            baseline: its layout, "tp=8,pp=4,mbs=1,zero=1,gbs=512", or its line of arguments.
            adapter: its trainer, by name.

        Raises:
            ApiError: the file is no log, or one of these is invalid.
        """
        fields = {"name": log.name, "model": model, "machine": machine, "nodes": nodes}
        fields |= {"baseline": baseline, "adapter": adapter}
        return self._transport.upload("/diagnoses", Diagnosis, log.read_bytes(), fields)

    def models(self) -> list[str]:
        """Return the names of models. Any size such as "13B" is valid, too."""
        return self._transport.get("/models", list[str])

    def model(self, name: str) -> Transformer:
        """Return the shape of a model, by name or size."""
        return self._transport.get(f"/models/{_quoted(name)}", Transformer)

    def machines(self) -> list[str]:
        """Return the names of machines; `local` is the service's own."""
        return self._transport.get("/machines", list[str])

    def machine(self, name: str) -> Machine:
        return self._transport.get(f"/machines/{_quoted(name)}", Machine)

    def spaces(self) -> list[str]:
        """Return the names of preset search spaces."""
        return self._transport.get("/spaces", list[str])

    def profiles(self) -> list[ProfileSummary]:
        """Return the cluster profiles: the user's own and the built-in ones."""
        return self._transport.get("/profiles", list[ProfileSummary])

    def profile(self, name: str) -> ProfileSummary:
        """Return a cluster profile with all settings."""
        return self._transport.get(f"/profiles/{_quoted(name)}", ProfileSummary)

    def adapters(self) -> list[AdapterSummary]:
        """Return the trainers described by adapter files: the user's own and the built-in ones."""
        return self._transport.get("/adapters", list[AdapterSummary])

    def _query(self, kind: type[Q], about: SubjectInput, **fields: Any) -> Q:
        return validated(kind, subject(self._placed(about)) | fields)

    def _placed(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        name = profile_named(fields)
        if not name or fields.get("machine") is not None:
            return {**fields}
        profile = self.profile(name)
        valid = "a name of `machines()`, or a Path"
        machine = machine_of_profile(profile.name, profile.machine, valid=valid)
        return {**fields, "machine": machine}


def _quoted(name: str) -> str:
    return quote(name, safe="")
