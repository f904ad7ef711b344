"""A checkout of Megatron-DeepSpeed: defects in its source, and checks before the first trial.

`DEFECTS` is the only list of what commits cannot train, recognised in the source. Spaces leave out
what it refuses, requests are refused by it, and launch scripts look for its signs before they
start. A checkout that cannot be read from here is taken for the recommended one.

The first three came to the main branch with commit 676a482c of December 2024 and were still there
in its last commit, 4efb479d of July 2025. The parent, 6acc370a, trains gated models, grouped
queries and larger micro-batches.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from autotune.cost_model.parameters import is_cpu
from evaluators.cluster.profile import Megatron
from evaluators.frameworks.megatron_deepspeed.arguments import VARIANTS, Variant
from search_spaces.errors import InvalidInput, closest, suggestion
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

WORKING_COMMIT = "6acc370a"
_OTHER_COMMIT = f"a checkout of commit {WORKING_COMMIT}"


@dataclass(frozen=True, kw_only=True)
class Defect:
    """One fault in the source; as a rule of a space, it refuses the strategies that it affects.

    Attributes:
        file: the file of the checkout that has the fault.
        sign: a POSIX extended regular expression that matches a line of a file with the fault.
        field: the field of the model or of the strategy that is refused.
        dimensions: those that decide whether a strategy is affected; none if the model decides.
        hits: whether a model with a strategy is affected on a machine.
        reason: the effect.
        valid: what works instead.
        recommended: whether the recommended commit has the fault, too.
    """

    file: str
    sign: str
    field: str
    dimensions: tuple[str, ...] = ()
    hits: Callable[[Transformer, Strategy, Machine], bool]
    reason: str
    valid: str
    recommended: bool = False

    @property
    def of_model(self) -> bool:
        return not self.dimensions

    @property
    def because(self) -> str:
        return f"this Megatron-DeepSpeed cannot train it: {self.reason} ({self.file})"

    def refuses(self, strategy: Strategy, transformer: Transformer, machine: Machine) -> bool:
        return self.hits(transformer, strategy, machine)


_ATTENTION = "megatron/model/transformer.py"
_THIRDS = "each_hidden_size *=.*// *3"
"""Queries, keys and values are each assumed to be a third of their projection's output."""

_ATTENTION_KERNEL = ("flash_attention", "precision")


def _without_flash_attention(strategy: Strategy) -> bool:
    return not strategy.flash_attention or strategy.precision == "fp32"


def _has_apex(machine: Machine) -> bool:
    return not is_cpu(machine) and "max 1550" not in machine.gpu.casefold()


