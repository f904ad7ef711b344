"""What a launch script needs from its user before it can run."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.cluster.profile import ClusterProfile, Megatron

NEEDED = {
    "MEGATRON_DIR": "path of a clone of Megatron-DeepSpeed",
    "DATA_PATH": "path of an indexed dataset, without .bin or .idx",
    "TOKENIZER_TYPE": "the tokenizer of that dataset: GPT2BPETokenizer, HFTokenizer, …",
    "TOKENIZER_MODEL": "the tokenizer's model",
    "VOCAB_FILE": "the GPT-2 tokenizer's vocabulary",
    "MERGE_FILE": "the GPT-2 tokenizer's merges",
    "PYTHON": "an interpreter with torch, DeepSpeed and what Megatron needs, on the nodes",
}
"""Environment variables that a script may require -> meaning."""

OF_MODEL = ("SentencePieceTokenizer", "GPTSentencePieceTokenizer", "HFTokenizer")
"""Tokenizers that consist of one file or folder."""


def megatron_needs(profile: ClusterProfile | None) -> dict[str, str]:
    """Return what the Megatron-DeepSpeed script still needs, variable -> meaning.

    Args:
        profile: cluster profile of the trials; None if they did not run on a cluster.
    """
    return {name: NEEDED[name] for name in _missing(profile)}


def _missing(profile: ClusterProfile | None) -> Iterator[str]:
    megatron = profile.megatron if profile else None
    given = megatron or Megatron(path="", tokenizer_type="")
    if not given.path:
        yield "MEGATRON_DIR"
    if not given.data_path and (megatron is None or given.tokenizer_type != "NullTokenizer"):
        yield "DATA_PATH"
    if not given.tokenizer_type:
        yield "TOKENIZER_TYPE"
    if given.tokenizer_type == "GPT2BPETokenizer":
        yield from (n for n in ("VOCAB_FILE", "MERGE_FILE") if not getattr(given, n.lower()))
    if given.tokenizer_type in OF_MODEL and not given.tokenizer_model:
        yield "TOKENIZER_MODEL"
    if profile is None:
        yield "PYTHON"
