"""Profiles by name, a user's TOML files before the built-in ones; and from and to tables."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import adapter_file
from evaluators.adapter.reading import read_adapter
from evaluators.cluster.knobs import faults_of_knobs
from evaluators.cluster.profile import ChosenTrainer, ClusterProfile, Scheduling
from evaluators.cluster.values import GPU_OPTIONS, asks_for_others, option_fault
from search_spaces.catalog.files import read_toml, unknown_name
from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion

SECTIONS: Mapping[str, type[Any]] = {
    name: kind
    for name, hint in get_type_hints(ClusterProfile).items()
    for kind in (hint, *get_args(hint))
    if isinstance(kind, type) and is_dataclass(kind) and kind is not Adapter
}
"""Section of a profile's file -> its type."""

READY = Path(str(files(__package__))) / "profiles"
CHECK_LIMIT_S = 10.0

_ADAPTER = TypeAdapter(ClusterProfile)
# Pydantic's error type -> reason, and valid values.
_REASONS: Mapping[str, tuple[str, str]] = {
    "missing": ("missing", ""),
    "string_type": ("not text; write it in quotes", "text"),
    "tuple_type": ("not a list", 'a list of texts, ["…", "…"]'),
    "dict_type": ("not a table", 'NAME = "value"'),
    "mapping_type": ("not a table", 'NAME = "value"'),
    "dataclass_type": ("not a table of keys and sections", ""),
}


def profile_names(folder: Path | None = None) -> list[str]:
    folders = filter(None, (READY, folder))
    return sorted({path.stem for each in folders for path in each.glob("*.toml")})


def load_profile(choice: str | Path, *, folder: Path | None = None) -> ClusterProfile:
    """Return the profile of this name, or in this file if it is a `Path`.

    Text is only ever a name, so that a network request cannot name a file.

    Raises:
        InvalidInput, InvalidInputs: an unknown name, with the closest ones; or an invalid file.
    """
    if isinstance(choice, Path):
        return read_profile(choice)
    return read_profile(profile_file(choice, folder=folder))


def profile_file(name: str, *, folder: Path | None = None) -> Path:
    """Return the file of the profile of this name. Raises InvalidInput for an unknown one."""
    if name in profile_names(folder):
        files = (each / f"{name}.toml" for each in filter(None, (folder, READY)))
        return next(file for file in files if file.exists())
    raise unknown_name("profile", name, profile_names(folder))


def read_profile(path: Path) -> ClusterProfile:
    """Return the profile in a TOML file; ~ and $NAME are expanded from this process's environment.

    A profile without a name takes its file's. Its prologue is checked if bash is installed: a
    broken one would end every trial.

    Raises:
        InvalidInput, InvalidInputs: the file cannot be read, or is invalid.
    """
    table: dict[str, Any] = {"name": path.stem} | read_toml(path, field="profile")
    profile = profile_from_dict(table, source=str(path), environ=os.environ)
    prologue, bash = profile.environment.prologue, shutil.which("bash")
    if bash and prologue.strip():
        checked = subprocess.run(
            [bash, "-O", "extglob", "-n"],
            input=prologue,
            capture_output=True,
            text=True,
            timeout=CHECK_LIMIT_S,
            check=False,
        )
        if checked.returncode:
            complaint = checked.stderr.strip().splitlines()[0].removeprefix(f"{bash}: ")
            reason = f"not bash: {complaint} (in {path})"
            raise InvalidInput("environment.prologue", prologue, reason)
    return profile if profile.trainer is None else _with_adapter(profile, profile.trainer, path)


def _with_adapter(profile: ClusterProfile, trainer: ChosenTrainer, path: Path) -> ClusterProfile:
    try:
        if "/" in trainer.adapter or trainer.adapter.endswith(".toml"):
            file = path.parent / trainer.adapter
        else:
            file = adapter_file(trainer.adapter)
        adapter = read_adapter(file, folder=trainer.folder, places=trainer.set)
    except InvalidInputs as faults:
        raise InvalidInputs(
            InvalidInput(f"trainer.{each.field}", each.value, each.reason, valid=each.valid)
            for each in faults.problems
        ) from faults
    except InvalidInput as fault:
        reason = f"{fault.reason} (in {path})"
        raise InvalidInput("trainer.adapter", trainer.adapter, reason, valid=fault.valid) from fault
    return replace(profile, adapter=adapter)


