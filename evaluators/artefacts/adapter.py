"""One rank of a trainer that an adapter describes, as a script that every launcher can start."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.rendering import StartPlan, start_of
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TRAIN_ITERATIONS = 100
_OUT = "AUTOTUNE-OUT-FOLDER"
"""Stands for the folder while the trainer's words are made, and needs no quotes."""

_HEAD = """#!/bin/bash
# {name}: {strategy}
# Every rank runs it, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its
# environment, as torchrun sets them:
#   torchrun --nnodes={nodes} --nproc-per-node={ranks} … --no-python bash {file}
# OUT is the folder for its files.
set -euo pipefail
out="${{OUT:-$PWD/out}}"
mkdir -p "$out"
"""


def rank_script(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    adapter: Adapter,
    *,
    name: str,
    python: str,
    file: str,
) -> str:
    """Return bash; what it starts is what the trials started, for TRAIN_ITERATIONS iterations."""
    plan = StartPlan(
        transformer=transformer,
        machine=machine,
        strategy=strategy,
        iterations=TRAIN_ITERATIONS,
        python=python,
        out=_OUT,
    )
    start = start_of(adapter, plan)
    head = _HEAD.format(
        name=" ".join(f"{name} ({adapter.label})".split()),
        strategy=strategy.short(),
        nodes=strategy.num_nodes,
        ranks=machine.gpus_per_node,
        file=file,
    )
    lines = [head, *_files(start.files)]
    lines += [f"export {each}={_word(value)}" for each, value in start.variables.items()]
    lines.append(f"cd {_word(adapter.folder or _OUT)}")
    words = " ".join(map(_word, start.words))
    return "\n".join([*lines, f"exec {words}", ""])


def _files(files: Mapping[str, str]) -> Iterator[str]:
    """Yield what writes the trainer's files; the ranks of a node write the same."""
    for name, text in files.items():
        lines = " ".join(map(_word, text.splitlines()))
        partial, whole = f'"$out/{name}.$RANK"', f'"$out/{name}"'
        yield f"printf '%s\\n' {lines} >{partial}\nmv {partial} {whole}"


def _word(text: str) -> str:
    """Return a word of bash, in which the folder is still to be named."""
    return '"$out"'.join(shlex.quote(part) if part else "" for part in text.split(_OUT)) or "''"
