"""Handles of a campaign, of its recommendation and of a figure: trials, files, and actions."""

from __future__ import annotations

import io
import json
import math
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack, get_args
from urllib.parse import quote

from autotune.answers.recommendation import best_facts, costs, verdicts
from autotune.client.transport import AT_REST, Follower, Transport
from autotune.files import write_whole
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.measurement.table import columns_of
from autotune.schemas.campaigns import Campaign, Event, outcome_of_campaign
from autotune.schemas.choices import (
    CampaignState,
    FigureName,
    FigureScheme,
    ParetoCost,
    ScalingKind,
    TrainerName,
)
from autotune.schemas.explanations import Explanation
from autotune.schemas.figures import FigureForm, FigureOffers, PictureFormat
from autotune.schemas.recommendations import Baseline, Ranked, Recommendation
from autotune.schemas.requests import BudgetExtension, CampaignChange
from autotune.schemas.trials import Trial, TrialMetrics, TrialPage
from autotune.schemas.validation import validated
from autotune.words.html import facts
from autotune.words.quantities import figure, nodes_of
from search_spaces.errors import InvalidInput, closest, suggestion
from search_spaces.strategy import Strategy

POLL_S = 0.5
FIGURE_FORMS: tuple[FigureForm, ...] = ("svg", "png", "pdf", "csv", "vega.json", "json")
DATA_FORMS: tuple[FigureForm, ...] = ("csv", "json")
"""Formats without colours."""