DEFECTS = (
    Defect(
        file="megatron/model/rotary_pos_embedding.py",
        sign=r"rope *= *\[base\.cos\(\)",
        field="gated_mlp",
        hits=lambda transformer, *_: transformer.gated_mlp,
        reason=(
            "rotary positions come as a list, on which the pipelines of ZeRO 0 and 1 crash "
            "('list' object has no attribute 'to'), and from which ZeRO 2 and 3 take wrong angles"
        ),
        valid=f"{_OTHER_COMMIT}, or a model without a gated MLP",
    ),
    Defect(
        file=_ATTENTION,
        sign=_THIRDS,
        field="num_query_groups",
        hits=lambda transformer, *_: (
            transformer.num_query_groups != transformer.num_attention_heads
        ),
        reason="keys and values are taken to be as wide as queries (shape … is invalid)",
        valid=f"{_OTHER_COMMIT}, or a model with a query group for each head",
    ),
    Defect(
        file=_ATTENTION,
        sign=_THIRDS,
        field="micro_batch_size",
        dimensions=("micro_batch_size", *_ATTENTION_KERNEL),
        hits=lambda _, strategy, __: (
            strategy.micro_batch_size > 1 and _without_flash_attention(strategy)
        ),
        reason=(
            "without FlashAttention, which 16-bit precisions alone have, attention takes one "
            "sample at a time (view size is not compatible)"
        ),
        valid=f"{_OTHER_COMMIT}, or 1, or flash_attention with bf16 or fp16",
    ),
    # In 6acc370a, and in its successors, which train no grouped queries at all.
    Defect(
        file=_ATTENTION,
        sign=r"hidden_states\.expand\(slen, batch, n_rep, head_dim\)",
        field="micro_batch_size",
        dimensions=("micro_batch_size", "tensor_parallel", *_ATTENTION_KERNEL),
        hits=lambda transformer, strategy, _: (
            strategy.micro_batch_size > 1
            and transformer.num_query_groups == strategy.tensor_parallel
            and transformer.num_query_groups != transformer.num_attention_heads
            and _without_flash_attention(strategy)
        ),
        reason=(
            "without FlashAttention, which 16-bit precisions alone have, a tensor-parallel rank "
            "with one query group takes one sample at a time (view size is not compatible)"
        ),
        valid="1, or flash_attention with bf16 or fp16, or fewer tensor-parallel ranks",
        recommended=True,
    ),
    # From September 2023 on, in every commit since, and in the FA2 branch of ORNL's fork.
    Defect(
        file="megatron/core/tensor_parallel/layers.py",
        sign=r"local_embeddings\(position_ids *- *self\.offset\)",
        field="sequence_parallel",
        dimensions=("sequence_parallel", "tensor_parallel"),
        hits=lambda transformer, strategy, _: (
            strategy.sequence_parallel
            and strategy.tensor_parallel > 1
            and not transformer.gated_mlp
        ),
        reason=(
            "each tensor-parallel rank holds its part of the learned positions and is asked for "
            "all of them (index out of range in self)"
        ),
        valid="false, or a gated model, whose positions are rotary",
        recommended=True,
    ),
    # In every commit before 4efb479d: its layers by name, which are for DeepSpeed's pipeline alone.
    Defect(
        file="megatron/model/__init__.py",
        sign=r"^ *from torch\.nn import LayerNorm",
        field="zero_stage",
        dimensions=("zero_stage", "virtual_stages"),
        hits=lambda transformer, strategy, machine: (
            strategy.zero_stage < 2
            and strategy.virtual_stages == 1
            and not transformer.gated_mlp
            and not _has_apex(machine)
        ),
        reason=(
            "on CPUs and on Intel's GPUs the last norm of a GPT's pipeline is torch's own "
            "(LayerNorm.__init__() got an unexpected keyword argument 'sequence_parallel')"
        ),
        valid="2 or 3, or a checkout of commit 4efb479d, or a gated model",
        recommended=True,
    ),
)


def defects_of(checkout: str) -> tuple[Defect, ...]:
    """Return the defects of the checkout at this path; without a path, or if the checkout cannot be
    read from here, those of the recommended commit."""
    root = Path(checkout)
    if not checkout or not (root / "megatron").is_dir():
        return tuple(defect for defect in DEFECTS if defect.recommended)
    return tuple(
        defect
        for defect in DEFECTS
        if re.search(defect.sign, source(root / defect.file), flags=re.MULTILINE)
    )


def refusals(
    defects: Iterable[Defect], transformer: Transformer, strategy: Strategy, machine: Machine
) -> Iterator[InvalidInput]:
    """Yield the refusal of each defect that affects the strategy."""
    for defect in defects:
        if defect.hits(transformer, strategy, machine):
            value = getattr(transformer if defect.of_model else strategy, defect.field)
            yield InvalidInput(defect.field, value, defect.because, valid=defect.valid)


def source(file: Path) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


TIME_LIMIT_S = 60.0
"""Time limit of a query to an interpreter, which starts slowly on a parallel file system."""

NEEDED = ("torch", "deepspeed")

IMPORTED_BY: Mapping[str, str] = {
    "mpi4py": "megatron/arguments.py",
    "regex": "megatron/tokenizer/gpt2_tokenization.py",
    "six": "megatron/tokenizer/bert_tokenization.py",
    "torchvision": "megatron/data/vit_dataset.py",
    "transformers": "megatron/tokenizer/tokenizer.py",
}
"""Packages that a checkout needs if this file imports them at its top."""

