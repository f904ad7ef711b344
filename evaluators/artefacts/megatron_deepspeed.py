"""An sbatch script for Megatron-DeepSpeed with one strategy."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator

from evaluators.artefacts.job import (
    DEFAULT,
    MEETING,
    STRICT,
    Launch,
    environment,
    head,
    settings,
    srun,
)
from evaluators.cluster.profile import ClusterProfile, Megatron
from evaluators.cluster.shell import container_words
from evaluators.frameworks.deepspeed import ds_config_json
from evaluators.frameworks.megatron_deepspeed import dataset
from evaluators.frameworks.megatron_deepspeed.arguments import (
    VARIANTS,
    Variant,
    arguments,
    entry_words,
    null_vocabulary,
    uses_deepspeed,
)
from evaluators.frameworks.megatron_deepspeed.checkout import (
    DEFECTS,
    TOKENIZER_FILES,
    flash_attention_option,
)
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TRAIN_ITERS = 50
"""Enough to reproduce the recommended metrics."""

_NO_CHECKOUT = Megatron(path="", tokenizer_type="")

# This script knows what the tokenizer's files are; Megatron checks whether they exist.
_CHECKS = r"""# --- what is missing is said before anything starts
missing=()
need() { [[ -n "${!1}" ]] || missing+=("$1: $2"); }
need DATA_PATH "path of an indexed dataset, without .bin or .idx"
tokenizer=(--tokenizer-type "$TOKENIZER_TYPE")
case "$TOKENIZER_TYPE" in
    GPT2BPETokenizer)
        need VOCAB_FILE "the GPT-2 tokenizer's vocabulary"
        need MERGE_FILE "the GPT-2 tokenizer's merges"
        tokenizer+=(--vocab-file "$VOCAB_FILE" --merge-file "$MERGE_FILE") ;;
    SentencePieceTokenizer | GPTSentencePieceTokenizer | HFTokenizer)
        need TOKENIZER_MODEL "the model of $TOKENIZER_TYPE"
        tokenizer+=(--tokenizer-model "$TOKENIZER_MODEL") ;;
    NullTokenizer)
        tokenizer+=(--vocab-size "$NULL_VOCAB_SIZE") ;;
    *)
        valid="GPT2BPETokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, HFTokenizer"
        missing+=("TOKENIZER_TYPE: one of $valid, NullTokenizer") ;;
esac
need MEGATRON_DIR "path of a clone of Megatron-DeepSpeed"
if [[ -z "${SLURM_JOB_ID:-}" ]]; then
    missing+=("a Slurm job: submit this file with sbatch")
fi
command -v srun >/dev/null || missing+=("srun: Slurm's client commands are not on the PATH")
"""

# Paths differ inside a container.
_CHECKS_OUTSIDE = r"""if [[ -n "$MEGATRON_DIR" && ! -f "$MEGATRON_DIR/{script}" ]]; then
    missing+=("MEGATRON_DIR: there is no {script} in $MEGATRON_DIR")
fi
command -v "$PYTHON" >/dev/null || missing+=("PYTHON: there is no $PYTHON")
"""

_DEFECT = r"""if grep -qsE -e {sign} "$MEGATRON_DIR"/{file}; then
    missing+=({reason})
