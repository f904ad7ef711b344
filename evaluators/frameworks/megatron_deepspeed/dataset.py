"""A small synthetic dataset in Megatron's indexed format, for users who have none yet.

An indexed dataset is two files. `.bin` holds the tokens of all documents, one after the other.
`.idx` holds, little-endian: the magic `MMIDIDX` and two zero bytes; version 1 (8 bytes); the code
of the tokens' type (1 byte, 4 for int32); the number of sequences and the length of the document
index (8 bytes each); the length of each sequence (int32); where it begins in `.bin`, in bytes
(int64); and the document index, which is the number of the sequence that each document begins
with, and behind them the number of all sequences (int64).

This file needs numpy alone: launch scripts hold a copy of it and run it on a cluster.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
INT32 = 4

DOCUMENTS = 512
TOKENS = 1 << 20
"""Minimum: 512 samples of 2,048 tokens. Megatron repeats a dataset as often as a run needs."""

LEAST_SAMPLES = 32


def synthetic_dataset(folder: Path, *, vocab_size: int, seq_length: int) -> Path:
    """Return the dataset's path, without .bin or .idx; write it if it does not exist.

    Its tokens are random with a fixed seed, and below the vocabulary size minus one, the null
    tokenizer's end of a document. Several processes may call this at once.

    Raises:
        OSError: the folder cannot be written.
    """
    tokens = max(TOKENS, LEAST_SAMPLES * seq_length)
    length = -(-tokens // DOCUMENTS) + 1  # of each document
    dataset = folder / f"synthetic-{vocab_size}-{DOCUMENTS}x{length}"
    index = dataset.with_name(f"{dataset.name}.idx")
    if not index.exists():  # written last
        folder.mkdir(parents=True, exist_ok=True)
        draw = np.random.default_rng(0)
        drawn = draw.integers(0, max(1, vocab_size - 1), size=DOCUMENTS * length)
        _write(dataset.with_name(f"{dataset.name}.bin"), drawn.astype("<i4").tobytes())
        _write(index, _index(length))
    return dataset


def _index(length: int) -> bytes:
    head = MAGIC + struct.pack("<QBQQ", VERSION, INT32, DOCUMENTS, DOCUMENTS + 1)
    lengths = np.full(DOCUMENTS, length, dtype="<i4")
    places = np.arange(DOCUMENTS, dtype="<i8") * length * lengths.itemsize
    documents = np.arange(DOCUMENTS + 1, dtype="<i8")
    return head + lengths.tobytes() + places.tobytes() + documents.tobytes()


def _write(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    print(
        synthetic_dataset(
            Path(sys.argv[1]), vocab_size=int(sys.argv[2]), seq_length=int(sys.argv[3])
        )
    )
