"""Files for trainers that no trial ran with: what their ready adapters would start.

Data, tokenizer and schedule are the user's there, so what a trial says of these is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MEGATRON_LM, NEMO = "megatron-lm", "nemo"

_OF_A_TRIAL: Mapping[str, Sequence[str]] = {
    MEGATRON_LM: ("--vocab-size", "--train-iters", "--seed", "--eval-interval"),
    NEMO: (
        *("nemo.yaml:trainer.max_steps", "nemo.yaml:trainer.log_every_n_steps"),
        *("nemo.yaml:trainer.limit_val_batches", "nemo.yaml:exp_manager.explicit_log_dir"),
        "nemo.yaml:exp_manager.create_checkpoint_callback",
        *("nemo.yaml:exp_manager.resume_if_exists", "nemo.yaml:model.seed"),
        *("nemo.yaml:model.data.data_impl", "nemo.yaml:model.data.data_prefix"),
    ),
}
"""The places of each adapter that are a trial's alone, as all of its command is."""

_NEMO_HEAD = """# python megatron_gpt_pretraining.py --config-dir=. --config-name=nemo
# It is laid over NeMo's own megatron_gpt_config.yaml, which has data, tokenizer, schedule.
"""
_NEMO_FSDP = "# ZeRO {stage} is torch's FSDP here, not the engine that was measured.\n"


@cache
def ready_adapter(name: str) -> Adapter:
    """Return the ready adapter of this name."""
    return load_adapter(name)


def megatron_lm_arguments(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return one option a line; a launcher passes them on with `$(cat megatron_lm_args.txt)`.

    Raises:
        InvalidInput: Megatron-LM cannot train with this strategy.
    """
    words = _start(MEGATRON_LM, transformer, machine, strategy).words
    return "".join(f"{' '.join(option)}\n" for option in _options(words))


def nemo_yaml(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return the YAML text, with a head that says how it is used.

    Raises:
        InvalidInput: NeMo cannot train with this strategy.
    """
    text = _start(NEMO, transformer, machine, strategy).files["nemo.yaml"]
    stage = strategy.zero_stage
    return _NEMO_HEAD + (_NEMO_FSDP.format(stage=stage) if stage > 1 else "") + text


def _start(
    name: str, transformer: Transformer, machine: Machine, strategy: Strategy
) -> TrainerStart:
    adapter = ready_adapter(name)
    kept = {p: value for p, value in adapter.places.items() if p not in _OF_A_TRIAL[name]}
    plan = StartPlan(transformer=transformer, machine=machine, strategy=strategy, iterations=1)
    return start_of(replace(adapter, command=(), places=kept), plan)


def _options(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield each option with its values."""
    starts = [place for place, word in enumerate(words) if word.startswith("--")]
    for begin, end in zip(starts, [*starts[1:], len(words)], strict=True):
        yield list(words[begin:end])