_WORDS: Mapping[str, str] = {"torchvision": "torchvision matching your torch"}
"""What to require if not any release of a package is suitable."""

COMPRESSION = "deepspeed.compression.compress"
"""A module that the main line imports and newer DeepSpeeds no longer have."""

# Nothing is imported: torch and DeepSpeed would take seconds, and perhaps a GPU.
_LOOK = """
import importlib.metadata, importlib.util, json, os, sys
specs = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
places = specs["deepspeed"].submodule_search_locations if specs.get("deepspeed") else []
compress = [os.path.join(place, "compression", "compress.py") for place in places or []]
try:
    version = importlib.metadata.version("deepspeed")
except importlib.metadata.PackageNotFoundError:
    version = ""
print(json.dumps({
    "missing": [name for name, spec in specs.items() if spec is None],
    "compression": any(map(os.path.exists, compress)),
    "deepspeed": version,
}))
"""

TOKENIZER_FILES: Mapping[str, tuple[str, ...]] = {
    "GPT2BPETokenizer": ("vocab_file", "merge_file"),
    "SentencePieceTokenizer": ("tokenizer_model",),
    "GPTSentencePieceTokenizer": ("tokenizer_model",),
    "HFTokenizer": ("tokenizer_model",),
}
"""Tokenizer -> keys of the profile that name its files."""


def flash_attention_option(megatron: Megatron) -> str:
    """Return the option that selects the newest FlashAttention of the profile's checkout; empty if
    its `megatron/arguments.py` cannot be read from here, or has none."""
    options = VARIANTS[megatron.variant].flash_attention
    root = Path(megatron.path)
    return next((option for option in options if _has_option(root, option)), "")


def check_files(megatron: Megatron) -> list[InvalidInput]:
    """Return the problems of the checkout, the data and the tokenizer."""
    variant = VARIANTS[megatron.variant]
    return [
        *_checkout(megatron, variant),
        *_data(megatron.data_path),
        *_tokenizer(megatron, variant),
    ]


def check_interpreter(megatron: Megatron, python: str) -> list[InvalidInput]:
    """Return the problems of the interpreter: none there, no package, or too new a DeepSpeed."""
    root = Path(megatron.path)
    imported = [
        package
        for package, file in IMPORTED_BY.items()
        if re.search(rf"^(import|from) {package}\b", source(root / file), flags=re.MULTILINE)
    ]
    needed = [*NEEDED, *imported, *_compiled_with(root / "megatron" / "data")]
    packages = packages_of(python, needed)
    if isinstance(packages, str):
        return [_of_python(python, packages, "the path of a Python")]
    if packages.missing:
        valid = f"a Python with {', '.join(_WORDS.get(name, name) for name in needed)}"
        return [_of_python(python, f"it lacks {', '.join(packages.missing)}", valid)]
    if packages.compression or COMPRESSION not in source(root / "megatron" / "training.py"):
        return []
    reason = (
        f"its DeepSpeed {packages.deepspeed} is too new for this checkout, whose "
        f"megatron/training.py imports {COMPRESSION}, which it no longer has"
    )
    return [_of_python(python, reason, "a Python with an older DeepSpeed, such as 0.16.9")]


def _compiled_with(folder: Path) -> list[str]:
    asks = "pybind11" in source(folder / "Makefile")
    return ["pybind11"] if asks and not any(folder.glob("helpers*.so")) else []


@dataclass(frozen=True, kw_only=True)
class InterpreterPackages:
    """Modules that an interpreter lacks, and its DeepSpeed, with or without compression."""

    missing: tuple[str, ...]
    deepspeed: str
    compression: bool


