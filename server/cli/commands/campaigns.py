"""Commands for campaigns of the service: list, show, draw, compare, control and remove."""

from __future__ import annotations

import json as jsons
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import typer

from autotune.errors import ApiError
from autotune.files import write_whole
from autotune.schemas.choices import (
    CampaignState,
    FigureName,
    FigureScheme,
    ParetoCost,
    ScalingKind,
    TrialState,
)
from search_spaces.errors import InvalidInput
from server.cli.commands.watching import recommendation_of
from server.cli.option_groups import OptionGroup, chosen, option
from server.cli.options import BudgetOptions, CampaignId, ServiceOptions
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from autotune.client.campaign import CampaignHandle, RecommendationHandle
    from autotune.client.client import Client
    from autotune.schemas.explanations import Explanation
    from autotune.schemas.recommendations import Baseline


UNITS_D = {"h": 1 / 24, "d": 1.0, "w": 7.0}


def ls(
    service: ServiceOptions,
    state: Annotated[
        CampaignState | None, typer.Option("--state", help="Only campaigns in this state.")
    ] = None,
    search: Annotated[
        str | None,
        typer.Option("--search", help="Only campaigns whose row contains all of these words."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", help="By id, name, best_objective, -best_mfu, node_hours, …"),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of campaigns.")] = 50,
    json: Json = False,
) -> None:
    """List campaigns, newest first, with their outcomes.

    A terminal also gets the address of the page that lists them; it lets one browser in, once.
    """
    from server.cli.tables import campaigns as campaigns_table

    with service.client() as client:
        found = client.campaigns(state=state, search=search or "", sort=sort)
        campaigns = [handle.campaign for handle in islice(found, limit)]
        if json:
            return document(campaigns)
        _print_address(client, "/")
    if not campaigns and search:
        return note(f"no campaign has all of these words: {search}")
    if not campaigns:
        return note("no campaigns: submit one with `autotune submit`")
    return out().print(campaigns_table.campaigns(campaigns))


