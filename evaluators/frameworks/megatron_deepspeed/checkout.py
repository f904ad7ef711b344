"""A profile's checkout of Megatron-DeepSpeed, looked over before the first trial."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluators.cluster.profile import Megatron
from evaluators.frameworks.megatron_deepspeed.defects import source
from evaluators.frameworks.megatron_deepspeed.variants import VARIANTS, Variant
from search_spaces.errors import InvalidInput, closest

TIME_LIMIT_S = 30.0
"""For an interpreter to look around: on a parallel file system its start alone takes seconds."""

NEEDED = ("torch", "deepspeed")

IMPORTED_BY: Mapping[str, str] = {
    "mpi4py": "megatron/arguments.py",
    "regex": "megatron/tokenizer/gpt2_tokenization.py",
    "six": "megatron/tokenizer/bert_tokenization.py",
    "torchvision": "megatron/data/vit_dataset.py",
    "transformers": "megatron/tokenizer/tokenizer.py",
}
"""Packages that some checkouts need: each is imported at the top of this file, or is not needed."""

_WORDS: Mapping[str, str] = {"torchvision": "torchvision matching your torch"}
"""What to ask for where any release of a package would not do."""

COMPRESSION = "deepspeed.compression.compress"
"""A module that the main line imports and newer DeepSpeeds no longer have."""

# Nothing is imported: torch and DeepSpeed would take seconds, and a GPU that is not here.
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

_FILES: Mapping[str, tuple[str, ...]] = {
    "GPT2BPETokenizer": ("vocab_file", "merge_file"),
    "SentencePieceTokenizer": ("tokenizer_model",),
    "GPTSentencePieceTokenizer": ("tokenizer_model",),
    "HFTokenizer": ("tokenizer_model",),
}
"""The keys of the profile that each tokenizer reads files from."""


def flash_attention_option(megatron: Megatron) -> str:
    """Return the option that chooses the newest FlashAttention of the profile's checkout; empty
    where its `megatron/arguments.py` cannot be read from here, or has none."""
    options = VARIANTS[megatron.variant].flash_attention
    root = Path(megatron.path)
    return next((option for option in options if _has_option(root, option)), "")


def check_files(megatron: Megatron) -> list[InvalidInput]:
    """Return what is wrong with the checkout, the data and the tokenizer."""
    variant = VARIANTS[megatron.variant]
    return [
        *_checkout(megatron, variant),
        *_data(megatron.data_path),
        *_tokenizer(megatron, variant),
    ]


def check_interpreter(megatron: Megatron, python: str) -> list[InvalidInput]:
    """Return what the interpreter lacks: itself, a package, or a DeepSpeed old enough."""
    if shutil.which(python) is None:
        return [_of_python(python, "there is no such interpreter", "the path of a Python")]
    root = Path(megatron.path)
    imported = [
        package
        for package, file in IMPORTED_BY.items()
        if re.search(rf"^(import|from) {package}\b", source(root / file), flags=re.MULTILINE)
    ]
    needed = [*NEEDED, *imported, *_compiled_with(root / "megatron" / "data")]
    try:
        packages = _look(python, needed)
    except subprocess.TimeoutExpired:
        return [_of_python(python, f"it did not answer within {TIME_LIMIT_S:.0f} s", "")]
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        return [_of_python(python, f"it cannot be asked for its packages: {error}", "")]
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
    """Return the package whose headers the checkout's helpers ask for while none are compiled."""
    asks = "pybind11" in source(folder / "Makefile")
    return ["pybind11"] if asks and not any(folder.glob("helpers*.so")) else []


@dataclass(frozen=True, kw_only=True)
class _Packages:
    """The modules that an interpreter lacks, its DeepSpeed, and whether that compresses."""

    missing: tuple[str, ...]
    deepspeed: str
    compression: bool


def _look(python: str, modules: Iterable[str]) -> _Packages:
    answer = subprocess.run(
        [python, "-c", _LOOK, *modules],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIME_LIMIT_S,
        check=True,
    )
    packages = json.loads(answer.stdout.splitlines()[-1])
    return _Packages(
        missing=tuple(packages["missing"]),
        deepspeed=packages["deepspeed"],
        compression=packages["compression"],
    )


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
        near = closest(name, variant.tokenizers)
        meant = f"; did you mean {near[0]}?" if near else ""
        reason = f"the {variant.name} variant trains no GPT with this tokenizer{meant}"
        valid = ", ".join(variant.tokenizers)
        return [InvalidInput("megatron.tokenizer_type", name, reason, valid=valid)]
    problems: list[InvalidInput] = []
    for key in _FILES.get(name, ()):
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
