"""A script that nobody has seen, trained for real on this machine by its adapter."""

from __future__ import annotations

import errno
import json
import os
import re
import venv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.schemas.choices import TrialState
from evaluators.adapter.adapter import Adapter
from evaluators.cluster import ClusterProfile
from evaluators.local.backend import LocalBackend, LocalProgramBackend
from evaluators.trial import Backend, TrialOutcome, TrialProtocol, TrialRequest
from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script, strategy
from tests.full_disk import full_disk
from tests.patience import PATIENCE_S, until


def profile_of(adapter: Adapter) -> ClusterProfile:
    return ClusterProfile(name="local", adapter=adapter)


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalProgramBackend]:
    made = LocalProgramBackend(profile_of(my_script(tmp_path)))
    yield made
    made.close()


def _request(
    folder: Path, *, token: str = "one", limit_s: float = PATIENCE_S, **changed: Any
) -> TrialRequest:
    largest = changed.get("gradient_accumulation_steps", 1)
    protocol = TrialProtocol(
        accumulations=(1, largest) if largest > 1 else (1,),
        measured_iterations=3,
        time_limit_s=limit_s,
    )
    return TrialRequest(
        token=token,
        transformer=MODEL,
        machine=MACHINE,
        strategy=strategy(**changed),
        protocol=protocol,
        directory=folder / token,
    )


def _ended(backend: LocalProgramBackend, *requests: TrialRequest) -> list[TrialOutcome]:
    def ended() -> list[TrialOutcome]:
        answers = backend.poll(requests)
        outcomes = [answers[request.token] for request in requests]
        found = [outcome for outcome in outcomes if isinstance(outcome, TrialOutcome)]
        return found if len(found) == len(requests) else []

    found: list[TrialOutcome] = until(ended, "the trials end")
    return found


def _outcome(adapter: Adapter, request: TrialRequest) -> TrialOutcome:
    backend = LocalProgramBackend(profile_of(adapter))
    backend.submit(request)
    [outcome] = _ended(backend, request)
    backend.close()
    return outcome


LAYOUTS: list[dict[str, Any]] = [
    {"gradient_accumulation_steps": 6, "zero_stage": 1,
     "tensor_parallel": 2, "sequence_parallel": True, "precision": "bf16"},
    {"pipeline_parallel": 2, "gradient_accumulation_steps": 4, "micro_batch_size": 4},
    {"num_nodes": 2, "tensor_parallel": 2, "pipeline_parallel": 2, "zero_stage": 3,
     "activation_checkpointing": "full"},
]  # fmt: skip


def test_every_dimension_reaches_the_script_and_figures_return(
    tmp_path: Path, backend: LocalProgramBackend
) -> None:
    requests = [_request(tmp_path, token=f"t{n}", **each) for n, each in enumerate(LAYOUTS)]
    for request in requests:
        backend.submit(request)
    for request, outcome in zip(requests, _ended(backend, *requests), strict=True):
        assert outcome.status is TrialState.OK, outcome.error
        assert [m.gradient_accumulation_steps for m in outcome.measurements] == list(
            request.protocol.accumulations
        )
        for number, measured in enumerate(outcome.measurements, start=1):
            assert list(measured.iteration_times_s) == _printed_s(request, start=number)[3:]
        ranks = request.strategy.world_size(MACHINE.gpus_per_node)
        micro_batch = request.strategy.micro_batch_size
        peaks = [(300 + 10 * rank + micro_batch) / 1024 for rank in range(ranks)]
        assert list(outcome.peak_memory_gib) == pytest.approx(peaks)
        assert outcome.loss == pytest.approx(10 / 6, abs=1e-4)
        assert outcome.versions["adapter"].startswith("my-script ")
    conf = json.loads((tmp_path / "t2" / "start-1" / "conf.json").read_text())
    assert conf == {"lr": 0.001, "accumulate": 1, "zero": 3, "data": {"name": "mine"}}


def _printed_s(request: TrialRequest, *, start: int) -> list[float]:
    """Return the times that the script printed in a start, seconds."""
    log = (request.directory / "trial.log").read_text()
    return [float(ms) / 1000 for ms in re.findall(rf"\[start {start} rank 0 .* ([\d.]+)ms", log)]