def show(
    campaign: CampaignId,
    service: ServiceOptions,
    trial: Annotated[
        int | None, typer.Option("--trial", help="Only this trial, by number.")
    ] = None,
    log: Annotated[
        int,
        typer.Option(
            "--log", min=0, help="With --trial: number of last lines of its log to print."
        ),
    ] = 0,
    state: Annotated[
        TrialState | None, typer.Option("--state", help="Only trials in this state.")
    ] = None,
    sort: Annotated[
        str, typer.Option("--sort", help="By number, iteration_time_s, -tokens_per_s, …")
    ] = "number",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="Maximum number of trials, after sorting.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a campaign and its trials, or one trial, with the reason for each choice.

    A terminal also gets the address of the campaign's page; it lets one browser in, once.
    """
    from server.cli.tables import campaigns as campaigns_table

    if log and trial is None:
        raise InvalidInput("log", log, "only a trial has a log", valid="--trial as well")
    with service.client() as client:
        handle = client.campaign(campaign)
        if trial is not None:
            return _show_trial(handle, trial, log=log, json=json)
        trials = handle.trials(state=state, sort=sort, limit=limit)
        if json:
            return document({"campaign": handle.campaign, "trials": trials})
        _print_address(client, f"/campaigns/{campaign}")
        answer = recommendation_of(handle)
        tables = [*_answer(answer, _baseline(handle, answer), handle.explain())]
    console = out()
    console.print(campaigns_table.campaign(handle.campaign))
    for table in tables:
        console.print(table)
    console.print()
    console.print(campaigns_table.trials(trials))
    if any(trial.expected for trial in trials):
        console.print()
        console.print(campaigns_table.choices(trials))
    return None


def _print_address(client: Client, page: str) -> None:
    from autotune.client.known_services import SOCKET

    # Of keys that nobody has used, the service keeps the newest: none is spent on a script. And a
    # browser opens no Unix socket.
    if sys.stderr.isatty() and not client.base_url.startswith(SOCKET):
        note(f"page (works once): {client.browser_address(page)}")


def _answer(
    answer: RecommendationHandle | None, baseline: Baseline | None, explanation: Explanation
) -> Iterator[RenderableType]:
    from server.cli.tables import campaigns as campaigns_table

    if answer is not None:
        yield campaigns_table.outlook(answer.recommendation)
        yield from campaigns_table.knobs(answer.recommendation)
    elif baseline is not None:
        yield campaigns_table.baseline(baseline)
    if explanation.sentences:
        yield campaigns_table.reasons(explanation)


def _baseline(handle: CampaignHandle, answer: RecommendationHandle | None) -> Baseline | None:
    if answer is not None:
        return answer.recommendation.baseline
    from autotune.recommendation.baseline import baseline_result

    return baseline_result(handle.campaign, handle.trials(purpose="baseline"))[0]


def _show_trial(handle: CampaignHandle, number: int, *, log: int, json: bool) -> None:
    from server.cli.tables import campaigns as campaigns_table

    trial = handle.trial(number)
    lines = handle.log(number, lines=log) if log else ""
    if json:
        return document({"trial": trial, "log": lines} if log else trial)
    out().print(campaigns_table.trial(trial, handle.campaign.machine))
    return text(lines) if lines else None


def pause(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Start no further trials until `autotune resume`; running trials continue."""
    _steer(campaign, service, lambda handle: handle.pause(), json=json)


def resume(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Continue a paused campaign."""
    _steer(campaign, service, lambda handle: handle.resume(), json=json)


def cancel(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """End a campaign and its running trials; keep its results."""
    _steer(campaign, service, lambda handle: handle.cancel(), json=json)


def extend(
    campaign: CampaignId,
    budget: BudgetOptions,
    service: ServiceOptions,
    knobs: Annotated[
        str | None,
        typer.Option(
            "--knobs",
            metavar="all|NAME,NAME",
            help="Knobs to try on the best layout, in addition to the campaign's: all, or names as "
            "in `autotune submit --knobs`.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Raise a campaign's budget, or try knobs on its best layout; a finished campaign continues."""
    extension = budget.budget() | chosen(knobs=knobs)
    if not extension:
        valid = "--max-trials, --max-node-hours, --deadline or --knobs"
        raise InvalidInput("budget", None, "nothing to extend was given", valid=valid)
    _steer(campaign, service, lambda handle: handle.extend(**extension), json=json)
    if not json:
        note(f"next: `autotune watch {campaign}` follows it")


def _steer(
    campaign: int,
    service: ServiceOptions,
    action: Callable[[CampaignHandle], CampaignHandle],
    *,
    json: bool,
) -> None:
    from server.cli.tables import campaigns as campaigns_table

    with service.client() as client:
        after = action(client.campaign(campaign)).campaign
    if json:
        document(after)
    else:
        out().print(campaigns_table.campaign(after))


def rm(
    service: ServiceOptions,
    campaign: Annotated[
        int | None, typer.Argument(metavar="ID", help="The campaign's number.")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Delete all campaigns that ended (also imported ones) at least this long "
            "ago: days (90d), weeks (26w) or hours (12h). On a shared service, only your own "
            "unless you are an admin.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before --older-than.")] = False,
    json: Json = False,
) -> None:
    """Delete a campaign with its trials, or all that ended long ago.

    An active campaign must be cancelled first. Later campaigns no longer start from deleted trials.
    """
    if (campaign is None) == (older_than is None):
        reason = "one campaign, or all that ended long ago"
        raise InvalidInput("older_than", older_than, reason, valid="ID, or --older-than 90d")
    with service.client() as client:
        if older_than is None:
            assert campaign is not None
            client.campaign(campaign).delete()
            deleted = [campaign]
        else:
            ended = _ended(client, before=datetime.now(UTC) - length_of_time(older_than))
            if ended and not yes:
                _confirm(ended)
            deleted = [handle.id for handle in ended if _deleted(handle)]
    if json:
        return document({"deleted": deleted})
    ids = ", ".join(map(str, deleted))
    if len(deleted) == 1:
        return note(f"campaign {ids} is deleted")
    return note(f"campaigns {ids} are deleted" if deleted else "no campaign is deleted")


def _ended(client: Client, *, before: datetime) -> list[CampaignHandle]:
    me = client.whoami()
    return [
        handle
        for handle in client.campaigns(sort="id")
        if handle.campaign.finished_at is not None
        and handle.campaign.finished_at < before
        and (me.scope == "admin" or handle.campaign.owner == me.name)
    ]


def _confirm(ended: list[CampaignHandle]) -> None:
    from server.cli.tables.elements import moment

    for handle in ended:
        ended_at = moment(handle.campaign.finished_at)
        note(f"campaign {handle.id} {handle.campaign.name}: {handle.campaign.state} {ended_at}")
    if not sys.stdin.isatty():
        reason = "without a terminal, nobody can confirm the deletion"
        raise InvalidInput("yes", None, reason, valid="--yes")
    typer.confirm("Delete them with their trials?", abort=True, err=True)


def _deleted(handle: CampaignHandle) -> bool:
    try:
        handle.delete()
    except ApiError as error:
        if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
            raise
        return False
    return True


def length_of_time(text: str) -> timedelta:
    """Parse a duration: `90d`, `12w` or `36h`; raises InvalidInput."""
    found = re.fullmatch(r"(\d{1,6})\s*([hdw])", text.strip())
    if not found:
        valid = "days, weeks or hours, such as 90d, 12w or 36h"
        raise InvalidInput("older_than", text, "this is not a duration", valid=valid)
    days = int(found[1]) * UNITS_D[found[2]]
    if days > (datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days:
        raise InvalidInput("older_than", text, "nothing is that old", valid="at most some years")
    return timedelta(days=days)


@dataclass(frozen=True, kw_only=True)
class FigureFlags(OptionGroup):
    """Options that restrict some kinds."""

    PANEL: ClassVar[str] = "What it shows"

    by: Literal["trial", "time", "node_hours"] | None = option(
        "--by", "trajectory: the horizontal axis.", default="trial"
    )
    x: str | None = option("--x", "map: dimension of the horizontal axis.")
    y: str | None = option("--y", "map: dimension of the vertical axis.")
    micro_batch_size: int | None = option(
        "--mbs", "map: only layouts with this micro-batch size.", min=1
    )
    num_nodes: int | None = option(
        "--num-nodes", "map: only layouts with this number of nodes.", min=1
    )
    failed: Literal["shown", "hidden"] | None = option(
        "--failed", "parallel_coordinates: whether failed trials are drawn.", default="shown"
    )
    against: ParetoCost | None = option(
        "--against", "pareto_front: the metric to compare the rate with."
    )
    scaling: ScalingKind | None = option("--scaling", "scaling: strong or weak scaling.")


def plot(
    campaign: CampaignId,
    choice: FigureFlags,
    service: ServiceOptions,
    kind: Annotated[
        FigureName | None,
        typer.Option("--kind", help="Kind of figure; without it, list the kinds."),
    ] = None,
    to_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the figure into this file, in the format of its extension: .svg, "
            ".png, .pdf, .csv (table), .json (data) or .vega.json (Vega-Lite). Without it, print "
            "a table.",
        ),
    ] = None,
    scheme: Annotated[
        FigureScheme, typer.Option("--scheme", help="Colours for a light or dark background.")
    ] = "light",
    json: Json = False,
) -> None:
    """Print or draw a figure of a campaign, as a table, a picture or data.

    Without --kind, list the campaign's figures, and why others are missing. Every figure has one
    sentence that summarises it.
    """
    from server.cli.tables import campaigns as campaigns_table

    if kind is None and to_file is not None:
        kinds = ", ".join(get_args(FigureName))
        raise InvalidInput("kind", None, "choose the figure to write", valid=kinds)
    with service.client() as client:
        handle = client.campaign(campaign)
        if kind is None:
            offers = handle.figures()
            return document(offers) if json else out().print(campaigns_table.offers(offers))
        written = to_file and _written(handle, kind, to_file, scheme, choice.given())
        figure = handle.figure(kind, **choice.given())
    if json:
        return document(figure | ({"written": str(written)} if written else {}))
    if written:
        text(figure["caption"])
        return note(f"wrote {written}")
    return out().print(campaigns_table.figure_data(figure))


