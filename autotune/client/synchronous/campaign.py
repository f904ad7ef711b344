# Generated from `asynchronous` by `make client`: change that and run it again.
"""A campaign as a handle: its trials, its figures, its answer, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

from autotune.client import calls
from autotune.client.calls.figures import FigureInput
from autotune.client.dataframe import dataframe
from autotune.client.files import save_archive
from autotune.client.following import Follower
from autotune.client.synchronous.plot import Plot
from autotune.client.synchronous.recommendation import RecommendationHandle
from autotune.client.synchronous.transport import Transport
from autotune.client.views import CampaignView
from autotune.schemas import (
    Campaign,
    Event,
    Explanation,
    FigureName,
    FigureOffers,
    FigureScheme,
    PictureFormat,
    ScalingStudy,
    TrainerName,
    Trial,
)


class CampaignHandle(CampaignView):
    """One campaign; `campaign` is how it stood when last asked for."""

    def __init__(self, transport: Transport, campaign: Campaign) -> None:
        super().__init__(campaign)
        self._transport = transport

    def refresh(self) -> Self:
        self.campaign = self._transport.send(calls.campaigns.campaign(self.id))
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
                calls.trials.trials(self.id, state=state, purpose=purpose, sort=sort, cursor=cursor)
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
        return self._transport.send(calls.trials.trial(self.id, number))

    def log(self, number: int, *, lines: int = 200) -> str:
        """Return the last lines of a trial's log."""
        return self._transport.send(calls.trials.log(self.id, number, lines=lines))

    def best(self) -> RecommendationHandle:
        """Return the recommendation; raises ApiError with status 404 while there is none."""
        answer = self._transport.send(calls.campaigns.recommendation(self.id))
        return RecommendationHandle(self._transport, answer)

    def scaling(self, *, rank: int = 1, nodes: Sequence[int] = ()) -> ScalingStudy:
        """Return how the strategy at `rank` scales, measured where a trial ran it and predicted
        elsewhere from what the trials have shown."""
        call = calls.campaigns.scaling(self.id, rank=rank, nodes=nodes)
        return self._transport.send(call)

    def figures(self) -> FigureOffers:
        """Return which kinds of figures there are of this campaign, and why not the others."""
        return self._transport.send(calls.figures.figures(self.id))

    def figure(self, kind: FigureName, **options: Unpack[FigureInput]) -> dict[str, Any]:
        """Return a figure as data: its caption, its table and its series.

        Raises ApiError with status 404 where the campaign has none of this kind, and says why.
        """
        return self._transport.send(calls.figures.figure(self.id, kind, options))

    def chart(
        self, kind: FigureName, *, scheme: FigureScheme = "light", **options: Unpack[FigureInput]
    ) -> dict[str, Any]:
        """Return a figure as Vega-Lite with its rows."""
        return self._transport.send(calls.figures.chart(self.id, kind, options, scheme=scheme))

    def picture(
        self,
        kind: FigureName,
        picture: PictureFormat = "svg",
        *,
        scheme: FigureScheme = "light",
        **options: Unpack[FigureInput],
    ) -> bytes:
        """Return a figure as a picture, with its title and caption."""
        call = calls.figures.file(self.id, kind, options, scheme=scheme, form=picture)
        return self._transport.send(call)

    def plot(
        self, kind: FigureName, *, scheme: FigureScheme = "light", **options: Unpack[FigureInput]
    ) -> Plot:
        """Return a figure as a notebook shows it, with its title and caption; `.save("map.pdf")`
        writes it into a file.

        Raises:
            InvalidInput: field `kind`: there is no such figure.
            ApiError: with status 404 where the campaign has none of this kind, and why.
        """
        ask = partial(calls.figures.file, self.id, kind, options, scheme=scheme)
        return Plot.drawn(self._transport, ask, name=f"{kind} of campaign {self.id}")

    def explain(self) -> Explanation:
        """Return why its best won and what lies beyond its space, or why nothing ran."""
        return self._transport.send(calls.campaigns.explanation(self.id))

    def artefacts(self) -> list[str]:
        """Return the names of the files that `download` writes."""
        return (self.best()).artefacts()

    def download(
        self, path: str | Path, *, rank: int = 1, trainer: TrainerName | None = None
    ) -> list[Path]:
        """Write the files of the strategy at `rank` into a folder, or as one archive (`.zip`);
        those of `trainer`, or else those that launch it as the trials ran."""
        call = calls.campaigns.archive(self.id, rank=rank, trainer=trainer)
        return save_archive(self._transport.send(call), Path(path))

    def pause(self) -> Self:
        return self._control("pause")

    def resume(self) -> Self:
        return self._control("resume")

    def cancel(self) -> Self:
        return self._control("cancel")

    def _control(self, action: str) -> Self:
        self.campaign = self._transport.send(calls.campaigns.control(self.id, action))
        return self

    def extend(self, **budget: Any) -> Self:
        """Raise the budget (the fields of `BudgetExtension`); a campaign that is done goes on."""
        self.campaign = self._transport.send(calls.campaigns.extend(self.id, budget))
        return self

    def change(self, *, name: str | None = None, private: bool | None = None) -> Self:
        """Give the campaign another name, or show it to the others of a group or to nobody else;
        what is None stays."""
        changes = {"name": name, "private": private}
        self.campaign = self._transport.send(calls.campaigns.change(self.id, changes))
        return self

    def delete(self) -> None:
        self._transport.send(calls.campaigns.delete(self.id))
