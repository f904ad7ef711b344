"""Commands for adapters of trainers: list, show, new, check. They need no service."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.options import ModelOptions, name_or_file
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from evaluators.adapter.adapter import Adapter
    from evaluators.adapter.check.judgement import CheckFinding, PatternMatch
    from evaluators.trial import Backend, TrialOutcome, TrialRequest
    from server.cli.tables.elements import TableColumns

HELP = """Describe any trainer with a small file: list, show, write and check adapters.

Your own files are in the adapters folder next to the configuration (AUTOTUNE_ADAPTERS_DIR names
another). A file with the name of a built-in adapter replaces it.
"""

BUNDLED = "bundled"
LOOK_S = 0.2


def list_(json: Json = False) -> None:
    """List the built-in adapters and yours.

    How each was checked: `trained`, by training with it; `parsed`, by the trainer's own parser;
    `read`, by comparison with the trainer's documentation or sources.
    """
    from evaluators.adapter.catalog import READY, adapter_file, adapter_names, load_adapter
    from server.cli.tables import elements as elements_table
    from server.settings import Settings

    folder = Settings().adapters_dir
    rows = []
    for name in adapter_names(folder):
        own = adapter_file(name, folder=folder).parent != READY
        row = {"name": name, "from": "you" if own else "autotune"}
        try:
            adapter = load_adapter(name, folder=folder)
        except (InvalidInput, InvalidInputs) as problem:
            rows.append(row | {"problem": str(problem)})
            continue
        row |= {"evidence": adapter.evidence, "checked": adapter.checked}
        row["description"] = adapter.description
        rows.append(row)
    if json:
        return document(rows)
    columns: TableColumns[dict[str, str]] = (
        ("adapter", lambda row: row["name"]),
        ("from", lambda row: row["from"]),
        ("evidence", lambda row: row.get("evidence", elements_table.NO_VALUE)),
        ("checked", lambda row: row.get("checked", elements_table.NO_VALUE)),
        ("", lambda row: row.get("problem", "") or row.get("description", "")),
    )
    out().print(elements_table.table(rows, columns, failed=lambda row: "problem" in row))
    return note(f"your own go into {folder}")


def show(
    adapter: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A name of `adapter list`, or with --knobs also `bundled`."
        ),
    ],
    knobs: Annotated[
        bool,
        typer.Option("--knobs", help="Print the settings that --knobs of `submit` can try."),
    ] = False,
    json: Json = False,
) -> None:
    """Print an adapter's file, or its knobs."""
    from evaluators.adapter.catalog import adapter_file, load_adapter
    from server.settings import Settings

    folder = Settings().adapters_dir
    if knobs:
        return _show_knobs(adapter, folder, json=json)
    if adapter == BUNDLED:
        reason = "the bundled trainer has no adapter file"
        valid = "--knobs, or a name of `adapter list`"
        raise InvalidInput("adapter", adapter, reason, valid=valid)
    if json:
        return document(asdict(load_adapter(adapter, folder=folder)))
    return text(adapter_file(adapter, folder=folder).read_text(encoding="utf-8"))


def _show_knobs(name: str, folder: Path, *, json: bool) -> None:
    from evaluators.adapter.catalog import load_adapter
    from evaluators.adapter.knobs import knobs_of_bundled
    from server.cli.tables.knobs import knobs_document, knobs_table

    adapter = None if name == BUNDLED else load_adapter(name, folder=folder)
    knobs = adapter.knobs if adapter else knobs_of_bundled()
    if json:
        return document(knobs_document(knobs, adapter.places_by_dimension if adapter else None))
    return out().print(knobs_table(knobs))


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the adapter and of its file.")
    ],
    like: Annotated[
        str,
        typer.Option(
            "--like",
            metavar="NAME",
            help="Adapter to copy, a name of `adapter list`: template, template-hydra, "
            "huggingface-trainer, or any other.",
        ),
    ] = "template",
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Folder of the file; by default your adapters folder."),
    ] = None,
) -> None:
    """Write a commented copy of an adapter, to be edited.

    With `--folder .` it is next to your script: ranks then run there, and `--adapter ./NAME.toml`
    uses it.
    """
    from autotune.files import write_whole
    from evaluators.adapter.catalog import adapter_file
    from evaluators.adapter.reading import demand_adapter_name
    from server.settings import Settings

    own = Settings().adapters_dir
    place = (folder or own) / f"{name}.toml"
    demand_adapter_name(place)
    if place.exists():
        raise InvalidInput("adapter", name, f"{place} is there already", valid="another name")
    copied = adapter_file(like, folder=own).read_text(encoding="utf-8")
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, copied)
    text(copied)
    tried = name if folder is None else place
    note(f"change {place} to fit your script, then try it: autotune adapter check {tried}")


