from __future__ import annotations

import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluators.frameworks.megatron_deepspeed import dataset
from evaluators.frameworks.megatron_deepspeed.dataset import synthetic_dataset
from tests.patience import PATIENCE_S

TYPES: dict[int, Any] = {1: "<u1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}


def read(path: Path) -> list[NDArray[Any]]:
    """The documents of an indexed dataset, read field by field as the format is published."""
    index = path.with_name(path.name + ".idx").read_bytes()
    tokens = path.with_name(path.name + ".bin").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", index, 9)
    assert version == 1
    kind = np.dtype(TYPES[code])
    at = 9 + struct.calcsize("<QBQQ")
    lengths = struct.unpack_from(f"<{sequences}i", index, at)
    places = struct.unpack_from(f"<{sequences}q", index, at + 4 * sequences)
    documents = struct.unpack_from(f"<{entries}q", index, at + 12 * sequences)
    assert at + 12 * sequences + 8 * entries == len(index)
    assert documents == tuple(range(sequences + 1))
    assert places[-1] + lengths[-1] * kind.itemsize == len(tokens)
    return [
        np.frombuffer(tokens, kind, count=length, offset=place)
        for place, length in zip(places, lengths, strict=True)
    ]


@pytest.mark.parametrize(("vocab_size", "seq_length"), [(512, 64), (51200, 2048), (128256, 131072)])
def test_it_holds_whole_samples_of_tokens_of_the_vocabulary(
    vocab_size: int, seq_length: int, tmp_path: Path
) -> None:
    documents = read(synthetic_dataset(tmp_path, vocab_size=vocab_size, seq_length=seq_length))
    tokens = np.concatenate(documents)
    assert len(tokens) >= 32 * seq_length + 1
    assert tokens.min() == 0
    assert vocab_size // 2 < tokens.max() < vocab_size - 1


def test_all_who_ask_at_once_get_one_dataset(tmp_path: Path) -> None:
    def ask(_: int) -> Path:
        return synthetic_dataset(tmp_path / "data", vocab_size=512, seq_length=64)

    with ThreadPoolExecutor(8) as pool:
        (path,) = set(pool.map(ask, range(8)))
    read(path)
    assert len(list(path.parent.iterdir())) == 2


def test_it_is_written_once(tmp_path: Path) -> None:
    path = synthetic_dataset(tmp_path, vocab_size=512, seq_length=64)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    assert synthetic_dataset(tmp_path, vocab_size=512, seq_length=64) == path
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_one_that_was_cut_short_is_written_again(tmp_path: Path) -> None:
    path = synthetic_dataset(tmp_path, vocab_size=512, seq_length=64)
    path.with_name(path.name + ".idx").unlink()
    path.with_name(path.name + ".bin").write_bytes(b"half")
    assert len(read(synthetic_dataset(tmp_path, vocab_size=512, seq_length=64))) > 1


def test_its_file_alone_makes_it_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(dataset.__file__), str(tmp_path / "a b"), "512", "64"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert read(Path(done.stdout.removesuffix("\n")))