class CampaignHandle:
    """One campaign. `campaign` is its state at the last request."""

    def __init__(self, transport: Transport, campaign: Campaign) -> None:
        self._transport = transport
        self.campaign = campaign

    def __repr__(self) -> str:
        return f"<campaign {self.id} {self.campaign.name!r} {self.state}>"

    def _repr_html_(self) -> str:
        item = self.campaign
        outcome = outcome_of_campaign(item)
        return facts(
            f"Campaign {item.id}: {item.name}",
            [
                ("outcome", f"{outcome}: {item.reason}" if item.reason else outcome),
                ("model", item.model.name),
                ("machine", f"{item.machine.name}, at most {nodes_of(item.request.nodes)}"),
                ("trials", f"{item.trials}, {item.failures} failed"),
                *self._found(),
                ("node-hours", figure(item.node_hours)),
            ],
        )

    def _found(self) -> list[tuple[str, str]]:
        item = self.campaign
        unit = OBJECTIVE_UNITS[item.request.objective]
        best = "–" if item.best_objective is None else f"{figure(item.best_objective)} {unit}"
        layout = item.best_strategy.short() if item.best_strategy else "–"
        projected = "projected, " if item.best_projected_from_nodes else ""
        origin = f"{projected}{'simulated' if item.simulated else 'measured'}"
        return [("recommended", f"{best} ({origin})"), ("layout", layout)]

    @property
    def id(self) -> int:
        return self.campaign.id

    @property
    def state(self) -> CampaignState:
        return self.campaign.state

    @property
    def at_rest(self) -> bool:
        """Return whether it is paused, done, cancelled or failed, and no trial runs."""
        return self.state in AT_REST and self.campaign.pending == 0

    @property
    def _path(self) -> str:
        return f"/campaigns/{self.id}"

    def refresh(self) -> Self:
        self.campaign = self._transport.get(self._path, Campaign)
        return self

    def watch(self, *, after: int = 0) -> Iterator[Event]:
        """Yield events until the campaign is at rest, from number `after` on (0: from its start).

        A broken connection is resumed: no event is lost or repeated.
        """
        self.refresh()
        for event in self._transport.follow(Follower(self.campaign, after=after)):
            self.campaign = event.campaign or self.campaign
            yield event

    def wait(self, *, timeout_s: float | None = None) -> Self:
        """Wait until the campaign is at rest; raises TimeoutError after `timeout_s` seconds."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while not self.refresh().at_rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError(
                    f"campaign {self.id} is still {self.state}; it goes on by itself"
                )
            time.sleep(min(POLL_S, left_s))
        return self

    def trials(
        self,
        *,
        state: str | None = None,
        purpose: str | None = None,
        sort: str = "number",
        limit: int | None = None,
    ) -> list[Trial]:
        """Return the trials: all, or those of one state or purpose, sorted by a column
        (`-tokens_per_s`), the first `limit` if given."""
        query = {"state": state, "purpose": purpose, "sort": sort}
        pages = self._transport.pages(f"{self._path}/trials", TrialPage, query)
        return list(islice((trial for page in pages for trial in page.items), limit))

    def to_dataframe(self) -> Any:
        """Return all trials as a pandas.DataFrame, one row per trial.

        The columns are `autotune.measurement.table.COLUMNS`.

        Raises:
            ImportError: pandas is not installed.
        """
        return dataframe(self.trials())

    def trial(self, number: int) -> Trial:
        return self._transport.get(f"{self._path}/trials/{number}", Trial)

    def log(self, number: int, *, lines: int = 200) -> str:
        """Return the last lines of a trial's log."""
        path = f"{self._path}/trials/{number}/log"
        return self._transport.content(path, {"lines": lines}).decode()

    def best(self) -> RecommendationHandle:
        """Return the recommendation. Raises ApiError with status 404 if there is none yet."""
        found = self._transport.get(f"{self._path}/recommendation", Recommendation)
        return RecommendationHandle(self._transport, found)

    def figures(self) -> FigureOffers:
        """Return the kinds of figures: available or not, and why not."""
        return self._transport.get(f"{self._path}/figures", FigureOffers)

    def figure(self, kind: FigureName, **options: Unpack[FigureInput]) -> dict[str, Any]:
        """Return a figure as data: caption, table and series.

        Raises ApiError with status 404 and the reason if the campaign has no such figure.
        """
        figure: dict[str, Any] = json.loads(self._drawn("json", kind=kind, options=options))
        return figure

    def chart(
        self, kind: FigureName, *, scheme: FigureScheme = "light", **options: Unpack[FigureInput]
    ) -> dict[str, Any]:
        """Return a figure as a Vega-Lite specification with its data."""
        content = self._drawn("vega.json", kind=kind, scheme=scheme, options=options)
        chart: dict[str, Any] = json.loads(content)
        return chart

    def picture(
        self,
        kind: FigureName,
        picture: PictureFormat = "svg",
        *,
        scheme: FigureScheme = "light",
        **options: Unpack[FigureInput],
    ) -> bytes:
        """Return a figure as an image, with title and caption."""
        return self._drawn(picture, kind=kind, scheme=scheme, options=options)

    def plot(
        self, kind: FigureName, *, scheme: FigureScheme = "light", **options: Unpack[FigureInput]
    ) -> Plot:
        """Return a figure that a notebook displays, with title and caption; `.save("map.pdf")`
        writes it to a file.

        Raises:
            InvalidInput: field `kind`: there is no such figure.
            ApiError: with status 404 and the reason if the campaign has no such figure.
        """
        fetch = partial(self._drawn, kind=kind, scheme=scheme, options=options)
        return Plot(f"{kind} of campaign {self.id}", fetch)

    def _drawn(
        self, form: FigureForm, *, kind: str, options: FigureInput, scheme: FigureScheme = "light"
    ) -> bytes:
        path = f"{self._path}/figures/{known_figure(kind)}.{form}"
        params: Mapping[str, Any] = {**options, "scheme": None if form in DATA_FORMS else scheme}
        return self._transport.content(path, params)

    def explain(self) -> Explanation:
        """Return why the best strategy won and what lies beyond its space, or why no trial
        succeeded."""
        return self._transport.get(f"{self._path}/explanation", Explanation)

    def artefacts(self) -> list[str]:
        """Return the names of the files that `download` writes."""
        return self.best().artefacts()

    def download(
        self, path: str | Path, *, rank: int = 1, trainer: TrainerName | None = None
    ) -> list[Path]:
        """Write the files of the strategy at `rank` to a folder or a `.zip` archive: the files of
        `trainer`, or of the trainer that ran the trials."""
        params = {"rank": rank, "trainer": trainer}
        archive = self._transport.content(f"{self._path}/artefacts.zip", params)
        return save_archive(archive, Path(path))

    def pause(self) -> Self:
        return self._control("pause")

    def resume(self) -> Self:
        return self._control("resume")

    def cancel(self) -> Self:
        return self._control("cancel")

    def _control(self, action: str) -> Self:
        self.campaign = self._transport.post(f"{self._path}/{action}", Campaign)
        return self

    def extend(self, **fields: Any) -> Self:
        """Raise the budget, or try knobs on the best layout. A campaign that is done continues.

        Args:
            fields: of `BudgetExtension`: max_trials, max_node_hours and deadline, each a new total;
                knobs ("all", or names) in addition to the campaign's.
        """
        extension = validated(BudgetExtension, fields)
        self.campaign = self._transport.post(f"{self._path}/extend", Campaign, extension)
        return self

    def change(self, *, name: str | None = None, private: bool | None = None) -> Self:
        """Rename the campaign, or make it private or visible to the group; None leaves a field
        unchanged."""
        change = validated(CampaignChange, {"name": name, "private": private})
        self.campaign = self._transport.patch(self._path, Campaign, change)
        return self

    def delete(self) -> None:
        self._transport.delete(self._path)


