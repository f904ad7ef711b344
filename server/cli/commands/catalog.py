"""Commands for the catalog: models, machines, and cluster profiles. They need no service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import InvalidInput
from server.cli.options import LOCAL, name_or_file
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from autotune.schemas.catalog import ProfileSummary
    from server.cli.tables.elements import TableColumns


def models(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Print the memory and the FLOPs that training this model takes: a name, a size "
            "such as 13B, or a file.",
        ),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            "--tokens",
            help="Tokens of that training: 300B or 300e9.  \\[default: 20 per parameter]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the built-in models, or print the memory and FLOPs of one.

    Every command also takes any size, such as 13B, and a file.
    """
    from search_spaces.catalog import load_model, model_names
    from server.cli.tables import predictions as predictions_table

    if model is not None:
        return _model_needs(model, tokens, json=json)
    if tokens is not None:
        reason = "--tokens needs a model"
        raise InvalidInput("tokens", tokens, reason, valid="--tokens with the name of a model")
    transformers = [load_model(name) for name in model_names()]
    if json:
        return document(transformers)
    return out().print(predictions_table.models(transformers))


def _model_needs(model: str, tokens: str | None, *, json: bool) -> None:
    from autotune.client.question import model_choice
    from autotune.prediction.model_needs import model_needs
    from autotune.schemas.requests import CampaignCreate
    from autotune.schemas.validation import validated
    from server.cli.tables import predictions as predictions_table

    fields = {"model": model_choice(name_or_file(model)), "machine": LOCAL, "tokens": tokens}
    request = validated(CampaignCreate, fields)
    answer = model_needs(request.model, request.tokens)
    return document(answer) if json else out().print(predictions_table.needs(answer))


def machines(json: Json = False) -> None:
    """List the built-in machines; commands also take a TOML file."""
    from autotune.words.quantities import figure
    from search_spaces.catalog import load_machine, machine_names
    from server.cli.tables import elements as elements_table

    known = {name: load_machine(name) for name in machine_names()}
    if json:
        return document(list(known.values()))
    columns: TableColumns[str] = (
        ("machine", lambda name: name),
        ("GPU", lambda name: known[name].gpu),
        (">per node", lambda name: known[name].gpus_per_node),
        (">GiB", lambda name: figure(known[name].memory_gib)),
        (">peak TFLOP/s", lambda name: _rate(known[name].peak_tflops)),
        (">nodes", lambda name: known[name].max_nodes),
    )
    return out().print(elements_table.table(known, columns))


def _rate(peak_tflops: float | None) -> str:
    return "–" if peak_tflops is None else f"{peak_tflops:g}"


def profiles(
    profile: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Print this profile's file.")
    ] = None,
    knobs: Annotated[
        bool,
        typer.Option("--knobs", help="Print the settings that --knobs of `submit` can try."),
    ] = False,
    json: Json = False,
) -> None:
    """List the cluster profiles, or print one as a start for your own.

    Your own files are in the profiles folder next to the configuration (AUTOTUNE_PROFILES_DIR names
    another). A file with the name of a built-in profile replaces it.
    """
    from evaluators.cluster import profile_file
    from server.catalog import profile_detail
    from server.settings import Settings

    folder = Settings().profiles_dir
    if profile is None:
        return _list_profiles(folder, json=json)
    if knobs:
        return _show_knobs(profile, folder, json=json)
    if json:
        return document(profile_detail(profile, folder))
    return text(profile_file(profile, folder=folder).read_text(encoding="utf-8"))


def _show_knobs(name: str, folder: Path, *, json: bool) -> None:
    from evaluators.cluster import load_profile
    from evaluators.cluster.knobs import knobs_of_profile
    from server.cli.tables.knobs import knobs_document, knobs_table

    found = knobs_of_profile(load_profile(name, folder=folder))
    if json:
        return document(knobs_document(found))
    return out().print(knobs_table(found))


def _list_profiles(folder: Path, *, json: bool) -> None:
    from server.catalog import profile_summaries
    from server.cli.tables import elements as elements_table

    summaries = profile_summaries(folder)
    if json:
        return document(summaries)
    columns: TableColumns[ProfileSummary] = (
        ("profile", lambda item: item.name),
        ("machine", lambda i: elements_table.NO_VALUE if i.problem else i.machine or "any"),
        ("trainer", lambda i: elements_table.NO_VALUE if i.problem else i.trainer or "bundled"),
        ("from", lambda item: "you" if item.source else "autotune"),
        ("", lambda item: item.problem or item.description),
    )
    out().print(elements_table.table(summaries, columns, failed=lambda item: bool(item.problem)))
    return note(f"your own go into {folder}")
