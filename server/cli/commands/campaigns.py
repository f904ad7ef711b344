"""Campaigns in the service: list, show, watch, steer, remove, and take what they recommend."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.console import RenderableType

from autotune.client import CampaignHandle, RecommendationHandle
from autotune.client.location import SOCKET
from autotune.client.service_record import known_folder
from autotune.errors import ApiError
from autotune.files import write_whole
from autotune.schemas import (
    Baseline,
    Campaign,
    CampaignState,
    Explanation,
    ScalingStudy,
    TrialState,
)
from search_spaces.errors import InvalidInput
from server.cli.failures import Failed
from server.cli.options import OptionGroup, ServiceOptions, chosen
from server.cli.output import Json, document, note, out, plain, text
from server.cli.progress import ProgressBoard
from server.cli.tables import campaigns as tables
from server.cli.tables import scaling

NOT_FOUND = 404
CampaignId = Annotated[
    int, typer.Argument(metavar="ID", help="The campaign's number, as `autotune ls` shows it.")
]


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(OptionGroup):
    """When a campaign ends."""

    PANEL: ClassVar[str] = "When it ends, whichever comes first"

    max_trials: Annotated[
        int | None, typer.Option("--max-trials", help="End after so many trials in all.")
    ] = None
    max_node_hours: Annotated[
        float | None,
        typer.Option("--max-node-hours", help="End when trials have held so many node-hours."),
    ] = None
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", help="End by this time: 2030-01-31T18:00 (local) or with a zone."
        ),
    ] = None

    def budget(self) -> dict[str, Any]:
        """Return what was given of it; raises InvalidInput for a deadline that is no time.

        A deadline without a zone is in this machine's.
        """
        deadline = None
        if self.deadline is not None:
            try:
                deadline = datetime.fromisoformat(self.deadline).astimezone()
            except ValueError:
                reason, valid = "this is no time in ISO 8601", "2030-01-31T18:00+01:00"
                raise InvalidInput("deadline", self.deadline, reason, valid=valid) from None
        return chosen(
            max_trials=self.max_trials, max_node_hours=self.max_node_hours, deadline=deadline
        )


def ls(
    service: ServiceOptions,
    state: Annotated[
        CampaignState | None, typer.Option("--state", help="Only those in this state.")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", help="Only those with all of these words in their row."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", help="By id, name, best_objective, -best_mfu, node_hours, …"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The first so many.")] = 50,
    json: Json = False,
) -> None:
    """List campaigns, newest first, with what each has found."""
    with service.client() as client:
        found = client.campaigns(state=state, search=search or "", sort=sort)
        campaigns = [handle.campaign for handle in islice(found, limit)]
    if json:
        return document(campaigns)
    if not campaigns and search:
        return note(f"no campaign has all of these words: {search}")
    if not campaigns:
        return note("no campaigns: submit one with `autotune submit`")
    return out().print(tables.campaigns(campaigns))


def show(
    campaign: CampaignId,
    service: ServiceOptions,
    trial: Annotated[
        int | None, typer.Option("--trial", help="Only this trial, by number.")
    ] = None,
    log: Annotated[
        int, typer.Option("--log", min=0, help="With --trial: so many last lines of its log.")
    ] = 0,
    state: Annotated[
        TrialState | None, typer.Option("--state", help="Only trials in this state.")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", help="By number, iteration_time_s, -tokens_per_s, …")
    ] = "number",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Only the first so many, as sorted.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a campaign and its trials, or one trial, and why each was chosen."""
    if log and trial is None:
        raise InvalidInput("log", log, "a log is that of one trial", valid="--trial as well")
    with service.client() as client:
        handle = client.campaign(campaign)
        if trial is not None:
            return _show_trial(handle, trial, log=log, json=json)
        trials = handle.trials(state=state, sort=sort, limit=limit)
        if json:
            return document({"campaign": handle.campaign, "trials": trials})
        answer = _recommendation(handle)
        if handle.campaign.request.study is not None:
            told = [scaling.scaling(study) for study in studied(handle)]
        else:
            told = [*_answer(answer, _baseline(handle, answer), handle.explain())]
    console = out()
    console.print(tables.campaign(handle.campaign))
    for table in told:
        console.print(table)
    console.print()
    console.print(tables.trials(trials))
    if any(trial.expected for trial in trials):
        console.print()
        console.print(tables.choices(trials))
    for front in tables.fronts(answer.recommendation) if answer else ():
        console.print()
        console.print(front)
    return None