fi
"""

_REFUSE = r"""if (( ${#missing[@]} > 0 )); then
    echo "This launch cannot start. Missing:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 2
fi
"""

_RUN = r"""# --- the run
run=(
    --train-iters "$TRAIN_ITERS" --lr "$LEARNING_RATE" --log-interval 1
    --eval-iters 0 --eval-interval 1000000 --save-interval "$SAVE_INTERVAL"
    --data-path "$DATA_PATH" --split 100,0,0 --num-workers 0
)
if [[ -n "$CHECKPOINT_DIR" ]]; then
    run+=(--save "$CHECKPOINT_DIR" --load "$CHECKPOINT_DIR")
fi
read -r -a extra <<<"$EXTRA_ARGS"
"""


def sbatch_script(launch: Launch) -> str:
    """Return the whole script.

    Raises:
        InvalidInput: the profile's variant of Megatron-DeepSpeed cannot run this strategy.
    """
    transformer, strategy, profile = launch.transformer, launch.strategy, launch.place
    megatron = profile.megatron or _NO_CHECKOUT
    script = VARIANTS[megatron.variant].script
    checks_outside = "" if profile.container else _CHECKS_OUTSIDE.format(script=script)
    checks_outside += "".join(_defect_checks(transformer, strategy, launch.machine))
    entry_script = f'"$MEGATRON_DIR/{script}"'
    start = entry_words(megatron.variant, strategy, python='"$PYTHON"', script=entry_script)
    arrays = '"${layout[@]}" "${tokenizer[@]}" "${run[@]}" "${profile[@]}" "${extra[@]}"'
    sections = [
        head(launch),
        _inputs(transformer, profile, megatron),
        environment(profile),
        _data(transformer, profile),
        _CHECKS + checks_outside + _REFUSE,
        MEETING,
        STRICT,
        _layout(transformer, launch.machine, strategy, megatron),
        _RUN,
        "exec " + srun(launch, [" ".join(start), arrays]),
    ]
    return "\n".join(section for section in sections if section)


def _inputs(transformer: Transformer, profile: ClusterProfile, megatron: Megatron) -> str:
    values = {
        "MEGATRON_DIR": (megatron.path, "a clone of Megatron-DeepSpeed"),
        "DATA_PATH": (megatron.data_path, "an indexed dataset, without .bin or .idx"),
        "TOKENIZER_TYPE": (megatron.tokenizer_type, "GPT2BPETokenizer, HFTokenizer, …"),
        "TOKENIZER_MODEL": (megatron.tokenizer_model, "of SentencePiece or Hugging Face"),
        "VOCAB_FILE": (megatron.vocab_file, "of the GPT-2 tokenizer"),
        "MERGE_FILE": (megatron.merge_file, "of the GPT-2 tokenizer"),
        "TRAIN_ITERS": (str(TRAIN_ITERS), "enough to see the recommended figures again"),
        "LEARNING_RATE": ("1.0e-4", "a placeholder, which no trial tuned"),
        "CHECKPOINT_DIR": ("", "resumed from and saved to; nothing is saved without"),
        "SAVE_INTERVAL": ("1000", "iterations"),
        "EXTRA_ARGS": ("", "further arguments, split at blanks; they win"),
        "PYTHON": (profile.python or "python", "with torch, DeepSpeed and what Megatron needs"),
    }
    return "\n".join(
        [
            "# --- yours to set, by environment",
            DEFAULT,
            *settings(values),
            'default RUN_DIR "${SLURM_SUBMIT_DIR:-$PWD}"  # ds_config-<job>.json is written there',
            f"NULL_VOCAB_SIZE={null_vocabulary(transformer)}"
            "  # NullTokenizer adds one entry, the end of a document",
            "",
        ]
    )


def _data(transformer: Transformer, profile: ClusterProfile) -> str:
    megatron = profile.megatron
    if not megatron or megatron.data_path or megatron.tokenizer_type != "NullTokenizer":
        return ""
    sizes = f"{transformer.vocab_size} {transformer.seq_length}"
    start = shlex.join(container_words(profile))
    return "\n".join(
        [
            "# --- without DATA_PATH random tokens, as in the trials",
            'if [[ -z "$DATA_PATH" ]]; then',
            f'    DATA_PATH="$({start} "$PYTHON" - "$RUN_DIR/synthetic" {sizes} <<\'PYTHON\'',
            inspect.getsource(dataset).rstrip(),
            "PYTHON",
            '    )"',
            "fi",
            "",
        ]
    )


def _newest_flash_attention(variant: Variant) -> list[str]:
    """Return bash that selects the newest FlashAttention option of MEGATRON_DIR, which differs
    between branches.

    If the newer option exists, the older one means FlashAttention 1, which may not be installed.
    """
    if len(variant.flash_attention) == 1:
        return []
    newest, *_, oldest = variant.flash_attention
    return [
        f'if grep -qs -e "\'{newest}\'" "$MEGATRON_DIR/megatron/arguments.py"; then',
        f'    layout=("${{layout[@]/%{oldest}/{newest}}}")',
        "fi",
    ]


def _defect_checks(transformer: Transformer, strategy: Strategy, machine: Machine) -> Iterator[str]:
    """Yield bash that rejects a checkout with a defect that affects this launch; a checkout that is
    only readable inside a container is not checked."""
    for defect in DEFECTS:
        if defect.hits(transformer, strategy, machine):
            yield _DEFECT.format(
                sign=shlex.quote(defect.sign),
                file=defect.file,
                reason=shlex.quote(f"MEGATRON_DIR: {defect.because}; needed: {defect.valid}"),
            )


def _layout(
    transformer: Transformer, machine: Machine, strategy: Strategy, megatron: Megatron
) -> str:
    option = flash_attention_option(megatron)
    layout = arguments(transformer, machine, strategy, megatron.variant, flash_attention=option)
    lines = [
        "# --- the recommended strategy",
        "layout=(",
        *(f"    {shlex.join(argument)}" for argument in layout),
        ")",
        *_newest_flash_attention(VARIANTS[megatron.variant]),
        "# --- the cluster profile's arguments, which win as they did in the trials",
        f"profile=({shlex.join(megatron.arguments)})",
    ]
    if uses_deepspeed(strategy):
        lines += [
            'mkdir -p "$RUN_DIR"',
            'DS_CONFIG="$RUN_DIR/ds_config-$SLURM_JOB_ID.json"',
            "cat >\"$DS_CONFIG\" <<'JSON'",
            ds_config_json(transformer, machine, strategy).rstrip(),
            "JSON",
            'layout+=(--deepspeed_config "$DS_CONFIG")',
        ]
    return "\n".join([*lines, ""])


NEEDED = {
    "MEGATRON_DIR": "path of a clone of Megatron-DeepSpeed",
    "DATA_PATH": "path of an indexed dataset, without .bin or .idx",
    "TOKENIZER_TYPE": "the tokenizer of that dataset: GPT2BPETokenizer, HFTokenizer, …",
    "TOKENIZER_MODEL": "the tokenizer's model",
    "VOCAB_FILE": "the GPT-2 tokenizer's vocabulary",
    "MERGE_FILE": "the GPT-2 tokenizer's merges",
    "PYTHON": "an interpreter with torch, DeepSpeed and what Megatron needs, on the nodes",
}
"""Environment variables that a script may require -> meaning."""


def megatron_needs(profile: ClusterProfile | None) -> dict[str, str]:
    """Return what the Megatron-DeepSpeed script still needs, variable -> meaning.

    Args:
        profile: cluster profile of the trials; None if they did not run on a cluster.
    """
    return {name: NEEDED[name] for name in _missing(profile)}


def _missing(profile: ClusterProfile | None) -> Iterator[str]:
    megatron = profile.megatron if profile else None
    given = megatron or Megatron(path="", tokenizer_type="")
    if not given.path:
        yield "MEGATRON_DIR"
    if not given.data_path and (megatron is None or given.tokenizer_type != "NullTokenizer"):
        yield "DATA_PATH"
    if not given.tokenizer_type:
        yield "TOKENIZER_TYPE"
    keys = TOKENIZER_FILES.get(given.tokenizer_type, ())
    yield from (key.upper() for key in keys if not getattr(given, key))
    if profile is None:
        yield "PYTHON"
