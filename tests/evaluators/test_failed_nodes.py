"""Which node a fault of the hardware is blamed on, and which nodes are left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.failed_nodes import hardware_fault, nodes_to_exclude, note_failed_nodes, place_of
from evaluators.training_log import Cause, CauseKind
from tests.evaluators.program.jobs import ended
from tests.evaluators.slurm.trials import Lines, request

ECC = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def test_a_node_is_left_out_after_failing_under_several_attempts(tmp_path: Path) -> None:
    assert nodes_to_exclude(tmp_path, failures=1) == ()
    note_failed_nodes(tmp_path, name="a.1", nodes=["n02", "n01"])
    note_failed_nodes(tmp_path, name="a.1", nodes=["n02", "n01"])
    note_failed_nodes(tmp_path, name="a.2", nodes=["n02"])
    assert nodes_to_exclude(tmp_path, failures=2) == ("n02",)
    assert nodes_to_exclude(tmp_path, failures=1) == ("n01", "n02")


def test_a_trial_does_not_go_back_to_a_node_that_failed_it(tmp_path: Path) -> None:
    note_failed_nodes(tmp_path, name="trial-1.1-5f", nodes=["n01"])
    note_failed_nodes(tmp_path, name="trial-11.1-5f", nodes=["n02"])
    assert nodes_to_exclude(tmp_path, failures=2, token="trial-1") == ("n01",)


@pytest.mark.parametrize(
    ("host", "rank", "hosts", "place"),
    [
        ("", 0, ["n01", "n02"], 0),
        ("", 3, ["n01", "n02"], 1),
        ("", 4, ["n01", "n02"], None),
        ("", None, ["n01", "n02"], None),
        ("", None, ["n01"], 0),
        ("n02", 0, ["n01", "n02"], 1),
        ("n02.cluster", None, ["n01", "n02"], 1),
        ("n02", None, ["n01.cluster", "n02.cluster"], 1),
        ("n09", None, ["n01", "n02"], None),
        ("n01", 2, ["n01", "n01"], 1),
        ("", 0, [], None),
    ],
)
def test_the_node_of_a_fault(
    host: str, rank: int | None, hosts: Sequence[str], place: int | None
) -> None:
    cause = Cause(error="ECC", kind=CauseKind.HARDWARE, rank=rank, host=host)
    assert place_of(cause, hosts, ranks_per_node=2) == place


@pytest.mark.parametrize(
    ("text", "code", "status", "rank"),
    [
        (ECC, 1, None, 3),
        (ECC, 124, TrialState.TIMEOUT, 3),
        (ECC, 0, None, None),
        (ECC, 1, TrialState.OOM, None),
        ("[rank3]: ValueError: ECC\n", 1, None, None),
        ("", 1, None, None),
    ],
)
def test_a_failed_attempt_is_looked_through_for_a_fault(
    tmp_path: Path, text: str, code: int, status: TrialState | None, rank: int | None
) -> None:
    (tmp_path / "trial.log").write_text(text)
    fault = hardware_fault(Lines(), request(tmp_path), tmp_path, ended(code, status=status))
    assert (fault.rank if fault else None) == rank
