"""Follow campaigns and the service, and print recommendations with the files that run them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.errors import ApiError
from autotune.schemas.choices import CampaignState, TrainerName, TrialState
from autotune.words.failures import commands_to_try_again, common_failure
from search_spaces.errors import InvalidInput
from server.cli.failures import Failed
from server.cli.options import CampaignId, ServiceOptions
from server.cli.output import Json, document, note, out, plain, text

if TYPE_CHECKING:
    from autotune.client.campaign import CampaignHandle, RecommendationHandle

NOT_FOUND = 404
TRAINER_JOB = "train.sbatch"
"""File name of the training that `--for` writes."""


def best(
    campaign: CampaignId,
    service: ServiceOptions,
    out_dir: Annotated[
        Path | None,
        typer.Option("--out", help="Write its files into this folder, or as one archive x.zip."),
    ] = None,
    trainer: Annotated[
        TrainerName | None,
        typer.Option(
            "--for", help="Write files for this trainer instead of the one that ran the trials."
        ),
    ] = None,
    script: Annotated[bool, typer.Option("--script", help="Print only the launch script.")] = False,
    rank: Annotated[
        int, typer.Option("--rank", min=1, help="Rank of the layout: 1 is the best.")
    ] = 1,
    json: Json = False,
) -> None:
    """Print a campaign's recommendation, and write its launch files."""
    from server.cli.tables import campaigns as campaigns_table

    if trainer and (script or out_dir is None):
        raise InvalidInput("for", trainer, "a trainer has files to write", valid="--out as well")
    with service.client() as client:
        handle = client.campaign(campaign)
        answer = recommendation_of(handle)
        if answer is None:
            raise without_result(handle)
        ranked = answer.at(rank)
        if script:
            return text(answer.launch_script(rank=rank))
        written = handle.download(out_dir, rank=rank, trainer=trainer) if out_dir else []
    if json:
        found = {"chosen": ranked, "written": [str(path) for path in written]}
        return document(plain(answer.recommendation) | plain(found))
    if rank == 1:
        out().print(campaigns_table.recommendation(answer.recommendation))
    else:
        out().print(campaigns_table.runner_up(answer.recommendation, ranked))
    for path in written:
        note(f"wrote {path}")
    offer = next((each for each in answer.recommendation.trainers if each.name == trainer), None)
    for variable in offer.variables if offer else []:
        note(f"set {variable.variable}: {variable.meaning}")
    note(_after_best(campaign, answer, out_dir, rank=rank, trainer=trainer))
    return None


def _after_best(
    campaign: int,
    answer: RecommendationHandle,
    folder: Path | None,
    *,
    rank: int,
    trainer: TrainerName | None,
) -> str:
    if folder is None:
        which = "" if rank == 1 else f" --rank {rank}"
        return f"next: `autotune best {campaign}{which} --out run/` writes the files that run it"
    if trainer is None and answer.recommendation.launch is None:
        return "no known trainer can train this model with this layout"
    script = TRAINER_JOB if trainer else answer.launch_script_name
    if folder.suffix == ".zip":
        step = f"next: `unzip {folder}`; `{script}` in it starts"
    else:
        start = "sbatch" if script.endswith(".sbatch") else "bash"
        step = f"next: `cd {folder} && {start} {script}`; its first lines say what to set"
    known = [offer.name for offer in answer.recommendation.trainers if offer.supported]
    if script.startswith("train") or not known:
        return step
    command = f"autotune best {campaign} --for {known[0]} --out {folder}"
    return f"{step}. It only measures: `{command}` writes a training on your data"


def recommendation_of(handle: CampaignHandle) -> RecommendationHandle | None:
    """Return the recommendation; None if there is none."""
    try:
        return handle.best()
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        return None


def without_result(handle: CampaignHandle) -> Failed:
    """Return why a campaign has no recommendation: its pause, or what its trials failed of."""
    from autotune.answers.campaign import nothing_ran

    campaign = handle.campaign
    if campaign.state == CampaignState.PAUSED and campaign.reason:
        reason = f"campaign {campaign.id} is paused: {campaign.reason}"
    else:
        common = common_failure(handle.trials())
        reason = f"campaign {campaign.id} ({campaign.state}) has nothing to recommend: " + (
            common or f"{campaign.trials} trials, {campaign.failures} of them failed"
        )
    steps = [f"see `autotune show {campaign.id}`"]
    if nothing_ran(campaign):
        again = commands_to_try_again(campaign)
        steps += [f"{purpose[0].lower()}{purpose[1:]}, `{command}`" for purpose, command in again]
    return Failed("; ".join([reason, *steps]))


def watch(campaign: CampaignId, service: ServiceOptions, json: Json = False) -> None:
    """Follow a campaign until it ends or pauses, then print the recommendation.

    Ctrl-C stops watching, not the campaign. Exit code 1 if there is no result.
    """
    with service.client() as client:
        follow(client.campaign(campaign), json=json)


def follow(handle: CampaignHandle, *, json: bool) -> None:
    """Show progress, then the result; raises Failed if the campaign ended without one."""
    from server.cli.progress import ProgressBoard

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
    campaign = handle.refresh().campaign
    missing = _print_found(handle, json=json)
    if campaign.state == CampaignState.FAILED:
        raise Failed(f"campaign {campaign.id} failed: {campaign.reason}")
    if missing is not None:
        raise missing
    if campaign.state != CampaignState.DONE:
        reason = f": {campaign.reason}" if campaign.reason else ""
        note(f"campaign {campaign.id} is {campaign.state}{reason}")


def _print_found(handle: CampaignHandle, *, json: bool) -> Failed | None:
    from server.cli.tables import campaigns as campaigns_table

    campaign, answer = handle.campaign, recommendation_of(handle)
    if json:
        recommendation = answer.recommendation if answer else None
        document({"campaign": campaign, "recommendation": recommendation})
    elif answer:
        out().print(campaigns_table.recommendation(answer.recommendation))
        note(f"next: `autotune best {campaign.id} --out run/` writes the files that run it")
    return None if answer else without_result(handle)
