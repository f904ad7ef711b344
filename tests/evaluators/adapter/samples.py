"""What tests of adapters share: a script that nobody has seen, and a small model and machine."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.readers import masked_crc32c
from evaluators.adapter.reading import read_adapter
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

HERE = Path(__file__).parent
SCRIPT_FILES = ("my-script.toml", "train.py", "my.json")

MODEL = Transformer.gpt(
    "tiny", num_layers=4, hidden_size=64, num_attention_heads=4, seq_length=32, vocab_size=512
)
MACHINE = Machine(
    name="virtual",
    description="two ranks a node",
    gpu="CPU",
    gpus_per_node=2,
    max_nodes=2,
    memory_gib=2.0,
    peak_tflops=None,
    memory_bandwidth_gb_per_s=20.0,
    intra_node_gb_per_s=5.0,
    inter_node_gb_per_s=5.0,
)


def my_script(folder: Path, *, change: tuple[str, str] = ("", "")) -> Adapter:
    """Return the adapter of the script, with the user's files copied into `folder`."""
    for name in SCRIPT_FILES:
        shutil.copy(HERE / name, folder)
    path = folder / "my-script.toml"
    if change[0]:
        text = path.read_text()
        assert change[0] in text
        path.write_text(text.replace(*change))
    return read_adapter(path)


def strategy(**changed: object) -> Strategy:
    """Return two ranks' worth of the simplest strategy, but for what is changed."""
    plain: dict[str, object] = {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 1,
        "zero_stage": 0,
        "num_nodes": 1,
        "activation_checkpointing": "none",
        "precision": "fp32",
    }
    return Strategy(**(plain | changed))  # type: ignore[arg-type]


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + data
        + struct.pack("<I", masked_crc32c(data))
    )


def event(step: int, tag: str, number: float, *, at_s: float) -> bytes:
    """Return a record of an event file of TensorBoard: one figure of one step."""
    value = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", number)
    summary = b"\x0a" + bytes([len(value)]) + value
    head = b"\x09" + struct.pack("<d", at_s) + b"\x10" + bytes([step])
    return _record(head + b"\x2a" + bytes([len(summary)]) + summary)
