"""How the layers of a model are divided over the stages of a pipeline."""

from __future__ import annotations

from itertools import chain

LAYERS_OF_PREDICTION = 3
"""Layers by which each depth of multi-token prediction shortens the last chunk: its own, and two
for the logits of two tokens, as in NVIDIA's layouts of DeepSeek-V3 (Megatron-Bridge 067f987)."""


CHUNKS_OF_ENDS = 2
"""Chunks that may have no layer, only the logits, or the embedding and the logits, as in NVIDIA's
layout of Llama 3.1 405B: 126 layers in 128 chunks (Megatron-Bridge 0013c9a8)."""


def chunk_layers(num_layers: int, chunks: int, *, mtp_layers: int = 0) -> tuple[int, ...]:
    """Return the layers of each chunk in the order of the model; a stage has as many chunks as it
    has virtual stages.

    Chunks are equal where that is possible. Otherwise they differ by one layer, and the shorter
    ones stand at the ends, beginning with the last, which has the logits: with one or two of them
    the loss, or embedding and loss, count as a layer each (Megatron Core's
    `account_for_loss_in_pipeline_split` and `account_for_embedding_in_pipeline_split`, torchtitan's
    default). The last chunk is shorter still if it has layers of multi-token prediction.
    """
    if num_layers < chunks <= num_layers + CHUNKS_OF_ENDS:
        return (*((0,) * (chunks - num_layers - 1)), *((1,) * num_layers), 0)
    if chunks >= num_layers:
        return (1,) * num_layers + (0,) * (chunks - num_layers)
    if num_layers % chunks == 0:
        return (num_layers // chunks,) * chunks
    predicting = LAYERS_OF_PREDICTION * mtp_layers
    most = -(-(num_layers + predicting) // chunks)
    counts = [most] * chunks
    missing = most * chunks - num_layers
    counts[-1] -= min(predicting, most, missing)
    missing = sum(counts) - num_layers
    from_ends = list(chain.from_iterable(zip(reversed(range(chunks)), range(chunks), strict=True)))
    order = from_ends[1 if predicting else 0 : chunks]
    while missing:
        shortened = [place for place in order if counts[place] > 1][:missing]
        for place in shortened:
            counts[place] -= 1
        missing -= len(shortened)
    return tuple(counts)


def stage_layers(
    num_layers: int, stages: int, *, virtual_stages: int = 1, mtp_layers: int = 0
) -> tuple[int, ...]:
    """Return the layers of each stage of a pipeline, whose chunks go around the stages."""
    chunks = chunk_layers(num_layers, stages * virtual_stages, mtp_layers=mtp_layers)
    return tuple(sum(chunks[stage::stages]) for stage in range(stages))