def open_(
    service: ServiceOptions,
    campaign: Annotated[
        int | None,
        typer.Argument(metavar="ID", help="The campaign's number; without one, the list of all."),
    ] = None,
    json: Json = False,
) -> None:
    """Open a campaign's page in a browser, and print the address that lets one browser in, once."""
    with service.client() as client:
        if client.base_url.startswith(SOCKET):
            reason = "a browser opens no Unix socket; forward a port to it: ssh -L 8765:PATH HOST"
            raise Failed(f"the service listens at {client.base_url}: {reason}")
        page = "/" if campaign is None else f"/campaigns/{client.campaign(campaign).id}"
        address = client.browser_address(page)
    opened = _opened(address)
    if json:
        return document({"address": address, "opened": opened})
    text(address)
    return None if opened else note("no browser could be started here")


def _opened(address: str) -> bool:
    """Return whether a browser was started at the address.

    It is led there by a file of this user's alone: all users see the words of its command.
    """
    page = known_folder() / "open.html"
    content = f'<meta http-equiv="refresh" content="0;url={escape(address)}">\n'
    page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(page, content, private=True)
    return webbrowser.open(page.as_uri())


def _answer(
    answer: RecommendationHandle | None, baseline: Baseline | None, explanation: Explanation
) -> Iterator[RenderableType]:
    """Yield what the campaign has come to, as far as it has."""
    if answer is not None and answer.recommendation.standing is not None:
        yield tables.standing(answer.recommendation)
    if baseline is not None:
        yield tables.baseline(baseline)
    if explanation.sentences:
        yield tables.reasons(explanation)


def studied(handle: CampaignHandle) -> list[ScalingStudy]:
    """Return how each layout of a scaling study scales."""
    study = handle.campaign.request.study
    count = len(study.strategies) if study else 0
    return [handle.scaling(rank=rank) for rank in range(1, count + 1)]


def _baseline(handle: CampaignHandle, answer: RecommendationHandle | None) -> Baseline | None:
    """Return the baseline, told against the best where there is one."""
    if answer is not None:
        return answer.recommendation.baseline
    from autotune.recommendation import baseline_result

    return baseline_result(handle.campaign, handle.trials(purpose="baseline"))[0]


def _show_trial(handle: CampaignHandle, number: int, *, log: int, json: bool) -> None:
    trial = handle.trial(number)
    lines = handle.log(number, lines=log) if log else ""
    if json:
        return document({"trial": trial, "log": lines} if log else trial)
    out().print(tables.trial(trial))
    return text(lines) if lines else None


