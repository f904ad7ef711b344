"""The sbatch script: Megatron-DeepSpeed with one strategy, in one file that runs as it is."""

from __future__ import annotations

import re
import shlex

from evaluators.launch.ds_config import ds_config_json
from evaluators.launch.megatron_deepspeed import arguments, uses_deepspeed
from evaluators.launch.site import Site, site_of
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TIME_LIMIT = "02:00:00"
"""Enough for the default iterations anywhere; `sbatch --time` overrides it."""

_COMMON_ENVIRONMENT = {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "OMP_NUM_THREADS": "1"}
"""One hardware queue keeps communication in the order it was issued, which Megatron's sequence
parallelism insists on; one host thread, or the ranks of a node fight for its cores."""

_INPUTS = r"""set -euo pipefail

# --- yours to set, by environment
MEGATRON_DIR="${MEGATRON_DIR:-}"          # a clone of Megatron-DeepSpeed
DATA_PATH="${DATA_PATH:-}"                # an indexed dataset, without .bin or .idx
TOKENIZER_TYPE="${TOKENIZER_TYPE:-}"      # GPT2BPETokenizer, HFTokenizer, NullTokenizer, ...
TOKENIZER_MODEL="${TOKENIZER_MODEL:-}"    # of a SentencePiece or a Hugging Face tokenizer
VOCAB_FILE="${VOCAB_FILE:-}"              # of the GPT-2 tokenizer
MERGE_FILE="${MERGE_FILE:-}"              # of the GPT-2 tokenizer
TRAIN_ITERS="${TRAIN_ITERS:-50}"          # enough to see the recommended figures again
LEARNING_RATE="${LEARNING_RATE:-1.0e-4}"
CHECKPOINT_DIR="${CHECKPOINT_DIR:-}"      # resumed from and saved to; nothing is saved without
SAVE_INTERVAL="${SAVE_INTERVAL:-1000}"    # iterations
EXTRA_ARGS="${EXTRA_ARGS:-}"              # further arguments, split at blanks; they win
PYTHON="${PYTHON:-python}"
RUN_DIR="${RUN_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}"   # ds_config-<job>.json is written there
"""

_CHECKS = r"""# --- what is missing is said before anything starts
missing=()
need() { [[ -n "${!1}" ]] || missing+=("$1: $2"); }
need DATA_PATH "path of an indexed dataset, without .bin or .idx"
if [[ -z "$MEGATRON_DIR" ]]; then
    missing+=("MEGATRON_DIR: path of a clone of Megatron-DeepSpeed")
elif [[ ! -f "$MEGATRON_DIR/pretrain_gpt.py" ]]; then
    missing+=("MEGATRON_DIR: there is no pretrain_gpt.py in $MEGATRON_DIR")
fi
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
command -v "$PYTHON" >/dev/null || missing+=("PYTHON: there is no $PYTHON")
if [[ -z "${SLURM_JOB_ID:-}" ]]; then
    missing+=("a Slurm job: submit this file with sbatch")
fi
command -v srun >/dev/null || missing+=("srun: Slurm's client commands are not on the PATH")
if (( ${#missing[@]} > 0 )); then
    echo "This launch cannot start. Missing:" >&2
    printf '  %s\n' "${missing[@]}" >&2
    exit 2
fi
"""

_RUN = r"""# --- the run
hosts="$(scontrol show hostnames "$SLURM_JOB_NODELIST")"
MASTER_ADDR="${hosts%%$'\n'*}"
MASTER_PORT="${MASTER_PORT:-$(( 20000 + SLURM_JOB_ID % 20000 ))}"
export MASTER_ADDR MASTER_PORT
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

# Where Slurm shows a task one GPU, that is its device 0; where it shows all, the task takes the
# one of its own place on the node. Megatron compares LOCAL_RANK with rank % visible devices.
_TASK = r"""
    visible="${ROCR_VISIBLE_DEVICES:-${CUDA_VISIBLE_DEVICES:-${ZE_AFFINITY_MASK:-}}}"
    case "$visible" in
        "" | *,*) LOCAL_RANK="$SLURM_LOCALID" ;;
        *) LOCAL_RANK=0 ;;
    esac
    export LOCAL_RANK RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS"
    exec "$@"
"""

# pretrain_gpt.py always reads this attribute, which is set under --deepspeed alone.
_WITHOUT_DEEPSPEED = """import argparse, os, runpy, sys
argparse.Namespace.deepspeed_config_dict = None
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")"""


