"""Nodes that fail again and again."""

from __future__ import annotations

from pathlib import Path

from evaluators.slurm.attempt_files import nodes_to_exclude, note_failed_nodes


def test_a_node_is_left_out_after_failing_under_several_attempts(tmp_path: Path) -> None:
    assert nodes_to_exclude(tmp_path, failures=1) == ()
    note_failed_nodes(tmp_path, name="a.1", nodes=["n02", "n01"])
    note_failed_nodes(tmp_path, name="a.1", nodes=["n02", "n01"])
    note_failed_nodes(tmp_path, name="a.2", nodes=["n02"])
    assert nodes_to_exclude(tmp_path, failures=2) == ("n02",)
    assert nodes_to_exclude(tmp_path, failures=1) == ("n01", "n02")