def test_versions_are_those_of_the_interpreter_that_trains(tmp_path: Path) -> None:
    """Its commands, too, come before others on the PATH."""
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    (modules,) = environment.glob("lib/python3*/site-packages")
    (modules / "transformers-4.57.1.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: transformers\nVersion: 4.57.1\n"
    (modules / "transformers-4.57.1.dist-info" / "METADATA").write_text(metadata)
    own = f'["sh", "-c", "which python3; exec $0 $*", "{environment}/bin/python", "train.py"]'
    adapter = my_script(tmp_path, change=('["{python}", "train.py"]', own))
    adapter = replace(adapter, versions={"transformers": "4.57.1"})
    outcome = _outcome(adapter, _request(tmp_path))
    assert outcome.status is TrialState.OK, outcome.error
    assert outcome.versions["transformers"] == "4.57.1"


def test_a_trainer_that_ignores_its_options_is_a_crash(tmp_path: Path) -> None:
    accumulation = "{gradient_accumulation_steps}"
    adapter = my_script(tmp_path, change=(accumulation, accumulation.replace("}", " * 2}")))
    outcome = _outcome(adapter, _request(tmp_path))
    assert outcome.status is TrialState.CRASHED
    error = "the trainer reports gradient_accumulation_steps = 2 instead of 1"
    assert error in (outcome.error or "")


ONE_START = r"""[one_start]
when = "pipeline_parallel == 1"
[one_start.set]
"--schedule" = "{first_iterations}:{gradient_accumulation_steps}"
"conf.json:accumulate" = "{first_gradient_accumulation_steps}"
[[read]]
log = '\[(?P<step>\d+)/.* x(?P<gradient_accumulation_steps>\d+)$'
[set]"""


def test_two_gas_values_share_one_start_if_the_trainer_can(tmp_path: Path) -> None:
    adapter = my_script(tmp_path, change=("[set]", ONE_START))
    backend = LocalProgramBackend(profile_of(adapter))
    together = _request(tmp_path, gradient_accumulation_steps=4)
    apart = _request(tmp_path, token="two", gradient_accumulation_steps=4, pipeline_parallel=2)
    for request in (together, apart):
        backend.submit(request)
    one, two = _ended(backend, together, apart)
    backend.close()
    assert one.status is two.status is TrialState.OK, (one.error, two.error)
    assert [m.gradient_accumulation_steps for m in one.measurements] == [1, 4]
    printed = _printed_s(together, start=1)
    assert [list(m.iteration_times_s) for m in one.measurements] == [printed[3:6], printed[6:]]
    assert (len(printed), _printed_s(together, start=2)) == (9, [])
    assert [m.gradient_accumulation_steps for m in two.measurements] == [1, 4]
    assert list(two.measurements[1].iteration_times_s) == _printed_s(apart, start=2)[3:]


def test_a_trainer_that_ignores_its_schedule_has_crashed(tmp_path: Path) -> None:
    adapter = my_script(tmp_path, change=("[set]", ONE_START.replace("--schedule", "--ramp")))
    outcome = _outcome(adapter, _request(tmp_path, gradient_accumulation_steps=4))
    assert outcome.status is TrialState.CRASHED
    assert outcome.error == (
        "GAS 1 and 4 in one start: the trainer reports gradient_accumulation_steps = 1 instead of 4"
    )


def _ranks_of(request: TrialRequest) -> list[int]:
    """Return the processes that run in the trial's folder or know its name."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(request.directory) in " ".join(process.info["cmdline"] or ())
        if process.pid != os.getpid()
    ]


def _runs(request: TrialRequest) -> None:
    log = request.directory / "trial.log"
    until(lambda: log.exists() and "[1/" in log.read_text(), "the trial begins")


def test_a_closed_backend_ends_all_processes_of_its_trials(tmp_path: Path) -> None:
    endless = my_script(tmp_path, change=("{iterations}", "1000000"))
    backend = LocalProgramBackend(profile_of(endless))
    request = _request(tmp_path)
    backend.submit(request)
    _runs(request)
    backend.close()
    until(lambda: not _ranks_of(request), "its processes have gone")


@pytest.mark.parametrize("bundled", [True, False])
def test_a_trial_that_there_is_no_room_for_is_left_to_the_caller(
    tmp_path: Path, backend: LocalProgramBackend, bundled: bool
) -> None:
    """It has not crashed, and is as if it had never been submitted."""
    made: Backend = LocalBackend() if bundled else backend
    with full_disk(tmp_path / "full", inodes=1) as disk:
        trial = _request(disk.folder, token="trial")
        with pytest.raises(OSError, match="No space left") as refused:
            made.submit(trial)
        assert refused.value.errno == errno.ENOSPC
        assert made.poll([trial]) == {}
    made.close()


def test_a_program_whose_disk_fills_up_is_lost_and_says_that(
    tmp_path: Path, backend: LocalProgramBackend
) -> None:
    with full_disk(tmp_path / "full", inodes=4) as disk:
        trial = _request(disk.folder, token="trial")
        backend.submit(trial)
        [outcome] = _ended(backend, trial)
        assert outcome.status is TrialState.LOST
        error = "the disk was full (No space left on device): 0 of 0 MiB are free at"
        assert outcome.error == f"{error} {disk.folder}, and no more files can be made there"
