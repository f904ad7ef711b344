"""The recommendation of a campaign, and its files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.client import CampaignHandle, RecommendationHandle
from autotune.errors import ApiError
from server.cli import tables
from server.cli.failures import Failed
from server.cli.options import CampaignId, ServiceOptions
from server.cli.output import Json, document, note, out, plain, text

NOT_FOUND = 404


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
        answer = recommended(handle)
        if script:
            return text(answer.launch_script(rank=rank))
        written = handle.download(out_dir, rank=rank) if out_dir else []
    if json:
        return document(plain(answer.recommendation) | {"written": [str(p) for p in written]})
    out().print(tables.recommendation(answer.recommendation))
    for path in written:
        note(f"wrote {path}")
    return None


def recommended(handle: CampaignHandle) -> RecommendationHandle:
    """The recommendation; raises Failed, with what there is instead, while there is none."""
    try:
        return handle.best()
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        now = handle.campaign
        raise Failed(
            f"campaign {now.id} ({now.state}) has nothing to recommend: {now.trials} trials, "
            f"{now.failures} of them failed; see `autotune show {now.id}`"
        ) from None
