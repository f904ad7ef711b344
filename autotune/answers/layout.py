"""A layout in words."""

from __future__ import annotations

from autotune.words.dimensions import capitalised
from autotune.words.quantities import count, percent, plural
from search_spaces.dimensions import BY_NAME, DIVIDING, OF_EXPERTS
from search_spaces.machine import NARROW, Machine
from search_spaces.strategy import Strategy


def utilisation(share: float | None, strategy: Strategy | None) -> str:
    """Return an MFU or HFU: `41.0 %`, and below 16 bits, where GPUs have a higher peak, `71.0 % of
    the 16-bit peak`."""
    narrow = share is not None and strategy is not None and strategy.precision in NARROW
    return percent(share) + (" of the 16-bit peak" if narrow else "")


def in_words(strategy: Strategy, machine: Machine) -> str:
    """Return a layout in words, without abbreviations such as TP and PP."""
    meanings = (
        BY_NAME[name].meaning[value > 1].format(value)
        for name in (*DIVIDING, *OF_EXPERTS)
        for value in [strategy.value(name)]
    )
    cut = capitalised("; ".join(filter(None, meanings)))
    copies = strategy.data_parallel(machine.gpus_per_node)
    replicas = (
        f"{count(copies)} replicas of the model train in parallel"
        if copies > 1
        else "there is one replica of the model"
    )
    each = plural(strategy.micro_batch_size, "sample")
    steps = strategy.gradient_accumulation_steps
    batches = f"{count(steps)} micro-batch{'' if steps == 1 else 'es'}"
    return f"{cut}; {replicas}, {batches} of {each} per step each."