def watch(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Follow a campaign until it is at rest, then print what it recommends.

    Ctrl-C ends the watching, not the campaign. Exit code 1 where there is no result.
    """
    with service.client() as client:
        follow(client.campaign(campaign), json=json)


def follow(handle: CampaignHandle, *, json: bool) -> None:
    """Show progress, then the result; raises Failed where the campaign ended without one."""
    try:
        with ProgressBoard([handle.campaign]) as board:
            board.begin(handle.trials(state=TrialState.PENDING))
            for event in handle.watch():
                board.update(event)
    except KeyboardInterrupt:
        note(
            f"campaign {handle.id} goes on without being watched: "
            f"`autotune watch {handle.id}` watches it again, `autotune cancel {handle.id}` ends it"
        )
        raise
    searched = handle.refresh().campaign.request.study is None
    (_after_search if searched else _after_study)(handle, json=json)


def _after_search(handle: CampaignHandle, *, json: bool) -> None:
    """Print what a campaign recommends; raises Failed where it ended without a result."""
    campaign, answer = handle.campaign, _recommendation(handle)
    if json:
        recommendation = answer.recommendation if answer else None
        document({"campaign": campaign, "recommendation": recommendation})
    elif answer:
        out().print(tables.recommendation(answer.recommendation))
        note(f"next: `autotune best {campaign.id} --out run/` writes the files that run it")
    if campaign.state == CampaignState.FAILED:
        raise Failed(f"campaign {campaign.id} failed: {campaign.reason}")
    if answer is None:
        raise _without_result(campaign)
    if campaign.state != CampaignState.DONE:
        _note_state(campaign)


def _after_study(handle: CampaignHandle, *, json: bool) -> None:
    """Print what a scaling study has measured; raises Failed where it ended without anything."""
    campaign, found = handle.campaign, studied(handle)
    if json:
        document({"campaign": campaign, "scaling": found})
    else:
        for study in found:
            out().print(scaling.scaling(study))
        note(f"next: `autotune plot {campaign.id} --kind scaling --out scaling.pdf` draws it")
    if campaign.state == CampaignState.FAILED:
        raise Failed(f"campaign {campaign.id} failed: {campaign.reason}")
    points = [point for study in found for series in study.series for point in series.points]
    if not any(point.measured for point in points):
        raise Failed(f"campaign {campaign.id} ({campaign.state}) has measured nothing")
    if campaign.state != CampaignState.DONE:
        _note_state(campaign)


def _note_state(campaign: Campaign) -> None:
    reason = f": {campaign.reason}" if campaign.reason else ""
    note(f"campaign {campaign.id} is {campaign.state}{reason}")


def best(
    campaign: CampaignId,
    service: ServiceOptions,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Write its files into this folder, or as one archive x.zip."),
    ] = None,
    script: Annotated[
        bool, typer.Option("--script", help="Print the launch script alone.")
    ] = False,
    rank: Annotated[int, typer.Option("--rank", min=1, help="1 is the best, 2 the next …")] = 1,
    json: Json = False,
) -> None:
    """Print what a campaign recommends, and write the files that run it."""
    with service.client() as client:
        handle = client.campaign(campaign)
        answer = _recommendation(handle)
        if answer is None:
            raise _without_result(handle.campaign)
        ranked = answer.at(rank)
        if script:
            return text(answer.launch_script(rank=rank))
        written = handle.download(out_dir, rank=rank) if out_dir else []
    if json:
        found = {"chosen": ranked, "written": [str(path) for path in written]}
        return document(plain(answer.recommendation) | plain(found))
    if rank == 1:
        out().print(tables.recommendation(answer.recommendation))
    else:
        out().print(tables.runner_up(answer.recommendation, ranked))
    for path in written:
        note(f"wrote {path}")
    note(_after_best(campaign, answer, out_dir, rank=rank))
    return None


def _after_best(
    campaign: int, answer: RecommendationHandle, folder: Path | None, *, rank: int
) -> str:
    """Return what may be done next with a recommendation."""
    if folder is None:
        which = "" if rank == 1 else f" --rank {rank}"
        return f"next: `autotune best {campaign}{which} --out run/` writes the files that run it"
    script = answer.launch_script_name
    if folder.suffix == ".zip":
        return f"next: `unzip {folder}`; `{script}` in it starts the training"
    start = "sbatch" if script.endswith(".sbatch") else "bash"
    return f"next: `cd {folder} && {start} {script}`; its head says what it still needs"


def _recommendation(handle: CampaignHandle) -> RecommendationHandle | None:
    """Return the recommendation, None while there is none."""
    try:
        return handle.best()
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return None


def _without_result(campaign: Campaign) -> Failed:
    if campaign.request.study is not None:
        return Failed(
            f"campaign {campaign.id} is a scaling study, which recommends nothing: see "
            f"`autotune show {campaign.id}`"
        )
    return Failed(
        f"campaign {campaign.id} ({campaign.state}) has nothing to recommend: {campaign.trials} "
        f"trials, {campaign.failures} of them failed; see `autotune show {campaign.id}`"
    )


def pause(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Start no further trials until `autotune resume`; those that run end by themselves."""
    _steer(campaign, service, CampaignHandle.pause, json=json)


def resume(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Go on with a paused campaign."""
    _steer(campaign, service, CampaignHandle.resume, json=json)


def cancel(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """End a campaign and its running trials; what was measured is kept."""
    _steer(campaign, service, CampaignHandle.cancel, json=json)


def extend(
    campaign: CampaignId, budget: BudgetOptions, service: ServiceOptions, json: Json = False
) -> None:
    """Raise a campaign's budget; one that is done goes on."""
    extension = budget.budget()
    if not extension:
        valid = "--max-trials, --max-node-hours or --deadline"
        raise InvalidInput("budget", None, "nothing to extend it by was given", valid=valid)
    _steer(campaign, service, lambda handle: handle.extend(**extension), json=json)


def _steer(
    campaign: int,
    service: ServiceOptions,
    action: Callable[[CampaignHandle], CampaignHandle],
    *,
    json: bool,
) -> None:
    with service.client() as client:
        after = action(client.campaign(campaign)).campaign
    if json:
        document(after)
    else:
        out().print(tables.campaign(after))


def rm(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Delete a campaign with its trials. One that is worked on must be cancelled first."""
    with service.client() as client:
        client.campaign(campaign).delete()
    if json:
        return document({"deleted": campaign})
    return note(f"campaign {campaign} is deleted")
