"""What only accounting knows or enforces; one cluster with it for all tests of this module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import Attempt
from evaluators.cluster.profile import Retries, Scheduling
from evaluators.slurm.preflight import JobShape, check
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import point_at, require_slurm
from tests.evaluators.slurm.trials import (
    PROFILE,
    Backends,
    finish,
    machine,
    request,
    standing,
    wait_begun,
)
from tests.patience import until

pytestmark = pytest.mark.xdist_group("slurm")

# The queue forgets a job two seconds after its end: then accounting alone knows it.
OPTIONS = {"MinJobAge": "2", "AccountingStorageEnforce": "limits"}


@pytest.fixture(scope="module")
def accounted() -> Iterator[Cluster]:
    require_slurm(accounting=True)
    with Cluster(nodes=3, accounting=True, options=OPTIONS) as cluster:
        yield cluster


@pytest.fixture
def backends(accounted: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backends]:
    point_at(accounted, monkeypatch)
    with Backends(accounted) as made:
        yield made
    accounted.reset()


def test_the_error_names_who_cancelled_a_job(backends: Backends, tmp_path: Path) -> None:
    """Accounting knows of it some two seconds later, so it is asked only then."""
    once = replace(
        PROFILE, polling=replace(PROFILE.polling, settle_s=4.0), retries=Retries(attempts=1)
    )
    backend, trial = backends.make("sleep 1000", profile=once), request(tmp_path)
    backend.submit(trial)
    job_id = until(lambda: standing(backend, trial).job_id)
    backends.cluster.command("scancel", str(job_id))
    (cancelled,) = finish(backend, trial)
    assert cancelled.status is TrialState.CANCELLED
    by = f"its job was cancelled by user {os.geteuid()}, not by this campaign"
    assert (cancelled.error or "").startswith(by)


def test_a_job_that_the_queue_has_forgotten_is_looked_up(
    backends: Backends, tmp_path: Path
) -> None:
    """Its node failed while no service was there, and is up again: accounting alone tells."""
    backend, trial = backends.make("sleep 1000"), request(tmp_path)
    backend.submit(trial)
    wait_begun(backend, trial)
    node = until(lambda: standing(backend, trial).host)
    backend.close()
    backends.cluster.down(node)
    name = Attempt(request=trial, number=1).name
    until(lambda: name not in backends.cluster.command("squeue", "--states=all", "--format=%j"))
    backends.cluster.resume(node)
    at_once = replace(PROFILE, polling=replace(PROFILE.polling, settle_s=0.1))
    (outcome,) = finish(backends.make(profile=at_once), trial)
    assert outcome.status is TrialState.OK
    assert '"node_fail"' in (trial.directory / "attempt-1" / "abandoned.json").read_text()


def test_a_full_queue_is_waited_for(backends: Backends, tmp_path: Path) -> None:
    """A limit on how many jobs one may have is no refusal of the second job."""
    limit = ("sacctmgr", "--immediate", "modify", "user", "root", "set")
    backends.cluster.command(*limit, "MaxSubmitJobs=1")
    go_on = tmp_path / "go_on"
    backend = backends.make(f"until [[ -e {go_on} ]]; do sleep 0.1; done; echo 1 >result")
    first, second = request(tmp_path, "first"), request(tmp_path, "second")
    backend.submit(first)
    until(lambda: standing(backend, first).job_id)
    backend.submit(second)
    shown = until(lambda: (s := standing(backend, second)).reason.startswith("no more") and s)
    assert "MaxSubmitJob" in shown.reason
    go_on.touch()
    assert [o.status.value for o in finish(backend, first, second)] == ["ok", "ok"]
    backends.cluster.command(*limit, "MaxSubmitJobs=-1")


@pytest.mark.usefixtures("backends")
def test_an_account_of_others_is_reported_before_queueing() -> None:
    profile = replace(PROFILE, slurm=Scheduling(account="nobodys", partition="batch"))
    (problem,) = check(profile, job=JobShape(nodes=1, time_limit_s=60.0), machine=machine())
    assert problem.field == "slurm.account"
    assert "you have no such account on this cluster" in problem.reason
