"""The options in a program's help text, and what they seem to mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

MOST_OPTIONS = 5000
DEEPEST_BRACKETS = 4

_VALUE = r"\{[^}]{1,300}\}|\[?[A-Z<][\w<>|.:]*\]?|\[?(?:int|str|float|bool|string)\b\]?"
_OPTION = re.compile(
    rf"[\s│|]*(?:-{{1,2}}[\w.-]+(?:[ =](?:{_VALUE}))?,\s+)*?(?P<name>--[A-Za-z][\w.-]*)"
    rf"(?:[ =](?P<value>{_VALUE}))?(?=\s{{2,}}|\s*[,:│|]|\s*$)"
)
_USAGE = re.compile(r"usage:\s*(?P<words>\S[^\n]*)", re.IGNORECASE)
_PYTHON = re.compile(r"(?:\S*/)?python[\d.]*")
_LONG = re.compile(r"--[A-Za-z][\w.-]*")
_WORD = re.compile(r"(?!(?:options|args|command)$)<?[A-Za-z][\w-]*>?", re.IGNORECASE)
_SHELLS = frozenset({"bash", "sh", "zsh"})
_INTERPRETERS = {".py": "{python}", ".sh": "bash"}
_PLAIN = re.compile(r"[\w.][\w./-]*|/[\w./-]+")
_ARGUMENT = re.compile(r"[\[<{(-]|[A-Z][A-Z_]+\b|\.\.\.")


@dataclass(frozen=True, kw_only=True)
class TrainerOption:
    """One option: its name with its dashes, and what its value may be.

    Attributes:
        values: the words to choose from, where they are told.
        flag: it takes no value, or may do without.
    """

    name: str
    values: tuple[str, ...] = ()
    flag: bool = False

    @property
    def words(self) -> str:
        """Its name as one of the field's is written: the part after the last dot."""
        return self.section.rpartition(".")[2]

    @property
    def section(self) -> str:
        return self.name.lstrip("-").lower().replace("-", "_")


def options_of(text: str) -> list[TrainerOption]:
    """Return the options that a help text describes, each once, in its order."""
    options: dict[str, TrainerOption] = {}
    for line in text.splitlines():
        match = _OPTION.match(line)
        if match and len(options) < MOST_OPTIONS:
            option = _option(match["name"], match["value"] or "")
            options.setdefault(option.name, option)
    return list(options.values())


def command_of(text: str) -> tuple[str, ...]:
    """Return the words that start the program that a help text is of, without its arguments; none
    where it does not say.

    A program is known by a suffix or a folder in its name, or by what comes after it: an option, or
    something to be put in. Words before that are its commands.
    """
    for usage in _USAGE.finditer(text):
        if command := _command(usage["words"].split()):
            return command
    return ()


def _command(words: Sequence[str]) -> tuple[str, ...]:
    """Return the command at the beginning of a usage's words."""
    first, rest = words[0], words[1:]
    if _PYTHON.fullmatch(first):
        of_module = rest[:1] == ["-m"]
        return _started(("{python}", "-m") if of_module else ("{python}",), rest[of_module:])
    if first in _SHELLS:
        return _started((first,), rest)
    interpreter = next((each for end, each in _INTERPRETERS.items() if first.endswith(end)), "")
    if interpreter:
        return _started((interpreter,), words)
    return _started((), words) if "/" in first else _commands(words)


def _started(by: tuple[str, ...], words: Sequence[str]) -> tuple[str, ...]:
    return (*by, words[0]) if words and _PLAIN.fullmatch(words[0]) else ()


def _commands(words: Sequence[str]) -> tuple[str, ...]:
    """Return a program's bare name and its commands, where an argument comes after them."""
    plain = list(takewhile(lambda word: not _ARGUMENT.match(word), words))
    known = len(plain) < len(words) and all(map(_PLAIN.fullmatch, plain))
    return tuple(plain) if known else ()


def needed_of(text: str) -> list[str]:
    """Return the options and words that a program cannot do without: its usage has them in no
    brackets."""
    usage = re.search(r"usage:(.*?)(?:\n\s*\n|\n(?=\S)|\Z)", text, re.IGNORECASE | re.DOTALL)
    plain = usage[1] if usage else ""
    for _ in range(DEEPEST_BRACKETS):
        plain = re.sub(r"\[[^\[\]]*\]", "", plain)
    words, command = plain.split(), command_of(text)
    begins = words.index(command[-1]) + 1 if command and command[-1] in words else len(words)
    options = filter(_LONG.fullmatch, words)
    return list(dict.fromkeys([*options, *_arguments(words[begins:])]))


def _arguments(words: Sequence[str]) -> Iterator[str]:
    """Yield the words that are neither options nor an option's value."""
    for before, word in pairwise(["", *words]):
        if _WORD.fullmatch(word) and not before.startswith("-"):
            yield word


def _option(name: str, value: str) -> TrainerOption:
    values = tuple(value.strip("{}").replace("|", ",").split(",")) if "{" in value else ()
    flag = not value or value.startswith("[")
    return TrainerOption(name=name, values=tuple(v.strip() for v in values), flag=flag)