def check(
    adapter: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A name of `adapter list`, or a TOML file.")
    ],
    model: ModelOptions,
    machine: Annotated[
        str,
        typer.Option(
            "--machine", help="Machine of the nodes: a name of `machines`, `local`, or a TOML file."
        ),
    ] = "local",
    profile: Annotated[
        str | None,
        typer.Option("--profile", help="Run it as jobs of this cluster profile."),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option(
            "--folder", help="Folder for logs and files; with --profile, shared by the nodes."
        ),
    ] = Path("adapter-check"),
    time_limit: Annotated[
        float, typer.Option("--time-limit", min=1.0, help="Time limit of each start, in seconds.")
    ] = 600.0,
    batches: Annotated[
        bool,
        typer.Option("--batches", help="Vary only the batch, and no other dimension."),
    ] = False,
    json: Json = False,
) -> None:
    """Start a trainer a few times with an adapter, and check the results.

    With GAS 1, GAS 4, a four times larger micro-batch, and both GAS in one start if the adapter has
    `\\[one_start]`: shows the command, the match of each pattern, and whether times, memory and the
    model's size are plausible. Implausible times are measured once more. Then tries each other
    value of each other dimension that adapter and machine support. The default model is `tiny`.
    Exit code 1 if something is wrong or could not be checked.
    """
    from autotune.client.question import machine_choice
    from autotune.schemas.resolution import machine_of, transformer_of
    from evaluators.adapter.check.judgement import judge, matches
    from evaluators.adapter.check.starts import OF_BATCHES, check_starts
    from evaluators.trial import LOG

    read = _adapter(adapter)
    place = folder.absolute() / time.strftime("%Y-%m-%dT%H-%M-%S")
    shape = transformer_of("tiny" if model == ModelOptions() else model.choice())
    starts = check_starts(
        read,
        shape,
        machine_of(machine_choice(name_or_file(machine))),
        place,
        time_limit_s=time_limit,
        batches_alone=batches,
    )
    requests = starts.requests
    backend = _backend(read, profile)
    try:
        outcomes = _run(backend, requests)
        findings = judge(read, requests, outcomes)
        if any(finding.timing and not finding.good for finding in findings):
            note(f"times do not agree{_load(profile)}: measuring once more")
            again = {n: _once_more(r) for n, r in requests.items() if n in OF_BATCHES}
            second = outcomes | _run(backend, again)
            findings = judge(read, requests, second, earlier=outcomes)
    finally:
        backend.close()
    logs = [path for path in (Path(o.log_path or "") for o in outcomes.values()) if path.is_file()]
    found = matches(read, logs[0]) if logs else []
    findings += map(_untried, starts.untried)
    good = all(finding.good for finding in findings)
    if json:
        lists = {"findings": list(map(asdict, findings)), "matches": list(map(asdict, found))}
        document({"good": good} | lists)
    else:
        _print(requests, findings, found)
        note(f"logs are in {place}; {LOG} has what all ranks printed")
    raise typer.Exit(0 if good else 1)


def _untried(dimension: str) -> CheckFinding:
    from evaluators.adapter.check.judgement import CheckFinding

    text = "not tried: no other value is legal for this model on this machine"
    return CheckFinding(what=dimension, good=True, text=text, warns=True)


def _once_more(request: TrialRequest) -> TrialRequest:
    token = f"{request.token}-again"
    return replace(request, token=token, directory=request.directory.parent / token)


def _load(profile: str | None) -> str:
    processors = os.cpu_count() or 1
    load = os.getloadavg()[0]
    if profile is not None or load <= processors:
        return ""
    return f", and this machine is busy (a load of {load:.1f} on {processors} processors)"


def _adapter(choice: str) -> Adapter:
    from evaluators.adapter.catalog import load_adapter
    from evaluators.adapter.reading import read_adapter
    from server.settings import Settings

    if choice.endswith(".toml"):
        return read_adapter(Path(choice))
    return load_adapter(choice, folder=Settings().adapters_dir)


def _backend(adapter: Adapter, profile: str | None) -> Backend:
    from evaluators.cluster import ClusterProfile, load_profile
    from evaluators.local.backend import LocalProgramBackend
    from evaluators.slurm.backend import SlurmBackend
    from server.settings import Settings

    ground = ClusterProfile(name="local")
    if profile is not None:
        ground = load_profile(profile, folder=Settings().profiles_dir)
    ground = replace(ground, adapter=adapter)
    return SlurmBackend(ground) if profile is not None else LocalProgramBackend(ground)


def _run(backend: Backend, requests: Mapping[str, TrialRequest]) -> dict[str, TrialOutcome]:
    """Return the outcome of each training run. Runs are sequential, as they would otherwise share
    the machine, and stop at the first failure of a batch run, since the others would fail alike."""
    from autotune.schemas.choices import TrialState
    from evaluators.adapter.check.starts import OF_BATCHES
    from evaluators.trial import TrialOutcome

    outcomes: dict[str, TrialOutcome] = {}
    for name, request in requests.items():
        note(f"{name}: {request.strategy.short()}")
        backend.submit(request)
        while not isinstance(found := backend.poll([request]).get(request.token), TrialOutcome):
            time.sleep(LOOK_S)
        outcomes[name] = found
        if found.status is not TrialState.OK and name in OF_BATCHES:
            break
    return outcomes


def _print(
    requests: Mapping[str, TrialRequest],
    findings: list[CheckFinding],
    found: list[PatternMatch],
) -> None:
    import json
    import shlex

    from server.cli.tables import elements as elements_table

    plan = next(iter(requests.values())).directory.glob("**/start-1.json")
    for path in plan:
        start = json.loads(path.read_text(encoding="utf-8"))
        text(f"command: {shlex.join(start['words'])}")
        for name, content in start["files"].items():
            text(f"{name}:\n{content}")
    for match in found:
        if match.found is None:
            text(f"nothing matches {match.pattern}")
            text(f"  the longest beginning that does: {match.beginning or 'none'}")
        else:
            values = ", ".join(f"{name} = {value}" for name, value in match.found.items())
            text(f"{values}\n  in: {match.line}")
    columns: TableColumns[CheckFinding] = (
        ("", _mark),
        ("check", lambda finding: finding.what),
        ("", lambda finding: finding.text),
    )
    out().print(elements_table.table(findings, columns))


def _mark(finding: CheckFinding) -> Text:
    if not finding.shown:
        return Text("not shown", style="yellow")
    if not finding.good:
        return Text("no", style="red")
    return Text("!", style="yellow") if finding.warns else Text("ok", style="green")
