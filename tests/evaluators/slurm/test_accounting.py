"""What only accounting knows: jobs that the queue has forgotten, and who cancelled one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluators.slurm.attempt import Attempt
from evaluators.trial import TrialStatus
from tests.cluster.fixtures import MakeCluster
from tests.evaluators.slurm.trials import (
    Backends,
    finish,
    request,
    standing,
    wait,
    wait_begun,
)

pytestmark = pytest.mark.xdist_group("slurm")


def test_what_accounting_knows_is_asked_for(make_slurm: MakeCluster, tmp_path: Path) -> None:
    """The queue forgets a job two seconds after its end: then accounting alone knows it."""
    cluster = make_slurm(nodes=3, accounting=True, options={"MinJobAge": "2"})
    with Backends(cluster) as backends:
        backend = backends.make("sleep 1000")
        by_hand, lost = request(tmp_path, "by_hand"), request(tmp_path, "lost")
        for asked in (by_hand, lost):
            backend.submit(asked)
            wait_begun(backend, asked)
        job_id = wait(lambda: standing(backend, by_hand).job_id)
        failing = wait(lambda: standing(backend, lost).host)
        cluster.command("scancel", str(job_id))
        (cancelled,) = finish(backend, by_hand)
        backend.close()

        assert cancelled.status is TrialStatus.CANCELLED
        assert cancelled.error == (
            f"its job was cancelled by user {os.geteuid()}, and not by this campaign"
        )
        cluster.down(failing)
        name = Attempt(request=lost, number=1).name
        wait(lambda: name not in cluster.command("squeue", "--states=all", "--format=%j"))
        (outcome,) = finish(backends.make(), lost)
        assert outcome.status is TrialStatus.OK
        assert '"node_fail"' in (lost.directory / "attempt-1" / "over.json").read_text()