NAMES: Mapping[str, Sequence[str]] = {
    "tensor_parallel": (
        "tensor_model_parallel_size",
        "tensor_parallel_degree",
        "tensor_parallel_size",
        "tensor_parallel",
        "tp_size",
        "tp_degree",
        "tp",
    ),
    "pipeline_parallel": (
        "pipeline_model_parallel_size",
        "pipeline_parallel_degree",
        "pipeline_parallel_size",
        "pipeline_parallel",
        "pp_size",
        "pp_degree",
        "pp",
    ),
    "micro_batch_size": (
        "micro_batch_size",
        "train_micro_batch_size_per_gpu",
        "per_device_train_batch_size",
        "per_device_batch_size",
        "device_batch_size",
        "local_batch_size",
        "microbatch_size",
        "micro_bsz",
        "mbs",
        "batch_size",
        "bs",
    ),
    "gradient_accumulation_steps": (
        "gradient_accumulation_steps",
        "grad_accumulation_steps",
        "grad_accum_steps",
        "gradient_accumulation",
        "accumulate_grad_batches",
        "batch_accumulation_per_replica",
        "accumulation_steps",
        "grad_accum",
        "grad_acc",
        "accumulate",
        "accum",
        "gas",
        "ga",
    ),
    "global_batch_size": (
        "global_batch_size",
        "total_batch_size",
        "effective_batch_size",
        "train_batch_size",
        "gbs",
    ),
    "iterations": (
        "train_iters",
        "max_steps",
        "max_train_steps",
        "train_steps",
        "num_train_steps",
        "training_steps",
        "max_iters",
        "num_iterations",
        "num_iters",
        "iterations",
        "iters",
        "updates",
        "num_steps",
        "n_steps",
        "total_steps",
        "steps",
    ),
    "seed": ("seed",),
    "zero_stage": ("zero_stage", "zero"),
    "activation_checkpointing": (
        "recompute_granularity",
        "activation_checkpointing",
        "activation_checkpoint",
        "gradient_checkpointing",
        "checkpoint_activations",
        "recompute_activations",
        "recompute",
    ),
    "sequence_parallel": ("sequence_parallel",),
    "flash_attention": ("use_flash_attn", "flash_attention", "flash_attn", "attn_implementation"),
    "virtual_stages": (
        "num_layers_per_virtual_pipeline_stage",
        "virtual_pipeline_model_parallel_size",
    ),
    "bf16": ("bf16",),
    "fp16": ("fp16",),
    "precision": ("precision", "mixed_precision", "mixed_precision_param", "dtype"),
    "num_layers": ("num_layers", "n_layers", "n_layer"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "ffn_hidden_size": ("ffn_hidden_size",),
    "num_attention_heads": ("num_attention_heads", "n_heads", "n_head"),
    "seq_length": ("seq_length", "seq_len", "sequence_length", "max_seq_length", "block_size"),
}
"""What an adapter may tell a trainer -> names of options that mean it, the surest first."""

# A section of a file by this name has one key that decides.
_SECTIONS = {"activation_checkpoint.mode": "activation_checkpointing"}


def meanings_of(options: Sequence[TrainerOption]) -> dict[str, TrainerOption]:
    """Return, of what an adapter may tell, the option by which each is told."""
    by_words = {option.words: option for option in reversed(options)}
    found = {
        meaning: by_words[next(name for name in names if name in by_words)]
        for meaning, names in NAMES.items()
        if any(name in by_words for name in names)
    }
    for option in options:
        for section, meaning in _SECTIONS.items():
            if option.section.endswith(section):
                found[meaning] = option
    if "gradient_accumulation_steps" in found:
        found.pop("global_batch_size", None)
    if "bf16" in found:
        found.pop("precision", None)
    return found


def value_for(meaning: str, option: TrainerOption) -> str:
    """Return the template of an option's value."""
    if option.words in _BY_OPTION:
        return _BY_OPTION[option.words]
    condition = _condition(meaning, option)
    if not condition:
        return f"{{{meaning}}}"
    if len(option.values) == 2:
        yes, no = _yes_and_no(option.values)
        return f"{{'{yes}' if {condition} else '{no}'}}"
    return f"{{{condition}}}" if option.flag else f"{{'true' if {condition} else 'false'}}"


_BY_OPTION = {
    "recompute_granularity": "{activation_checkpointing if activation_checkpointing != 'none' "
    "else None}",
    "num_layers_per_virtual_pipeline_stage": "{num_layers // pipeline_parallel // virtual_stages "
    "if virtual_stages > 1 else None}",
    "attn_implementation": "{'flash_attention_2' if flash_attention else 'eager'}",
}
"""Templates of options whose values have words of their own."""


def _condition(meaning: str, option: TrainerOption) -> str:
    """Return when an option is on that is on or off; empty for one with values."""
    if meaning in ("bf16", "fp16"):
        return f"precision == '{meaning}'"
    if meaning in ("sequence_parallel", "flash_attention"):
        return meaning
    if meaning == "activation_checkpointing" and _only_on_or_off(option):
        return "activation_checkpointing == 'full'"
    return ""


def _only_on_or_off(option: TrainerOption) -> bool:
    return not {"full", "selective"} & set(option.values) and (
        option.flag or len(option.values) == 2
    )


def _yes_and_no(values: Sequence[str]) -> tuple[str, str]:
    no = next((v for v in values if v.lower() in ("no", "false", "off", "0", "none")), values[1])
    return next(value for value in values if value != no), no