def sbatch_script(
    transformer: Transformer, machine: Machine, strategy: Strategy, *, name: str
) -> str:
    """The whole script. `name` is the job's, brought into the letters that Slurm takes.

    Raises:
        InvalidInput: Megatron-DeepSpeed cannot run this strategy.
    """
    site = site_of(machine)
    sections = [
        _head(transformer, machine, strategy, site, name=name),
        _INPUTS,
        _vocabulary(transformer),
        _CHECKS,
        _environment(site),
        _layout(transformer, machine, strategy),
        _RUN,
        _srun(machine, strategy, site),
    ]
    return "\n".join(sections)


def _head(
    transformer: Transformer, machine: Machine, strategy: Strategy, site: Site, *, name: str
) -> str:
    gpus = machine.gpus_per_node
    directives = [
        f"--job-name={job_name(name)}",
        f"--nodes={strategy.num_nodes}",
        f"--ntasks-per-node={gpus}",
        f"--gpus-per-node={gpus}",
        f"--time={TIME_LIMIT}",
        "--exclusive",
        "--output=%x-%j.log",
        *site.directives,
    ]
    comments = [
        f"{name}: {transformer.name} on {machine.name}",
        f"{strategy.short()}, global batch {strategy.global_batch_size(gpus)}",
        "Account and partition: SBATCH_ACCOUNT and SBATCH_PARTITION, or sbatch's own options.",
        *([site.note] if site.note else []),
    ]
    lines = ["#!/bin/bash", *(f"#SBATCH {directive}" for directive in directives)]
    return "\n".join([*lines, *map(comment, comments), ""])


def comment(text: str) -> str:
    """One line of it: a user's name may hold anything, and a line break would end the comment."""
    return "# " + " ".join(text.split())


def job_name(name: str) -> str:
    """The name in letters that Slurm, a shell and a file system take as they are."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "training"


def _vocabulary(transformer: Transformer) -> str:
    size = transformer.vocab_size - 1
    return f"NULL_VOCAB_SIZE={size}  # NullTokenizer adds one entry, the end of a document\n"


def _environment(site: Site) -> str:
    variables = {**_COMMON_ENVIRONMENT, **site.environment}
    exports = [f'export {key}="${{{key}:-{value}}}"' for key, value in variables.items()]
    plugin = [
        'if [[ -n "${AWS_OFI_PLUGIN_DIR:-}" ]]; then  # the libfabric plugin of NCCL or RCCL',
        '    export LD_LIBRARY_PATH="$AWS_OFI_PLUGIN_DIR:${LD_LIBRARY_PATH:-}"',
        "fi",
    ]
    return "\n".join([*exports, *plugin, ""])


def _layout(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """The model's and the strategy's arguments, and DeepSpeed's file where that is used."""
    chosen = [shlex.join(argument) for argument in arguments(transformer, machine, strategy)]
    lines = ["# --- the recommended strategy", "layout=(", *(f"    {c}" for c in chosen), ")"]
    if uses_deepspeed(strategy):
        lines += [
            'mkdir -p "$RUN_DIR"',
            'DS_CONFIG="$RUN_DIR/ds_config-$SLURM_JOB_ID.json"',
            "cat >\"$DS_CONFIG\" <<'JSON'",
            ds_config_json(machine, strategy).rstrip(),
            "JSON",
            'layout+=(--deepspeed_config "$DS_CONFIG")',
        ]
    return "\n".join([*lines, ""])


def _srun(machine: Machine, strategy: Strategy, site: Site) -> str:
    options = [
        f"--nodes={strategy.num_nodes}",
        f"--ntasks-per-node={machine.gpus_per_node}",
        f"--gpus-per-node={machine.gpus_per_node}",
        *site.srun,
        "--kill-on-bad-exit=1",
    ]
    wrapper = "" if uses_deepspeed(strategy) else f"-c {shlex.quote(_WITHOUT_DEEPSPEED)} "
    return "\n".join(
        [
            f"exec srun {shlex.join(options)} \\",
            f"    bash -c '{_TASK}' task \\",
            f'    "$PYTHON" {wrapper}"$MEGATRON_DIR/pretrain_gpt.py" \\',
            '    "${layout[@]}" "${tokenizer[@]}" "${run[@]}" "${extra[@]}"',
            "",
        ]
    )
