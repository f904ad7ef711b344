"""A trial with Megatron-DeepSpeed: the files that it needs, and the commands of its tasks."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from itertools import chain

from evaluators.cluster.profile import Megatron
from evaluators.launch.megatron import Argument
from evaluators.launch.megatron_deepspeed.ds_config import ds_config_json
from evaluators.launch.megatron_deepspeed.schedule import Run, trial_runs
from evaluators.launch.megatron_deepspeed.variants import VARIANTS
from evaluators.trial import TrialRequest

# The main line's entry script always reads this attribute, which is set under --deepspeed alone.
WITHOUT_DEEPSPEED = """import argparse, os, runpy, sys
argparse.Namespace.deepspeed_config_dict = None
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")"""


def runs_of(request: TrialRequest, megatron: Megatron) -> list[Run]:
    """The runs of a trial, in order.

    Raises:
        InvalidInput: the checkout's variant cannot run the request's strategy or model.
    """
    return trial_runs(
        request.transformer,
        request.machine,
        request.strategy,
        request.protocol,
        megatron.variant,
    )


def trial_files(request: TrialRequest, megatron: Megatron) -> Mapping[str, str]:
    """File name -> text: DeepSpeed's configuration of each run that DeepSpeed's engine runs.

    Raises:
        InvalidInput: the checkout's variant cannot run the request's strategy or model.
    """
    return {
        _config_name(number): ds_config_json(request.machine, run.strategy)
        for number, run in enumerate(runs_of(request, megatron), start=1)
        if run.uses_deepspeed
    }


def trial_commands(
    request: TrialRequest, megatron: Megatron, *, python: str, data_path: str
) -> list[tuple[str, ...]]:
    """For each run the words of bash that are its command, which every rank runs.

    They are to be run in the folder of `trial_files`, which all nodes see, with MASTER_ADDR set.
    `data_path` is the dataset, without .bin or .idx, whether the profile's or a synthetic one.

    Raises:
        InvalidInput: the checkout's variant cannot run the request's strategy or model.
    """
    own = [("--seed", str(1 + request.seed)), *data_arguments(request, megatron, data_path)]
    commands = []
    for number, run in enumerate(runs_of(request, megatron), start=1):
        words = [shlex.quote(word) for word in chain(*run.arguments, *own, megatron.arguments)]
        start = script_words(megatron, python, deepspeed=run.uses_deepspeed)
        commands.append((*start, *_own_files(run, number), *words))
    return commands


def data_arguments(request: TrialRequest, megatron: Megatron, data_path: str) -> list[Argument]:
    """Dataset and tokenizer. All of the data is for training; no evaluation reads any."""
    files = {
        "--tokenizer-model": megatron.tokenizer_model,
        "--vocab-file": megatron.vocab_file,
        "--merge-file": megatron.merge_file,
    }
    tokenizer: list[Argument] = [("--tokenizer-type", megatron.tokenizer_type)]
    tokenizer += [(option, file) for option, file in files.items() if file]
    if megatron.tokenizer_type == "NullTokenizer":
        tokenizer.append(("--vocab-size", str(null_vocabulary(request.transformer.vocab_size))))
    return [
        ("--data-path", data_path),
        ("--split", "100,0,0"),
        ("--num-workers", "0"),
        *tokenizer,
    ]


def null_vocabulary(vocab_size: int) -> int:
    """What to ask the null tokenizer for: it adds one entry, the end of a document."""
    return vocab_size - 1


def script_words(megatron: Megatron, python: str, *, deepspeed: bool) -> tuple[str, ...]:
    """Words of bash that start the entry script with its variant's own needs."""
    variant = VARIANTS[megatron.variant]
    wrapper = ("-c", shlex.quote(WITHOUT_DEEPSPEED))
    return (
        shlex.quote(python),
        *(wrapper if variant.reads_unset_config and not deepspeed else ()),
        shlex.quote(f"{megatron.path.rstrip('/')}/{variant.script}"),
        *(("--master-addr", '"$MASTER_ADDR"') if variant.master_address else ()),
    )


def _own_files(run: Run, number: int) -> tuple[str, ...]:
    """Index files beside the data would be written by several trials at once."""
    cache = ("--data-cache-path", '"$PWD/index-cache"')
    if not run.uses_deepspeed:
        return cache
    return ("--deepspeed_config", f'"$PWD/{_config_name(number)}"', *cache)


def _config_name(number: int) -> str:
    return f"ds_config-{number}.json"
