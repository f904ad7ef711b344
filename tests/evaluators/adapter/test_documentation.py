"""The page on adapters is true, and what is ready can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaluators.adapter.catalog import READY, adapter_names, load_adapter
from evaluators.adapter.names import AT_START, OF_ONE_START
from evaluators.adapter.reading import KEYS, read_adapter
from tests.evaluators.adapter.samples import my_script

PAGE = (Path(__file__).parents[3] / "docs" / "adapter-file.md").read_text("utf-8")


def test_the_example_is_a_whole_adapter(tmp_path: Path) -> None:
    my_script(tmp_path)
    example, *_ = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    path = tmp_path / "other.toml"
    path.write_text(example)
    assert "micro_batch_size" in read_adapter(path).varied
    assert len(example.splitlines()) <= 20


def test_every_key_and_every_name_is_documented() -> None:
    table = PAGE[PAGE.index("| key | meaning |") : PAGE.index("Unknown keys")]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, flags=re.MULTILINE)
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == set(KEYS)
    for name in (*AT_START, *OF_ONE_START):
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", adapter_names())
def test_what_is_ready_says_what_was_done_with_it(name: str) -> None:
    adapter = load_adapter(name)
    assert adapter.description
    assert bool(adapter.checked) == (adapter.evidence != "unchecked")
    assert len((READY / f"{name}.toml").read_text().splitlines()) <= 330
