"""Profiles from tables (of TOML or JSON), and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args

from evaluators.cluster import values
from evaluators.cluster.options import (
    GPU_OPTIONS,
    SBATCH_RESERVED,
    SRUN_RESERVED,
    option_fault,
)
from evaluators.cluster.profile import (
    ClusterProfile,
    Container,
    ContainerRuntime,
    Environment,
    GpuRequest,
    Megatron,
    MegatronVariant,
    Pilot,
    Polling,
    ProgramName,
    Retries,
    Scheduling,
    Tasks,
)
from evaluators.cluster.values import Kind, Reading
from search_spaces.errors import InvalidInputs, closest

YEAR_H = 8760


@dataclass(frozen=True, kw_only=True)
class Section:
    """One table of a profile: what it becomes, and what each key of it may be."""

    kind: type[Any]
    keys: Mapping[str, Kind]
    required: tuple[str, ...] = ()


TOP: Mapping[str, Kind] = {
    "name": values.title,
    "description": values.lines,
    "machine": values.slurm_name,
    "program": values.choice(*get_args(ProgramName)),
    "python": values.interpreter,
}

SECTIONS: Mapping[str, Section] = {
    "slurm": Section(
        kind=Scheduling,
        keys={
            "account": values.slurm_name,
            "partition": values.slurm_name,
            "qos": values.slurm_name,
            "reservation": values.slurm_name,
            "constraint": values.slurm_name,
            "gpu_request": values.choice(*get_args(GpuRequest)),
            "exclusive": values.flag,
            "directives": values.listed(values.option(SBATCH_RESERVED)),
        },
    ),
    "tasks": Section(
        kind=Tasks,
        keys={
            "cpus_per_task": values.whole(1, 4096),
            "srun": values.listed(values.option(SRUN_RESERVED)),
        },
    ),
    "environment": Section(
        kind=Environment,
        keys={
            "modules": values.listed(values.module),
            "virtual_environment": values.path,
            "variables": values.variables,
            "prologue": values.lines,
        },
    ),
    "container": Section(
        kind=Container,
        keys={
            "runtime": values.choice(*get_args(ContainerRuntime)),
            "image": values.word,
            "options": values.listed(values.word),
        },
        required=("runtime", "image"),
    ),
    "megatron": Section(
        kind=Megatron,
        keys={
            "path": values.needed_path,
            "variant": values.choice(*get_args(MegatronVariant)),
            "data_path": values.path,
            "tokenizer_type": values.slurm_name,
            "tokenizer_model": values.path,
            "vocab_file": values.path,
            "merge_file": values.path,
            "arguments": values.listed(values.word),
        },
        required=("path",),
    ),
    "polling": Section(
        kind=Polling,
        keys={
            "interval_s": values.number(0.05, 3600, unit="s"),
            "command_limit_s": values.number(0.1, 3600, unit="s"),
        },
    ),
    "retries": Section(
        kind=Retries,
        keys={"attempts": values.whole(1, 100), "node_failures": values.whole(1, 1000)},
    ),
    "pilot": Section(
        kind=Pilot,
        keys={
            "nodes": values.whole(1, 1_000_000),
            "time_limit_h": values.number(0.01, YEAR_H, unit="h"),
            "idle_release_s": values.number(0, 3600 * YEAR_H, unit="s"),
        },
    ),
}


def profile_from_dict(
    data: Mapping[str, Any], *, source: str, environ: Mapping[str, str] | None = None
) -> ClusterProfile:
    """A profile from its tables.

    Args:
        source: where they come from, for refusals.
        environ: variables in which ~ and $NAME of paths, container options and Megatron's
            arguments are looked up; None for a profile that has been read before.

    Raises:
        InvalidInputs: every key that is unknown or missing, every value that will not do.
    """
    reading = Reading(source=source, environ=environ)
    if not isinstance(data, Mapping):
        reading.refuse("profile", data, "not a table of keys and sections")
        raise InvalidInputs(reading.problems)
    given = _keys(reading, data)
    _contradictions(reading, given)
    if reading.problems:
        raise InvalidInputs(reading.problems)
    parts = {
        name: SECTIONS[name].kind(**table) for name, table in given.items() if name in SECTIONS
    }
    return ClusterProfile(**given | parts)


def _keys(reading: Reading, data: Mapping[str, Any]) -> dict[str, Any]:
    known = [*TOP, *SECTIONS]
    given = _table(reading, "", data, TOP, known=known, required=("name",))
    for name in (name for name in data if name in SECTIONS):
        section = SECTIONS[name]
        if isinstance(data[name], Mapping):
            given[name] = _table(
                reading, f"{name}.", data[name], section.keys, required=section.required
            )
        else:
            reading.refuse(name, data[name], "not a section", valid=f"[{name}]")
    return given


def _table(
    reading: Reading,
    prefix: str,
    data: Mapping[str, Any],
    keys: Mapping[str, Kind],
    *,
    required: tuple[str, ...],
    known: Sequence[str] = (),
) -> dict[str, Any]:
    """What is given of these keys. `known` are all the names that may stand here."""
    names = known or list(keys)
    for key in (key for key in data if key not in names):
        reason = f"unknown{_hint(key, names)}"
        reading.refuse(f"{prefix}{key}", data[key], reason, valid=", ".join(names))
    for key in (key for key in required if key not in data):
        reading.refuse(f"{prefix}{key}", None, "missing")
    return {key: keys[key](reading, f"{prefix}{key}", data[key]) for key in keys if key in data}


def _hint(key: str, names: Sequence[str]) -> str:
    """The same name at its right place, or else the nearest one here."""
    elsewhere = [f"{name}.{key}" for name, section in SECTIONS.items() if key in section.keys]
    near = [*elsewhere, *([key] if key in TOP else []), *closest(key, names, count=1)]
    return f"; did you mean {near[0]}?" if near else ""


def _contradictions(reading: Reading, given: Mapping[str, Any]) -> None:
    if given.get("program") == "megatron-deepspeed" and "megatron" not in given:
        reason = "missing; the program megatron-deepspeed needs its checkout"
        reading.refuse("megatron", None, reason, valid='[megatron] with path = "…"')
    _container_image(reading, given.get("container", {}))
    slurm = given.get("slurm", {})
    if slurm.get("gpu_request", Scheduling.gpu_request) != "none":
        _gpu_options(reading, "slurm.directives", slurm.get("directives"))
        _gpu_options(reading, "tasks.srun", given.get("tasks", {}).get("srun"))


def _container_image(reading: Reading, container: Mapping[str, Any]) -> None:
    image = container.get("image")
    if image is None:
        return
    is_file = container.get("runtime") in ("apptainer", "singularity")
    if is_file and not re.match(r"/|[a-z]+://", image):
        valid = "an absolute path, or docker://…"
        reading.refuse("container.image", image, "a relative path", valid=valid)
    elif not image or image.startswith("-"):
        reading.refuse("container.image", image, "not the name of an image")


def _gpu_options(reading: Reading, name: str, options: tuple[str | None, ...] | None) -> None:
    for place, option in enumerate(options or ()):
        fault = option and option_fault(option, GPU_OPTIONS)
        if fault:
            reading.refuse(f"{name}[{place}]", option, fault)


def profile_as_dict(profile: ClusterProfile) -> dict[str, Any]:
    """Ready for JSON; what is None is left out. `profile_from_dict` reads it back."""
    return {name: _plain(value) for name, value in _given(profile)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _plain(item) for name, item in _given(value)}
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _given(part: Any) -> Iterator[tuple[str, Any]]:
    values_by_name = ((field.name, getattr(part, field.name)) for field in fields(part))
    return ((name, value) for name, value in values_by_name if value is not None)