class RecommendationHandle:
    """A campaign's recommendation, and the files that run it."""

    def __init__(self, transport: Transport, recommendation: Recommendation) -> None:
        self._transport = transport
        self.recommendation = recommendation

    def __repr__(self) -> str:
        layout = self.strategy.short()
        return f"<recommendation of campaign {self.recommendation.campaign_id}: {layout}>"

    def _repr_html_(self) -> str:
        found = self.recommendation
        layout = ("Best", self.strategy.short())
        title = f"Recommended by campaign {found.campaign_id}"
        return facts(title, [layout, *best_facts(found), *verdicts(found), *costs(found)])

    @property
    def best(self) -> Ranked:
        return self.recommendation.best

    @property
    def strategy(self) -> Strategy:
        return self.best.strategy

    @property
    def metrics(self) -> TrialMetrics:
        return self.best.metrics

    @property
    def simulated(self) -> bool:
        """Return whether the figures are simulated instead of measured."""
        return self.recommendation.simulated

    @property
    def baseline(self) -> Baseline | None:
        """Return the layout that was measured first, and how the best compares with it."""
        return self.recommendation.baseline

    @property
    def speedup_over_baseline(self) -> float | None:
        return self.recommendation.speedup_over_baseline

    def at(self, rank: int) -> Ranked:
        """Return the strategy at `rank`, 1 for the best. Raises InvalidInput if there is none."""
        known = {each.rank: each for each in (self.best, *self.recommendation.runners_up)}
        if rank not in known:
            reason = "the recommendation does not go that far"
            raise InvalidInput("rank", rank, reason, valid=f"1 to {max(known)}")
        return known[rank]

    def artefacts(self) -> list[str]:
        """Return the names of its files."""
        return list(self.recommendation.artefacts)

    def artefact(self, name: str, *, rank: int = 1) -> str:
        """Return the text of one file, for the strategy at `rank` (1: the best)."""
        campaign = f"/campaigns/{self.recommendation.campaign_id}"
        path = f"{campaign}/artefacts/{quote(name, safe='')}"
        return self._transport.content(path, {"rank": rank}).decode()

    @property
    def launch_script_name(self) -> str:
        """Return the script that trains the model (`train.sbatch`), or else the one that repeats
        the trial (`benchmark.sbatch`)."""
        launch = self.recommendation.launch
        return launch.file if launch else "train.sbatch"

    def launch_script(self, *, rank: int = 1) -> str:
        """Return the text of that script for the strategy at `rank`."""
        return self.artefact(self.launch_script_name, rank=rank)


def dataframe(trials: Iterable[Trial]) -> Any:
    """Return one row per trial, indexed by trial number.

    Raises:
        ImportError: pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ModuleNotFoundError as error:
        reason = (
            "to_dataframe() needs pandas, which is not installed: `pip install pandas`; "
            "autotune.measurement.table.columns_of(campaign.trials()) gives the same as plain lists"
        )
        raise ImportError(reason) from error
    return pandas.DataFrame(columns_of(trials)).set_index("number", drop=False)


def save_archive(archive: bytes, path: Path) -> list[Path]:
    """Write the archive to `path` if that ends in .zip, else its files to the folder `path`.

    Returns the paths written. Raises OSError if they cannot be written, and leaves no partial file.
    """
    if path.suffix == ".zip":
        path.parent.mkdir(parents=True, exist_ok=True)
        return [write_whole(path, archive)]
    path.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        # Only the base name: an entry cannot place a file outside of the folder.
        contents = {
            Path(entry.filename).name: opened.read(entry)
            for entry in opened.infolist()
            if not entry.is_dir()
        }
    return [
        write_whole(path / name, content, executable=content.startswith(b"#!"))
        for name, content in contents.items()
    ]


class FigureInput(TypedDict, total=False):
    """Parameters of figures: `by` of the trajectory ("trial", "time", "node_hours"),
    `micro_batch_size` and `num_nodes` of the map, `against` of the Pareto front, `scaling` of that
    figure."""

    by: str
    micro_batch_size: int
    num_nodes: int
    against: ParetoCost
    scaling: ScalingKind


class Plot:
    """A figure drawn by the service. A notebook displays it without JavaScript; `svg` is its
    source."""

    def __init__(self, name: str, fetch: Callable[[FigureForm], bytes]) -> None:
        self.name = name
        self.svg = fetch("svg").decode()
        self._fetch = fetch

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the figure in the format of the file's suffix: .svg (as displayed), or .png, .pdf,
        .csv (its table), .json (its data) or .vega.json (Vega-Lite), which have the campaign's
        current state.

        Raises:
            InvalidInput: field `path`: the suffix names no format.
            OSError: the file cannot be written.
        """
        target = Path(path)
        form = figure_form(target)
        return write_whole(target, self.svg if form == "svg" else self._fetch(form))


def known_figure(kind: str) -> str:
    """Return `kind`. Raises InvalidInput with the nearest name if there is no such figure."""
    kinds = get_args(FigureName)
    if kind in kinds:
        return kind
    reason = f"there is no such figure{suggestion(closest(kind, kinds, count=1))}"
    raise InvalidInput("kind", kind, reason, valid=", ".join(kinds))


def figure_form(path: Path, *, field: str = "path") -> FigureForm:
    """Return the format of a figure, by the file's suffix.

    Raises:
        InvalidInput: field `field`: the suffix names no format.
    """
    name = path.name.lower()
    for form in FIGURE_FORMS:
        if name.endswith(f".{form}"):
            return form
    valid = (
        "a name that ends in .svg, .png, .pdf, .csv (its table), .json (its data) or .vega.json "
        "(Vega-Lite)"
    )
    raise InvalidInput(field, str(path), "its end names no format", valid=valid)