def packages_of(python: str, modules: Iterable[str]) -> InterpreterPackages | str:
    """Start the interpreter; return which of the modules it has, or why it cannot say."""
    if shutil.which(python) is None:
        return "there is no such interpreter"
    try:
        answer = subprocess.run(
            [python, "-c", _LOOK, *modules],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIME_LIMIT_S,
            check=True,
        )
        return _PACKAGES.validate_json(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"it did not answer within {TIME_LIMIT_S:.0f} s"
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        return f"it cannot be asked for its packages: {error}"


_PACKAGES = TypeAdapter(InterpreterPackages)


def _of_python(python: str, reason: str, valid: str) -> InvalidInput:
    reason = f"{reason}, and Megatron-DeepSpeed is to run with it"
    return InvalidInput("python", python, reason, valid=valid)


def _checkout(megatron: Megatron, variant: Variant) -> list[InvalidInput]:
    root, training = Path(megatron.path), Path(megatron.path, "megatron", "training")
    valid = f"the path of a clone of Megatron-DeepSpeed, with {variant.script} in it"
    if not root.is_dir():
        return [_of_path(megatron, "there is no such folder on this machine", valid)]
    if "deepspeed" not in source(training.with_suffix(".py")):
        reason = "this is no checkout of Megatron-DeepSpeed: it has no megatron/training.py"
        if training.is_dir() or training.with_suffix(".py").is_file():
            reason = "this is a Megatron-LM without DeepSpeed"
        return [_of_path(megatron, reason, valid)]
    wrong = [v for v in VARIANTS.values() if v.name != megatron.variant and _is_of(root, v)]
    if not _is_of(root, variant) and wrong:
        option = next(o for o in wrong[0].flash_attention if _has_option(root, o))
        reason = f"{root} is of another line: it has {wrong[0].script} and {option}"
        return [InvalidInput("megatron.variant", variant.name, reason, valid=repr(wrong[0].name))]
    if not (root / variant.script).is_file():
        return [_of_path(megatron, f"it has no {variant.script}", valid)]
    if not flash_attention_option(megatron):
        known = " or ".join(variant.flash_attention)
        reason = f"its megatron/arguments.py knows no {known}"
        return [_of_path(megatron, reason, "a newer clone")]
    return []


def _is_of(root: Path, variant: Variant) -> bool:
    options = (_has_option(root, option) for option in variant.flash_attention)
    return (root / variant.script).is_file() and any(options)


def _has_option(root: Path, option: str) -> bool:
    return re.search(f"['\"]{option}['\"]", source(root / "megatron" / "arguments.py")) is not None


def _of_path(megatron: Megatron, reason: str, valid: str) -> InvalidInput:
    return InvalidInput("megatron.path", megatron.path, reason, valid=valid)


def _data(data_path: str) -> list[InvalidInput]:
    if not data_path:
        return []
    missing = [end for end in (".bin", ".idx") if not Path(data_path + end).is_file()]
    if not missing:
        return []
    return [
        InvalidInput(
            "megatron.data_path",
            data_path,
            f"there is no {' and no '.join(data_path + end for end in missing)}",
            valid="an indexed dataset's path without .bin and .idx, or nothing for a synthetic one",
        )
    ]


def _tokenizer(megatron: Megatron, variant: Variant) -> list[InvalidInput]:
    name = megatron.tokenizer_type
    if name not in variant.tokenizers:
        meant = suggestion(closest(name, variant.tokenizers, count=1))
        reason = f"the {variant.name} variant trains no GPT with this tokenizer{meant}"
        valid = ", ".join(variant.tokenizers)
        return [InvalidInput("megatron.tokenizer_type", name, reason, valid=valid)]
    problems: list[InvalidInput] = []
    for key in TOKENIZER_FILES.get(name, ()):
        value = str(getattr(megatron, key))
        # Hugging Face's may be a name, which the nodes have cached.
        is_path = name != "HFTokenizer" or value.startswith(("/", ".", "~"))
        if value and (not is_path or Path(value).exists()):
            continue
        reason = "there is no such file on this machine"
        if not value:
            reason = "it is needed by the tokenizer"
        valid = f"the path of a file of {name}"
        problems.append(InvalidInput(f"megatron.{key}", value, reason, valid=valid))
    return problems
