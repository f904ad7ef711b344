"""The models that are trained: GPT-3-like ones with tied embeddings, Llama-like ones without."""

from __future__ import annotations

from search_spaces.transformer import Transformer


def _llama(
    name: str,
    *,
    layers: int,
    hidden: int,
    heads: int,
    groups: int,
    ffn: int,
    seq_length: int = 2048,
    vocab_size: int = 32000,
) -> Transformer:
    return Transformer(
        name=name,
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_query_groups=groups,
        ffn_hidden_size=ffn,
        gated_mlp=True,
        tied_embeddings=False,
        seq_length=seq_length,
        vocab_size=vocab_size,
    )


def _gpt(name: str, *, layers: int, hidden: int, heads: int, **others: int) -> Transformer:
    return Transformer.gpt(
        name, num_layers=layers, hidden_size=hidden, num_attention_heads=heads, **others
    )


GPU_MODELS = (
    _gpt("gpt-125m", layers=12, hidden=768, heads=12, seq_length=1024),
    _llama("llama-250m", layers=16, hidden=1024, heads=16, groups=4, ffn=2816),
    _gpt("gpt-350m", layers=24, hidden=1024, heads=16, seq_length=1024),
    _llama("llama-500m", layers=24, hidden=1280, heads=20, groups=4, ffn=3456),
    _gpt("gpt-760m", layers=24, hidden=1536, heads=16),
    _llama("llama-1.1b", layers=22, hidden=2048, heads=32, groups=4, ffn=5632),
    _gpt("gpt-1.3b", layers=24, hidden=2048, heads=16),
    _gpt("gpt-2.7b", layers=32, hidden=2560, heads=20),
    _llama("llama-3b", layers=28, hidden=3072, heads=24, groups=8, ffn=8192, seq_length=4096),
    _gpt("gpt-6.7b", layers=32, hidden=4096, heads=32),
    _llama("llama-7b", layers=32, hidden=4096, heads=32, groups=32, ffn=11008, seq_length=4096),
    _gpt("gpt-13b", layers=40, hidden=5120, heads=40),
)
"""By size, up to more than any one GPU of today holds with its optimizer."""

CPU_MODELS = (
    _gpt("gpt-cpu", layers=4, hidden=128, heads=4, seq_length=128, vocab_size=512),
    _llama(
        "llama-cpu",
        layers=4,
        hidden=128,
        heads=4,
        groups=2,
        ffn=384,
        seq_length=128,
        vocab_size=512,
    ),
)
"""Seconds each on one core."""
