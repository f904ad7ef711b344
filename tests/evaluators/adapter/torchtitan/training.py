"""The ready adapter of torchtitan 0.2 as tests on CPUs have it, with a text and a tokenizer."""

from __future__ import annotations

import json
import random
from pathlib import Path

from evaluators.adapter.catalog import READY

ON_CPU = Path(__file__).parent / "on_cpu.py"
OWN = """
[model]
name = "llama3"
flavor = "debugmodel"
hf_assets_path = "./tokenizer"

[training]
dataset = "c4_test"
dataset_path = "./corpus"

[optimizer]
implementation = "foreach"
"""
DEBUG_MODEL = {
    "name": "torchtitan's debugmodel",
    "num_layers": 6,
    "hidden_size": 256,
    "ffn_hidden_size": 768,
    "num_attention_heads": 16,
    "seq_length": 64,
    "vocab_size": 2048,
    "gated_mlp": True,
}


def write_adapter(folder: Path, *, python: str) -> None:
    """Write `titan.toml` into `folder`: the ready file, but for the lines that a user changes, and
    with the shim for CPUs as its command."""
    ready = (READY / "torchtitan-0.2.toml").read_text("utf-8")
    changes = {
        'command = ["{python}", "-m", "torchtitan.train"]': f'command = ["{python}", "{ON_CPU}"]',
        'folder = "~/torchtitan"': 'folder = "."',
        "# base =": "base =",
        "[set]": f'[set]\n"$HF_HOME" = "{folder / "cache"}"',
    }
    for old, new in changes.items():
        assert ready.count(old) == 1
        ready = ready.replace(old, new)
    (folder / "titan.toml").write_text(ready)
    (folder / "mine.toml").write_text(OWN)
    _write_text(folder)


def _write_text(folder: Path) -> None:
    """Write a text of random words, and a tokenizer that knows them."""
    words = [f"w{number}" for number in range(500)]
    draw = random.Random(1)
    lines = (json.dumps({"text": " ".join(draw.choices(words, k=400))}) for _ in range(300))
    (folder / "corpus").mkdir()
    (folder / "corpus" / "lines.json").write_text("\n".join(lines))
    special = ("[UNK]", "<s>", "</s>")
    added = [{"id": number, "content": word} | _SPECIAL for number, word in enumerate(special)]
    vocabulary = {word: number for number, word in enumerate((*special, *words))}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    (folder / "tokenizer").mkdir()
    (folder / "tokenizer" / "tokenizer.json").write_text(
        json.dumps(
            {"version": "1.0", "added_tokens": added, "pre_tokenizer": {"type": "Whitespace"}}
            | dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
            | {"model": model}
        )
    )
    ends = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer" / "tokenizer_config.json").write_text(json.dumps(ends))


_SPECIAL = {"special": True} | dict.fromkeys(
    ("single_word", "lstrip", "rstrip", "normalized"), False
)
