"""A commented adapter, as far as it can be guessed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluators.adapter.drafting.help_text import (
    TrainerOption,
    command_of,
    meanings_of,
    needed_of,
    options_of,
    value_for,
)
from evaluators.adapter.drafting.log_sample import (
    BAR_PATTERN,
    DraftedReader,
    parameters_of,
    readers_of,
)
from evaluators.adapter.names import OF_MODEL

_EXAMPLES: Mapping[str, str] = {
    "tensor_parallel": '# "--tensor-parallel" = "{tensor_parallel}"',
    "pipeline_parallel": '# "--pipeline-parallel" = "{pipeline_parallel}"',
    "micro_batch_size": '# "--micro-batch-size" = "{micro_batch_size}"',
    "gradient_accumulation_steps": '# "--accumulate" = "{gradient_accumulation_steps}"',
    "zero_stage": '# "--fsdp" = "{\'full_shard\' if zero_stage == 3 else None}"',
    "activation_checkpointing": '# "--recompute" = "{activation_checkpointing == \'full\'}"',
    "precision": '# "conf.json:precision" = "{precision}"',
}
"""What a place of a dimension may look like of which no option was found."""
_COMMAND = ("{python}", "train.py")
_NO_LOG = DraftedReader(pattern=r"step (?P<step>\d+)", line="", arrival=True)


def draft_of(
    *, help_text: str = "", log: str = "", folder: str = "", command: Sequence[str] = ()
) -> str:
    """Return the text of an adapter for a trainer that has this help text and prints such a log.

    Any may be empty: what would follow from it is then an example, to be replaced.

    Args:
        folder: in which ranks run.
        command: the words that start a rank; by default those that the help text tells.
    """
    meanings = meanings_of(options_of(help_text))
    readers, size = readers_of(log), parameters_of(log)
    return "\n".join(
        [
            "# A draft: what could be guessed. Read it, mend it, then: autotune adapter check NAME",
            'description = "what it trains"',
            "",
            "# The words that start one rank. RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and",
            "# MASTER_PORT are set: no torchrun, no srun.",
            f"command = {json.dumps(list(command or command_of(help_text) or _COMMAND))}",
            f"folder = {json.dumps(folder)} # in which ranks run"
            if folder
            else '# folder = "~/my-trainer"            # in which ranks run; needed where the '
            "script lies elsewhere",
            "# Your own file, under what is set below:",
            f'# base = {{ "conf.yaml" = {json.dumps(str(Path(folder, "my.yaml")))} }}',
            "",
            *_places(meanings, needed_of(help_text)),
            "",
            *_hints(meanings),
            *_reading(readers),
            *(_sizing(size) if size else []),
            "",
        ]
    )


def _places(meanings: Mapping[str, TrainerOption], needed: Sequence[str]) -> list[str]:
    head = "[set] # where = what: --argument, $VARIABLE, file.yaml:dotted.key, or a word"
    lines = [head]
    model = [name for name in meanings if name in OF_MODEL]
    for meaning in (name for name in meanings if name not in model):
        option = meanings[meaning]
        lines.append(f'"{option.name}" = {json.dumps(value_for(meaning, option))}')
    if "iterations" not in meanings:
        lines += ['# How many iterations a start trains:\n# "--max-steps" = "{iterations}"']
    if model:
        lines.append("# The model of a campaign; leave them out where your script knows its own.")
        lines += [f'"{meanings[name].name}" = "{{{name}}}"' for name in model]
    told = {option.name for option in meanings.values()}
    if words := [name for name in needed if not name.startswith("-")]:
        lines.append(f"# It needs these words, too: write them into `command`: {' '.join(words)}")
    if open_ := [name for name in needed if name.startswith("-") and name not in told]:
        lines.append("# The script cannot do without these: say what they are.")
        lines += [f'# "{name}" = "…"' for name in open_]
    missing = [name for name in _EXAMPLES if not _told(name, meanings)]
    if missing:
        lines.append("# No option was found for these; what stays out is not searched.")
        lines += [_EXAMPLES[name] for name in missing]
    return lines


def _told(dimension: str, meanings: Mapping[str, TrainerOption]) -> bool:
    others = {"precision": ("bf16", "fp16"), "gradient_accumulation_steps": ("global_batch_size",)}
    return any(name in meanings for name in (dimension, *others.get(dimension, ())))


def _hints(meanings: Mapping[str, TrainerOption]) -> list[str]:
    """Return what is easily forgotten, as comments that can be brought to life."""
    fixed = ["# [fixed] # what is not told above has this value", '# precision = "bf16"', ""]
    return [
        *([] if _told("precision", meanings) else fixed),
        "# [[refuse]]",
        '# when = "tensor_parallel > 1 and zero_stage == 3"',
        '# because = "the script has no such combination"',
        "",
    ]


def _reading(readers: Sequence[DraftedReader]) -> list[str]:
    timed = any(reader.arrival or _names(reader, "iteration_time_s") for reader in readers)
    lines: list[str] = []
    for reader in [*readers, *([] if timed else [_NO_LOG])]:
        if lines:
            lines.append("")
        lines.append("[[read]]" + ("" if reader.line else " # replace it by a pattern of your log"))
        if reader.line:
            lines.append(f"# {_shown(reader.line)}")
        lines.append(f"log = {_literal(reader.pattern)}")
        if reader.arrival:
            what = "a bar's counts come" if reader.pattern == BAR_PATTERN else "no time was found"
            lines.append(f"arrival = true # {what}: the time between two such lines")
        lines += [f'{name} = "{told}"' for name, told in reader.figures if name != told]
        lines += ["at_end = true # no iteration comes after it"] if reader.at_end else []
    if not any(_names(reader, "peak_memory_gib") for reader in readers):
        lines += ["", "# [[read]]", "# log = 'peak memory (?P<gb>[\\d.]+) GB'"]
        lines += ['# peak_memory_gib = "gb"', "# at_end = true # where it comes at the end alone"]
    return lines


def _sizing(size: DraftedReader) -> list[str]:
    return [
        "",
        "# Are these the parameters of the whole model, on any number of ranks? They are compared",
        "# with those of a campaign's model.",
        "# [[read]]",
        f"# {_shown(size.line)}",
        f"# log = {_literal(size.pattern)}",
    ]


def _names(reader: DraftedReader, figure: str) -> bool:
    return any(name == figure for name, _ in reader.figures)


def _shown(line: str) -> str:
    """Return a line as a comment may have it."""
    return "".join(letter for letter in line.strip()[:160] if letter.isprintable())


def _literal(pattern: str) -> str:
    """Return a pattern as TOML's text: as it is, unless there is a quote in it."""
    if "'" not in pattern:
        return f"'{pattern}'"
    return f"'''{pattern}'''" if "'''" not in pattern else json.dumps(pattern)