def profile_for_machine(name: str) -> ClusterProfile | None:
    profiles = map(load_profile, profile_names())
    return next((profile for profile in profiles if name and profile.machine == name), None)


def profile_from_dict(
    data: Mapping[str, Any], *, source: str, environ: Mapping[str, str] | None = None
) -> ClusterProfile:
    """Return the profile in these tables.

    Args:
        source: where they come from, for errors.
        environ: variables for ~ and $NAME in paths, container options and the trainer's places;
            None for a profile that was already expanded.

    Raises:
        InvalidInputs: every unknown or missing key, every invalid value.
    """
    try:
        profile = _ADAPTER.validate_python(data, context={"environ": environ})
        problems = []
    except ValidationError as error:
        problems = [_problem(details) for details in error.errors(include_url=False)]
    if isinstance(data, Mapping):
        problems += _contradictions(data)
        problems[:0] = _adapters_of_files(data) if environ is not None else ()
    if not problems and (problems := faults_of_knobs(profile, source=source)):
        raise InvalidInputs(problems)
    if problems:
        first = {problem.field: problem for problem in reversed(problems)}
        raise InvalidInputs(
            InvalidInput(p.field, p.value, f"{p.reason} (in {source})", valid=p.valid)
            for p in reversed(first.values())
        )
    return profile


def _problem(error: ErrorDetails) -> InvalidInput:
    kind, context = error["type"], error.get("ctx", {})
    keys = [key for key in error["loc"] if key != "[key]"]
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)[1:]
    value = None if kind == "missing" else error["input"]
    if kind == "refused":
        reason, valid = context["reason"], context["valid"]
    elif kind == "literal_error":
        names = re.findall(r"'([^']*)'", context["expected"])
        reason = f"not one of them{suggestion(closest(str(value), names, count=1))}"
        valid = ", ".join(names)
    elif kind == "unexpected_keyword_argument":
        reason, valid = _unknown(keys)
    elif kind == "dataclass_type" and field:
        reason, valid = "not a section", f"[{field}]"
    else:
        reason, valid = _REASONS.get(kind, (error["msg"], ""))
    return InvalidInput(field or "profile", value, reason, valid=valid)


def _unknown(keys: Sequence[str | int]) -> tuple[str, str]:
    """Return why a key is unknown, and which keys are valid there.

    The suggestion is the section that has this key, or else the nearest name here.
    """
    *section, key = map(str, keys)
    table = SECTIONS[section[0]] if section else ClusterProfile
    names = [name for name in _names(table) if name != "adapter"]
    elsewhere = [f"{name}.{key}" for name, kind in SECTIONS.items() if key in _names(kind)]
    top = [key] if key in _names(ClusterProfile) else []
    near = [*elsewhere, *top, *closest(key, names, count=1)]
    return f"unknown{suggestion(near[:1])}", ", ".join(names)


def _names(table: type[Any]) -> list[str]:
    return [field.name for field in fields(table)]


def _contradictions(data: Mapping[str, Any]) -> Iterator[InvalidInput]:
    slurm, tasks = (
        section if isinstance(section, Mapping) else {}
        for section in (data.get("slurm"), data.get("tasks"))
    )
    request = slurm.get("gpu_request", Scheduling.gpu_request)
    if request == "none":
        return
    for name, options in (
        ("slurm.directives", slurm.get("directives")),
        ("tasks.srun", tasks.get("srun")),
    ):
        for place, option in enumerate(options if isinstance(options, list | tuple) else ()):
            if not isinstance(option, str) or (request != "gres" and asks_for_others(option)):
                continue
            if fault := option_fault(option, GPU_OPTIONS):
                yield InvalidInput(f"{name}[{place}]", option, fault)


def _adapters_of_files(data: Mapping[str, Any]) -> Iterator[InvalidInput]:
    if "adapter" in data:
        reason = "unknown; did you mean trainer.adapter?"
        yield InvalidInput("adapter", data["adapter"], reason, valid="[trainer]")


def profile_as_dict(profile: ClusterProfile) -> dict[str, Any]:
    """Return the profile as JSON-compatible tables, without None values: the inverse of
    `profile_from_dict`."""
    plain: dict[str, Any] = _ADAPTER.dump_python(profile, mode="json", exclude_none=True)
    return plain
