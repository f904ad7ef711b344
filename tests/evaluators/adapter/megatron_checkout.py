"""Puts command lines through the `parse_args` and `validate_args` of a checkout of Megatron-LM or
Megatron-DeepSpeed.

    python megatron_checkout.py CHECKOUT < requests.json > answers.json

A request is `{"words": […], "variables": {…}, "world_size": n}`, and may have the `generation` of
the GPU, which is 9 (Hopper) otherwise; its answer is the arguments as Megatron has them afterwards,
with the batch of each iteration where samples are counted and what it printed, or
`{"error": …}`. An empty list asks for the options themselves.

What a machine without GPUs lacks has a stand-in, and nothing else has: the packages of `ABSENT`,
`torch.compile`, `typing.override` before Python 3.12, the generation of the GPU, and the version of
Transformer Engine with its permutation of tokens. Without it rotary positions are not fused.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import sys
import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

HOPPER = 9
TRANSFORMER_ENGINE = "2.12.0"
PERMUTATION = (
    *("permute", "permute_with_probs", "sort_chunks_by_index", "sort_chunks_by_index_with_probs"),
    "unpermute",
)
ABSENT = frozenset(
    (
        *("ezpz", "mpi4py", "nltk", "regex", "rich", "sentencepiece", "six", "tensorboard"),
        *("transformers", "triton", "wandb"),
    )
)


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the packages that are absent, and has nothing in it."""

    def __init__(self, absent: Collection[str]) -> None:
        self._absent = absent

    def find_spec(
        self,
        fullname: str,
        path: object = None,  # noqa: ARG002
        target: object = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        parts = fullname.split(".")
        if not any(".".join(parts[:end]) in self._absent for end in range(1, len(parts) + 1)):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = MagicMock(__name__=spec.name, __spec__=spec, __path__=[], __version__="3.0.0")
        return typing.cast("types.ModuleType", module)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def prepare(checkout: str, *, absent: Collection[str] = ()) -> Any:
    """Let the checkout be imported, and return torch.

    Args:
        absent: what else has a stand-in, besides ABSENT.
    """
    sys.meta_path.insert(0, _StandIns(ABSENT.union(absent)))
    sys.path.insert(0, checkout)
    if not hasattr(typing, "override"):
        typing.override = lambda method: method  # type: ignore[attr-defined]
    torch: Any = importlib.import_module("torch")
    torch.compile = lambda function=None, **_: function or (lambda inner: inner)
    torch.cuda.get_device_capability = lambda *_: (HOPPER, 0)
    hopper = types.SimpleNamespace(major=HOPPER, minor=0, name="NVIDIA H100")
    torch.cuda.get_device_properties = lambda *_: hopper
    return torch


def with_transformer_engine() -> None:
    """Have Megatron Core, once it was imported, take Transformer Engine to be there."""
    utils: Any = importlib.import_module("megatron.core.utils")
    version: Any = importlib.import_module("packaging.version")
    utils.get_te_version = lambda: version.Version(TRANSFORMER_ENGINE)
    moe: Any = importlib.import_module("megatron.core.transformer.moe.moe_utils")
    for name in PERMUTATION:
        setattr(moe, f"fused_{name}", MagicMock())
    rotary: Any = importlib.import_module("megatron.core.models.common.embeddings.rope_utils")
    rotary.fused_apply_rotary_pos_emb = MagicMock()


def _arguments_of(checkout: str) -> Any:
    """Return the module that declares the arguments."""
    prepare(checkout)
    of_lm = (Path(checkout) / "megatron" / "training" / "arguments.py").exists()
    module: Any = importlib.import_module(f"megatron{'.training' * of_lm}.arguments")
    if of_lm:
        with_transformer_engine()
    return module


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _answer(module: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
    variables = {**request["variables"], "RANK": "0", "WORLD_SIZE": str(request["world_size"])}
    mpi: Any = getattr(module, "MPI", MagicMock())  # ORNL's fork asks it, and not the environment
    mpi.COMM_WORLD.Get_size.return_value = request["world_size"]
    mpi.COMM_WORLD.Get_rank.return_value = 0
    sys.argv = ["pretrain_gpt.py", *request["words"]]
    module.get_device_arch_version = lambda: request.get("generation", HOPPER)
    printed = StringIO()
    with environment(variables), redirect_stdout(printed):
        try:
            args = module.parse_args()
            module.validate_args(args)
            # Its own configuration of the model has further checks; fused rotary positions are
            # Transformer Engine's.
            args.apply_rope_fusion = False
            module.core_transformer_config_from_args(args)
        except (AssertionError, ValueError, RuntimeError, SystemExit) as error:
            return {"error": f"{type(error).__name__}: {error}"}
    answer = {name: _plain(value) for name, value in vars(args).items()}
    batches = list(_batches(args)) if args.train_samples else None
    return answer | {"batches": batches, "printed": printed.getvalue()}


def _batches(args: Any) -> Iterator[int]:
    """Yield the global batch of each iteration, as the checkout's own schedule has it."""
    if hasattr(args, "step_batch_size_schedule"):
        module: Any = importlib.import_module("megatron.core.num_microbatches_calculator")
        schedule = module.StepBatchsizeNumMicroBatchesCalculator(
            args.micro_batch_size,
            args.data_parallel_size,
            decrease_batch_size_if_needed=False,
            rank=1,
            schedule=args.step_batch_size_schedule,
            seq_length=args.seq_length,
        )
    else:
        module = importlib.import_module("megatron.microbatches")
        schedule = module.build_num_microbatches_calculator(args)
    consumed = 0
    while consumed < args.train_samples:
        schedule.update(consumed, True)
        yield schedule.get_current_global_batch_size()
        consumed += schedule.get_current_global_batch_size()


def _plain(value: Any) -> Any:
    name = getattr(value, "name", None)  # of an enumeration
    return value if value is None or isinstance(value, bool | int | float) else str(name or value)


def _options(module: Any) -> Mapping[str, Any]:
    parser = module.add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    return {
        option: {
            "dest": action.dest,
            "action": type(action).__name__.strip("_").removesuffix("Action"),
            "type": getattr(action.type, "__name__", None),
            "choices": [_plain(choice) for choice in action.choices] if action.choices else None,
            "default": _plain(action.default),
            "nargs": action.nargs if isinstance(action.nargs, str) else None,
        }
        for action in parser._actions
        for option in action.option_strings
    }


def main(checkout: str, requests: Sequence[Mapping[str, Any]]) -> Any:
    """Return the answers, or the options where nothing is asked."""
    with redirect_stdout(sys.stderr):
        module = _arguments_of(checkout)
        return [_answer(module, each) for each in requests] if requests else _options(module)


if __name__ == "__main__":
    answers = main(sys.argv[1], json.load(sys.stdin))
    json.dump(answers, sys.stdout)
