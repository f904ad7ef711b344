"""The types of a profile's values with their Pydantic validators, and the options it may add."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import Template
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from evaluators.adapter.knobs import catalog_names
from evaluators.adapter.names import IDENTIFIER, SET_BY_AUTOTUNE
from search_spaces.fields import refusal

_PROFILE_OWN = {
    "account": "slurm.account",
    "partition": "slurm.partition",
    "qos": "slurm.qos",
    "reservation": "slurm.reservation",
    "constraint": "slurm.constraint",
    "exclusive": "slurm.exclusive",
    "cpus-per-task": "tasks.cpus_per_task",
}
_SHAPE = ("nodes", "ntasks", "ntasks-per-node", "tasks-per-node", "ntasks-per-gpu")
_NAMED = ("job-name", "comment", "output", "error", "input", "open-mode", "chdir", "exclude")
_TIMED = ("time", "time-min")
_NOT_RUN = ("help", "usage", "version", "test-only")

GPU_OPTIONS: Mapping[str, str] = dict.fromkeys(
    ("gpus", "gpus-per-node", "gres"), "slurm.gpu_request sets this; with none you set it yourself"
)
"""Not to be added where `slurm.gpu_request` asks for the GPUs."""


def asks_for_others(option: str) -> bool:
    """Return whether an option asks for generic resources other than GPUs (`--gres=nvme:1`)."""
    name, _, resources = option.partition("=")
    return name == "--gres" and not re.search(r"(^|,|/)gpu(:|,|$)", resources)


SBATCH_RESERVED: Mapping[str, str] = {
    **{option: f"write it as {key}" for option, key in _PROFILE_OWN.items()},
    **dict.fromkeys((*_SHAPE, *_NAMED, *_TIMED), "autotune sets this for each trial"),
    **dict.fromkeys(
        ("requeue", "no-requeue", "array", "dependency", "parsable", "wrap", "wait", "quiet"),
        "each trial is one job that is submitted once and found again",
    ),
    **dict.fromkeys(("clusters",), "jobs are looked for in one cluster only"),
    **dict.fromkeys(_NOT_RUN, "nothing would be submitted"),
}
"""Long option -> why a profile must not set it."""

SRUN_RESERVED: Mapping[str, str] = {
    **{option: f"write it as {key}" for option, key in _PROFILE_OWN.items()},
    **dict.fromkeys(
        (*_SHAPE, *_NAMED, *_TIMED, "nodelist", "nodefile", "relative", "exact", "overlap"),
        "autotune sets this for each trial",
    ),
    **dict.fromkeys(("export", "kill-on-bad-exit", "wait"), "autotune sets this for every task"),
    **dict.fromkeys(("label", "pty", "multi-prog"), "the log could not be read"),
    **dict.fromkeys(("jobid", "het-group", "immediate"), "tasks belong to the trial's own job"),
    **dict.fromkeys(_NOT_RUN, "nothing would be run"),
}


def option_fault(word: str, reserved: Mapping[str, str]) -> str | None:
    """Return why `word` cannot be added to the command, or None.

    Slurm accepts abbreviated option names, so an abbreviation of a reserved one is refused, too. So
    are one-letter options, because their meaning cannot be checked.
    """
    if re.match(r"-[^-]", word):
        return "write the option's long form, in one word (--mail-type=NONE)"
    parts = re.fullmatch(r"--([a-z][a-z0-9_-]*)(=.*)?", word, re.DOTALL)
    if parts is None:
        return "not an option; one with a value is one word (--mail-type=NONE)"
    name = parts[1]
    for option, reason in reserved.items():
        if option.startswith(name):
            return f"--{option}: {reason}"
    return None


CONTROL = re.compile(r"[\x00-\x1f\x7f]")
COMMAND = re.compile(r"[A-Za-z0-9_.+][A-Za-z0-9_.+-]*")
LONGEST_LINE = 3000  # characters: more than any name or path has, and less than sbatch reads
PLACEHOLDER = re.compile(r"\$[{A-Za-z_]")

READ_ONLY_IN_BASH = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})


def environ_of(info: ValidationInfo) -> Mapping[str, str] | None:
    environ: Mapping[str, str] | None = (info.context or {}).get("environ")
    return environ


def _storable(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        value = "\0"
    if "\0" in value:
        raise refusal("it holds a character that no file can hold")
    return value


def _one_line(value: str) -> str:
    if CONTROL.search(value):
        raise refusal("it holds a line break or another control character")
    if len(value) > LONGEST_LINE:
        raise refusal("too long", valid=f"{LONGEST_LINE} characters")
    return value


def _one_word(value: str) -> str:
    if re.search(r"\s", value) or value.startswith("-"):
        raise refusal("not one word", valid="a name without blanks")
    return value


def _not_empty(valid: str) -> AfterValidator:
    def check(value: str) -> str:
        if not value:
            raise refusal("empty", valid=valid)
        return value

    return AfterValidator(check)


def _expanded(value: str, info: ValidationInfo) -> str:
    environ = environ_of(info)
    if environ is None:
        return value
    home = re.sub(r"^~(?=/|$)", "${HOME}", value)
    try:
        return Template(home).substitute(environ)
    except KeyError as error:
        raise refusal(f"the variable {error.args[0]} is not set here") from None
    except ValueError:
        raise refusal("a $ without a name", valid="$NAME, ${NAME}, or $$ for $") from None


def _absolute(value: str, info: ValidationInfo) -> str:
    if value and not value.startswith("/"):
        usable = "; ~ and $NAME may be used" if environ_of(info) else ""
        raise refusal("a relative path", valid=f"an absolute path{usable}")
    return value


def _command_or_path(value: str, info: ValidationInfo) -> str:
    return value if COMMAND.fullmatch(value) else _absolute(_expanded(value, info), info)


def _option(reserved: Mapping[str, str]) -> AfterValidator:
    def check(value: str) -> str:
        fault = option_fault(value, reserved)
        if fault is not None:
            raise refusal(fault)
        return value

    return AfterValidator(check)


def _image_of_runtime(value: str, info: ValidationInfo) -> str:
    is_file = info.data.get("runtime") in ("apptainer", "singularity")
    if is_file and not re.match(r"/|[a-z]+://", value):
        raise refusal("a relative path", valid="an absolute path, or docker://…")
    if not value or value.startswith("-"):
        raise refusal("not the name of an image")
    return value


def _variable_name(name: str) -> str:
    if not IDENTIFIER.fullmatch(name):
        valid = "letters, digits and _, not beginning with a digit"
        raise refusal("not the name of a variable", valid=valid)
    if name in SET_BY_AUTOTUNE | READ_ONLY_IN_BASH:
        setter = "autotune" if name in SET_BY_AUTOTUNE else "bash"
        raise refusal(f"{setter} itself sets this variable")
    return name


def _exported_as_it_stands(value: str, info: ValidationInfo) -> str:
    if environ_of(info) is not None and PLACEHOLDER.search(value):
        reason = "values are exported literally, so $NAME would not be expanded"
        raise refusal(reason, valid="export it in environment.prologue")
    return value


def _of_a_catalog(name: str) -> str:
    if name not in catalog_names():
        raise refusal("no such catalogue of knobs", valid=", ".join(catalog_names()))
    return name


Text = Annotated[str, AfterValidator(_storable)]
"""Text of any number of lines."""
Line = Annotated[Text, AfterValidator(_one_line)]
Title = Annotated[Line, _not_empty("text")]
Name = Annotated[Line, AfterValidator(_one_word)]
"""A name of Slurm's: one word; it may be empty."""
Module = Annotated[Name, _not_empty("the name of a module")]
Word = Annotated[Line, AfterValidator(_expanded)]
"""A word of a command line: it may hold blanks; ~ and $NAME are replaced."""
NeededWord = Annotated[Word, _not_empty("text")]
PlaceValue = bool | int | float | Word | tuple[bool | int | float | Word, ...]
"""A value that an adapter sets."""
Image = Annotated[Word, AfterValidator(_image_of_runtime)]
"""A container's image; a relative path where its runtime reads a file is refused."""
OptionalPath = Annotated[Word, AfterValidator(_absolute)]
"""An absolute path once ~ and $NAME are replaced, or nothing."""
NeededPath = Annotated[OptionalPath, _not_empty("an absolute path")]
Interpreter = Annotated[Line, AfterValidator(_command_or_path)]
"""A command that is found on the PATH, an absolute path, or nothing."""
KnobCatalog = Annotated[Name, AfterValidator(_of_a_catalog)]
SbatchOption = Annotated[Line, _option(SBATCH_RESERVED)]
SrunOption = Annotated[Line, _option(SRUN_RESERVED)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariableValue = Annotated[Text, AfterValidator(_exported_as_it_stands)]
