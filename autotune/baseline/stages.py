"""Layers of pipeline stages as options of Megatron Core state them (d98e8a64:
`pipeline_parallel_layer_layout.py`, `transformer_config.py`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby

LAYOUT = "--pipeline-model-parallel-layout"
FIRST = "--decoder-first-pipeline-num-layers"
LAST = "--decoder-last-pipeline-num-layers"
EMBEDDING = "--account-for-embedding-in-pipeline-split"
LOSS = "--account-for-loss-in-pipeline-split"
STAGE_OPTIONS = (LAYOUT, FIRST, LAST, EMBEDDING, LOSS)

REPEATED = (re.compile(r"\(([^()]+)\)\*(\d{1,3})"), re.compile(r"([^()*])\*(\d{1,3})"))
LONGEST = 10_000  # characters of a layout, of which a thousand stages have about half
LETTERS = re.compile(r"Et*(\|t*)*m*L")


class UnreadStages(ValueError):
    """Why options of stages are not read, as a clause."""


def chunks_of_layout(layout: str) -> tuple[int, ...]:
    """Return the layers of each virtual stage of a layout in letters, `Ettt|(tt|)*29mL`.

    Raises:
        UnreadStages: it is no such layout, or multi-token prediction has a stage of its own.
    """
    letters = re.sub(r"""[,\s'"]""", "", layout)
    for run in REPEATED:
        if len(letters) <= LONGEST:
            letters = run.sub(lambda found: found[1] * int(found[2]), letters)
    if not LETTERS.fullmatch(letters):
        raise UnreadStages("only E, t, m and L in this order are")
    return tuple(chunk.count("t") for chunk in letters.split("|"))


def stated_chunks(
    given: Mapping[str, str], *, num_layers: int, stages: int, virtual_stages: int
) -> tuple[int, ...] | None:
    """Return the layers of each virtual stage that these options state; None if there is none.

    Args:
        given: option of STAGE_OPTIONS -> value.

    Raises:
        UnreadStages: Megatron Core refuses them, or a layout cannot be read.
    """
    if LAYOUT in given:
        return chunks_of_layout(given[LAYOUT])
    if FIRST in given or LAST in given:
        return _named_ends(given, num_layers, stages, virtual_stages)
    if EMBEDDING in given or LOSS in given:
        chunks = stages * virtual_stages
        ends = (EMBEDDING in given, LOSS in given)
        each, rest = divmod(num_layers + sum(ends), chunks)
        if rest:
            raise UnreadStages(f"{num_layers + sum(ends)} are not divisible by {chunks}")
        return _with_ends(each - ends[0], each, each - ends[1], chunks)
    return None


def _named_ends(
    given: Mapping[str, str], num_layers: int, stages: int, virtual_stages: int
) -> tuple[int, ...]:
    named = {name: given[name] for name in (FIRST, LAST) if name in given}
    if not all(value.isdecimal() for value in named.values()):
        raise UnreadStages("no number of layers")
    numbers = {name: int(value) for name, value in named.items()}
    between, left = stages - len(numbers), num_layers - sum(numbers.values())
    each, rest = divmod(left, between) if between > 0 else (0, left)
    counts = (numbers.get(FIRST, each), each, numbers.get(LAST, each))
    if rest or left < 0 or any(count % virtual_stages for count in counts):
        raise UnreadStages(f"{left} other layers are not divisible by {between} stages")
    first, each, last = (count // virtual_stages for count in counts)
    return _with_ends(first, each, last, stages) * virtual_stages


def _with_ends(first: int, each: int, last: int, count: int) -> tuple[int, ...]:
    return (first + last - each,) if count == 1 else (first, *(each,) * (count - 2), last)


def in_words(chunks: tuple[int, ...]) -> str:
    """Return numbers of layers as `3, 22 x 4, 3`."""
    runs = [(count, len(list(run))) for count, run in groupby(chunks)]
    return ", ".join(f"{times} x {count}" if times > 1 else str(count) for count, times in runs)