def _written(
    handle: CampaignHandle,
    kind: FigureName,
    target: Path,
    scheme: FigureScheme,
    options: dict[str, Any],
) -> Path:
    from autotune.client.campaign import figure_form
    from autotune.schemas.figures import FigureTable
    from server.figures.figure import as_csv

    form = figure_form(target, field="to_file")
    if form == "vega.json":
        chart = handle.chart(kind, scheme=scheme, **options)
        content = jsons.dumps(chart, ensure_ascii=False).encode()
    elif form == "json":
        data = handle.figure(kind, **options)
        content = jsons.dumps(data, indent=2, ensure_ascii=False).encode()
    elif form == "csv":
        content = as_csv(FigureTable.model_validate(handle.figure(kind, **options)["table"]))
    else:
        content = handle.picture(kind, form, scheme=scheme, **options)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content)
    return target


def compare(
    campaigns: Annotated[
        list[int],
        typer.Argument(metavar="ID ID ...", help="Numbers of two or more campaigns."),
    ],
    service: ServiceOptions,
    json: Json = False,
) -> None:
    """Compare campaigns: their results, and which found the best."""
    from server.cli.tables import campaigns as campaigns_table
    from server.cli.tables.elements import rows
    from server.figures.comparison import progress_table

    with service.client() as client:
        comparison = client.compare(*campaigns)
    if json:
        return document(comparison)
    console = out()
    console.print(comparison.sentence)
    console.print()
    console.print(campaigns_table.winners(comparison))
    console.print()
    return console.print(rows(progress_table(comparison)))
