"""How layers are divided over a pipeline; NVIDIA's layouts are those of Megatron-Bridge 067f987."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.stages import LAYERS_OF_PREDICTION, chunk_layers, stage_layers


@given(layers=st.integers(1, 200), chunks=st.integers(1, 200))
def test_chunks_differ_by_one_layer_at_most(layers: int, chunks: int) -> None:
    counts = chunk_layers(layers, chunks)
    assert (len(counts), sum(counts)) == (chunks, layers)
    assert max(counts) == -(-layers // chunks)
    assert counts[-1] == min(counts) >= max(counts) - 1


@given(layers=st.integers(1, 200), chunks=st.integers(1, 200), mtp=st.integers(0, 3))
def test_no_chunk_but_the_last_is_without_a_layer(layers: int, chunks: int, mtp: int) -> None:
    counts = chunk_layers(layers, chunks, mtp_layers=mtp)
    assert sum(counts) == layers
    assert chunks > layers or min(counts[:-1], default=1) >= 1
    assert max(counts) - counts[-1] <= LAYERS_OF_PREDICTION * mtp + 2


@pytest.mark.parametrize(
    ("layers", "chunks", "mtp", "expected"),
    [
        (48, 4, 1, (12, 12, 12, 12)),  # even wherever that is possible
        (47, 4, 0, (12, 12, 12, 11)),  # the loss counts as a layer
        (46, 4, 0, (11, 12, 12, 11)),  # the embedding, too
        (45, 4, 0, (11, 12, 11, 11)),
        (126, 8, 0, (15, *(16,) * 6, 15)),  # torchtitan's default for Llama 3.1 405B
        (126, 64, 0, (1, *(2,) * 62, 1)),  # NVIDIA's, PP 16, VP 4
        (94, 24, 0, (3, *(4,) * 22, 3)),  # Qwen3 235B, PP 8, VP 3
        (61, 4, 1, (16, 16, 16, 13)),  # DeepSeek-V3, as are the next
        (61, 8, 1, (*(8,) * 7, 5)),
        (61, 16, 1, (*(4,) * 15, 1)),
        (61, 32, 1, (1, *(2,) * 30, 0)),
    ],
)
def test_published_divisions(layers: int, chunks: int, mtp: int, expected: tuple[int, ...]) -> None:
    assert chunk_layers(layers, chunks, mtp_layers=mtp) == expected


def test_chunks_go_around_the_stages() -> None:
    assert stage_layers(94, 8, virtual_stages=3) == (11, *(12,) * 6, 11)
    assert stage_layers(61, 4, virtual_stages=4, mtp_layers=1) == (16, 16, 16, 13)
    assert stage_layers(5, 2, virtual_stages=2) == (2, 3)
