"""What the adapter of Megatron-DeepSpeed sees in a checkout, and the dataset that it writes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import adapter_file, load_adapter
from evaluators.adapter.figures import StartPart
from evaluators.adapter.log import AdapterLog
from evaluators.adapter.reading import read_adapter
from evaluators.adapter.rendering import StartPlan, capabilities_of_adapter, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.transformer import Transformer
from tests.evaluators.frameworks.strategies import BASE

FRONTIER = load_machine("frontier")
GPT, LLAMA = load_model("gpt-22b"), load_model("llama-3-70b")
GROUPED = replace(GPT, num_query_groups=8)
ROTARY, THIRDS, EXPANDED, POSITIONS, NORM = (
    "list",
    "keys and values",
    "one query group",
    "learned positions",
    "torch's own",
)
ONE_SAMPLE = "attention of this checkout"
LAST = {
    "megatron/model/rotary_pos_embedding.py": "        rope = [base.cos(), base.sin()]\n",
    "megatron/model/transformer.py": "    each_hidden_size = mixed_x_layer.shape[-1] // 3\n",
}
WORKING = {"megatron/model/__init__.py": "    from torch.nn import LayerNorm\n"}


def _of_checkout(root: Path, lines: dict[str, str]) -> Adapter:
    for file, line in lines.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"import torch\n{line}")
    return read_adapter(adapter_file("megatron-deepspeed"), folder=str(root))


def _refused(
    adapter: Adapter, model: Transformer, changes: dict[str, object], machine: str = "frontier"
) -> list[str]:
    strategy = replace(BASE, **changes)  # type: ignore[arg-type]  # typed by the dataclass itself
    reasons = [
        each.because
        for each in capabilities_of_adapter(adapter).refusals
        if each.refuses(strategy, model, load_machine(machine))
    ]
    signs = (ROTARY, THIRDS, ONE_SAMPLE, EXPANDED, POSITIONS, NORM)
    return [sign for sign in signs for reason in reasons if sign in reason]


@pytest.mark.parametrize(
    ("model", "changes", "last", "working"),
    [
        (GPT, {}, [], []),
        (LLAMA, {}, [ROTARY, THIRDS], []),
        (GROUPED, {"zero_stage": 2, "pipeline_parallel": 1}, [THIRDS], []),
        (GPT, {"flash_attention": False}, [ONE_SAMPLE], []),
        (GPT, {"precision": "fp32"}, [ONE_SAMPLE], []),
        (GPT, {"flash_attention": False, "micro_batch_size": 1}, [], []),
        (GPT, {"sequence_parallel": True}, [POSITIONS], [POSITIONS]),
        (LLAMA, {"sequence_parallel": True}, [ROTARY, THIRDS], []),
        (
            LLAMA,
            {"tensor_parallel": 8, "flash_attention": False},
            [ROTARY, THIRDS, ONE_SAMPLE, EXPANDED],
            [EXPANDED],
        ),
    ],
)
def test_what_two_commits_cannot_train(
    tmp_path: Path,
    model: Transformer,
    changes: dict[str, object],
    last: list[str],
    working: list[str],
) -> None:
    assert _refused(_of_checkout(tmp_path / "last", LAST), model, changes) == last
    assert _refused(_of_checkout(tmp_path / "working", WORKING), model, changes) == working


@pytest.mark.parametrize(
    ("machine", "model", "changes", "refused"),
    [
        ("local", GPT, {}, [NORM]),
        ("aurora", GPT, {"zero_stage": 0}, [NORM]),
        ("local", GPT, {"zero_stage": 2, "pipeline_parallel": 1}, []),
        ("local", GPT, {"virtual_stages": 2}, []),  # on Megatron's own engine
        ("local", LLAMA, {}, []),
        ("frontier", GPT, {}, []),
    ],
)
def test_the_norm_of_a_pipeline_without_apex(
    machine: str, model: Transformer, changes: dict[str, object], refused: list[str], tmp_path: Path
) -> None:
    working = _of_checkout(tmp_path / "working", WORKING)
    assert _refused(working, model, changes, machine) == refused
    assert _refused(_of_checkout(tmp_path / "other", {}), model, changes, machine) == []


@pytest.mark.parametrize(("vocab_size", "seq_length"), [(512, 64), (128256, 131072)])
def test_all_ranks_share_one_dataset(vocab_size: int, seq_length: int, tmp_path: Path) -> None:
    """Read field by field, as the format is published."""
    model = replace(GPT, vocab_size=vocab_size, seq_length=seq_length)
    plan = StartPlan(
        transformer=model,
        machine=FRONTIER,
        strategy=BASE,
        iterations=8,
        python=sys.executable,
        out=str(tmp_path),
    )
    words = start_of(load_adapter("megatron-deepspeed"), plan).prepare
    ranks = [
        subprocess.Popen(words, env={**os.environ, "LOCAL_RANK": str(rank)}) for rank in range(4)
    ]
    assert [rank.wait() for rank in ranks] == [0] * 4
    index = (tmp_path / "random-tokens.idx").read_bytes()
    tokens = np.fromfile(tmp_path / "random-tokens.bin", dtype="<i4")
    assert {path.name for path in tmp_path.iterdir()} == {"random-tokens.idx", "random-tokens.bin"}
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, kind, sequences, documents = struct.unpack_from("<QBQQ", index, 9)
    assert (version, kind, documents) == (1, 4, sequences + 1)
    at = 9 + struct.calcsize("<QBQQ")
    lengths = struct.unpack_from(f"<{sequences}i", index, at)
    places = struct.unpack_from(f"<{sequences}q", index, at + 4 * sequences)
    first = struct.unpack_from(f"<{documents}q", index, at + 12 * sequences)
    assert at + 12 * sequences + 8 * documents == len(index)
    assert first == tuple(range(documents))
    assert list(places) == [4 * sum(lengths[:n]) for n in range(sequences)]
    assert sum(lengths) == len(tokens) >= 32 * seq_length + 1
    assert tokens.min() == 0
    assert vocab_size // 2 < tokens.max() < vocab_size - 1


BEFORE = [
    "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4096, reducing to 2048",
    "[deepspeed] fp16 dynamic loss scale overflow! Rank 0 Skipping step.",
    "Grad overflow on iteration 4",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 256.0",
    " validation loss at iteration 1 | lm loss value: 1.044120E+01 | lm loss PPL: 3.424200E+04 | ",
]


@pytest.mark.parametrize("line", [*BEFORE, "No Grad overflow for 1000 iterations"])
def test_an_iteration_that_took_no_step_is_not_measured(line: str) -> None:
    """The first rank tells of it, and the last one of the iteration."""
    log = AdapterLog(
        load_adapter("megatron-deepspeed").read, [[StartPart({"global_batch_size": 8})]]
    )
    for number in (1, 2, 3):
        if number == 2:
            log.take(f"[start 1 rank 0 {number}.000000s] {line}")
        log.take(
            f"[start 1 rank 7 {number}.100000s]  iteration {number}/ 3 | elapsed time per "
            "iteration (ms): 9.5 | global batch size: 8 | lm loss: 9.5 | number of skipped "
            "iterations: 0 | number of nan iterations: 0 |"
        )
    assert log.starts[0].figures.excluded == ({2} if line in BEFORE else set())
